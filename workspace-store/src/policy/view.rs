//! A stored tree as one principal sees it: a reader in which hidden entries don't exist.
//!
//! Directories in which every entry is visible keep their ids; the others get ids of this view
//! alone, made of the directory's id and the place where it stands. So what walks trees (listing,
//! diff, export) works on a view as on the store, in O(changed), and can't show what it can't find.
//! A directory that is hidden itself and leads to something visible shows no attributes of its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Access, Place, Policy};
use crate::error::Result;
use crate::id::{BlobId, TreeId};
use crate::object::{Attributes, Inode, LinkId, LinkedInode, Name, Node, Root, TreeEntry};
use crate::reader::{ObjectReader, TreeNode};

/// Permission bits of a directory that is only walked through.
const PASSAGE_MODE: u32 = 0o555;

/// Reads stored trees through a policy.
pub struct PolicyView<'a> {
    reader: &'a dyn ObjectReader,
    policy: Arc<Policy>,
    /// What the ids of this view stand for.
    directories: RwLock<HashMap<TreeId, (TreeId, Place)>>,
}

impl std::fmt::Debug for PolicyView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyView")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<'a> PolicyView<'a> {
    /// A view of what `reader` has.
    pub fn new(reader: &'a dyn ObjectReader, policy: Arc<Policy>) -> Self {
        Self {
            reader,
            policy,
            directories: RwLock::default(),
        }
    }

    /// A tree of the store as a tree of this view.
    pub fn root(&self, root: &Root) -> Root {
        let place = self.policy.root();
        Root {
            attributes: shown_attributes(&place, &root.attributes),
            tree: self.shown_tree(root.tree, place),
            links: root.links,
        }
    }

    fn shown_tree(&self, tree: TreeId, place: Place) -> TreeId {
        if place.is_uniform() && place.access() > Access::Hidden {
            return tree;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"kura.view\0");
        hasher.update(tree.as_bytes());
        hasher.update(&place.identity().to_le_bytes());
        let id = TreeId(*hasher.finalize().as_bytes());
        // The place is kept with it, so that its identity isn't given to another.
        self.directories.write().entry(id).or_insert((tree, place));
        id
    }

    fn shown_entry(&self, place: &Place, name: &[u8], entry: TreeEntry) -> Option<TreeEntry> {
        let place = self.policy.step(place, name);
        match entry {
            TreeEntry::Inline(Inode {
                attributes,
                node: Node::Directory { tree },
            }) => place.is_visible_directory().then(|| {
                TreeEntry::Inline(Inode {
                    attributes: shown_attributes(&place, &attributes),
                    node: Node::Directory {
                        tree: self.shown_tree(tree, place),
                    },
                })
            }),
            file => (place.access() > Access::Hidden).then_some(file),
        }
    }

    fn find(&self, tree: TreeId) -> Option<(TreeId, Place)> {
        self.directories.read().get(&tree).cloned()
    }
}

fn shown_attributes(place: &Place, attributes: &Attributes) -> Attributes {
    if place.access() > Access::Hidden {
        return attributes.clone();
    }
    Attributes {
        mode: PASSAGE_MODE,
        ..Attributes::default()
    }
}

impl ObjectReader for PolicyView<'_> {
    fn tree_node(&self, id: TreeId) -> Result<TreeNode> {
        let Some((tree, place)) = self.find(id) else {
            return self.reader.tree_node(id);
        };
        let entries = self.reader.directory(tree)?;
        Ok(TreeNode::Leaf(
            entries
                .into_iter()
                .filter_map(|(name, entry)| {
                    let entry = self.shown_entry(&place, &name, entry)?;
                    Some((name, entry))
                })
                .collect(),
        ))
    }

    fn lookup(&self, tree: TreeId, name: &[u8]) -> Result<Option<TreeEntry>> {
        let Some((tree, place)) = self.find(tree) else {
            return self.reader.lookup(tree, name);
        };
        let entry = self.reader.lookup(tree, name)?;
        Ok(entry.and_then(|entry| self.shown_entry(&place, name, entry)))
    }

    fn link(&self, links: TreeId, id: LinkId) -> Result<Option<LinkedInode>> {
        let linked = self.reader.link(links, id)?;
        if self.policy.is_unrestricted() {
            return Ok(linked);
        }
        // How many names there are elsewhere isn't told.
        Ok(linked.map(|linked| LinkedInode {
            link_count: 1,
            ..linked
        }))
    }

    fn links(&self, links: TreeId) -> Result<Vec<(LinkId, LinkedInode)>> {
        self.reader.links(links)
    }

    fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.reader.read_blob(blob, offset, buffer)
    }

    fn directory(&self, tree: TreeId) -> Result<Vec<(Name, TreeEntry)>> {
        match self.tree_node(tree)? {
            TreeNode::Leaf(entries) => Ok(entries),
            // Only directories that are shown as a whole have such nodes.
            TreeNode::Inner(_) => self.reader.directory(tree),
        }
    }
}
