//! Branches and tags.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::OperationReference;

/// Branches of a workspace, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BranchList {
    /// The branches.
    pub branches: Vec<BranchInfo>,
}

/// One branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BranchInfo {
    /// Name.
    pub name: String,
    /// Its newest commit.
    pub commit: String,
    /// Time of that commit, RFC 3339 in UTC with nanoseconds.
    pub time: String,
    /// Whether the bare workspace name stands for it.
    pub is_default: bool,
    /// Whether it is mounted.
    pub is_mounted: bool,
}

/// Tags of a workspace, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct TagList {
    /// The tags.
    pub tags: Vec<TagInfo>,
}

/// One tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TagInfo {
    /// Name.
    pub name: String,
    /// The commit it names.
    pub commit: String,
    /// Time of that commit, RFC 3339 in UTC with nanoseconds.
    pub time: String,
}

/// Asks for a new branch or tag.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CreateReference {
    /// Name.
    pub name: String,
    /// What it is to name; the default branch's newest commit if absent (uncommitted changes are
    /// committed first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A branch or tag that was made or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReferenceResult {
    /// Name.
    pub name: String,
    /// The commit that it names, or named.
    pub commit: String,
    /// The operation.
    pub operation: OperationReference,
}
