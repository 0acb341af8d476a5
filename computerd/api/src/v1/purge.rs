//! Removing content for good.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PathText;

/// Asks to remove the content that paths ever had from all versions. It can't be undone.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct PurgeRequest {
    /// Paths, at least one; a directory means everything below it.
    pub paths: Vec<PathText>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// What was removed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgeResult {
    /// Contents that are removed.
    pub content_count: u64,
    /// Their bytes.
    pub content_bytes: u64,
    /// Contents that stay, because other paths have them, too.
    pub shared_count: u64,
    /// Commits that have the paths; they stay, with their ids.
    pub commit_count: u64,
}
