//! Turning an edit over a base tree into a stored tree.

use crate::commits::PathChange;
use crate::object::{Node, Root};

/// How far the storing of an edit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotProgress {
    /// Files stored.
    pub files_done: u64,
    /// Files with new content.
    pub files_total: u64,
    /// Bytes stored.
    pub bytes_done: u64,
    /// Bytes of all new content.
    pub bytes_total: u64,
}

/// Called from several threads while content is being stored.
pub type ProgressFunction<'a> = &'a (dyn Fn(SnapshotProgress) + Sync);

/// A stored tree and how it came about.
#[derive(Debug, Clone)]
pub struct BuiltSnapshot {
    /// The tree.
    pub root: Root,
    /// Paths that differ from the base, in ascending order.
    pub changes: Vec<PathChange>,
    /// What each new content and each keyed directory became, by its key.
    pub contents: Vec<(u64, Node)>,
}
