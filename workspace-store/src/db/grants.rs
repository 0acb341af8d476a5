//! Rows of grants.

use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::Result;
use crate::grant::{Grant, GrantState};
use crate::object::Timestamp;
use crate::policy::Access;

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<GrantState> {
    let access: String = row.get(column)?;
    Ok(GrantState {
        access: Access::from_text(&access).ok_or_else(|| {
            rusqlite::Error::FromSqlConversionFailure(
                column,
                rusqlite::types::Type::Text,
                format!("unknown access '{access}'").into(),
            )
        })?,
        until: row
            .get::<_, Option<i64>>(column + 1)?
            .map(|at| Timestamp::from_nanoseconds(i128::from(at))),
    })
}

/// Grants of a workspace, or those of them that concern one principal: its own and its groups'.
pub(crate) fn list(
    connection: &Connection,
    workspace: i64,
    principal: Option<&str>,
) -> Result<Vec<Grant>> {
    let mut statement = connection.prepare_cached(
        "SELECT subject, pattern, access, until_ns FROM grant_rule
         WHERE workspace = ?1 AND (?2 IS NULL OR subject = ?2 OR subject IN (
             SELECT '@' || g.name FROM principal_group g
             JOIN group_member m ON m.member_of = g.id
             JOIN principal p ON p.id = m.principal WHERE p.name = ?2))
         ORDER BY subject, pattern",
    )?;
    let rows = statement.query_map((workspace, principal), |row| {
        Ok(Grant {
            subject: row.get(0)?,
            pattern: row.get(1)?,
            state: state(row, 2)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What a grant says now.
pub(crate) fn find(
    connection: &Connection,
    workspace: i64,
    subject: &str,
    pattern: &str,
) -> Result<Option<GrantState>> {
    Ok(connection
        .prepare_cached(
            "SELECT access, until_ns FROM grant_rule
             WHERE workspace = ?1 AND subject = ?2 AND pattern = ?3",
        )?
        .query_row((workspace, subject, pattern), |row| state(row, 0))
        .optional()?)
}

/// Sets or, with `None`, removes a grant.
pub(crate) fn put(
    connection: &Connection,
    workspace: i64,
    subject: &str,
    pattern: &str,
    state: Option<&GrantState>,
) -> Result<()> {
    match state {
        Some(state) => {
            let until = state
                .until
                .map(|at| i64::try_from(at.as_nanoseconds()).unwrap_or(i64::MAX));
            connection
                .prepare_cached(
                    "INSERT INTO grant_rule (workspace, subject, pattern, access, until_ns)
                     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (workspace, subject, pattern)
                     DO UPDATE SET access = excluded.access, until_ns = excluded.until_ns",
                )?
                .execute((workspace, subject, pattern, state.access.as_str(), until))?
        }
        None => connection
            .prepare_cached(
                "DELETE FROM grant_rule WHERE workspace = ?1 AND subject = ?2 AND pattern = ?3",
            )?
            .execute((workspace, subject, pattern))?,
    };
    Ok(())
}

/// Gives a workspace the grants of another.
pub(crate) fn copy(connection: &Connection, from: i64, to: i64) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO grant_rule (workspace, subject, pattern, access, until_ns)
             SELECT ?2, subject, pattern, access, until_ns FROM grant_rule WHERE workspace = ?1",
        )?
        .execute((from, to))?;
    Ok(())
}
