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

/// All paths of a tree, each with its inode and its identity if it has several names.
pub(crate) type Flat = BTreeMap<Vec<u8>, (Inode, Option<LinkId>)>;

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
    pub fn flatten(&self, root: &Root) -> Result<Flat> {
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

/// A tree as a test describes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Described>,
    links: BTreeMap<u64, (Vec<u8>, i64)>,
}

#[derive(Debug, Clone)]
enum Described {
    File {
        content: Vec<u8>,
        mode: u32,
        seconds: i64,
    },
    Symlink(Vec<u8>),
    Link(u64),
    Directory {
        seconds: i64,
    },
    Fifo,
}

impl Tree {
    pub fn file(&mut self, path: &str, content: &[u8]) {
        let (content, mode, seconds) = (content.to_vec(), 0o644, 1);
        self.entries.insert(
            path.to_owned(),
            Described::File {
                content,
                mode,
                seconds,
            },
        );
    }

    pub fn mode(&mut self, path: &str, new: u32) {
        if let Some(Described::File { mode, .. }) = self.entries.get_mut(path) {
            *mode = new;
        }
    }

    pub fn symlink(&mut self, path: &str, target: &[u8]) {
        self.entries
            .insert(path.to_owned(), Described::Symlink(target.to_vec()));
    }

    pub fn link(&mut self, path: &str, id: u64, content: &[u8]) {
        self.entries.insert(path.to_owned(), Described::Link(id));
        self.links.insert(id, (content.to_vec(), 1));
    }

    pub fn remove(&mut self, path: &str) {
        self.entries.remove(path);
    }

    /// Paths that were described, not those of directories above them.
    pub fn paths(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Removes an entry and all below it.
    pub fn remove_all(&mut self, path: &str) {
        let below = format!("{path}/");
        self.entries
            .retain(|other, _| other != path && !other.starts_with(&below));
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(described) = self.entries.remove(from) {
            self.entries.insert(to.to_owned(), described);
        }
    }

    /// Changes the content of what is at a path, of all its names.
    pub fn change(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        match self.entries.get_mut(path) {
            Some(Described::File {
                content, seconds, ..
            }) => {
                change(content);
                *seconds += 1;
            }
            Some(Described::Symlink(target)) => change(target),
            Some(Described::Link(id)) => {
                if let Some((content, seconds)) = self.links.get_mut(id) {
                    change(content);
                    *seconds += 1;
                }
            }
            _ => {}
        }
    }

    fn regular(store: &MemoryStore, content: &[u8]) -> Node {
        Node::Regular {
            blob: store.put_blob(content),
            size: content.len() as u64,
            holes: Vec::new().into(),
        }
    }

    /// Stores the tree; parents of entries are made, entries below files are left out.
    pub fn build(&self, store: &MemoryStore) -> Root {
        let attributes = |mode, seconds| crate::object::Attributes {
            mode,
            mtime: crate::object::Timestamp {
                seconds,
                nanoseconds: 5,
            },
            // The user who runs the tests, so that an export can set the owner.
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            ..Default::default()
        };
        let mut directories: BTreeMap<String, BTreeMap<Name, TreeEntry>> = BTreeMap::new();
        let mut times: BTreeMap<String, i64> = BTreeMap::new();
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        directories.insert(String::new(), BTreeMap::new());
        for (path, described) in &self.entries {
            let parts: Vec<&str> = path.split('/').collect();
            let is_below_file = (1..parts.len()).any(|depth| {
                let parent = self.entries.get(&parts[..depth].join("/"));
                parent.is_some_and(|parent| !matches!(parent, Described::Directory { .. }))
            });
            if is_below_file {
                continue;
            }
            for depth in 1..parts.len() {
                directories.entry(parts[..depth].join("/")).or_default();
            }
            let (node, mode, seconds) = match described {
                Described::Directory { seconds } => {
                    directories.entry(path.clone()).or_default();
                    times.insert(path.clone(), *seconds);
                    continue;
                }
                Described::File {
                    content,
                    mode,
                    seconds,
                } => (Self::regular(store, content), *mode, *seconds),
                Described::Symlink(target) => (
                    Node::Symlink {
                        target: target.clone().into(),
                    },
                    0o777,
                    1,
                ),
                Described::Fifo => (Node::Fifo, 0o600, 1),
                Described::Link(_) => (Node::Fifo, 0, 0),
            };
            let entry = match described {
                Described::Link(id) => {
                    *counts.entry(*id).or_default() += 1;
                    TreeEntry::Link(LinkId(*id))
                }
                _ => TreeEntry::Inline(Inode {
                    attributes: attributes(mode, seconds),
                    node,
                }),
            };
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = directories.entry(parent.to_owned()).or_default();
            parent.insert(name.as_bytes().into(), entry);
        }
        let mut top = None;
        // The longest path first, so that children are stored before their parents.
        while let Some(path) = directories.keys().max_by_key(|path| path.len()).cloned() {
            let tree = store.put_tree(directories.remove(&path).unwrap_or_default());
            if path.is_empty() {
                top = Some(tree);
                break;
            }
            let seconds = times.get(&path).copied().unwrap_or(1);
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let entry = TreeEntry::Inline(Inode {
                attributes: attributes(0o755, seconds),
                node: Node::Directory { tree },
            });
            let parent = directories.entry(parent.to_owned()).or_default();
            parent.insert(name.as_bytes().into(), entry);
        }
        let links = counts
            .into_iter()
            .map(|(id, link_count)| {
                let (content, seconds) = &self.links[&id];
                let inode = Inode {
                    attributes: attributes(0o644, *seconds),
                    node: Self::regular(store, content),
                };
                (LinkId(id), LinkedInode { link_count, inode })
            })
            .collect();
        Root {
            attributes: attributes(0o755, 1),
            tree: top.expect("the root is always there"),
            links: store.put_links(links),
        }
    }
}

/// Small trees that have much in common, so that all kinds of differences come up.
pub(crate) fn random_tree() -> impl proptest::strategy::Strategy<Value = Tree> {
    use proptest::prelude::*;
    let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d.e"]), 1..4)
        .prop_map(|names| names.join("/"));
    let flat = (0..40_u32).prop_map(|number| format!("a/{number:02}"));
    let described = prop_oneof![
        4 => (0..4_u8, prop::sample::select(vec![0o644_u32, 0o755]), 1..3_i64).prop_map(
            |(content, mode, seconds)| Described::File {
                content: vec![content; usize::from(content)], mode, seconds
            }),
        1 => (0..3_u8).prop_map(|target| Described::Symlink(vec![b'x' + target])),
        3 => (0..3_u64).prop_map(Described::Link),
        2 => (1..3_i64).prop_map(|seconds| Described::Directory { seconds }),
        1 => Just(Described::Fifo),
    ];
    let path = prop_oneof![3 => path, 2 => flat];
    (
        prop::collection::btree_map(path, described, 0..30),
        prop::collection::vec((0..3_u8, 1..3_i64), 3),
    )
        .prop_map(|(entries, links)| Tree {
            entries,
            links: links
                .into_iter()
                .enumerate()
                .map(|(id, (content, seconds))| (id as u64, (vec![content; 3], seconds)))
                .collect(),
        })
}
