//! Rows of principals, their tokens and their groups.

use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::{ErrorKind, Result, StoreError};
use crate::object::Timestamp;
use crate::principal::{GroupInfo, PrincipalInfo, PrincipalKind, TokenInfo};

const PRINCIPALS: &str = "SELECT name, kind, created_ns, disabled_ns, id FROM principal";

fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanoseconds(i128::from(nanoseconds))
}

fn principal_info(row: &Row<'_>) -> rusqlite::Result<(i64, PrincipalInfo)> {
    let kind: String = row.get(1)?;
    let info = PrincipalInfo {
        name: row.get(0)?,
        kind: PrincipalKind::from_text(&kind).ok_or_else(|| {
            rusqlite::Error::FromSqlConversionFailure(
                1,
                rusqlite::types::Type::Text,
                format!("unknown kind of principal '{kind}'").into(),
            )
        })?,
        created: timestamp(row.get(2)?),
        disabled: row.get::<_, Option<i64>>(3)?.map(timestamp),
    };
    Ok((row.get(4)?, info))
}

/// All principals by name.
pub(crate) fn list(connection: &Connection) -> Result<Vec<PrincipalInfo>> {
    let mut statement = connection.prepare_cached(&format!("{PRINCIPALS} ORDER BY name"))?;
    let rows = statement.query_map([], |row| Ok(principal_info(row)?.1))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Row number and principal of this name.
pub(crate) fn find(connection: &Connection, name: &str) -> Result<Option<(i64, PrincipalInfo)>> {
    Ok(connection
        .prepare_cached(&format!("{PRINCIPALS} WHERE name = ?1"))?
        .query_row([name], principal_info)
        .optional()?)
}

/// The principal of this name, which must be there.
pub(crate) fn require(connection: &Connection, name: &str) -> Result<(i64, PrincipalInfo)> {
    find(connection, name)?.ok_or_else(|| {
        StoreError::new(
            ErrorKind::NotFound,
            format!("there is no principal '{name}'"),
        )
        .with_hint(format!(
            "`kura principal list` shows them; make it with `kura principal add {name}`"
        ))
    })
}

/// Makes a principal.
pub(crate) fn insert(
    connection: &Connection,
    name: &str,
    kind: PrincipalKind,
    now_ns: i64,
) -> Result<()> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO principal (name, kind, created_ns) VALUES (?1, ?2, ?3)
             ON CONFLICT (name) DO NOTHING",
        )?
        .execute((name, kind.as_str(), now_ns))?;
    if inserted == 0 {
        return Err(StoreError::new(
            ErrorKind::AlreadyExists,
            format!("a principal named '{name}' exists already"),
        )
        .with_hint("names are never used again; choose another one"));
    }
    Ok(())
}

/// Disables a principal, or lets it in again.
pub(crate) fn set_disabled(
    connection: &Connection,
    principal: i64,
    at_ns: Option<i64>,
) -> Result<()> {
    connection
        .prepare_cached("UPDATE principal SET disabled_ns = ?2 WHERE id = ?1")?
        .execute((principal, at_ns))?;
    Ok(())
}

/// A token as it is looked up by the hash of its secret.
#[derive(Debug)]
pub(crate) struct TokenRow {
    pub(crate) id: String,
    pub(crate) principal: String,
    pub(crate) is_disabled: bool,
    pub(crate) expires_ns: Option<i64>,
    pub(crate) is_revoked: bool,
    pub(crate) last_used_ns: Option<i64>,
}

/// Makes a token.
pub(crate) fn insert_token(
    connection: &Connection,
    id: &str,
    principal: i64,
    hash: &[u8; 32],
    created_ns: i64,
    expires_ns: Option<i64>,
) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO principal_token (id, principal, hash, created_ns, expires_ns)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((id, principal, hash, created_ns, expires_ns))?;
    Ok(())
}

/// The token whose secret has this hash.
pub(crate) fn token_by_hash(connection: &Connection, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
    Ok(connection
        .prepare_cached(
            "SELECT t.id, p.name, p.disabled_ns IS NOT NULL, t.expires_ns,
             t.revoked_ns IS NOT NULL, t.last_used_ns
             FROM principal_token t JOIN principal p ON p.id = t.principal WHERE t.hash = ?1",
        )?
        .query_row([hash], |row| {
            Ok(TokenRow {
                id: row.get(0)?,
                principal: row.get(1)?,
                is_disabled: row.get(2)?,
                expires_ns: row.get(3)?,
                is_revoked: row.get(4)?,
                last_used_ns: row.get(5)?,
            })
        })
        .optional()?)
}

/// Remembers that a token was used.
pub(crate) fn touch_token(connection: &Connection, id: &str, now_ns: i64) -> Result<()> {
    connection
        .prepare_cached("UPDATE principal_token SET last_used_ns = ?2 WHERE id = ?1")?
        .execute((id, now_ns))?;
    Ok(())
}

/// Revokes a token; gives back whose it was.
pub(crate) fn revoke_token(connection: &Connection, id: &str, now_ns: i64) -> Result<String> {
    let principal: Option<String> = connection
        .prepare_cached(
            "SELECT p.name FROM principal_token t JOIN principal p ON p.id = t.principal
             WHERE t.id = ?1",
        )?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let principal = principal.ok_or_else(|| {
        StoreError::new(ErrorKind::NotFound, format!("there is no token '{id}'"))
            .with_hint("`kura principal token list` shows their ids")
    })?;
    connection
        .prepare_cached(
            "UPDATE principal_token SET revoked_ns = ?2 WHERE id = ?1 AND revoked_ns IS NULL",
        )?
        .execute((id, now_ns))?;
    Ok(principal)
}

/// Tokens of a principal, or of all.
pub(crate) fn tokens(connection: &Connection, principal: Option<&str>) -> Result<Vec<TokenInfo>> {
    let mut statement = connection.prepare_cached(
        "SELECT t.id, p.name, t.created_ns, t.expires_ns, t.revoked_ns, t.last_used_ns
         FROM principal_token t JOIN principal p ON p.id = t.principal
         WHERE ?1 IS NULL OR p.name = ?1 ORDER BY p.name, t.created_ns, t.id",
    )?;
    let rows = statement.query_map([principal], |row| {
        Ok(TokenInfo {
            id: row.get(0)?,
            principal: row.get(1)?,
            created: timestamp(row.get(2)?),
            expires: row.get::<_, Option<i64>>(3)?.map(timestamp),
            revoked: row.get::<_, Option<i64>>(4)?.map(timestamp),
            last_used: row.get::<_, Option<i64>>(5)?.map(timestamp),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// All groups by name, with their members.
pub(crate) fn groups(connection: &Connection) -> Result<Vec<GroupInfo>> {
    let mut statement = connection.prepare_cached(
        "SELECT g.name, p.name FROM principal_group g
         LEFT JOIN group_member m ON m.member_of = g.id LEFT JOIN principal p ON p.id = m.principal
         ORDER BY g.name, p.name",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
    })?;
    let mut groups: Vec<GroupInfo> = Vec::new();
    for row in rows {
        let (name, member) = row?;
        if groups.last().is_none_or(|group| group.name != name) {
            groups.push(GroupInfo {
                name,
                members: Vec::new(),
            });
        }
        if let Some(group) = groups.last_mut() {
            group.members.extend(member);
        }
    }
    Ok(groups)
}

/// Row number of a group that must be there.
pub(crate) fn require_group(connection: &Connection, name: &str) -> Result<i64> {
    connection
        .prepare_cached("SELECT id FROM principal_group WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?
        .ok_or_else(|| {
            StoreError::new(ErrorKind::NotFound, format!("there is no group '{name}'")).with_hint(
                format!(
                    "`kura group list` shows them; make it with `kura group add {name} PRINCIPAL`"
                ),
            )
        })
}

/// Puts principals into a group, which is made if it isn't there.
pub(crate) fn add_members(connection: &Connection, group: &str, members: &[i64]) -> Result<()> {
    connection
        .prepare_cached("INSERT INTO principal_group (name) VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([group])?;
    let group = require_group(connection, group)?;
    for member in members {
        connection
            .prepare_cached(
                "INSERT INTO group_member (member_of, principal) VALUES (?1, ?2)
                 ON CONFLICT DO NOTHING",
            )?
            .execute((group, member))?;
    }
    Ok(())
}

/// Takes principals out of a group, which stays.
pub(crate) fn remove_members(connection: &Connection, group: &str, members: &[i64]) -> Result<()> {
    let group = require_group(connection, group)?;
    for member in members {
        connection
            .prepare_cached("DELETE FROM group_member WHERE member_of = ?1 AND principal = ?2")?
            .execute((group, member))?;
    }
    Ok(())
}
