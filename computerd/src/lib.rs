//! The daemon of a Kura store: sole owner of its database and of all its mounts.
//!
//! Processes: `computerd` is the keeper ([`keeper`]); it starts `computerd worker` ([`worker`]),
//! which does everything else, and starts it again when it dies.

mod command_line;
pub mod error;
pub mod keeper;
mod logging;
pub mod store_directory;

pub use command_line::run;
