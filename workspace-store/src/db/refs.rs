//! Rows of workspaces, branches, tags and settings.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row};

use super::id_column;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, WorkspaceId};
use crate::object::Timestamp;
use crate::refs::RefInfo;
use crate::workspace::WorkspaceInfo;

const WORKSPACES: &str = "SELECT w.public_id, w.name, w.default_branch, w.created_ns, c.hash
     FROM workspace w JOIN branch b ON b.workspace = w.id AND b.name = w.default_branch
     JOIN commit_object c ON c.id = b.commit_id";

fn workspace_info(row: &Row<'_>) -> rusqlite::Result<WorkspaceInfo> {
    Ok(WorkspaceInfo {
        id: WorkspaceId(id_column(row, 0)?),
        name: row.get(1)?,
        default_branch: row.get(2)?,
        created: Timestamp::from_nanoseconds(i128::from(row.get::<_, i64>(3)?)),
        head: CommitId(id_column(row, 4)?),
    })
}

/// All workspaces by name.
pub(crate) fn workspaces(connection: &Connection) -> Result<Vec<WorkspaceInfo>> {
    let mut statement = connection.prepare_cached(&format!("{WORKSPACES} ORDER BY w.name"))?;
    let rows = statement.query_map([], workspace_info)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The workspace of this name.
pub(crate) fn workspace_by_name(
    connection: &Connection,
    name: &str,
) -> Result<Option<WorkspaceInfo>> {
    Ok(connection
        .prepare_cached(&format!("{WORKSPACES} WHERE w.name = ?1"))?
        .query_row([name], workspace_info)
        .optional()?)
}

/// The workspace with this id.
pub(crate) fn workspace_by_id(
    connection: &Connection,
    id: WorkspaceId,
) -> Result<Option<WorkspaceInfo>> {
    Ok(connection
        .prepare_cached(&format!("{WORKSPACES} WHERE w.public_id = ?1"))?
        .query_row([id.as_bytes()], workspace_info)
        .optional()?)
}

/// Row number of a workspace that must be there.
pub(crate) fn workspace_number(connection: &Connection, id: WorkspaceId) -> Result<i64> {
    connection
        .prepare_cached("SELECT id FROM workspace WHERE public_id = ?1")?
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("there is no workspace with the id {id}"),
            )
            .with_hint("list the workspaces with `kura status`")
        })
}

/// Name of a workspace's default branch.
pub(crate) fn default_branch(connection: &Connection, workspace: i64) -> Result<String> {
    Ok(connection
        .prepare_cached("SELECT default_branch FROM workspace WHERE id = ?1")?
        .query_row([workspace], |row| row.get(0))?)
}

/// Makes a workspace's row, without a branch.
pub(crate) fn insert_workspace(
    connection: &Connection,
    id: WorkspaceId,
    name: &str,
    default_branch: &str,
    created_ns: i64,
    origin_commit: Option<i64>,
) -> Result<i64> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO workspace (public_id, name, default_branch, created_ns, origin_commit)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO NOTHING",
        )?
        .execute((
            id.as_bytes(),
            name,
            default_branch,
            created_ns,
            origin_commit,
        ))?;
    if inserted == 0 {
        return Err(StoreError::new(
            ErrorKind::AlreadyExists,
            format!("a workspace named '{name}' exists already"),
        )
        .with_hint("choose another name"));
    }
    Ok(connection.last_insert_rowid())
}

/// A branch's row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BranchRow {
    /// Row number, never used again when the branch is gone.
    pub(crate) number: i64,
    /// The commit that it names.
    pub(crate) commit: CommitId,
}

/// The branch of this name.
pub(crate) fn branch(
    connection: &Connection,
    workspace: i64,
    name: &str,
) -> Result<Option<BranchRow>> {
    Ok(connection
        .prepare_cached(
            "SELECT b.id, c.hash FROM branch b JOIN commit_object c ON c.id = b.commit_id
             WHERE b.workspace = ?1 AND b.name = ?2",
        )?
        .query_row((workspace, name), |row| {
            Ok(BranchRow {
                number: row.get(0)?,
                commit: CommitId(id_column(row, 1)?),
            })
        })
        .optional()?)
}

/// The branch of this name, which must be there.
pub(crate) fn require_branch(
    connection: &Connection,
    workspace: i64,
    name: &str,
) -> Result<BranchRow> {
    branch(connection, workspace, name)?.ok_or_else(|| {
        StoreError::new(
            ErrorKind::NotFound,
            format!("the workspace has no branch '{name}'"),
        )
        .with_hint("list its branches with `kura branch list NAME`")
    })
}

/// Branches of a workspace by name.
pub(crate) fn branches(connection: &Connection, workspace: i64) -> Result<Vec<RefInfo>> {
    list(
        connection,
        "SELECT r.name, c.hash FROM branch r JOIN commit_object c ON c.id = r.commit_id
         WHERE r.workspace = ?1 ORDER BY r.name",
        workspace,
    )
}

/// Tags of a workspace by name.
pub(crate) fn tags(connection: &Connection, workspace: i64) -> Result<Vec<RefInfo>> {
    list(
        connection,
        "SELECT r.name, c.hash FROM tag r JOIN commit_object c ON c.id = r.commit_id
         WHERE r.workspace = ?1 ORDER BY r.name",
        workspace,
    )
}

fn list(connection: &Connection, query: &str, workspace: i64) -> Result<Vec<RefInfo>> {
    let mut statement = connection.prepare_cached(query)?;
    let rows = statement.query_map([workspace], |row| {
        Ok(RefInfo {
            name: row.get(0)?,
            commit: CommitId(id_column(row, 1)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Makes a branch; returns its row number.
pub(crate) fn insert_branch(
    connection: &Connection,
    workspace: i64,
    name: &str,
    commit: i64,
) -> Result<i64> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO branch (workspace, name, commit_id) VALUES (?1, ?2, ?3)
             ON CONFLICT (workspace, name) DO NOTHING",
        )?
        .execute((workspace, name, commit))?;
    if inserted == 0 {
        return Err(StoreError::new(
            ErrorKind::AlreadyExists,
            format!("the workspace has a branch '{name}' already"),
        )
        .with_hint("choose another name"));
    }
    Ok(connection.last_insert_rowid())
}

/// Points a branch at another commit.
pub(crate) fn move_branch(connection: &Connection, branch: i64, commit: i64) -> Result<()> {
    connection
        .prepare_cached("UPDATE branch SET commit_id = ?2 WHERE id = ?1")?
        .execute((branch, commit))?;
    Ok(())
}

/// Removes a branch with its overlay state and inode map.
pub(crate) fn delete_branch(connection: &Connection, branch: i64) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM branch WHERE id = ?1")?
        .execute([branch])?;
    Ok(())
}

/// The commit that a tag names.
pub(crate) fn tag(connection: &Connection, workspace: i64, name: &str) -> Result<Option<CommitId>> {
    Ok(connection
        .prepare_cached(
            "SELECT c.hash FROM tag t JOIN commit_object c ON c.id = t.commit_id
             WHERE t.workspace = ?1 AND t.name = ?2",
        )?
        .query_row((workspace, name), |row| Ok(CommitId(id_column(row, 0)?)))
        .optional()?)
}

/// Makes a tag.
pub(crate) fn insert_tag(
    connection: &Connection,
    workspace: i64,
    name: &str,
    commit: i64,
) -> Result<()> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO tag (workspace, name, commit_id) VALUES (?1, ?2, ?3)
             ON CONFLICT DO NOTHING",
        )?
        .execute((workspace, name, commit))?;
    if inserted == 0 {
        return Err(StoreError::new(
            ErrorKind::AlreadyExists,
            format!("the workspace has a tag '{name}' already"),
        )
        .with_hint("delete it first, or choose another name"));
    }
    Ok(())
}

/// Removes a tag.
pub(crate) fn delete_tag(connection: &Connection, workspace: i64, name: &str) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM tag WHERE workspace = ?1 AND name = ?2")?
        .execute((workspace, name))?;
    Ok(())
}

/// Settings of a workspace.
pub(crate) fn settings(
    connection: &Connection,
    workspace: i64,
) -> Result<BTreeMap<String, String>> {
    let mut statement =
        connection.prepare_cached("SELECT key, value FROM setting WHERE workspace = ?1")?;
    let rows = statement.query_map([workspace], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The value of a setting.
pub(crate) fn setting(
    connection: &Connection,
    workspace: i64,
    key: &str,
) -> Result<Option<String>> {
    Ok(connection
        .prepare_cached("SELECT value FROM setting WHERE workspace = ?1 AND key = ?2")?
        .query_row((workspace, key), |row| row.get(0))
        .optional()?)
}

/// Sets or, with `None`, removes a setting.
pub(crate) fn put_setting(
    connection: &Connection,
    workspace: i64,
    key: &str,
    value: Option<&str>,
) -> Result<()> {
    match value {
        Some(value) => connection
            .prepare_cached(
                "INSERT INTO setting (workspace, key, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT (workspace, key) DO UPDATE SET value = excluded.value",
            )?
            .execute((workspace, key, value))?,
        None => connection
            .prepare_cached("DELETE FROM setting WHERE workspace = ?1 AND key = ?2")?
            .execute((workspace, key))?,
    };
    Ok(())
}

/// Number of commits, branches, tags and operations of a workspace.
pub(crate) fn counts(connection: &Connection, workspace: i64) -> Result<(u64, u64, u64, u64)> {
    let count = |table: &str| -> Result<u64> {
        let count: i64 = connection.query_row(
            &format!("SELECT count(*) FROM {table} WHERE workspace = ?1"),
            [workspace],
            |row| row.get(0),
        )?;
        Ok(count as u64)
    };
    Ok((
        count("workspace_commit")?,
        count("branch")?,
        count("tag")?,
        count("operation")?,
    ))
}

/// Every branch and tag of the store, for a check: a description and the commit.
pub(crate) fn all_heads(connection: &Connection) -> Result<Vec<(String, CommitId)>> {
    let mut statement = connection.prepare_cached(
        "SELECT w.name || ' branch ' || b.name, c.hash FROM branch b
         JOIN workspace w ON w.id = b.workspace JOIN commit_object c ON c.id = b.commit_id
         UNION ALL
         SELECT w.name || ' tag ' || t.name, c.hash FROM tag t
         JOIN workspace w ON w.id = t.workspace JOIN commit_object c ON c.id = t.commit_id",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, CommitId(id_column(row, 1)?))))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
