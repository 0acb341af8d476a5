//! Attributes of real files, read and written relative to open directories.
//!
//! Invariant: no function follows a symbolic link in what lies below the directory it is given,
//! so nothing outside can be read or changed, even while somebody else renames entries.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, LazyLock};

use crate::object::{Attributes, Hole, Timestamp, Xattrs};

/// Names of the attributes that hold POSIX ACLs.
const ACL_XATTRS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

static NO_XATTRS: LazyLock<Xattrs> = LazyLock::new(Xattrs::default);

/// The shared empty set of extended attributes.
pub fn no_xattrs() -> Xattrs {
    Arc::clone(&NO_XATTRS)
}

/// What `stat` says about an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// File type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of 512 bytes in use.
    pub blocks: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Number of names.
    pub link_count: u64,
    /// Filesystem.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Device number of a device node.
    pub rdev: u64,
}

impl Status {
    fn from_stat(stat: &libc::stat) -> Self {
        Self {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            mtime: Timestamp {
                seconds: stat.st_mtime,
                nanoseconds: stat.st_mtime_nsec as u32,
            },
            ctime: Timestamp {
                seconds: stat.st_ctime,
                nanoseconds: stat.st_ctime_nsec as u32,
            },
            link_count: stat.st_nlink,
            device: stat.st_dev,
            inode: stat.st_ino,
            rdev: stat.st_rdev,
        }
    }

    /// The file type bits (`S_IFMT`).
    pub fn file_type(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == libc::S_IFDIR
    }

    /// The attributes that a snapshot keeps.
    pub fn attributes(&self, xattrs: Xattrs) -> Attributes {
        Attributes {
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime,
            xattrs,
        }
    }
}

/// A name as the C string that system calls take.
pub fn c_string(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Turns the result of a system call into `io::Result`.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Attributes of an open inode.
pub fn status(descriptor: BorrowedFd<'_>) -> io::Result<Status> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open and `stat` has room for the answer.
    check(unsafe { libc::fstat(descriptor.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: fstat succeeded and filled it.
    Ok(Status::from_stat(unsafe { stat.assume_init_ref() }))
}

/// Attributes of `name` in `directory`; a symbolic link is not followed.
pub fn status_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Status> {
    let name = c_string(name)?;
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open, the name ends with NUL, `stat` has room for the answer.
    check(unsafe {
        libc::fstatat(
            directory.as_raw_fd(),
            name.as_ptr(),
            stat.as_mut_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    })?;
    // SAFETY: fstatat succeeded and filled it.
    Ok(Status::from_stat(unsafe { stat.assume_init_ref() }))
}

/// Opens `name` in `directory` with `flags`; a symbolic link is not followed.
pub fn open_at(
    directory: BorrowedFd<'_>,
    name: &[u8],
    flags: libc::c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    let name = c_string(name)?;
    // SAFETY: the descriptor is open and the name ends with NUL.
    let descriptor = check(unsafe {
        libc::openat(
            directory.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY,
            mode,
        )
    })?;
    // SAFETY: openat returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens a directory below `root` by its names, following no symbolic link.
pub fn open_directory_below<N: AsRef<[u8]>>(
    root: BorrowedFd<'_>,
    names: &[N],
) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let mut directory = root.try_clone_to_owned()?;
    for name in names {
        directory = open_at(directory.as_fd(), name.as_ref(), flags, 0)?;
    }
    Ok(directory)
}

/// Names in an open directory, without `.` and `..`, in the order of the filesystem.
pub fn read_names(directory: BorrowedFd<'_>) -> io::Result<Vec<Box<[u8]>>> {
    // A descriptor of its own, because closing the stream closes it and reading moves it.
    let own = open_at(directory, b".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut stream = nix::dir::Dir::from_fd(own)?;
    let mut names = Vec::new();
    for entry in stream.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.into());
        }
    }
    Ok(names)
}

/// Text of the symbolic link `name`.
pub fn read_link_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Box<[u8]>> {
    let name = c_string(name)?;
    let mut buffer = vec![0_u8; libc::PATH_MAX as usize + 1];
    // SAFETY: the buffer is as long as stated, the name ends with NUL.
    let length = unsafe {
        libc::readlinkat(
            directory.as_raw_fd(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    buffer.truncate(length as usize);
    Ok(buffer.into_boxed_slice())
}

/// A path to `name` in an open directory, for calls that take only paths. The last component is
/// the only one that a link could stand in.
fn descriptor_path(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<CString> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    c_string(&path)
}

fn is_kept(name: &[u8]) -> bool {
    [&b"user."[..], b"security.", b"trusted."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || ACL_XATTRS.contains(&name)
}

/// Extended attributes of `name` in `directory` (`.` for itself), as far as they may be read.
pub fn read_xattrs_at(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Xattrs> {
    let path = descriptor_path(directory, name)?;
    let names = match read_sized(|buffer, length| {
        // SAFETY: the path ends with NUL and the buffer is as long as stated.
        unsafe { libc::llistxattr(path.as_ptr(), buffer.cast(), length) }
    }) {
        Ok(names) => names,
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(no_xattrs()),
        Err(error) => return Err(error),
    };
    let mut attributes = BTreeMap::new();
    for attribute in names.split(|byte| *byte == 0).filter(|name| is_kept(name)) {
        let attribute_name = c_string(attribute)?;
        let value = read_sized(|buffer, length| {
            // SAFETY: both strings end with NUL and the buffer is as long as stated.
            unsafe {
                libc::lgetxattr(
                    path.as_ptr(),
                    attribute_name.as_ptr(),
                    buffer.cast(),
                    length,
                )
            }
        });
        match value {
            Ok(value) => {
                attributes.insert(Box::from(attribute), value.into_boxed_slice());
            }
            // Removed meanwhile, or not readable for this user.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENODATA | libc::EACCES | libc::EPERM | libc::EOPNOTSUPP)
                ) => {}
            Err(error) => return Err(error),
        }
    }
    if attributes.is_empty() {
        return Ok(no_xattrs());
    }
    Ok(Arc::new(attributes))
}

fn read_sized(call: impl Fn(*mut u8, usize) -> isize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 512];
    loop {
        let length = call(buffer.as_mut_ptr(), buffer.len());
        if length >= 0 {
            buffer.truncate(length as usize);
            return Ok(buffer);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || buffer.len() > 1 << 20 {
            return Err(error);
        }
        buffer.resize(buffer.len() * 4, 0);
    }
}

/// Holes of a regular file of `size` bytes; not touching each other, in ascending order.
pub fn read_holes(file: BorrowedFd<'_>, size: u64) -> io::Result<Vec<Hole>> {
    let mut holes: Vec<Hole> = Vec::new();
    let mut offset = 0;
    while offset < size {
        let start = match seek(file, offset, libc::SEEK_HOLE) {
            Ok(start) => start,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        };
        if start >= size {
            break;
        }
        let end = match seek(file, start, libc::SEEK_DATA) {
            Ok(end) => end.min(size),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => size,
            Err(error) => return Err(error),
        };
        if end > start {
            holes.push(Hole {
                offset: start,
                length: end - start,
            });
        }
        offset = end.max(start + 1);
    }
    Ok(holes)
}

fn seek(file: BorrowedFd<'_>, offset: u64, whence: libc::c_int) -> io::Result<u64> {
    // SAFETY: seeking in an open descriptor touches no memory.
    let position = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, whence) };
    if position < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(position as u64)
}

/// What could not be set on a restored inode, with the reason.
pub type Refused = Vec<(String, io::Error)>;

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::EINVAL)
    )
}

/// Sets owner, extended attributes, mode and time of `name` in `directory` (`.` for itself).
///
/// What this user or filesystem can't set is returned, not an error. If the owner can't be set,
/// the setuid and setgid bits are left out, because they would speak for somebody else.
///
/// # Errors
/// Every failure other than a refusal.
pub fn write_attributes_at(
    directory: BorrowedFd<'_>,
    name: &[u8],
    attributes: &Attributes,
    is_symlink: bool,
) -> io::Result<Refused> {
    let mut refused = Refused::new();
    let c_name = c_string(name)?;
    let now = status_at(directory, name)?;
    let mut mode = attributes.mode;
    if (now.uid, now.gid) != (attributes.uid, attributes.gid) {
        // SAFETY: the descriptor is open and the name ends with NUL.
        let result = check(unsafe {
            libc::fchownat(
                directory.as_raw_fd(),
                c_name.as_ptr(),
                attributes.uid,
                attributes.gid,
                libc::AT_SYMLINK_NOFOLLOW,
            )
        });
        match result {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => {
                mode &= !0o6000;
                refused.push((
                    format!("owner {}:{}", attributes.uid, attributes.gid),
                    error,
                ));
            }
            Err(error) => return Err(error),
        }
    }
    let path = descriptor_path(directory, name)?;
    remove_foreign_acls(&path, attributes);
    for (attribute, value) in attributes.xattrs.iter() {
        let attribute_name = c_string(attribute)?;
        // SAFETY: both strings end with NUL and the value is as long as stated.
        let result = check(unsafe {
            libc::lsetxattr(
                path.as_ptr(),
                attribute_name.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                0,
            )
        });
        match result {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => {
                refused.push((
                    format!("attribute {}", String::from_utf8_lossy(attribute)),
                    error,
                ));
            }
            Err(error) => return Err(error),
        }
    }
    if !is_symlink {
        change_mode(directory, name, mode)?;
        if mode != attributes.mode {
            let reason = io::Error::from_raw_os_error(libc::EPERM);
            refused.push(("setuid and setgid bits".to_owned(), reason));
        }
    }
    let times = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        libc::timespec {
            tv_sec: attributes.mtime.seconds,
            tv_nsec: i64::from(attributes.mtime.nanoseconds),
        },
    ];
    // SAFETY: the descriptor is open, the name ends with NUL, there are two times.
    check(unsafe {
        libc::utimensat(
            directory.as_raw_fd(),
            c_name.as_ptr(),
            times.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    })?;
    Ok(refused)
}

/// A new inode may have got ACLs from its directory's default; only the wanted ones stay.
fn remove_foreign_acls(path: &CStr, attributes: &Attributes) {
    for acl in [c"system.posix_acl_access", c"system.posix_acl_default"] {
        if !attributes.xattrs.contains_key(acl.to_bytes()) {
            // SAFETY: both strings end with NUL. There is nearly always nothing to remove.
            unsafe { libc::lremovexattr(path.as_ptr(), acl.as_ptr()) };
        }
    }
}

fn change_mode(directory: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    // chmod follows links, and fchmodat refuses not to on older kernels: an O_PATH descriptor
    // names the inode itself, which was made by us and is no link.
    let inode = open_at(directory, name, libc::O_PATH, 0)?;
    if status(inode.as_fd())?.file_type() == libc::S_IFLNK {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    let path = c_string(format!("/proc/self/fd/{}", inode.as_raw_fd()).as_bytes())?;
    // SAFETY: the path ends with NUL.
    check(unsafe { libc::chmod(path.as_ptr(), mode) })?;
    Ok(())
}

/// A file in `directory` without a name, which goes away when it is closed.
pub fn temporary_file(directory: &std::path::Path) -> io::Result<File> {
    use std::os::unix::ffi::OsStrExt;
    let path = c_string(directory.as_os_str().as_bytes())?;
    // SAFETY: the path ends with NUL.
    let descriptor = check(unsafe {
        libc::open(
            path.as_ptr(),
            libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC,
            0o600,
        )
    })?;
    // SAFETY: open returned a new descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
