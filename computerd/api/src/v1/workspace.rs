//! Workspaces: list, create, state, fork, handoff.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BranchConflicts, BranchInfo, ChangeCounts, CommitInfo, MountInfo, OperationReference, Place,
};

/// All workspaces of the store, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceList {
    /// The workspaces.
    pub workspaces: Vec<WorkspaceInfo>,
}

/// One workspace in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceInfo {
    /// Name.
    pub name: String,
    /// Branch that the bare name stands for.
    pub default_branch: String,
    /// Newest commit of the default branch.
    pub head: String,
    /// Time of that commit, RFC 3339 in UTC with nanoseconds.
    pub head_time: String,
    /// When the workspace was made.
    pub created: String,
    /// How many mounts it has now.
    pub mount_count: u32,
}

/// Asks for a new workspace. Answered with [`Event`](super::Event)s of [`WorkspaceCreated`].
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CreateWorkspace {
    /// Name.
    pub name: String,
    /// First content; empty if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Place>,
    /// Message of the import's commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Author; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// A new workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceCreated {
    /// Name.
    pub name: String,
    /// Its default branch.
    pub branch: String,
    /// Newest commit.
    pub commit: String,
    /// Entries imported.
    pub entry_count: u64,
    /// Bytes of content imported.
    pub bytes: u64,
    /// What could not be taken as it is, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The operation.
    pub operation: OperationReference,
}

/// State of one workspace.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceStatus {
    /// The workspace in short.
    #[serde(flatten)]
    pub workspace: WorkspaceInfo,
    /// Newest commit of the default branch.
    pub head_commit: CommitInfo,
    /// Branches.
    pub branches: Vec<BranchInfo>,
    /// Where it is mounted.
    pub mounts: Vec<MountInfo>,
    /// Branches with uncommitted changes.
    pub uncommitted: Vec<UncommittedBranch>,
    /// Who may write to which branch now.
    #[serde(default)]
    pub leases: Vec<LeaseInfo>,
    /// Branches with conflicts that nobody has resolved.
    #[serde(default)]
    pub conflicts: Vec<BranchConflicts>,
    /// Sizes.
    pub sizes: WorkspaceSizes,
}

/// Uncommitted changes of one branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncommittedBranch {
    /// Branch.
    pub branch: String,
    /// How many paths changed since its newest commit.
    pub changes: ChangeCounts,
}

/// A writer's claim of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseInfo {
    /// Branch.
    pub branch: String,
    /// Principal that holds it.
    pub holder: String,
    /// Number that only grows; an older writer is refused.
    pub fence: u64,
    /// When it ends, if it does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// Sizes of a workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceSizes {
    /// Files and other entries of the newest commit, if known without a walk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_count: Option<u64>,
    /// Bytes of content of the newest commit, if known without a walk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_bytes: Option<u64>,
    /// Bytes of uncommitted data (journals and data segments).
    pub overlay_bytes: u64,
    /// Bytes of the whole store's database.
    pub store_bytes: u64,
    /// Number of commits.
    pub commit_count: u64,
}

/// Asks for a new workspace that begins at a state of this one, without copying.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ForkRequest {
    /// Name of the new workspace.
    pub name: String,
    /// State; the live state of the default branch if absent (committed first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A forked workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkResult {
    /// Name of the new workspace.
    pub name: String,
    /// Commit that it begins with.
    pub commit: String,
    /// The operation.
    pub operation: OperationReference,
}

/// Asks to pass a workspace on: flush, commit, fence the writer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct HandoffRequest {
    /// Principal that takes over.
    pub to: String,
    /// Branch; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Message of the commit.
    #[serde(default)]
    pub message: String,
    /// Principal that gives; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A workspace that was passed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandoffResult {
    /// Commit from which the taker goes on.
    pub commit: String,
    /// Branch.
    pub branch: String,
    /// Number of the new lease; the old writer is refused from now on.
    pub fence: u64,
    /// Mounts of the giver that became read-only.
    #[serde(default)]
    pub fenced_mounts: Vec<super::PathText>,
    /// The operation.
    pub operation: OperationReference,
}
