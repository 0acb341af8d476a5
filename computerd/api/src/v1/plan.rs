//! What a verb would do, before it does it; and what rollback, restore and undo answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DiffEntry, OperationReference, PathText};

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

/// Asks to set a branch back to an older state, by a new commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RollbackRequest {
    /// State to come back.
    pub revision: String,
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

/// What rollback, restore and undo did, or would do.
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
