//! A file that one side only moved takes with it what the other side did to it.
//!
//! Only exact moves count: a regular file with one name whose content is found unchanged at a new
//! path. Everything else is a deletion and an addition, which lose nothing.

use super::{Changes, Found, Merge, Outcome, find, is_same_but_time, parents};
use crate::diff::{self, DiffEntry, DiffKind, MetadataChanges};
use crate::error::Result;
use crate::object::Node;
use crate::reader::ObjectReader;

/// Pairs of an old and a new path.
type Moves = Vec<(Vec<u8>, Vec<u8>)>;

impl Merge<'_> {
    /// Settles the paths of moved files that the other side changed.
    pub(super) fn follow_renames(&mut self) -> Result<()> {
        for (from, to) in moves(self.reader, &self.their_changes)? {
            if self.may_follow(&from, &to, &self.our_changes)? {
                let ours = self.ours_at(&from)?.expect("it was changed");
                self.outcomes.insert(from.clone(), Outcome::Remove);
                // Over nothing: the file with the changes comes to the new path.
                self.follow(&from, &to, &ours)?;
            }
        }
        for (from, to) in moves(self.reader, &self.our_changes)? {
            if self.may_follow(&from, &to, &self.their_changes)? {
                let ours = self.ours_at(&to)?.expect("it was moved there");
                self.follow(&from, &to, &ours)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, from: &[u8], to: &[u8], ours: &Found) -> Result<()> {
        let base = find(self.reader, self.base, from)?;
        let is_moved_by_theirs = self
            .their_changes
            .get(to)
            .is_some_and(|change| change.new.is_some());
        let theirs = if is_moved_by_theirs { to } else { from };
        let theirs = self
            .theirs_at(theirs)?
            .expect("it was changed or moved there");
        self.join(to, base.as_ref(), ours, &theirs)?;
        if is_moved_by_theirs && !self.outcomes.contains_key(to) {
            // As it is in ours, at its new place.
            let inode = ours.inode.clone().into();
            self.outcomes
                .insert(to.to_vec(), Outcome::File { inode, link: None });
        }
        self.settled.insert(from.to_vec());
        self.settled.insert(to.to_vec());
        Ok(())
    }

    /// Whether the other side changed the file at its old path, and has nothing in the way.
    fn may_follow(&self, from: &[u8], to: &[u8], others: &Changes) -> Result<bool> {
        let is_changed = others.get(from).is_some_and(|change| {
            matches!((&change.old, &change.new), (Some(old), Some(new))
                if is_movable(new) && is_movable(old) && !is_same_but_time(&old.inode, &new.inode))
        });
        if !is_changed || others.get(to).is_some_and(|change| change.new.is_some()) {
            return Ok(false);
        }
        for parent in parents(to) {
            let is_directory =
                |found: Option<Found>| found.is_none_or(|found| found.is_directory());
            if !is_directory(self.ours_at(parent)?) || !is_directory(self.theirs_at(parent)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_movable(found: &Found) -> bool {
    found.link.is_none() && matches!(found.inode.node, Node::Regular { .. })
}

/// The files that a side moved without changing their content.
fn moves(reader: &dyn ObjectReader, changes: &Changes) -> Result<Moves> {
    let entries = changes
        .iter()
        .filter_map(|(path, change)| {
            let (kind, old, new) = match (&change.old, &change.new) {
                (Some(old), None) if is_movable(old) => (DiffKind::Deleted, Some(old), None),
                (None, Some(new)) if is_movable(new) => (DiffKind::Added, None, Some(new)),
                _ => return None,
            };
            let inode = |found: Option<&Found>| found.map(|found| found.inode.clone());
            Some(DiffEntry {
                path: path.clone(),
                kind,
                changes: MetadataChanges::default(),
                old: inode(old),
                new: inode(new),
                old_link: None,
                new_link: None,
            })
        })
        .collect();
    let moved = diff::exact_renames(reader, entries)?;
    Ok(moved
        .into_iter()
        .filter_map(|entry| match entry.kind {
            DiffKind::Renamed { from, .. } => Some((from, entry.path)),
            _ => None,
        })
        .collect())
}
