//! Rows of what the store keeps about the overlay of a mounted branch.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};

use super::id_column;
use super::objects::Packed;
use crate::error::Result;
use crate::id::CommitId;
use crate::object::codec::{decode_root, encode_root};
use crate::object::{Name, Timestamp};
use crate::source::{InodeRecord, OverlayState};

/// Rows below removed directories that one change of the inode map removes.
const SWEPT_ROWS: i64 = 2048;

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
    let mut remove = connection.prepare_cached(
        "DELETE FROM inode_map WHERE branch = ?1 AND parent = ?2 AND name = ?3 RETURNING number",
    )?;
    let mut removed = Vec::new();
    for ((parent, name), record) in records {
        match record {
            Some(record) => {
                put.execute((
                    branch,
                    *parent as i64,
                    name.as_ref(),
                    record.number as i64,
                    record.ctime.seconds,
                    record.ctime.nanoseconds,
                ))?;
            }
            None => {
                let number: Option<i64> = remove
                    .query_row((branch, *parent as i64, name.as_ref()), |row| row.get(0))
                    .optional()?;
                removed.extend(number);
            }
        }
    }
    mark_for_sweep(connection, branch, &removed)?;
    sweep(connection, branch)
}

/// Notes which of these inodes are gone and have rows below them.
fn mark_for_sweep(connection: &Connection, branch: i64, numbers: &[i64]) -> Result<()> {
    let mut mark = connection.prepare_cached(
        "INSERT OR IGNORE INTO inode_sweep (branch, directory) SELECT ?1, ?2
         WHERE EXISTS (SELECT 1 FROM inode_map WHERE branch = ?1 AND parent = ?2)
         AND NOT EXISTS (SELECT 1 FROM inode_map WHERE branch = ?1 AND number = ?2)",
    )?;
    for number in numbers {
        mark.execute((branch, number))?;
    }
    Ok(())
}

/// Removes some rows below directories that are gone, and leaves the rest to the next time.
fn sweep(connection: &Connection, branch: i64) -> Result<()> {
    let mut rows_left = SWEPT_ROWS;
    while rows_left > 0 {
        let directory: Option<i64> = connection
            .prepare_cached("SELECT directory FROM inode_sweep WHERE branch = ?1 LIMIT 1")?
            .query_row([branch], |row| row.get(0))
            .optional()?;
        let Some(directory) = directory else {
            return Ok(());
        };
        let below: Vec<(Vec<u8>, i64)> = connection
            .prepare_cached(
                "SELECT name, number FROM inode_map WHERE branch = ?1 AND parent = ?2 LIMIT ?3",
            )?
            .query_map((branch, directory, rows_left), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        let mut remove = connection.prepare_cached(
            "DELETE FROM inode_map WHERE branch = ?1 AND parent = ?2 AND name = ?3",
        )?;
        for (name, _) in &below {
            remove.execute((branch, directory, name))?;
        }
        let numbers: Vec<i64> = below.iter().map(|(_, number)| *number).collect();
        mark_for_sweep(connection, branch, &numbers)?;
        if (below.len() as i64) < rows_left {
            connection
                .prepare_cached("DELETE FROM inode_sweep WHERE branch = ?1 AND directory = ?2")?
                .execute((branch, directory))?;
        }
        rows_left -= below.len() as i64 + 1;
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

/// Notes who made what the base of a branch's overlay has and no commit yet.
pub(crate) fn add_attribution(connection: &Connection, branch: i64, packed: &Packed) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO overlay_attribution (branch, size, encoding, data)
             VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute((
            branch,
            packed.size as i64,
            packed.encoding.number(),
            &packed.stored,
        ))?;
    Ok(())
}

/// What was noted since the last commit of a branch, oldest first.
pub(crate) fn attribution(connection: &Connection, branch: i64) -> Result<Vec<Packed>> {
    let mut statement = connection.prepare_cached(
        "SELECT size, encoding, data FROM overlay_attribution WHERE branch = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([branch])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Packed::of_row((row.get(0)?, row.get(1)?, row.get(2)?))?);
    }
    Ok(found)
}

/// A commit has taken what was noted.
pub(crate) fn forget_attribution(connection: &Connection, branch: i64) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM overlay_attribution WHERE branch = ?1")?
        .execute([branch])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Option<InodeRecord> {
        Some(InodeRecord {
            number,
            ctime: Timestamp::default(),
        })
    }

    fn row(parent: u64, name: &str) -> (u64, Name) {
        (parent, name.as_bytes().into())
    }

    #[test]
    fn rows_below_a_removed_directory_go_step_by_step_and_those_of_a_moved_one_stay() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(super::super::schema::TABLES)
            .unwrap();
        connection
            .pragma_update(None, "foreign_keys", false)
            .unwrap();
        let mut records = BTreeMap::from([
            (row(1, "gone"), record(2)),
            (row(1, "moved"), record(3)),
            (row(3, "kept"), record(4)),
            (row(2, "below"), record(5)),
            (row(5, "deep"), record(6)),
        ]);
        for number in 0..5_000 {
            records.insert(row(2, &format!("file-{number:05}")), record(10 + number));
        }
        write_inodes(&connection, 7, &records).unwrap();
        let change = BTreeMap::from([
            (row(1, "gone"), None),
            (row(1, "moved"), None),
            (row(9, "here"), record(3)),
        ]);
        write_inodes(&connection, 7, &change).unwrap();
        let left = inodes(&connection, 7, 2).unwrap().len() as i64;
        assert!(left > 0 && left <= 5_001 - SWEPT_ROWS + 1, "{left}");
        for _ in 0..4 {
            write_inodes(&connection, 7, &BTreeMap::new()).unwrap();
        }
        assert_eq!(inodes(&connection, 7, 2).unwrap(), []);
        assert_eq!(inodes(&connection, 7, 5).unwrap(), []);
        assert_eq!(inodes(&connection, 7, 3).unwrap().len(), 1);
        assert_eq!(
            inode_location(&connection, 7, 3).unwrap(),
            Some(row(9, "here"))
        );
        let swept: i64 = connection
            .query_row("SELECT count(*) FROM inode_sweep", [], |row| row.get(0))
            .unwrap();
        assert_eq!(swept, 0);
    }
}
