//! Attributes and extended attributes.

use workspace_store::object::Timestamp;

use super::acl;
use super::clock;
use super::inode::Inode;
use super::request::{Caller, Errno, Response, SetAttributes, SetTime};
use super::state::State;
use crate::journal::record::{AttributesChange, Record};

/// Largest file, as the kernel's signed offsets allow.
pub(crate) const FILE_MAX_BYTES: u64 = i64::MAX as u64;
/// Capabilities of a program, lost when somebody changes it.
const CAPABILITY: &[u8] = b"security.capability";

/// Permission bits after a change by somebody unprivileged: set-uid is lost, and set-gid where it
/// means a program's group; where it means mandatory locking, only somebody of the file's group
/// may keep it (the kernel's setattr_should_drop_sgid; the caller's further groups are not known).
pub(crate) fn without_privileges(caller: &Caller, inode: &Inode) -> u32 {
    let mode = inode.mode & !libc::S_ISUID;
    let is_member = caller.is_root || caller.gid == inode.gid;
    if mode & libc::S_IXGRP != 0 || !is_member {
        mode & !libc::S_ISGID
    } else {
        mode
    }
}

impl State {
    pub(crate) fn get_attributes(&mut self, number: u64) -> Result<Response, Errno> {
        if self.inode(number)?.is_directory() {
            self.load_directory(number)?;
        }
        Ok(Response::Attributes(
            self.inode(number)?.file_attributes(number),
        ))
    }

    pub(crate) fn set_attributes(
        &mut self,
        caller: &Caller,
        number: u64,
        changes: &SetAttributes,
    ) -> Result<Response, Errno> {
        if let Some(size) = changes.size {
            self.prepare_size(number, size)?;
        }
        let inode = self.inode(number)?;
        let now = clock::now();
        let time = |set: Option<SetTime>, old: Timestamp| match set {
            None => old,
            Some(SetTime::Now) => now,
            Some(SetTime::At(time)) => time,
        };
        let is_chown = changes.uid.is_some() || changes.gid.is_some();
        let mut mode = inode.mode;
        // chown(2) clears the bits for everybody, a truncation for those without CAP_FSETID.
        if (changes.kill_suid_gid || is_chown) && !inode.is_directory() {
            mode = without_privileges(caller, inode);
        }
        let loses_capability =
            (changes.kill_suid_gid || is_chown) && inode.xattrs.contains_key(CAPABILITY);
        mode = changes.mode.map_or(mode, |mode| mode & 0o7777);
        let list = changes
            .mode
            .and_then(|mode| acl::after_mode_change(&inode.xattrs, mode & 0o777));
        let is_truncation = changes.size.is_some();
        let mtime = if is_truncation && changes.mtime.is_none() {
            now
        } else {
            time(changes.mtime, inode.mtime)
        };
        let ctime = changes.ctime.unwrap_or(now);
        let change = AttributesChange {
            number,
            mode,
            uid: changes.uid.unwrap_or(inode.uid),
            gid: changes.gid.unwrap_or(inode.gid),
            atime: time(changes.atime, inode.atime),
            mtime,
            ctime,
            size: changes.size,
        };
        if let Some(list) = list {
            let record = Record::Xattr {
                number,
                name: acl::ACCESS,
                value: Some(&list),
                mode,
                ctime,
            };
            self.record(0, &record)?;
        }
        if loses_capability {
            let record = Record::Xattr {
                number,
                name: CAPABILITY,
                value: None,
                mode,
                ctime,
            };
            self.record(0, &record)?;
        }
        self.record(caller.unique, &Record::Attributes(change))?;
        self.get_attributes(number)
    }

    /// Sets the length and the times that go with it.
    pub(crate) fn set_size(
        &mut self,
        caller: &Caller,
        number: u64,
        size: u64,
    ) -> Result<(), Errno> {
        let changes = SetAttributes {
            size: Some(size),
            ..Default::default()
        };
        self.set_attributes(caller, number, &changes).map(|_| ())
    }

    fn prepare_size(&mut self, number: u64, size: u64) -> Result<(), Errno> {
        if size > FILE_MAX_BYTES {
            return Err(Errno(libc::EFBIG));
        }
        if size == 0 {
            return match self.inode(number)?.content() {
                Some(_) => Ok(()),
                None => Err(Errno(libc::EINVAL)),
            };
        }
        self.prepare_change(number)?;
        self.spill_if_needed(number, size, size)
    }

    pub(crate) fn get_xattr(&self, number: u64, name: &[u8], size: u32) -> Result<Response, Errno> {
        let inode = self.inode(number)?;
        let value = inode.xattrs.get(name).ok_or(Errno(libc::ENODATA))?;
        answer_xattr(value, size)
    }

    pub(crate) fn list_xattrs(&self, number: u64, size: u32) -> Result<Response, Errno> {
        let mut list = Vec::new();
        for name in self.inode(number)?.xattrs.keys() {
            list.extend_from_slice(name);
            list.push(0);
        }
        answer_xattr(&list, size)
    }

    pub(crate) fn set_xattr(
        &mut self,
        caller: &Caller,
        number: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
        clear_set_gid: bool,
    ) -> Result<Response, Errno> {
        check_xattr_name(name)?;
        let inode = self.inode(number)?;
        let exists = inode.xattrs.contains_key(name);
        if exists && flags & libc::XATTR_CREATE != 0 {
            return Err(Errno(libc::EEXIST));
        }
        if !exists && flags & libc::XATTR_REPLACE != 0 {
            return Err(Errno(libc::ENODATA));
        }
        let mut mode = inode.mode;
        let mut is_stored = true;
        if name == acl::ACCESS {
            (mode, is_stored) = acl::set_access(value, mode)?;
            if clear_set_gid {
                mode &= !libc::S_ISGID;
            }
        } else if name == acl::DEFAULT {
            if !inode.is_directory() {
                return Err(Errno(libc::EACCES));
            }
            acl::set_access(value, mode)?;
        }
        let value = is_stored.then_some(value);
        let record = Record::Xattr {
            number,
            name,
            value,
            mode,
            ctime: clock::now(),
        };
        self.record(caller.unique, &record)?;
        Ok(Response::Empty)
    }

    pub(crate) fn remove_xattr(
        &mut self,
        caller: &Caller,
        number: u64,
        name: &[u8],
    ) -> Result<Response, Errno> {
        check_xattr_name(name)?;
        let inode = self.inode(number)?;
        if !inode.xattrs.contains_key(name) {
            // The kernel removes access lists without asking whether there is one.
            return if name == acl::ACCESS || name == acl::DEFAULT {
                Ok(Response::Empty)
            } else {
                Err(Errno(libc::ENODATA))
            };
        }
        let mode = inode.mode;
        let record = Record::Xattr {
            number,
            name,
            value: None,
            mode,
            ctime: clock::now(),
        };
        self.record(caller.unique, &record)?;
        Ok(Response::Empty)
    }
}

fn check_xattr_name(name: &[u8]) -> Result<(), Errno> {
    let is_known = [&b"user."[..], b"trusted.", b"security."]
        .iter()
        .any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    if is_known || name == acl::ACCESS || name == acl::DEFAULT {
        Ok(())
    } else {
        Err(Errno(libc::EOPNOTSUPP))
    }
}

fn answer_xattr(value: &[u8], size: u32) -> Result<Response, Errno> {
    if size == 0 {
        Ok(Response::XattrSize(value.len() as u32))
    } else if value.len() > size as usize {
        Err(Errno(libc::ERANGE))
    } else {
        Ok(Response::Data(value.to_vec()))
    }
}
