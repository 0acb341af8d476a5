//! The filesystem's semantics, in its own types; knows no kernel.
//!
//! `request` is the seam to the transport. `open` replays, `filesystem` takes requests, `commit`
//! makes commits; `state`
//! holds the inodes and applies changes; `names`, `attributes`, `data` are the operations; `load`
//! brings inodes in from the store, `freeze` hands changes over to it, `switch` goes to another
//! version, and `watch` has those told of it who watch. `actors` are those who change something,
//! `attribution` says which paths they changed. `session` is one kernel connection's way in, `told`
//! what the others must hear, `view` and `guard` what its principal may do.

mod acl;
mod actors;
mod attributes;
mod attribution;
mod clock;
mod commit;
mod content;
mod data;
mod extent;
mod filesystem;
mod freeze;
mod guard;
mod inode;
mod load;
mod names;
mod open;
pub mod request;
mod session;
mod settle;
mod state;
mod switch;
mod told;
mod view;
mod watch;

pub use open::COMMIT_STACK_BYTES;

pub use session::FilesystemSession;
pub use view::{Denial, OnDenial};

pub use filesystem::{
    CommitOutcome, CommitPolicy, Filesystem, FilesystemOptions, OverlayStatus, SwitchOutcome,
};
