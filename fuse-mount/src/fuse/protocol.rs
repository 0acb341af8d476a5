//! The kernel's FUSE protocol, version 7.45, as plain structs: what `include/uapi/linux/fuse.h`
//! defines, as far as this crate uses it.
//!
//! All integers are in the byte order of the machine, all structs are padded by hand so that
//! they have no hidden bytes. Older kernels send shorter forms of some; the lowest version spoken
//! here is [`MINOR_MINIMUM`], since which only SETXATTR and INIT changed their length.

#![expect(
    missing_docs,
    missing_debug_implementations,
    reason = "members are those of the kernel's structs; zerocopy derives helper types"
)]

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// Newest minor version known here.
pub const MINOR: u32 = 45;
/// Oldest minor version that is spoken (Linux 5.4).
pub const MINOR_MINIMUM: u32 = 31;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Set in the unique of a request that the kernel sends again.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// Length of the longest request without its data; the read buffer has this much besides.
pub const HEADER_ROOM_BYTES: usize = 4096;
/// Bytes of a directory entry besides its name.
pub const DIRECTORY_ENTRY_BYTES: usize = 24;
/// Bytes of a directory entry with attributes besides its name.
pub const DIRECTORY_ENTRY_PLUS_BYTES: usize = 152;

macro_rules! opcodes {
    ($($(#[$meta:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Opcode { $($(#[$meta])* $name = $value,)* }

        impl Opcode {
            /// The operation with this number, if it is known.
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($value => Some(Self::$name),)* _ => None }
            }

            /// Name in lower case, for logs and counters.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// All known operations.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    GetAttr = 3, "getattr";
    SetAttr = 4, "setattr";
    ReadLink = 5, "readlink";
    SymLink = 6, "symlink";
    MkNod = 8, "mknod";
    MkDir = 9, "mkdir";
    Unlink = 10, "unlink";
    RmDir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    StatFs = 17, "statfs";
    Release = 18, "release";
    FSync = 20, "fsync";
    SetXattr = 21, "setxattr";
    GetXattr = 22, "getxattr";
    ListXattr = 23, "listxattr";
    RemoveXattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    OpenDir = 27, "opendir";
    ReadDir = 28, "readdir";
    ReleaseDir = 29, "releasedir";
    FSyncDir = 30, "fsyncdir";
    GetLock = 31, "getlk";
    SetLock = 32, "setlk";
    SetLockWait = 33, "setlkw";
    Access = 34, "access";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    BlockMap = 37, "bmap";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    Poll = 40, "poll";
    NotifyReply = 41, "notify_reply";
    BatchForget = 42, "batch_forget";
    Allocate = 43, "fallocate";
    ReadDirPlus = 44, "readdirplus";
    Rename2 = 45, "rename2";
    Seek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    SetupMapping = 48, "setupmapping";
    RemoveMapping = 49, "removemapping";
    SyncFs = 50, "syncfs";
    TmpFile = 51, "tmpfile";
    StatX = 52, "statx";
    CopyFileRange64 = 53, "copy_file_range_64";
}

impl Opcode {
    /// The thread that asks does nothing else until it is answered. Not of those that the kernel
    /// may also send in the background, or expects no answer to.
    pub(super) fn is_waited_for(self) -> bool {
        !matches!(
            self,
            Self::Read
                | Self::Write
                | Self::Release
                | Self::ReleaseDir
                | Self::Forget
                | Self::BatchForget
                | Self::Interrupt
                | Self::Init
                | Self::Destroy
                | Self::NotifyReply
        )
    }
}

bitflags! {
    /// What kernel and daemon agree on in INIT; bits 32 to 63 travel in a second word.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads at a time.
        const ASYNC_READ = 1 << 0;
        /// POSIX locks go to the daemon.
        const POSIX_LOCKS = 1 << 1;
        /// OPEN truncates.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP understands `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The daemon applies the umask.
        const DONT_MASK = 1 << 6;
        /// flock goes to the daemon.
        const FLOCK_LOCKS = 1 << 10;
        /// Cached data is dropped when size or mtime changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS is known.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between READDIR and READDIRPLUS.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O may be asynchronous.
        const ASYNC_DIO = 1 << 15;
        /// Writes are cached.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to OPEN means: never ask again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of one directory run at the same time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The daemon clears set-id bits (first version).
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX ACLs are checked and cached by the kernel.
        const POSIX_ACL = 1 << 20;
        /// Reading an aborted connection gives ECONNABORTED.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of the answer counts.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to OPENDIR means: never ask again.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data is dropped only when the daemon says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The daemon clears set-id bits, and is told when.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR carries flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// The second word of flags is there.
        const INIT_EXT = 1 << 30;
        /// Creating requests carry a security context.
        const SECURITY_CTX = 1 << 32;
        /// DAX per inode.
        const HAS_INODE_DAX = 1 << 33;
        /// Creating requests carry a supplementary group.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// INVAL_ENTRY can expire only.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files opened for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Passthrough to backing files.
        const PASSTHROUGH = 1 << 37;
        /// No file handles for export.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// FUSE_NOTIFY_RESEND is known.
        const HAS_RESEND = 1 << 39;
        /// ID-mapped mounts.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests travel over io_uring.
        const OVER_IO_URING = 1 << 41;
        /// Requests have a time limit.
        const REQUEST_TIMEOUT = 1 << 42;

        const _ = !0;
    }
}

/// Which members of a [`SetAttrIn`] count.
pub mod set_attr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// [`OpenIn::open_flags`]: clear set-id bits of an executable file.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// [`OpenOut::open_flags`]: past the cache.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// [`OpenOut::open_flags`]: keep what is cached of the file.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// [`OpenOut::open_flags`]: keep the cached listing of the directory.
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// [`WriteIn::write_flags`]: the kernel writes its cache.
pub const WRITE_CACHE: u32 = 1 << 0;
/// [`WriteIn::write_flags`]: clear set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// [`FSyncIn::fsync_flags`]: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// [`SetXattrIn::setxattr_flags`]: an access ACL clears the set-gid bit.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// Notification: attributes and content of an inode.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// Notification: a name.
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
/// Notification: a name that is gone.
pub const NOTIFY_DELETE: i32 = 6;
/// Notification: send again what was not answered.
pub const NOTIFY_RESEND: i32 = 7;

macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
        )]
        #[repr(C)]
        pub struct $name { $(pub $field: $kind,)* }

        impl Default for $name {
            fn default() -> Self {
                <Self as zerocopy::FromZeros>::new_zeroed()
            }
        }
    )*};
}

wire! {
    /// Opens every request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    /// Opens every answer and notification.
    OutHeader { len: u32, error: i32, unique: u64, }
    /// Attributes.
    Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    /// Answer to LOOKUP and everything that makes a name.
    EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    /// FORGET.
    ForgetIn { nlookup: u64, }
    /// One inode of BATCH_FORGET.
    ForgetOne { nodeid: u64, nlookup: u64, }
    /// BATCH_FORGET.
    BatchForgetIn { count: u32, dummy: u32, }
    /// Answer to GETATTR and SETATTR.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    /// MKNOD.
    MkNodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// MKDIR.
    MkDirIn { mode: u32, umask: u32, }
    /// RENAME.
    RenameIn { newdir: u64, }
    /// RENAME2.
    Rename2In { newdir: u64, flags: u32, padding: u32, }
    /// LINK.
    LinkIn { oldnodeid: u64, }
    /// SETATTR.
    SetAttrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// OPEN and OPENDIR.
    OpenIn { flags: u32, open_flags: u32, }
    /// CREATE and TMPFILE.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// Answer to OPEN, second half of the answer to CREATE and TMPFILE.
    OpenOut { fh: u64, open_flags: u32, backing_id: i32, }
    /// READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// WRITE.
    WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// Answer to WRITE and COPY_FILE_RANGE.
    WriteOut { size: u32, padding: u32, }
    /// Answer to COPY_FILE_RANGE_64.
    CopyFileRangeOut { bytes_copied: u64, }
    /// Answer to STATFS.
    StatFsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// FSYNC and FSYNCDIR.
    FSyncIn { fh: u64, fsync_flags: u32, padding: u32, }
    /// SETXATTR without [`InitFlags::SETXATTR_EXT`].
    SetXattrShortIn { size: u32, flags: u32, }
    /// SETXATTR with [`InitFlags::SETXATTR_EXT`].
    SetXattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// GETXATTR and LISTXATTR.
    GetXattrIn { size: u32, padding: u32, }
    /// Their answer when only the length was asked for.
    GetXattrOut { size: u32, padding: u32, }
    /// First part of INIT, which every version sends.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// Answer to INIT.
    InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    /// INTERRUPT.
    InterruptIn { unique: u64, }
    /// FALLOCATE.
    AllocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// LSEEK.
    SeekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    /// Answer to LSEEK.
    SeekOut { offset: u64, }
    /// COPY_FILE_RANGE.
    CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    /// A directory entry, without the name that follows it.
    DirectoryEntryHead { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// FUSE_NOTIFY_INVAL_INODE.
    NotifyInode { ino: u64, off: i64, len: i64, }
    /// FUSE_NOTIFY_INVAL_ENTRY.
    NotifyEntry { parent: u64, namelen: u32, flags: u32, }
    /// FUSE_NOTIFY_DELETE.
    NotifyDelete { parent: u64, child: u64, namelen: u32, padding: u32, }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn structs_have_the_sizes_of_the_kernel() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<SetAttrIn>(), 88);
        assert_eq!(size_of::<ReadIn>(), 40);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<StatFsOut>(), 80);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<DirectoryEntryHead>(), DIRECTORY_ENTRY_BYTES);
        assert_eq!(
            size_of::<EntryOut>() + size_of::<DirectoryEntryHead>(),
            DIRECTORY_ENTRY_PLUS_BYTES
        );
    }

    #[test]
    fn operations_are_found_by_number() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(*opcode as u32), Some(*opcode));
        }
        assert_eq!(Opcode::from_number(7), None);
        assert_eq!(Opcode::from_number(4096), None);
    }
}
