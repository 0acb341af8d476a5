//! Commits: make one, list them, show one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DiffOptions, DiffResult, OperationReference, PathText, ProcessChanges};

/// Asks for a commit of a branch's uncommitted changes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CommitBody {
    /// Branch; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Free text, may be empty.
    #[serde(default)]
    pub message: String,
    /// Author; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The execution it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The numbered part of that execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

/// What a commit request did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommitResult {
    /// The branch's newest commit.
    pub commit: String,
    /// Branch.
    pub branch: String,
    /// Whether a new commit was made; false if nothing differed.
    pub is_new: bool,
    /// What changed.
    pub changes: ChangeCounts,
    /// The operation; absent if nothing differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationReference>,
}

/// How many paths changed, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeCounts {
    /// New paths.
    pub added: u64,
    /// Paths with other content or attributes.
    pub modified: u64,
    /// Paths that are gone.
    pub deleted: u64,
    /// Paths that moved.
    #[serde(default)]
    pub renamed: u64,
}

impl ChangeCounts {
    /// All changes.
    pub fn total(&self) -> u64 {
        self.added + self.modified + self.deleted + self.renamed
    }
}

/// Asks for a part of the history, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct LogQuery {
    /// Where to begin; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Only commits that touch one of these paths or something below; all if empty.
    #[serde(default)]
    pub paths: Vec<PathText>,
    /// Only commits of this run, or with changes made in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Only those of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Only commits of this author, or with changes by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// At most this many; the daemon chooses when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Go on after this commit (the last one of the previous answer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A part of the history, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// The commits.
    pub commits: Vec<CommitInfo>,
    /// Whether there are more.
    #[serde(default)]
    pub has_more: bool,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommitInfo {
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// Versions it was made from.
    pub parents: Vec<String>,
    /// Id of its root directory's entries.
    pub tree: String,
    /// Principal that made it.
    pub author: String,
    /// Why it was made (`init`, `snapshot`, `manual`, `import`, `rescue`, `rollback` …).
    pub kind: String,
    /// When, RFC 3339 in UTC with nanoseconds.
    pub time: String,
    /// Free text, may be empty.
    pub message: String,
    /// The execution it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The numbered part of that execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Branches and tags that name it.
    #[serde(default)]
    pub references: Vec<String>,
    /// Whether it has conflicts that wait to be resolved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_conflicts: bool,
    /// What changed against the first parent; absent if not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangeCounts>,
}

/// Asks for one commit with its changes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ShowQuery {
    /// Which; the default branch's newest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// What the difference is to contain.
    #[serde(default)]
    pub options: DiffOptions,
}

/// One commit with its changes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShowResult {
    /// The commit.
    pub commit: CommitInfo,
    /// Its changes against the first parent (against nothing for the first commit).
    pub diff: DiffResult,
    /// The same changes by who made them.
    #[serde(default)]
    pub processes: Vec<ProcessChanges>,
}
