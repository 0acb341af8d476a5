//! Differences between two stored trees, entry by entry, and as text.

mod rename;
mod text;
mod tree;

pub(crate) use rename::join_exact as exact_renames;
pub(crate) use text::split_lines;
pub use text::{FileStatistics, PatchOptions, is_binary, quote_path, render_patch, statistics};
pub use tree::diff_roots;

use crate::object::{Inode, LinkId};

/// How a path differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffKind {
    /// Only in the new tree.
    Added,
    /// Only in the old tree.
    Deleted,
    /// Other content of the same kind.
    Modified,
    /// Another kind of inode.
    TypeChanged,
    /// The same content with other attributes; which, says [`DiffEntry::changes`].
    Metadata,
    /// Was at another path before; content and attributes may differ, too.
    Renamed {
        /// The old path.
        from: Vec<u8>,
        /// How much of the content is the same, in percent.
        similarity: u8,
    },
}

/// Which attributes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetadataChanges {
    /// Permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// Modification time.
    pub mtime: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Being, or no longer being, one of several names of a file.
    pub links: bool,
    /// Holes.
    pub holes: bool,
}

impl MetadataChanges {
    /// Whether anything differs.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffEntry {
    /// Path relative to the root, which itself is the empty path; the new one if renamed.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: DiffKind,
    /// Which attributes differ; nothing where a side is missing.
    pub changes: MetadataChanges,
    /// The old side.
    pub old: Option<Inode>,
    /// The new side.
    pub new: Option<Inode>,
    /// Identity of the old side if it had several names.
    pub old_link: Option<LinkId>,
    /// Identity of the new side if it has several names.
    pub new_link: Option<LinkId>,
}

impl DiffEntry {
    /// The letter that `--name-status` shows.
    pub fn letter(&self) -> char {
        match self.kind {
            DiffKind::Added => 'A',
            DiffKind::Deleted => 'D',
            DiffKind::Modified | DiffKind::Metadata => 'M',
            DiffKind::TypeChanged => 'T',
            DiffKind::Renamed { .. } => 'R',
        }
    }
}

/// What a diff looks at and reports.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// Only these paths and what is below them; empty means everything.
    pub paths: Vec<Vec<u8>>,
    /// Also report entries of which only the modification time differs: they were written or
    /// touched, and are what they were.
    pub times: bool,
    /// Find files and directories that moved.
    pub renames: bool,
}

#[cfg(test)]
mod tests;
