//! The daemon itself, and Docker's volume driver.

use computerd_api::v1::{
    DaemonStatus, StopRequest, StopResult, VersionInfo, VolumePluginRequest, VolumePluginStatus,
};

use crate::convert;
use crate::error::Result;
use crate::server::Call;
use crate::volume_plugin;

/// Version of the control API.
const API_VERSION: u32 = 1;

/// Version of the store's format.
const FORMAT_VERSION: u32 = 2;

/// Versions.
pub fn version(_: &Call) -> Result<VersionInfo> {
    Ok(version_info())
}

fn version_info() -> VersionInfo {
    VersionInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_version: API_VERSION,
        format_version: FORMAT_VERSION,
    }
}

/// State of the daemon.
pub fn status(call: &Call) -> Result<DaemonStatus> {
    let daemon = &call.daemon;
    let workspaces = daemon.store.workspaces()?;
    let mut lease_count = 0;
    for workspace in &workspaces {
        lease_count += super::config::leases(daemon, workspace.id)?.len() as u64;
    }
    let is_dirty =
        |live: &(_, _, std::sync::Arc<fuse_mount::fs::Filesystem>)| live.2.status().is_dirty;
    Ok(DaemonStatus {
        version: version_info(),
        pid: std::process::id(),
        keeper_pid: daemon.keeper_pid.filter(|_| daemon.link.is_kept()),
        restart_count: daemon.restart_count,
        since: convert::time(daemon.since),
        store: convert::path_text(daemon.directory.path()),
        log: convert::path_text(&daemon.directory.log()),
        workspace_count: workspaces.len() as u64,
        mount_count: daemon.mounts.list().len() as u64,
        lease_count,
        queued_commit_count: daemon
            .mounts
            .live()
            .iter()
            .filter(|live| is_dirty(live))
            .count() as u64,
        memory_bytes: resident_bytes(),
        volume_plugin: daemon
            .volume_plugin
            .socket()
            .map(|socket| convert::path_text(&socket)),
    })
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: sysconf reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
}

/// Ends the daemon. Mounts are committed and ended before this answers.
///
/// # Errors
/// `Busy` if a mount is in use and `force` is not set; then the daemon goes on.
pub fn stop(call: &Call, request: StopRequest) -> Result<StopResult> {
    let daemon = &call.daemon;
    let records = daemon.mounts.unmount_all(daemon, request.force)?;
    let result = StopResult {
        pid: std::process::id(),
        keeper_pid: daemon.keeper_pid.filter(|_| daemon.link.is_kept()),
        unmounted: records
            .into_iter()
            .map(|record| record.mountpoint)
            .collect(),
    };
    tracing::info!(user = call.caller.name(), "asked to stop");
    daemon.stop.send_replace(Some(request.force));
    Ok(result)
}

/// State of the volume driver.
pub fn volume_plugin(call: &Call) -> Result<VolumePluginStatus> {
    Ok(call.daemon.volume_plugin.status())
}

/// Serves the volume driver.
pub fn start_volume_plugin(
    call: &Call,
    request: VolumePluginRequest,
) -> Result<VolumePluginStatus> {
    let socket = request.socket.map(|socket| socket.to_path());
    volume_plugin::start(&call.daemon, socket)
}

/// Ends the volume driver. Volumes in use stay mounted.
pub fn stop_volume_plugin(call: &Call) -> Result<VolumePluginStatus> {
    volume_plugin::stop(&call.daemon)
}
