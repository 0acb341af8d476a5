//! Which paths differ between two trees.
//!
//! Cost O(changed): directories and nodes that both trees have are skipped unread. A file with
//! several names that changed shows at each of its names. Where those are is remembered whenever
//! one comes into being; if a remembered place is no longer right and names are missing, the tree
//! is searched. A directory whose modification time alone differs is not reported: that only says
//! that its entries changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::commits::{ChangeKind, PathChange};
use crate::db::history;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::object::codec::link_of_key;
use crate::object::{Attributes, Inode, LinkId, LinkedInode, Node, Root, TreeEntry};
use crate::store::Inner;
use crate::trees::{self, Entry};

/// What differs between two trees.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Paths in ascending order.
    pub(crate) paths: Vec<PathChange>,
    /// Which file with several names is, or was, at a path that was found by that file.
    pub(crate) links: BTreeMap<Box<[u8]>, LinkId>,
    /// Names of files with several names that were met on the way, in the newer tree.
    pub(crate) link_names: Vec<(u64, Box<[u8]>)>,
}

impl Inner {
    /// What differs between two stored trees.
    pub(crate) fn changes_between(&self, old: &Root, new: &Root) -> Result<Changes> {
        let mut walk = Walk {
            store: self,
            old,
            new,
            found: BTreeMap::new(),
            links: BTreeMap::new(),
            link_names: Vec::new(),
        };
        if differ_visibly(&old.attributes, &new.attributes, true) {
            walk.found.insert(Vec::new(), ChangeKind::Metadata);
        }
        let mut waiting = vec![(Vec::new(), Some(old.tree), Some(new.tree))];
        while let Some((path, old, new)) = waiting.pop() {
            walk.directory(&path, old, new, &mut waiting)?;
        }
        walk.links()?;
        Ok(Changes {
            paths: walk
                .found
                .into_iter()
                .map(|(path, kind)| PathChange {
                    path: path.into(),
                    kind,
                })
                .collect(),
            links: walk.links,
            link_names: walk.link_names,
        })
    }
}

type Waiting = Vec<(Vec<u8>, Option<TreeId>, Option<TreeId>)>;

struct Walk<'a> {
    store: &'a Inner,
    old: &'a Root,
    new: &'a Root,
    found: BTreeMap<Vec<u8>, ChangeKind>,
    links: BTreeMap<Box<[u8]>, LinkId>,
    link_names: Vec<(u64, Box<[u8]>)>,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        path: &[u8],
        old: Option<TreeId>,
        new: Option<TreeId>,
        waiting: &mut Waiting,
    ) -> Result<()> {
        for (old, new) in trees::differences::<Entry<TreeEntry>>(self.store, old, new)? {
            let Some((name, _)) = new.as_ref().or(old.as_ref()) else {
                continue;
            };
            let path = join(path, name);
            if let Some((_, TreeEntry::Link(id))) = &new {
                self.link_names.push((id.0, path.clone().into()));
            }
            if let Some((_, TreeEntry::Link(id))) = new.as_ref().or(old.as_ref()) {
                self.links.insert(path.clone().into(), *id);
            }
            let old = self.resolve(self.old, old.map(|(_, entry)| entry))?;
            let new = self.resolve(self.new, new.map(|(_, entry)| entry))?;
            let old_tree = directory_of(old.as_ref());
            let new_tree = directory_of(new.as_ref());
            if let Some(kind) = kind_of_change(old.as_ref(), new.as_ref()) {
                self.found.insert(path.clone(), kind);
            }
            if old_tree != new_tree {
                waiting.push((path, old_tree, new_tree));
            }
        }
        Ok(())
    }

    fn resolve(&self, root: &Root, entry: Option<TreeEntry>) -> Result<Option<Inode>> {
        match entry {
            None => Ok(None),
            Some(TreeEntry::Inline(inode)) => Ok(Some(inode)),
            Some(TreeEntry::Link(id)) => {
                let linked = match root.links {
                    None => None,
                    Some(links) => trees::lookup_link(self.store, links, id)?,
                };
                linked.map(|linked| Some(linked.inode)).ok_or_else(|| {
                    StoreError::new(
                        ErrorKind::Corrupt,
                        format!("the link {:016x} is missing from its link table", id.0),
                    )
                })
            }
        }
    }

    /// Files with several names that changed while their directories didn't.
    fn links(&mut self) -> Result<()> {
        let differences =
            trees::differences::<Entry<LinkedInode>>(self.store, self.old.links, self.new.links)?;
        let mut wanted: BTreeMap<LinkId, (ChangeKind, u32)> = BTreeMap::new();
        for difference in differences {
            // One that came or went shows by its names.
            let (Some((key, old)), Some((_, new))) = difference else {
                continue;
            };
            if let Some(id) = link_of_key(&key)
                && let Some(kind) = kind_of_change(Some(&old.inode), Some(&new.inode))
            {
                wanted.insert(id, (kind, new.link_count));
            }
        }
        let mut unfound = BTreeMap::new();
        for (id, (kind, link_count)) in wanted {
            let names = self.remembered_names(id)?;
            let is_complete = names.len() as u64 >= u64::from(link_count);
            for name in names {
                self.links.insert(name.clone().into(), id);
                self.found.entry(name).or_insert(kind);
            }
            if !is_complete {
                unfound.insert(id, kind);
            }
        }
        if !unfound.is_empty() {
            self.search(&unfound)?;
        }
        Ok(())
    }

    /// Remembered names that still stand for this file in the newer tree.
    fn remembered_names(&self, id: LinkId) -> Result<BTreeSet<Vec<u8>>> {
        let mut names = BTreeSet::new();
        let remembered = self
            .store
            .database
            .read(|connection| history::link_names(connection, id.0))?;
        let met = self
            .link_names
            .iter()
            .filter(|(link, _)| *link == id.0)
            .map(|(_, path)| path);
        for path in remembered.iter().chain(met) {
            if self.store.entry_at(self.new.tree, path)? == Some(TreeEntry::Link(id)) {
                names.insert(path.to_vec());
            }
        }
        Ok(names)
    }

    fn search(&mut self, wanted: &BTreeMap<LinkId, ChangeKind>) -> Result<()> {
        let mut waiting = vec![(Vec::new(), self.new.tree)];
        while let Some((path, tree)) = waiting.pop() {
            for (name, entry) in trees::all::<Entry<TreeEntry>>(self.store, tree)? {
                match entry {
                    TreeEntry::Inline(Inode {
                        node: Node::Directory { tree },
                        ..
                    }) => {
                        waiting.push((join(&path, &name), tree));
                    }
                    TreeEntry::Inline(_) => {}
                    TreeEntry::Link(id) => {
                        if let Some(kind) = wanted.get(&id) {
                            let path = join(&path, &name);
                            self.link_names.push((id.0, path.clone().into()));
                            self.links.insert(path.clone().into(), id);
                            self.found.entry(path).or_insert(*kind);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// The entry at a path below a directory.
    pub(crate) fn entry_at(&self, tree: TreeId, path: &[u8]) -> Result<Option<TreeEntry>> {
        let mut tree = tree;
        let mut components = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = components.next() {
            let entry = trees::lookup_entry(self, tree, name)?;
            if components.peek().is_none() {
                return Ok(entry);
            }
            match entry {
                Some(TreeEntry::Inline(Inode {
                    node: Node::Directory { tree: below },
                    ..
                })) => {
                    tree = below;
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

fn directory_of(inode: Option<&Inode>) -> Option<TreeId> {
    match inode {
        Some(Inode {
            node: Node::Directory { tree },
            ..
        }) => Some(*tree),
        _ => None,
    }
}

fn differ_visibly(old: &Attributes, new: &Attributes, is_directory: bool) -> bool {
    (old.mode, old.uid, old.gid, &old.xattrs) != (new.mode, new.uid, new.gid, &new.xattrs)
        || (!is_directory && old.mtime != new.mtime)
}

fn kind_of_change(old: Option<&Inode>, new: Option<&Inode>) -> Option<ChangeKind> {
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => return Some(ChangeKind::Added),
        (Some(_), None) => return Some(ChangeKind::Deleted),
        (Some(old), Some(new)) => (old, new),
    };
    if old.node.file_type_bits() != new.node.file_type_bits() {
        return Some(ChangeKind::TypeChanged);
    }
    let is_directory = matches!(old.node, Node::Directory { .. });
    if !is_directory && old.node != new.node {
        return Some(ChangeKind::Modified);
    }
    differ_visibly(&old.attributes, &new.attributes, is_directory).then_some(ChangeKind::Metadata)
}
