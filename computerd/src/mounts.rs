//! What is mounted: one [`Filesystem`] for each live branch (or shown commit), shared by all of
//! its mounts, and a kernel session for all mounts that are the same to the kernel: each but the
//! first is a bind mount, so that they share its cache and locks.
//!
//! Locks: `changing` is held for writing while a mount is made or ended, and for reading while a
//! verb works on a filesystem, so that it is not closed meanwhile; `table` is held for moments.
//! Mounts are recorded nowhere but in the keeper's memory: a new worker learns of them from there.

mod beside;
mod commit_source;
mod grants;
mod record;
mod resume;
mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use computerd_api::v1::MountInfo;
use fuse_mount::fs::{CommitPolicy, Filesystem, FilesystemOptions, FilesystemSession};
use fuse_mount::fuse::mount::find_mount;
use fuse_mount::fuse::{FlushHelper, Session};
use fuse_mount::process::Processes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use workspace_store::object::{CommitKind, Timestamp};
use workspace_store::workspace::WorkspaceInfo;
use workspace_store::{CommitId, WorkspaceId};

use crate::containers::run_of_container;
use crate::convert;
use crate::daemon::{Daemon, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::config;
use commit_source::CommitSource;
pub use record::{MountRecord, View};

/// Author of commits that nobody asked for, when no mount names a principal.
const NOBODY: &str = "computerd";

/// How long the kernel may take to be told what has changed behind it.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Which filesystem.
type Key = (WorkspaceId, View);

/// What a mount is to be.
#[derive(Debug, Clone)]
pub struct MountParameters {
    /// Workspace.
    pub workspace: WorkspaceInfo,
    /// Branch or commit.
    pub view: View,
    /// Directory.
    pub mountpoint: PathBuf,
    /// Principal of the session.
    pub principal: String,
    /// Refuse every change.
    pub read_only: bool,
    /// Let other users in.
    pub allow_other: bool,
    /// Users on the host and in the store.
    pub uid_map: fuse_mount::fuse::uid_map::IdMap,
    /// Groups on the host and in the store.
    pub gid_map: fuse_mount::fuse::uid_map::IdMap,
    /// Name of the profile.
    pub profile: String,
    /// Clear a dead mount of anybody first; our own are cleared in any case.
    pub repair: bool,
    /// The Docker volume that it is for.
    pub volume: Option<String>,
}

/// What became of a mount that ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What it was.
    pub record: MountRecord,
    /// The newest commit.
    pub commit: CommitId,
    /// Whether there was something to commit.
    pub is_new: bool,
}

#[derive(Debug, Clone)]
struct Mounted {
    record: MountRecord,
    session: Arc<Session>,
    handler: Arc<FilesystemSession>,
    filesystem: Arc<Filesystem>,
}

#[derive(Debug, Default)]
struct Table {
    filesystems: BTreeMap<Key, Arc<Filesystem>>,
    mounts: BTreeMap<u64, Mounted>,
    next_id: u64,
}

impl Table {
    /// Another place of the session that a mount is one place of.
    fn other_place(&self, mounted: &Mounted) -> Option<PathBuf> {
        let own = &mounted.record.mountpoint;
        let is_other = |other: &&Mounted| {
            Arc::ptr_eq(&other.session, &mounted.session) && other.record.mountpoint != *own
        };
        let other = self.mounts.values().find(is_other)?;
        Some(other.record.mountpoint.to_path())
    }

    /// Mounts that others have ended. A session tells by itself, one of its several places does
    /// not.
    fn ended(&self) -> Vec<u64> {
        let has_ended = |mounted: &Mounted| {
            mounted.session.has_ended()
                || (self.other_place(mounted).is_some()
                    && matches!(find_mount(&mounted.record.mountpoint.to_path()), Ok(None)))
        };
        self.mounts
            .iter()
            .filter_map(|(id, mounted)| has_ended(mounted).then_some(*id))
            .collect()
    }
}

/// All mounts of the store.
#[derive(Debug)]
pub struct Mounts {
    changing: RwLock<()>,
    table: Mutex<Table>,
    /// Taken before `table`, while policies are looked up and set: an older one must not come last.
    applying: Mutex<()>,
    flush_helper: Arc<FlushHelper>,
    /// Finds out who does something.
    pub processes: Arc<Processes>,
}

impl Mounts {
    /// Nothing is mounted. `program` is started for flushes.
    pub fn new(program: &Path) -> Self {
        Self {
            changing: RwLock::new(()),
            table: Mutex::new(Table::default()),
            applying: Mutex::new(()),
            flush_helper: Arc::new(FlushHelper::new(program, vec!["flush-helper".into()])),
            processes: Arc::new(Processes::new(Some(Box::new(run_of_container)))),
        }
    }

    /// While this is held no filesystem is opened or closed.
    pub fn hold_still(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read()
    }

    /// The filesystem of a branch that is mounted.
    pub fn filesystem(&self, workspace: WorkspaceId, branch: &str) -> Option<Arc<Filesystem>> {
        let key = (workspace, View::Branch(branch.to_owned()));
        self.table.lock().filesystems.get(&key).cloned()
    }

    /// The live branches with their filesystems.
    pub fn live(&self) -> Vec<(WorkspaceId, String, Arc<Filesystem>)> {
        let table = self.table.lock();
        table
            .filesystems
            .iter()
            .filter_map(|((workspace, view), filesystem)| match view {
                View::Branch(branch) => Some((*workspace, branch.clone(), filesystem.clone())),
                View::Commit(_) => None,
            })
            .collect()
    }

    /// Waits until the kernel knows what has changed behind it in a branch's mounts, so that who is
    /// answered afterwards sees it.
    pub fn wait_until_seen(&self, workspace: WorkspaceId, branch: &str) {
        let sessions: Vec<Arc<Session>> = {
            let table = self.table.lock();
            let is_meant = |mounted: &&Mounted| {
                mounted.record.workspace_id == workspace
                    && matches!(&mounted.record.view, View::Branch(name) if name == branch)
            };
            let mounts = table.mounts.values().filter(is_meant);
            mounts.map(|mounted| mounted.session.clone()).collect()
        };
        for session in sessions {
            if !session.wait_for_notifications(NOTIFICATION_TIMEOUT) {
                let mountpoint = session.mountpoint();
                tracing::warn!(
                    ?mountpoint,
                    "the kernel is slow to take in what has changed"
                );
            }
        }
    }

    /// All mounts, by mountpoint.
    pub fn list(&self) -> Vec<MountInfo> {
        let table = self.table.lock();
        let mut mounts: Vec<MountInfo> = table.mounts.values().map(info).collect();
        mounts.sort_by(|left, right| left.mountpoint.cmp(&right.mountpoint));
        mounts
    }

    /// The mount that serves a Docker volume.
    pub fn of_volume(&self, volume: &str) -> Option<MountInfo> {
        let table = self.table.lock();
        table
            .mounts
            .values()
            .find(|mounted| mounted.record.volume.as_deref() == Some(volume))
            .map(info)
    }

    /// Mounts; returns when it is usable. The same mount again is no error: the second value says
    /// whether it was there already.
    ///
    /// # Errors
    /// What is wrong with the mountpoint, the workspace or the system; nothing is left mounted.
    pub fn mount(
        &self,
        daemon: &Daemon,
        mut parameters: MountParameters,
    ) -> Result<(MountInfo, bool)> {
        let _changing = self.changing.write();
        self.reap_ended(daemon);
        parameters.mountpoint = session::absolute_mountpoint(&parameters.mountpoint)?;
        {
            let table = self.table.lock();
            let wanted = convert::path_text(&parameters.mountpoint);
            let existing = table
                .mounts
                .values()
                .find(|mounted| mounted.record.mountpoint == wanted);
            if let Some(mounted) = existing {
                if mounted.record.is_same(&parameters) {
                    return Ok((info(mounted), true));
                }
                return Err(session::taken(&mounted.record));
            }
            let inside = table.mounts.values().find(|mounted| {
                parameters
                    .mountpoint
                    .starts_with(mounted.session.mountpoint())
            });
            if let Some(mounted) = inside {
                return Err(session::inside(&parameters.mountpoint, &mounted.record));
            }
        }
        let key = (parameters.workspace.id, parameters.view.clone());
        let filesystem = self.open(daemon, &key, &parameters.principal, false)?;
        let id = {
            let mut table = self.table.lock();
            table.next_id += 1;
            table.next_id
        };
        let is_read_only = parameters.read_only || filesystem.is_read_only();
        let shared = {
            let table = self.table.lock();
            table
                .mounts
                .iter()
                .find(|(_, mounted)| mounted.record.can_be_shared(&parameters, is_read_only))
                .map(|(id, mounted)| (*id, mounted.clone()))
        };
        let started = match shared {
            Some((shared_id, mounted)) => {
                let place = (shared_id, &mounted.record, &*mounted.session);
                session::share(daemon, id, parameters, place).map(|record| session::Started {
                    record,
                    session: mounted.session,
                    handler: mounted.handler,
                })
            }
            None => self
                .make_room(daemon, &key, &filesystem, is_read_only)
                .and_then(|()| self.is_shared(daemon, &key, &parameters.principal))
                .and_then(|is_shared| {
                    session::start(self, daemon, id, parameters, &filesystem, is_shared)
                }),
        };
        match started {
            Ok(session::Started {
                record,
                session,
                handler,
            }) => {
                let mut table = self.table.lock();
                tracing::info!(mountpoint = ?record.mountpoint, workspace = record.workspace,
                    view = %record.view, "mounted");
                let mounted = Mounted {
                    record,
                    session,
                    handler,
                    filesystem,
                };
                let info = info(&mounted);
                table.mounts.insert(id, mounted);
                drop(table);
                // They may have changed while the kernel mounted it.
                self.apply_grants(&daemon.store);
                Ok((info, false))
            }
            Err(error) => {
                self.close_unused(daemon, &key);
                Err(error)
            }
        }
    }

    /// Commits, then ends the mount at this path.
    ///
    /// # Errors
    /// `NotFound` if we have no mount there; `Busy` if it is in use and `is_lazy` is not set: then
    /// it stays mounted.
    pub fn unmount(&self, daemon: &Daemon, mountpoint: &Path, is_lazy: bool) -> Result<Ended> {
        let _changing = self.changing.write();
        self.reap_ended(daemon);
        let wanted = convert::path_text(&session::absolute_mountpoint(mountpoint)?);
        let id = {
            let table = self.table.lock();
            table
                .mounts
                .iter()
                .find(|(_, mounted)| mounted.record.mountpoint == wanted)
                .map(|(id, _)| *id)
        };
        match id {
            Some(id) => self.end(daemon, id, is_lazy),
            None => Err(Error::new(
                ErrorKind::NotFound,
                format!("{} is not a mount of this store", mountpoint.display()),
            )
            .with_hint(format!(
                "`kura ls-mounts` lists them; a dead mount is cleared by mounting there again, or by \
                 the system's own `umount -l {}`",
                mountpoint.display()
            ))),
        }
    }

    /// Ends all mounts. Those in use stay unless `is_lazy`.
    ///
    /// # Errors
    /// Of the first mount that could not be ended; the others are ended.
    pub fn unmount_all(&self, daemon: &Daemon, is_lazy: bool) -> Result<Vec<MountRecord>> {
        let _changing = self.changing.write();
        self.reap_ended(daemon);
        let ids: Vec<u64> = self.table.lock().mounts.keys().copied().collect();
        let mut ended = Vec::new();
        let mut first_error = None;
        for id in ids {
            match self.end(daemon, id, is_lazy) {
                Ok(end) => {
                    note_end(daemon, &end, "daemon stops");
                    ended.push(end.record);
                }
                Err(error) => {
                    tracing::error!(?error, "end a mount");
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(ended), Err)
    }

    /// Commits what a branch that is not mounted still has in its journal, after a crash of
    /// keeper and worker.
    pub fn recover(&self, daemon: &Daemon, workspace: WorkspaceId, branch: &str) -> Result<()> {
        let key = (workspace, View::Branch(branch.to_owned()));
        let has_journal = || {
            let journal = daemon.directory.overlay(workspace, branch).join("journal");
            std::fs::read_dir(journal).is_ok_and(|mut entries| entries.next().is_some())
        };
        if self.table.lock().filesystems.contains_key(&key) || !has_journal() {
            return Ok(());
        }
        let _changing = self.changing.write();
        if self.table.lock().filesystems.contains_key(&key) || !has_journal() {
            return Ok(());
        }
        tracing::info!(%workspace, branch, "recover the journal of a branch that is not mounted");
        self.open(daemon, &key, NOBODY, false)?;
        self.close_unused(daemon, &key);
        Ok(())
    }

    /// Cleans up after mounts that others have ended (umount(8), the end of a namespace), and ends
    /// grants whose time is over.
    pub fn reap(&self, daemon: &Daemon) {
        self.end_expired_grants(&daemon.store);
        let is_needed = !self.table.lock().ended().is_empty();
        if is_needed {
            let _changing = self.changing.write();
            self.reap_ended(daemon);
        }
    }

    /// Applies changed settings to the mounts of a workspace.
    pub fn apply_settings(&self, daemon: &Daemon, workspace: WorkspaceId) -> Result<()> {
        let policy = config::policy(daemon, workspace)?;
        for (_, _, filesystem) in self.live().into_iter().filter(|live| live.0 == workspace) {
            filesystem.set_policy(policy);
        }
        Ok(())
    }

    fn reap_ended(&self, daemon: &Daemon) {
        let ended = self.table.lock().ended();
        for id in ended {
            match self.end(daemon, id, false) {
                Ok(end) => note_end(daemon, &end, "ended outside of Kura"),
                Err(error) => {
                    tracing::error!(?error, "clean up after a mount that was ended by others");
                }
            }
        }
    }

    fn end(&self, daemon: &Daemon, id: u64, is_lazy: bool) -> Result<Ended> {
        let (record, filesystem) = {
            let table = self.table.lock();
            let mounted = table.mounts.get(&id).ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    format!("there is no mount number {id}"),
                )
            })?;
            (mounted.record.clone(), mounted.filesystem.clone())
        };
        let before = filesystem.status().head;
        if matches!(record.view, View::Branch(_)) {
            filesystem.commit(commit_request(&record.principal, CommitKind::Snapshot, ""))?;
        }
        // Out of the table while it is unmounted, which takes its time.
        let mounted = self.table.lock().mounts.remove(&id);
        let Some(mounted) = mounted else {
            return Err(Error::new(ErrorKind::NotFound, "the mount is gone"));
        };
        let other_place = self.table.lock().other_place(&mounted);
        let unmounted = match other_place {
            Some(other) => {
                let mountpoint = mounted.record.mountpoint.to_path();
                mounted.session.unmount_from(&mountpoint, &other, is_lazy)
            }
            None => mounted.session.unmount(is_lazy),
        };
        if let Err(error) = unmounted {
            self.table.lock().mounts.insert(id, mounted);
            let is_busy = error.kind() == std::io::ErrorKind::ResourceBusy;
            let mountpoint = record.mountpoint.to_display().into_owned();
            return Err(if is_busy {
                Error::new(
                    ErrorKind::Busy,
                    format!("unmount {mountpoint}: it is in use"),
                )
                .with_hint(format!(
                    "end what uses it (`fuser -vm {mountpoint}` shows it), or detach it with --lazy"
                ))
                .with_source(error)
            } else {
                Error::io(format!("unmount {mountpoint}"), error)
            });
        }
        drop(mounted);
        daemon.link.release(id);
        let key = (record.workspace_id, record.view.clone());
        drop(filesystem);
        let closed = self.close_unused(daemon, &key);
        let commit = closed.unwrap_or_else(|| {
            self.table
                .lock()
                .filesystems
                .get(&key)
                .map_or(before, |filesystem| filesystem.status().head)
        });
        tracing::info!(mountpoint = ?record.mountpoint, workspace = record.workspace, "unmounted");
        Ok(Ended {
            record,
            commit,
            is_new: commit != before,
        })
    }

    /// Opens the filesystem, or gives the one that is open.
    fn open(
        &self,
        daemon: &Daemon,
        key: &Key,
        author: &str,
        is_resumed: bool,
    ) -> Result<Arc<Filesystem>> {
        if let Some(filesystem) = self.table.lock().filesystems.get(key) {
            return Ok(filesystem.clone());
        }
        let (workspace, view) = key;
        let (source, is_read_only) = match view {
            View::Branch(branch) => (daemon.store.source(*workspace, branch)?, false),
            View::Commit(commit) => {
                let source = CommitSource::new(daemon.store.clone(), *commit);
                (Arc::new(source) as Arc<_>, true)
            }
        };
        let policy = match view {
            View::Branch(_) => config::policy(daemon, *workspace)?,
            View::Commit(_) => CommitPolicy::default(),
        };
        let filesystem = Filesystem::open(
            source,
            FilesystemOptions {
                directory: overlay_directory(daemon, key),
                policy,
                author: author.to_owned(),
                is_read_only,
                is_resumed,
                processes: self.processes.clone(),
            },
        )?;
        self.table
            .lock()
            .filesystems
            .insert(key.clone(), filesystem.clone());
        Ok(filesystem)
    }

    /// Closes a filesystem that no mount shows; gives its branch's head then.
    fn close_unused(&self, daemon: &Daemon, key: &Key) -> Option<CommitId> {
        let filesystem = {
            let mut table = self.table.lock();
            let is_used = table.mounts.values().any(|mounted| {
                (mounted.record.workspace_id, &mounted.record.view) == (key.0, &key.1)
            });
            if is_used {
                return None;
            }
            table.filesystems.remove(key)?
        };
        if let Err(error) = filesystem.close() {
            tracing::error!(
                ?error,
                "close a filesystem; its journal keeps what is uncommitted"
            );
        }
        let head = filesystem.status().head;
        if let View::Commit(_) = key.1 {
            let directory = overlay_directory(daemon, key);
            if let Err(error) = std::fs::remove_dir_all(&directory) {
                tracing::debug!(%error, "remove the overlay of a read-only mount");
            }
        }
        Some(head)
    }
}

/// Writes the end of a mount that nobody asked for into the audit log.
fn note_end(daemon: &Daemon, ended: &Ended, why: &str) {
    let record = &ended.record;
    daemon.audit(
        &record.principal,
        "mount",
        "unmount",
        Some(record.workspace_id),
        &record.mountpoint.to_display(),
        serde_json::json!({"commit": ended.commit.to_hex(), "why": why}),
    );
}

fn overlay_directory(daemon: &Daemon, key: &Key) -> PathBuf {
    match &key.1 {
        View::Branch(branch) => daemon.directory.overlay(key.0, branch),
        // No branch has a name with a NUL.
        View::Commit(commit) => daemon.directory.overlay(key.0, &format!("\0{commit}")),
    }
}

fn info(mounted: &Mounted) -> MountInfo {
    let record = &mounted.record;
    let status = mounted.filesystem.status();
    MountInfo {
        mountpoint: record.mountpoint.clone(),
        workspace: record.workspace.clone(),
        branch: match &record.view {
            View::Branch(branch) => Some(branch.clone()),
            View::Commit(_) => None,
        },
        commit: match record.view {
            View::Branch(_) => status.head.to_hex(),
            View::Commit(commit) => commit.to_hex(),
        },
        principal: record.principal.clone(),
        read_only: record.read_only || mounted.filesystem.is_read_only(),
        allow_other: record.session.options.allow_other,
        profile: record.profile.clone(),
        shared: !record.session.options.writeback_cache,
        restricted: !mounted.handler.is_unrestricted(),
        since: convert::time(record.since.unwrap_or_else(Timestamp::now)),
        uncommitted_count: status.changed_inodes,
        request_count: mounted
            .session
            .request_counts()
            .iter()
            // These two are no requests of the kernel.
            .filter(|counted| !["handed_over", "notifications"].contains(&counted.name))
            .map(|counted| counted.count)
            .sum(),
    }
}
