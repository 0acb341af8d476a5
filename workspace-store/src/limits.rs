//! Every limit of the store, with the unit in its name.

/// Longest name of a directory entry, as on Linux.
pub const NAME_MAX_BYTES: usize = 255;
/// Longest target of a symbolic link, as on Linux.
pub const SYMLINK_TARGET_MAX_BYTES: usize = 4095;
/// Longest value of an extended attribute, as on Linux.
pub const XATTR_VALUE_MAX_BYTES: usize = 64 * 1024;
/// Files up to this size are stored as one chunk.
pub const WHOLE_FILE_MAX_BYTES: usize = 64 * 1024;
/// Smallest content-defined chunk, but for a file's last one.
pub const CHUNK_MIN_BYTES: usize = 16 * 1024;
/// Average size of content-defined chunks that is aimed at.
pub const CHUNK_AVERAGE_BYTES: usize = 64 * 1024;
/// Largest chunk.
pub const CHUNK_MAX_BYTES: usize = 256 * 1024;
/// Largest decoded size of a directory node; anything above is refused as hostile or broken.
pub const TREE_NODE_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Largest decoded size of the list of paths that a commit changed.
pub const CHANGE_LIST_MAX_BYTES: usize = 1024 * 1024 * 1024;
/// A directory with up to so many entries is one node.
pub const DIRECTORY_NODE_MAX_ENTRIES: usize = 256;
/// Memory for decompressed chunks.
pub const CHUNK_CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// Memory for chunk lists of large files.
pub const MANIFEST_CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Memory for decoded directory nodes.
pub const TREE_NODE_CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// New objects are written in groups of about this many bytes.
pub const OBJECT_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// New objects are written in groups of at most this many.
pub const OBJECT_BATCH_COUNT: usize = 512;
/// The write-ahead log is copied into the database when it grows beyond this.
pub const WRITE_AHEAD_LOG_BYTES: u64 = 32 * 1024 * 1024;
/// Jobs that one transaction takes at most.
pub const JOBS_PER_TRANSACTION: usize = 64;
/// Read connections that are kept open.
pub const READ_CONNECTIONS_KEPT: usize = 8;
/// Longest name of a workspace, branch, tag or setting.
pub const REF_NAME_MAX_BYTES: usize = 100;
/// Longest value of a setting.
pub const SETTING_VALUE_MAX_BYTES: usize = 64 * 1024;
/// Shortest prefix of a commit's id that is looked up.
pub const ID_PREFIX_MIN_DIGITS: usize = 4;
/// Space on the disk that content is not stored into: what makes a commit of deletions still fits.
pub const DISK_HEADROOM_BYTES: u64 = 32 << 20;
