//! Mounts beside each other on one branch. A mount that is alone on its branch leaves what programs
//! write in the kernel until it is written back; mounts of several principals write through and
//! tell each other (ADR-0010). A connection can't change from the one to the other, so it is
//! decided when a mount is made, and a mount that is in nobody's way is made anew.

use std::sync::Arc;

use fuse_mount::fs::Filesystem;
use fuse_mount::fuse::mount::find_mount;

use super::{Key, MountParameters, MountRecord, Mounted, Mounts, View, grants, session};
use crate::access::is_administrator;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};

impl Mounts {
    /// Whether a new session is to expect others on its branch: it acts as somebody else than the
    /// administrator, others are there, or the workspace has grants.
    pub(super) fn is_shared(&self, daemon: &Daemon, key: &Key, principal: &str) -> Result<bool> {
        let others = {
            let table = self.table.lock();
            let mut mounts = table.mounts.values();
            mounts.any(|mounted| mounted.is_of(key))
        };
        Ok(others || !is_administrator(principal) || !daemon.store.grants(key.0, None)?.is_empty())
    }

    /// Makes a session that is alone on a branch write through, before another one is made that
    /// changes the branch as well.
    ///
    /// # Errors
    /// `Busy` if it is in use.
    pub(super) fn make_room(
        &self,
        daemon: &Daemon,
        key: &Key,
        filesystem: &Arc<Filesystem>,
        is_read_only: bool,
    ) -> Result<()> {
        if is_read_only || matches!(key.1, View::Commit(_)) {
            return Ok(());
        }
        let alone: Vec<(u64, Mounted)> = {
            let table = self.table.lock();
            let is_alone = |mounted: &Mounted| {
                mounted.is_of(key) && mounted.record.session.options.writeback_cache
            };
            let found = table.mounts.iter().filter(|(_, mounted)| is_alone(mounted));
            found.map(|(id, mounted)| (*id, mounted.clone())).collect()
        };
        let busy = |mounted: &Mounted| {
            let record = &mounted.record;
            let mountpoint = record.mountpoint.to_display().into_owned();
            Error::new(
                ErrorKind::Busy,
                format!(
                    "mount {}@{} for another principal as well: the mount at {mountpoint} is in use \
                     and holds back what programs write",
                    record.workspace, record.view
                ),
            )
            .with_hint(format!(
                "end what uses {mountpoint} (`fuser -vm {mountpoint}`) and try again: it is mounted \
                 anew then, and writes through"
            ))
        };
        match alone.as_slice() {
            [] => Ok(()),
            [(id, mounted)] => {
                let mountpoint = mounted.record.mountpoint.to_path();
                let device = find_mount(&mountpoint)
                    .ok()
                    .flatten()
                    .map(|line| line.device);
                if device.is_none_or(grants::is_mounted_elsewhere) {
                    return Err(busy(mounted));
                }
                mounted.session.unmount(false).map_err(|_| busy(mounted))?;
                self.mount_anew(daemon, *id, &mounted.record, filesystem)
            }
            [(_, mounted), ..] => Err(busy(mounted)),
        }
    }

    fn mount_anew(
        &self,
        daemon: &Daemon,
        id: u64,
        record: &MountRecord,
        filesystem: &Arc<Filesystem>,
    ) -> Result<()> {
        let options = &record.session.options;
        let parameters = MountParameters {
            workspace: daemon.store.workspace(&record.workspace)?,
            view: record.view.clone(),
            mountpoint: record.mountpoint.to_path(),
            principal: record.principal.clone(),
            read_only: record.read_only,
            allow_other: options.allow_other,
            uid_map: options.uid_map.clone(),
            gid_map: options.gid_map.clone(),
            profile: record.profile.clone(),
            repair: false,
            volume: record.volume.clone(),
        };
        self.table.lock().mounts.remove(&id);
        daemon.link.release(id);
        let next_id = {
            let mut table = self.table.lock();
            table.next_id += 1;
            table.next_id
        };
        let started = session::start(self, daemon, next_id, parameters, filesystem, true)?;
        tracing::info!(mountpoint = ?record.mountpoint, "mounted anew, to write through");
        let mounted = Mounted {
            record: MountRecord {
                since: record.since,
                ..started.record
            },
            session: started.session,
            handler: started.handler,
            filesystem: filesystem.clone(),
        };
        self.table.lock().mounts.insert(next_id, mounted);
        Ok(())
    }
}

impl Mounted {
    fn is_of(&self, key: &Key) -> bool {
        (self.record.workspace_id, &self.record.view) == (key.0, &key.1)
    }
}
