//! What other sessions' kernels must forget when one session changes something.
//!
//! Follows from the records of the journal, through which every change goes, and is collected
//! only while there is another session to tell. A kernel whose daemon died may have missed the
//! last changes, so requests that are sent again tell them once more.

use std::collections::HashSet;

use super::filesystem::numbers_of;
use super::request::{Notification, Request};
use super::state::State;
use crate::journal::record::Record;

/// The name stands for something else.
pub(super) fn entry(parent: u64, name: &[u8]) -> Notification {
    Notification::Entry {
        parent,
        name: name.into(),
    }
}

/// Attributes have changed.
fn attributes(inode: u64) -> Notification {
    Notification::Inode {
        inode,
        offset: -1,
        length: 0,
    }
}

/// Attributes and content, or the listing, have changed.
pub(super) fn content(inode: u64) -> Notification {
    Notification::Inode {
        inode,
        offset: 0,
        length: 0,
    }
}

fn range(inode: u64, offset: u64, length: u64) -> Notification {
    Notification::Inode {
        inode,
        offset: i64::try_from(offset).unwrap_or(0),
        length: i64::try_from(length).unwrap_or(0),
    }
}

impl State {
    /// Notes what a record, which is going to be applied, makes outdated elsewhere.
    pub(super) fn note_told(&mut self, record: &Record<'_>) {
        let Some(mut told) = self.told.take() else {
            return;
        };
        let size = |number: u64| self.size_of(number).unwrap_or(0);
        let at =
            |parent: u64, name: &[u8]| self.names(parent).ok().and_then(|names| names.get(name));
        match record {
            Record::Create(creation) => {
                if let Some((parent, name)) = creation.place {
                    told.extend([entry(parent, name), content(parent)]);
                }
            }
            Record::Link {
                number,
                parent,
                name,
                ..
            } => {
                told.extend([entry(*parent, name), content(*parent), attributes(*number)]);
                self.note_moved(*number, &mut told);
            }
            Record::Remove { parent, name, .. } => {
                told.extend([entry(*parent, name), content(*parent)]);
                told.extend(at(*parent, name).map(attributes));
                at(*parent, name).inspect(|number| self.note_moved(*number, &mut told));
            }
            Record::Rename {
                parent,
                name,
                new_parent,
                new_name,
                ..
            } => {
                told.extend([entry(*parent, name), entry(*new_parent, new_name)]);
                told.extend([content(*parent), content(*new_parent)]);
                for number in [at(*parent, name), at(*new_parent, new_name)]
                    .into_iter()
                    .flatten()
                {
                    told.push(attributes(number));
                    self.note_moved(number, &mut told);
                }
            }
            Record::Attributes(change) => told.push(match change.size {
                Some(new) => range(change.number, new.min(size(change.number)), 0),
                None => attributes(change.number),
            }),
            Record::Xattr { number, .. } => told.push(attributes(*number)),
            Record::Write {
                number,
                offset,
                data,
                ..
            } => {
                // A gap between the old end and the first byte becomes zeros.
                let start = (*offset).min(size(*number));
                told.push(range(*number, start, offset + data.len() as u64 - start));
            }
            Record::Range { number, offset, .. } => {
                told.push(range(*number, (*offset).min(size(*number)), 0));
            }
            Record::Clone { to, to_offset, .. } => {
                told.push(range(*to, (*to_offset).min(size(*to)), 0));
            }
            Record::Spill { .. }
            | Record::Pieces { .. }
            | Record::Recent(_)
            | Record::Actor { .. }
            | Record::Known { .. }
            | Record::Outdated { .. } => {}
        }
        self.told = Some(told);
    }

    /// Where something gets, or loses, a name, it and what is below it may be hidden to some from
    /// now on: their kernels must ask for all of it again.
    fn note_moved(&self, number: u64, told: &mut Vec<Notification>) {
        if !self.has_views {
            return;
        }
        told.push(content(number));
        let mut wanted = vec![number];
        while let Some(number) = wanted.pop() {
            let Some(inode) = self.inodes.get(&number) else {
                continue;
            };
            for (parent, position) in inode.places.as_slice() {
                let name = self
                    .names(*parent)
                    .ok()
                    .and_then(|names| names.at(*position));
                told.extend(name.map(|found| entry(*parent, &found.name)));
            }
            let names = inode
                .directory()
                .and_then(|directory| directory.names.as_ref());
            for found in names.into_iter().flat_map(|names| names.iter()) {
                told.push(content(found.number));
                wanted.push(found.number);
            }
        }
    }

    /// Notes what a request has changed that an earlier daemon did.
    pub(super) fn note_told_again(&mut self, request: &Request<'_>) {
        let Some(told) = &mut self.told else {
            return;
        };
        told.extend(
            numbers_of(request)
                .into_iter()
                .filter(|number| *number != 0)
                .map(content),
        );
        match *request {
            Request::MakeNode { parent, name, .. }
            | Request::MakeDirectory { parent, name, .. }
            | Request::SymbolicLink { parent, name, .. }
            | Request::Create { parent, name, .. }
            | Request::Unlink { parent, name }
            | Request::RemoveDirectory { parent, name } => told.push(entry(parent, name)),
            Request::Link {
                new_parent,
                new_name,
                ..
            } => told.push(entry(new_parent, new_name)),
            Request::Rename {
                parent,
                name,
                new_parent,
                new_name,
                ..
            } => told.extend([entry(parent, name), entry(new_parent, new_name)]),
            _ => {}
        }
    }

    /// Takes what was noted since the last call.
    pub(super) fn take_told(&mut self) -> Vec<Notification> {
        let Some(told) = &mut self.told else {
            return Vec::new();
        };
        let mut taken = std::mem::take(told);
        without_repeats(&mut taken);
        taken
    }
}

/// Leaves each notification once.
pub(super) fn without_repeats(notifications: &mut Vec<Notification>) {
    if notifications.len() > 1 {
        let mut seen = HashSet::new();
        notifications.retain(|notification| seen.insert(notification.clone()));
    }
}
