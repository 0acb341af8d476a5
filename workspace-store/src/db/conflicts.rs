//! Rows of sets of conflicts. A stored set is never changed.

use rusqlite::{Connection, OptionalExtension};

use super::migrate::note_feature;
use super::objects::Packed;
use super::schema::CONFLICT_SETS;
use crate::error::Result;
use crate::id::ConflictSetId;

/// Stores an encoded set, and notes that the database has such sets.
pub(crate) fn insert(connection: &Connection, id: ConflictSetId, packed: &Packed) -> Result<()> {
    note_feature(connection, CONFLICT_SETS)?;
    connection
        .prepare_cached(
            "INSERT INTO conflict_set (hash, size, encoding, data) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO NOTHING",
        )?
        .execute((
            id.as_bytes(),
            packed.size as i64,
            packed.encoding.number(),
            &packed.stored,
        ))?;
    Ok(())
}

/// The stored set.
pub(crate) fn read(connection: &Connection, id: ConflictSetId) -> Result<Option<Packed>> {
    let row: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached("SELECT size, encoding, data FROM conflict_set WHERE hash = ?1")?
        .query_row([id.as_bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    row.map(Packed::of_row).transpose()
}
