//! Who changed what: processes, runs, blame.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ChangeCounts, CommitInfo, OperationReference, PathText};

/// Who changed something, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActorInfo {
    /// Principal.
    pub principal: String,
    /// The process; absent if unknown, or if the change did not come through a mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    /// Container that the process was in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The execution it belonged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The numbered part of that execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

/// A process of the daemon's host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// When it began, RFC 3339 in UTC; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Name of its program; empty if unknown.
    pub name: String,
    /// Command line; empty if unknown.
    pub command: Vec<String>,
    /// Its ancestors, nearest first.
    #[serde(default)]
    pub ancestors: Vec<AncestorInfo>,
}

/// An ancestor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AncestorInfo {
    /// Process id.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
}

/// A changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathChangeInfo {
    /// The path.
    pub path: PathText,
    /// `added`, `modified`, `metadata`, `deleted` or `type_changed`.
    pub change: String,
}

/// What one process changed in a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessChanges {
    /// Who.
    pub actor: ActorInfo,
    /// What, in ascending order of paths. A path that several changed is listed with each.
    pub paths: Vec<PathChangeInfo>,
}

/// Asks who last changed a path, or its lines.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BlameQuery {
    /// Where to begin; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The path.
    pub path: PathText,
    /// Also for each line of a text file.
    #[serde(default)]
    pub lines: bool,
}

/// Who last changed a path, or its lines.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BlameResult {
    /// The newest change of the path.
    pub newest: ChangeOrigin,
    /// Changes that lines come from.
    #[serde(default)]
    pub origins: Vec<ChangeOrigin>,
    /// The lines in order.
    #[serde(default)]
    pub lines: Vec<BlameLine>,
}

/// A change of a path in a commit.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChangeOrigin {
    /// The commit.
    pub commit: CommitInfo,
    /// The path, as it was called in that commit.
    pub path: PathText,
    /// `added`, `modified`, `metadata`, `deleted` or `type_changed`.
    pub change: String,
    /// Who did it; never empty.
    pub actors: Vec<ActorInfo>,
}

/// A line and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlameLine {
    /// The line, without its end.
    pub text: PathText,
    /// Position in `origins`.
    pub origin: usize,
}

/// Announces that a command begins.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RunBegin {
    /// Id of the run; made if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Number of the step; the next one of the run if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The command.
    pub command: Vec<String>,
    /// Branch; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Who runs it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A step that began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunBegun {
    /// The run.
    pub run: String,
    /// The step.
    pub step: u64,
}

/// Announces that a command has ended: what it left is committed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RunEnd {
    /// The run.
    pub run: String,
    /// The step.
    pub step: u64,
    /// Branch; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Message of the commit.
    #[serde(default)]
    pub message: String,
    /// Exit code; 128 and the signal if it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Who ran it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A step that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunEnded {
    /// The run.
    pub run: String,
    /// The step.
    pub step: u64,
    /// Exit code of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The branch's newest commit.
    pub commit: String,
    /// Whether a commit was made at the end.
    pub is_new: bool,
    /// What that one changed.
    pub changes: ChangeCounts,
    /// Its operation; absent if nothing differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationReference>,
}

/// Asks for runs, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RunQuery {
    /// Only steps of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// At most so many steps; the daemon chooses when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Steps of runs, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RunList {
    /// The steps.
    pub steps: Vec<RunStepInfo>,
}

/// A step of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunStepInfo {
    /// The run.
    pub run: String,
    /// The step; absent if processes named a run only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Who ran it.
    pub principal: String,
    /// The command; empty if it was not begun with `kura run`.
    pub command: Vec<String>,
    /// When it began, RFC 3339 in UTC; absent if it was not begun with `kura run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Exit code; 128 and the signal if it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Commits with changes of it, oldest first.
    pub commits: Vec<String>,
    /// How many changes of paths those are.
    pub path_count: u64,
}
