//! Mounts: create, list, remove.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PathText;

/// Asks for a mount. The answer comes when it is usable.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct MountRequest {
    /// Workspace.
    pub workspace: String,
    /// State: a branch is live, anything else mounts read-only. The default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Absolute path of an empty directory.
    pub mountpoint: PathText,
    /// Principal of the session; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Refuse every change.
    #[serde(default)]
    pub read_only: bool,
    /// Let other users of the host in.
    #[serde(default)]
    pub allow_other: bool,
    /// Mapping of user ids; identity if empty.
    #[serde(default)]
    pub uid_map: Vec<IdMapping>,
    /// Mapping of group ids; identity if empty.
    #[serde(default)]
    pub gid_map: Vec<IdMapping>,
    /// Make this branch at `revision` and mount it, live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_branch: Option<String>,
    /// How data is cached: `cached` (default) or `direct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Clear a dead mount that is in the way first.
    #[serde(default)]
    pub repair: bool,
}

/// A range of ids: `count` ids from `inside` on are stored as those from `outside` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdMapping {
    /// First id as programs in the mount see it.
    pub inside: u32,
    /// First id as the workspace stores it.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// A new mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountResult {
    /// The mount.
    pub mount: MountInfo,
    /// The operation, if a branch was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<super::OperationReference>,
}

/// All mounts of the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct MountList {
    /// The mounts.
    pub mounts: Vec<MountInfo>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountInfo {
    /// Where.
    pub mountpoint: PathText,
    /// Workspace.
    pub workspace: String,
    /// Branch, if it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Newest commit of the branch, or the commit that is shown.
    pub commit: String,
    /// Principal of the session.
    pub principal: String,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Whether other users of the host are let in.
    pub allow_other: bool,
    /// `cached` or `direct`.
    pub profile: String,
    /// Whether mounts of other principals may change the branch at the same time: what is written
    /// is theirs to see at once, and the kernel holds nothing back.
    #[serde(default)]
    pub shared: bool,
    /// Whether grants limit what the principal may do.
    #[serde(default)]
    pub restricted: bool,
    /// Since when, RFC 3339 in UTC.
    pub since: String,
    /// Paths with uncommitted changes.
    pub uncommitted_count: u64,
    /// Requests of the kernel since the process serves it.
    #[serde(default)]
    pub request_count: u64,
}

/// Asks to end a mount: flush, commit, unmount.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct UnmountRequest {
    /// Where.
    pub mountpoint: PathText,
    /// Detach it at once even if it is in use.
    #[serde(default)]
    pub lazy: bool,
}

/// A mount that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmountResult {
    /// Where it was.
    pub mountpoint: PathText,
    /// Workspace.
    pub workspace: String,
    /// Newest commit, with everything that was written.
    pub commit: String,
    /// Whether a commit had to be made.
    pub is_new: bool,
    /// The operation, if a commit was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<super::OperationReference>,
}
