//! Conflicts as values: what a merge could not join, kept beside the tree until it is resolved.
//!
//! The tree of a commit is ordinary; the commit names a *conflict set*, which lists each path with
//! the versions of both sides and of what they came from. Their contents stay stored.

use serde::{Deserialize, Serialize};

use crate::id::CommitId;
use crate::object::Inode;

/// Why two changes could not be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// Both changed the content.
    Content,
    /// Both put something else there.
    Added,
    /// One deleted it, the other changed it.
    Deleted,
    /// One or both made another kind of file of it.
    Kind,
    /// Both changed the same attribute.
    Attributes,
    /// One deleted the directory that the other's change is in.
    DirectoryDeleted,
}

/// One path that could not be joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path.
    pub path: Box<[u8]>,
    /// Why.
    pub reason: ConflictReason,
    /// The version that both sides came from.
    pub base_commit: CommitId,
    /// The version that was brought in.
    pub theirs_commit: CommitId,
    /// What text markers call `theirs`.
    pub theirs_label: String,
    /// What both came from; `None` if there was nothing.
    pub base: Option<Inode>,
    /// What was there; `None` if it was deleted.
    pub ours: Option<Inode>,
    /// What was brought in; `None` if it was deleted.
    pub theirs: Option<Inode>,
    /// Where `theirs` was put, if not at the path.
    pub beside: Option<Box<[u8]>>,
}

/// Conflicts of a commit, in the order of their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConflictSet {
    /// Ascending by path, then by the commit brought in; never two with both equal.
    entries: Vec<Conflict>,
}

impl ConflictSet {
    /// A set of these; of several at one path from one commit the last stays.
    pub fn new(entries: impl IntoIterator<Item = Conflict>) -> Self {
        let mut set = Self::default();
        for entry in entries {
            set.insert(entry);
        }
        set
    }

    /// The conflicts.
    pub fn entries(&self) -> &[Conflict] {
        &self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds one.
    pub fn insert(&mut self, conflict: Conflict) {
        match self
            .entries
            .binary_search_by(|entry| key(entry).cmp(&key(&conflict)))
        {
            Ok(index) => self.entries[index] = conflict,
            Err(index) => self.entries.insert(index, conflict),
        }
    }

    /// Keeps those for which `is_kept` says so.
    pub fn retain(&mut self, is_kept: impl FnMut(&Conflict) -> bool) {
        self.entries.retain(is_kept);
    }

    /// Three-way: what one side resolved is resolved, what one side added is there.
    #[must_use]
    pub fn merge(base: &Self, ours: &Self, theirs: &Self) -> Self {
        let has = |set: &Self, entry: &Conflict| {
            set.entries
                .binary_search_by(|other| key(other).cmp(&key(entry)))
                .is_ok()
        };
        let from_ours = ours
            .entries
            .iter()
            .filter(|entry| has(theirs, entry) || !has(base, entry));
        let from_theirs = theirs
            .entries
            .iter()
            .filter(|entry| !has(ours, entry) && !has(base, entry));
        Self::new(from_ours.chain(from_theirs).cloned())
    }
}

fn key(conflict: &Conflict) -> (&[u8], CommitId) {
    (&conflict.path, conflict.theirs_commit)
}

/// What a commit says of conflicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConflictChange {
    /// Those of its parent are still there.
    #[default]
    Keep,
    /// It has these.
    Set(ConflictSet),
}
