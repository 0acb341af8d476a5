//! Merging, and what could not be joined.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{EntryState, PathText};

/// Asks to bring what another history changed into a branch, by a new commit with two parents.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct MergeRequest {
    /// What to bring in: a branch, tag or commit of this workspace, or another workspace.
    pub from: String,
    /// State of that workspace; its default branch, live, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Branch that it comes into; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Message of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// One path that could not be joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConflictInfo {
    /// Path.
    pub path: PathText,
    /// Why: `content`, `added`, `deleted`, `kind`, `attributes`, `directory-deleted`.
    pub reason: String,
    /// What both sides came from; absent if there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<EntryState>,
    /// What was there; absent if it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<EntryState>,
    /// What was brought in; absent if it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<EntryState>,
    /// Where the other side stands, if not in the file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<PathText>,
    /// Commit that both sides came from.
    pub base_commit: String,
    /// Commit that was brought in.
    pub theirs_commit: String,
    /// What markers in texts call it.
    pub theirs_label: String,
}

/// Asks for the conflicts of a state.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ConflictQuery {
    /// State; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Conflicts of a state, by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConflictList {
    /// The commit.
    pub commit: String,
    /// Its conflicts.
    pub conflicts: Vec<ConflictInfo>,
}

/// Conflicts of a branch that nobody has resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BranchConflicts {
    /// Branch.
    pub branch: String,
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub conflicts: Vec<ConflictInfo>,
}

impl BranchConflicts {
    /// Most conflicts that a status lists.
    pub const MAX_SHOWN: usize = 20;
}

/// Which side a path is resolved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResolveSide {
    /// What was there.
    Ours,
    /// What was brought in.
    Theirs,
    /// What both came from.
    Base,
}

/// Asks to take paths out of the conflicts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ResolveRequest {
    /// Paths, at least one; a directory means all conflicts below it.
    pub paths: Vec<PathText>,
    /// With which side; with what is there now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<ResolveSide>,
    /// Branch; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}
