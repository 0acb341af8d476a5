//! What all parts of the worker share, and the questions that most verbs ask.

use std::sync::Arc;

use computerd_api::v1::OperationReference;
use fuse_mount::fs::SwitchOutcome;
use parking_lot::{RwLock, RwLockReadGuard};
use workspace_store::audit::AuditRecord;
use workspace_store::object::{CommitKind, Root, Timestamp};
use workspace_store::operation::OperationKind;
use workspace_store::source::{CommitRequest, NextVersion};
use workspace_store::store::Store;
use workspace_store::workspace::WorkspaceInfo;
use workspace_store::{CommitId, id::WorkspaceId};

use crate::error::{Error, ErrorKind, Result};
use crate::keeper::link::KeeperLink;
use crate::mounts::Mounts;
use crate::store_directory::StoreDirectory;
use crate::verbs::config;
use crate::volume_plugin::VolumePlugin;

/// Attempts to move a branch that is not mounted while others move it, too.
const CHANGE_ATTEMPTS: usize = 5;

/// How many of the newest operations are searched for the one that a commit made.
const RECENT_OPERATIONS: usize = 64;

/// The worker's parts.
#[derive(Debug)]
pub struct Daemon {
    /// Where the store is.
    pub directory: StoreDirectory,
    /// The store.
    pub store: Store,
    /// What is mounted.
    pub mounts: Mounts,
    /// Held for writing while a branch is given to another principal.
    pub leases: RwLock<()>,
    /// The keeper.
    pub link: Arc<KeeperLink>,
    /// Process id of the keeper, if there is one.
    pub keeper_pid: Option<u32>,
    /// How many workers died before this one.
    pub restart_count: u32,
    /// When this worker began.
    pub since: Timestamp,
    /// Docker's volume driver.
    pub volume_plugin: VolumePlugin,
    /// Told to end the worker; `true` detaches busy mounts.
    pub stop: tokio::sync::watch::Sender<Option<bool>>,
    /// The runtime, for what is started from blocking threads.
    pub runtime: tokio::runtime::Handle,
}

/// A state of a workspace.
#[derive(Debug, Clone)]
pub struct State {
    /// Its file tree.
    pub root: Root,
    /// The commit, unless there are uncommitted changes in it.
    pub commit: Option<CommitId>,
}

/// A commit of a branch that has nothing uncommitted beside it.
#[derive(Debug, Clone)]
pub struct CleanHead {
    /// The branch's newest commit.
    pub commit: CommitId,
    /// Whether a commit had to be made for it.
    pub is_new: bool,
}

impl Daemon {
    /// The branch that is meant: the named one, which must exist, or the default one.
    pub fn branch_name(&self, workspace: &WorkspaceInfo, named: Option<&String>) -> Result<String> {
        match named {
            Some(name) => {
                self.store.branch(workspace.id, name)?;
                Ok(name.clone())
            }
            None => Ok(workspace.default_branch.clone()),
        }
    }

    /// The state of a branch with everything that is uncommitted.
    pub fn live_state(&self, workspace: &WorkspaceInfo, branch: &str) -> Result<State> {
        self.mounts.recover(self, workspace.id, branch)?;
        let _still = self.mounts.hold_still();
        let head = self.store.branch(workspace.id, branch)?;
        let committed = self.store.commit(head)?.root.clone();
        let root = match self.mounts.filesystem(workspace.id, branch) {
            Some(filesystem) => filesystem.live_root()?,
            None => committed.clone(),
        };
        Ok(State {
            commit: (root == committed).then_some(head),
            root,
        })
    }

    /// Commits what is uncommitted on a branch, so that its head is all there is.
    pub fn clean_head(
        &self,
        workspace: WorkspaceId,
        branch: &str,
        request: CommitRequest,
    ) -> Result<CleanHead> {
        self.mounts.recover(self, workspace, branch)?;
        let _still = self.mounts.hold_still();
        if let Some(filesystem) = self.mounts.filesystem(workspace, branch) {
            let outcome = filesystem.commit(request)?;
            return Ok(CleanHead {
                commit: outcome.commit,
                is_new: outcome.is_new,
            });
        }
        let head = self.store.branch(workspace, branch)?;
        let commit = if request.is_named() {
            let root = self.store.commit(head)?.root.clone();
            self.store
                .set_branch_root(workspace, branch, head, root, request)?
        } else {
            head
        };
        Ok(CleanHead {
            commit,
            is_new: commit != head,
        })
    }

    /// Commits what is uncommitted on a branch as nobody's in particular: it carries what all its
    /// changes have in common. Where commits are made on request only, nothing is done.
    pub fn commit_by_policy(&self, workspace: &WorkspaceInfo, branch: &str) -> Result<()> {
        if !config::policy(self, workspace.id)?.enabled {
            return Ok(());
        }
        self.mounts.recover(self, workspace.id, branch)?;
        let _still = self.mounts.hold_still();
        if let Some(filesystem) = self.mounts.filesystem(workspace.id, branch) {
            filesystem.commit_by_policy()?;
        }
        Ok(())
    }

    /// Makes a branch what `wanted` makes of its tree by a new commit, in its mounts as well; what
    /// is uncommitted is committed before.
    ///
    /// # Errors
    /// Of `wanted`; `Conflict` if others move a branch that is not mounted again and again.
    pub fn change_branch(
        &self,
        workspace: WorkspaceId,
        branch: &str,
        wanted: &dyn Fn(&Root) -> Result<NextVersion>,
        request: &CommitRequest,
    ) -> Result<SwitchOutcome> {
        self.mounts.recover(self, workspace, branch)?;
        let _still = self.mounts.hold_still();
        if let Some(filesystem) = self.mounts.filesystem(workspace, branch) {
            let outcome = filesystem.switch(wanted, request.clone())?;
            self.mounts.wait_until_seen(workspace, branch);
            return Ok(outcome);
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            let before = self.store.branch(workspace, branch)?;
            let before_root = self.store.commit(before)?.root.clone();
            let next = wanted(&before_root)?;
            let root = next.root.clone();
            let commit = if root == before_root && next.lineage.is_plain() {
                None
            } else {
                let request = request.clone();
                match self
                    .store
                    .set_branch_root(workspace, branch, before, next, request)
                {
                    Err(error)
                        if error.kind() == ErrorKind::Conflict && attempt < CHANGE_ATTEMPTS =>
                    {
                        continue;
                    }
                    other => Some(other?).filter(|commit| *commit != before),
                }
            };
            return Ok(SwitchOutcome {
                before,
                before_root,
                rescue: None,
                commit,
                root,
            });
        }
    }

    /// The right to change a branch: that nobody else was given it by a handoff. No handoff
    /// happens while the guard lives.
    ///
    /// # Errors
    /// `PermissionDenied` if another principal holds the branch.
    pub fn write_access(
        &self,
        workspace: &WorkspaceInfo,
        branch: &str,
        principal: &str,
    ) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.leases.read();
        config::check_lease(self, workspace, branch, principal)?;
        Ok(guard)
    }

    /// Grants, groups or principals have changed: whatever goes on under a policy follows it.
    pub fn policies_changed(&self) {
        self.mounts.apply_grants(&self.store);
    }

    /// How people are told of an operation.
    pub fn operation_reference(&self, workspace: &str, id: u64) -> OperationReference {
        OperationReference {
            id,
            undo: format!("kura undo {workspace} {id}"),
        }
    }

    /// Whether a commit says what its parent says: only a message, nothing to take back.
    pub fn is_only_a_name(&self, commit: CommitId) -> Result<bool> {
        let commit = self.store.commit(commit)?;
        match commit.parents[..] {
            [parent] => {
                let parent = self.store.commit(parent)?;
                Ok(parent.root == commit.root && parent.conflicts == commit.conflicts)
            }
            _ => Ok(false),
        }
    }

    /// The operation by which a branch came to name `commit`.
    pub fn operation_of(
        &self,
        workspace: &WorkspaceInfo,
        commit: CommitId,
    ) -> Result<Option<OperationReference>> {
        let hex = commit.to_hex();
        let records = self.store.operations(workspace.id, RECENT_OPERATIONS)?;
        Ok(records
            .iter()
            .find(|record| {
                record.kind == OperationKind::Commit && record.after.as_deref() == Some(&hex)
            })
            .map(|record| self.operation_reference(&workspace.name, record.id)))
    }

    /// The operation that made a workspace.
    pub fn creation_of(&self, workspace: &WorkspaceInfo) -> Result<OperationReference> {
        let records = self.store.operations(workspace.id, 0)?;
        records
            .last()
            .map(|record| self.operation_reference(&workspace.name, record.id))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    format!("workspace {} has no operations", workspace.name),
                )
            })
    }

    /// Records something in the audit log that made no operation. A log that can't be written
    /// must not undo what has happened: the failure is logged.
    pub fn audit(
        &self,
        principal: &str,
        source: &str,
        action: &str,
        workspace: Option<WorkspaceId>,
        object: &str,
        details: serde_json::Value,
    ) {
        let record = AuditRecord {
            principal: principal.to_owned(),
            source: source.to_owned(),
            action: action.to_owned(),
            workspace,
            object: object.to_owned(),
            outcome: "ok".to_owned(),
            details,
        };
        if let Err(error) = self.store.audit_append(record) {
            tracing::error!(?error, action, "write an audit entry");
        }
    }
}

/// A commit request of this kind without run or step.
pub fn commit_request(author: &str, kind: CommitKind, message: &str) -> CommitRequest {
    CommitRequest {
        author: author.to_owned(),
        kind,
        message: message.to_owned(),
        run: None,
        step: None,
    }
}

/// A byte path as it is asked for: without slashes at its ends, `.` for the root.
pub fn clean_path(path: &[u8]) -> Result<Vec<u8>> {
    let mut trimmed = path;
    while let Some(rest) = trimmed.strip_suffix(b"/") {
        if rest.is_empty() {
            break;
        }
        trimmed = rest;
    }
    let trimmed = match trimmed {
        b"." | b"/" => b"",
        other => other.strip_prefix(b"./").unwrap_or(other),
    };
    workspace_store::path::split_path(trimmed)?;
    Ok(trimmed.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_and_stay_in_the_tree() {
        assert_eq!(clean_path(b"").unwrap(), b"");
        assert_eq!(clean_path(b"/").unwrap(), b"");
        assert_eq!(clean_path(b".").unwrap(), b"");
        assert_eq!(clean_path(b"./src/").unwrap(), b"src");
        for bad in [&b"../x"[..], b"a//b", b"/etc", b"a/../b", b"a\0b"] {
            let error = clean_path(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
