//! Options of a mount, and the state of a session that another process needs to take it over.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::init::Negotiated;
use super::uid_map::IdMap;

/// When listings carry attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadDirectoryPlus {
    /// Never.
    Never,
    /// When the kernel expects them to be used: the first part of a listing, at least.
    Automatic,
    /// Always: programs that list a directory mostly want to know or open what is in it.
    #[default]
    Always,
}

/// Options of one mount. The defaults are those of the `cached` profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionOptions {
    /// Name of the session, unique in the daemon; empty: the mountpoint.
    pub id: String,
    /// Source shown in the list of mounts.
    pub source: String,
    /// The type shown in the list of mounts is `fuse.SUBTYPE`; `fuse` without.
    pub subtype: Option<String>,
    /// Refuse every change.
    pub read_only: bool,
    /// Other users may use the mount.
    pub allow_other: bool,
    /// The kernel checks permission bits and ACLs.
    pub default_permissions: bool,
    /// Set-id bits and device nodes work, as on a local filesystem (root only).
    pub allow_suid_and_devices: bool,
    /// Writes stay in the kernel until it writes them back.
    pub writeback_cache: bool,
    /// Send OPEN and RELEASE to the filesystem.
    pub keep_open: bool,
    /// POSIX ACLs.
    pub posix_acl: bool,
    /// Extended attributes at all; without, the first write to a file saves a round trip.
    pub xattrs: bool,
    /// When listings carry attributes.
    pub read_directory_plus: ReadDirectoryPlus,
    /// How long the kernel believes names.
    pub entry_timeout_milliseconds: u64,
    /// How long the kernel believes attributes.
    pub attribute_timeout_milliseconds: u64,
    /// How long the kernel believes that a name does not exist; 0: not at all.
    pub negative_timeout_milliseconds: u64,
    /// Threads for requests that wait for a disk.
    pub worker_threads: usize,
    /// Longest READ and WRITE.
    pub max_write_bytes: u32,
    /// Asynchronous requests at a time.
    pub max_background: u16,
    /// Number of those from which the kernel holds back.
    pub congestion_threshold: u16,
    /// Mount over a directory that has entries.
    pub allow_non_empty: bool,
    /// Take away a dead mount that is in the way.
    pub repair: bool,
    /// Wait this long for the end after unmounting, then abort the connection.
    pub unmount_timeout_milliseconds: u64,
    /// Translation of users.
    pub uid_map: IdMap,
    /// Translation of groups.
    pub gid_map: IdMap,
}

impl SessionOptions {
    /// Lets other connections change the same files: what is written goes through at once, and
    /// the filesystem hears of every open. Where nothing is written, it need not.
    pub fn shared(self) -> Self {
        Self {
            writeback_cache: false,
            keep_open: !self.read_only,
            ..self
        }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        const HOUR_MILLISECONDS: u64 = 3_600_000;
        Self {
            id: String::new(),
            source: "kura".to_owned(),
            subtype: None,
            read_only: false,
            allow_other: true,
            default_permissions: true,
            allow_suid_and_devices: true,
            writeback_cache: true,
            keep_open: false,
            posix_acl: true,
            xattrs: true,
            read_directory_plus: ReadDirectoryPlus::Always,
            entry_timeout_milliseconds: HOUR_MILLISECONDS,
            attribute_timeout_milliseconds: HOUR_MILLISECONDS,
            negative_timeout_milliseconds: HOUR_MILLISECONDS,
            worker_threads: 4,
            max_write_bytes: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            allow_non_empty: false,
            repair: false,
            unmount_timeout_milliseconds: 10_000,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
        }
    }
}

/// Everything that a process needs, besides the device, to take over a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// Absolute path of the mountpoint.
    pub mountpoint: PathBuf,
    /// Options of the mount, `id` filled in.
    pub options: SessionOptions,
    /// Result of INIT, once it was answered.
    pub negotiated: Option<Negotiated>,
    /// The mount was made by `fusermount3`, which also has to take it away.
    pub by_helper: bool,
}
