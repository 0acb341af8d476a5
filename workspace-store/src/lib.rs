//! The canonical store of Kura: content-addressed chunks, trees, commits, refs, operations and the
//! audit log of many workspaces, in one SQLite database.
//!
//! A [`Store`] is opened by one process at a time. Content and directories are immutable objects,
//! named by the hash of their bytes and verified whenever they are read. A change is described by
//! an [edit](edit::SnapshotEdit) that names only what differs; a commit of it is one transaction
//! that moves a branch by compare-and-swap and records operation, audit entry and changed paths
//! with it. What was reported is durable.
//!
//! The library never prints, reads no environment and knows no kernel filesystem; a mount reaches
//! it through [`source::WorkspaceSource`].
//!
//! ```
//! use std::sync::Arc;
//! use workspace_store::edit::{EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
//! use workspace_store::object::{Attributes, CommitKind};
//! use workspace_store::source::CommitRequest;
//! use workspace_store::{Store, StoreOptions};
//!
//! # fn main() -> workspace_store::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory can be made");
//! let store = Store::open(directory.path(), StoreOptions::default())?;
//! let workspace = store.create_workspace("demo", "ada")?;
//! let base = store.commit(workspace.head)?.root.clone();
//!
//! let file = InodeEdit {
//!     attributes: Attributes { mode: 0o644, ..Default::default() },
//!     node: NodeEdit::Content { key: 1, content: Arc::new(b"hello".to_vec()) },
//! };
//! let entries = [(b"greeting"[..].into(), EntryEdit::Put(file))].into();
//! let edit = SnapshotEdit::changing(&base, entries);
//! let request = CommitRequest {
//!     author: "ada".to_owned(),
//!     kind: CommitKind::Manual,
//!     message: "say hello".to_owned(),
//!     run: None,
//!     step: None,
//! };
//! let done =
//!     store.apply_edit(workspace.id, "main", workspace.head, &base, edit, request, &|_| {})?;
//! assert_eq!(store.resolve(workspace.id, "HEAD")?, done.commit);
//! assert_eq!(store.changes(done.commit)?[0].path.as_ref(), b"greeting");
//! # store.close()
//! # }
//! ```

pub mod actor;
mod ancestry;
pub mod attribution;
pub mod audit;
pub mod background;
pub mod blame;
mod blobs;
pub mod check;
mod chunker;
pub mod commits;
mod compress;
pub mod conflict;
mod db;
pub mod denial;
pub mod diff;
pub mod edit;
pub mod error;
pub mod export;
pub mod grant;
pub mod id;
pub mod import;
pub mod limits;
mod local_source;
pub mod lookup;
#[cfg(test)]
mod memory_store;
pub mod merge;
pub mod metadata;
pub mod object;
pub mod operation;
pub mod path;
pub mod policy;
pub mod principal;
pub mod progress;
pub mod purge;
pub mod reader;
pub mod refs;
mod resolve;
pub mod restore;
pub mod runs;
pub mod snapshot;
pub mod source;
pub mod store;
mod submit;
mod trees;
pub mod workspace;

pub use error::{ErrorKind, Result, StoreError};
pub use id::{BlobId, ChunkId, CommitId, TreeId, WorkspaceId};
pub use store::{Store, StoreOptions};
