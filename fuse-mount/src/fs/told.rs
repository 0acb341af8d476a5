//! What other sessions' kernels must forget when one session changes something.
//!
//! Follows from the records of the journal, through which every change goes, and is collected
//! only while there is another session to tell. A kernel whose daemon died may have missed the
//! last changes, so requests that are sent again tell them once more.

use std::time::Duration;

use super::filesystem::numbers_of;
use super::request::{Notification, Request};
use super::state::State;
use crate::journal::record::Record;

/// How long after a restart sessions may come back that have to hear of changes made before.
pub(super) const RESUMING: Duration = Duration::from_secs(20);

/// The name stands for something else.
fn entry(parent: u64, name: &[u8]) -> Notification {
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
            } => told.extend([entry(*parent, name), content(*parent), attributes(*number)]),
            Record::Remove { parent, name, .. } => {
                told.extend([entry(*parent, name), content(*parent)]);
                told.extend(at(*parent, name).map(attributes));
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
                told.extend(at(*parent, name).map(attributes));
                told.extend(at(*new_parent, new_name).map(attributes));
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
            | Record::Known { .. }
            | Record::Outdated { .. } => {}
        }
        self.told = Some(told);
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
        if taken.len() > 1 {
            let mut seen = Vec::with_capacity(taken.len());
            for notification in taken {
                if !seen.contains(&notification) {
                    seen.push(notification);
                }
            }
            taken = seen;
        }
        taken
    }
}
