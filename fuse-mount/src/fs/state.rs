//! The overlay's state: inodes, what changed since the last cut, the journal.
//!
//! Every change goes the same way: an operation checks it, [`State::record`] appends it to the
//! journal and applies it; a replay applies the same records. So `apply` takes every value from
//! the record and can't fail on a record that an operation has checked.
//!
//! Locking: one mutex of the filesystem guards the whole state.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use workspace_store::attribution::ActorSet;
use workspace_store::id::CommitId;
use workspace_store::object::{LinkId, Name, Root, Timestamp};
use workspace_store::source::WorkspaceSource;

use super::actors::Actors;
use super::content;
use super::inode::{
    Content, Directory, Inode, Kind, Names, Places, ROOT, SMALL_FILE_BYTES, linked_number,
};
use super::request::{Errno, Notification};
use super::settle::Touched;
use crate::journal::record::{AttributesChange, Creation, Record, StoredSource};
use crate::journal::{Journal, Location};

/// Requests remembered over a checkpoint, more than can be answered but not yet replied to.
const RECENT_REQUESTS: usize = 128;

/// Hashes inode numbers: they are spread well enough for one multiplication.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

pub(crate) type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;
pub(crate) type NumberSet = HashSet<u64, BuildHasherDefault<NumberHasher>>;

/// What changed since the last cut.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// By directory: names that came, went, or stand for something else, and who did that.
    pub(crate) names: NumberMap<ChangedNames>,
    /// Inodes whose attributes or content changed, and who changed them; nobody, where only names
    /// in a directory or of a file changed.
    pub(crate) inodes: NumberMap<ActorSet>,
    /// Files with several names that lost the last one.
    pub(crate) gone_links: HashSet<LinkId>,
    /// Changed names of directories that moved or went since, by the path that they had.
    pub(crate) earlier_names: Vec<(Vec<u8>, ChangedNames)>,
    /// Directories that moved: where they were or came to, and who moved them.
    pub(crate) moved: Vec<(Vec<u8>, u32)>,
}

/// Names that changed, and who changed them.
pub(crate) type ChangedNames = BTreeMap<Name, ActorSet>;

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.inodes.is_empty() && self.gone_links.is_empty()
    }

    /// Whether somebody made one of them.
    pub(crate) fn has_actor(&self, number: u32) -> bool {
        let earlier = self.earlier_names.iter().map(|(_, names)| names);
        let names = self
            .names
            .values()
            .chain(earlier)
            .flat_map(BTreeMap::values);
        let mut sets = names.chain(self.inodes.values());
        self.moved.iter().any(|(_, mover)| *mover == number)
            || sets.any(|set| set.iter().any(|found| found == number))
    }

    /// Adds what changed before.
    pub(crate) fn merge(&mut self, earlier: Changes) {
        for (directory, names) in earlier.names {
            let known = self.names.entry(directory).or_default();
            for (name, actors) in names {
                known.entry(name).or_default().extend(&actors);
            }
        }
        for (number, actors) in earlier.inodes {
            self.inodes.entry(number).or_default().extend(&actors);
        }
        self.gone_links.extend(earlier.gone_links);
        self.earlier_names.extend(earlier.earlier_names);
        self.moved.extend(earlier.moved);
    }
}

/// Newest mutations, oldest first: the kernel's number of the request, the inode.
#[derive(Debug, Default)]
struct RecentRequests(VecDeque<(u64, u64)>);

impl RecentRequests {
    fn push(&mut self, request: (u64, u64)) {
        if self.0.len() == RECENT_REQUESTS {
            self.0.pop_front();
        }
        self.0.push_back(request);
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) source: Arc<dyn WorkspaceSource>,
    pub(crate) inodes: NumberMap<Inode>,
    /// The tree that unloaded directories and the store's edits start from.
    pub(crate) base: Root,
    /// The branch's newest commit, as far as this overlay knows.
    pub(crate) head: CommitId,
    /// `base` is ahead of `head`: a checkpoint stored changes that no commit has yet.
    pub(crate) is_checkpointed: bool,
    pub(crate) next_number: u64,
    pub(crate) changes: Changes,
    /// Who made them.
    pub(crate) actors: Actors,
    /// Inodes without a name that the kernel still uses.
    pub(crate) orphans: NumberSet,
    pub(crate) journal: Journal,
    /// Counts the cuts: a replay begins with the records of an epoch.
    pub(crate) epoch: u32,
    /// Where inodes from the store were when the kernel heard of them.
    pub(crate) known: Journal,
    /// The newest entry of `known` could not be written.
    pub(crate) is_known_log_full: bool,
    recent: RecentRequests,
    /// Requests that an earlier daemon did and perhaps didn't answer.
    pub(crate) answered: HashMap<u64, u64>,
    /// What an earlier daemon's kernel connections may not have been told of its last switch.
    pub(crate) outdated: Vec<Notification>,
    /// Numbers of files with several names that don't follow from their link id.
    pub(crate) link_numbers: HashMap<LinkId, u64>,
    /// An earlier daemon served this mount: the kernel may name any inode from the store.
    pub(crate) is_resumed: bool,
    /// The journal's changes were made for an earlier daemon's kernel connections.
    pub(crate) is_replaying: bool,
    /// When the first change after the last cut was made, and the newest one.
    pub(crate) first_change: Option<std::time::Instant>,
    pub(crate) last_change: Option<std::time::Instant>,
    /// What changes while a moment for a cut is looked for.
    pub(crate) touched: Option<Touched>,
    /// What the kernels of other sessions must forget because of the request at hand; `None` while
    /// there are none.
    pub(crate) told: Option<Vec<Notification>>,
    /// Counts moves of directories: places below them have changed.
    pub(crate) moves: u64,
    /// Some session's principal may not do everything.
    pub(crate) has_views: bool,
    /// Where inodes were that have lost their last name and are in use; kept while there are
    /// such sessions.
    pub(crate) last_paths: NumberMap<Box<[u8]>>,
    /// Kernel connections.
    pub(crate) session_count: usize,
    /// Connections of an earlier daemon are still to come: what changes until then is kept for them
    /// in `outdated`.
    pub(crate) awaits_sessions: bool,
}

impl State {
    /// A state over `base`, with nothing changed yet.
    pub(crate) fn new(
        source: Arc<dyn WorkspaceSource>,
        base: Root,
        head: CommitId,
        next_number: u64,
        journal: Journal,
        known: Journal,
    ) -> Self {
        let root = Inode {
            kind: Kind::Directory(Directory {
                base: Some(base.tree),
                names: None,
                subdirectories: 0,
            }),
            mode: base.attributes.mode,
            uid: base.attributes.uid,
            gid: base.attributes.gid,
            atime: base.attributes.mtime,
            mtime: base.attributes.mtime,
            ctime: base.attributes.mtime,
            xattrs: base.attributes.xattrs.clone(),
            link_count: 1,
            places: Places::None,
            link: None,
            lookups: 1,
            is_inherited: false,
            needs_known_record: false,
            noted_epoch: 0,
            writer: 0,
        };
        let mut inodes = NumberMap::default();
        inodes.insert(ROOT, root);
        Self {
            source,
            inodes,
            base,
            head,
            is_checkpointed: false,
            next_number,
            changes: Changes::default(),
            actors: Actors::default(),
            orphans: NumberSet::default(),
            journal,
            epoch: 1,
            known,
            is_known_log_full: false,
            recent: RecentRequests::default(),
            answered: HashMap::new(),
            outdated: Vec::new(),
            link_numbers: HashMap::new(),
            is_resumed: false,
            is_replaying: false,
            first_change: None,
            last_change: None,
            touched: None,
            told: None,
            moves: 0,
            has_views: false,
            last_paths: NumberMap::default(),
            session_count: 0,
            awaits_sessions: false,
        }
    }

    /// A number for a new inode.
    pub(crate) fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// An inode that must be in the table.
    pub(crate) fn inode(&self, number: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&number).ok_or(Errno(libc::ESTALE))
    }

    /// Length of a regular file.
    pub(crate) fn size_of(&self, number: u64) -> Option<u64> {
        let content = self.inodes.get(&number)?.content()?;
        Some(content.size())
    }

    pub(crate) fn inode_mut(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&number).ok_or(Errno(libc::ESTALE))
    }

    /// The names of a loaded directory.
    pub(crate) fn names(&self, number: u64) -> Result<&Names, Errno> {
        let directory = self
            .inode(number)?
            .directory()
            .ok_or(Errno(libc::ENOTDIR))?;
        directory.names.as_ref().ok_or(Errno(libc::EIO))
    }

    /// Writes a change to the journal and applies it.
    ///
    /// # Errors
    /// `ENOSPC` or `EIO` of the journal; then nothing has changed.
    pub(crate) fn record(&mut self, unique: u64, record: &Record<'_>) -> Result<(), Errno> {
        for number in record.named_inodes() {
            self.note_place(number, record.takes_last_space())?;
        }
        self.note_actor(record.takes_last_space())?;
        let location = self
            .journal
            .append(unique, record)
            .map_err(|error| journal_errno(&error))?;
        self.note_told(record);
        self.apply(unique, record, Some(location));
        if let Some(touched) = &mut self.touched {
            touched.note(record);
        }
        let now = std::time::Instant::now();
        self.first_change.get_or_insert(now);
        self.last_change = Some(now);
        Ok(())
    }

    /// Notes in the journal where an inode is that a record is going to name, once in each epoch:
    /// so that the journal alone, over the base of its cut, tells a replay all it needs, also after
    /// a power loss that tore everything which nobody synced.
    fn note_place(&mut self, number: u64, takes_last_space: bool) -> Result<(), Errno> {
        let mut way = Vec::new();
        let mut next = number;
        while next != ROOT
            && let Some(inode) = self.inodes.get(&next)
            && inode.noted_epoch != self.epoch
            // One without a name was made or carried over in this epoch, or lost its name in it.
            && let Some((parent, position)) = inode.places.as_slice().first().copied()
        {
            way.push((next, parent, position));
            next = parent;
        }
        while let Some((number, parent, position)) = way.pop() {
            let Some(found) = self.names(parent)?.at(position) else {
                continue;
            };
            let name = found.name.clone();
            let record = Record::Known {
                number,
                parent,
                name: &name,
            };
            self.journal
                .append_with(0, &record, takes_last_space)
                .map_err(|error| journal_errno(&error))?;
            self.inode_mut(number)?.noted_epoch = self.epoch;
        }
        Ok(())
    }

    /// Requests to remember over a checkpoint.
    pub(crate) fn recent_requests(&self) -> Vec<(u64, u64)> {
        self.recent.0.iter().copied().collect()
    }

    /// Makes the change that a record describes.
    pub(crate) fn apply(&mut self, unique: u64, record: &Record<'_>, location: Option<Location>) {
        if unique != 0 {
            self.recent.push((unique, record.subject()));
        }
        let result = match record {
            Record::Create(creation) => self.apply_creation(creation),
            Record::Link {
                number,
                parent,
                name,
                time,
            } => self.apply_link(*number, *parent, name, *time),
            Record::Remove { parent, name, time } => self.apply_removal(*parent, name, *time),
            Record::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
                whiteout,
                time,
            } => self.apply_rename(
                (*parent, name),
                (*new_parent, new_name),
                *flags,
                *whiteout,
                *time,
            ),
            Record::Attributes(change) => self.apply_attributes(change),
            Record::Xattr {
                number,
                name,
                value,
                mode,
                ctime,
            } => self.apply_xattr(*number, name, *value, *mode, *ctime),
            Record::Write {
                number,
                offset,
                mode,
                time,
                data,
            } => self.change_content(*number, *mode, *time, |content, source| {
                content::write(content, source, *offset, data, location)
            }),
            Record::Spill { number, data } => self.change_content_only(*number, |content, _| {
                content::spill(content, data, location)
            }),
            Record::Range {
                number,
                kind,
                offset,
                length,
                size,
                mode,
                time,
            } => self.change_content(*number, *mode, Some(*time), |content, _| {
                content::change_range(content, *kind, *offset, *length, *size)
            }),
            Record::Clone {
                from,
                from_offset,
                to,
                to_offset,
                length,
                mode,
                time,
            } => {
                let pieces = self
                    .inode(*from)
                    .ok()
                    .and_then(Inode::content)
                    .and_then(Content::to_extents)
                    .map(|map| map.pieces(*from_offset, *length));
                self.change_content(*to, *mode, Some(*time), |content, _| {
                    content::paste(content, pieces.unwrap_or_default(), *to_offset)
                })
            }
            Record::Pieces {
                number,
                size,
                pieces,
            } => self.apply_pieces(*number, *size, pieces),
            Record::Recent(requests) => {
                requests
                    .iter()
                    .for_each(|request| self.recent.push(*request));
                self.answered.extend(requests.iter().copied());
                Ok(())
            }
            Record::Known { .. } => Ok(()),
            Record::Actor {
                number,
                description,
            } => {
                self.actors.replay(*number, description);
                Ok(())
            }
            Record::Outdated {
                number,
                parent,
                name,
            } => {
                self.outdated.push(match parent {
                    0 => Notification::Inode {
                        inode: *number,
                        offset: 0,
                        length: 0,
                    },
                    _ => Notification::Entry {
                        parent: *parent,
                        name: (*name).into(),
                    },
                });
                Ok(())
            }
        };
        if let Err(errno) = result {
            tracing::error!(?errno, ?record, "a checked change could not be applied");
        }
    }

    /// Notes that a name of a directory changed.
    pub(crate) fn mark_name(&mut self, directory: u64, name: &[u8]) {
        let actor = self.actors.current();
        let names = self.changes.names.entry(directory).or_default();
        names.entry(name.into()).or_default().add(actor);
    }

    /// Notes that attributes or content of an inode changed.
    pub(crate) fn mark_inode(&mut self, number: u64) {
        let actor = self.actors.current();
        self.changes.inodes.entry(number).or_default().add(actor);
    }

    /// Notes that an inode must be stored because of a change of names, which is noted with those.
    fn mark_touched(&mut self, number: u64) {
        self.changes.inodes.entry(number).or_default();
    }

    /// A directory's names changed at `time`.
    fn touch_directory(&mut self, number: u64, time: Timestamp) -> Result<(), Errno> {
        let directory = self.inode_mut(number)?;
        directory.mtime = time;
        directory.ctime = time;
        self.mark_touched(number);
        Ok(())
    }

    fn names_mut(&mut self, number: u64) -> Result<&mut Names, Errno> {
        let directory = self
            .inode_mut(number)?
            .directory_mut()
            .ok_or(Errno(libc::ENOTDIR))?;
        directory.names.as_mut().ok_or(Errno(libc::EIO))
    }

    /// Adds a name for an inode; both must be in the table.
    pub(crate) fn add_name(&mut self, parent: u64, name: &[u8], number: u64) -> Result<(), Errno> {
        let position = self
            .names_mut(parent)?
            .insert(name, number)
            .ok_or(Errno(libc::ENOSPC))?;
        if self.has_views {
            self.last_paths.remove(&number);
        }
        let inode = self.inode_mut(number)?;
        inode.places.add((parent, position));
        if inode.is_directory()
            && let Some(directory) = self.inode_mut(parent)?.directory_mut()
        {
            directory.subdirectories += 1;
        }
        self.mark_name(parent, name);
        Ok(())
    }

    /// Takes a name away; the inode stays in the table.
    pub(crate) fn take_name(&mut self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        let (position, number) = self
            .names_mut(parent)?
            .remove(name)
            .ok_or(Errno(libc::ENOENT))?;
        let path = self.has_views.then(|| self.path_in(parent, name));
        let inode = self.inode_mut(number)?;
        inode.places.remove((parent, position));
        if let Some(path) = path
            && inode.places.as_slice().is_empty()
        {
            self.last_paths.insert(number, path.into());
        }
        let inode = self.inode(number)?;
        if inode.is_directory()
            && let Some(directory) = self.inode_mut(parent)?.directory_mut()
        {
            directory.subdirectories -= 1;
        }
        self.mark_name(parent, name);
        Ok(number)
    }

    /// An inode lost a name: it goes when it was the last one and nobody uses it.
    pub(crate) fn lose_link(&mut self, number: u64, time: Timestamp) -> Result<(), Errno> {
        let inode = self.inode_mut(number)?;
        inode.ctime = time;
        inode.link_count = inode.link_count.saturating_sub(1);
        let (is_gone, is_used, link) = (inode.link_count == 0, inode.is_used(), inode.link);
        if !is_gone {
            self.mark_touched(number);
            return Ok(());
        }
        if let Some(link) = link {
            self.changes.gone_links.insert(link);
        }
        self.changes.inodes.remove(&number);
        self.changes.names.remove(&number);
        if is_used {
            self.orphans.insert(number);
        } else {
            self.last_paths.remove(&number);
            self.inodes.remove(&number);
        }
        Ok(())
    }

    fn apply_creation(&mut self, creation: &Creation<'_>) -> Result<(), Errno> {
        let kind = match creation.mode & libc::S_IFMT {
            libc::S_IFDIR => Kind::Directory(Directory {
                base: None,
                names: Some(Names::default()),
                subdirectories: 0,
            }),
            libc::S_IFLNK => Kind::Symlink(creation.target.into()),
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR => Kind::CharDevice(creation.rdev),
            libc::S_IFBLK => Kind::BlockDevice(creation.rdev),
            _ => Kind::Regular(Content::empty()),
        };
        self.next_number = self.next_number.max(creation.number + 1);
        self.inodes.insert(
            creation.number,
            Inode {
                kind,
                mode: creation.mode & 0o7777,
                uid: creation.uid,
                gid: creation.gid,
                atime: creation.time,
                mtime: creation.time,
                ctime: creation.time,
                xattrs: creation.xattrs.clone(),
                link_count: u32::from(creation.place.is_some()),
                places: Places::None,
                link: None,
                lookups: 0,
                is_inherited: self.is_replaying,
                needs_known_record: false,
                noted_epoch: self.epoch,
                writer: self.actors.current(),
            },
        );
        match creation.place {
            Some((parent, name)) => {
                self.add_name(parent, name, creation.number)?;
                self.touch_directory(parent, creation.time)
            }
            None => {
                self.orphans.insert(creation.number);
                Ok(())
            }
        }
    }

    fn apply_link(
        &mut self,
        number: u64,
        parent: u64,
        name: &[u8],
        time: Timestamp,
    ) -> Result<(), Errno> {
        let inode = self.inode_mut(number)?;
        inode.link_count += 1;
        inode.ctime = time;
        if inode.link_count > 1 && inode.link.is_none() {
            // Its first name now refers to the link table as well.
            let link = LinkId(number);
            inode.link = Some(link);
            let places = inode.places.as_slice().to_vec();
            if linked_number(link) != number {
                self.link_numbers.insert(link, number);
            }
            for (directory, position) in places {
                if let Some(found) = self.names(directory)?.at(position) {
                    let name = found.name.clone();
                    // What it stands for is the same for who looks.
                    let names = self.changes.names.entry(directory).or_default();
                    names.entry(name).or_default();
                }
            }
        }
        if let Some(link) = self.inode(number)?.link {
            self.changes.gone_links.remove(&link);
        }
        self.orphans.remove(&number);
        self.mark_touched(number);
        self.add_name(parent, name, number)?;
        self.touch_directory(parent, time)
    }

    fn apply_removal(&mut self, parent: u64, name: &[u8], time: Timestamp) -> Result<(), Errno> {
        self.note_earlier_place(parent, name);
        let number = self.take_name(parent, name)?;
        self.touch_directory(parent, time)?;
        self.lose_link(number, time)
    }

    fn apply_rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
        whiteout: u64,
        time: Timestamp,
    ) -> Result<(), Errno> {
        self.note_earlier_place(parent, name);
        self.note_earlier_place(new_parent, new_name);
        self.note_move(parent, name);
        let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
        if is_exchange {
            self.note_move(new_parent, new_name);
        }
        let moved = self.take_name(parent, name)?;
        let replaced = match self.names(new_parent)?.get(new_name) {
            Some(_) => Some(self.take_name(new_parent, new_name)?),
            None => None,
        };
        self.add_name(new_parent, new_name, moved)?;
        let is_directory = |number| self.inode(number).is_ok_and(Inode::is_directory);
        if is_directory(moved) || replaced.is_some_and(is_directory) {
            self.moves += 1;
        }
        self.inode_mut(moved)?.ctime = time;
        self.mark_inode(moved);
        if let Some(replaced) = replaced {
            if is_exchange {
                self.add_name(parent, name, replaced)?;
                self.inode_mut(replaced)?.ctime = time;
                self.mark_inode(replaced);
            } else {
                self.lose_link(replaced, time)?;
            }
        }
        if whiteout != 0 {
            self.apply_creation(&Creation {
                number: whiteout,
                place: Some((parent, name)),
                mode: libc::S_IFCHR,
                uid: 0,
                gid: 0,
                rdev: 0,
                target: b"",
                xattrs: Default::default(),
                time,
            })?;
        }
        self.note_move(new_parent, new_name);
        if is_exchange {
            self.note_move(parent, name);
        }
        self.touch_directory(parent, time)?;
        self.touch_directory(new_parent, time)
    }

    fn apply_attributes(&mut self, change: &AttributesChange) -> Result<(), Errno> {
        if let Some(size) = change.size {
            self.change_content_only(change.number, |content, source| {
                content::truncate(content, source, size)
            })?;
        }
        let inode = self.inode_mut(change.number)?;
        let is_stored_change = change.size.is_some()
            || (inode.mode, inode.uid, inode.gid, inode.mtime)
                != (change.mode, change.uid, change.gid, change.mtime);
        inode.mode = change.mode;
        inode.uid = change.uid;
        inode.gid = change.gid;
        inode.atime = change.atime;
        inode.mtime = change.mtime;
        inode.ctime = change.ctime;
        let inode_has_name = inode.link_count > 0;
        // Access and change times alone are not part of a version. But who sends the times of what
        // was written by nobody who is known is the writer, also where they are as before.
        let set = self.changes.inodes.get(&change.number);
        let has_unknown_author = set.is_some_and(|set| set.iter().any(|actor| actor == 0));
        let is_author = is_stored_change || has_unknown_author;
        if is_author && inode_has_name {
            self.mark_inode(change.number);
        }
        Ok(())
    }

    fn apply_xattr(
        &mut self,
        number: u64,
        name: &[u8],
        value: Option<&[u8]>,
        mode: u32,
        ctime: Timestamp,
    ) -> Result<(), Errno> {
        let inode = self.inode_mut(number)?;
        let xattrs = Arc::make_mut(&mut inode.xattrs);
        match value {
            Some(value) => {
                xattrs.insert(name.into(), value.into());
            }
            None => {
                xattrs.remove(name);
            }
        }
        inode.mode = mode;
        inode.ctime = ctime;
        if inode.link_count > 0 {
            self.mark_inode(number);
        }
        Ok(())
    }

    fn change_content(
        &mut self,
        number: u64,
        mode: u32,
        time: Option<Timestamp>,
        change: impl FnOnce(&mut Content, &dyn WorkspaceSource) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.change_content_only(number, change)?;
        let inode = self.inode_mut(number)?;
        inode.mode = mode;
        if let Some(time) = time {
            inode.mtime = time;
            inode.ctime = time;
        }
        Ok(())
    }

    fn change_content_only(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Content, &dyn WorkspaceSource) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let source = Arc::clone(&self.source);
        let inode = self.inode_mut(number)?;
        let has_name = inode.link_count > 0;
        match &mut inode.kind {
            Kind::Regular(content) => change(content, source.as_ref())?,
            _ => return Err(Errno(libc::EINVAL)),
        }
        if has_name {
            self.mark_inode(number);
        }
        Ok(())
    }

    fn apply_pieces(
        &mut self,
        number: u64,
        size: u64,
        pieces: &[crate::journal::record::StoredPiece],
    ) -> Result<(), Errno> {
        let mut map = super::extent::ExtentMap::default();
        for piece in pieces {
            let source = match piece.source {
                StoredSource::Journal(segment, position) => {
                    match self.journal.open_old_segment(segment) {
                        Ok(Some(segment)) => super::extent::Source::Journal(segment, position),
                        _ => return Err(Errno(libc::EIO)),
                    }
                }
                StoredSource::Blob(blob, position) => {
                    super::extent::Source::Blob(workspace_store::BlobId(blob), position)
                }
                StoredSource::Zero => super::extent::Source::Zero,
            };
            map.write(piece.offset, piece.length, source);
        }
        map.truncate(size);
        self.change_content_only(number, |content, _| {
            *content = Content::Extents(Arc::new(map));
            Ok(())
        })
    }

    /// The bytes of content that is one buffer, here or in a replay: a small file in pieces without
    /// a hole is one when the replay begins at a commit that stored it.
    pub(crate) fn buffered(&self, number: u64) -> Result<Option<Arc<Vec<u8>>>, Errno> {
        match self.inode(number)?.content() {
            Some(Content::Small(bytes)) => Ok(Some(Arc::clone(bytes))),
            Some(Content::Extents(map))
                if map.size() <= SMALL_FILE_BYTES && map.holes().is_empty() =>
            {
                let mut bytes = vec![0; map.size() as usize];
                let frozen = content::Frozen {
                    content: Content::Extents(Arc::clone(map)),
                    source: Arc::clone(&self.source),
                };
                let count = frozen.read(0, &mut bytes).map_err(|error| {
                    tracing::error!(%error, number, "content can't be read");
                    Errno(libc::EIO)
                })?;
                if count != bytes.len() {
                    return Err(Errno(libc::EIO));
                }
                Ok(Some(Arc::new(bytes)))
            }
            _ => Ok(None),
        }
    }

    /// Puts a buffer into pieces, here and in a replay, if a change of bytes from `start` to `end`
    /// needs that.
    pub(crate) fn spill_if_needed(
        &mut self,
        number: u64,
        start: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let size = self.inode(number)?.content().map_or(0, Content::size);
        if size == 0 || content::fits_small(size, start, end) {
            return Ok(());
        }
        match self.buffered(number)? {
            Some(data) => self.record(
                0,
                &Record::Spill {
                    number,
                    data: &data,
                },
            ),
            None => Ok(()),
        }
    }

    /// Reads a small stored file into a buffer, so that applying a change to it can't fail.
    pub(crate) fn prepare_change(&mut self, number: u64) -> Result<(), Errno> {
        let source = Arc::clone(&self.source);
        match &mut self.inode_mut(number)?.kind {
            Kind::Regular(found) => content::prepare(found, source.as_ref()),
            _ => Err(Errno(libc::EINVAL)),
        }
    }
}

/// The error a request gets when the journal can't take its change.
pub(crate) fn journal_errno(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        Some(code @ (libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) => Errno(code),
        _ => {
            tracing::error!(%error, "the journal can't be written");
            Errno(libc::EIO)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_recent_requests_keeps_the_newest_and_no_more() {
        let mut recent = RecentRequests::default();
        for unique in 1..=50 {
            recent.push((unique, 1));
        }
        for unique in 100..400 {
            recent.push((unique, 1));
        }
        assert_eq!(recent.0.len(), RECENT_REQUESTS);
        assert_eq!(recent.0.back(), Some(&(399, 1)));
    }
}
