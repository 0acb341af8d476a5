//! The canonical store of Kura: content-addressed chunks, trees, commits, refs, operations and the
//! audit log of many workspaces, in one SQLite database.

pub mod edit;
pub mod error;
pub mod id;
pub mod object;
pub mod reader;
pub mod source;

pub use error::{ErrorKind, Result, StoreError};
pub use id::{BlobId, ChunkId, CommitId, TreeId};
