//! What principals may do in their mounts: their policies when a mount is made, and whenever
//! grants change or end; refusals go to the audit log.

use std::path::Path;
use std::sync::Arc;

use fuse_mount::fs::{Denial, FilesystemSession, OnDenial};
use fuse_mount::fuse::Session;
use workspace_store::WorkspaceId;
use workspace_store::object::Timestamp;
use workspace_store::policy::{Access, Policy};
use workspace_store::store::Store;

use super::{Mounts, NOTIFICATION_TIMEOUT};
use crate::access::is_administrator;

/// The policy of a principal; where it can't be found out, one that allows nothing. Only the
/// administrator mounts, so its own name is always itself.
pub(super) fn policy(store: &Store, workspace: WorkspaceId, principal: &str) -> Policy {
    if is_administrator(principal) {
        return Policy::unrestricted();
    }
    match store.policy_of(workspace, principal) {
        Ok(policy) => Policy::clone(&policy),
        Err(error) => {
            tracing::error!(?error, principal, "find out what a principal may do");
            Policy::compile(Vec::new(), Access::Hidden, Timestamp::now())
        }
    }
}

/// Takes refusals in a mount down.
pub(super) fn recorder(
    store: &Store,
    workspace: WorkspaceId,
    principal: &str,
    is_volume: bool,
) -> OnDenial {
    let (store, principal) = (store.clone(), principal.to_owned());
    let source = if is_volume { "docker" } else { "mount" };
    Arc::new(move |denial: Denial| {
        let record = workspace_store::denial::Denial {
            principal: principal.clone(),
            source: source.to_owned(),
            action: denial.action.to_owned(),
            workspace: Some(workspace),
            object: String::from_utf8_lossy(&denial.path).into_owned(),
        };
        if let Err(error) = store.record_denial(record) {
            tracing::warn!(?error, "record a denial");
        }
    })
}

impl Mounts {
    /// Brings live mounts to the grants of now; returns when their kernels know.
    pub fn apply_grants(&self, store: &Store) {
        let applying = self.applying.lock();
        let mut sessions: Vec<(WorkspaceId, String, Arc<FilesystemSession>, Arc<Session>)> =
            Vec::new();
        for mounted in self.table.lock().mounts.values() {
            let is_new = |other: &(_, _, _, Arc<Session>)| !Arc::ptr_eq(&other.3, &mounted.session);
            if sessions.iter().all(is_new) {
                sessions.push((
                    mounted.record.workspace_id,
                    mounted.record.principal.clone(),
                    mounted.handler.clone(),
                    mounted.session.clone(),
                ));
            }
        }
        let mut changed = Vec::new();
        for (workspace, principal, handler, session) in sessions {
            if handler.set_policy(policy(store, workspace, &principal)) {
                tracing::info!(mountpoint = ?session.mountpoint(), principal, "grants changed");
                changed.push(session);
            }
        }
        drop(applying);
        for session in changed {
            if !session.wait_for_notifications(NOTIFICATION_TIMEOUT) {
                let mountpoint = session.mountpoint();
                tracing::warn!(?mountpoint, "the kernel is slow to take in changed grants");
            }
        }
    }

    /// Ends grants whose time is over.
    pub(super) fn end_expired_grants(&self, store: &Store) {
        let now = Timestamp::now();
        let is_over =
            |handler: &FilesystemSession| handler.next_expiry().is_some_and(|end| end <= now);
        let mut handlers = self
            .table
            .lock()
            .mounts
            .values()
            .map(|mounted| mounted.handler.clone())
            .collect::<Vec<_>>();
        handlers.retain(|handler| is_over(handler));
        if !handlers.is_empty() {
            self.apply_grants(store);
        }
    }
}

/// Whether something is mounted, under this device number, in another mount namespace than ours:
/// containers go on using a mount after it has left ours.
pub(super) fn is_mounted_elsewhere(device: (u32, u32)) -> bool {
    let own = std::fs::read_link("/proc/self/ns/mnt").ok();
    let wanted = format!("{}:{}", device.0, device.1);
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    let mut seen = std::collections::HashSet::new();
    for process in processes.flatten() {
        let path = process.path();
        let Ok(namespace) = std::fs::read_link(path.join("ns/mnt")) else {
            continue;
        };
        if Some(&namespace) == own.as_ref() || !seen.insert(namespace) {
            continue;
        }
        if has_device(&path.join("mountinfo"), &wanted) {
            return true;
        }
    }
    false
}

fn has_device(mounts: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(mounts).is_ok_and(|text| {
        text.lines()
            .any(|line| line.split(' ').nth(2) == Some(wanted))
    })
}
