//! Rows of what the store keeps about the overlay of a mounted branch.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};

use super::id_column;
use crate::error::Result;
use crate::id::CommitId;
use crate::object::codec::{decode_root, encode_root};
use crate::object::{Name, Timestamp};
use crate::source::{InodeRecord, OverlayState};

/// The state of a branch's overlay.
pub(crate) fn read(connection: &Connection, branch: i64) -> Result<Option<OverlayState>> {
    let row: Option<(Vec<u8>, CommitId, i64, i64)> = connection
        .prepare_cached(
            "SELECT base, head, first_journal_segment, next_inode_number FROM overlay
             WHERE branch = ?1",
        )?
        .query_row([branch], |row| {
            Ok((
                row.get(0)?,
                CommitId(id_column(row, 1)?),
                row.get(2)?,
                row.get(3)?,
            ))
        })
        .optional()?;
    row.map(|(base, head, segment, number)| {
        Ok(OverlayState {
            base: decode_root(&base)?,
            head,
            first_journal_segment: segment as u64,
            next_inode_number: number as u64,
        })
    })
    .transpose()
}

/// Replaces the state of a branch's overlay.
pub(crate) fn write(connection: &Connection, branch: i64, state: &OverlayState) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO overlay (branch, base, head, first_journal_segment,
             next_inode_number) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((
            branch,
            encode_root(&state.base),
            state.head.as_bytes(),
            state.first_journal_segment as i64,
            state.next_inode_number as i64,
        ))?;
    Ok(())
}

/// Changes rows of the inode map.
pub(crate) fn write_inodes(
    connection: &Connection,
    branch: i64,
    records: &BTreeMap<(u64, Name), Option<InodeRecord>>,
) -> Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO inode_map (branch, parent, name, number, ctime_seconds, ctime_nanoseconds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (branch, parent, name) DO UPDATE SET number = excluded.number,
         ctime_seconds = excluded.ctime_seconds, ctime_nanoseconds = excluded.ctime_nanoseconds",
    )?;
    let mut remove = connection
        .prepare_cached("DELETE FROM inode_map WHERE branch = ?1 AND parent = ?2 AND name = ?3")?;
    for ((parent, name), record) in records {
        match record {
            Some(record) => put.execute((
                branch,
                *parent as i64,
                name.as_ref(),
                record.number as i64,
                record.ctime.seconds,
                record.ctime.nanoseconds,
            ))?,
            None => remove.execute((branch, *parent as i64, name.as_ref()))?,
        };
    }
    Ok(())
}

/// The rows of a directory's entries.
pub(crate) fn inodes(
    connection: &Connection,
    branch: i64,
    directory: u64,
) -> Result<Vec<(Name, InodeRecord)>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, number, ctime_seconds, ctime_nanoseconds FROM inode_map
         WHERE branch = ?1 AND parent = ?2 ORDER BY name",
    )?;
    let rows = statement.query_map((branch, directory as i64), |row| {
        let record = InodeRecord {
            number: row.get::<_, i64>(1)? as u64,
            ctime: Timestamp {
                seconds: row.get(2)?,
                nanoseconds: row.get(3)?,
            },
        };
        Ok((row.get::<_, Vec<u8>>(0)?.into(), record))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Directory and name of a row with this inode number.
pub(crate) fn inode_location(
    connection: &Connection,
    branch: i64,
    number: u64,
) -> Result<Option<(u64, Name)>> {
    Ok(connection
        .prepare_cached(
            "SELECT parent, name FROM inode_map WHERE branch = ?1 AND number = ?2 LIMIT 1",
        )?
        .query_row((branch, number as i64), |row| {
            Ok((
                row.get::<_, i64>(0)? as u64,
                row.get::<_, Vec<u8>>(1)?.into(),
            ))
        })
        .optional()?)
}
