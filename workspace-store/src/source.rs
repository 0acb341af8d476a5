//! What a mount needs of a store: one trait, so that the same filesystem runs over the local
//! database or (later) over the sync protocol.
//!
//! Threads: every function may be called from any thread and may block on the disk.

use std::collections::BTreeMap;
use std::fmt;

use crate::attribution::Attribution;
use crate::conflict::ConflictChange;
use crate::edit::SnapshotEdit;
use crate::error::Result;
use crate::id::{BlobId, CommitId, TreeId};
use crate::object::{CommitKind, LinkId, LinkedInode, Name, Node, Root, Timestamp, TreeEntry};

/// A branch's newest commit and its file tree.
#[derive(Debug, Clone)]
pub struct Head {
    /// The commit that the branch names.
    pub commit: CommitId,
    /// Its file tree.
    pub root: Root,
}

/// What the store keeps about the overlay of a branch, changed only together with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayState {
    /// The tree that the journal's records apply to. Equal to the head's unless a checkpoint was
    /// taken without a commit.
    pub base: Root,
    /// The commit that `base` came from.
    pub head: CommitId,
    /// First journal segment that is not contained in `base`.
    pub first_journal_segment: u64,
    /// Next number for a new inode.
    pub next_inode_number: u64,
}

/// The inode number and change time of a directory entry that don't follow from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeRecord {
    /// Inode number.
    pub number: u64,
    /// Time of the last change of the inode.
    pub ctime: Timestamp,
}

/// Description of a commit to be made.
#[derive(Debug, Clone)]
pub struct CommitRequest {
    /// Principal that makes it.
    pub author: String,
    /// Why it is made.
    pub kind: CommitKind,
    /// Free text.
    pub message: String,
    /// The execution it belongs to.
    pub run: Option<String>,
    /// The numbered part of that execution.
    pub step: Option<u64>,
}

impl CommitRequest {
    /// Somebody gave it a name or a place in a run, which must not get lost: it becomes a commit
    /// also when an automatic one has just taken all changes.
    pub fn is_named(&self) -> bool {
        self.kind == CommitKind::Manual && (!self.message.is_empty() || self.run.is_some())
    }
}

/// What a commit takes from other histories, and what it says of conflicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The commit that it joins to the branch's.
    pub merged: Option<CommitId>,
    /// Its conflicts.
    pub conflicts: ConflictChange,
}

impl Lineage {
    /// Whether it says nothing beyond the tree.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// A tree that a branch is to have next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextVersion {
    /// The tree.
    pub root: Root,
    /// What its commit says besides.
    pub lineage: Lineage,
}

impl From<Root> for NextVersion {
    fn from(root: Root) -> Self {
        Self {
            root,
            lineage: Lineage::default(),
        }
    }
}

/// A frozen overlay handed to the store.
#[derive(Debug)]
pub struct Submission {
    /// Commit that the branch must still name.
    pub expected_head: CommitId,
    /// The tree that `edit` applies to.
    pub base: Root,
    /// What changed since.
    pub edit: SnapshotEdit,
    /// Who changed it.
    pub attribution: Attribution,
    /// Where the workspace is mounted, if that is one place.
    pub mountpoint: Option<String>,
    /// The commit to make; `None` takes a checkpoint that leaves the branch alone.
    pub commit: Option<CommitRequest>,
    /// What the commit says beside the tree.
    pub lineage: Lineage,
    /// Nobody asked for the commit: if nothing but times of directories differs, it is a
    /// checkpoint. If all changes were made by one principal, or in one run or step, it carries
    /// those.
    pub is_automatic: bool,
    /// First journal segment that is not contained in the result.
    pub first_journal_segment: u64,
    /// Next number for a new inode.
    pub next_inode_number: u64,
    /// Changed rows of the inode map, by number of the parent directory and name.
    pub inode_records: BTreeMap<(u64, Name), Option<InodeRecord>>,
}

/// What became of a [`Submission`].
#[derive(Debug, Clone)]
pub struct Submitted {
    /// The branch's head afterwards: the new commit, or the expected one if nothing differed or
    /// only a checkpoint was taken.
    pub commit: CommitId,
    /// Whether a new commit was made.
    pub is_new: bool,
    /// The resulting tree.
    pub root: Root,
    /// What each new content and each keyed directory became, by its key; lets the overlay drop
    /// its copy.
    pub contents: Vec<(u64, Node)>,
}

/// A branch of a workspace as a mount sees it.
pub trait WorkspaceSource: Send + Sync + fmt::Debug {
    /// The branch's newest commit.
    fn head(&self) -> Result<Head>;

    /// The state of the overlay; `None` if the branch was never mounted.
    fn overlay(&self) -> Result<Option<OverlayState>>;

    /// All entries of a directory, in ascending order of their names' bytes.
    fn directory(&self, tree: TreeId) -> Result<Vec<(Name, TreeEntry)>>;

    /// A file with several names.
    fn link(&self, links: TreeId, id: LinkId) -> Result<Option<LinkedInode>>;

    /// Reads content from `offset`; a count below the buffer's length means the end was reached.
    /// Every byte is verified against its id.
    fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The recorded inode numbers of a directory's entries, by the directory's own number.
    fn inode_records(&self, directory: u64) -> Result<Vec<(Name, InodeRecord)>>;

    /// Where an inode with a recorded number is: number of its directory, name.
    fn inode_location(&self, number: u64) -> Result<Option<(u64, Name)>>;

    /// Stores the changes and moves the branch, durably, in one transaction at its end.
    ///
    /// # Errors
    /// `Conflict` if the branch no longer names the expected commit; then nothing has changed.
    fn submit(&self, submission: Submission) -> Result<Submitted>;
}
