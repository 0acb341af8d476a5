//! Which paths who changed: from the marks at inodes and names to paths.
//!
//! A request names its author by its thread, except a write from the kernel's cache: its author is
//! who asked last for leave to write (the kernel looks for `security.capability` before the first
//! write after it has heard of new attributes) or made the file, until that one closes it; and who
//! closes it, because the kernel sends the times of what was written in the name of that one. So
//! writes through a mapping, for which the kernel asks nobody, belong to who closes or unmaps. And
//! after a commit the kernel is made to ask for the attributes of the files in it again, if they
//! are few: then who goes on writing, or begins to, is known before the file is closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::attribution::{ActorSet, Attribution, NameActors};

use super::actors::Who;
use super::inode::{Inode, ROOT};
use super::request::{Errno, Request};
use super::state::{Changes, NumberMap, State, journal_errno};
use crate::journal::record::Record;

/// The attribute that the kernel asks for before somebody writes.
const CAPABILITY: &[u8] = b"security.capability";

/// Whether a request tells that its caller is about to write to an inode.
pub(crate) fn announces_write(request: &Request<'_>) -> bool {
    // A program that asks for itself gives a size.
    matches!(request, Request::GetXattr { name, size: 0, .. } if *name == CAPABILITY)
}

/// Whether with a request of its caller the kernel sends the times of what it has written back, as
/// it does when a file is closed.
fn ends_write(request: &Request<'_>) -> bool {
    let Request::SetAttributes { changes, .. } = request else {
        return false;
    };
    changes.mtime.is_some()
        && changes.ctime.is_some()
        && changes.size.is_none()
        && (changes.mode, changes.uid, changes.gid) == (None, None, None)
}

impl State {
    /// From now on `who` makes the changes, which are those of `request`.
    pub(crate) fn begin(&mut self, who: &Arc<Who>, request: &Request<'_>) {
        let inode = match *request {
            Request::Write { inode, .. }
            | Request::SetAttributes { inode, .. }
            | Request::GetXattr { inode, .. } => self.inodes.get_mut(&inode),
            _ => None,
        };
        if !who.is_no_author() {
            if let Some(inode) = inode {
                if announces_write(request) {
                    inode.writer = who.number;
                } else if ends_write(request) && who.is_found() {
                    inode.writer = 0;
                }
            }
            self.actors.begin(who);
            return;
        }
        let writer = inode.map_or(0, |inode| inode.writer);
        let author = self.actors.get(writer).cloned();
        self.actors.begin(&author.unwrap_or_else(Who::nobody));
    }

    /// Who wrote to these files, is not taken for who writes to them next.
    pub(crate) fn forget_writers(&mut self, files: &[u64]) {
        for number in files {
            if let Some(inode) = self.inodes.get_mut(number) {
                inode.writer = 0;
            }
        }
    }

    /// Tells the journal whose change comes next, if it takes it for another one's.
    pub(crate) fn note_actor(&mut self, takes_last_space: bool) -> Result<(), Errno> {
        let Some((number, description)) = self.actors.to_tell(self.epoch) else {
            return Ok(());
        };
        let record = Record::Actor {
            number,
            description: &description,
        };
        self.journal
            .append_with(0, &record, takes_last_space)
            .map_err(|error| journal_errno(&error))?;
        let is_described = !description.is_empty();
        self.actors.mark_told(self.epoch, number, is_described);
        Ok(())
    }

    /// A directory with changed names is about to move or to go: the names keep the path that they
    /// had.
    pub(super) fn note_earlier_place(&mut self, parent: u64, name: &[u8]) {
        let number = self.names(parent).ok().and_then(|names| names.get(name));
        if let Some(number) = number
            && let Some(names) = self.changes.names.get(&number)
        {
            let names = names.clone();
            if let Some(path) = self.path_of(number) {
                self.changes.earlier_names.push((path, names));
            }
        }
    }

    /// A directory moves to or from this name.
    pub(super) fn note_move(&mut self, parent: u64, name: &[u8]) {
        let number = self.names(parent).ok().and_then(|names| names.get(name));
        if let Some(number) = number
            && self.inodes.get(&number).is_some_and(Inode::is_directory)
            && let Some(path) = self.path_of(number)
        {
            self.changes.moved.push((path, self.actors.current()));
        }
    }

    /// Who made these changes.
    pub(super) fn attribution(&self, changes: &Changes) -> Attribution {
        let mut found = Attribution::default();
        let mut used = BTreeMap::new();
        let mut authors = |set: &ActorSet| -> ActorSet {
            set.iter()
                .filter(|number| {
                    let is_author = used.entry(*number).or_insert_with(|| {
                        let who = self.actors.get(*number)?;
                        // More may have become known.
                        let (actor, _) = who.actor();
                        (!who.is_no_author()).then_some(actor)
                    });
                    is_author.is_some()
                })
                .collect()
        };
        let mut paths: NumberMap<Option<Box<[u8]>>> = NumberMap::default();
        let mut path_of = |number: u64| {
            let path = paths.entry(number);
            path.or_insert_with(|| self.path_of(number).map(Into::into))
                .clone()
        };
        let named = changes
            .names
            .iter()
            .filter_map(|(directory, names)| Some((path_of(*directory)?, names)));
        let earlier = changes
            .earlier_names
            .iter()
            .map(|(path, names)| (path.as_slice().into(), names));
        for (path, names) in named.collect::<Vec<_>>().into_iter().chain(earlier) {
            let known = found.names.entry(path).or_default();
            for (name, set) in names {
                known.entry(name.clone()).or_default().extend(&NameActors {
                    actors: authors(set),
                    is_placed: true,
                });
            }
        }
        for (number, set) in &changes.inodes {
            let actors = authors(set);
            let Some(inode) = self.inodes.get(number).filter(|_| !actors.is_empty()) else {
                continue;
            };
            if let Some(link) = inode.link {
                found.links.entry(link).or_default().extend(&actors);
                continue;
            }
            let place = match inode.places.as_slice().first() {
                _ if *number == ROOT => Some((ROOT, Box::default())),
                Some((parent, position)) => self
                    .names(*parent)
                    .ok()
                    .and_then(|names| Some((*parent, names.at(*position)?.name.clone()))),
                None => None,
            };
            if let Some((parent, name)) = place
                && let Some(path) = path_of(parent)
            {
                let names = found.names.entry(path).or_default();
                names.entry(name).or_default().extend(&NameActors {
                    actors,
                    is_placed: false,
                });
            }
        }
        for (path, number) in &changes.moved {
            let actors = authors(&[*number].into_iter().collect());
            let moved = found.moved.entry(path.as_slice().into());
            moved.or_default().extend(&actors);
        }
        found.actors = used
            .into_iter()
            .filter_map(|(number, actor)| Some((number, actor?)))
            .collect();
        found
    }
}
