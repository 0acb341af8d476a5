//! Workspaces: list, make, state, fork, handoff.

use computerd_api::v1::{
    BranchConflicts, CreateWorkspace, ForkRequest, ForkResult, HandoffRequest, HandoffResult,
    LeaseInfo, MountInfo, UncommittedBranch, WorkspaceCreated, WorkspaceInfo, WorkspaceList,
    WorkspaceSizes, WorkspaceStatus,
};
use workspace_store::diff::{DiffOptions, diff_roots};
use workspace_store::object::CommitKind;
use workspace_store::policy::Access;

use super::{config, history, references, transfer};
use crate::access::{self, Scope};
use crate::convert;
use crate::daemon::commit_request;
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;
use crate::server::progress::ProgressLines;

fn info(scope: &Scope) -> Result<WorkspaceInfo> {
    let (daemon, workspace) = (&scope.daemon, &scope.workspace);
    let head = scope.shown(workspace.head)?;
    Ok(WorkspaceInfo {
        name: workspace.name.clone(),
        default_branch: workspace.default_branch.clone(),
        head: head.to_hex(),
        head_time: convert::time(daemon.store.commit(head)?.time),
        created: convert::time(workspace.created),
        mount_count: mounts(scope).len() as u32,
    })
}

/// Mounts of the workspace: all of them, or a restricted principal's own.
fn mounts(scope: &Scope) -> Vec<MountInfo> {
    let mut mounts = scope.daemon.mounts.list();
    mounts.retain(|mount| {
        mount.workspace == scope.workspace.name
            && (!scope.is_restricted() || mount.principal == scope.principal)
    });
    mounts
}

/// All workspaces of which something may be seen, by name.
pub fn list(call: &Call) -> Result<WorkspaceList> {
    let daemon = &call.daemon;
    let principal = call.acts_as(None)?;
    let mut workspaces = Vec::new();
    for workspace in daemon.store.workspaces()? {
        let policy = access::policy(daemon, &call.caller, &principal, &workspace)?;
        if policy.root().is_visible_directory() {
            workspaces.push(info(&call.scope_of(&workspace.name, None)?)?);
        }
    }
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
    let author = call.acts_as(body.author.as_ref())?;
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
    let scope = call.scope(None)?;
    let workspace = &scope.workspace;
    let view = scope.view();
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
            let (old, new) = (view.root(&head.root), view.root(&live_root));
            let entries = diff_roots(&view, &old, &new, &options)?;
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
    let head = scope.shown(head)?;
    let names = history::references(&scope)?
        .remove(&head)
        .unwrap_or_default();
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
        let found = scope.conflicts(branch.commit)?;
        if !found.is_empty() {
            conflicts.push(BranchConflicts {
                branch: branch.name,
                count: found.len() as u64,
                conflicts: found
                    .iter()
                    .take(BranchConflicts::MAX_SHOWN)
                    .map(|conflict| scope.conflict_info(conflict))
                    .collect::<Result<_>>()?,
            });
        }
    }
    Ok(WorkspaceStatus {
        head_commit: scope.commit_info(head, &*daemon.store.commit(head)?, names)?,
        branches: references::branch_list(&scope)?,
        mounts: mounts(&scope),
        uncommitted,
        conflicts,
        leases,
        // Sizes and numbers are made of hidden things, too.
        sizes: if scope.is_restricted() {
            WorkspaceSizes::default()
        } else {
            let statistics = daemon.store.statistics(workspace.id)?;
            WorkspaceSizes {
                entry_count: None,
                content_bytes: None,
                overlay_bytes,
                store_bytes: statistics.database_bytes,
                commit_count: statistics.commits,
            }
        },
        workspace: info(&scope)?,
    })
}

/// Makes a workspace that begins at a state of this one.
pub fn fork(call: &Call, body: ForkRequest) -> Result<ForkResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    scope.require_everywhere(Access::Read, "fork")?;
    let at = references::target(daemon, workspace, body.revision.as_ref(), principal)?;
    let new = daemon
        .store
        .fork_workspace(workspace.id, at, &body.name, principal, |key| {
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
    let scope = call.scope(body.principal.as_ref())?;
    let (workspace, giver) = (&scope.workspace, &scope.principal);
    scope.require_everywhere(Access::Write, "hand over")?;
    let taker = &body.to;
    if !access::is_administrator(taker) {
        access::check_name(daemon, taker, "hand over to")?;
    }
    let branch = daemon.branch_name(workspace, body.branch.as_ref())?;
    // Changes that have begun end before the last commit; none begins until the lease has changed.
    let _giving = daemon.leases.write();
    config::check_lease(daemon, workspace, &branch, giver)?;
    let filesystem = daemon.mounts.filesystem(workspace.id, &branch);
    // Committed before it is fenced: what the kernel still holds back could not be written after.
    let request = commit_request(giver, CommitKind::Handoff, &body.message);
    let mut head = daemon.clean_head(workspace.id, &branch, request.clone())?;
    if let Some(filesystem) = &filesystem {
        filesystem.set_read_only(true);
        // What was written between the two.
        let last = daemon.clean_head(workspace.id, &branch, request)?;
        head.is_new |= last.is_new;
        head.commit = last.commit;
    }
    let taken = config::take_lease(daemon, workspace.id, &branch, taker, giver);
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
        giver,
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
