//! Docker's volume driver `kura`: Docker's volume plugin protocol (version 1) on a unix socket.
//!
//! A volume names a workspace and how to mount it. Its mount is made for the first container that
//! uses it and ended, with a commit, after the last one. Removing a volume forgets the name, never
//! the workspace. That the driver is served, and who uses which volume, is noted with the keeper,
//! so that a new worker goes on with it; definitions are in `volumes.json` of the store.

mod protocol;
mod volumes;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use computerd_api::v1::VolumePluginStatus;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::net::UnixListener;

use crate::convert;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use volumes::Volumes;

/// Where Docker looks for the driver `kura`.
const DEFAULT_SOCKET: &str = "/run/docker/plugins/kura.sock";

/// Note that the driver is served, with its socket.
const SERVING_NOTE: &str = "volume-plugin";

/// Note of who uses which volume.
const USERS_NOTE: &str = "volume-users";

/// The driver.
#[derive(Debug, Default)]
pub struct VolumePlugin {
    serving: Mutex<Option<Serving>>,
    volumes: Mutex<Volumes>,
}

#[derive(Debug)]
struct Serving {
    socket: PathBuf,
    end: tokio::sync::oneshot::Sender<()>,
}

impl VolumePlugin {
    /// Socket, if it is served.
    pub fn socket(&self) -> Option<PathBuf> {
        let serving = self.serving.lock();
        serving.as_ref().map(|serving| serving.socket.clone())
    }

    /// State for people.
    pub fn status(&self) -> VolumePluginStatus {
        let socket = self.socket();
        VolumePluginStatus {
            is_serving: socket.is_some(),
            socket: socket.map(|socket| convert::path_text(&socket)),
            volume_count: self.volumes.lock().used_count(),
        }
    }
}

/// Serves the driver at `socket`, or where Docker looks for it. Serving already is no error.
///
/// # Errors
/// If the socket can't be made, or another daemon serves at it.
pub fn start(daemon: &Arc<Daemon>, socket: Option<PathBuf>) -> Result<VolumePluginStatus> {
    let socket = socket.unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET));
    let plugin = &daemon.volume_plugin;
    let mut serving = plugin.serving.lock();
    if let Some(running) = &*serving {
        if running.socket != socket {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "the volume driver is served at {}",
                    running.socket.display()
                ),
            )
            .with_hint("end it first: kura volume-plugin --stop"));
        }
        drop(serving);
        return Ok(plugin.status());
    }
    plugin.volumes.lock().load(&daemon.directory)?;
    prepare_mounts(&daemon.directory.mounts())?;
    let listener = listen(daemon, &socket)?;
    let (end, ended) = tokio::sync::oneshot::channel();
    let router = protocol::router(daemon.clone());
    daemon.runtime.spawn(async move {
        let end = async {
            let _ = ended.await;
        };
        if let Err(error) = axum::serve(listener, router)
            .with_graceful_shutdown(end)
            .await
        {
            tracing::error!(%error, "serve the volume driver");
        }
    });
    daemon.link.note(
        SERVING_NOTE,
        Some(serde_json::json!(convert::path_text(&socket))),
    );
    tracing::info!(socket = %socket.display(), "volume driver is served");
    *serving = Some(Serving { socket, end });
    drop(serving);
    Ok(plugin.status())
}

fn listen(daemon: &Daemon, socket: &Path) -> Result<UnixListener> {
    let failed = |error: std::io::Error| {
        Error::io(
            format!("serve the volume driver at {}", socket.display()),
            error,
        )
        .with_hint("Docker's directory of plugins belongs to root; or choose another --socket")
    };
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("another volume driver is served at {}", socket.display()),
        )
        .with_hint("end it first, or choose another --socket"));
    }
    if let Some(parent) = socket.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let _runtime = daemon.runtime.enter();
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Makes the directory of the volumes' mounts a shared mount, so that containers that have it
/// see mounts appear and go.
fn prepare_mounts(path: &Path) -> Result<()> {
    let failed = |error| Error::io(format!("prepare {}", path.display()), error);
    std::fs::create_dir_all(path).map_err(failed)?;
    let is_mounted = fuse_mount::fuse::mount::find_mount(path)
        .map_err(failed)?
        .is_some();
    let none: Option<&str> = None;
    if !is_mounted {
        mount(Some(path), path, none, MsFlags::MS_BIND, none).map_err(|errno| {
            failed(errno.into()).with_hint("the volume driver needs root: it mounts for Docker")
        })?;
    }
    mount(none, path, none, MsFlags::MS_SHARED, none).map_err(|errno| failed(errno.into()))
}

/// Ends the driver. Volumes in use stay mounted.
pub fn stop(daemon: &Arc<Daemon>) -> Result<VolumePluginStatus> {
    daemon.link.note(SERVING_NOTE, None);
    end_serving(daemon);
    Ok(daemon.volume_plugin.status())
}

fn end_serving(daemon: &Daemon) {
    if let Some(serving) = daemon.volume_plugin.serving.lock().take() {
        let _ = serving.end.send(());
        let _ = std::fs::remove_file(&serving.socket);
    }
}

/// Ends the driver together with the daemon.
pub fn end(daemon: &Daemon) {
    end_serving(daemon);
    let mounts = daemon.directory.mounts();
    if let Ok(Some(_)) = fuse_mount::fuse::mount::find_mount(&mounts) {
        // Mounts below it go with the daemon's end.
        if let Err(errno) = umount2(&mounts, MntFlags::MNT_DETACH) {
            tracing::warn!(%errno, "detach the directory of the volumes' mounts");
        }
    }
}

/// Goes on with what the worker before did.
pub fn resume(daemon: &Arc<Daemon>, notes: &Map<String, Value>) {
    if let Some(users) = notes.get(USERS_NOTE) {
        daemon.volume_plugin.volumes.lock().resume_users(users);
    }
    let Some(note) = notes.get(SERVING_NOTE) else {
        return;
    };
    match serde_json::from_value::<computerd_api::v1::PathText>(note.clone()) {
        Ok(socket) => {
            if let Err(error) = start(daemon, Some(socket.to_path())) {
                tracing::error!(?error, "serve the volume driver again");
            }
        }
        Err(error) => tracing::error!(%error, "read the note of the volume driver"),
    }
}
