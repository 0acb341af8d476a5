//! Directories and link tables as trees of nodes.
//!
//! Up to [`DIRECTORY_NODE_MAX_ENTRIES`] entries are one node. A larger directory is cut where the
//! names decide: a node of level n ends after an entry (a child's last name, above level 0) whose
//! n-th byte of BLAKE3(name) has its lower seven bits zero. So the same entries always give the
//! same [`TreeId`], whatever the order of the changes that led to them, and a changed entry
//! touches one node a level.

use std::sync::Arc;

use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::limits::DIRECTORY_NODE_MAX_ENTRIES;
use crate::object::codec::{StoredNode, link_key};
use crate::object::{LinkId, LinkedInode, Name, TreeEntry};
use crate::reader::TreeChild;

const BOUNDARY_MASK: u8 = 0x7f;

/// Where nodes are read from.
pub(crate) trait NodeReader {
    /// One node, verified.
    fn node(&self, id: TreeId) -> Result<Arc<StoredNode>>;
}

/// Where nodes are written to.
pub(crate) trait NodeWriter: NodeReader {
    /// Stores a node that may be there already.
    fn put(&mut self, node: StoredNode) -> Result<TreeId>;
}

/// What a node holds: entries of a directory, entries of a link table, or child nodes.
pub(crate) trait Item: Clone {
    /// What items are sorted by.
    fn key(&self) -> &[u8];
    /// Entries that it stands for.
    fn entry_count(&self) -> u64;
    /// A node of such items.
    fn into_node(items: Vec<Self>) -> StoredNode;
    /// The items of a node, if they are such.
    fn of_node(node: &StoredNode) -> Option<&[Self]>;
}

/// An entry together with its name.
pub(crate) type Entry<V> = (Name, V);

impl Item for Entry<TreeEntry> {
    fn key(&self) -> &[u8] {
        &self.0
    }

    fn entry_count(&self) -> u64 {
        1
    }

    fn into_node(items: Vec<Self>) -> StoredNode {
        StoredNode::Leaf(items)
    }

    fn of_node(node: &StoredNode) -> Option<&[Self]> {
        match node {
            StoredNode::Leaf(items) => Some(items),
            _ => None,
        }
    }
}

impl Item for Entry<LinkedInode> {
    fn key(&self) -> &[u8] {
        &self.0
    }

    fn entry_count(&self) -> u64 {
        1
    }

    fn into_node(items: Vec<Self>) -> StoredNode {
        StoredNode::LinkLeaf(items)
    }

    fn of_node(node: &StoredNode) -> Option<&[Self]> {
        match node {
            StoredNode::LinkLeaf(items) => Some(items),
            _ => None,
        }
    }
}

impl Item for TreeChild {
    fn key(&self) -> &[u8] {
        &self.last_name
    }

    fn entry_count(&self) -> u64 {
        self.entry_count
    }

    fn into_node(items: Vec<Self>) -> StoredNode {
        StoredNode::Inner(items)
    }

    fn of_node(node: &StoredNode) -> Option<&[Self]> {
        match node {
            StoredNode::Inner(items) => Some(items),
            _ => None,
        }
    }
}

/// Changes of items by key, in ascending order: a new item, or `None` to remove it.
pub(crate) type Edits<I> = Vec<(Name, Option<I>)>;

fn is_boundary(key: &[u8], level: usize) -> bool {
    blake3::hash(key).as_bytes()[level % 32] & BOUNDARY_MASK == 0
}

/// Stores a tree of sorted entries.
pub(crate) fn build<I: Item>(writer: &mut dyn NodeWriter, entries: Vec<I>) -> Result<TreeId> {
    if entries.len() <= DIRECTORY_NODE_MAX_ENTRIES {
        return writer.put(I::into_node(entries));
    }
    let children = split(writer, entries, 0)?;
    build_upwards(writer, children, 1)
}

/// Stores what lies above the items of `level` (1 or more).
fn build_upwards(
    writer: &mut dyn NodeWriter,
    mut items: Vec<TreeChild>,
    mut level: usize,
) -> Result<TreeId> {
    while items.len() > DIRECTORY_NODE_MAX_ENTRIES {
        items = split(writer, items, level)?;
        level += 1;
    }
    top_node(writer, items)
}

/// The root over items of level 1 or more: a single child needs none above it.
fn top_node(writer: &mut dyn NodeWriter, items: Vec<TreeChild>) -> Result<TreeId> {
    match items.as_slice() {
        [only] => Ok(only.node),
        _ => writer.put(TreeChild::into_node(items)),
    }
}

/// Stores items as nodes of `level`, cut at boundaries.
fn split<I: Item>(
    writer: &mut dyn NodeWriter,
    items: Vec<I>,
    level: usize,
) -> Result<Vec<TreeChild>> {
    let mut children = Vec::new();
    let mut group = Vec::new();
    for item in items {
        let ends = is_boundary(item.key(), level);
        group.push(item);
        if ends {
            children.push(store_group(writer, std::mem::take(&mut group))?);
        }
    }
    if !group.is_empty() {
        children.push(store_group(writer, group)?);
    }
    Ok(children)
}

fn store_group<I: Item>(writer: &mut dyn NodeWriter, group: Vec<I>) -> Result<TreeChild> {
    let last_name: Name = group
        .last()
        .map(|item| item.key().into())
        .unwrap_or_default();
    let entry_count = group.iter().map(Item::entry_count).sum();
    Ok(TreeChild {
        last_name,
        entry_count,
        node: writer.put(I::into_node(group))?,
    })
}

/// Items with edits applied.
fn merge<I: Item>(items: &[I], edits: &[(Name, Option<I>)]) -> Vec<I> {
    let mut merged = Vec::with_capacity(items.len() + edits.len());
    let mut items = items.iter().peekable();
    for (name, item) in edits {
        while let Some(before) = items.next_if(|item| item.key() < name.as_ref()) {
            merged.push(before.clone());
        }
        items.next_if(|item| item.key() == name.as_ref());
        merged.extend(item.clone());
    }
    merged.extend(items.cloned());
    merged
}

/// Stores the tree that results from edits over `base`.
pub(crate) fn edit<I: Item>(
    writer: &mut dyn NodeWriter,
    base: TreeId,
    edits: Edits<I>,
) -> Result<TreeId> {
    if edits.is_empty() {
        return Ok(base);
    }
    let root = writer.node(base)?;
    if let Some(items) = I::of_node(&root) {
        return build(writer, merge(items, &edits));
    }
    let old = Split {
        root: base,
        height: height(writer, &root)?,
    };
    let mut changed = old.edit_level(writer, 0, edits)?;
    for level in 1..old.height {
        changed = old.edit_level(writer, level, changed)?;
    }
    let top = merge(children(&root)?, &changed);

    // The tree may have become lower: the root is the lowest level that fits into one node.
    let total: u64 = top.iter().map(Item::entry_count).sum();
    if total <= DIRECTORY_NODE_MAX_ENTRIES as u64 {
        let mut entries: Vec<I> = Vec::with_capacity(total as usize);
        for child in &top {
            collect_entries(writer, child.node, &mut entries)?;
        }
        return build(writer, entries);
    }
    for level in 1..old.height {
        let mut items = Vec::new();
        if collect_level(writer, &top, old.height - level, &mut items)? {
            return top_node(writer, items);
        }
    }
    build_upwards(writer, top, old.height)
}

fn children(node: &StoredNode) -> Result<&[TreeChild]> {
    TreeChild::of_node(node)
        .ok_or_else(|| StoreError::new(ErrorKind::Corrupt, "directory has leaves at unequal depth"))
}

/// Levels of inner nodes below and including `root`.
fn height(reader: &(impl NodeReader + ?Sized), root: &Arc<StoredNode>) -> Result<usize> {
    let mut height = 0;
    let mut node = Arc::clone(root);
    while let StoredNode::Inner(items) = node.as_ref() {
        height += 1;
        let first = items
            .first()
            .ok_or_else(|| StoreError::new(ErrorKind::Corrupt, "inner node without children"))?
            .node;
        node = reader.node(first)?;
    }
    Ok(height)
}

fn collect_entries<I: Item>(
    reader: &(impl NodeReader + ?Sized),
    id: TreeId,
    entries: &mut Vec<I>,
) -> Result<()> {
    let node = reader.node(id)?;
    match node.as_ref() {
        StoredNode::Inner(items) => items
            .iter()
            .try_for_each(|child| collect_entries(reader, child.node, entries)),
        leaf => {
            let items = I::of_node(leaf).ok_or_else(|| wrong_kind(id))?;
            entries.extend_from_slice(items);
            Ok(())
        }
    }
}

/// Collects the items `depth` levels below `items`; false if they are too many for one node.
fn collect_level(
    reader: &(impl NodeReader + ?Sized),
    items: &[TreeChild],
    depth: usize,
    collected: &mut Vec<TreeChild>,
) -> Result<bool> {
    if depth == 0 {
        collected.extend_from_slice(items);
        return Ok(collected.len() <= DIRECTORY_NODE_MAX_ENTRIES);
    }
    for child in items {
        let node = reader.node(child.node)?;
        if !collect_level(reader, children(&node)?, depth - 1, collected)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A tree of more than one node. Leaves have level 0, the root has level `height`.
struct Split {
    root: TreeId,
    height: usize,
}

impl Split {
    /// The node of `level` that holds `key`, or would hold it: the last one if the key is beyond.
    fn find(&self, reader: &dyn NodeWriter, level: usize, key: &[u8]) -> Result<TreeChild> {
        let mut node = reader.node(self.root)?;
        let mut at = self.height;
        loop {
            let items = children(&node)?;
            let index = items.partition_point(|child| child.last_name.as_ref() < key);
            let child = &items[index.min(items.len() - 1)];
            at -= 1;
            if at == level {
                return Ok(child.clone());
            }
            let next = reader.node(child.node)?;
            node = next;
        }
    }

    /// The first node of `level` whose last name is greater than `name`.
    fn next(
        &self,
        reader: &dyn NodeWriter,
        level: usize,
        name: &[u8],
    ) -> Result<Option<TreeChild>> {
        let mut node = reader.node(self.root)?;
        let mut at = self.height;
        loop {
            let items = children(&node)?;
            let index = items.partition_point(|child| child.last_name.as_ref() <= name);
            let Some(child) = items.get(index) else {
                return Ok(None);
            };
            at -= 1;
            if at == level {
                return Ok(Some(child.clone()));
            }
            let next = reader.node(child.node)?;
            node = next;
        }
    }

    /// Applies edits to the items of `level`; gives back the edits of the level above.
    fn edit_level<I: Item>(
        &self,
        writer: &mut dyn NodeWriter,
        level: usize,
        edits: Edits<I>,
    ) -> Result<Edits<TreeChild>> {
        let mut above = std::collections::BTreeMap::new();
        let mut rest = edits.as_slice();
        while let Some((first, _)) = rest.first() {
            let mut current = self.find(&*writer, level, first)?;
            let mut items = Vec::new();
            loop {
                above.insert(current.last_name.clone(), None);
                let next = self.next(&*writer, level, &current.last_name)?;
                let taken = match next {
                    None => rest.len(),
                    Some(_) => rest.partition_point(|(name, _)| *name <= current.last_name),
                };
                let node = writer.node(current.node)?;
                let old = I::of_node(&node).ok_or_else(|| wrong_kind(current.node))?;
                items.append(&mut merge(old, &rest[..taken]));
                rest = &rest[taken..];
                // A node that lost its boundary grows into the next one.
                match (next, items.last()) {
                    (Some(next), Some(last)) if !is_boundary(last.key(), level) => current = next,
                    _ => break,
                }
            }
            for child in split(writer, items, level)? {
                above.insert(child.last_name.clone(), Some(child));
            }
        }
        Ok(above.into_iter().collect())
    }
}

fn wrong_kind(id: TreeId) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!("node {id} is not of the kind that refers to it"),
    )
}

/// The item with this key.
pub(crate) fn lookup<I: Item>(
    reader: &(impl NodeReader + ?Sized),
    tree: TreeId,
    key: &[u8],
) -> Result<Option<I>> {
    let mut id = tree;
    loop {
        let node = reader.node(id)?;
        match node.as_ref() {
            StoredNode::Inner(items) => {
                let index = items.partition_point(|child| child.last_name.as_ref() < key);
                match items.get(index) {
                    None => return Ok(None),
                    Some(child) => id = child.node,
                }
            }
            leaf => {
                let items = I::of_node(leaf).ok_or_else(|| wrong_kind(id))?;
                return Ok(items
                    .binary_search_by(|item| item.key().cmp(key))
                    .ok()
                    .map(|index| items[index].clone()));
            }
        }
    }
}

/// The entry of this name in a directory.
pub(crate) fn lookup_entry(
    reader: &(impl NodeReader + ?Sized),
    tree: TreeId,
    name: &[u8],
) -> Result<Option<TreeEntry>> {
    Ok(lookup::<Entry<TreeEntry>>(reader, tree, name)?.map(|(_, entry)| entry))
}

/// The entry of this id in a link table.
pub(crate) fn lookup_link(
    reader: &(impl NodeReader + ?Sized),
    links: TreeId,
    id: LinkId,
) -> Result<Option<LinkedInode>> {
    Ok(lookup::<Entry<LinkedInode>>(reader, links, &link_key(id))?.map(|(_, linked)| linked))
}

/// All items of a tree in ascending order.
pub(crate) fn all<I: Item>(reader: &(impl NodeReader + ?Sized), tree: TreeId) -> Result<Vec<I>> {
    let mut entries = Vec::new();
    collect_entries(reader, tree, &mut entries)?;
    Ok(entries)
}

/// The items that are only in one of two trees or differ, as `(old, new)`; nodes that both have
/// are skipped unread.
pub(crate) fn differences<I: Item + PartialEq>(
    reader: &(impl NodeReader + ?Sized),
    old: Option<TreeId>,
    new: Option<TreeId>,
) -> Result<Vec<(Option<I>, Option<I>)>> {
    if old == new {
        return Ok(Vec::new());
    }
    let mut old_side = Side::new(reader, old)?;
    let mut new_side = Side::new(reader, new)?;
    while old_side.height > 0 || new_side.height > 0 {
        let height = old_side.height.max(new_side.height);
        if old_side.height == height {
            old_side.expand(reader)?;
        }
        if new_side.height == height {
            new_side.expand(reader)?;
        }
        if old_side.height == new_side.height {
            drop_common(&mut old_side.nodes, &mut new_side.nodes);
        }
    }
    let old_items: Vec<I> = old_side.items(reader)?;
    let new_items: Vec<I> = new_side.items(reader)?;
    let mut found = Vec::new();
    let mut old_items = old_items.into_iter().peekable();
    let mut new_items = new_items.into_iter().peekable();
    loop {
        let order = match (old_items.peek(), new_items.peek()) {
            (None, None) => return Ok(found),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.key().cmp(new.key()),
        };
        let old = if order.is_le() {
            old_items.next()
        } else {
            None
        };
        let new = if order.is_ge() {
            new_items.next()
        } else {
            None
        };
        if old != new {
            found.push((old, new));
        }
    }
}

/// Nodes of one level of a tree whose other nodes are of no interest.
struct Side {
    height: usize,
    nodes: Vec<TreeId>,
}

impl Side {
    fn new(reader: &(impl NodeReader + ?Sized), tree: Option<TreeId>) -> Result<Self> {
        let height = match tree {
            None => 0,
            Some(tree) => height(reader, &reader.node(tree)?)?,
        };
        Ok(Self {
            height,
            nodes: tree.into_iter().collect(),
        })
    }

    fn expand(&mut self, reader: &(impl NodeReader + ?Sized)) -> Result<()> {
        let mut below = Vec::new();
        for id in &self.nodes {
            let node = reader.node(*id)?;
            below.extend(children(&node)?.iter().map(|child| child.node));
        }
        self.nodes = below;
        self.height -= 1;
        Ok(())
    }

    fn items<I: Item>(&self, reader: &(impl NodeReader + ?Sized)) -> Result<Vec<I>> {
        let mut items = Vec::new();
        for id in &self.nodes {
            collect_entries(reader, *id, &mut items)?;
        }
        Ok(items)
    }
}

fn drop_common(old: &mut Vec<TreeId>, new: &mut Vec<TreeId>) {
    let olds: std::collections::HashSet<TreeId> = old.iter().copied().collect();
    let common: std::collections::HashSet<TreeId> =
        new.iter().copied().filter(|id| olds.contains(id)).collect();
    old.retain(|id| !common.contains(id));
    new.retain(|id| !common.contains(id));
}

#[cfg(test)]
mod tests;
