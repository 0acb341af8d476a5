//! The immutable objects of a workspace's history, as plain values without I/O.
//!
//! A file's identity is the hash of its bytes ([`BlobId`]); how its bytes are cut into chunks is a
//! detail of storage. Everything that describes a directory entry (mode, owner, modification time,
//! extended attributes, holes) is part of the entry, so that a [`TreeId`] covers every byte and
//! attribute below it [G-3].
//!
//! Hard links: a file with one name is stored inline in its directory. A file with several names
//! is stored once in the snapshot's link table, and its names refer to it by [`LinkId`]; a change
//! of such a file touches the link table alone, never the directories that name it.

pub(crate) mod codec;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{BlobId, CommitId, ConflictSetId, TreeId};

/// Bytes of a directory entry's name: not empty, at most 255, no NUL, no `/`, not `.` or `..`.
pub type Name = Box<[u8]>;

/// Extended attributes by name; shared, because most files have the same (no) attributes.
pub type Xattrs = Arc<BTreeMap<Box<[u8]>, Box<[u8]>>>;

/// A point in time, nanoseconds within seconds since 1970 (negative before).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds since the epoch.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The time from nanoseconds since the epoch.
    pub fn from_nanoseconds(nanoseconds: i128) -> Self {
        Self {
            seconds: nanoseconds.div_euclid(1_000_000_000) as i64,
            nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32,
        }
    }

    /// Nanoseconds since the epoch.
    pub fn as_nanoseconds(&self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }

    /// The system's clock now.
    pub fn now() -> Self {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: since.as_secs() as i64,
                nanoseconds: since.subsec_nanos(),
            },
            Err(before) => Self::from_nanoseconds(-(before.duration().as_nanos() as i128)),
        }
    }
}

/// What every kind of inode carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The twelve permission bits (`07777`), without the file type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last modification of the content.
    pub mtime: Timestamp,
    /// Extended attributes, POSIX ACLs among them.
    pub xattrs: Xattrs,
}

/// One hole of a sparse file: `length` bytes from `offset` that read as zero and use no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, never 0.
    pub length: u64,
}

/// The kind of an inode and what only that kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    Regular {
        /// Its content.
        blob: BlobId,
        /// Length of the content in bytes.
        size: u64,
        /// Holes in ascending order, not touching each other; empty for an ordinary file.
        holes: Arc<[Hole]>,
    },
    /// A directory.
    Directory {
        /// Its entries.
        tree: TreeId,
    },
    /// A symbolic link.
    Symlink {
        /// The text it holds, not interpreted.
        target: Box<[u8]>,
    },
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice {
        /// Device number as in `st_rdev`.
        rdev: u64,
    },
    /// A block device.
    BlockDevice {
        /// Device number as in `st_rdev`.
        rdev: u64,
    },
}

impl Node {
    /// The file type bits of `st_mode` (`S_IFMT`).
    pub fn file_type_bits(&self) -> u32 {
        match self {
            Node::Regular { .. } => 0o100_000,
            Node::Directory { .. } => 0o040_000,
            Node::Symlink { .. } => 0o120_000,
            Node::Fifo => 0o010_000,
            Node::Socket => 0o140_000,
            Node::CharDevice { .. } => 0o020_000,
            Node::BlockDevice { .. } => 0o060_000,
        }
    }
}

/// One inode as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Owner, mode, time, extended attributes.
    pub attributes: Attributes,
    /// Kind and content.
    pub node: Node,
}

/// Identity of a file with several names, unique within one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId(pub u64);

/// What a name in a directory stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEntry {
    /// An inode with this name only.
    Inline(Inode),
    /// One of several names of the inode in the link table.
    Link(LinkId),
}

/// An entry of the link table. Directories are never in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedInode {
    /// How many names it has in the snapshot, at least 1.
    pub link_count: u32,
    /// The inode.
    pub inode: Inode,
}

/// A whole file tree at one moment: the root directory and the link table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Attributes of the root directory.
    pub attributes: Attributes,
    /// Entries of the root directory.
    pub tree: TreeId,
    /// The link table, a tree with names of 8 bytes (big-endian [`LinkId`]); `None` if no file
    /// has several names.
    pub links: Option<TreeId>,
}

/// Why a commit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitKind {
    /// The first, empty commit of a workspace.
    Init,
    /// Made by the commit policy.
    Snapshot,
    /// Asked for by somebody.
    Manual,
    /// Content brought in from outside.
    Import,
    /// Uncommitted work kept before it was set back.
    Rescue,
    /// A whole state set back.
    Rollback,
    /// Single paths brought back.
    Restore,
    /// The state before an operation brought back.
    Undo,
    /// Handed over to another principal.
    Handoff,
    /// Two histories joined.
    Merge,
}

/// An immutable version of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The file tree.
    pub root: Root,
    /// Versions it was made from: none for the first, two for a merge.
    pub parents: Vec<CommitId>,
    /// Name of the principal that made it.
    pub author: String,
    /// Why it was made.
    pub kind: CommitKind,
    /// When it was made.
    pub time: Timestamp,
    /// Free text, may be empty.
    pub message: String,
    /// The execution it belongs to, if any.
    pub run: Option<String>,
    /// The numbered part of that execution.
    pub step: Option<u64>,
    /// What could not be joined so far and waits to be resolved.
    pub conflicts: Option<ConflictSetId>,
}
