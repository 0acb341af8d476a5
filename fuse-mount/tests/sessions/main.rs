//! Two kernel connections of one filesystem, with a real kernel. Needs root and `/dev/fuse`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_docs_in_private_items,
    reason = "this is a test"
)]

#[path = "../common/helper.rs"]
mod helper;
#[path = "../common/workspace.rs"]
mod workspace;

mod coherence;
mod grants;
mod harness;
