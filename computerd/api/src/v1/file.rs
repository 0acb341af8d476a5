//! Files of a workspace without a mount: list, read, export, import.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ChangeCounts, EntryState, OperationReference, PathText};

/// Names a path in a state. Asked for a listing or for content.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct PathQuery {
    /// State; the live state of the default branch (with what is uncommitted) if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Path relative to the workspace's root; empty for the root.
    #[serde(default)]
    pub path: PathText,
    /// Listing: everything below, with paths instead of names.
    #[serde(default)]
    pub recursive: bool,
}

/// Entries of a directory, or the single entry that the path names.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Listing {
    /// Commit of the state; absent for the live state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The entries, in the order of their names' bytes.
    pub entries: Vec<ListedEntry>,
}

/// One listed entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListedEntry {
    /// Name, or the path relative to the listed directory when recursive.
    pub name: PathText,
    /// What it is.
    #[serde(flatten)]
    pub state: EntryState,
    /// How many names the file has.
    pub link_count: u32,
}

/// Where content is written to or read from, on the daemon's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Place {
    /// A directory.
    Directory {
        /// Absolute path.
        path: PathText,
    },
    /// A tar file.
    Tar {
        /// Absolute path.
        path: PathText,
    },
}

/// Asks to write a state out. Answered with [`Event`](super::Event)s of [`ExportResult`].
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ExportRequest {
    /// State; the live state of the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Only what is below this path; everything if empty.
    #[serde(default)]
    pub path: PathText,
    /// Where to. A directory must be absent or empty, a tar file absent unless `overwrite`.
    pub target: Place,
    /// Replace an existing tar file.
    #[serde(default)]
    pub overwrite: bool,
}

/// What an export wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportResult {
    /// Commit that was exported (live changes are committed first).
    pub commit: String,
    /// Entries written.
    pub entry_count: u64,
    /// Bytes of content written.
    pub bytes: u64,
    /// What could not be written as it is (owner without the right to set it …), for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Asks to bring content into an existing workspace as a new commit. Answered with
/// [`Event`](super::Event)s of [`ImportResult`].
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ImportRequest {
    /// Where from.
    pub source: Place,
    /// Branch; the default branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The tree becomes exactly what is imported; else what is imported comes on top.
    #[serde(default)]
    pub replace: bool,
    /// Directory in the workspace to import into; the root if empty.
    #[serde(default)]
    pub path: PathText,
    /// Message of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Author; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportResult {
    /// The branch's newest commit.
    pub commit: String,
    /// Entries read.
    pub entry_count: u64,
    /// Bytes of content read.
    pub bytes: u64,
    /// How the tree changed.
    pub changes: ChangeCounts,
    /// What could not be taken as it is, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The operation; absent if nothing differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationReference>,
}
