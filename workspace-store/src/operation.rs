//! Operations: the atomic changes of refs and settings, each with its state before and after, so
//! that each can be undone by a new one.

use serde::{Deserialize, Serialize};

use crate::object::Timestamp;

/// Number of an operation; ascending in the whole store.
pub type OperationId = u64;

/// What an operation changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A new workspace.
    CreateWorkspace,
    /// A new workspace from a commit of another.
    ForkWorkspace,
    /// A branch moved to a new commit.
    Commit,
    /// A new branch.
    CreateBranch,
    /// A branch is gone.
    DeleteBranch,
    /// A new tag.
    CreateTag,
    /// A tag is gone.
    DeleteTag,
    /// A setting changed.
    SetSetting,
}

/// An operation as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Its number.
    pub id: OperationId,
    /// When it happened.
    pub time: Timestamp,
    /// Who did it.
    pub author: String,
    /// What it changed.
    pub kind: OperationKind,
    /// The branch, tag, setting or workspace that it changed.
    pub target: String,
    /// State before: a commit's id or a setting's value; `None` if there was none.
    pub before: Option<String>,
    /// State after, likewise.
    pub after: Option<String>,
    /// The operation that this one undid.
    pub undoes: Option<OperationId>,
    /// More, depending on the kind.
    pub details: serde_json::Value,
}
