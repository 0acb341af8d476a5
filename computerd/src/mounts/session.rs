//! Starting the kernel session of a mount.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuse_mount::fs::{Filesystem, FilesystemSession};
use fuse_mount::fuse::mount::find_mount;
use fuse_mount::fuse::{Environment, MountError, Session, SessionOptions, SessionState};
use parking_lot::Mutex;
use workspace_store::object::Timestamp;

use super::record::{Holder, MountRecord, RECORD_VERSION};
use super::{MountParameters, Mounts, grants};
use crate::convert;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};

/// Source of our mounts in the list of mounts.
const SOURCE: &str = "kura";

/// A session that was made.
pub(super) struct Started {
    pub(super) record: MountRecord,
    pub(super) session: Arc<Session>,
    pub(super) handler: Arc<FilesystemSession>,
}

/// What a session works with.
pub(super) fn environment(
    mounts: &Mounts,
    daemon: &Daemon,
    id: u64,
    record: MountRecord,
    filesystem: &Arc<Filesystem>,
) -> (Environment, Arc<Holder>, Arc<FilesystemSession>) {
    let (workspace, principal) = (record.workspace_id, record.principal.clone());
    let handler = FilesystemSession::with_policy(
        filesystem.clone(),
        &principal,
        grants::policy(&daemon.store, workspace, &principal),
        Some(grants::recorder(
            &daemon.store,
            workspace,
            &principal,
            record.volume.is_some(),
        )),
    );
    let holder = Arc::new(Holder {
        link: daemon.link.clone(),
        id,
        record: Mutex::new(record),
    });
    let environment = Environment {
        handler: handler.clone(),
        holder: Some(holder.clone()),
        flush_helper: Some(mounts.flush_helper.clone()),
    };
    (environment, holder, handler)
}

/// Mounts.
pub(super) fn start(
    mounts: &Mounts,
    daemon: &Daemon,
    id: u64,
    parameters: MountParameters,
    filesystem: &Arc<Filesystem>,
    is_shared: bool,
) -> Result<Started> {
    let mountpoint = parameters.mountpoint.clone();
    let is_read_only = parameters.read_only || filesystem.is_read_only();
    let mut options = SessionOptions {
        source: SOURCE.to_owned(),
        subtype: Some(SOURCE.to_owned()),
        read_only: is_read_only,
        allow_other: parameters.allow_other,
        repair: parameters.repair || is_own_mount(&mountpoint),
        uid_map: parameters.uid_map,
        gid_map: parameters.gid_map,
        ..SessionOptions::default()
    };
    // Where nothing is written, the kernel must not believe to know the files' lengths best.
    if is_shared || is_read_only {
        options = options.shared();
    }
    let record = MountRecord {
        version: RECORD_VERSION,
        workspace_id: parameters.workspace.id,
        workspace: parameters.workspace.name,
        view: parameters.view,
        mountpoint: convert::path_text(&mountpoint),
        principal: parameters.principal,
        read_only: parameters.read_only,
        profile: parameters.profile,
        volume: parameters.volume,
        since: Some(Timestamp::now()),
        shares: None,
        session: SessionState {
            mountpoint: mountpoint.clone(),
            options: options.clone(),
            negotiated: None,
            by_helper: false,
        },
    };
    let (environment, holder, handler) = environment(mounts, daemon, id, record, filesystem);
    let session = Session::mount(&mountpoint, options, environment).map_err(|error| {
        daemon.link.release(id);
        mount_error(&mountpoint, error)
    })?;
    let record = holder.record.lock().clone();
    Ok(Started {
        record,
        session: Arc::new(session),
        handler,
    })
}

/// Makes another place of a mount that is there.
pub(super) fn share(
    daemon: &Daemon,
    id: u64,
    parameters: MountParameters,
    shared: (u64, &MountRecord, &Session),
) -> Result<MountRecord> {
    let (shared_id, shared, session) = shared;
    let repair = parameters.repair || is_own_mount(&parameters.mountpoint);
    let mountpoint = session
        .mount_also(&parameters.mountpoint, parameters.read_only, repair)
        .map_err(|error| mount_error(&parameters.mountpoint, error))?;
    let record = MountRecord {
        mountpoint: convert::path_text(&mountpoint),
        read_only: parameters.read_only,
        volume: parameters.volume,
        since: Some(Timestamp::now()),
        shares: Some(shared.shares.unwrap_or(shared_id)),
        session: SessionState {
            mountpoint: mountpoint.clone(),
            ..session.state()
        },
        ..shared.clone()
    };
    let held = || {
        let state = serde_json::to_value(&record)?;
        let device = session.device().ok_or(std::io::ErrorKind::NotConnected)?;
        daemon.link.hold(id, state, device.as_fd())
    };
    if let Err(error) = held() {
        // The mount that it shares stays.
        let other = session.mountpoint();
        if let Err(error) = session.unmount_from(&mountpoint, &other, true) {
            tracing::error!(%error, "take a mount away that could not be made");
        }
        return Err(Error::io("hand the mount to the keeper", error));
    }
    Ok(record)
}

/// Whether what is mounted there, alive or dead, was mounted by a daemon like us.
fn is_own_mount(mountpoint: &Path) -> bool {
    matches!(find_mount(mountpoint), Ok(Some(line)) if line.source == SOURCE)
}

fn mount_error(mountpoint: &Path, error: MountError) -> Error {
    let kind = match &error {
        MountError::NoDevice => ErrorKind::Unavailable,
        MountError::NotPermitted { .. } | MountError::OthersNotPermitted(_) => {
            ErrorKind::PermissionDenied
        }
        MountError::Missing(_) => ErrorKind::NotFound,
        MountError::NotADirectory(_) | MountError::NotEmpty(_) | MountError::NotUnicode(_) => {
            ErrorKind::InvalidInput
        }
        MountError::AlreadyMounted { .. } => ErrorKind::AlreadyExists,
        MountError::Dead(_) => ErrorKind::Busy,
        _ => ErrorKind::Io,
    };
    let mut message = format!("mount on {}: {error}", mountpoint.display());
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    let hint = error.hint();
    let converted = Error::new(kind, message).with_source(error);
    match hint {
        Some(hint) => converted.with_hint(hint),
        None => converted,
    }
}

/// The error for a mountpoint that another mount of ours has.
pub(super) fn taken(record: &MountRecord) -> Error {
    let mountpoint = record.mountpoint.to_display().into_owned();
    Error::new(
        ErrorKind::AlreadyExists,
        format!(
            "{mountpoint} is already a mount of {}@{} for {}, with other parameters",
            record.workspace, record.view, record.principal
        ),
    )
    .with_hint(format!("end it first: kura umount {mountpoint}"))
}

/// The error for a mountpoint inside another mount of ours: this daemon would wait for itself.
pub(super) fn inside(mountpoint: &Path, record: &MountRecord) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "mount on {}: it is inside the mount of {} at {}",
            mountpoint.display(),
            record.workspace,
            record.mountpoint.to_display()
        ),
    )
    .with_hint("choose a directory outside of mounted workspaces")
}

/// The absolute path of a mountpoint without links in its parents. The mountpoint itself is not
/// looked at: it may be a dead mount, which answers nothing.
pub(super) fn absolute_mountpoint(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Error::io(format!("find {}", path.display()), error))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{} can't be a mountpoint", path.display()),
        )
        .with_hint("choose an empty directory"));
    };
    let parent = parent.canonicalize().map_err(|error| {
        Error::io(format!("find the mountpoint {}", path.display()), error)
            .with_hint(format!("create it: mkdir -p {}", path.display()))
    })?;
    let joined = parent.join(name);
    match std::fs::symlink_metadata(&joined) {
        Ok(metadata) if metadata.is_symlink() => joined
            .canonicalize()
            .map_err(|error| Error::io(format!("find the mountpoint {}", path.display()), error)),
        _ => Ok(joined),
    }
}
