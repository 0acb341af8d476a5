//! The daemon of a Kura store: sole owner of its database and of all its mounts.
//!
//! Processes: `computerd` is the keeper ([`keeper`]); it starts `computerd worker`, which does
//! everything else, and starts it again when it dies.

mod access;
mod audit_key;
mod command_line;
mod containers;
mod convert;
mod daemon;
pub mod error;
pub mod keeper;
mod logging;
mod mounts;
mod server;
pub mod store_directory;
mod ui;
mod verbs;
mod volume_plugin;
mod worker;

pub use command_line::run;
