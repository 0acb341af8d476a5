//! Workspaces: named file trees with a history of their own.

use serde::{Deserialize, Serialize};

use crate::id::{CommitId, WorkspaceId};
use crate::object::Timestamp;

/// Name of the branch that every workspace starts with.
pub const DEFAULT_BRANCH: &str = "main";

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceInfo {
    /// Identity, kept for ever.
    pub id: WorkspaceId,
    /// Name, unique in the store.
    pub name: String,
    /// The branch that the workspace's name alone stands for.
    pub default_branch: String,
    /// When it was made.
    pub created: Timestamp,
    /// The commit that the default branch names.
    pub head: CommitId,
}

/// Sizes of a workspace and of the store around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Commits of the workspace.
    pub commits: u64,
    /// Its branches.
    pub branches: u64,
    /// Its tags.
    pub tags: u64,
    /// Its operations.
    pub operations: u64,
    /// Files, directories and other entries at the head of the default branch are not counted
    /// here; chunks of the whole store are.
    pub chunks: u64,
    /// Bytes of all chunks before compression.
    pub chunk_bytes: u64,
    /// Bytes of all chunks as stored.
    pub stored_bytes: u64,
    /// Directory nodes of the whole store.
    pub tree_nodes: u64,
    /// Size of the database file and its log.
    pub database_bytes: u64,
}
