//! Rows of commits, of the paths that each changed, and of which workspace may see which commit.
//!
//! A commit's row number grows with time; its generation is one more than the greatest of its
//! parents, so that a walk can stop early.

use std::collections::{BTreeSet, BinaryHeap, HashSet};

use rusqlite::{Connection, OptionalExtension};

use super::id_column;
use super::objects::Packed;
use crate::actor::Actor;
use crate::commits::ActorFilter;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::CommitId;

/// A commit's row number and its place in history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CommitRow {
    /// One more than the greatest generation of its parents.
    pub(crate) generation: i64,
    /// Row number.
    pub(crate) number: i64,
}

/// Finds a commit.
pub(crate) fn find(connection: &Connection, id: CommitId) -> Result<Option<CommitRow>> {
    Ok(connection
        .prepare_cached("SELECT generation, id FROM commit_object WHERE hash = ?1")?
        .query_row([id.as_bytes()], |row| {
            Ok(CommitRow {
                generation: row.get(0)?,
                number: row.get(1)?,
            })
        })
        .optional()?)
}

/// Finds a commit that must be there.
pub(crate) fn require(connection: &Connection, id: CommitId) -> Result<CommitRow> {
    find(connection, id)?
        .ok_or_else(|| StoreError::new(ErrorKind::NotFound, format!("there is no commit {id}")))
}

/// The encoded commit.
pub(crate) fn read(connection: &Connection, id: CommitId) -> Result<Option<Vec<u8>>> {
    Ok(connection
        .prepare_cached("SELECT data FROM commit_object WHERE hash = ?1")?
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?)
}

/// The id and the encoded commit of a row.
pub(crate) fn read_row(connection: &Connection, number: i64) -> Result<(CommitId, Vec<u8>)> {
    Ok(connection
        .prepare_cached("SELECT hash, data FROM commit_object WHERE id = ?1")?
        .query_row([number], |row| {
            Ok((CommitId(id_column(row, 0)?), row.get(1)?))
        })?)
}

/// Stores a commit made in `workspace`.
///
/// # Errors
/// `NotFound` if a parent isn't stored.
pub(crate) fn insert(
    connection: &Connection,
    workspace: i64,
    id: CommitId,
    encoded: &[u8],
    parents: &[CommitId],
) -> Result<i64> {
    let parents: Vec<CommitRow> = parents
        .iter()
        .map(|parent| require(connection, *parent))
        .collect::<Result<_>>()?;
    let number = match find(connection, id)? {
        Some(row) => row.number,
        None => {
            let generation = parents
                .iter()
                .map(|parent| parent.generation)
                .max()
                .map_or(0, |last| last + 1);
            connection
                .prepare_cached(
                    "INSERT INTO commit_object (hash, generation, data) VALUES (?1, ?2, ?3)",
                )?
                .execute((id.as_bytes(), generation, encoded))?;
            let number = connection.last_insert_rowid();
            for (position, parent) in parents.iter().enumerate() {
                connection
                    .prepare_cached(
                        "INSERT INTO commit_parent (commit_id, position, parent)
                         VALUES (?1, ?2, ?3)",
                    )?
                    .execute((number, position as i64, parent.number))?;
            }
            number
        }
    };
    connection
        .prepare_cached(
            "INSERT INTO workspace_commit (workspace, commit_id) VALUES (?1, ?2)
             ON CONFLICT DO NOTHING",
        )?
        .execute((workspace, number))?;
    Ok(number)
}

/// Parents of a commit, first one first.
pub(crate) fn parents(connection: &Connection, number: i64) -> Result<Vec<CommitRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT c.generation, c.id FROM commit_parent p JOIN commit_object c ON c.id = p.parent
         WHERE p.commit_id = ?1 ORDER BY p.position",
    )?;
    let rows = statement.query_map([number], |row| {
        Ok(CommitRow {
            generation: row.get(0)?,
            number: row.get(1)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The first parent of a commit.
pub(crate) fn first_parent(connection: &Connection, number: i64) -> Result<Option<i64>> {
    Ok(connection
        .prepare_cached("SELECT parent FROM commit_parent WHERE commit_id = ?1 AND position = 0")?
        .query_row([number], |row| row.get(0))
        .optional()?)
}

/// A walk over a commit and its ancestors, descendants before ancestors.
#[derive(Debug)]
pub(crate) struct Walk<'c> {
    connection: &'c Connection,
    waiting: BinaryHeap<CommitRow>,
    seen: HashSet<i64>,
}

impl<'c> Walk<'c> {
    /// Starts at a commit.
    pub(crate) fn new(connection: &'c Connection, start: CommitRow) -> Self {
        Self {
            connection,
            waiting: BinaryHeap::from([start]),
            seen: HashSet::from([start.number]),
        }
    }

    /// The next commit; its parents come later.
    pub(crate) fn next(&mut self) -> Result<Option<CommitRow>> {
        let Some(row) = self.waiting.pop() else {
            return Ok(None);
        };
        for parent in parents(self.connection, row.number)? {
            if self.seen.insert(parent.number) {
                self.waiting.push(parent);
            }
        }
        Ok(Some(row))
    }
}

/// Whether a commit was made in a workspace.
pub(crate) fn is_own(connection: &Connection, workspace: i64, commit: i64) -> Result<bool> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM workspace_commit WHERE workspace = ?1 AND commit_id = ?2")?
        .exists((workspace, commit))?)
}

/// Whether a commit belongs to the history of a workspace: made in it, or an ancestor of the
/// commit that it was forked from.
pub(crate) fn is_visible(
    connection: &Connection,
    workspace: i64,
    commit: CommitRow,
) -> Result<bool> {
    if is_own(connection, workspace, commit.number)? {
        return Ok(true);
    }
    let origin: Option<CommitRow> = connection
        .prepare_cached(
            "SELECT c.generation, c.id FROM workspace w JOIN commit_object c
             ON c.id = w.origin_commit WHERE w.id = ?1",
        )?
        .query_row([workspace], |row| {
            Ok(CommitRow {
                generation: row.get(0)?,
                number: row.get(1)?,
            })
        })
        .optional()?;
    let Some(origin) = origin else {
        return Ok(false);
    };
    let mut walk = Walk::new(connection, origin);
    while let Some(row) = walk.next()? {
        if row == commit {
            return Ok(true);
        }
        if row.generation < commit.generation {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Makes a commit, and what it comes from, a part of the history of a workspace.
pub(crate) fn make_visible(
    connection: &Connection,
    workspace: i64,
    commit: CommitRow,
) -> Result<()> {
    let mut waiting = vec![commit];
    while let Some(row) = waiting.pop() {
        if is_visible(connection, workspace, row)? {
            continue;
        }
        connection
            .prepare_cached("INSERT INTO workspace_commit (workspace, commit_id) VALUES (?1, ?2)")?
            .execute((workspace, row.number))?;
        waiting.extend(parents(connection, row.number)?);
    }
    Ok(())
}

/// Finds a commit that the workspace may see.
///
/// # Errors
/// `NotFound` otherwise, whether or not the commit exists elsewhere.
pub(crate) fn require_visible(
    connection: &Connection,
    workspace: i64,
    id: CommitId,
) -> Result<CommitRow> {
    if let Some(row) = find(connection, id)?
        && is_visible(connection, workspace, row)?
    {
        return Ok(row);
    }
    Err(StoreError::new(
        ErrorKind::NotFound,
        format!("the workspace has no commit {id}"),
    )
    .with_hint("list its commits with `kura log`"))
}

/// Commits whose id lies between two bounds (inclusive), up to `limit`.
pub(crate) fn between(
    connection: &Connection,
    low: &[u8; 32],
    high: &[u8; 32],
    limit: i64,
) -> Result<Vec<(CommitId, CommitRow)>> {
    let mut statement = connection.prepare_cached(
        "SELECT hash, generation, id FROM commit_object WHERE hash BETWEEN ?1 AND ?2
         ORDER BY hash LIMIT ?3",
    )?;
    let rows = statement.query_map((low, high, limit), |row| {
        Ok((
            CommitId(id_column(row, 0)?),
            CommitRow {
                generation: row.get(1)?,
                number: row.get(2)?,
            },
        ))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Stores which paths a commit changed; `path_hashes` is sorted and without duplicates.
pub(crate) fn insert_changes(
    connection: &Connection,
    number: i64,
    path_count: usize,
    packed: &Packed,
    path_hashes: &[i64],
) -> Result<()> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO commit_change (commit_id, path_count, size, encoding, data)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
        )?
        .execute((
            number,
            path_count as i64,
            packed.size as i64,
            packed.encoding.number(),
            &packed.stored,
        ))?;
    if inserted == 1 {
        let mut statement = connection
            .prepare_cached("INSERT INTO path_commit (path_hash, commit_id) VALUES (?1, ?2)")?;
        for hash in path_hashes {
            statement.execute((hash, number))?;
        }
    }
    Ok(())
}

/// The stored list of paths that a commit changed.
pub(crate) fn read_changes(connection: &Connection, number: i64) -> Result<Option<Packed>> {
    let row: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached("SELECT size, encoding, data FROM commit_change WHERE commit_id = ?1")?
        .query_row([number], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    row.map(Packed::of_row).transpose()
}

/// Commits that may have changed the path with this hash.
pub(crate) fn touching(connection: &Connection, path_hash: i64) -> Result<HashSet<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT commit_id FROM path_commit WHERE path_hash = ?1")?;
    let rows = statement.query_map([path_hash], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Somebody who took part in a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Participant {
    run: String,
    step: i64,
    principal: String,
}

impl Participant {
    /// What is noted of an actor.
    pub(crate) fn of(actor: &Actor) -> Self {
        Self {
            run: actor.run.clone().unwrap_or_default(),
            step: actor.step.map_or(-1, |step| step as i64),
            principal: actor.principal.clone(),
        }
    }
}

/// Notes who took part in a commit.
pub(crate) fn insert_participants(
    connection: &Connection,
    number: i64,
    participants: &BTreeSet<Participant>,
) -> Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO commit_actor (run, step, principal, commit_id) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING",
    )?;
    for found in participants {
        statement.execute((&found.run, found.step, &found.principal, number))?;
    }
    Ok(())
}

/// Commits with changes by somebody who is meant.
pub(crate) fn taking_part(connection: &Connection, filter: &ActorFilter) -> Result<HashSet<i64>> {
    let mut statement = connection.prepare_cached(match filter.run {
        Some(_) => {
            "SELECT commit_id FROM commit_actor WHERE run = ?1 AND (?2 IS NULL OR step = ?2)
             AND (?3 IS NULL OR principal = ?3)"
        }
        None => {
            "SELECT commit_id FROM commit_actor WHERE ?1 IS NULL AND (?2 IS NULL OR step = ?2)
             AND (?3 IS NULL OR principal = ?3)"
        }
    })?;
    let rows = statement.query_map(
        (
            &filter.run,
            filter.step.map(|step| step as i64),
            &filter.principal,
        ),
        |row| row.get(0),
    )?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Remembers where a name of a file with several names was seen.
pub(crate) fn insert_link_names(connection: &Connection, names: &[(u64, Box<[u8]>)]) -> Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO link_name (link, path) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )?;
    for (link, path) in names {
        statement.execute((*link as i64, path.as_ref()))?;
    }
    Ok(())
}

/// Where names of this file were seen, in any tree.
pub(crate) fn link_names(connection: &Connection, link: u64) -> Result<Vec<Box<[u8]>>> {
    let mut statement = connection.prepare_cached("SELECT path FROM link_name WHERE link = ?1")?;
    let rows = statement.query_map([link as i64], |row| Ok(row.get::<_, Vec<u8>>(0)?.into()))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
