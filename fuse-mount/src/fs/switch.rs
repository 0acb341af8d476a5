//! Making the live tree equal to another version (rollback, undo, a change from behind).
//!
//! Only what differs is touched: unchanged files and all directories keep their inodes, so that
//! programs inside them go on; a changed file appears as if another had been renamed over it (new
//! inode number: the kernel owns size and times of those it caches), and whoever has the old one
//! open keeps the old content. The plan is made, stored and then carried out under the state's
//! lock, so nobody sees a mixture.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use workspace_store::TreeId;
use workspace_store::object::{
    Attributes, Inode as StoredInode, LinkId, Name, Node, Root, TreeEntry,
};
use workspace_store::source::InodeRecord;

use super::clock;
use super::content::store_errno;
use super::freeze::{InodeRecords, is_same_stored};
use super::inode::{Inode, Kind, ROOT, linked_number};
use super::request::{Errno, Notification};
use super::state::State;
use crate::journal::record::Record;

/// What a name stands for after the switch.
#[derive(Debug)]
pub(super) struct NameChange {
    pub(super) directory: u64,
    pub(super) name: Name,
    /// The inode it stands for now.
    pub(super) old: Option<u64>,
    pub(super) new: Option<NewName>,
}

#[derive(Debug)]
pub(super) struct NewName {
    pub(super) number: u64,
    pub(super) entry: TreeEntry,
}

/// Everything that a switch does.
#[derive(Debug, Default)]
pub(crate) struct SwitchPlan {
    names: Vec<NameChange>,
    /// While it is made: names of changed files with several names, where nothing else comes.
    link_names: BTreeMap<(u64, Name), NameChange>,
    directories: Vec<(u64, TreeId)>,
    attributes: Vec<(u64, Attributes)>,
    link_counts: Vec<(u64, u32)>,
    new_links: BTreeMap<LinkId, (u64, StoredInode, u32)>,
    pub(crate) inode_records: InodeRecords,
}

impl SwitchPlan {
    /// The names that change.
    pub(super) fn names(&self) -> &[NameChange] {
        &self.names
    }

    /// The directories that stay and get other attributes.
    pub(super) fn attributes(&self) -> &[(u64, Attributes)] {
        &self.attributes
    }

    /// What the kernel must forget when the plan is carried out.
    pub(super) fn notifications(&self) -> Vec<Notification> {
        let names = self.names.iter().map(|change| {
            let (parent, name) = (change.directory, change.name.clone());
            match change.old {
                Some(child) if change.new.is_none() => Notification::Delete {
                    parent,
                    child,
                    name,
                },
                _ => Notification::Entry { parent, name },
            }
        });
        let with_links = self.link_counts.iter().map(|(number, _)| *number);
        let with_attributes = self.attributes.iter().map(|(number, _)| *number);
        let attributes = with_links
            .chain(with_attributes)
            .map(|inode| Notification::Inode {
                inode,
                offset: -1,
                length: 0,
            });
        // The kernel caches listings like content.
        let listings = self
            .directories
            .iter()
            .map(|(number, _)| Notification::Inode {
                inode: *number,
                offset: 0,
                length: 0,
            });
        names.chain(attributes).chain(listings).collect()
    }

    /// A file with several names that the tree doesn't have yet.
    pub(super) fn new_link(&self, link: LinkId) -> Option<&StoredInode> {
        self.new_links.get(&link).map(|(_, stored, _)| stored)
    }
}

impl State {
    /// Plans the switch from the base, with nothing uncommitted, to `target`.
    pub(crate) fn plan_switch(&mut self, target: &Root) -> Result<SwitchPlan, Errno> {
        let mut plan = SwitchPlan::default();
        if target.links != self.base.links {
            self.plan_links(target, &mut plan)?;
        }
        if self.inode(ROOT)?.stored_attributes() != target.attributes {
            plan.attributes.push((ROOT, target.attributes.clone()));
        }
        self.plan_directory(ROOT, target.tree, target, &mut plan)?;
        let link_names = std::mem::take(&mut plan.link_names);
        plan.names.splice(0..0, link_names.into_values());
        let now = clock::now();
        for change in &plan.names {
            let row = change.new.as_ref().map(|new| InodeRecord {
                number: new.number,
                ctime: now,
            });
            plan.inode_records
                .insert((change.directory, change.name.clone()), row);
        }
        for (link, (number, _, _)) in &plan.new_links {
            if linked_number(*link) != *number {
                let row = InodeRecord {
                    number: *number,
                    ctime: now,
                };
                plan.inode_records
                    .insert((0, link.0.to_be_bytes().into()), Some(row));
            }
        }
        Ok(plan)
    }

    /// Files with several names whose content or attributes differ get a new number at each name.
    fn plan_links(&mut self, target: &Root, plan: &mut SwitchPlan) -> Result<(), Errno> {
        let linked: Vec<(u64, LinkId)> = self
            .inodes
            .iter()
            .filter_map(|(number, inode)| Some((*number, inode.link?)))
            .filter(|(number, _)| !self.orphans.contains(number))
            .collect();
        for (number, link) in linked {
            let found = match target.links {
                Some(links) => self
                    .source
                    .link(links, link)
                    .map_err(|error| store_errno(&error))?,
                None => None,
            };
            let Some(found) = found else { continue };
            let inode = self.inode(number)?;
            if is_same(inode, &found.inode) {
                plan.link_counts.push((number, found.link_count));
                continue;
            }
            let places = inode.places.as_slice().to_vec();
            let new_number = self.take_number();
            plan.new_links
                .insert(link, (new_number, found.inode, found.link_count));
            for (directory, position) in places {
                let name = self
                    .names(directory)?
                    .at(position)
                    .map(|found| found.name.clone());
                if let Some(name) = name {
                    let change = NameChange {
                        directory,
                        name: name.clone(),
                        old: Some(number),
                        new: Some(NewName {
                            number: new_number,
                            entry: TreeEntry::Link(link),
                        }),
                    };
                    plan.link_names.insert((directory, name), change);
                }
            }
        }
        Ok(())
    }

    fn plan_directory(
        &mut self,
        number: u64,
        tree: TreeId,
        target: &Root,
        plan: &mut SwitchPlan,
    ) -> Result<(), Errno> {
        let directory = self
            .inode(number)?
            .directory()
            .ok_or(Errno(libc::ENOTDIR))?;
        if directory.base == Some(tree) {
            return Ok(());
        }
        plan.directories.push((number, tree));
        if directory.names.is_none() {
            return Ok(());
        }
        let source = Arc::clone(&self.source);
        let entries = source
            .directory(tree)
            .map_err(|error| store_errno(&error))?;
        let mut gone: BTreeMap<Name, u64> = self
            .names(number)?
            .iter()
            .map(|found| (found.name.clone(), found.number))
            .collect();
        for (name, entry) in entries {
            let old = gone.remove(&name);
            if let Some(old) = old {
                let inode = self.inode(old)?;
                match &entry {
                    TreeEntry::Inline(StoredInode {
                        attributes,
                        node: Node::Directory { tree },
                    }) if inode.is_directory() => {
                        if inode.stored_attributes() != *attributes {
                            plan.attributes.push((old, attributes.clone()));
                        }
                        self.plan_directory(old, *tree, target, plan)?;
                        continue;
                    }
                    TreeEntry::Inline(stored) if inode.link.is_none() && is_same(inode, stored) => {
                        continue;
                    }
                    // Its content was compared with all other links.
                    TreeEntry::Link(link) if inode.link == Some(*link) => continue,
                    _ => {}
                }
            }
            plan.link_names.remove(&(number, name.clone()));
            let new_number = match &entry {
                TreeEntry::Inline(_) => self.take_number(),
                TreeEntry::Link(link) => self.plan_new_link(*link, target, plan)?,
            };
            let new = Some(NewName {
                number: new_number,
                entry,
            });
            plan.names.push(NameChange {
                directory: number,
                name,
                old,
                new,
            });
        }
        for (name, old) in gone {
            plan.link_names.remove(&(number, name.clone()));
            plan.names.push(NameChange {
                directory: number,
                name,
                old: Some(old),
                new: None,
            });
        }
        Ok(())
    }

    /// The number of a file with several names that gets a name here.
    fn plan_new_link(
        &mut self,
        link: LinkId,
        target: &Root,
        plan: &mut SwitchPlan,
    ) -> Result<u64, Errno> {
        if let Some((number, _, _)) = plan.new_links.get(&link) {
            return Ok(*number);
        }
        let current = self
            .link_numbers
            .get(&link)
            .copied()
            .unwrap_or_else(|| linked_number(link));
        let is_live = self
            .inodes
            .get(&current)
            .is_some_and(|inode| inode.link == Some(link) && inode.link_count > 0);
        if is_live {
            return Ok(current);
        }
        let links = target.links.ok_or(Errno(libc::EIO))?;
        let found = self
            .source
            .link(links, link)
            .map_err(|error| store_errno(&error))?
            .ok_or(Errno(libc::EIO))?;
        let number = self.take_number();
        plan.new_links
            .insert(link, (number, found.inode, found.link_count));
        Ok(number)
    }

    /// Carries the plan out.
    pub(crate) fn apply_switch(&mut self, plan: SwitchPlan, target: Root) {
        let now = clock::now();
        let nameless_before = self.orphans.clone();
        self.moves += 1;
        let counted: HashSet<u64> = plan.new_links.values().map(|new| new.0).collect();
        for (link, (number, stored, link_count)) in plan.new_links {
            let mut inode = Inode::from_stored(&stored, Some(now));
            inode.link = Some(link);
            inode.link_count = link_count;
            inode.needs_known_record = false;
            self.inodes.insert(number, inode);
            self.link_numbers.insert(link, number);
        }
        // A file with one name in the link table may get another one and lose that: in between it
        // is not gone.
        let mut taken = Vec::new();
        for change in &plan.names {
            if change.old.is_some()
                && let Ok(old) = self.take_name(change.directory, &change.name)
            {
                taken.push(old);
            }
        }
        for change in plan.names {
            let NameChange {
                directory,
                name,
                new,
                ..
            } = change;
            if let Some(new) = new {
                if let TreeEntry::Inline(stored) = &new.entry {
                    let mut inode = Inode::from_stored(stored, Some(now));
                    inode.needs_known_record = false;
                    self.inodes.insert(new.number, inode);
                }
                if let Err(errno) = self.add_name(directory, &name, new.number) {
                    tracing::error!(?errno, "a name could not be switched");
                }
                if matches!(new.entry, TreeEntry::Link(_))
                    && !counted.contains(&new.number)
                    && let Some(inode) = self.inodes.get_mut(&new.number)
                {
                    inode.link_count += 1;
                }
            }
        }
        for old in taken {
            self.detach(old);
        }
        for (number, count) in plan.link_counts {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.link_count = count;
            }
        }
        for (number, attributes) in plan.attributes {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.mode = attributes.mode;
                inode.uid = attributes.uid;
                inode.gid = attributes.gid;
                inode.mtime = attributes.mtime;
                inode.xattrs = attributes.xattrs;
                inode.ctime = now;
            }
        }
        for (number, tree) in plan.directories {
            if let Some(directory) = self.inodes.get_mut(&number).and_then(Inode::directory_mut) {
                directory.base = Some(tree);
            }
        }
        let nameless: Vec<u64> = self.orphans.difference(&nameless_before).copied().collect();
        if let Err(errno) = self.carry_over_orphans(&nameless) {
            tracing::error!(
                ?errno,
                "open files that lost their names would not outlive a crash"
            );
        }
        // Names were added and taken as changes are, but the store has them.
        self.changes = Default::default();
        self.first_change = None;
        self.base = target;
    }

    /// Notes what the kernel is to be told, before the version is stored: a daemon that takes over
    /// tells it where this one did not come to it.
    ///
    /// # Errors
    /// Of the journal.
    pub(crate) fn note_outdated(&mut self, notifications: &[Notification]) -> Result<(), Errno> {
        for notification in notifications {
            let (number, parent, name) = match notification {
                Notification::Entry { parent, name } => (0, *parent, name.as_ref()),
                Notification::Delete {
                    parent,
                    child,
                    name,
                } => (*child, *parent, name.as_ref()),
                Notification::Inode { inode, .. } => (*inode, 0, &b""[..]),
            };
            self.append_only(&Record::Outdated {
                number,
                parent,
                name,
            })?;
        }
        Ok(())
    }

    /// Takes an inode, and everything loaded below it, out of the tree.
    fn detach(&mut self, number: u64) {
        let mut wanted = vec![number];
        while let Some(number) = wanted.pop() {
            let Some(inode) = self.inodes.get_mut(&number) else {
                continue;
            };
            let mut children = Vec::new();
            if let Some(names) = inode
                .directory_mut()
                .and_then(|directory| directory.names.as_mut())
            {
                children = names
                    .iter()
                    .map(|found| (found.name.clone(), found.number))
                    .collect();
            }
            inode.link_count = inode.link_count.saturating_sub(1);
            let has_no_name = inode.link_count == 0 && inode.places.as_slice().is_empty();
            let is_gone = has_no_name || inode.is_directory();
            let is_used = inode.is_used();
            for (name, child) in children {
                if self.take_name(number, &name).is_ok() {
                    wanted.push(child);
                }
            }
            if is_gone {
                if is_used {
                    self.orphans.insert(number);
                } else {
                    self.last_paths.remove(&number);
                    self.inodes.remove(&number);
                }
            }
        }
    }
}

/// Whether an inode is what the store has, in every attribute and byte.
fn is_same(inode: &Inode, stored: &StoredInode) -> bool {
    inode.stored_attributes() == stored.attributes
        && match (&inode.kind, &stored.node) {
            (Kind::Regular(content), node) => is_same_stored(content, node),
            (Kind::Symlink(target), Node::Symlink { target: other }) => target == other,
            (Kind::Fifo, Node::Fifo) | (Kind::Socket, Node::Socket) => true,
            (Kind::CharDevice(rdev), Node::CharDevice { rdev: other })
            | (Kind::BlockDevice(rdev), Node::BlockDevice { rdev: other }) => rdev == other,
            _ => false,
        }
}
