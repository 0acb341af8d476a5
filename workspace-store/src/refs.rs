//! Branches, tags and settings of a workspace.
//!
//! Each change is one transaction with its operation and its audit entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::db::operations::NewOperation;
use crate::db::{self, Connection, history};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, WorkspaceId};
use crate::limits::{REF_NAME_MAX_BYTES, SETTING_VALUE_MAX_BYTES};
use crate::operation::{OperationId, OperationKind, record};
use crate::store::{Store, now_ns};

/// A branch or tag and the commit that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefInfo {
    /// Its name.
    pub name: String,
    /// The commit it names.
    pub commit: CommitId,
}

impl Store {
    /// Branches of a workspace by name.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn branches(&self, workspace: WorkspaceId) -> Result<Vec<RefInfo>> {
        self.inner.database.read(|connection| {
            db::refs::branches(
                connection,
                db::refs::workspace_number(connection, workspace)?,
            )
        })
    }

    /// The commit that a branch names.
    ///
    /// # Errors
    /// `NotFound` if there is no such branch.
    pub fn branch(&self, workspace: WorkspaceId, name: &str) -> Result<CommitId> {
        self.inner.database.read(|connection| {
            let number = db::refs::workspace_number(connection, workspace)?;
            Ok(db::refs::require_branch(connection, number, name)?.commit)
        })
    }

    /// Makes a branch.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name, `AlreadyExists` for a taken one, `NotFound` if the workspace
    /// has no such commit.
    pub fn create_branch(
        &self,
        workspace: WorkspaceId,
        name: &str,
        at: CommitId,
        author: &str,
    ) -> Result<OperationId> {
        check_ref_name("branch", name)?;
        self.change(workspace, name, author, move |change, connection| {
            change.create_branch(connection, at)
        })
    }

    /// Removes a branch; its commits stay.
    ///
    /// # Errors
    /// `NotFound` if there is no such branch, `InvalidInput` for the default branch.
    pub fn delete_branch(
        &self,
        workspace: WorkspaceId,
        name: &str,
        author: &str,
    ) -> Result<OperationId> {
        self.change(workspace, name, author, |change, connection| {
            change.delete_branch(connection, None)
        })
    }

    /// Tags of a workspace by name.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn tags(&self, workspace: WorkspaceId) -> Result<Vec<RefInfo>> {
        self.inner.database.read(|connection| {
            db::refs::tags(
                connection,
                db::refs::workspace_number(connection, workspace)?,
            )
        })
    }

    /// Makes a tag.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name, `AlreadyExists` for a taken one, `NotFound` if the workspace
    /// has no such commit.
    pub fn create_tag(
        &self,
        workspace: WorkspaceId,
        name: &str,
        at: CommitId,
        author: &str,
    ) -> Result<OperationId> {
        check_ref_name("tag", name)?;
        self.change(workspace, name, author, move |change, connection| {
            change.create_tag(connection, at)
        })
    }

    /// Removes a tag; its commit stays.
    ///
    /// # Errors
    /// `NotFound` if there is no such tag.
    pub fn delete_tag(
        &self,
        workspace: WorkspaceId,
        name: &str,
        author: &str,
    ) -> Result<OperationId> {
        self.change(workspace, name, author, |change, connection| {
            change.delete_tag(connection, None)
        })
    }

    /// Settings of a workspace.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn settings(&self, workspace: WorkspaceId) -> Result<BTreeMap<String, String>> {
        self.inner.database.read(|connection| {
            db::refs::settings(
                connection,
                db::refs::workspace_number(connection, workspace)?,
            )
        })
    }

    /// Sets or, with `None`, removes a setting. What values mean is the caller's matter.
    ///
    /// # Errors
    /// `InvalidInput` for a bad key or a value that is too long.
    pub fn set_setting(
        &self,
        workspace: WorkspaceId,
        key: &str,
        value: Option<&str>,
        author: &str,
    ) -> Result<OperationId> {
        check_ref_name("setting", key)?;
        if value.is_some_and(|value| value.len() > SETTING_VALUE_MAX_BYTES) {
            return Err(StoreError::new(
                ErrorKind::InvalidInput,
                format!("the value of '{key}' is longer than {SETTING_VALUE_MAX_BYTES} bytes"),
            ));
        }
        let value = value.map(str::to_owned);
        self.change(workspace, key, author, move |change, connection| {
            change.set_setting(connection, value.as_deref(), None)
        })
    }

    fn change(
        &self,
        workspace: WorkspaceId,
        target: &str,
        author: &str,
        job: impl FnOnce(&Change<'_>, &Connection) -> Result<OperationId> + Send + 'static,
    ) -> Result<OperationId> {
        let target = target.to_owned();
        let author = author.to_owned();
        self.inner.database.write(move |connection| {
            let number = db::refs::workspace_number(connection, workspace)?;
            let change = Change {
                workspace,
                number,
                author: &author,
                target: &target,
                undoes: None,
            };
            job(&change, connection)
        })
    }
}

/// A change of one ref or setting, inside a transaction.
pub(crate) struct Change<'a> {
    /// The workspace.
    pub(crate) workspace: WorkspaceId,
    /// Its row number.
    pub(crate) number: i64,
    /// Who makes the change.
    pub(crate) author: &'a str,
    /// Name of the ref or setting.
    pub(crate) target: &'a str,
    /// The operation that this change undoes.
    pub(crate) undoes: Option<OperationId>,
}

impl Change<'_> {
    /// Makes the branch.
    pub(crate) fn create_branch(
        &self,
        connection: &Connection,
        at: CommitId,
    ) -> Result<OperationId> {
        let row = history::require_visible(connection, self.number, at)?;
        if db::refs::tag(connection, self.number, self.target)?.is_some() {
            return Err(self.taken("branch", "tag"));
        }
        db::refs::insert_branch(connection, self.number, self.target, row.number)?;
        self.record(
            connection,
            OperationKind::CreateBranch,
            None,
            Some(at.to_hex()),
        )
    }

    /// Removes the branch, if it names `expected`.
    pub(crate) fn delete_branch(
        &self,
        connection: &Connection,
        expected: Option<CommitId>,
    ) -> Result<OperationId> {
        let row = db::refs::require_branch(connection, self.number, self.target)?;
        if self.target == db::refs::default_branch(connection, self.number)? {
            return Err(StoreError::new(
                ErrorKind::InvalidInput,
                format!(
                    "'{}' is the default branch and can't be deleted",
                    self.target
                ),
            ));
        }
        self.expect("branch", expected, row.commit)?;
        db::refs::delete_branch(connection, row.number)?;
        self.record(
            connection,
            OperationKind::DeleteBranch,
            Some(row.commit.to_hex()),
            None,
        )
    }

    /// Makes the tag.
    pub(crate) fn create_tag(&self, connection: &Connection, at: CommitId) -> Result<OperationId> {
        let row = history::require_visible(connection, self.number, at)?;
        if db::refs::branch(connection, self.number, self.target)?.is_some() {
            return Err(self.taken("tag", "branch"));
        }
        db::refs::insert_tag(connection, self.number, self.target, row.number)?;
        self.record(
            connection,
            OperationKind::CreateTag,
            None,
            Some(at.to_hex()),
        )
    }

    /// Removes the tag, if it names `expected`.
    pub(crate) fn delete_tag(
        &self,
        connection: &Connection,
        expected: Option<CommitId>,
    ) -> Result<OperationId> {
        let commit = db::refs::tag(connection, self.number, self.target)?.ok_or_else(|| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("the workspace has no tag '{}'", self.target),
            )
            .with_hint("list its tags with `kura tag list NAME`")
        })?;
        self.expect("tag", expected, commit)?;
        db::refs::delete_tag(connection, self.number, self.target)?;
        self.record(
            connection,
            OperationKind::DeleteTag,
            Some(commit.to_hex()),
            None,
        )
    }

    /// Sets or removes the setting, if it has the value `expected`.
    pub(crate) fn set_setting(
        &self,
        connection: &Connection,
        value: Option<&str>,
        expected: Option<Option<&str>>,
    ) -> Result<OperationId> {
        let before = db::refs::setting(connection, self.number, self.target)?;
        if expected.is_some_and(|expected| expected != before.as_deref()) {
            return Err(self.changed_since("setting"));
        }
        db::refs::put_setting(connection, self.number, self.target, value)?;
        self.record(
            connection,
            OperationKind::SetSetting,
            before,
            value.map(str::to_owned),
        )
    }

    fn expect(&self, what: &str, expected: Option<CommitId>, found: CommitId) -> Result<()> {
        match expected {
            Some(expected) if expected != found => Err(self.changed_since(what)),
            _ => Ok(()),
        }
    }

    /// A revision must mean one thing.
    fn taken(&self, what: &str, by: &str) -> StoreError {
        StoreError::new(
            ErrorKind::AlreadyExists,
            format!("make {what} '{0}': there is a {by} '{0}'", self.target),
        )
        .with_hint("choose another name")
    }

    fn changed_since(&self, what: &str) -> StoreError {
        StoreError::new(
            ErrorKind::Conflict,
            format!("the {what} '{}' was changed again since", self.target),
        )
        .with_hint("undo the later change first")
    }

    fn record(
        &self,
        connection: &Connection,
        kind: OperationKind,
        before: Option<String>,
        after: Option<String>,
    ) -> Result<OperationId> {
        record(
            connection,
            self.workspace,
            "api",
            &NewOperation {
                workspace: self.number,
                time_ns: now_ns(),
                author: self.author,
                kind,
                target: self.target,
                before,
                after,
                undoes: self.undoes,
                details: serde_json::json!({}),
            },
        )
    }
}

/// Checks the name of a branch, tag or setting: letters, digits, and `.`, `_`, `-`, `/` inside.
///
/// # Errors
/// `InvalidInput` for anything else; the characters of revisions (`@`, `~`, `:`) are among it.
pub(crate) fn check_ref_name(what: &str, name: &str) -> Result<()> {
    let is_good =
        |character: char| character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '/');
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > REF_NAME_MAX_BYTES {
        format!("it is longer than {REF_NAME_MAX_BYTES} bytes")
    } else if let Some(bad) = name.chars().find(|character| !is_good(*character)) {
        format!("it contains {bad:?}")
    } else if !name.starts_with(char::is_alphanumeric) {
        "it doesn't begin with a letter or digit".to_owned()
    } else if name.contains("..") || name.contains("//") || name.ends_with(['/', '.']) {
        "it has '..' or '//' in it, or ends with '/' or '.'".to_owned()
    } else if what != "setting" && (name == "HEAD" || name.parse::<CommitId>().is_ok()) {
        "it has a meaning of its own".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::new(
        ErrorKind::InvalidInput,
        format!("{name:?} can't be the name of a {what}: {reason}"),
    )
    .with_hint("use letters, digits, '.', '_', '-' and '/', beginning with a letter or digit"))
}
