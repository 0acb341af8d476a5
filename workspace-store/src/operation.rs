//! Operations: the atomic changes of refs and settings, each with its state before and after, so
//! that each can be undone by a new one.

use serde::{Deserialize, Serialize};

use crate::audit::source_text as audit_text;
use crate::db::operations::{self, NewOperation};
use crate::db::{Connection, audit, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::grant;
use crate::id::{CommitId, WorkspaceId};
use crate::object::Timestamp;
use crate::refs::Change;
use crate::store::Store;

/// Number of an operation; ascending in the whole store.
pub type OperationId = u64;

/// What an operation changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A new workspace.
    CreateWorkspace,
    /// A new workspace from a commit of another.
    ForkWorkspace,
    /// A branch moved to a new commit.
    Commit,
    /// A new branch.
    CreateBranch,
    /// A branch is gone.
    DeleteBranch,
    /// A new tag.
    CreateTag,
    /// A tag is gone.
    DeleteTag,
    /// A setting changed.
    SetSetting,
    /// A grant was given, changed or revoked.
    SetGrant,
}

impl OperationKind {
    /// The word that stands for it in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationKind::CreateWorkspace => "create-workspace",
            OperationKind::ForkWorkspace => "fork-workspace",
            OperationKind::Commit => "commit",
            OperationKind::CreateBranch => "create-branch",
            OperationKind::DeleteBranch => "delete-branch",
            OperationKind::CreateTag => "create-tag",
            OperationKind::DeleteTag => "delete-tag",
            OperationKind::SetSetting => "set-setting",
            OperationKind::SetGrant => "set-grant",
        }
    }

    /// The kind that a word in the database stands for.
    pub fn from_text(text: &str) -> Option<Self> {
        [
            OperationKind::CreateWorkspace,
            OperationKind::ForkWorkspace,
            OperationKind::Commit,
            OperationKind::CreateBranch,
            OperationKind::DeleteBranch,
            OperationKind::CreateTag,
            OperationKind::DeleteTag,
            OperationKind::SetSetting,
            OperationKind::SetGrant,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == text)
    }
}

/// An operation as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Its number.
    pub id: OperationId,
    /// When it happened.
    pub time: Timestamp,
    /// Who did it.
    pub author: String,
    /// What it changed.
    pub kind: OperationKind,
    /// The branch, tag, setting or workspace that it changed.
    pub target: String,
    /// State before: a commit's id or a setting's value; `None` if there was none.
    pub before: Option<String>,
    /// State after, likewise.
    pub after: Option<String>,
    /// The operation that this one undid.
    pub undoes: Option<OperationId>,
    /// More, depending on the kind.
    pub details: serde_json::Value,
}

impl Store {
    /// Operations of a workspace, newest first, up to `limit` (0: all).
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn operations(&self, workspace: WorkspaceId, limit: usize) -> Result<Vec<OperationRecord>> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            operations::list(connection, number, limit)
        })
    }

    /// One operation of a workspace.
    ///
    /// # Errors
    /// `NotFound` if it has no such operation.
    pub fn operation(&self, workspace: WorkspaceId, id: OperationId) -> Result<OperationRecord> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            operations::require(connection, number, id)
        })
    }

    /// Undoes an operation on a branch, tag, setting or grant by a new operation; gives back that one.
    ///
    /// # Errors
    /// `Conflict` if the ref or setting was changed again since; `Unsupported` for an operation
    /// that moved a branch or made a workspace.
    pub fn undo_ref_operation(
        &self,
        workspace: WorkspaceId,
        id: OperationId,
        author: &str,
    ) -> Result<OperationId> {
        let author = author.to_owned();
        let undone = self.inner.database.write(move |connection| {
            let number = refs::workspace_number(connection, workspace)?;
            let record = operations::require(connection, number, id)?;
            let change = Change {
                workspace,
                number,
                author: &author,
                target: &record.target,
                undoes: Some(id),
            };
            let commit = |state: &Option<String>| -> Result<CommitId> {
                state
                    .as_deref()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| {
                        StoreError::new(
                            ErrorKind::Corrupt,
                            format!("operation {id} doesn't say which commit it was about"),
                        )
                    })
            };
            match record.kind {
                OperationKind::CreateBranch => {
                    let commit = commit(&record.after)?;
                    change.delete_branch(connection, Some(commit))
                }
                OperationKind::DeleteBranch => {
                    change.create_branch(connection, commit(&record.before)?)
                }
                OperationKind::CreateTag => {
                    let commit = commit(&record.after)?;
                    change.delete_tag(connection, Some(commit))
                }
                OperationKind::DeleteTag => change.create_tag(connection, commit(&record.before)?),
                OperationKind::SetSetting => change.set_setting(
                    connection,
                    record.before.as_deref(),
                    Some(record.after.as_deref()),
                ),
                OperationKind::SetGrant => grant::undo(connection, &change, &record),
                OperationKind::Commit
                | OperationKind::CreateWorkspace
                | OperationKind::ForkWorkspace => Err(StoreError::new(
                    ErrorKind::Unsupported,
                    format!(
                        "operation {id} ({}) is not a change of a ref or setting",
                        record.kind.as_str()
                    ),
                )
                .with_hint(
                    "a commit is undone by a new commit: use `kura undo` or `kura rollback`",
                )),
            }
        })?;
        self.inner.policies.changed();
        Ok(undone)
    }
}

/// Records an operation and the audit entry that belongs to it.
pub(crate) fn record(
    connection: &Connection,
    workspace: WorkspaceId,
    source: &str,
    operation: &NewOperation<'_>,
) -> Result<OperationId> {
    let id = operations::insert(connection, operation)?;
    let mut details = serde_json::json!({
        "operation": id,
        "before": operation.before,
        "after": operation.after,
        "undoes": operation.undoes,
    });
    if let (Some(details), Some(more)) = (details.as_object_mut(), operation.details.as_object()) {
        details.extend(more.clone());
    }
    audit::append(
        connection,
        operation.time_ns,
        &crate::audit::AuditRecord {
            principal: operation.author.to_owned(),
            source: audit_text(source),
            action: operation.kind.as_str().to_owned(),
            workspace: Some(workspace),
            object: operation.target.to_owned(),
            outcome: "ok".to_owned(),
            details,
        },
    )?;
    Ok(id)
}
