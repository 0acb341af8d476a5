//! Finds the entries that differ in O(changed): equal directories, and equal nodes of split
//! directories, are skipped by their ids.

use std::collections::{BTreeMap, BTreeSet};

use super::{DiffEntry, DiffKind, DiffOptions, MetadataChanges, rename};
use crate::error::Result;
use crate::id::TreeId;
use crate::lookup::{resolve_entry, root_inode};
use crate::object::{Inode, LinkId, LinkedInode, Name, Node, Root, TreeEntry};
use crate::path::{is_at_or_below, join_path, split_path};
use crate::reader::{ObjectReader, TreeNode};

/// Lists what differs between two trees, in the order of the paths' bytes.
///
/// A new or deleted directory is listed with everything below it, a moved one (found by its
/// tree id) as one entry. A file with several names is listed at each of them.
///
/// # Errors
/// `InvalidInput` for a path filter that can't be a path; errors of the reader.
pub fn diff_roots(
    reader: &dyn ObjectReader,
    old: &Root,
    new: &Root,
    options: &DiffOptions,
) -> Result<Vec<DiffEntry>> {
    for path in &options.paths {
        split_path(path)?;
    }
    let mut diff = TreeDiff {
        reader,
        options,
        links: [old.links, new.links],
        changed_links: changed_links(reader, old.links, new.links)?,
        seen: BTreeSet::new(),
        entries: Vec::new(),
    };
    let old_entry = TreeEntry::Inline(root_inode(old));
    let new_entry = TreeEntry::Inline(root_inode(new));
    diff.entry(Vec::new(), Some(&old_entry), Some(&new_entry))?;
    if diff.changed_links.values().any(|remaining| *remaining > 0) {
        diff.find_names_of_changed_links(new.tree)?;
    }
    // A moved directory can't stand for a file in it that changed through the link table.
    let whole_directories = diff.changed_links.is_empty();
    let links = diff.links;
    let mut entries = diff.entries;
    entries = if options.renames {
        rename::detect(reader, links, entries, whole_directories)?
    } else {
        expand(reader, links, entries)?
    };
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(entries)
}

/// Files with several names whose inode differs, with the number of names in the new tree.
fn changed_links(
    reader: &dyn ObjectReader,
    old: Option<TreeId>,
    new: Option<TreeId>,
) -> Result<BTreeMap<LinkId, u32>> {
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(BTreeMap::new());
    };
    if old == new {
        return Ok(BTreeMap::new());
    }
    let old: BTreeMap<LinkId, LinkedInode> = reader.links(old)?.into_iter().collect();
    Ok(reader
        .links(new)?
        .into_iter()
        .filter(|(id, new)| old.get(id).is_some_and(|old| old.inode != new.inode))
        .map(|(id, new)| (id, new.link_count))
        .collect())
}

/// Adds what is below new and deleted directories.
pub(super) fn expand(
    reader: &dyn ObjectReader,
    links: [Option<TreeId>; 2],
    entries: Vec<DiffEntry>,
) -> Result<Vec<DiffEntry>> {
    let mut all = Vec::with_capacity(entries.len());
    let mut pending = entries;
    while let Some(entry) = pending.pop() {
        pending.append(&mut children(reader, links, &entry)?);
        all.push(entry);
    }
    Ok(all)
}

/// What is in a new or deleted directory; nothing for other entries.
pub(super) fn children(
    reader: &dyn ObjectReader,
    links: [Option<TreeId>; 2],
    entry: &DiffEntry,
) -> Result<Vec<DiffEntry>> {
    let (inode, links, is_old) = match (&entry.kind, &entry.old, &entry.new) {
        (DiffKind::Added, _, Some(inode)) => (inode, links[1], false),
        (DiffKind::Deleted, Some(inode), _) => (inode, links[0], true),
        _ => return Ok(Vec::new()),
    };
    let Node::Directory { tree } = inode.node else {
        return Ok(Vec::new());
    };
    reader
        .directory(tree)?
        .into_iter()
        .map(|(name, child)| {
            one_sided(reader, join_path(&entry.path, &name), links, &child, is_old)
        })
        .collect()
}

fn one_sided(
    reader: &dyn ObjectReader,
    path: Vec<u8>,
    links: Option<TreeId>,
    entry: &TreeEntry,
    is_old: bool,
) -> Result<DiffEntry> {
    let inode = Some(resolve_entry(reader, links, entry)?);
    let link = link_of(entry);
    let mut result = DiffEntry {
        path,
        kind: DiffKind::Added,
        changes: MetadataChanges::default(),
        old: None,
        new: None,
        old_link: None,
        new_link: None,
    };
    if is_old {
        result.kind = DiffKind::Deleted;
        result.old = inode;
        result.old_link = link;
    } else {
        result.new = inode;
        result.new_link = link;
    }
    Ok(result)
}

fn link_of(entry: &TreeEntry) -> Option<LinkId> {
    match entry {
        TreeEntry::Link(id) => Some(*id),
        TreeEntry::Inline(_) => None,
    }
}

/// Which attributes of two inodes differ.
pub(super) fn metadata_changes(old: &Inode, new: &Inode) -> MetadataChanges {
    let holes = |inode: &Inode| match &inode.node {
        Node::Regular { holes, .. } => Some(holes.clone()),
        _ => None,
    };
    MetadataChanges {
        mode: old.attributes.mode != new.attributes.mode,
        owner: (old.attributes.uid, old.attributes.gid) != (new.attributes.uid, new.attributes.gid),
        mtime: old.attributes.mtime != new.attributes.mtime,
        xattrs: old.attributes.xattrs != new.attributes.xattrs,
        links: false,
        holes: matches!((holes(old), holes(new)), (Some(old), Some(new)) if old != new),
    }
}

fn is_same_content(old: &Node, new: &Node) -> bool {
    match (old, new) {
        (Node::Regular { blob: old, .. }, Node::Regular { blob: new, .. }) => old == new,
        (Node::Directory { .. }, Node::Directory { .. }) => true,
        _ => old == new,
    }
}

fn directory_of(entry: Option<&TreeEntry>) -> Option<TreeId> {
    match entry {
        Some(TreeEntry::Inline(Inode {
            node: Node::Directory { tree },
            ..
        })) => Some(*tree),
        _ => None,
    }
}

struct TreeDiff<'a> {
    reader: &'a dyn ObjectReader,
    options: &'a DiffOptions,
    links: [Option<TreeId>; 2],
    /// Changed files with several names, with the number of names not met yet.
    changed_links: BTreeMap<LinkId, u32>,
    /// Paths of names of changed files that were met.
    seen: BTreeSet<Vec<u8>>,
    entries: Vec<DiffEntry>,
}

impl TreeDiff<'_> {
    fn is_wanted(&self, path: &[u8]) -> bool {
        self.options.paths.is_empty()
            || self
                .options
                .paths
                .iter()
                .any(|filter| is_at_or_below(path, filter))
    }

    /// Whether a wanted path may be at `path` or below it.
    fn may_hold_wanted(&self, path: &[u8]) -> bool {
        self.is_wanted(path)
            || self
                .options
                .paths
                .iter()
                .any(|filter| is_at_or_below(filter, path))
    }

    /// Compares what stands at `path`, and below it.
    fn entry(
        &mut self,
        path: Vec<u8>,
        old: Option<&TreeEntry>,
        new: Option<&TreeEntry>,
    ) -> Result<()> {
        if !self.may_hold_wanted(&path) {
            return Ok(());
        }
        if let Some(TreeEntry::Link(id)) = new
            && let Some(remaining) = self.changed_links.get_mut(id)
            && self.seen.insert(path.clone())
        {
            *remaining = remaining.saturating_sub(1);
        }
        let is_wanted = self.is_wanted(&path);
        let trees = (directory_of(old), directory_of(new));
        if is_wanted {
            self.report(&path, old, new)?;
            match trees {
                (Some(_), Some(_)) | (None, None) => {}
                // A new or deleted directory stands for all that is below it.
                _ if old.is_none() || new.is_none() => return Ok(()),
                _ => {}
            }
        }
        match trees {
            (Some(old), Some(new)) if old == new => Ok(()),
            (None, None) => Ok(()),
            (old, new) => self.directories(&path, old, new),
        }
    }

    fn report(
        &mut self,
        path: &[u8],
        old: Option<&TreeEntry>,
        new: Option<&TreeEntry>,
    ) -> Result<()> {
        let (old_entry, new_entry) = match (old, new) {
            (Some(old), Some(new)) => (old, new),
            (Some(old), None) => {
                let entry = one_sided(self.reader, path.to_vec(), self.links[0], old, true)?;
                self.entries.push(entry);
                return Ok(());
            }
            (None, Some(new)) => {
                let entry = one_sided(self.reader, path.to_vec(), self.links[1], new, false)?;
                self.entries.push(entry);
                return Ok(());
            }
            (None, None) => return Ok(()),
        };
        let old = resolve_entry(self.reader, self.links[0], old_entry)?;
        let new = resolve_entry(self.reader, self.links[1], new_entry)?;
        let mut changes = metadata_changes(&old, &new);
        changes.links = link_of(old_entry) != link_of(new_entry);
        let kind = if old.node.file_type_bits() != new.node.file_type_bits() {
            DiffKind::TypeChanged
        } else if !is_same_content(&old.node, &new.node) {
            DiffKind::Modified
        } else if changes.any() {
            let only_time = MetadataChanges {
                mtime: true,
                ..MetadataChanges::default()
            };
            if changes == only_time && !self.options.times {
                return Ok(());
            }
            DiffKind::Metadata
        } else {
            return Ok(());
        };
        self.entries.push(DiffEntry {
            path: path.to_vec(),
            kind,
            changes,
            old: Some(old),
            new: Some(new),
            old_link: link_of(old_entry),
            new_link: link_of(new_entry),
        });
        Ok(())
    }

    fn directories(&mut self, path: &[u8], old: Option<TreeId>, new: Option<TreeId>) -> Result<()> {
        let mut old = Cursor::new(self.reader, old);
        let mut new = Cursor::new(self.reader, new);
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(Item::Node(left, left_last)), Some(Item::Node(right, right_last))) => {
                    if left == right {
                        old.skip();
                        new.skip();
                        continue;
                    }
                    match left_last.cmp(right_last) {
                        std::cmp::Ordering::Less => new.expand()?,
                        std::cmp::Ordering::Greater => old.expand()?,
                        std::cmp::Ordering::Equal => {
                            old.expand()?;
                            new.expand()?;
                        }
                    }
                }
                (Some(Item::Node(..)), _) => old.expand()?,
                (_, Some(Item::Node(..))) => new.expand()?,
                (Some(Item::Entry(left)), Some(Item::Entry(right))) => match left.cmp(right) {
                    std::cmp::Ordering::Less => self.one(path, old.take(), None)?,
                    std::cmp::Ordering::Greater => self.one(path, None, new.take())?,
                    std::cmp::Ordering::Equal => self.one(path, old.take(), new.take())?,
                },
                (Some(Item::Entry(..)), None) => self.one(path, old.take(), None)?,
                (None, Some(Item::Entry(..))) => self.one(path, None, new.take())?,
            }
        }
    }

    fn one(
        &mut self,
        parent: &[u8],
        old: Option<(Name, TreeEntry)>,
        new: Option<(Name, TreeEntry)>,
    ) -> Result<()> {
        let Some((name, _)) = old.as_ref().or(new.as_ref()) else {
            return Ok(());
        };
        let path = join_path(parent, name);
        let old = old.map(|(_, entry)| entry);
        let new = new.map(|(_, entry)| entry);
        // Equal inline entries need no look at what is below; links are compared by their inode.
        if old == new && matches!(old, Some(TreeEntry::Inline(_))) {
            return Ok(());
        }
        self.entry(path, old.as_ref(), new.as_ref())
    }

    /// Changed files show at each of their names, also in directories that didn't change. Stops
    /// when all names were met.
    fn find_names_of_changed_links(&mut self, tree: TreeId) -> Result<()> {
        let mut remaining: u64 = self.changed_links.values().map(|n| u64::from(*n)).sum();
        let mut pending = vec![(Vec::new(), tree)];
        while let Some((directory, tree)) = pending.pop() {
            for (name, entry) in self.reader.directory(tree)? {
                if remaining == 0 {
                    return Ok(());
                }
                let path = join_path(&directory, &name);
                if !self.may_hold_wanted(&path) {
                    continue;
                }
                if let Some(tree) = directory_of(Some(&entry)) {
                    pending.push((path, tree));
                } else if let TreeEntry::Link(id) = entry
                    && self.changed_links.contains_key(&id)
                    && self.seen.insert(path.clone())
                {
                    remaining -= 1;
                    // Names in directories that changed were met before, except below new ones,
                    // which are listed as a whole.
                    if self.is_wanted(&path) && !self.is_below_added(&path) {
                        self.report(&path, Some(&entry), Some(&entry))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_below_added(&self, path: &[u8]) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.kind == DiffKind::Added && is_at_or_below(path, &entry.path))
    }
}

/// What stands next in a directory: a node not looked into yet, with its last name, or an entry.
enum Item<'a> {
    Node(TreeId, &'a [u8]),
    Entry(&'a [u8]),
}

enum Pending {
    Node(TreeId, Name),
    Entry(Name, TreeEntry),
}

/// Walks a directory in order, looking into a node only when asked to.
struct Cursor<'a> {
    reader: &'a dyn ObjectReader,
    /// The next item is the last.
    stack: Vec<Pending>,
}

impl<'a> Cursor<'a> {
    fn new(reader: &'a dyn ObjectReader, tree: Option<TreeId>) -> Self {
        // The top node's last name is not known before it is read. Greater than every name, it
        // is looked into first, or together with the other side's.
        let top: Name = vec![0xff; 256].into();
        Self {
            reader,
            stack: tree
                .map(|tree| Pending::Node(tree, top))
                .into_iter()
                .collect(),
        }
    }

    fn peek(&self) -> Option<Item<'_>> {
        self.stack.last().map(|pending| match pending {
            Pending::Node(id, last_name) => Item::Node(*id, last_name),
            Pending::Entry(name, _) => Item::Entry(name),
        })
    }

    fn skip(&mut self) {
        self.stack.pop();
    }

    fn take(&mut self) -> Option<(Name, TreeEntry)> {
        match self.stack.pop() {
            Some(Pending::Entry(name, entry)) => Some((name, entry)),
            _ => None,
        }
    }

    fn expand(&mut self) -> Result<()> {
        if let Some(Pending::Node(id, _)) = self.stack.pop() {
            match self.reader.tree_node(id)? {
                TreeNode::Leaf(entries) => self.stack.extend(
                    entries
                        .into_iter()
                        .rev()
                        .map(|(name, entry)| Pending::Entry(name, entry)),
                ),
                TreeNode::Inner(children) => self.stack.extend(
                    children
                        .into_iter()
                        .rev()
                        .map(|child| Pending::Node(child.node, child.last_name)),
                ),
            }
        }
        Ok(())
    }
}
