//! Merge: what another history changed since the two parted comes into a branch.

use computerd_api::v1::{MergeRequest, RevertResult};
use workspace_store::CommitId;
use workspace_store::conflict::{ConflictChange, ConflictSet};
use workspace_store::merge::{MergeLabels, MergeOptions, merge_roots};
use workspace_store::object::{CommitKind, Root, Timestamp};
use workspace_store::policy::Access;
use workspace_store::source::{Lineage, NextVersion};
use workspace_store::workspace::WorkspaceInfo;

use super::revert::{Change, short};
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// What is brought in.
#[derive(Debug)]
struct Theirs {
    root: Root,
    commit: CommitId,
    /// What people call it.
    name: String,
}

/// Brings a branch or another workspace into a branch, by a commit with two parents.
pub fn merge(call: &Call, body: MergeRequest) -> Result<RevertResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    // What a merge leaves out for who may not write it would never come by a later one.
    scope.require_everywhere(Access::Write, "merge")?;
    let workspace = &scope.workspace;
    let branch = daemon.branch_name(workspace, body.branch.as_ref())?;
    let theirs = theirs(call, workspace, &body)?;
    let what = format!("{} ({})", theirs.name, short(theirs.commit));
    let change = Change {
        scope: &scope,
        branch: branch.clone(),
        kind: CommitKind::Merge,
        message: body.message.unwrap_or_else(|| format!("merge {what}")),
        target: Some(theirs.commit),
        is_dry_run: body.dry_run,
    };
    let time = Timestamp::now();
    change.run(&|now| {
        let head = daemon.store.branch(workspace.id, &branch)?;
        let Some(base) = daemon.store.merge_base(head, theirs.commit)? else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "merge {what} into {branch} of {}: their histories have nothing in common",
                    workspace.name
                ),
            )
            .with_hint("bring its files in with `kura export` and `kura import`"));
        };
        let base_root = daemon.store.commit(base)?.root.clone();
        if base == theirs.commit && base_root == theirs.root {
            return Ok(now.clone().into());
        }
        let options = MergeOptions {
            labels: MergeLabels {
                ours: branch.clone(),
                base: short(base),
                theirs: format!("{} {}", theirs.name, short(theirs.commit)),
            },
            base_commit: base,
            theirs_commit: theirs.commit,
            time,
            filter: None,
        };
        let plan = merge_roots(&daemon.store, &base_root, now, &theirs.root, &options)?;
        let mut conflicts = ConflictSet::merge(
            &daemon.store.conflicts(base)?,
            &daemon.store.conflicts(head)?,
            &daemon.store.conflicts(theirs.commit)?,
        );
        for conflict in plan.conflicts {
            conflicts.insert(conflict);
        }
        Ok(NextVersion {
            root: daemon.store.build_root(now, plan.edit, &|_| {})?,
            lineage: Lineage {
                merged: Some(theirs.commit),
                conflicts: ConflictChange::Set(conflicts),
            },
        })
    })
}

/// Finds what is to be brought in. Of a mounted branch that is its live state, which is committed
/// for it.
fn theirs(call: &Call, workspace: &WorkspaceInfo, body: &MergeRequest) -> Result<Theirs> {
    let daemon = &call.daemon;
    let name = &body.from;
    // All of it comes along.
    let other = || -> Result<WorkspaceInfo> {
        let scope = call.scope_of(name, body.principal.as_ref())?;
        scope.require_everywhere(Access::Read, "merge from it")?;
        Ok(scope.workspace)
    };
    if let Some(revision) = &body.revision {
        let commit = daemon.store.resolve(other()?.id, revision)?;
        return at_commit(daemon, commit, format!("{name}@{revision}"));
    }
    let is_branch = |error: &Error| error.kind() != ErrorKind::NotFound;
    match daemon.store.branch(workspace.id, name) {
        Ok(_) => return of_branch(daemon, workspace, name, name, body.dry_run),
        Err(error) if is_branch(&error) => return Err(error),
        Err(_) => {}
    }
    if let Ok(commit) = daemon.store.resolve(workspace.id, name) {
        return at_commit(daemon, commit, name.clone());
    }
    match other() {
        Ok(other) => of_branch(daemon, &other, &other.default_branch, name, body.dry_run),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "merge {name} into {}: it has no such branch or revision, and there is no such \
                 workspace",
                workspace.name
            ),
        )
        .with_hint(format!(
            "`kura branch {}` lists its branches, `kura list` the workspaces",
            workspace.name
        ))),
        Err(error) => Err(error),
    }
}

fn at_commit(daemon: &Daemon, commit: CommitId, name: String) -> Result<Theirs> {
    Ok(Theirs {
        root: daemon.store.commit(commit)?.root.clone(),
        commit,
        name,
    })
}

fn of_branch(
    daemon: &Daemon,
    workspace: &WorkspaceInfo,
    branch: &str,
    name: &str,
    is_dry_run: bool,
) -> Result<Theirs> {
    if is_dry_run {
        let root = daemon.live_state(workspace, branch)?.root;
        let commit = daemon.store.branch(workspace.id, branch)?;
        return Ok(Theirs {
            root,
            commit,
            name: name.to_owned(),
        });
    }
    daemon.commit_by_policy(workspace, branch)?;
    let commit = daemon.store.branch(workspace.id, branch)?;
    at_commit(daemon, commit, name.to_owned())
}
