//! Turns what becomes of each path into an edit, and keeps the link table right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::inode::{MergedInode, MergedNode};
use crate::edit::{DirectoryEdit, EntryEdit, InodeEdit, LinkEdit, NodeEdit, SnapshotEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::import::assembly::link_id_of_path;
use crate::lookup::lookup_path;
use crate::object::{Attributes, Inode, LinkId, Name, Node, Root, TreeEntry};
use crate::path::{display_path, split_path};
use crate::reader::ObjectReader;

/// Set in identities of files that come from elsewhere; above all inode numbers.
const FOREIGN_LINK: u64 = 1 << 62;

/// The file that a name belongs to, if that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Link {
    /// One of `ours`.
    Ours(LinkId),
    /// One that only `theirs` has.
    Theirs(LinkId),
}

/// What becomes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing is there, and nothing below it.
    Remove,
    /// A directory with these attributes: that of `ours`, or a new one.
    Directory(Attributes),
    /// A file.
    File {
        inode: MergedInode,
        link: Option<Link>,
    },
}

/// Builds the edit over `ours`; `links` are files with several names that changed.
pub(super) fn assemble(
    reader: &dyn ObjectReader,
    ours: &Root,
    theirs: &Root,
    outcomes: BTreeMap<Vec<u8>, Outcome>,
    links: BTreeMap<LinkId, MergedInode>,
) -> Result<SnapshotEdit> {
    let mut assembly = Assembly {
        reader,
        ours,
        theirs,
        links,
        edits: BTreeMap::new(),
        next_key: 0,
    };
    let entries = assembly.resolve_links(outcomes)?;
    let mut root_attributes = None;
    let mut plan = Plan::default();
    for (path, entry) in entries {
        if path.is_empty() {
            if let Entry::Directory(attributes) = entry {
                root_attributes = Some(attributes);
            }
            continue;
        }
        plan.insert(&split_path(&path)?, entry);
    }
    let root = assembly.directory(plan, Some(ours.tree))?;
    Ok(SnapshotEdit {
        root_attributes,
        root,
        links: assembly.edits,
    })
}

/// What stands at a path in the end.
#[derive(Debug)]
enum Entry {
    Remove,
    Directory(Attributes),
    Inline(MergedInode),
    Link(LinkId),
}

#[derive(Debug, Default)]
struct Plan {
    entry: Option<Entry>,
    children: BTreeMap<Name, Plan>,
}

impl Plan {
    fn insert(&mut self, names: &[Name], entry: Entry) {
        let mut plan = self;
        for name in names {
            plan = plan.children.entry(name.clone()).or_default();
        }
        plan.entry = Some(entry);
    }
}

struct Assembly<'a> {
    reader: &'a dyn ObjectReader,
    ours: &'a Root,
    theirs: &'a Root,
    links: BTreeMap<LinkId, MergedInode>,
    edits: BTreeMap<LinkId, Option<LinkEdit>>,
    next_key: u64,
}

impl Assembly<'_> {
    fn link_of_ours(&self, path: &[u8]) -> Result<Option<LinkId>> {
        if self.ours.links.is_none() {
            return Ok(None);
        }
        Ok(
            match lookup_path(self.reader, self.ours, &split_path(path)?)? {
                Some(TreeEntry::Link(id)) => Some(id),
                _ => None,
            },
        )
    }

    fn linked(&self, root: &Root, id: LinkId) -> Result<Option<(u32, Inode)>> {
        Ok(match root.links {
            Some(links) => self
                .reader
                .link(links, id)?
                .map(|linked| (linked.link_count, linked.inode)),
            None => None,
        })
    }

    /// Decides which names belong to one file, and counts them.
    fn resolve_links(
        &mut self,
        outcomes: BTreeMap<Vec<u8>, Outcome>,
    ) -> Result<BTreeMap<Vec<u8>, Entry>> {
        let mut entries = BTreeMap::new();
        let mut groups: BTreeMap<Link, Vec<(Vec<u8>, MergedInode)>> = BTreeMap::new();
        // Names that each file of ours loses (negative) or gets.
        let mut counts: BTreeMap<LinkId, i64> = BTreeMap::new();
        for (path, outcome) in outcomes {
            if let Some(id) = self.link_of_ours(&path)? {
                *counts.entry(id).or_default() -= 1;
            }
            let entry = match outcome {
                Outcome::Remove => Entry::Remove,
                Outcome::Directory(attributes) => Entry::Directory(attributes),
                Outcome::File { inode, link: None } => Entry::Inline(inode),
                Outcome::File {
                    inode,
                    link: Some(link),
                } => {
                    groups.entry(link).or_default().push((path, inode));
                    continue;
                }
            };
            entries.insert(path, entry);
        }
        let mut taken = BTreeSet::new();
        for (link, names) in groups {
            self.group(link, names, &mut counts, &mut taken, &mut entries)?;
        }
        for (id, change) in counts {
            self.count(id, change)?;
        }
        for (id, inode) in std::mem::take(&mut self.links) {
            // All its names stay.
            if !self.edits.contains_key(&id)
                && let Some((link_count, _)) = self.linked(self.ours, id)?
            {
                let inode = self.inode(inode);
                self.edits.insert(id, Some(LinkEdit { link_count, inode }));
            }
        }
        Ok(entries)
    }

    /// Names that belong to one file. If one of them was merged to something else, that is the
    /// file's content; if several were merged to different things, they part.
    fn group(
        &mut self,
        link: Link,
        names: Vec<(Vec<u8>, MergedInode)>,
        counts: &mut BTreeMap<LinkId, i64>,
        taken: &mut BTreeSet<LinkId>,
        entries: &mut BTreeMap<Vec<u8>, Entry>,
    ) -> Result<()> {
        let known = match link {
            Link::Ours(id) => self.linked(self.ours, id)?,
            Link::Theirs(id) => self.linked(self.theirs, id)?,
        };
        let stored = known.map(|(_, inode)| MergedInode::from(inode));
        let merged = match link {
            Link::Ours(id) => self.links.get(&id).cloned(),
            Link::Theirs(_) => None,
        };
        let mut changed: Vec<MergedInode> = Vec::new();
        for (_, inode) in &names {
            if Some(inode) != stored.as_ref() && !changed.contains(inode) {
                changed.push(inode.clone());
            }
        }
        let inode = match (merged, &changed[..], stored) {
            (Some(merged), _, _) => merged,
            (None, [one], _) => one.clone(),
            (None, _, Some(stored)) => stored,
            (None, _, None) => names[0].1.clone(),
        };
        let id = match link {
            Link::Ours(id) => id,
            Link::Theirs(_) => self.free_link(&names[0].0, taken)?,
        };
        let mut count = 0;
        for (path, own) in names {
            let is_member = own == inode || changed.len() <= 1 || !changed.contains(&own);
            let entry = if is_member {
                count += 1;
                Entry::Link(id)
            } else {
                Entry::Inline(own)
            };
            entries.insert(path, entry);
        }
        match link {
            Link::Ours(id) => {
                *counts.entry(id).or_default() += i64::from(count);
                self.links.insert(id, inode);
            }
            Link::Theirs(_) if count > 0 => {
                let inode = self.inode(inode);
                let edit = LinkEdit {
                    link_count: count,
                    inode,
                };
                self.edits.insert(id, Some(edit));
            }
            Link::Theirs(_) => {}
        }
        Ok(())
    }

    /// An identity for a file that only `theirs` has. Identities are inode numbers of the mount
    /// that made them, and may be used for other inodes in the mounts of `ours`; hashes are not.
    fn free_link(&self, path: &[u8], taken: &mut BTreeSet<LinkId>) -> Result<LinkId> {
        let mut candidate = link_id_of_path(path).0 | FOREIGN_LINK;
        while taken.contains(&LinkId(candidate))
            || self.linked(self.ours, LinkId(candidate))?.is_some()
        {
            candidate = (candidate + 1) & (u64::MAX >> 1) | FOREIGN_LINK;
        }
        taken.insert(LinkId(candidate));
        Ok(LinkId(candidate))
    }

    fn count(&mut self, id: LinkId, change: i64) -> Result<()> {
        let Some((link_count, stored)) = self.linked(self.ours, id)? else {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!("link {:016x} is not in the snapshot's link table", id.0),
            )
            .with_hint("run 'kura fsck'"));
        };
        let merged = self.links.remove(&id);
        let count = u32::try_from(i64::from(link_count) + change).unwrap_or(0);
        let inode = merged.unwrap_or_else(|| stored.clone().into());
        if count == link_count && inode == MergedInode::from(stored) {
            return Ok(());
        }
        let edit = (count > 0).then(|| LinkEdit {
            link_count: count,
            inode: self.inode(inode),
        });
        self.edits.insert(id, edit);
        Ok(())
    }

    fn inode(&mut self, inode: MergedInode) -> InodeEdit {
        InodeEdit {
            attributes: inode.attributes,
            node: match inode.node {
                MergedNode::Stored(node) => NodeEdit::Stored(node),
                MergedNode::Text(text) => {
                    self.next_key += 1;
                    NodeEdit::Content {
                        key: self.next_key,
                        content: Arc::new(text.as_ref().clone()),
                    }
                }
            },
        }
    }

    fn directory(&mut self, plan: Plan, tree: Option<TreeId>) -> Result<DirectoryEdit> {
        let mut edit = DirectoryEdit {
            key: None,
            base: tree,
            entries: BTreeMap::new(),
        };
        for (name, child) in plan.children {
            let now = match tree {
                Some(tree) => self.reader.lookup(tree, &name)?,
                None => None,
            };
            let directory = match &now {
                Some(TreeEntry::Inline(Inode {
                    attributes,
                    node: Node::Directory { tree },
                })) => Some((*tree, attributes.clone())),
                _ => None,
            };
            let place = directory.as_ref().map(|(tree, _)| *tree);
            let change = match child.entry {
                Some(Entry::Remove) => EntryEdit::Remove,
                Some(Entry::Link(id)) => EntryEdit::Link(id),
                Some(Entry::Inline(inode)) => EntryEdit::Put(self.inode(inode)),
                Some(Entry::Directory(attributes)) => EntryEdit::Put(InodeEdit {
                    attributes,
                    node: NodeEdit::Directory(self.directory(
                        Plan {
                            entry: None,
                            children: child.children,
                        },
                        place,
                    )?),
                }),
                None => match directory {
                    Some((_, attributes)) => EntryEdit::Put(InodeEdit {
                        attributes,
                        node: NodeEdit::Directory(self.directory(child, place)?),
                    }),
                    // Below something that both sides took away, or that stays a file.
                    None if child.only_removes() => continue,
                    None => {
                        return Err(StoreError::new(
                            ErrorKind::Internal,
                            format!("'{}' of a merge is not a directory", display_path(&name)),
                        ));
                    }
                },
            };
            edit.entries.insert(name, change);
        }
        Ok(edit)
    }
}

impl Plan {
    fn only_removes(&self) -> bool {
        matches!(self.entry, None | Some(Entry::Remove))
            && self.children.values().all(Plan::only_removes)
    }
}
