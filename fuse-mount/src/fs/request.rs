//! Requests and answers of the filesystem in its own types: the seam between the semantics
//! (`fs`, which knows no kernel) and the transport (`fuse`, which knows no semantics).

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use workspace_store::object::Timestamp;

/// An error number of the operating system, as a request answers it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", nix::errno::Errno::from_raw(self.0))
    }
}

/// Why a request has no answer yet, or a bad one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The answer is this error.
    Errno(Errno),
    /// The request has to read or sync a disk: hand it to a worker, which repeats it with
    /// [`Mode::MayBlock`]. Nothing has been changed.
    WouldBlock,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

/// Whether the calling thread may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The dispatch thread: never blocks.
    Inline,
    /// A worker.
    MayBlock,
}

/// Who asks, and the request's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User, after the session's uid mapping.
    pub uid: u32,
    /// Group, after the session's gid mapping.
    pub gid: u32,
    /// User 0 of the host, before the mapping: may change a set-id program and leave it one.
    pub is_root: bool,
    /// Principal of the session, by its number in the filesystem; 0 is the filesystem's own.
    pub principal: u32,
    /// Process (thread) id in the daemon's pid namespace, 0 if unknown.
    pub pid: u32,
    /// Number of the request, without the resend bit; different in each connection.
    pub unique: u64,
    /// The kernel sent this request before, to a daemon that died; a mutation in the journal is
    /// answered from there and not repeated.
    pub is_resent: bool,
}

/// A new value of a time stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The current time of the daemon.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits (`07777`).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of a regular file.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; the kernel sends it under the writeback cache.
    pub ctime: Option<Timestamp>,
    /// Clear set-uid and set-gid bits, as a write by an unprivileged process does
    /// (FATTR_KILL_SUIDGID).
    pub kill_suid_gid: bool,
}

/// Attributes of an inode as `stat(2)` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileAttributes {
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// File type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `st_rdev`.
    pub rdev: u64,
}

/// The answer to a lookup: an inode the kernel knows from now on (its lookup count is raised).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of the inode, which is also the kernel's node id.
    pub inode: u64,
    /// Distinguishes two lives of one number; numbers are never reused, so it is 0.
    pub generation: u64,
    /// The inode's attributes.
    pub attributes: FileAttributes,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Number of the inode.
    pub inode: u64,
    /// Position after this entry: stable while other entries come and go.
    pub cookie: u64,
    /// File type bits of `st_mode` (`S_IFMT`).
    pub file_type: u32,
    /// Name, `.` and `..` included.
    pub name: Box<[u8]>,
    /// Attributes, if asked for (`plus`); then the kernel's lookup count is raised, except for
    /// `.` and `..`, which have none.
    pub entry: Option<Entry>,
}

/// One request to the filesystem.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the fields are those of the calls they are named after"
)]
pub enum Request<'a> {
    Lookup {
        parent: u64,
        name: &'a [u8],
    },
    /// Never answered.
    Forget {
        inode: u64,
        count: u64,
    },
    GetAttributes {
        inode: u64,
    },
    SetAttributes {
        inode: u64,
        changes: SetAttributes,
    },
    ReadLink {
        inode: u64,
    },
    /// `mode` carries the file type.
    MakeNode {
        parent: u64,
        name: &'a [u8],
        mode: u32,
        rdev: u64,
        umask: u32,
    },
    MakeDirectory {
        parent: u64,
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        parent: u64,
        name: &'a [u8],
    },
    RemoveDirectory {
        parent: u64,
        name: &'a [u8],
    },
    SymbolicLink {
        parent: u64,
        name: &'a [u8],
        target: &'a [u8],
    },
    /// `flags` as in renameat2(2).
    Rename {
        parent: u64,
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        inode: u64,
        new_parent: u64,
        new_name: &'a [u8],
    },
    /// `truncate` for O_TRUNC; only sent on connections that keep OPEN.
    Open {
        inode: u64,
        flags: u32,
        kill_suid_gid: bool,
    },
    Release {
        inode: u64,
    },
    Read {
        inode: u64,
        offset: u64,
        size: u32,
    },
    /// `from_cache`: the kernel writes back its cache; owner of the data unknown. `appends`: to the
    /// end of the file, wherever the kernel believes it to be.
    Write {
        inode: u64,
        offset: u64,
        data: &'a [u8],
        kill_suid_gid: bool,
        from_cache: bool,
        appends: bool,
    },
    StatFilesystem,
    Sync {
        inode: u64,
        data_only: bool,
    },
    SyncDirectory {
        inode: u64,
    },
    /// syncfs(2).
    SyncFilesystem,
    /// `flags`: XATTR_CREATE, XATTR_REPLACE. `clear_set_gid`: FUSE_SETXATTR_ACL_KILL_SGID.
    SetXattr {
        inode: u64,
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        clear_set_gid: bool,
    },
    /// `size` 0 asks for the length only.
    GetXattr {
        inode: u64,
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        inode: u64,
        size: u32,
    },
    RemoveXattr {
        inode: u64,
        name: &'a [u8],
    },
    /// Entries after `cookie` (0: from the start), as many as fit: each takes `overhead_bytes`
    /// plus its name, rounded up to 8, of `size`.
    ReadDirectory {
        inode: u64,
        cookie: u64,
        size: u32,
        overhead_bytes: u32,
        plus: bool,
    },
    /// Answered with [`Response::Entry`]. `flags` as in open(2).
    Create {
        parent: u64,
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: u32,
    },
    /// An inode without a name (O_TMPFILE). Answered with [`Response::Entry`].
    TemporaryFile {
        parent: u64,
        mode: u32,
        umask: u32,
        flags: u32,
    },
    /// `mode` as in fallocate(2).
    Allocate {
        inode: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    /// SEEK_DATA and SEEK_HOLE only.
    Seek {
        inode: u64,
        offset: u64,
        whence: u32,
    },
    CopyRange {
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
    },
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// Done, nothing to say.
    Empty,
    /// Lookup and everything that makes a name.
    Entry(Entry),
    /// Attributes.
    Attributes(FileAttributes),
    /// Bytes: a link's target, content, an attribute's value, a list of attributes.
    Data(Vec<u8>),
    /// Bytes written or copied.
    Count(u64),
    /// Length of an attribute's value or of the list of attributes.
    XattrSize(u32),
    /// A position in a file.
    Offset(u64),
    /// Entries of a directory; empty at its end.
    Directory(Vec<DirectoryEntry>),
    /// Sizes of the filesystem.
    StatFilesystem(FilesystemStatistics),
}

/// Sizes of the filesystem, as statfs(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the fields are those of statvfs(3)")]
pub struct FilesystemStatistics {
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_size: u32,
    pub name_max_bytes: u32,
}

/// Something the kernel must forget because it changed behind its back. Sent by a thread of its
/// own, never by one that serves requests: the kernel may wait for a lock that a request holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "the fields are those of the kernel's notifications"
)]
pub enum Notification {
    /// The name in this directory stands for something else now (FUSE_NOTIFY_INVAL_ENTRY).
    Entry { parent: u64, name: Box<[u8]> },
    /// The name is gone; watchers of the directory are told (FUSE_NOTIFY_DELETE).
    Delete {
        parent: u64,
        child: u64,
        name: Box<[u8]>,
    },
    /// Attributes, and cached content from `offset` for `length` bytes (0: to the end, negative
    /// offset: attributes only), are out of date (FUSE_NOTIFY_INVAL_INODE).
    Inode {
        inode: u64,
        offset: i64,
        length: i64,
    },
}

/// What kernels must forget because of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// The kernels of all other sessions, before the request is answered.
    pub others: Vec<Notification>,
    /// The kernel of the session that asked, after its answer.
    pub own: Vec<Notification>,
}

impl Changed {
    /// Whether no kernel has anything to forget.
    pub fn is_empty(&self) -> bool {
        self.others.is_empty() && self.own.is_empty()
    }
}

/// An answer that is kept back: it is given when the last of these is dropped.
pub type HeldAnswer = Arc<dyn Send + Sync>;

/// What programs watch in a session's mount (inotify, fanotify).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// All of it.
    pub everything: bool,
    /// These inodes; who watches a directory hears of the names in it.
    pub inodes: HashSet<u64>,
}

/// Something that changed behind the kernel's back, for those who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Path of the directory from the root, without a slash at its start.
    pub directory: Vec<u8>,
    /// Its inode.
    pub parent: u64,
    /// The name in it; empty for the directory itself.
    pub name: Box<[u8]>,
    /// What happened.
    pub happening: Happening,
}

/// What happened in an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they are")]
pub enum Happening {
    /// The name does not stand for this inode any more.
    Removed {
        child: u64,
        file_type: u32,
        replaced_by: Option<u64>,
    },
    /// The name stands for this inode now. `mode` carries the file type.
    Created { child: u64, mode: u32 },
    /// Attributes of the directory itself; `mode` are its permissions.
    Attributes { mode: u32 },
}

/// A kernel connection that shows the filesystem, as the filesystem sees it.
pub trait KernelSession: Send + Sync {
    /// Where it is mounted.
    fn mountpoint(&self) -> PathBuf;

    /// Makes the kernel write back everything it holds (syncfs on the mount). May block for
    /// long, and must not hang for ever when the daemon is killed meanwhile.
    fn flush(&self) -> std::io::Result<()>;

    /// Makes programs wait that write to these inodes or change their attributes, except through
    /// shared mappings, until [`KernelSession::release_writers`]. Adds to those held already.
    ///
    /// # Errors
    /// The session can't do that; some may be held all the same.
    fn hold_writers(&self, inodes: &[u64]) -> std::io::Result<()>;

    /// Lets all held writers go on.
    fn release_writers(&self);

    /// Makes programs wait that make, remove or rename files, until
    /// [`KernelSession::release_names`].
    fn hold_names(&self);

    /// Lets those go on, after doing in the calling thread what they asked for.
    fn release_names(&self);

    /// Makes the kernel write back what it holds of one regular file. May block for long; needs
    /// nothing but answers to the writes.
    fn flush_file(&self, inode: u64) -> std::io::Result<()>;

    /// Queues a notification; returns at once.
    fn notify(&self, notification: Notification);

    /// Queues what another session has changed; returns at once. The answer is let go when the
    /// kernel was told, or when that takes too long.
    fn tell(&self, changed: &[Notification], answer: &HeldAnswer);

    /// Makes the kernel ask for an inode's attributes again, before it returns. Takes no lock in
    /// the kernel that a request could hold, so any thread may call it.
    fn refresh_attributes(&self, inode: u64);

    /// What is watched in the mount. Takes milliseconds.
    fn watched(&self) -> Watched;

    /// Makes those who watch hear of events, after the kernel was told what was queued before.
    /// Changes nothing in the filesystem. Waits, for a limited time, for calls on the mount: not to
    /// be called with a lock that a request needs, nor by what serves requests.
    fn announce(&self, events: &[Event]);
}
