//! Commits: reading them, walking history, and the paths that each changed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CommitId;
use crate::object::Commit;

/// How a path changed in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// Its content changed (attributes perhaps too).
    Modified,
    /// Only attributes changed.
    Metadata,
    /// It is gone.
    Deleted,
    /// It is another kind of file now.
    TypeChanged,
}

/// One path changed by a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathChange {
    /// Path relative to the root, components joined by `/`; empty for the root itself.
    pub path: Box<[u8]>,
    /// How it changed.
    pub kind: ChangeKind,
}

/// Which commits to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Where to start; `None` is the head of the default branch.
    pub start: Option<CommitId>,
    /// Only commits that changed this path or something below it.
    pub path: Option<Vec<u8>>,
    /// Only commits of this run.
    pub run: Option<String>,
    /// Only commits of this author.
    pub author: Option<String>,
    /// At most so many; 0 means all.
    pub limit: usize,
}

/// A commit in a list.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Its id.
    pub id: CommitId,
    /// The commit.
    pub commit: Arc<Commit>,
}
