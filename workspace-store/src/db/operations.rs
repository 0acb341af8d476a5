//! Rows of operations.

use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::{ErrorKind, Result, StoreError};
use crate::object::Timestamp;
use crate::operation::{OperationId, OperationKind, OperationRecord};

/// An operation to be recorded.
#[derive(Debug, Clone)]
pub(crate) struct NewOperation<'a> {
    pub(crate) workspace: i64,
    pub(crate) time_ns: i64,
    pub(crate) author: &'a str,
    pub(crate) kind: OperationKind,
    pub(crate) target: &'a str,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) undoes: Option<OperationId>,
    pub(crate) details: serde_json::Value,
}

const COLUMNS: &str =
    "SELECT id, time_ns, author, kind, target, state_before, state_after, undoes, details
     FROM operation";

/// Records an operation.
pub(crate) fn insert(connection: &Connection, operation: &NewOperation<'_>) -> Result<OperationId> {
    connection
        .prepare_cached(
            "INSERT INTO operation (workspace, time_ns, author, kind, target, state_before,
             state_after, undoes, details) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            operation.workspace,
            operation.time_ns,
            operation.author,
            operation.kind.as_str(),
            operation.target,
            &operation.before,
            &operation.after,
            operation.undoes.map(|id| id as i64),
            operation.details.to_string(),
        ))?;
    Ok(connection.last_insert_rowid() as OperationId)
}

fn record(row: &Row<'_>) -> rusqlite::Result<OperationRecord> {
    let kind: String = row.get(3)?;
    let details: String = row.get(8)?;
    Ok(OperationRecord {
        id: row.get::<_, i64>(0)? as OperationId,
        time: Timestamp::from_nanoseconds(i128::from(row.get::<_, i64>(1)?)),
        author: row.get(2)?,
        kind: OperationKind::from_text(&kind).ok_or_else(|| {
            rusqlite::Error::FromSqlConversionFailure(
                3,
                rusqlite::types::Type::Text,
                format!("unknown kind of operation '{kind}'").into(),
            )
        })?,
        target: row.get(4)?,
        before: row.get(5)?,
        after: row.get(6)?,
        undoes: row.get::<_, Option<i64>>(7)?.map(|id| id as OperationId),
        details: serde_json::from_str(&details).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                8,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })?,
    })
}

/// Operations of a workspace, newest first, up to `limit` (0: all).
pub(crate) fn list(
    connection: &Connection,
    workspace: i64,
    limit: usize,
) -> Result<Vec<OperationRecord>> {
    let limit = if limit == 0 { -1 } else { limit as i64 };
    let mut statement = connection.prepare_cached(&format!(
        "{COLUMNS} WHERE workspace = ?1 ORDER BY id DESC LIMIT ?2"
    ))?;
    let rows = statement.query_map((workspace, limit), record)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// One operation of a workspace.
pub(crate) fn require(
    connection: &Connection,
    workspace: i64,
    id: OperationId,
) -> Result<OperationRecord> {
    connection
        .prepare_cached(&format!("{COLUMNS} WHERE workspace = ?1 AND id = ?2"))?
        .query_row((workspace, id as i64), record)
        .optional()?
        .ok_or_else(|| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("the workspace has no operation {id}"),
            )
            .with_hint("list its operations with `kura operations NAME`")
        })
}

/// The last operation that gave a branch another commit, not after `time_ns`.
pub(crate) fn branch_at(
    connection: &Connection,
    workspace: i64,
    branch: &str,
    time_ns: i64,
) -> Result<Option<OperationRecord>> {
    Ok(connection
        .prepare_cached(&format!(
            "{COLUMNS} WHERE workspace = ?1 AND target = ?2 AND time_ns <= ?3
             AND kind IN ('create-workspace', 'fork-workspace', 'commit', 'create-branch',
             'delete-branch') ORDER BY id DESC LIMIT 1"
        ))?
        .query_row((workspace, branch, time_ns), record)
        .optional()?)
}
