//! Turning an edit over a base tree into a stored tree.
//!
//! First all new content is stored, on several threads; then directories, deepest first. Nothing
//! refers to the new objects until a commit does. Cost O(changed).

mod changes;

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};
use std::sync::Arc;

pub(crate) use changes::Changes;

use crate::blobs::ObjectSink;
use crate::compress::compress;
use crate::db::objects::{NewObject, Packed};
use crate::edit::{Content, DirectoryEdit, EntryEdit, InodeEdit, LinkEdit, NodeEdit, SnapshotEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::limits::{
    NAME_MAX_BYTES, SYMLINK_TARGET_MAX_BYTES, TREE_NODE_CACHE_BYTES, XATTR_VALUE_MAX_BYTES,
};
use crate::object::codec::{
    StoredNode, are_valid_holes, encode_node, is_valid_name, link_key, tree_id,
};
use crate::object::{Attributes, Inode, LinkId, LinkedInode, Name, Node, Root, TreeEntry};
use crate::store::{Inner, Store};
use crate::trees::{self, Edits, Entry, NodeReader, NodeWriter};

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

impl Store {
    /// Stores an edit over `base` and gives back the resulting tree; no ref moves.
    ///
    /// # Errors
    /// `InvalidInput` if the edit names objects or links that aren't there, or has impossible
    /// names or attributes.
    pub fn build_root(
        &self,
        base: &Root,
        edit: SnapshotEdit,
        progress: ProgressFunction<'_>,
    ) -> Result<Root> {
        Ok(self.inner.store_edit(base, edit, progress)?.root)
    }
}

/// A stored edit.
#[derive(Debug)]
pub(crate) struct StoredEdit {
    /// The resulting tree.
    pub(crate) root: Root,
    /// What each new content and each keyed directory became.
    pub(crate) contents: Vec<(u64, Node)>,
}

impl Inner {
    /// Stores an edit over `base`. Everything is in the database afterwards, and durable with the
    /// next durable transaction.
    pub(crate) fn store_edit(
        &self,
        base: &Root,
        edit: SnapshotEdit,
        progress: ProgressFunction<'_>,
    ) -> Result<StoredEdit> {
        let mut new_contents = Vec::new();
        collect_contents(&edit.root, &mut new_contents);
        for link in edit.links.values().flatten() {
            collect_content(&link.inode.node, &mut new_contents);
        }
        let blobs = self.put_blobs(&new_contents, progress)?;
        if blobs.len() != new_contents.len() {
            return Err(invalid("two contents of one edit have the same key"));
        }
        let mut builder = Builder {
            store: self,
            nodes: NodeSink::new(self),
            blobs,
            contents: Vec::new(),
            named_links: BTreeSet::new(),
        };
        let tree = builder.directory(edit.root)?;
        let links = builder.links(base.links, edit.links)?;
        builder.check_named_links(links)?;
        builder.nodes.flush()?;
        let attributes = match edit.root_attributes {
            Some(attributes) => checked_attributes(attributes)?,
            None => base.attributes.clone(),
        };
        let mut contents = builder.contents;
        contents.extend(builder.blobs);
        Ok(StoredEdit {
            root: Root {
                attributes,
                tree,
                links,
            },
            contents,
        })
    }
}

fn collect_contents(edit: &DirectoryEdit, found: &mut Vec<(u64, Arc<dyn Content>)>) {
    let mut waiting = vec![edit];
    while let Some(directory) = waiting.pop() {
        for entry in directory.entries.values() {
            if let EntryEdit::Put(inode) = entry {
                match &inode.node {
                    NodeEdit::Directory(below) => waiting.push(below),
                    other => collect_content(other, found),
                }
            }
        }
    }
}

fn collect_content(node: &NodeEdit, found: &mut Vec<(u64, Arc<dyn Content>)>) {
    if let NodeEdit::Content { key, content } = node {
        found.push((*key, Arc::clone(content)));
    }
}

/// New directory nodes: readable at once, in the database after a flush.
struct NodeSink<'s> {
    store: &'s Inner,
    objects: ObjectSink<'s>,
    unconfirmed: HashMap<TreeId, Arc<StoredNode>>,
    unconfirmed_bytes: u64,
}

impl<'s> NodeSink<'s> {
    fn new(store: &'s Inner) -> Self {
        Self {
            store,
            objects: ObjectSink::new(store),
            unconfirmed: HashMap::new(),
            unconfirmed_bytes: 0,
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.objects.flush()?;
        for (id, node) in self.unconfirmed.drain() {
            self.store.node_cache.insert(id, node);
        }
        self.unconfirmed_bytes = 0;
        Ok(())
    }
}

impl NodeReader for NodeSink<'_> {
    fn node(&self, id: TreeId) -> Result<Arc<StoredNode>> {
        match self.unconfirmed.get(&id) {
            Some(node) => Ok(Arc::clone(node)),
            None => self.store.node(id),
        }
    }
}

impl NodeWriter for NodeSink<'_> {
    fn put(&mut self, node: StoredNode) -> Result<TreeId> {
        let encoded = encode_node(&node);
        let id = tree_id(&encoded);
        if self.store.node_cache.peek(&id).is_some() || self.unconfirmed.contains_key(&id) {
            return Ok(id);
        }
        let (encoding, stored) = compress(&encoded)?;
        let packed = Packed {
            encoding,
            size: encoded.len(),
            stored: stored.into_owned(),
        };
        self.objects.push(NewObject::TreeNode { id, packed })?;
        self.unconfirmed_bytes += encoded.len() as u64;
        self.unconfirmed.insert(id, Arc::new(node));
        if self.unconfirmed_bytes > TREE_NODE_CACHE_BYTES {
            self.flush()?;
        }
        Ok(id)
    }
}

struct Builder<'s> {
    store: &'s Inner,
    nodes: NodeSink<'s>,
    blobs: HashMap<u64, Node>,
    contents: Vec<(u64, Node)>,
    named_links: BTreeSet<LinkId>,
}

/// A directory whose entries are being stored.
struct OpenDirectory {
    /// Its name and attributes in the directory above; the root has none.
    place: Option<(Name, Attributes)>,
    key: Option<u64>,
    base: Option<TreeId>,
    rest: btree_map::IntoIter<Name, EntryEdit>,
    stored: Edits<Entry<TreeEntry>>,
}

impl OpenDirectory {
    fn new(place: Option<(Name, Attributes)>, edit: DirectoryEdit) -> Self {
        Self {
            place,
            key: edit.key,
            base: edit.base,
            stored: Vec::with_capacity(edit.entries.len()),
            rest: edit.entries.into_iter(),
        }
    }
}

impl Builder<'_> {
    /// Stores a directory and all below it. Without recursion: programs in a mount make
    /// directories as deep as they like.
    fn directory(&mut self, edit: DirectoryEdit) -> Result<TreeId> {
        let mut above: Vec<OpenDirectory> = Vec::new();
        let mut current = OpenDirectory::new(None, edit);
        loop {
            let Some((name, entry)) = current.rest.next() else {
                let tree = self.close_directory(current.key, current.base, current.stored)?;
                let (Some(parent), Some((name, attributes))) = (above.pop(), current.place) else {
                    return Ok(tree);
                };
                current = parent;
                let inode = Inode {
                    attributes,
                    node: Node::Directory { tree },
                };
                current
                    .stored
                    .push((name.clone(), Some((name, TreeEntry::Inline(inode)))));
                continue;
            };
            if !is_valid_name(&name) {
                return Err(invalid(&format!(
                    "'{}' can't be the name of a directory entry",
                    name.escape_ascii()
                )));
            }
            let entry = match entry {
                EntryEdit::Remove => None,
                EntryEdit::Link(id) => {
                    self.named_links.insert(id);
                    Some((name.clone(), TreeEntry::Link(id)))
                }
                EntryEdit::Put(InodeEdit {
                    attributes,
                    node: NodeEdit::Directory(below),
                }) => {
                    let place = (name, checked_attributes(attributes)?);
                    let below = OpenDirectory::new(Some(place), below);
                    above.push(std::mem::replace(&mut current, below));
                    continue;
                }
                EntryEdit::Put(inode) => {
                    Some((name.clone(), TreeEntry::Inline(self.inode(inode)?)))
                }
            };
            current.stored.push((name, entry));
        }
    }

    fn close_directory(
        &mut self,
        key: Option<u64>,
        base: Option<TreeId>,
        entries: Edits<Entry<TreeEntry>>,
    ) -> Result<TreeId> {
        let tree = match base {
            Some(base) => trees::edit(&mut self.nodes, base, entries)?,
            None => {
                let entries = entries.into_iter().filter_map(|(_, entry)| entry).collect();
                trees::build::<Entry<TreeEntry>>(&mut self.nodes, entries)?
            }
        };
        if let Some(key) = key {
            self.contents.push((key, Node::Directory { tree }));
        }
        Ok(tree)
    }

    /// An inode that isn't a directory with changes of its own.
    fn inode(&mut self, edit: InodeEdit) -> Result<Inode> {
        let attributes = checked_attributes(edit.attributes)?;
        let node = match edit.node {
            NodeEdit::Stored(node) => self.checked_node(node)?,
            NodeEdit::Content { key, .. } => self
                .blobs
                .get(&key)
                .cloned()
                .ok_or_else(|| StoreError::new(ErrorKind::Internal, "content was not stored"))?,
            NodeEdit::Directory(edit) => Node::Directory {
                tree: self.directory(edit)?,
            },
        };
        Ok(Inode { attributes, node })
    }

    fn links(
        &mut self,
        base: Option<TreeId>,
        edits: BTreeMap<LinkId, Option<LinkEdit>>,
    ) -> Result<Option<TreeId>> {
        if edits.is_empty() {
            return Ok(base);
        }
        let mut entries = Vec::with_capacity(edits.len());
        for (id, edit) in edits {
            let entry = match edit {
                None => None,
                Some(LinkEdit { link_count: 0, .. }) => {
                    return Err(invalid("an entry of the link table has no names"));
                }
                Some(LinkEdit {
                    inode:
                        InodeEdit {
                            node: NodeEdit::Directory(_),
                            ..
                        },
                    ..
                }) => {
                    return Err(invalid("a directory can't have several names"));
                }
                Some(LinkEdit { link_count, inode }) => {
                    let inode = self.inode(inode)?;
                    if matches!(inode.node, Node::Directory { .. }) {
                        return Err(invalid("a directory can't have several names"));
                    }
                    Some((link_key(id), LinkedInode { link_count, inode }))
                }
            };
            entries.push((link_key(id), entry));
        }
        let tree = match base {
            Some(base) => trees::edit(&mut self.nodes, base, entries)?,
            None => {
                let entries = entries.into_iter().filter_map(|(_, entry)| entry).collect();
                trees::build::<Entry<LinkedInode>>(&mut self.nodes, entries)?
            }
        };
        let is_empty = matches!(self.nodes.node(tree)?.as_ref(),
            StoredNode::LinkLeaf(entries) if entries.is_empty());
        Ok((!is_empty).then_some(tree))
    }

    fn check_named_links(&self, links: Option<TreeId>) -> Result<()> {
        for id in &self.named_links {
            let found = match links {
                None => None,
                Some(links) => trees::lookup_link(&self.nodes, links, *id)?,
            };
            if found.is_none() {
                return Err(invalid(&format!(
                    "a name refers to the link {:016x}, which isn't in the link table",
                    id.0
                )));
            }
        }
        Ok(())
    }

    /// A node that says it is stored already.
    fn checked_node(&self, node: Node) -> Result<Node> {
        match &node {
            Node::Regular { blob, size, holes } => match self.store.blob_size(*blob)? {
                None => return Err(invalid(&format!("content {blob} is not in the store"))),
                Some(stored) if stored != *size => {
                    return Err(invalid(&format!(
                        "content {blob} has {stored} bytes, the edit says {size}"
                    )));
                }
                Some(_) if !are_valid_holes(holes, *size) => {
                    return Err(invalid("a file has impossible holes"));
                }
                Some(_) => {}
            },
            Node::Directory { tree } => {
                let is_stored =
                    self.nodes.unconfirmed.contains_key(tree) || self.store.has_tree_node(*tree)?;
                if !is_stored {
                    return Err(invalid(&format!("directory {tree} is not in the store")));
                }
            }
            Node::Symlink { target } => {
                let is_possible = !target.is_empty()
                    && target.len() <= SYMLINK_TARGET_MAX_BYTES
                    && !target.contains(&0);
                if !is_possible {
                    return Err(invalid("a symbolic link has an impossible target"));
                }
            }
            Node::Fifo | Node::Socket | Node::CharDevice { .. } | Node::BlockDevice { .. } => {}
        }
        Ok(node)
    }
}

fn checked_attributes(attributes: Attributes) -> Result<Attributes> {
    let xattrs_are_possible = attributes.xattrs.iter().all(|(name, value)| {
        !name.is_empty()
            && name.len() <= NAME_MAX_BYTES
            && !name.contains(&0)
            && value.len() <= XATTR_VALUE_MAX_BYTES
    });
    if attributes.mode > 0o7777 {
        Err(invalid(&format!(
            "{:o} is not a mode of twelve permission bits",
            attributes.mode
        )))
    } else if attributes.mtime.nanoseconds >= 1_000_000_000 {
        Err(invalid(
            "a modification time has more than 999,999,999 nanoseconds",
        ))
    } else if !xattrs_are_possible {
        Err(invalid(
            "an extended attribute has an impossible name or is too large",
        ))
    } else {
        Ok(attributes)
    }
}

fn invalid(reason: &str) -> StoreError {
    StoreError::new(
        ErrorKind::InvalidInput,
        format!("cannot store the changes: {reason}"),
    )
}
