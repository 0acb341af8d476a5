//! The cut: turns everything that changed into one edit for the store, and takes the result back.
//!
//! Freezing happens under the state's lock and costs O(changed): attributes and content are shared
//! (`Arc`), not copied. What changes afterwards belongs to the next cut. If the store refuses, the
//! changes are put back as if they had not been taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use workspace_store::attribution::Attribution;
use workspace_store::edit::{
    DirectoryEdit, EntryEdit, InodeEdit, LinkEdit, NodeEdit, SnapshotEdit,
};
use workspace_store::id::CommitId;
use workspace_store::object::{Name, Node, Root};
use workspace_store::source::{InodeRecord, Submitted};

use super::content::{Frozen, holes};
use super::extent::Source;
use super::inode::{Content, Inode, Kind, ROOT, derived_number, linked_number};
use super::request::Errno;
use super::state::{Changes, NumberMap, State};
use crate::journal::record::{AttributesChange, Creation, Record, StoredPiece, StoredSource};

/// Rows of the inode map: number of the directory and name; `None` removes a row.
pub(crate) type InodeRecords = BTreeMap<(u64, Name), Option<InodeRecord>>;

/// Everything that changed, at one moment.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) head: CommitId,
    pub(crate) base: Root,
    pub(crate) edit: SnapshotEdit,
    /// Who changed what.
    pub(crate) attribution: Attribution,
    pub(crate) inode_records: InodeRecords,
    pub(crate) first_journal_segment: u64,
    pub(crate) next_number: u64,
    /// Since when what is in it is uncommitted.
    pub(crate) first_change: Option<std::time::Instant>,
    changes: Changes,
    contents: Vec<(u64, Content)>,
}

impl Cut {
    /// Files with new content.
    pub(crate) fn written_files(&self) -> Vec<u64> {
        self.contents.iter().map(|(number, _)| *number).collect()
    }
}

/// Names to write, by directory.
type NamesByDirectory = NumberMap<BTreeSet<Name>>;

impl State {
    /// Takes everything that changed and begins a new journal segment.
    ///
    /// # Errors
    /// Of the journal, when what must be carried over can't be written; nothing was taken then.
    pub(crate) fn cut(&mut self, carry_over: bool) -> Result<Cut, Errno> {
        let first_journal_segment = match self.journal.untouched_cut().filter(|_| carry_over) {
            Some(number) => number,
            None => {
                let number = self.journal.rotate();
                self.epoch += 1;
                self.actors.begin_segment();
                if carry_over {
                    self.carry_over()?;
                    self.journal.mark_cut(number);
                }
                number
            }
        };
        let changes = std::mem::take(&mut self.changes);
        let names = self.names_to_write(&changes);
        let mut contents = Vec::new();
        let root = self.directory_edit(ROOT, &names, &mut contents);
        let mut links = BTreeMap::new();
        let mut inode_records = self.inode_records(&names);
        for number in changes.inodes.keys() {
            let Some(inode) = self.inodes.get(number) else {
                continue;
            };
            let Some(link) = inode.link.filter(|_| inode.link_count > 0) else {
                continue;
            };
            let edit = LinkEdit {
                link_count: inode.link_count,
                inode: self.inode_edit(*number, inode, &names, &mut contents),
            };
            links.insert(link, Some(edit));
            if linked_number(link) != *number {
                let row = InodeRecord {
                    number: *number,
                    ctime: inode.ctime,
                };
                inode_records.insert((0, link.0.to_be_bytes().into()), Some(row));
            }
        }
        links.extend(changes.gone_links.iter().map(|link| (*link, None)));
        let root_attributes = self
            .inodes
            .get(&ROOT)
            .filter(|_| changes.inodes.contains_key(&ROOT))
            .map(Inode::stored_attributes);
        Ok(Cut {
            attribution: self.attribution(&changes),
            first_change: self.first_change.take(),
            head: self.head,
            base: self.base.clone(),
            edit: SnapshotEdit {
                root_attributes,
                root,
                links,
            },
            inode_records,
            first_journal_segment,
            next_number: self.next_number,
            changes,
            contents,
        })
    }

    /// The store has the cut: its trees and blobs are the new base.
    pub(crate) fn complete(&mut self, cut: Cut, submitted: &Submitted) {
        self.base = submitted.root.clone();
        self.head = submitted.commit;
        if let Some(root) = self.inodes.get_mut(&ROOT).and_then(Inode::directory_mut) {
            root.base = Some(submitted.root.tree);
        }
        let frozen: NumberMap<Content> = cut.contents.into_iter().collect();
        for (number, node) in &submitted.contents {
            match (
                self.inodes.get_mut(number).map(|inode| &mut inode.kind),
                node,
            ) {
                (Some(Kind::Directory(directory)), Node::Directory { tree }) => {
                    directory.base = Some(*tree);
                }
                (Some(Kind::Regular(content)), Node::Regular { blob, size, holes }) => {
                    let is_unchanged = frozen
                        .get(number)
                        .is_some_and(|frozen| frozen.is_same(content));
                    if is_unchanged {
                        *content = Content::Stored {
                            blob: *blob,
                            size: *size,
                            holes: holes.clone(),
                        };
                    }
                }
                _ => {}
            }
        }
        self.journal.release_before(cut.first_journal_segment);
        let Self {
            actors, changes, ..
        } = self;
        actors.forget_unused(|number| changes.has_actor(number));
    }

    /// The store refused the cut: its changes are still to be stored.
    pub(crate) fn put_back(&mut self, cut: Cut) {
        self.changes.merge(cut.changes);
        self.first_change
            .get_or_insert_with(|| cut.first_change.unwrap_or_else(std::time::Instant::now));
    }

    /// The names to write, with those on the way to them from the root.
    fn names_to_write(&self, changes: &Changes) -> NamesByDirectory {
        let mut names: NamesByDirectory = NumberMap::default();
        let mut reached = Vec::new();
        for (directory, changed) in &changes.names {
            names
                .entry(*directory)
                .or_default()
                .extend(changed.keys().cloned());
            reached.push(*directory);
        }
        for number in changes.inodes.keys() {
            let Some(inode) = self.inodes.get(number) else {
                continue;
            };
            if inode.link.is_none() {
                self.add_place(inode, &mut names, &mut reached);
            }
        }
        while let Some(directory) = reached.pop() {
            if let Some(inode) = self.inodes.get(&directory) {
                self.add_place(inode, &mut names, &mut reached);
            }
        }
        names
    }

    /// Adds the name of an inode that has one name only; its directory is reached if it's new.
    fn add_place(&self, inode: &Inode, names: &mut NamesByDirectory, reached: &mut Vec<u64>) {
        let Some((parent, position)) = inode.places.as_slice().first().copied() else {
            return;
        };
        let found = self
            .inodes
            .get(&parent)
            .and_then(Inode::directory)
            .and_then(|directory| directory.names.as_ref())
            .and_then(|names| names.at(position));
        if let Some(found) = found {
            let is_known_directory = names.contains_key(&parent);
            names.entry(parent).or_default().insert(found.name.clone());
            if !is_known_directory {
                reached.push(parent);
            }
        }
    }

    fn directory_edit(
        &self,
        number: u64,
        names: &NamesByDirectory,
        contents: &mut Vec<(u64, Content)>,
    ) -> DirectoryEdit {
        let directory = self.inodes.get(&number).and_then(Inode::directory);
        let mut entries = BTreeMap::new();
        if let (Some(wanted), Some(directory)) = (names.get(&number), directory) {
            for name in wanted {
                let child = directory.names.as_ref().and_then(|names| names.get(name));
                let edit = match child.and_then(|child| Some((child, self.inodes.get(&child)?))) {
                    None => EntryEdit::Remove,
                    Some((child, inode)) => match inode.link {
                        Some(link) => EntryEdit::Link(link),
                        None => EntryEdit::Put(self.inode_edit(child, inode, names, contents)),
                    },
                };
                entries.insert(name.clone(), edit);
            }
        }
        DirectoryEdit {
            key: Some(number),
            base: directory.and_then(|directory| directory.base),
            entries,
        }
    }

    fn inode_edit(
        &self,
        number: u64,
        inode: &Inode,
        names: &NamesByDirectory,
        contents: &mut Vec<(u64, Content)>,
    ) -> InodeEdit {
        let node = match &inode.kind {
            Kind::Directory(_) => NodeEdit::Directory(self.directory_edit(number, names, contents)),
            Kind::Regular(Content::Stored { blob, size, holes }) => {
                NodeEdit::Stored(Node::Regular {
                    blob: *blob,
                    size: *size,
                    holes: holes.clone(),
                })
            }
            Kind::Regular(content) => {
                contents.push((number, content.clone()));
                let frozen = Frozen {
                    content: content.clone(),
                    source: Arc::clone(&self.source),
                };
                NodeEdit::Content {
                    key: number,
                    content: Arc::new(frozen),
                }
            }
            Kind::Symlink(target) => NodeEdit::Stored(Node::Symlink {
                target: target.clone(),
            }),
            Kind::Fifo => NodeEdit::Stored(Node::Fifo),
            Kind::Socket => NodeEdit::Stored(Node::Socket),
            Kind::CharDevice(rdev) => NodeEdit::Stored(Node::CharDevice { rdev: *rdev }),
            Kind::BlockDevice(rdev) => NodeEdit::Stored(Node::BlockDevice { rdev: *rdev }),
        };
        InodeEdit {
            attributes: inode.stored_attributes(),
            node,
        }
    }

    /// Rows for what doesn't follow from directory, name and modification time.
    fn inode_records(&self, names: &NamesByDirectory) -> InodeRecords {
        let mut rows = BTreeMap::new();
        for (directory, names) in names {
            let known = self
                .inodes
                .get(directory)
                .and_then(Inode::directory)
                .and_then(|directory| directory.names.as_ref());
            for name in names {
                let row = known.and_then(|known| known.get(name)).and_then(|number| {
                    let inode = self.inodes.get(&number)?;
                    let follows =
                        number == derived_number(*directory, name) && inode.ctime == inode.mtime;
                    (!follows).then_some(InodeRecord {
                        number,
                        ctime: inode.ctime,
                    })
                });
                rows.insert((*directory, name.clone()), row);
            }
        }
        rows
    }

    /// Writes into the new segment what the store doesn't keep: open files without a name, and the
    /// newest requests.
    fn carry_over(&mut self) -> Result<(), Errno> {
        let recent = self.recent_requests();
        if !recent.is_empty() {
            self.append_only(&Record::Recent(recent))?;
        }
        let orphans: Vec<u64> = self.orphans.iter().copied().collect();
        self.carry_over_orphans(&orphans)
    }

    /// Writes open files without a name into the journal, so that the records of later changes to
    /// them have something to refer to.
    pub(crate) fn carry_over_orphans(&mut self, orphans: &[u64]) -> Result<(), Errno> {
        for number in orphans.iter().copied() {
            let Some(inode) = self.inodes.get(&number) else {
                continue;
            };
            let (target, rdev) = match &inode.kind {
                Kind::Symlink(target) => (target.clone(), 0),
                Kind::CharDevice(rdev) | Kind::BlockDevice(rdev) => (Box::default(), *rdev),
                _ => (Box::default(), 0),
            };
            let creation = Creation {
                number,
                place: None,
                mode: inode.kind.file_type() | inode.mode,
                uid: inode.uid,
                gid: inode.gid,
                rdev,
                target: &target,
                xattrs: inode.xattrs.clone(),
                time: inode.ctime,
            };
            let change = AttributesChange {
                number,
                mode: inode.mode,
                uid: inode.uid,
                gid: inode.gid,
                atime: inode.atime,
                mtime: inode.mtime,
                ctime: inode.ctime,
                size: None,
            };
            let content = inode.content().cloned();
            self.append_only(&Record::Create(creation))?;
            if let Some(content) = content {
                self.carry_over_content(number, &content)?;
            }
            self.append_only(&Record::Attributes(change))?;
        }
        Ok(())
    }

    fn carry_over_content(&mut self, number: u64, content: &Content) -> Result<(), Errno> {
        match content {
            Content::Small(bytes) if bytes.is_empty() => Ok(()),
            Content::Small(bytes) => self.append_only(&Record::Write {
                number,
                offset: 0,
                mode: 0,
                time: None,
                data: bytes,
            }),
            other => {
                let map = other.to_extents().unwrap_or_default();
                let cut = self.journal.newest_number();
                map.for_each_segment(|segment| self.journal.pin(cut, segment));
                let pieces = map
                    .iter()
                    .map(|(offset, extent)| StoredPiece {
                        offset,
                        length: extent.length,
                        source: match &extent.source {
                            Source::Journal(segment, position) => {
                                StoredSource::Journal(segment.number(), *position)
                            }
                            Source::Blob(blob, position) => StoredSource::Blob(blob.0, *position),
                            Source::Zero => StoredSource::Zero,
                        },
                    })
                    .collect();
                self.append_only(&Record::Pieces {
                    number,
                    size: map.size(),
                    pieces,
                })
            }
        }
    }

    pub(crate) fn append_only(&mut self, record: &Record<'_>) -> Result<(), Errno> {
        self.journal
            .append(0, record)
            .map(|_| ())
            .map_err(|error| super::state::journal_errno(&error))
    }

    /// Number of bytes, per file, that a listing of what is uncommitted would show.
    pub(crate) fn changed_inode_count(&self) -> usize {
        self.changes.inodes.len()
    }
}

/// Whether two regular files hold the same, as far as ids tell.
pub(crate) fn is_same_stored(content: &Content, node: &Node) -> bool {
    match (content, node) {
        (
            Content::Stored { blob, size, .. },
            Node::Regular {
                blob: other,
                size: other_size,
                holes: other_holes,
            },
        ) => {
            blob == other && size == other_size && holes(content).as_slice() == other_holes.as_ref()
        }
        _ => false,
    }
}
