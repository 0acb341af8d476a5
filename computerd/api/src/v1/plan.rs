//! What a verb would do, before it does it; and what rollback, restore and undo answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ConflictInfo, DiffEntry, OperationReference, PathText};

/// What a verb would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// One line for people.
    pub summary: String,
    /// Branch that would move.
    pub branch: String,
    /// Commit that the branch names now.
    pub head: String,
    /// Commit whose state comes back, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Paths with uncommitted changes, which are committed first so that nothing is lost.
    pub uncommitted_count: u64,
    /// How the tree would change, seen from now; cut at [`Plan::MAX_CHANGES`].
    pub changes: Vec<DiffEntry>,
    /// How many changes there are in all.
    pub change_count: u64,
    /// What could not be joined, besides what is unresolved already; cut like the changes.
    #[serde(default)]
    pub conflicts: Vec<ConflictInfo>,
    /// How many conflicts there are in all.
    #[serde(default)]
    pub conflict_count: u64,
    /// Whether a commit is made also if no path changes.
    #[serde(default)]
    pub is_recorded: bool,
    /// Branches and tags that would move or go away, one line each for people.
    #[serde(default)]
    pub references: Vec<String>,
    /// Where it is mounted now: the change is seen there at once.
    #[serde(default)]
    pub mounts: Vec<PathText>,
}

impl Plan {
    /// Most changes that a plan lists.
    pub const MAX_CHANGES: usize = 1000;
}

/// Asks to set a branch back to an older state, or to take out the changes of a run or principal,
/// by a new commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RollbackRequest {
    /// State to come back; absent to take out changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Take out the changes of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Take out the changes of this principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Branch to set back; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Only these paths; all if empty.
    #[serde(default)]
    pub paths: Vec<PathText>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// Asks to bring paths back from an older state, by a new commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RestoreRequest {
    /// Paths, at least one; a directory means everything below it.
    pub paths: Vec<PathText>,
    /// State that they come from.
    pub from: String,
    /// Branch to change; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// What rollback, restore, undo, merge and resolve did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevertResult {
    /// What was planned (and done, unless the request was a dry run).
    pub plan: Plan,
    /// Commit that the branch names now; absent for a dry run or when nothing differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Commit that keeps the work that was uncommitted, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// The operation; absent for a dry run or when nothing differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationReference>,
}
