//! Operations on file content: write, allocate, seek, copy; and directory listings.

use workspace_store::object::Name;

use super::attributes::{FILE_MAX_BYTES, without_privileges};
use super::clock;
use super::content;
use super::inode::{Content, SMALL_FILE_BYTES};
use super::request::{Caller, DirectoryEntry, Errno, Response};
use super::state::State;
use super::view::View;
use crate::journal::record::{RangeKind, Record};

/// Longest copy in one request; the caller asks again for the rest.
const COPY_MAX_BYTES: u64 = 1 << 30;

/// A write as the kernel sends it.
pub(crate) struct WriteRequest<'a> {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    pub(crate) kill_suid_gid: bool,
    /// From the kernel's cache: the kernel sends the times itself.
    pub(crate) from_cache: bool,
    /// To the end of the file, which may lie elsewhere than where the kernel believes.
    pub(crate) appends: bool,
}

/// What to list of a directory.
pub(crate) struct ListRequest {
    pub(crate) number: u64,
    pub(crate) cookie: u64,
    pub(crate) size: u32,
    pub(crate) overhead_bytes: u32,
    pub(crate) plus: bool,
}

impl State {
    pub(crate) fn write(
        &mut self,
        caller: &Caller,
        write: &WriteRequest<'_>,
    ) -> Result<Response, Errno> {
        let WriteRequest {
            number,
            mut offset,
            data,
            ..
        } = *write;
        if write.appends
            && let Some(content) = self.inode(number)?.content()
        {
            offset = content.size();
        }
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= FILE_MAX_BYTES)
            .ok_or(Errno(libc::EFBIG))?;
        self.prepare_change(number)?;
        self.spill_if_needed(number, offset, end)?;
        let inode = self.inode(number)?;
        let mode = if write.kill_suid_gid {
            without_privileges(caller, inode)
        } else {
            inode.mode
        };
        let time = (!write.from_cache).then(clock::now);
        self.record(
            caller.unique,
            &Record::Write {
                number,
                offset,
                mode,
                time,
                data,
            },
        )?;
        Ok(Response::Count(data.len() as u64))
    }

    /// Permission bits after a change for which the kernel, other than for a write, doesn't say
    /// whether the caller may keep set-id bits.
    fn mode_after_change(&self, caller: &Caller, number: u64) -> Result<u32, Errno> {
        let inode = self.inode(number)?;
        Ok(if caller.is_root {
            inode.mode
        } else {
            without_privileges(caller, inode)
        })
    }

    /// fallocate(2).
    pub(crate) fn allocate(
        &mut self,
        caller: &Caller,
        number: u64,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<Response, Errno> {
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => RangeKind::Allocated,
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => RangeKind::Hole,
            libc::FALLOC_FL_ZERO_RANGE => RangeKind::Zero,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= FILE_MAX_BYTES && length > 0)
            .ok_or(Errno(libc::EFBIG))?;
        self.prepare_change(number)?;
        let old_size = match self.inode(number)?.content() {
            Some(content) => content.size(),
            None => return Err(Errno(libc::ENODEV)),
        };
        // Blocks beyond the end of the file are not part of a version: nothing to keep.
        let size = if keeps_size {
            old_size
        } else {
            old_size.max(end)
        };
        self.spill_if_needed(number, u64::MAX, u64::MAX)?;
        let mode = self.mode_after_change(caller, number)?;
        self.record(
            caller.unique,
            &Record::Range {
                number,
                kind,
                offset,
                length,
                size,
                mode,
                time: clock::now(),
            },
        )?;
        Ok(Response::Empty)
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE.
    pub(crate) fn seek(&self, number: u64, offset: u64, whence: i32) -> Result<Response, Errno> {
        let content = self.inode(number)?.content().ok_or(Errno(libc::EINVAL))?;
        let is_data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Errno(libc::EINVAL)),
        };
        content::seek(content, offset, is_data).map(Response::Offset)
    }

    /// copy_file_range(2): pieces of a large file are shared, a small one is written.
    pub(crate) fn copy_range(
        &mut self,
        caller: &Caller,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        length: u64,
    ) -> Result<Response, Errno> {
        self.prepare_change(from)?;
        self.prepare_change(to)?;
        let length = self.copied_bytes(from, from_offset, length)?;
        let end = to_offset
            .checked_add(length)
            .filter(|end| *end <= FILE_MAX_BYTES)
            .ok_or(Errno(libc::EFBIG))?;
        if length == 0 {
            return Ok(Response::Count(0));
        }
        if from == to && from_offset < end && to_offset < from_offset + length {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(bytes) = self.buffered(from)? {
            let start = from_offset as usize;
            return self.write(
                caller,
                &WriteRequest {
                    number: to,
                    offset: to_offset,
                    data: &bytes[start..start + length as usize],
                    kill_suid_gid: !caller.is_root,
                    from_cache: false,
                    appends: false,
                },
            );
        }
        self.spill_if_needed(to, u64::MAX, u64::MAX)?;
        let mode = self.mode_after_change(caller, to)?;
        let time = clock::now();
        self.record(
            caller.unique,
            &Record::Clone {
                from,
                from_offset,
                to,
                to_offset,
                length,
                mode,
                time,
            },
        )?;
        Ok(Response::Count(length))
    }

    /// How much of what a copy asks for one request copies.
    pub(crate) fn copied_bytes(
        &self,
        from: u64,
        from_offset: u64,
        length: u64,
    ) -> Result<u64, Errno> {
        let content = self.inode(from)?.content().ok_or(Errno(libc::EINVAL))?;
        let rest = content.size().saturating_sub(from_offset);
        Ok(length.min(COPY_MAX_BYTES).min(rest))
    }

    /// Entries of a directory after a position.
    pub(crate) fn list(
        &mut self,
        request: &ListRequest,
        view: Option<&View>,
    ) -> Result<Response, Errno> {
        let number = request.number;
        self.load_directory(number)?;
        let is_removed = self.inode(number)?.link_count == 0;
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        let mut used_bytes = 0;
        let mut fits = |name: &[u8]| {
            used_bytes += (request.overhead_bytes as usize + name.len()).next_multiple_of(8);
            used_bytes <= request.size as usize
        };
        for (cookie, name, inode) in [(1, &b"."[..], number), (2, b"..", self.parent_of(number)?)] {
            if request.cookie < cookie && !is_removed {
                if !fits(name) {
                    return Ok(Response::Directory(entries));
                }
                let file_type = libc::S_IFDIR;
                entries.push(DirectoryEntry {
                    inode,
                    cookie,
                    file_type,
                    name: name.into(),
                    entry: None,
                });
            }
        }
        let listed = match view.filter(|view| !view.is_unrestricted()) {
            None => {
                let fitting = self.names(number)?.after(request.cookie);
                fitting
                    .take_while(|(_, found)| fits(&found.name))
                    .map(|(position, found)| (position, found.name.clone(), found.number))
                    .collect()
            }
            Some(view) => self.visible_names(number, request.cookie, view, &mut fits)?,
        };
        for (cookie, name, child) in listed {
            let inode = self.inode(child)?;
            let file_type = inode.kind.file_type();
            // Attributes of a directory need its names; the kernel asks when it wants them.
            let is_unloaded = inode
                .directory()
                .is_some_and(|directory| directory.names.is_none());
            let entry = if request.plus && !is_unloaded {
                Some(self.entry(child)?)
            } else {
                None
            };
            entries.push(DirectoryEntry {
                inode: child,
                cookie,
                file_type,
                name,
                entry,
            });
        }
        Ok(Response::Directory(entries))
    }

    /// Names after a position that a view shows, as many as fit.
    fn visible_names(
        &mut self,
        number: u64,
        mut cookie: u64,
        view: &View,
        fits: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Vec<(u64, Name, u64)>, Errno> {
        let mut listed = Vec::new();
        loop {
            let next = self.names(number)?.after(cookie).next();
            let Some((position, name, child)) =
                next.map(|(position, found)| (position, found.name.clone(), found.number))
            else {
                break;
            };
            cookie = position;
            if view.shows(self, number, &name, child)? {
                if !fits(&name) {
                    break;
                }
                listed.push((position, name, child));
            }
        }
        Ok(listed)
    }

    /// Whether reading a file's range is quick enough for the dispatch thread.
    pub(crate) fn is_quick_read(&self, number: u64, length: u64) -> bool {
        /// About 100 µs of decompression.
        const QUICK_BYTES: u64 = 128 << 10;
        match self.inode(number).ok().and_then(|inode| inode.content()) {
            Some(Content::Small(_)) => true,
            Some(content) => length <= QUICK_BYTES || content.size() <= SMALL_FILE_BYTES,
            None => true,
        }
    }
}
