//! Objects in memory, for tests of what reads and edits trees: applies a [`SnapshotEdit`] and
//! answers as an [`ObjectReader`]. Nodes are small, so that small directories are split, too.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use crate::edit::{DirectoryEdit, EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, TreeId};
use crate::object::{Inode, LinkId, LinkedInode, Name, Node, Root, TreeEntry};
use crate::reader::{ObjectReader, TreeChild, TreeNode};

const LEAF_LIMIT: usize = 6;

#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    nodes: Mutex<HashMap<TreeId, TreeNode>>,
    links: Mutex<HashMap<TreeId, BTreeMap<LinkId, LinkedInode>>>,
    blobs: Mutex<HashMap<BlobId, Vec<u8>>>,
    pub node_reads: Mutex<u64>,
}

fn missing(what: &str) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, format!("{what} is not there"))
}

impl MemoryStore {
    pub fn put_blob(&self, content: &[u8]) -> BlobId {
        let id = BlobId(*blake3::hash(content).as_bytes());
        self.blobs.lock().insert(id, content.to_vec());
        id
    }

    fn put_node(&self, node: TreeNode) -> TreeId {
        let id = TreeId(*blake3::hash(format!("{node:?}").as_bytes()).as_bytes());
        self.nodes.lock().insert(id, node);
        id
    }

    pub fn put_tree(&self, entries: BTreeMap<Name, TreeEntry>) -> TreeId {
        let ends = |name: &[u8], level: usize| blake3::hash(name).as_bytes()[level] & 3 == 0;
        let entries: Vec<_> = entries.into_iter().collect();
        if entries.len() <= LEAF_LIMIT {
            return self.put_node(TreeNode::Leaf(entries));
        }
        let mut children = Vec::new();
        for leaf in entries.chunk_by(|(name, _), _| !ends(name, 0)) {
            children.push(TreeChild {
                last_name: leaf[leaf.len() - 1].0.clone(),
                entry_count: leaf.len() as u64,
                node: self.put_node(TreeNode::Leaf(leaf.to_vec())),
            });
        }
        let mut level = 1;
        while children.len() > LEAF_LIMIT && level < 32 {
            let mut parents = Vec::new();
            for inner in children.chunk_by(|child, _| !ends(&child.last_name, level)) {
                parents.push(TreeChild {
                    last_name: inner[inner.len() - 1].last_name.clone(),
                    entry_count: inner.iter().map(|child| child.entry_count).sum(),
                    node: self.put_node(TreeNode::Inner(inner.to_vec())),
                });
            }
            children = parents;
            level += 1;
        }
        self.put_node(TreeNode::Inner(children))
    }

    pub fn empty(&self) -> Root {
        Root {
            attributes: crate::object::Attributes::default(),
            tree: self.put_tree(BTreeMap::new()),
            links: None,
        }
    }

    fn put_inode(&self, edit: InodeEdit) -> Result<Inode> {
        let node = match edit.node {
            NodeEdit::Stored(node) => node,
            NodeEdit::Content { content, .. } => {
                let mut bytes = Vec::new();
                let mut buffer = [0; 4096];
                loop {
                    let count = content
                        .read_at(bytes.len() as u64, &mut buffer)
                        .map_err(|error| StoreError::io("reading new content", error))?;
                    bytes.extend_from_slice(&buffer[..count]);
                    if count < buffer.len() {
                        break;
                    }
                }
                assert_eq!(bytes.len() as u64, content.size());
                Node::Regular {
                    blob: self.put_blob(&bytes),
                    size: bytes.len() as u64,
                    holes: content.holes().into(),
                }
            }
            NodeEdit::Directory(edit) => Node::Directory {
                tree: self.put_directory(edit)?,
            },
        };
        Ok(Inode {
            attributes: edit.attributes,
            node,
        })
    }

    fn put_directory(&self, edit: DirectoryEdit) -> Result<TreeId> {
        let mut entries = match edit.base {
            Some(base) => self.directory(base)?.into_iter().collect(),
            None => BTreeMap::new(),
        };
        for (name, change) in edit.entries {
            match change {
                EntryEdit::Remove => {
                    entries.remove(&name);
                }
                EntryEdit::Put(inode) => {
                    entries.insert(name, TreeEntry::Inline(self.put_inode(inode)?));
                }
                EntryEdit::Link(id) => {
                    entries.insert(name, TreeEntry::Link(id));
                }
            }
        }
        Ok(self.put_tree(entries))
    }

    /// Applies an edit; `edit.root.base` must be the base's tree unless the edit starts anew.
    pub fn apply(&self, base: &Root, edit: SnapshotEdit) -> Result<Root> {
        let mut links: BTreeMap<_, _> = match base.links {
            Some(links) => self.links(links)?.into_iter().collect(),
            None => BTreeMap::new(),
        };
        for (id, change) in edit.links {
            match change {
                None => {
                    links.remove(&id);
                }
                Some(change) => {
                    let inode = self.put_inode(change.inode)?;
                    let link_count = change.link_count;
                    links.insert(id, LinkedInode { link_count, inode });
                }
            }
        }
        let root = Root {
            attributes: edit
                .root_attributes
                .unwrap_or_else(|| base.attributes.clone()),
            tree: self.put_directory(edit.root)?,
            links: self.put_links(links),
        };
        self.verify_links(&root)?;
        Ok(root)
    }

    pub fn put_links(&self, links: BTreeMap<LinkId, LinkedInode>) -> Option<TreeId> {
        if links.is_empty() {
            return None;
        }
        let id = TreeId(*blake3::hash(format!("{links:?}").as_bytes()).as_bytes());
        self.links.lock().insert(id, links);
        Some(id)
    }

    /// Every file in the link table has exactly as many names as it says.
    pub fn verify_links(&self, root: &Root) -> Result<()> {
        let mut counts = BTreeMap::new();
        for (_, (_, id)) in self.flatten(root)? {
            if let Some(id) = id {
                *counts.entry(id).or_insert(0_u32) += 1;
            }
        }
        let stored: BTreeMap<_, _> = match root.links {
            Some(links) => self.links(links)?.into_iter().collect(),
            None => BTreeMap::new(),
        };
        let stored: BTreeMap<_, _> = stored
            .into_iter()
            .map(|(id, linked)| (id, linked.link_count))
            .collect();
        assert_eq!(counts, stored, "link counts");
        Ok(())
    }

    /// All paths with their inodes (trees of directories left out) and link identities.
    pub fn flatten(&self, root: &Root) -> Result<BTreeMap<Vec<u8>, (Inode, Option<LinkId>)>> {
        let mut all = BTreeMap::new();
        let mut pending = vec![(Vec::new(), root.tree)];
        let mut root_inode = crate::lookup::root_inode(root);
        forget_tree(&mut root_inode);
        all.insert(Vec::new(), (root_inode, None));
        while let Some((path, tree)) = pending.pop() {
            for (name, entry) in self.directory(tree)? {
                let path = crate::path::join_path(&path, &name);
                let mut inode = crate::lookup::resolve_entry(self, root.links, &entry)?;
                if let Node::Directory { tree } = inode.node {
                    pending.push((path.clone(), tree));
                }
                forget_tree(&mut inode);
                let link = match entry {
                    TreeEntry::Link(id) => Some(id),
                    TreeEntry::Inline(_) => None,
                };
                all.insert(path, (inode, link));
            }
        }
        Ok(all)
    }
}

/// Makes directories comparable by their own attributes alone.
pub(crate) fn forget_tree(inode: &mut Inode) {
    if let Node::Directory { tree } = &mut inode.node {
        *tree = TreeId([0; 32]);
    }
}

impl ObjectReader for MemoryStore {
    fn tree_node(&self, id: TreeId) -> Result<TreeNode> {
        *self.node_reads.lock() += 1;
        let nodes = self.nodes.lock();
        nodes.get(&id).cloned().ok_or_else(|| missing("tree"))
    }

    fn link(&self, links: TreeId, id: LinkId) -> Result<Option<LinkedInode>> {
        let tables = self.links.lock();
        let table = tables.get(&links).ok_or_else(|| missing("link table"))?;
        Ok(table.get(&id).cloned())
    }

    fn links(&self, links: TreeId) -> Result<Vec<(LinkId, LinkedInode)>> {
        let tables = self.links.lock();
        let table = tables.get(&links).ok_or_else(|| missing("link table"))?;
        Ok(table.iter().map(|(id, file)| (*id, file.clone())).collect())
    }

    fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let blobs = self.blobs.lock();
        let content = blobs.get(&blob).ok_or_else(|| missing("blob"))?;
        crate::edit::Content::read_at(content, offset, buffer)
            .map_err(|error| StoreError::io("reading a blob", error))
    }
}
