//! Changes over a snapshot: what a mount, an import, a restore or a merge hands to the store.
//!
//! An edit names only what differs from its base, so that making a snapshot of it costs
//! O(changed), never O(tree).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::id::TreeId;
use crate::object::{Attributes, Hole, LinkId, Name, Node, Root};

/// Bytes of a changed file, frozen: they don't change while the store reads them.
pub trait Content: Send + Sync {
    /// Length in bytes.
    fn size(&self) -> u64;

    /// Reads from `offset` into `buffer`; a count below its length means the end was reached.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Holes in ascending order, not touching each other.
    fn holes(&self) -> Vec<Hole> {
        Vec::new()
    }
}

impl Content for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.len());
        let count = buffer.len().min(self.len() - start);
        buffer[..count].copy_from_slice(&self[start..start + count]);
        Ok(count)
    }
}

/// A change of a whole snapshot. It has no default: whoever makes one says what becomes of the
/// entries that it does not name ([`SnapshotEdit::unchanged`], [`SnapshotEdit::replacing`]).
#[derive(Debug, Clone)]
pub struct SnapshotEdit {
    /// New attributes of the root directory; `None` keeps them.
    pub root_attributes: Option<Attributes>,
    /// Changes of the root directory's entries. Its base is the root's tree, or `None` for a root
    /// directory that has only the entries named here.
    pub root: DirectoryEdit,
    /// Changes of the link table; `None` removes the entry.
    pub links: BTreeMap<LinkId, Option<LinkEdit>>,
}

impl SnapshotEdit {
    /// An edit that keeps everything of `base`.
    pub fn unchanged(base: &Root) -> Self {
        Self::changing(base, BTreeMap::new())
    }

    /// An edit that changes these names in the root directory of `base` and keeps the others.
    pub fn changing(base: &Root, entries: BTreeMap<Name, EntryEdit>) -> Self {
        Self {
            root_attributes: None,
            root: DirectoryEdit {
                key: None,
                base: Some(base.tree),
                entries,
            },
            links: BTreeMap::new(),
        }
    }

    /// An edit after which the root directory has these entries and no others.
    pub fn replacing(attributes: Attributes, entries: BTreeMap<Name, EntryEdit>) -> Self {
        Self {
            root_attributes: Some(attributes),
            root: DirectoryEdit {
                key: None,
                base: None,
                entries,
            },
            links: BTreeMap::new(),
        }
    }
}

/// A change of one directory's entries.
#[derive(Debug, Clone, Default)]
pub struct DirectoryEdit {
    /// Chosen by the caller, unique within one edit: names the resulting directory in the answer
    /// ([`Submitted::contents`](crate::source::Submitted::contents)); `None` asks for no answer.
    pub key: Option<u64>,
    /// The directory it starts from; `None` is an empty one.
    pub base: Option<TreeId>,
    /// Changes by name.
    pub entries: BTreeMap<Name, EntryEdit>,
}

/// A change of one name.
#[derive(Debug, Clone)]
pub enum EntryEdit {
    /// The name goes away (no error if it isn't there).
    Remove,
    /// The name stands for this inode from now on.
    Put(InodeEdit),
    /// The name stands for a file with several names, which is in the link table.
    Link(LinkId),
}

/// A new or changed file with several names.
#[derive(Debug, Clone)]
pub struct LinkEdit {
    /// How many names it has now.
    pub link_count: u32,
    /// The inode.
    pub inode: InodeEdit,
}

/// A new or changed inode.
#[derive(Debug, Clone)]
pub struct InodeEdit {
    /// Its attributes.
    pub attributes: Attributes,
    /// Its content.
    pub node: NodeEdit,
}

/// Content of a new or changed inode.
#[derive(Clone)]
pub enum NodeEdit {
    /// Content that the store has already.
    Stored(Node),
    /// New content of a regular file; `key` names it in the answer
    /// ([`Submitted::contents`](crate::source::Submitted::contents)).
    Content {
        /// Chosen by the caller, unique within one edit.
        key: u64,
        /// The frozen bytes.
        content: Arc<dyn Content>,
    },
    /// A directory with changed entries.
    Directory(DirectoryEdit),
}

impl fmt::Debug for NodeEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeEdit::Stored(node) => f.debug_tuple("Stored").field(node).finish(),
            NodeEdit::Content { key, content } => {
                write!(f, "Content({key}: {} bytes)", content.size())
            }
            NodeEdit::Directory(edit) => f.debug_tuple("Directory").field(edit).finish(),
        }
    }
}
