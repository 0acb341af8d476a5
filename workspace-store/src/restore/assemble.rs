//! Turns a plan (what shall stand at which path) into an edit, and keeps the link table right.
//!
//! First all names that go away and come are counted by file, then files from the other tree
//! get their identity in the result, then the nested edit is built.

use std::collections::BTreeMap;

use crate::edit::{DirectoryEdit, EntryEdit, InodeEdit, LinkEdit, NodeEdit, SnapshotEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::import::assembly::link_id_of_path;
use crate::object::{Attributes, Inode, LinkId, LinkedInode, Name, Node, Root, TreeEntry};
use crate::path::{display_path, join_path};
use crate::reader::ObjectReader;

/// What shall stand at a path.
#[derive(Debug, Clone, Default)]
pub(super) enum Action {
    /// What is there, a directory, with the changes below it.
    #[default]
    Keep,
    /// Nothing.
    Remove,
    /// This entry of the other tree, with all that is below it.
    Take(TreeEntry),
    /// A directory with these attributes: the one that is there, or an empty one.
    Directory(Attributes),
}

/// A path of a plan and those below it.
#[derive(Debug, Clone, Default)]
pub(super) struct PlanNode {
    action: Action,
    children: BTreeMap<Name, PlanNode>,
}

impl PlanNode {
    pub fn insert(&mut self, names: &[Name], action: Action) {
        let mut node = self;
        for name in names {
            node = node.children.entry(name.clone()).or_default();
        }
        node.action = action;
    }
}

/// Names of a file in one tree that the plan touches, and the first path.
type Touched = BTreeMap<LinkId, (u32, Vec<u8>)>;

/// What a file from the other tree becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mapped {
    Link(LinkId),
    Inline(Inode),
}

pub(super) struct Assemble<'a> {
    reader: &'a dyn ObjectReader,
    current: &'a Root,
    from: &'a Root,
    /// Files of the two trees with the same identity are versions of one file.
    is_one_history: bool,
    removed: Touched,
    added: Touched,
    mapped: BTreeMap<LinkId, Mapped>,
    links: BTreeMap<LinkId, Option<LinkEdit>>,
}

pub(super) fn directory_of(entry: Option<&TreeEntry>) -> Option<(TreeId, &Attributes)> {
    match entry {
        Some(TreeEntry::Inline(Inode {
            attributes,
            node: Node::Directory { tree },
        })) => Some((*tree, attributes)),
        _ => None,
    }
}

fn stored(inode: Inode) -> InodeEdit {
    InodeEdit {
        attributes: inode.attributes,
        node: NodeEdit::Stored(inode.node),
    }
}

impl<'a> Assemble<'a> {
    pub fn new(reader: &'a dyn ObjectReader, current: &'a Root, from: &'a Root) -> Self {
        Self {
            reader,
            current,
            from,
            is_one_history: true,
            removed: Touched::new(),
            added: Touched::new(),
            mapped: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }

    /// The other tree's files are none of this tree's, whatever their identities.
    pub fn with_foreign_files(mut self) -> Self {
        self.is_one_history = false;
        self
    }

    pub fn run(mut self, plan: &PlanNode) -> Result<SnapshotEdit> {
        self.count(plan, Some(self.current.tree), b"")?;
        self.map_links()?;
        let root = self.directory(plan, Some(self.current.tree))?;
        Ok(SnapshotEdit {
            root_attributes: None,
            root,
            links: self.links,
        })
    }

    fn lookup(&self, tree: Option<TreeId>, name: &[u8]) -> Result<Option<TreeEntry>> {
        tree.map_or(Ok(None), |tree| self.reader.lookup(tree, name))
    }

    fn count(&mut self, plan: &PlanNode, tree: Option<TreeId>, path: &[u8]) -> Result<()> {
        for (name, child) in &plan.children {
            let path = join_path(path, name);
            let now = self.lookup(tree, name)?;
            let directory = directory_of(now.as_ref()).map(|(tree, _)| tree);
            match &child.action {
                Action::Keep => self.count(child, directory, &path)?,
                Action::Remove => self.count_names(now.as_ref(), &path, true)?,
                Action::Take(entry) => {
                    self.count_names(now.as_ref(), &path, true)?;
                    self.count_names(Some(entry), &path, false)?;
                }
                Action::Directory(_) => {
                    if directory.is_none() {
                        self.count_names(now.as_ref(), &path, true)?;
                    }
                    self.count(child, directory, &path)?;
                }
            }
        }
        Ok(())
    }

    fn count_names(
        &mut self,
        entry: Option<&TreeEntry>,
        path: &[u8],
        is_removed: bool,
    ) -> Result<()> {
        let (links, touched) = if is_removed {
            (self.current.links, &mut self.removed)
        } else {
            (self.from.links, &mut self.added)
        };
        // Without a link table no name can refer to it.
        if links.is_none() {
            return Ok(());
        }
        let mut pending: Vec<(Vec<u8>, TreeEntry)> = entry
            .map(|entry| (path.to_vec(), entry.clone()))
            .into_iter()
            .collect();
        while let Some((path, entry)) = pending.pop() {
            if let TreeEntry::Link(id) = entry {
                let (count, first) = touched.entry(id).or_insert_with(|| (0, path.clone()));
                *count += 1;
                if path < *first {
                    *first = path;
                }
            } else if let Some((tree, _)) = directory_of(Some(&entry)) {
                for (name, entry) in self.reader.directory(tree)? {
                    pending.push((join_path(&path, &name), entry));
                }
            }
        }
        Ok(())
    }

    fn linked(&self, root: &Root, id: LinkId) -> Result<Option<LinkedInode>> {
        root.links
            .map_or(Ok(None), |links| self.reader.link(links, id))
    }

    fn map_links(&mut self) -> Result<()> {
        // Names that come, by identity in the result, with the inode they stand for.
        let mut coming: BTreeMap<LinkId, (u32, Inode)> = BTreeMap::new();
        for (id, (count, first)) in self.added.clone() {
            let linked = self.linked(self.from, id)?.ok_or_else(|| {
                StoreError::new(
                    ErrorKind::Corrupt,
                    format!("link {:016x} is not in the snapshot's link table", id.0),
                )
                .with_hint("run 'kura fsck'")
            })?;
            let mapped = if self.is_free(id, &linked.inode)? {
                Mapped::Link(id)
            } else if count == 1 {
                Mapped::Inline(linked.inode.clone())
            } else {
                let mut other = link_id_of_path(&first);
                while self.added.contains_key(&other)
                    || coming.contains_key(&other)
                    || self.linked(self.current, other)?.is_some()
                {
                    other = LinkId((other.0 + 1) & (u64::MAX >> 1));
                }
                Mapped::Link(other)
            };
            if let Mapped::Link(id) = mapped {
                coming.insert(id, (count, linked.inode));
            }
            self.mapped.insert(id, mapped);
        }
        for (id, (removed_count, _)) in &self.removed {
            if let Some(linked) = self.linked(self.current, *id)? {
                let (added_count, inode) = coming
                    .remove(id)
                    .unwrap_or_else(|| (0, linked.inode.clone()));
                let link_count = linked.link_count.saturating_sub(*removed_count) + added_count;
                let edit = (link_count > 0).then(|| LinkEdit {
                    link_count,
                    inode: stored(inode.clone()),
                });
                if link_count != linked.link_count || inode != linked.inode {
                    self.links.insert(*id, edit);
                }
            }
        }
        for (id, (added_count, inode)) in coming {
            let others = self
                .linked(self.current, id)?
                .map_or(0, |linked| linked.link_count);
            let edit = LinkEdit {
                link_count: others + added_count,
                inode: stored(inode),
            };
            self.links.insert(id, Some(edit));
        }
        Ok(())
    }

    /// Whether a file can keep its identity: no other name refers to it, or to the same inode.
    fn is_free(&self, id: LinkId, inode: &Inode) -> Result<bool> {
        let Some(linked) = self.linked(self.current, id)? else {
            return Ok(true);
        };
        let removed = self.removed.get(&id).map_or(0, |(count, _)| *count);
        Ok(linked.link_count <= removed || (self.is_one_history && linked.inode == *inode))
    }

    fn directory(&self, plan: &PlanNode, tree: Option<TreeId>) -> Result<DirectoryEdit> {
        let mut edit = DirectoryEdit {
            base: tree,
            ..DirectoryEdit::default()
        };
        for (name, child) in &plan.children {
            let now = self.lookup(tree, name)?;
            let directory = directory_of(now.as_ref());
            let change = match &child.action {
                Action::Remove => EntryEdit::Remove,
                Action::Take(entry) => self.take(entry)?,
                Action::Keep => {
                    let (tree, attributes) = directory.ok_or_else(|| {
                        StoreError::new(
                            ErrorKind::Internal,
                            format!("'{}' of a plan is not a directory", display_path(name)),
                        )
                    })?;
                    EntryEdit::Put(InodeEdit {
                        attributes: attributes.clone(),
                        node: NodeEdit::Directory(self.directory(child, Some(tree))?),
                    })
                }
                Action::Directory(attributes) => EntryEdit::Put(InodeEdit {
                    attributes: attributes.clone(),
                    node: NodeEdit::Directory(
                        self.directory(child, directory.map(|(tree, _)| tree))?,
                    ),
                }),
            };
            edit.entries.insert(name.clone(), change);
        }
        Ok(edit)
    }

    fn take(&self, entry: &TreeEntry) -> Result<EntryEdit> {
        Ok(match entry {
            TreeEntry::Inline(inode) => {
                let mut edit = stored(inode.clone());
                if let Node::Directory { tree } = inode.node
                    && self.is_remapped()
                    && let Some(directory) = self.remap(tree)?
                {
                    edit.node = NodeEdit::Directory(directory);
                }
                EntryEdit::Put(edit)
            }
            TreeEntry::Link(id) => match self.mapped.get(id) {
                Some(Mapped::Inline(inode)) => EntryEdit::Put(stored(inode.clone())),
                Some(Mapped::Link(id)) => EntryEdit::Link(*id),
                None => EntryEdit::Link(*id),
            },
        })
    }

    fn is_remapped(&self) -> bool {
        self.mapped
            .iter()
            .any(|(id, mapped)| *mapped != Mapped::Link(*id))
    }

    /// The changes of a taken directory in which files get another identity; `None` for none.
    fn remap(&self, tree: TreeId) -> Result<Option<DirectoryEdit>> {
        let mut edit = DirectoryEdit {
            base: Some(tree),
            ..DirectoryEdit::default()
        };
        for (name, entry) in self.reader.directory(tree)? {
            match &entry {
                TreeEntry::Link(id) if self.mapped.get(id) != Some(&Mapped::Link(*id)) => {
                    edit.entries.insert(name, self.take(&entry)?);
                }
                TreeEntry::Inline(Inode {
                    attributes,
                    node: Node::Directory { tree },
                }) => {
                    if let Some(directory) = self.remap(*tree)? {
                        let inode = InodeEdit {
                            attributes: attributes.clone(),
                            node: NodeEdit::Directory(directory),
                        };
                        edit.entries.insert(name, EntryEdit::Put(inode));
                    }
                }
                _ => {}
            }
        }
        Ok((!edit.entries.is_empty()).then_some(edit))
    }
}
