//! The verbs of the control API: plain functions that may block.

pub mod attribution;
pub mod commits;
pub mod config;
pub mod control;
pub mod diff;
pub mod files;
pub mod grants;
pub mod history;
pub mod merge;
pub mod mounts;
pub mod principals;
pub mod purge;
pub mod references;
pub mod resolve;
pub mod revert;
mod take_out;
pub mod transfer;
pub mod workspaces;
