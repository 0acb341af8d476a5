//! The daemon itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PathText;

/// Versions of a running daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Version of the program.
    pub version: String,
    /// Version of this API.
    pub api_version: u32,
    /// Version of the store's format.
    pub format_version: u32,
}

/// State of a running daemon.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DaemonStatus {
    /// Versions.
    #[serde(flatten)]
    pub version: VersionInfo,
    /// Process that serves requests.
    pub pid: u32,
    /// Its parent that keeps the mounts over a crash, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper_pid: Option<u32>,
    /// How often the process was restarted after a crash.
    #[serde(default)]
    pub restart_count: u32,
    /// Since when, RFC 3339 in UTC.
    pub since: String,
    /// Directory of the store.
    pub store: PathText,
    /// Path of the log file.
    pub log: PathText,
    /// How many workspaces there are.
    pub workspace_count: u64,
    /// How many mounts there are.
    pub mount_count: u64,
    /// Leases that are held.
    #[serde(default)]
    pub lease_count: u64,
    /// Commits that wait to be written.
    #[serde(default)]
    pub queued_commit_count: u64,
    /// Resident memory of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Socket of the volume driver, if it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_plugin: Option<PathText>,
}

/// Asks the daemon to end: commit, unmount, close. Answered before the process is gone.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct StopRequest {
    /// Detach mounts that are in use instead of refusing.
    #[serde(default)]
    pub force: bool,
}

/// The daemon has begun to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopResult {
    /// Process that ends.
    pub pid: u32,
    /// The keeper, which ends too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper_pid: Option<u32>,
    /// Mounts that were ended.
    pub unmounted: Vec<PathText>,
}
