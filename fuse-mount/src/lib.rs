//! The filesystem of Kura workspaces: semantics in [`fs`], kernel transport in [`fuse`].

pub mod fs;
pub mod fuse;
mod handler;
mod journal;
