//! Carrying operations out in one directory, and looking at what is there afterwards.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use e2e::{Manifest, manifest};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::operation::{Op, PATHS, SLOTS, TARGETS, XATTRS};

/// Times before this are ones that a sequence has set.
const SET_TIMES_END_NANOSECONDS: i128 = 1_100_000_000 * 1_000_000_000;

/// What an operation gave: bytes, or an error number.
pub type Outcome = Result<Vec<u8>, i32>;

/// One of the two directories, with the files that a sequence has open there.
pub struct Side {
    pub top: PathBuf,
    slots: [Option<File>; SLOTS],
}

/// Everything that can be compared: the tree, link counts, and the open files.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub tree: Manifest,
    pub link_counts: BTreeMap<PathBuf, u64>,
    /// Size, link count, mode and a hash of the content.
    pub open_files: Vec<Option<(u64, u64, u32, String)>>,
}

/// What the call said, as an error number if it failed.
fn check(result: libc::c_long) -> Result<u64, i32> {
    Errno::result(result)
        .map(|value| value as u64)
        .map_err(|errno| errno as i32)
}

fn number<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn nothing(result: libc::c_int) -> Outcome {
    check(libc::c_long::from(result)).map(|_| Vec::new())
}

/// An access list with a named user; other kinds of values are refused alike.
fn access_list(fill: u8) -> Vec<u8> {
    let permissions = u16::from(fill & 7);
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 7, u32::MAX),
        (2, permissions, 4321),
        (4, permissions ^ 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, permissions, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

impl Side {
    pub fn new(top: PathBuf) -> Self {
        fs::create_dir(&top).expect("a directory for the sequence");
        // Both sides begin alike, whatever the parent hands down.
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&top, all).expect("the directory is ours");
        Self::existing(top)
    }

    /// A directory that is there already, with nothing open.
    pub fn existing(top: PathBuf) -> Self {
        Self {
            top,
            slots: [None, None, None],
        }
    }

    pub fn close_all(&mut self) {
        self.slots = [None, None, None];
    }

    fn path(&self, path: u8) -> PathBuf {
        self.top.join(OsStr::from_bytes(PATHS[path as usize]))
    }

    fn c_path(&self, path: u8) -> CString {
        CString::new(self.path(path).as_os_str().as_bytes()).expect("no path has a NUL")
    }

    fn file(&self, slot: u8) -> Result<&File, i32> {
        self.slots[slot as usize].as_ref().ok_or(libc::EBADF)
    }

    /// Carries out an operation on files; those on the whole mount are somebody else's.
    pub fn apply(&mut self, op: Op) -> Outcome {
        match op {
            Op::Create { path, mode } => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                self.open(path, flags, mode).map(|_| Vec::new())
            }
            Op::MakeDirectory { path, mode } => {
                // SAFETY: the string ends with NUL and lives through the call; so below.
                nothing(unsafe { libc::mkdir(self.c_path(path).as_ptr(), mode) })
            }
            Op::Symlink { path, target } => {
                let target = CString::new(TARGETS[target as usize]).expect("no target has a NUL");
                // SAFETY: as above.
                nothing(unsafe { libc::symlink(target.as_ptr(), self.c_path(path).as_ptr()) })
            }
            Op::Node { path, kind, mode } => {
                let device = if kind == libc::S_IFCHR {
                    libc::makedev(1, 3)
                } else {
                    0
                };
                // SAFETY: as above.
                nothing(unsafe { libc::mknod(self.c_path(path).as_ptr(), kind | mode, device) })
            }
            Op::Link { from, to } => {
                // SAFETY: as above.
                nothing(unsafe { libc::link(self.c_path(from).as_ptr(), self.c_path(to).as_ptr()) })
            }
            // SAFETY: as above.
            Op::Remove { path } => nothing(unsafe { libc::unlink(self.c_path(path).as_ptr()) }),
            Op::RemoveDirectory { path } => {
                // SAFETY: as above.
                nothing(unsafe { libc::rmdir(self.c_path(path).as_ptr()) })
            }
            Op::Rename { from, to, flags } => {
                let (from, to) = (self.c_path(from), self.c_path(to));
                // SAFETY: as above.
                nothing(unsafe {
                    libc::renameat2(
                        libc::AT_FDCWD,
                        from.as_ptr(),
                        libc::AT_FDCWD,
                        to.as_ptr(),
                        flags,
                    )
                })
            }
            Op::Open { slot, path, flags } => {
                let file = self.open(path, flags, 0o664)?;
                self.slots[slot as usize] = Some(file);
                Ok(Vec::new())
            }
            Op::Temporary { slot, path } => {
                let file = self.open(path, libc::O_TMPFILE | libc::O_RDWR, 0o640)?;
                self.slots[slot as usize] = Some(file);
                Ok(Vec::new())
            }
            Op::LinkOpen { slot, path } => {
                let file = self.file(slot)?;
                let from =
                    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no NUL");
                let to = self.c_path(path);
                // SAFETY: as above.
                nothing(unsafe {
                    libc::linkat(
                        libc::AT_FDCWD,
                        from.as_ptr(),
                        libc::AT_FDCWD,
                        to.as_ptr(),
                        libc::AT_SYMLINK_FOLLOW,
                    )
                })
            }
            Op::Close { slot } => {
                self.slots[slot as usize] = None;
                Ok(Vec::new())
            }
            Op::Write {
                slot,
                offset,
                length,
                fill,
            } => {
                let data = pattern(length, fill);
                number(self.file(slot)?.write_at(&data, u64::from(offset))).map(count)
            }
            Op::Read {
                slot,
                offset,
                length,
            } => {
                let mut data = vec![0; length as usize];
                let read = number(self.file(slot)?.read_at(&mut data, u64::from(offset)))?;
                data.truncate(read);
                Ok(data)
            }
            Op::MapWrite {
                slot,
                offset,
                length,
                fill,
            } => self.write_mapped(slot, offset, length, fill),
            Op::Truncate { path, size } => {
                let same = |found: fs::Metadata| found.is_file() && found.len() == u64::from(size);
                if fs::metadata(self.path(path)).is_ok_and(same) {
                    // The kernel keeps the old modification time of a file in a mount.
                    return Ok(Vec::new());
                }
                // SAFETY: as above.
                nothing(unsafe { libc::truncate(self.c_path(path).as_ptr(), i64::from(size)) })
            }
            Op::TruncateOpen { slot, size } => {
                number(self.file(slot)?.set_len(u64::from(size))).map(|()| Vec::new())
            }
            Op::Allocate {
                slot,
                mode,
                offset,
                length,
            } => {
                let descriptor = self.file(slot)?.as_raw_fd();
                // SAFETY: the descriptor is open.
                nothing(unsafe {
                    libc::fallocate(descriptor, mode, i64::from(offset), i64::from(length))
                })
            }
            Op::CopyRange {
                from,
                to,
                from_offset,
                to_offset,
                length,
            } => {
                let (from, to) = (self.file(from)?.as_raw_fd(), self.file(to)?.as_raw_fd());
                let (mut from_offset, mut to_offset) =
                    (i64::from(from_offset), i64::from(to_offset));
                // SAFETY: the descriptors are open and the offsets live through the call.
                check(unsafe {
                    libc::copy_file_range(
                        from,
                        &raw mut from_offset,
                        to,
                        &raw mut to_offset,
                        length as usize,
                        0,
                    )
                } as libc::c_long)
                .map(|copied| count(copied as usize))
            }
            Op::Seek {
                slot,
                offset,
                whence,
            } => self.seek(slot, u64::from(offset), whence),
            Op::Sync { slot } => number(self.file(slot)?.sync_all()).map(|()| Vec::new()),
            Op::SetMode { path, mode } => {
                // SAFETY: as above.
                nothing(unsafe { libc::chmod(self.c_path(path).as_ptr(), mode) })
            }
            Op::SetOwner { path, uid, gid } => {
                // SAFETY: as above.
                nothing(unsafe { libc::lchown(self.c_path(path).as_ptr(), uid, gid) })
            }
            Op::SetTime {
                path,
                seconds,
                nanoseconds,
            } => {
                let time = libc::timespec {
                    tv_sec: i64::from(seconds),
                    tv_nsec: i64::from(nanoseconds),
                };
                let times = [time, time];
                // SAFETY: as above; there are two times.
                nothing(unsafe {
                    libc::utimensat(
                        libc::AT_FDCWD,
                        self.c_path(path).as_ptr(),
                        times.as_ptr(),
                        libc::AT_SYMLINK_NOFOLLOW,
                    )
                })
            }
            Op::SetXattr {
                path,
                name,
                length,
                fill,
                flags,
            } => {
                let is_list = XATTRS[name as usize].starts_with("system");
                let value = if is_list {
                    access_list(fill)
                } else {
                    pattern(u32::from(length), fill)
                };
                let name = CString::new(XATTRS[name as usize]).expect("no NUL");
                let path = self.c_path(path);
                // SAFETY: as above; the value has the given length.
                nothing(unsafe {
                    libc::lsetxattr(
                        path.as_ptr(),
                        name.as_ptr(),
                        value.as_ptr().cast(),
                        value.len(),
                        flags,
                    )
                })
            }
            Op::RemoveXattr { path, name } => {
                let name = CString::new(XATTRS[name as usize]).expect("no NUL");
                // SAFETY: as above.
                nothing(unsafe { libc::lremovexattr(self.c_path(path).as_ptr(), name.as_ptr()) })
            }
            Op::Become { user } => {
                become_user(user);
                Ok(Vec::new())
            }
            Op::Check | Op::Commit | Op::Remount | Op::KillWorker => Ok(Vec::new()),
        }
    }

    fn open(&self, path: u8, flags: i32, mode: u32) -> Result<File, i32> {
        let path = self.c_path(path);
        // A FIFO without a reader must not stop the sequence.
        let flags = flags | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the string ends with NUL; the descriptor is new and ours.
        unsafe {
            let descriptor = libc::open(path.as_ptr(), flags, mode);
            check(libc::c_long::from(descriptor)).map(|_| File::from_raw_fd(descriptor))
        }
    }

    fn write_mapped(&self, slot: u8, offset: u32, length: u32, fill: u8) -> Outcome {
        let file = self.file(slot)?;
        let metadata = number(file.metadata())?;
        let (start, size) = (offset as usize, metadata.len() as usize);
        let end = (start + length as usize).min(size);
        if !metadata.is_file() || start >= end {
            return Err(libc::EINVAL);
        }
        // SAFETY: the kernel chooses the address; the result is checked before it is used.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Errno::last_raw());
        }
        // SAFETY: `size` bytes are mapped there, nobody else has the mapping, and nobody shortens
        // the file meanwhile.
        unsafe {
            let mapped = std::slice::from_raw_parts_mut(address.cast::<u8>(), size);
            mapped[start..end].copy_from_slice(&pattern((end - start) as u32, fill));
            libc::munmap(address, size);
        }
        Ok(Vec::new())
    }

    /// File systems may differ in what is a hole; but nothing else than zeros may be in one.
    fn seek(&self, slot: u8, offset: u64, whence: i32) -> Outcome {
        let file = self.file(slot)?;
        let metadata = number(file.metadata())?;
        if !metadata.is_file() {
            return Ok(Vec::new());
        }
        // SAFETY: the descriptor is open.
        let found = check(unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) });
        let size = metadata.len();
        let is_zero = |from: u64, to: u64| {
            let mut data = vec![0; to.saturating_sub(from) as usize];
            match file.read_exact_at(&mut data, from) {
                Ok(()) => data.iter().all(|byte| *byte == 0),
                // Not open for reading.
                Err(_) => true,
            }
        };
        match found {
            Err(libc::ENXIO) if offset >= size => Err(libc::ENXIO),
            Err(libc::ENXIO) if whence == libc::SEEK_DATA && is_zero(offset, size) => {
                Ok(Vec::new())
            }
            Ok(found) if found < offset || found > size => Ok(b"out of the file".to_vec()),
            Ok(found) if whence == libc::SEEK_DATA && !is_zero(offset, found) => {
                Ok(format!("data before {found} is not found").into_bytes())
            }
            // A hole goes on to the end of its block at least.
            Ok(found)
                if whence == libc::SEEK_HOLE
                    && !is_zero(found, size.min((found + 1).next_multiple_of(512))) =>
            {
                Ok(format!("data in the hole at {found}").into_bytes())
            }
            Ok(_) => Ok(Vec::new()),
            Err(errno) => Ok(format!("lseek of {offset} in {size} bytes: {errno}").into_bytes()),
        }
    }

    /// Looks at everything.
    pub fn snapshot(&self) -> Snapshot {
        let mut tree = manifest(&self.top);
        let mut link_counts = BTreeMap::new();
        for (path, entry) in &mut tree {
            let metadata = fs::symlink_metadata(self.top.join(path)).expect("an entry just seen");
            link_counts.insert(path.clone(), metadata.nlink());
            if entry.mtime_ns > SET_TIMES_END_NANOSECONDS {
                entry.mtime_ns = i128::MAX;
            }
        }
        let open_files = self
            .slots
            .iter()
            .map(|slot| slot.as_ref().map(describe))
            .collect();
        Snapshot {
            tree,
            link_counts,
            open_files,
        }
    }

    /// What listings say must be what the entries say.
    pub fn check_listings(&self) -> Result<(), String> {
        for directory in walkdir::WalkDir::new(&self.top).into_iter().flatten() {
            if !directory.file_type().is_dir() {
                continue;
            }
            for entry in fs::read_dir(directory.path())
                .into_iter()
                .flatten()
                .flatten()
            {
                let metadata = fs::symlink_metadata(entry.path())
                    .map_err(|error| format!("{:?} is listed: {error}", entry.path()))?;
                let same_type = entry
                    .file_type()
                    .is_ok_and(|kind| kind == metadata.file_type());
                if entry.ino() != metadata.ino() || !same_type {
                    return Err(format!("{:?} is listed as something else", entry.path()));
                }
            }
        }
        Ok(())
    }

    /// Removes everything.
    pub fn remove(mut self) {
        self.close_all();
        fs::remove_dir_all(&self.top).expect("the directory can be removed");
    }
}

/// Where two files differ first.
pub fn first_difference(expected: &Path, actual: &Path) -> Option<usize> {
    let (expected, actual) = (fs::read(expected).ok()?, fs::read(actual).ok()?);
    expected
        .iter()
        .zip(&actual)
        .position(|(one, other)| one != other)
}

/// The calling thread acts as this user and group from now on.
pub fn become_user(user: u32) {
    // Back to root first: only root may choose.
    setfsuid(Uid::from_raw(0));
    // The mount knows no further groups. By the bare call: the library's is for all threads.
    // SAFETY: an empty list needs no memory.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) };
    assert_eq!(result, 0, "root may leave its groups");
    setfsgid(Gid::from_raw(user));
    setfsuid(Uid::from_raw(user));
}

fn describe(file: &File) -> (u64, u64, u32, String) {
    let metadata = file.metadata().expect("an open file");
    let size = if metadata.is_file() {
        metadata.len()
    } else {
        0
    };
    let mut data = vec![0; size as usize];
    let content = match file.read_exact_at(&mut data, 0) {
        Ok(()) => blake3::hash(&data).to_hex().to_string(),
        Err(error) => error.to_string(),
    };
    (size, metadata.nlink(), metadata.mode(), content)
}

fn count(bytes: usize) -> Vec<u8> {
    bytes.to_string().into_bytes()
}

/// Bytes that tell their place, so that a shift is seen.
fn pattern(length: u32, fill: u8) -> Vec<u8> {
    (0..length)
        .map(|at| fill.wrapping_add((at / 64) as u8) | 1)
        .collect()
}
