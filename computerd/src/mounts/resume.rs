//! Going on with the mounts of a worker that died.

use std::sync::Arc;

use fuse_mount::fuse::Session;

use super::record::{MountRecord, RECORD_VERSION};
use super::{Mounted, Mounts, View, session};
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::link::Inherited;

impl Mounts {
    /// Takes over everything that the keeper held. A mount that can't be continued is let go, so
    /// that those who use it get errors instead of hanging; its journal stays.
    pub fn resume(&self, daemon: &Daemon, inherited: Vec<Inherited>) {
        let _changing = self.changing.write();
        for held in inherited {
            let id = held.id;
            {
                let mut table = self.table.lock();
                table.next_id = table.next_id.max(id);
            }
            if let Err(error) = self.resume_one(daemon, held) {
                tracing::error!(id, ?error, "a mount can't be continued");
                daemon.link.release(id);
            }
        }
        for (_, _, filesystem) in self.live() {
            filesystem.sessions_are_back();
        }
        // A view whose only mount could not be continued.
        let unused: Vec<_> = self.table.lock().filesystems.keys().cloned().collect();
        for key in unused {
            self.close_unused(daemon, &key);
        }
    }

    fn resume_one(&self, daemon: &Daemon, held: Inherited) -> Result<()> {
        let record: MountRecord = serde_json::from_value(held.state).map_err(|error| {
            Error::new(
                ErrorKind::Incompatible,
                format!("read the state of a mount: {error}"),
            )
        })?;
        if record.version != RECORD_VERSION {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("the state of a mount has version {}", record.version),
            ));
        }
        let group = record.shares.unwrap_or(held.id);
        let shared = {
            let table = self.table.lock();
            let is_of_group =
                |(id, mounted): &(&u64, &Mounted)| mounted.record.shares.unwrap_or(**id) == group;
            let found = table.mounts.iter().find(is_of_group);
            found.map(|(_, mounted)| mounted.clone())
        };
        if let Some(first) = shared {
            let mounted = Mounted { record, ..first };
            self.table.lock().mounts.insert(held.id, mounted);
            return Ok(());
        }
        let key = (record.workspace_id, record.view.clone());
        let filesystem = self.open(daemon, &key, &record.principal, true)?;
        if let View::Branch(branch) = &record.view {
            let lease = crate::verbs::config::lease(daemon, record.workspace_id, branch)?;
            if lease.is_some_and(|lease| lease.holder != record.principal) {
                filesystem.set_read_only(true);
            }
        }
        let (environment, _, handler) =
            session::environment(self, daemon, held.id, record.clone(), &filesystem);
        let session = Session::resume(held.descriptor, record.session.clone(), environment)
            .map_err(|error| Error::new(ErrorKind::Io, error.to_string()).with_source(error))?;
        tracing::info!(mountpoint = ?record.mountpoint, workspace = record.workspace, "resumed");
        self.table.lock().mounts.insert(
            held.id,
            Mounted {
                record,
                session: Arc::new(session),
                handler,
                filesystem,
            },
        );
        Ok(())
    }
}
