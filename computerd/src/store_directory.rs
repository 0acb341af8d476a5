//! Where things are in a store's directory, and the lock that makes one daemon own it.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use computerd_api::process::is_alive;
use nix::fcntl::{FcntlArg, fcntl};

use crate::error::{Error, ErrorKind, Result};

/// How long a daemon whose keeper is dead may take to end.
const DYING_DAEMON_TIMEOUT: Duration = Duration::from_secs(20);
/// How long somebody may have the lock who only looks whether there is a daemon.
const LOOK_TIMEOUT: Duration = Duration::from_millis(200);
const DYING_DAEMON_PAUSE: Duration = Duration::from_millis(20);

/// The directory of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDirectory(PathBuf);

impl StoreDirectory {
    /// The directory that `flag` names, else `KURA_STORE`, else `kura` in the user's data
    /// directory.
    ///
    /// # Errors
    /// If nothing names one.
    pub fn choose(flag: Option<PathBuf>) -> Result<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let chosen = flag
            .or_else(|| variable("KURA_STORE").map(PathBuf::from))
            .or_else(|| variable("XDG_DATA_HOME").map(|home| Path::new(&home).join("kura")))
            .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".local/share/kura")));
        match chosen {
            Some(path) => {
                Ok(Self(std::path::absolute(path).map_err(|error| {
                    Error::io("find the working directory", error)
                })?))
            }
            None => Err(Error::new(
                ErrorKind::InvalidInput,
                "no store was named, and HOME is not set",
            )
            .with_hint("name one with --store DIR or KURA_STORE")),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join(computerd_api::SOCKET_NAME)
    }

    /// The socket for principals with tokens.
    pub fn agents_socket(&self) -> PathBuf {
        self.0.join(computerd_api::AGENTS_SOCKET_NAME)
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.0.join(computerd_api::LOG_NAME)
    }

    /// The file with the process id, which is also the lock.
    pub fn pid_file(&self) -> PathBuf {
        self.0.join(computerd_api::PID_NAME)
    }

    /// The key that heads of the audit log are signed with.
    pub fn audit_key(&self) -> PathBuf {
        self.0.join("audit.key")
    }

    /// Definitions of Docker volumes.
    pub fn volumes_file(&self) -> PathBuf {
        self.0.join("volumes.json")
    }

    /// Where the volume driver mounts.
    pub fn mounts(&self) -> PathBuf {
        self.0.join("mounts")
    }

    /// Journal and data of a mounted branch. The name of a branch may hold any character, so its
    /// hash stands for it.
    pub fn overlay(&self, workspace_id: impl std::fmt::Display, branch: &str) -> PathBuf {
        let hash = workspace_store::id::to_hex(&blake3::hash(branch.as_bytes()).as_bytes()[..8]);
        self.0
            .join("overlay")
            .join(format!("{workspace_id}-{hash}"))
    }

    /// Makes the directory and those within it that are missing, for the owner only; the one of
    /// the agents' socket for whoever gets to it.
    pub fn create(&self) -> Result<()> {
        let agents = self.agents_socket().with_file_name("");
        for (path, mode) in [
            (self.0.clone(), 0o700),
            (self.0.join("log"), 0o700),
            (self.0.join("overlay"), 0o700),
            (agents, 0o755),
        ] {
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(&path)
                .map_err(|error| {
                    Error::io(format!("create directory {}", path.display()), error)
                        .with_hint("choose another place with --store DIR or KURA_STORE")
                })?;
        }
        Ok(())
    }

    /// Takes the lock of the store and writes this process's id to it. The lock lives as long as
    /// any process that has the descriptor, so a worker that outlives its keeper still has it.
    ///
    /// Waits for the end of a daemon whose keeper is dead: its worker is about to follow.
    ///
    /// # Errors
    /// `Busy` if another daemon has it.
    pub fn lock(&self) -> Result<OwnedFd> {
        let path = self.pid_file();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| Error::io(format!("open {}", path.display()), error))?;
        let mut owner = String::new();
        file.read_to_string(&mut owner)
            .map_err(|error| Error::io(format!("read {}", path.display()), error))?;
        let keeper = owner.trim().parse();
        let start = Instant::now();
        let mut result = file.try_lock();
        while matches!(result, Err(TryLockError::WouldBlock)) {
            let is_kept = keeper.as_ref().is_ok_and(|pid| is_alive(*pid));
            let timeout = if is_kept {
                LOOK_TIMEOUT
            } else {
                DYING_DAEMON_TIMEOUT
            };
            if start.elapsed() >= timeout {
                break;
            }
            std::thread::sleep(DYING_DAEMON_PAUSE);
            result = file.try_lock();
        }
        match result {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!(
                        "store {} is served by another computerd (pid {})",
                        self.0.display(),
                        owner.trim()
                    ),
                )
                .with_hint(
                    "verbs of kura use it by themselves; `kura daemon stop` ends it, and \
                     `kura daemon logs` says what it does",
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(Error::io(format!("lock {}", path.display()), error));
            }
        }
        write_pid(&file).map_err(|error| Error::io(format!("write {}", path.display()), error))?;
        // The copy shares the lock; numbers below 10 are left to what a worker is started with.
        let number = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(10))
            .map_err(|errno| Error::io("keep the lock", errno.into()))?;
        // SAFETY: the kernel has just made this descriptor; nobody else knows its number.
        Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) })
    }
}

fn write_pid(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Replaces a file as a whole: readers see the old or the new content, also after a power loss.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or(OsStr::new("file")).to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_has_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let store = StoreDirectory(directory.path().to_owned());
        store.create().unwrap();
        let lock = store.lock().unwrap();
        let error = store.lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let pid = std::process::id().to_string();
        assert!(error.message().contains(&pid), "{error:?}");
        drop(lock);
        store.lock().unwrap();
    }

    #[test]
    fn the_end_of_a_daemon_without_a_keeper_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let store = StoreDirectory(directory.path().to_owned());
        store.create().unwrap();
        let lock = store.lock().unwrap();
        let mut keeper = std::process::Command::new("true").spawn().unwrap();
        let pid = keeper.id().to_string();
        keeper.wait().unwrap();
        std::fs::write(store.pid_file(), pid).unwrap();
        let worker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(lock);
        });
        store.lock().unwrap();
        worker.join().unwrap();
    }

    #[test]
    fn branches_with_any_name_have_their_own_directory() {
        let store = StoreDirectory("/s".into());
        let overlay = store.overlay(3, "fix/a b");
        assert_eq!(overlay.parent().unwrap(), Path::new("/s/overlay"));
        assert_ne!(overlay, store.overlay(3, "fix/a_b"));
        assert_ne!(overlay, store.overlay(4, "fix/a b"));
    }
}
