//! INIT: what kernel and daemon agree on for the life of a connection.

use serde::{Deserialize, Serialize};

use super::decode::InitRequest;
use super::options::{ReadDirectoryPlus, SessionOptions};
use super::protocol::{InitFlags, InitOut, MAJOR, MINOR, MINOR_MINIMUM};

/// Result of INIT; recorded, so that another process can serve the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    /// Minor version in use.
    pub minor: u32,
    /// Features in use, both words.
    pub flags: u64,
    /// Read ahead at most.
    pub max_readahead_bytes: u32,
    /// Longest WRITE.
    pub max_write_bytes: u32,
    /// Asynchronous requests at a time.
    pub max_background: u16,
    /// Number of those from which the kernel holds back.
    pub congestion_threshold: u16,
}

/// Versions do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MINIMUM} (Linux 5.4) is the oldest \
     that works"
)]
pub struct UnsupportedVersion {
    /// The kernel's major version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
}

impl Negotiated {
    /// Chooses from the kernel's offer.
    ///
    /// # Errors
    /// The kernel is too old.
    pub fn choose(
        offer: &InitRequest,
        options: &SessionOptions,
    ) -> Result<Self, UnsupportedVersion> {
        if offer.major != MAJOR || offer.minor < MINOR_MINIMUM {
            return Err(UnsupportedVersion {
                major: offer.major,
                minor: offer.minor,
            });
        }
        let offered = InitFlags::from_bits_retain(offer.flags);
        let has_second_word = offered.contains(InitFlags::INIT_EXT);
        let mut flags = wanted(options) & offered;
        if !has_second_word {
            flags &= InitFlags::from_bits_retain(0xffff_ffff);
        }
        let page = page_size_bytes();
        // Without MAX_PAGES the kernel never sends more than 32 pages.
        let most = if flags.contains(InitFlags::MAX_PAGES) {
            options.max_write_bytes.max(page)
        } else {
            32 * page
        };
        Ok(Self {
            minor: offer.minor.min(MINOR),
            flags: flags.bits(),
            max_readahead_bytes: offer.max_readahead_bytes,
            max_write_bytes: most.min(options.max_write_bytes).max(page),
            max_background: options.max_background,
            congestion_threshold: options.congestion_threshold,
        })
    }

    /// Whether a feature is in use.
    pub fn has(&self, flag: InitFlags) -> bool {
        InitFlags::from_bits_retain(self.flags).contains(flag)
    }

    /// The answer to INIT that says so.
    pub fn answer(&self) -> InitOut {
        InitOut {
            major: MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead_bytes,
            flags: self.flags as u32,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write: self.max_write_bytes,
            time_gran: 1,
            max_pages: self.max_write_bytes.div_ceil(page_size_bytes()) as u16,
            flags2: (self.flags >> 32) as u32,
            ..InitOut::default()
        }
    }
}

/// The features to ask for. Left alone on purpose: the lock flags (locks stay in the kernel),
/// AUTO_INVAL_DATA (what changes behind the kernel's back is told to it), ATOMIC_O_TRUNC and
/// ABORT_ERROR, CREATE_SUPP_GROUP (the kernel clears set-gid bits of new files by itself, before
/// it asks), io_uring (its requests cannot be resent) and ID-mapped mounts.
fn wanted(options: &SessionOptions) -> InitFlags {
    let mut flags = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::MAX_PAGES
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT
        | InitFlags::HAS_RESEND
        | InitFlags::NO_OPENDIR_SUPPORT;
    flags.set(InitFlags::NO_OPEN_SUPPORT, !options.keep_open);
    flags.set(InitFlags::WRITEBACK_CACHE, options.writeback_cache);
    flags.set(InitFlags::DIRECT_IO_ALLOW_MMAP, !options.writeback_cache);
    flags.set(
        InitFlags::POSIX_ACL | InitFlags::DONT_MASK,
        options.posix_acl,
    );
    match options.read_directory_plus {
        ReadDirectoryPlus::Never => {}
        ReadDirectoryPlus::Automatic => {
            flags |= InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO;
        }
        ReadDirectoryPlus::Always => flags |= InitFlags::DO_READDIRPLUS,
    }
    flags
}

fn page_size_bytes() -> u32 {
    // SAFETY: sysconf has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minor: u32, flags: InitFlags) -> InitRequest {
        InitRequest {
            major: 7,
            minor,
            max_readahead_bytes: 131_072,
            flags: flags.bits(),
        }
    }

    #[test]
    fn asks_for_nothing_that_was_not_offered() {
        let options = SessionOptions::default();
        let all = InitFlags::from_bits_retain(!0);
        let chosen = Negotiated::choose(&offer(45, all), &options).unwrap();
        assert_eq!(chosen.minor, 45);
        assert_eq!(chosen.max_write_bytes, 1 << 20);
        assert_eq!(chosen.answer().max_pages, 256);
        assert_eq!(chosen.answer().time_gran, 1);
        assert_eq!(chosen.answer().flags2, 1 << 7, "only RESEND");
        for absent in [
            InitFlags::POSIX_LOCKS,
            InitFlags::FLOCK_LOCKS,
            InitFlags::OVER_IO_URING,
            InitFlags::ALLOW_IDMAP,
            InitFlags::AUTO_INVAL_DATA,
            InitFlags::HAS_INODE_DAX,
        ] {
            assert!(!chosen.has(absent), "{absent:?}");
        }

        let old = InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::HAS_RESEND;
        let chosen = Negotiated::choose(&offer(31, old), &options).unwrap();
        assert_eq!(chosen.minor, 31);
        assert_eq!(
            chosen.flags,
            (InitFlags::ASYNC_READ | InitFlags::BIG_WRITES).bits(),
            "no second word without INIT_EXT"
        );
        assert_eq!(chosen.max_write_bytes, 32 * page_size_bytes());
    }

    #[test]
    fn newer_kernels_are_answered_with_our_version_and_old_ones_refused() {
        let options = SessionOptions::default();
        let none = InitFlags::empty();
        let chosen = Negotiated::choose(&offer(60, none), &options).unwrap();
        assert_eq!(chosen.minor, 45);
        assert!(Negotiated::choose(&offer(30, none), &options).is_err());
        let mut foreign = offer(45, none);
        foreign.major = 8;
        assert!(Negotiated::choose(&foreign, &options).is_err());
    }

    #[test]
    fn options_choose_the_features() {
        let all = InitFlags::from_bits_retain(!0);
        let options = SessionOptions {
            writeback_cache: false,
            keep_open: true,
            posix_acl: false,
            read_directory_plus: ReadDirectoryPlus::Automatic,
            ..SessionOptions::default()
        };
        let chosen = Negotiated::choose(&offer(45, all), &options).unwrap();
        assert!(!chosen.has(InitFlags::WRITEBACK_CACHE));
        assert!(!chosen.has(InitFlags::NO_OPEN_SUPPORT));
        assert!(!chosen.has(InitFlags::POSIX_ACL));
        assert!(chosen.has(InitFlags::DO_READDIRPLUS));
        assert!(chosen.has(InitFlags::READDIRPLUS_AUTO));
        let chosen = Negotiated::choose(&offer(45, all), &SessionOptions::default()).unwrap();
        assert!(chosen.has(InitFlags::DO_READDIRPLUS));
        assert!(!chosen.has(InitFlags::READDIRPLUS_AUTO));
    }
}
