//! Operations: every change of refs or settings, and how to take it back.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The operation that a changing request made; part of every such answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationReference {
    /// Number of the operation, growing within the store.
    pub id: u64,
    /// Command that takes it back, for people (`kura undo demo 12`).
    pub undo: String,
}

/// Asks for the newest operations of a workspace.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct OperationQuery {
    /// At most this many; the daemon chooses when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only operations with a smaller number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// Operations, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// The operations.
    pub operations: Vec<OperationInfo>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationInfo {
    /// Number of the operation.
    pub id: u64,
    /// When, RFC 3339 in UTC with nanoseconds.
    pub time: String,
    /// Who.
    pub principal: String,
    /// What kind of change ("commit", "rollback", "branch-create" …).
    pub kind: String,
    /// One line for people.
    pub description: String,
    /// Branches and tags before and after.
    #[serde(default)]
    pub references: Vec<ReferenceMove>,
    /// The operation that this one takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// The operation that took this one back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<u64>,
}

/// How an operation moved a branch or tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReferenceMove {
    /// Name of the branch or tag.
    pub name: String,
    /// Commit before; absent if the name was new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Commit after; absent if the name was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Asks to take an operation back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct UndoRequest {
    /// Which; the newest one that is not taken back if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u64>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}
