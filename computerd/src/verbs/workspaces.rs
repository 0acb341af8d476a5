//! Workspaces: list, make, state, fork, handoff.

use computerd_api::v1::{
    BranchConflicts, CreateWorkspace, ForkRequest, ForkResult, HandoffRequest, HandoffResult,
    LeaseInfo, UncommittedBranch, WorkspaceCreated, WorkspaceInfo, WorkspaceList, WorkspaceSizes,
    WorkspaceStatus,
};
use workspace_store::diff::{DiffOptions, diff_roots};
use workspace_store::object::CommitKind;
use workspace_store::workspace::WorkspaceInfo as StoredWorkspace;

use super::{config, history, references, transfer};
use crate::convert;
use crate::daemon::{Daemon, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;
use crate::server::progress::ProgressLines;

fn info(daemon: &Daemon, workspace: &StoredWorkspace) -> Result<WorkspaceInfo> {
    let mounts = daemon.mounts.list();
    let is_ours = |mount: &&computerd_api::v1::MountInfo| mount.workspace == workspace.name;
    Ok(WorkspaceInfo {
        name: workspace.name.clone(),
        default_branch: workspace.default_branch.clone(),
        head: workspace.head.to_hex(),
        head_time: convert::time(daemon.store.commit(workspace.head)?.time),
        created: convert::time(workspace.created),
        mount_count: mounts.iter().filter(is_ours).count() as u32,
    })
}

/// All workspaces, by name.
pub fn list(call: &Call) -> Result<WorkspaceList> {
    let daemon = &call.daemon;
    let mut workspaces = daemon
        .store
        .workspaces()?
        .iter()
        .map(|workspace| info(daemon, workspace))
        .collect::<Result<Vec<_>>>()?;
    workspaces.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(WorkspaceList { workspaces })
}

/// Makes a workspace, empty or from real files.
pub fn create(
    call: &Call,
    body: CreateWorkspace,
    progress: &ProgressLines,
) -> Result<WorkspaceCreated> {
    let daemon = &call.daemon;
    let author = call.principal(body.author.as_ref());
    // What is to be imported is read first, so that a bad source leaves no workspace behind.
    let import = match &body.from {
        Some(place) => Some(transfer::read(daemon, place, progress)?),
        None => None,
    };
    let workspace = daemon.store.create_workspace(&body.name, &author)?;
    let operation = daemon.creation_of(&workspace)?;
    let mut created = WorkspaceCreated {
        name: workspace.name.clone(),
        branch: workspace.default_branch.clone(),
        commit: workspace.head.to_hex(),
        entry_count: 0,
        bytes: 0,
        warnings: Vec::new(),
        operation,
    };
    if let Some(import) = import {
        created.entry_count = import.entry_count;
        created.bytes = import.byte_count;
        created.warnings = import.warnings;
        let message = match (&body.message, &body.from) {
            (Some(message), _) => message.clone(),
            (None, Some(place)) => transfer::describe(place),
            (None, None) => String::new(),
        };
        let head = daemon.store.commit(workspace.head)?;
        let request = commit_request(&author, CommitKind::Import, &message);
        progress.phase("storing");
        let submitted = daemon.store.apply_edit(
            workspace.id,
            &workspace.default_branch,
            workspace.head,
            &head.root,
            import.edit,
            request,
            &transfer::store_progress(progress),
        )?;
        created.commit = submitted.commit.to_hex();
        if let Some(operation) = daemon.operation_of(&workspace, submitted.commit)? {
            created.operation = operation;
        }
    }
    Ok(created)
}

/// State of one workspace.
pub fn status(call: &Call) -> Result<WorkspaceStatus> {
    let daemon = &call.daemon;
    daemon.mounts.reap(daemon);
    let workspace = daemon.store.workspace(&call.workspace)?;
    let mut uncommitted = Vec::new();
    let mut overlay_bytes = 0;
    let live = daemon.mounts.live();
    for (_, branch, filesystem) in live.into_iter().filter(|live| live.0 == workspace.id) {
        let _still = daemon.mounts.hold_still();
        let live_root = filesystem.live_root()?;
        let status = filesystem.status();
        overlay_bytes += status.journal_bytes;
        let head = daemon.store.commit(status.head)?;
        if live_root != head.root {
            let options = DiffOptions::default();
            let entries = diff_roots(&daemon.store, &head.root, &live_root, &options)?;
            if !entries.is_empty() {
                uncommitted.push(UncommittedBranch {
                    branch,
                    changes: convert::diff_counts(&entries),
                });
            }
        }
    }
    let head = daemon
        .store
        .branch(workspace.id, &workspace.default_branch)?;
    let names = history::references(daemon, workspace.id)?
        .remove(&head)
        .unwrap_or_default();
    let counts = convert::change_counts(&daemon.store.changes(head)?);
    let statistics = daemon.store.statistics(workspace.id)?;
    let leases = config::leases(daemon, workspace.id)?
        .into_iter()
        .map(|(branch, lease)| LeaseInfo {
            branch,
            holder: lease.holder,
            fence: lease.fence,
            expires: None,
        })
        .collect();
    let mut conflicts = Vec::new();
    for branch in daemon.store.branches(workspace.id)? {
        let set = daemon.store.conflicts(branch.commit)?;
        if !set.is_empty() {
            conflicts.push(BranchConflicts {
                branch: branch.name,
                count: set.entries().len() as u64,
                conflicts: set
                    .entries()
                    .iter()
                    .take(BranchConflicts::MAX_SHOWN)
                    .map(convert::conflict)
                    .collect(),
            });
        }
    }
    Ok(WorkspaceStatus {
        head_commit: convert::commit(head, &*daemon.store.commit(head)?, names, Some(counts)),
        branches: references::branch_list(daemon, &workspace)?,
        mounts: daemon
            .mounts
            .list()
            .into_iter()
            .filter(|mount| mount.workspace == workspace.name)
            .collect(),
        uncommitted,
        conflicts,
        leases,
        sizes: WorkspaceSizes {
            entry_count: None,
            content_bytes: None,
            overlay_bytes,
            store_bytes: statistics.database_bytes,
            commit_count: statistics.commits,
        },
        workspace: info(daemon, &workspace)?,
    })
}

/// Makes a workspace that begins at a state of this one.
pub fn fork(call: &Call, body: ForkRequest) -> Result<ForkResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let principal = call.principal(body.principal.as_ref());
    let at = references::target(daemon, &workspace, body.revision.as_ref(), &principal)?;
    let new = daemon
        .store
        .fork_workspace(workspace.id, at, &body.name, &principal, |key| {
            // Who may write the original says nothing about the fork.
            !key.starts_with(config::LEASE_PREFIX)
        })?;
    Ok(ForkResult {
        name: new.name.clone(),
        commit: new.head.to_hex(),
        operation: daemon.creation_of(&new)?,
    })
}

/// Passes a workspace on: everything is flushed and committed, then the lease goes to the taker
/// and mounts of others become read-only.
pub fn handoff(call: &Call, body: HandoffRequest) -> Result<HandoffResult> {
    let daemon = &call.daemon;
    if body.to.is_empty() {
        return Err(
            Error::new(ErrorKind::InvalidInput, "nobody was named to hand over to")
                .with_hint("name the principal with --to"),
        );
    }
    let workspace = daemon.store.workspace(&call.workspace)?;
    let branch = daemon.branch_name(&workspace, body.branch.as_ref())?;
    let giver = call.principal(body.principal.as_ref());
    // Changes that have begun end before the last commit; none begins until the lease has changed.
    let _giving = daemon.leases.write();
    config::check_lease(daemon, &workspace, &branch, &giver)?;
    let filesystem = daemon.mounts.filesystem(workspace.id, &branch);
    // Committed before it is fenced: what the kernel still holds back could not be written after.
    let request = commit_request(&giver, CommitKind::Handoff, &body.message);
    let mut head = daemon.clean_head(workspace.id, &branch, request.clone())?;
    if let Some(filesystem) = &filesystem {
        filesystem.set_read_only(true);
        // What was written between the two.
        let last = daemon.clean_head(workspace.id, &branch, request)?;
        head.is_new |= last.is_new;
        head.commit = last.commit;
    }
    let taken = config::take_lease(daemon, workspace.id, &branch, &body.to, &giver);
    let (operation, lease) = match taken {
        Ok(taken) => taken,
        Err(error) => {
            if let Some(filesystem) = &filesystem {
                filesystem.set_read_only(false);
            }
            return Err(error);
        }
    };
    daemon.audit(
        &giver,
        "api",
        "handoff",
        Some(workspace.id),
        &branch,
        serde_json::json!({
            "to": body.to, "commit": head.commit.to_hex(), "fence": lease.fence,
            "operation": operation,
        }),
    );
    let fenced_mounts = daemon
        .mounts
        .list()
        .into_iter()
        .filter(|mount| {
            mount.workspace == workspace.name && mount.branch.as_deref() == Some(&branch)
        })
        .map(|mount| mount.mountpoint)
        .collect();
    Ok(HandoffResult {
        commit: head.commit.to_hex(),
        branch,
        fence: lease.fence,
        fenced_mounts,
        operation: daemon.operation_reference(&workspace.name, operation),
    })
}
