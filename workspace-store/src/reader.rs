//! Reading stored objects: what diff, export, restore and a mount's source are built on.

use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, TreeId};
use crate::object::{LinkId, LinkedInode, Name, TreeEntry};

/// One stored node of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeNode {
    /// Entries in ascending order of their names' bytes.
    Leaf(Vec<(Name, TreeEntry)>),
    /// Child nodes in ascending order, each with the last name below it and the number of
    /// entries below it.
    Inner(Vec<TreeChild>),
}

/// A child of an inner node of a split directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeChild {
    /// Greatest name below the child.
    pub last_name: Name,
    /// Number of entries below the child.
    pub entry_count: u64,
    /// The child node.
    pub node: TreeId,
}

/// Read access to objects by id. Every function may be called from any thread and may block on
/// the disk; what it returns was verified against its id.
pub trait ObjectReader: Send + Sync {
    /// One node of a directory.
    fn tree_node(&self, id: TreeId) -> Result<TreeNode>;

    /// A file with several names, from a snapshot's link table.
    fn link(&self, links: TreeId, id: LinkId) -> Result<Option<LinkedInode>>;

    /// All entries of a link table in ascending order.
    fn links(&self, links: TreeId) -> Result<Vec<(LinkId, LinkedInode)>>;

    /// Reads content from `offset`; a count below the buffer's length means the end was reached.
    fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// All entries of a directory in ascending order of their names' bytes.
    fn directory(&self, tree: TreeId) -> Result<Vec<(Name, TreeEntry)>> {
        match self.tree_node(tree)? {
            TreeNode::Leaf(entries) => Ok(entries),
            TreeNode::Inner(children) => {
                let mut entries = Vec::new();
                for child in children {
                    entries.append(&mut self.directory(child.node)?);
                }
                Ok(entries)
            }
        }
    }

    /// The entry of this name in a directory.
    fn lookup(&self, tree: TreeId, name: &[u8]) -> Result<Option<TreeEntry>> {
        match self.tree_node(tree)? {
            TreeNode::Leaf(mut entries) => Ok(entries
                .binary_search_by(|(candidate, _)| candidate.as_ref().cmp(name))
                .ok()
                .map(|index| entries.swap_remove(index).1)),
            TreeNode::Inner(children) => {
                let index = children.partition_point(|child| child.last_name.as_ref() < name);
                children
                    .get(index)
                    .map_or(Ok(None), |child| self.lookup(child.node, name))
            }
        }
    }

    /// The whole content of a blob.
    ///
    /// # Errors
    /// `NoSpace` if it is larger than `limit_bytes`.
    fn read_whole_blob(&self, blob: BlobId, size: u64, limit_bytes: u64) -> Result<Vec<u8>> {
        if size > limit_bytes {
            return Err(StoreError::new(
                ErrorKind::NoSpace,
                format!("content of {size} bytes is larger than the limit of {limit_bytes}"),
            ));
        }
        let mut content = vec![0; size as usize];
        let count = self.read_blob(blob, 0, &mut content)?;
        content.truncate(count);
        Ok(content)
    }
}
