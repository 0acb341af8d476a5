//! Branches and tags.

use computerd_api::v1::{
    BranchInfo, BranchList, CreateReference, ReferenceResult, TagInfo, TagList,
};
use workspace_store::object::CommitKind;
use workspace_store::operation::OperationId;
use workspace_store::policy::Access;
use workspace_store::workspace::WorkspaceInfo;
use workspace_store::{CommitId, Store, WorkspaceId};

use crate::access::Scope;
use crate::convert;
use crate::daemon::{Daemon, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// Branches of a workspace.
pub fn branch_list(scope: &Scope) -> Result<Vec<BranchInfo>> {
    let (daemon, workspace) = (&scope.daemon, &scope.workspace);
    let mounts = daemon.mounts.list();
    // Of others' mounts nobody hears to whom anything is hidden.
    let is_mounted = |branch: &str| {
        mounts.iter().any(|mount| {
            mount.workspace == workspace.name
                && mount.branch.as_deref() == Some(branch)
                && (!scope.is_restricted() || mount.principal == scope.principal)
        })
    };
    daemon
        .store
        .branches(workspace.id)?
        .into_iter()
        .map(|branch| {
            let commit = scope.shown(branch.commit)?;
            Ok(BranchInfo {
                time: convert::time(daemon.store.commit(commit)?.time),
                commit: commit.to_hex(),
                is_default: branch.name == workspace.default_branch,
                is_mounted: is_mounted(&branch.name),
                name: branch.name,
            })
        })
        .collect()
}

/// Lists branches.
pub fn branches(call: &Call) -> Result<BranchList> {
    Ok(BranchList {
        branches: branch_list(&call.scope(None)?)?,
    })
}

/// Lists tags.
pub fn tags(call: &Call) -> Result<TagList> {
    let store = &call.daemon.store;
    let scope = call.scope(None)?;
    let tags = store
        .tags(scope.workspace.id)?
        .into_iter()
        .map(|tag| {
            let commit = scope.shown(tag.commit)?;
            Ok(TagInfo {
                time: convert::time(store.commit(commit)?.time),
                commit: commit.to_hex(),
                name: tag.name,
            })
        })
        .collect::<Result<_>>()?;
    Ok(TagList { tags })
}

/// The commit that a revision names; without one the default branch's, with what is uncommitted.
pub fn target(
    daemon: &Daemon,
    workspace: &WorkspaceInfo,
    revision: Option<&String>,
    principal: &str,
) -> Result<CommitId> {
    match revision {
        Some(revision) => daemon.store.resolve(workspace.id, revision),
        None => {
            let request = commit_request(principal, CommitKind::Snapshot, "");
            let branch = &workspace.default_branch;
            Ok(daemon.clean_head(workspace.id, branch, request)?.commit)
        }
    }
}

/// Makes a branch.
pub fn create_branch(call: &Call, body: CreateReference) -> Result<ReferenceResult> {
    create(call, body, Store::create_branch)
}

/// Makes a tag.
pub fn create_tag(call: &Call, body: CreateReference) -> Result<ReferenceResult> {
    create(call, body, Store::create_tag)
}

/// A function of the store that makes a name for a commit.
type CreateName =
    fn(&Store, WorkspaceId, &str, CommitId, &str) -> workspace_store::Result<OperationId>;

fn create(call: &Call, body: CreateReference, create_name: CreateName) -> Result<ReferenceResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    scope.require_everywhere(Access::Write, &format!("make '{}'", body.name))?;
    let at = target(daemon, workspace, body.revision.as_ref(), principal)?;
    let operation = create_name(&daemon.store, workspace.id, &body.name, at, principal)?;
    Ok(ReferenceResult {
        name: body.name,
        commit: at.to_hex(),
        operation: daemon.operation_reference(&workspace.name, operation),
    })
}

/// Removes a branch that is not mounted. Its commits stay, and undo brings it back.
pub fn delete_branch(call: &Call) -> Result<ReferenceResult> {
    let daemon = &call.daemon;
    let scope = call.scope(None)?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    let branch = &call.name;
    scope.require_everywhere(Access::Write, &format!("remove branch {branch}"))?;
    if daemon.mounts.filesystem(workspace.id, branch).is_some() {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("remove branch {branch}: it is mounted"),
        )
        .with_hint("end its mounts first; `kura ls-mounts` lists them"));
    }
    let _access = daemon.write_access(workspace, branch, principal)?;
    daemon.mounts.recover(daemon, workspace.id, branch)?;
    let commit = daemon.store.branch(workspace.id, branch)?;
    let operation = daemon
        .store
        .delete_branch(workspace.id, branch, principal)?;
    Ok(ReferenceResult {
        name: branch.clone(),
        commit: commit.to_hex(),
        operation: daemon.operation_reference(&workspace.name, operation),
    })
}

/// Removes a tag.
pub fn delete_tag(call: &Call) -> Result<ReferenceResult> {
    let daemon = &call.daemon;
    let scope = call.scope(None)?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    scope.require_everywhere(Access::Write, &format!("remove tag {}", call.name))?;
    let tags = daemon.store.tags(workspace.id)?;
    let commit = tags
        .iter()
        .find(|tag| tag.name == call.name)
        .map(|tag| tag.commit.to_hex())
        .unwrap_or_default();
    let operation = daemon
        .store
        .delete_tag(workspace.id, &call.name, principal)?;
    Ok(ReferenceResult {
        name: call.name.clone(),
        commit,
        operation: daemon.operation_reference(&workspace.name, operation),
    })
}
