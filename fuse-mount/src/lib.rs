//! The filesystem of Kura workspaces: semantics in [`fs`], kernel transport in [`fuse`].

pub mod fs;
pub mod fuse;
pub mod handler;
mod journal;
pub mod process;
