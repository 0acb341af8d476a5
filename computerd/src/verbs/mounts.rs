//! Mounting and unmounting.

use computerd_api::v1::{
    IdMapping, MountList, MountRequest, MountResult, UnmountRequest, UnmountResult,
};
use fuse_mount::fuse::uid_map::{IdMap, IdRange};
use workspace_store::workspace::WorkspaceInfo;

use super::config;
use crate::access::Caller;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::mounts::{MountParameters, View};
use crate::server::Call;

/// All mounts.
pub fn list(call: &Call) -> Result<MountList> {
    call.daemon.mounts.reap(&call.daemon);
    let mut mounts = call.daemon.mounts.list();
    if let Caller::Principal(own) = &call.caller {
        mounts.retain(|mount| mount.principal == *own);
    }
    Ok(MountList { mounts })
}

/// What a revision shows: a branch is live, anything else is a commit.
pub fn view(daemon: &Daemon, workspace: &WorkspaceInfo, revision: Option<&String>) -> Result<View> {
    let Some(revision) = revision else {
        return Ok(View::Branch(workspace.default_branch.clone()));
    };
    if revision == "HEAD" {
        return Ok(View::Branch(workspace.default_branch.clone()));
    }
    let branches = daemon.store.branches(workspace.id)?;
    if branches.iter().any(|branch| branch.name == *revision) {
        return Ok(View::Branch(revision.clone()));
    }
    Ok(View::Commit(daemon.store.resolve(workspace.id, revision)?))
}

fn id_map(mappings: &[IdMapping]) -> Result<IdMap> {
    let ranges = mappings
        .iter()
        .map(|mapping| IdRange {
            host: mapping.inside,
            store: mapping.outside,
            count: mapping.count,
        })
        .collect();
    IdMap::new(ranges).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, error.to_string())
            .with_hint("give ranges as HOST:STORE:COUNT that don't overlap")
    })
}

/// Who holds the lease of a branch against this principal.
///
/// A principal that is not the holder sees the branch, but can't change it.
pub fn is_fenced(
    daemon: &Daemon,
    workspace: &WorkspaceInfo,
    view: &View,
    principal: &str,
) -> Result<bool> {
    let View::Branch(branch) = view else {
        return Ok(false);
    };
    let lease = config::lease(daemon, workspace.id, branch)?;
    let Some(lease) = lease else { return Ok(false) };
    if lease.holder != principal {
        return Ok(true);
    }
    // The holder has come: what the giver still has mounted stays read-only, and as the branch
    // has one filesystem, the giver's mounts must go first.
    let others: Vec<String> = daemon
        .mounts
        .list()
        .into_iter()
        .filter(|mount| {
            mount.workspace == workspace.name
                && mount.branch.as_deref() == Some(branch)
                && mount.principal != principal
        })
        .map(|mount| mount.mountpoint.to_display().into_owned())
        .collect();
    if others.is_empty() {
        return Ok(false);
    }
    Err(Error::new(
        ErrorKind::Busy,
        format!(
            "mount {}@{branch} for its new holder {principal}: it is still mounted by others at {}",
            workspace.name,
            others.join(", ")
        ),
    )
    .with_hint("end those mounts first (kura umount DIR), or mount with --branch NEW"))
}

/// Mounts a workspace.
pub fn mount(call: &Call, request: MountRequest) -> Result<MountResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&request.workspace)?;
    let principal = call.acts_as(request.principal.as_ref())?;
    let (uid_map, gid_map) = (id_map(&request.uid_map)?, id_map(&request.gid_map)?);
    let profile = config::profile(daemon, workspace.id, request.profile.as_ref())?;
    let mut view = view(daemon, &workspace, request.revision.as_ref())?;
    let mut operation = None;
    if let Some(branch) = &request.new_branch {
        let at = match &view {
            View::Commit(commit) => *commit,
            View::Branch(from) => {
                let request = crate::daemon::commit_request(
                    &principal,
                    workspace_store::object::CommitKind::Snapshot,
                    "",
                );
                daemon.clean_head(workspace.id, from, request)?.commit
            }
        };
        let id = daemon
            .store
            .create_branch(workspace.id, branch, at, &principal)?;
        operation = Some(daemon.operation_reference(&workspace.name, id));
        view = View::Branch(branch.clone());
    }
    let is_fenced = is_fenced(daemon, &workspace, &view, &principal)?;
    let name = workspace.name.clone();
    let workspace_id = workspace.id;
    let parameters = MountParameters {
        workspace,
        view,
        mountpoint: request.mountpoint.to_path(),
        principal: principal.clone(),
        read_only: request.read_only || is_fenced,
        allow_other: request.allow_other,
        uid_map,
        gid_map,
        profile,
        repair: request.repair,
        volume: None,
    };
    match daemon.mounts.mount(daemon, parameters) {
        Ok((mount, is_old)) => {
            if !is_old {
                daemon.audit(
                    &principal,
                    "api",
                    "mount",
                    Some(workspace_id),
                    &mount.mountpoint.to_display(),
                    serde_json::json!({
                        "branch": mount.branch, "commit": mount.commit, "read_only": mount.read_only,
                    }),
                );
            }
            Ok(MountResult { mount, operation })
        }
        Err(error) => {
            // The branch was made for this mount alone.
            if let (Some(branch), Some(_)) = (&request.new_branch, operation)
                && let Err(error) = daemon.store.delete_branch(workspace_id, branch, &principal)
            {
                tracing::error!(?error, workspace = name, branch, "remove an unused branch");
            }
            Err(error)
        }
    }
}

/// Ends a mount: flush, commit, unmount.
pub fn unmount(call: &Call, request: UnmountRequest) -> Result<UnmountResult> {
    let daemon = &call.daemon;
    let ended = daemon
        .mounts
        .unmount(daemon, &request.mountpoint.to_path(), request.lazy)?;
    let record = ended.record;
    daemon.audit(
        call.caller.name(),
        "api",
        "unmount",
        Some(record.workspace_id),
        &record.mountpoint.to_display(),
        serde_json::json!({"commit": ended.commit.to_hex()}),
    );
    let operation = if ended.is_new {
        let workspace = daemon.store.workspace(&record.workspace)?;
        daemon.operation_of(&workspace, ended.commit)?
    } else {
        None
    };
    Ok(UnmountResult {
        mountpoint: record.mountpoint,
        workspace: record.workspace,
        commit: ended.commit.to_hex(),
        is_new: ended.is_new,
        operation,
    })
}
