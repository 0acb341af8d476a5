//! Operations on names: lookup, create, link, remove, rename.
//!
//! The kernel has checked permissions and holds its directory locks; what depends on the tree alone
//! (existence, kind, emptiness, loops) is checked here again, because several sessions share it.

use workspace_store::object::Xattrs;

use super::acl;
use super::clock;
use super::inode::ROOT;
use super::request::{Caller, Entry, Errno, Response};
use super::state::State;
use crate::journal::record::{Creation, Record};

/// Longest name in bytes, as on ext4.
pub(crate) const NAME_MAX_BYTES: usize = 255;

/// What a new inode is made of.
pub(crate) struct NewInode<'a> {
    /// File type and permission bits.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) rdev: u64,
    pub(crate) target: &'a [u8],
}

impl State {
    /// The answer that makes an inode known to the kernel.
    pub(crate) fn entry(&mut self, number: u64) -> Result<Entry, Errno> {
        if self.inode(number)?.is_directory() {
            // Its link count is the number of its subdirectories.
            self.load_directory(number)?;
        }
        self.note_known(number)?;
        let inode = self.inode_mut(number)?;
        inode.lookups += 1;
        Ok(Entry {
            inode: number,
            generation: 0,
            attributes: inode.file_attributes(number),
        })
    }

    pub(crate) fn lookup(&mut self, parent: u64, name: &[u8]) -> Result<Response, Errno> {
        let number = match name {
            b"." => parent,
            b".." => self.parent_of(parent)?,
            _ => self.find(parent, name)?.ok_or(Errno(libc::ENOENT))?,
        };
        self.entry(number).map(Response::Entry)
    }

    /// The directory that a directory is in; the root is in itself.
    pub(crate) fn parent_of(&self, number: u64) -> Result<u64, Errno> {
        let inode = self.inode(number)?;
        if !inode.is_directory() {
            return Err(Errno(libc::ENOTDIR));
        }
        Ok(inode
            .places
            .as_slice()
            .first()
            .map_or(ROOT, |(parent, _)| *parent))
    }

    /// The inode of this name in a directory, which is loaded first.
    pub(crate) fn find(&mut self, parent: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        if name.len() > NAME_MAX_BYTES {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        self.load_directory(parent)?;
        Ok(self.names(parent)?.get(name))
    }

    /// Checks that a new name can be made in a directory.
    fn check_new_name(&mut self, parent: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(Errno(libc::EINVAL));
        }
        let found = self.find(parent, name)?;
        if self.inode(parent)?.link_count == 0 {
            return Err(Errno(libc::ENOENT));
        }
        if found.is_none() && !self.names(parent)?.has_room_for(name) {
            return Err(Errno(libc::ENOSPC));
        }
        Ok(found)
    }

    /// Makes an inode with a name.
    pub(crate) fn make(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Response, Errno> {
        if self.check_new_name(parent, name)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        let number = self.make_inode(caller, parent, Some(name), new)?;
        self.entry(number).map(Response::Entry)
    }

    /// Makes a regular file, or opens it where another session was faster.
    pub(crate) fn create(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &NewInode<'_>,
        flags: i32,
    ) -> Result<Response, Errno> {
        match self.check_new_name(parent, name)? {
            None => {
                let number = self.make_inode(caller, parent, Some(name), new)?;
                self.entry(number).map(Response::Entry)
            }
            Some(_) if flags & libc::O_EXCL != 0 => Err(Errno(libc::EEXIST)),
            Some(number) => {
                if self.inode(number)?.is_directory() {
                    return Err(Errno(libc::EISDIR));
                }
                if flags & libc::O_TRUNC != 0 {
                    self.set_size(caller, number, 0)?;
                }
                self.entry(number).map(Response::Entry)
            }
        }
    }

    /// Makes a file without a name (O_TMPFILE).
    pub(crate) fn make_temporary(
        &mut self,
        caller: &Caller,
        parent: u64,
        new: &NewInode<'_>,
    ) -> Result<Response, Errno> {
        let number = self.make_inode(caller, parent, None, new)?;
        if self.has_views {
            // Until it gets a name it belongs to the directory.
            let path = self.path_of_inode(parent);
            self.last_paths.insert(number, path.into());
        }
        self.entry(number).map(Response::Entry)
    }

    fn make_inode(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: Option<&[u8]>,
        new: &NewInode<'_>,
    ) -> Result<u64, Errno> {
        let directory = self.inode(parent)?;
        if !directory.is_directory() {
            return Err(Errno(libc::ENOTDIR));
        }
        let inherits_group = directory.mode & libc::S_ISGID != 0;
        let gid = if inherits_group {
            directory.gid
        } else {
            caller.gid
        };
        let is_directory = new.mode & libc::S_IFMT == libc::S_IFDIR;
        let (mut mode, xattrs): (u32, Xattrs) = if new.mode & libc::S_IFMT == libc::S_IFLNK {
            (0o777, Xattrs::default())
        } else {
            acl::inherit(
                &directory.xattrs,
                new.mode & 0o7777,
                new.umask,
                is_directory,
            )
        };
        if is_directory && inherits_group {
            mode |= libc::S_ISGID;
        }
        let number = self.take_number();
        self.record(
            caller.unique,
            &Record::Create(Creation {
                number,
                place: name.map(|name| (parent, name)),
                mode: new.mode & libc::S_IFMT | mode,
                uid: caller.uid,
                gid,
                rdev: new.rdev,
                target: new.target,
                xattrs,
                time: clock::now(),
            }),
        )?;
        Ok(number)
    }

    pub(crate) fn link(
        &mut self,
        caller: &Caller,
        number: u64,
        new_parent: u64,
        new_name: &[u8],
    ) -> Result<Response, Errno> {
        let inode = self.inode(number)?;
        if inode.is_directory() {
            return Err(Errno(libc::EPERM));
        }
        if inode.link_count == u32::MAX
            || (inode.link_count == 0 && !self.orphans.contains(&number))
        {
            return Err(Errno(libc::EMLINK));
        }
        if self.check_new_name(new_parent, new_name)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        let record = Record::Link {
            number,
            parent: new_parent,
            name: new_name,
            time: clock::now(),
        };
        self.record(caller.unique, &record)?;
        self.entry(number).map(Response::Entry)
    }

    pub(crate) fn unlink(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
    ) -> Result<Response, Errno> {
        let number = self.find(parent, name)?.ok_or(Errno(libc::ENOENT))?;
        if self.inode(number)?.is_directory() {
            return Err(Errno(libc::EISDIR));
        }
        self.record(
            caller.unique,
            &Record::Remove {
                parent,
                name,
                time: clock::now(),
            },
        )?;
        Ok(Response::Empty)
    }

    pub(crate) fn remove_directory(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
    ) -> Result<Response, Errno> {
        let number = self.find(parent, name)?.ok_or(Errno(libc::ENOENT))?;
        self.check_empty_directory(number)?;
        self.record(
            caller.unique,
            &Record::Remove {
                parent,
                name,
                time: clock::now(),
            },
        )?;
        Ok(Response::Empty)
    }

    fn check_empty_directory(&mut self, number: u64) -> Result<(), Errno> {
        self.load_directory(number)?;
        if self.names(number)?.is_empty() {
            Ok(())
        } else {
            Err(Errno(libc::ENOTEMPTY))
        }
    }

    pub(crate) fn rename(
        &mut self,
        caller: &Caller,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<Response, Errno> {
        const KNOWN: u32 = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
        let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
        if flags & !KNOWN != 0 || (is_exchange && flags != libc::RENAME_EXCHANGE) {
            return Err(Errno(libc::EINVAL));
        }
        let moved = self.find(parent, name)?.ok_or(Errno(libc::ENOENT))?;
        let target = self.check_new_name(new_parent, new_name)?;
        match target {
            None if is_exchange => return Err(Errno(libc::ENOENT)),
            None => {}
            Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return Err(Errno(libc::EEXIST)),
            // Two names of one file: nothing to do, both stay.
            Some(target) if target == moved => return Ok(Response::Empty),
            Some(target) if is_exchange => self.check_no_loop(target, parent)?,
            Some(target) => {
                match (
                    self.inode(moved)?.is_directory(),
                    self.inode(target)?.is_directory(),
                ) {
                    (true, false) => return Err(Errno(libc::ENOTDIR)),
                    (false, true) => return Err(Errno(libc::EISDIR)),
                    (true, true) => self.check_empty_directory(target)?,
                    (false, false) => {}
                }
            }
        }
        self.check_no_loop(moved, new_parent)?;
        let whiteout = if flags & libc::RENAME_WHITEOUT != 0 {
            self.take_number()
        } else {
            0
        };
        self.record(
            caller.unique,
            &Record::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
                whiteout,
                time: clock::now(),
            },
        )?;
        Ok(Response::Empty)
    }

    /// Refuses to put a directory into itself or below.
    fn check_no_loop(&self, moved: u64, into: u64) -> Result<(), Errno> {
        if !self.inode(moved)?.is_directory() {
            return Ok(());
        }
        let mut current = into;
        loop {
            if current == moved {
                return Err(Errno(libc::EINVAL));
            }
            if current == ROOT {
                return Ok(());
            }
            current = self.parent_of(current)?;
        }
    }

    /// The kernel forgot an inode `count` times.
    pub(crate) fn forget(&mut self, number: u64, count: u64) {
        let Some(inode) = self.inodes.get_mut(&number) else {
            return;
        };
        inode.lookups = inode.lookups.saturating_sub(count);
        // The kernel forgets an inode as a whole, what an earlier daemon told it included.
        inode.is_inherited = false;
        if inode.lookups == 0 && inode.link_count == 0 {
            self.orphans.remove(&number);
            self.last_paths.remove(&number);
            self.inodes.remove(&number);
        }
    }
}
