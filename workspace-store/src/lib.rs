//! The canonical store of Kura: content-addressed chunks, trees, commits, refs, operations and the
//! audit log of many workspaces, in one SQLite database.

pub mod audit;
mod blobs;
pub mod check;
mod chunker;
pub mod commits;
mod compress;
mod db;
pub mod diff;
pub mod edit;
pub mod error;
pub mod export;
pub mod id;
pub mod import;
pub mod limits;
mod local_source;
pub mod lookup;
#[cfg(test)]
mod memory_store;
pub mod metadata;
pub mod object;
pub mod operation;
pub mod path;
pub mod progress;
pub mod reader;
pub mod refs;
mod resolve;
pub mod restore;
pub mod snapshot;
pub mod source;
pub mod store;
mod submit;
mod trees;
pub mod workspace;

pub use error::{ErrorKind, Result, StoreError};
pub use id::{BlobId, ChunkId, CommitId, TreeId, WorkspaceId};
pub use store::{Store, StoreOptions};
