//! Differences between two states of a workspace.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ChangeCounts, PathText};

/// Asks for the difference between two states.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DiffQuery {
    /// Old state; the newest commit of the branch that `to` names if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// New state; the live state of the default branch (with what is uncommitted) if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What the answer is to contain.
    #[serde(default)]
    pub options: DiffOptions,
}

/// What a difference is to contain.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DiffOptions {
    /// Only these paths and what is below them; all if empty.
    #[serde(default)]
    pub paths: Vec<PathText>,
    /// Render unified text for each changed text file.
    #[serde(default)]
    pub text: bool,
    /// Count inserted and deleted lines (implied by `text`).
    #[serde(default)]
    pub line_counts: bool,
    /// Lines of context; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_lines: Option<u32>,
    /// Report a move as a deletion and an addition.
    #[serde(default)]
    pub no_renames: bool,
    /// At most this many entries; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The difference between two states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffResult {
    /// Commit of the old state; absent for "nothing".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Commit of the new state; absent for the live state with uncommitted changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Changed paths, in the order of their bytes.
    pub entries: Vec<DiffEntry>,
    /// Counts over all changes, also over those that `limit` cut off.
    pub counts: ChangeCounts,
}

/// How one path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content or attributes differ.
    Modified,
    /// It is gone.
    Deleted,
    /// It was somewhere else before (and may also differ).
    Renamed,
}

impl ChangeKind {
    /// The letter of `--name-status`.
    pub fn letter(self) -> char {
        match self {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
            ChangeKind::Renamed => 'R',
        }
    }
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffEntry {
    /// How it changed.
    pub change: ChangeKind,
    /// Path relative to the workspace's root, without a leading slash; empty for the root itself.
    pub path: PathText,
    /// Where it was before, for [`ChangeKind::Renamed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<PathText>,
    /// The entry before; absent if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<EntryState>,
    /// The entry after; absent if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<EntryState>,
    /// What differs of an entry that stays.
    #[serde(default)]
    pub aspects: Vec<ChangedAspect>,
    /// Whether the content is not text, so that there are no lines.
    #[serde(default)]
    pub is_binary: bool,
    /// Lines that came, if counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inserted_lines: Option<u64>,
    /// Lines that went, if counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_lines: Option<u64>,
    /// The hunks (`@@ … @@` and lines with their first character), without file headers; absent
    /// if not asked for, not text, too large, or without a change of content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PathText>,
}

/// What differs between two states of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangedAspect {
    /// File, directory, symbolic link …
    Kind,
    /// Bytes of a file, target of a symbolic link, device number.
    Content,
    /// Permission bits.
    Mode,
    /// Owner or group.
    Owner,
    /// Modification time.
    Mtime,
    /// Extended attributes.
    Xattrs,
    /// Which other names the file has.
    Links,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket's name.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// A directory entry at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EntryState {
    /// File, directory …
    pub kind: EntryKind,
    /// The twelve permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of the content; 0 for what has none.
    pub size_bytes: u64,
    /// Time of the last modification, RFC 3339 in UTC with nanoseconds.
    pub mtime: String,
    /// BLAKE3 of the content of a committed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<PathText>,
    /// Device number of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<u64>,
}
