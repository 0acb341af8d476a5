//! Bringing inodes into the table: directories on first use, and inodes that the kernel or the
//! journal names by number after a restart.
//!
//! A directory's number is fixed before its names are loaded, and the numbers of its entries come
//! from the store's inode map or follow from its number and their names; so loading it again gives
//! the same numbers.

use std::collections::HashMap;
use std::sync::Arc;

use workspace_store::object::{Inode as StoredInode, LinkId, Name, TreeEntry};
use workspace_store::source::InodeRecord;

use super::content::store_errno;
use super::inode::{Inode, Names, Places, ROOT, derived_number, linked_number};
use super::request::Errno;
use super::state::State;
use crate::journal::record::Record;

/// Places of inodes from the store, by number: directory and name.
pub(crate) type KnownPlaces = HashMap<u64, (u64, Name)>;

impl State {
    /// Loads the names of a directory, if they aren't yet.
    pub(crate) fn load_directory(&mut self, number: u64) -> Result<(), Errno> {
        let directory = self
            .inode(number)?
            .directory()
            .ok_or(Errno(libc::ENOTDIR))?;
        if directory.names.is_some() {
            return Ok(());
        }
        let base = directory.base;
        let source = Arc::clone(&self.source);
        let entries = match base {
            Some(tree) => source
                .directory(tree)
                .map_err(|error| store_errno(&error))?,
            None => Vec::new(),
        };
        let records: HashMap<Name, InodeRecord> = source
            .inode_records(number)
            .map_err(|error| store_errno(&error))?
            .into_iter()
            .collect();
        let mut loaded = Vec::with_capacity(entries.len());
        for (name, entry) in entries {
            let record = records.get(&name).copied();
            let entry_number = self.insert_stored(number, &name, &entry, record)?;
            loaded.push((name, entry_number));
        }
        let mut names = Names::default();
        let mut subdirectories = 0;
        for (name, entry_number) in loaded {
            let position = names.insert(&name, entry_number).ok_or(Errno(libc::EIO))?;
            let inode = self.inode_mut(entry_number)?;
            inode.places.add((number, position));
            subdirectories += u32::from(inode.is_directory());
        }
        let directory = self
            .inode_mut(number)?
            .directory_mut()
            .ok_or(Errno(libc::ENOTDIR))?;
        directory.names = Some(names);
        directory.subdirectories = subdirectories;
        Ok(())
    }

    /// Puts the inode of a stored entry into the table, if it isn't there, and returns its number.
    pub(crate) fn insert_stored(
        &mut self,
        directory: u64,
        name: &[u8],
        entry: &TreeEntry,
        record: Option<InodeRecord>,
    ) -> Result<u64, Errno> {
        match entry {
            TreeEntry::Link(link) => self.insert_linked(*link, record),
            TreeEntry::Inline(stored) => Ok(self.insert_inline(directory, name, stored, record)),
        }
    }

    fn insert_inline(
        &mut self,
        directory: u64,
        name: &[u8],
        stored: &StoredInode,
        record: Option<InodeRecord>,
    ) -> u64 {
        let mut number =
            record.map_or_else(|| derived_number(directory, name), |record| record.number);
        // Two names whose hashes agree, or a recorded number that a rollback brought back.
        while number <= ROOT || self.inodes.contains_key(&number) {
            number = derived_number(number, name);
        }
        let mut inode = Inode::from_stored(stored, record.map(|record| record.ctime));
        inode.is_inherited = self.is_resumed;
        // A number that follows from the name loses its row with the first commit that finds
        // nothing else in it.
        inode.needs_known_record = record.is_none_or(|record| record.number != number)
            || number == derived_number(directory, name);
        self.inodes.insert(number, inode);
        number
    }

    fn insert_linked(&mut self, link: LinkId, record: Option<InodeRecord>) -> Result<u64, Errno> {
        let number = self
            .link_numbers
            .get(&link)
            .copied()
            .unwrap_or_else(|| linked_number(link));
        if let Some(found) = self.inodes.get(&number) {
            return if found.link == Some(link) {
                Ok(number)
            } else {
                Err(Errno(libc::EIO))
            };
        }
        let links = self.base.links.ok_or(Errno(libc::EIO))?;
        let stored = self
            .source
            .link(links, link)
            .map_err(|error| store_errno(&error))?
            .ok_or(Errno(libc::EIO))?;
        let mut inode = Inode::from_stored(&stored.inode, record.map(|record| record.ctime));
        inode.link_count = stored.link_count;
        inode.is_inherited = self.is_resumed;
        inode.link = Some(link);
        inode.places = Places::None;
        self.inodes.insert(number, inode);
        Ok(number)
    }

    /// Brings an inode into the table that an earlier daemon gave its number to.
    ///
    /// # Errors
    /// `ESTALE` if no place is known for it.
    pub(crate) fn find_inode(&mut self, number: u64, known: &KnownPlaces) -> Result<(), Errno> {
        let mut wanted = vec![number];
        while let Some(number) = wanted.last().copied() {
            if self.inodes.contains_key(&number) {
                wanted.pop();
                continue;
            }
            let recorded = self
                .source
                .inode_location(number)
                .map_err(|error| store_errno(&error))?;
            let place = recorded.or_else(|| known.get(&number).cloned());
            let (parent, _) = place.ok_or(Errno(libc::ESTALE))?;
            if self.inodes.contains_key(&parent) {
                self.load_directory(parent)?;
                if !self.inodes.contains_key(&number) {
                    return Err(Errno(libc::ESTALE));
                }
            } else if wanted.contains(&parent) {
                return Err(Errno(libc::ESTALE));
            } else {
                wanted.push(parent);
            }
        }
        Ok(())
    }

    /// Notes, before the kernel hears of an inode from the store, where it is: a later daemon finds
    /// it by this. On a full disk the inode is shown all the same.
    pub(crate) fn note_known(&mut self, number: u64) -> Result<(), Errno> {
        let inode = self.inode(number)?;
        if !inode.needs_known_record {
            return Ok(());
        }
        if let Some((parent, position)) = inode.places.as_slice().first().copied()
            && let Some(found) = self.names(parent)?.at(position)
        {
            let name = found.name.clone();
            let record = Record::Known {
                number,
                parent,
                name: &name,
            };
            if let Err(error) = self.known.append(0, &record) {
                if !std::mem::replace(&mut self.is_known_log_full, true) {
                    tracing::warn!(%error, "inode numbers can't be logged: they would be lost if the daemon were killed");
                }
                return Ok(());
            }
            self.is_known_log_full = false;
        }
        self.inode_mut(number)?.needs_known_record = false;
        Ok(())
    }
}
