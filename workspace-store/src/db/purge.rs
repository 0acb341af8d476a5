//! Removing content for good, and remembering that it was.

use rusqlite::{Connection, OptionalExtension};

use crate::error::Result;
use crate::id::{BlobId, ChunkId};

/// Removes a chunk with its payload.
pub(crate) fn remove_chunk(connection: &Connection, chunk: ChunkId) -> Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM chunk_data WHERE chunk = (SELECT id FROM chunk WHERE hash = ?1)",
        )?
        .execute([chunk.as_bytes()])?;
    connection
        .prepare_cached("DELETE FROM chunk WHERE hash = ?1")?
        .execute([chunk.as_bytes()])?;
    Ok(())
}

/// Removes the chunk list of a blob, and notes that the blob was taken away.
pub(crate) fn remove_blob(
    connection: &Connection,
    blob: BlobId,
    size: u64,
    time_ns: i64,
) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM manifest WHERE hash = ?1")?
        .execute([blob.as_bytes()])?;
    connection
        .prepare_cached(
            "INSERT INTO purged_content (hash, size, purged_ns) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET purged_ns = excluded.purged_ns",
        )?
        .execute((blob.as_bytes(), size as i64, time_ns))?;
    Ok(())
}

/// When a blob was taken away; `None` if it wasn't, or is stored again.
pub(crate) fn purged_ns(connection: &Connection, blob: BlobId) -> Result<Option<i64>> {
    Ok(connection
        .prepare_cached(
            "SELECT purged_ns FROM purged_content p WHERE hash = ?1
             AND NOT EXISTS (SELECT 1 FROM chunk c WHERE c.hash = p.hash)
             AND NOT EXISTS (SELECT 1 FROM manifest m WHERE m.hash = p.hash)",
        )?
        .query_row([blob.as_bytes()], |row| row.get(0))
        .optional()?)
}

/// Whether anything was ever taken away.
pub(crate) fn has_any(connection: &Connection) -> Result<bool> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM purged_content LIMIT 1")?
        .exists([])?)
}

/// From here on the connection overwrites what it deletes, or no longer does.
pub(crate) fn overwrite_deleted(connection: &Connection, is_on: bool) -> Result<()> {
    // The answer is the new value.
    connection.query_row(
        &format!(
            "PRAGMA secure_delete = {}",
            if is_on { "ON" } else { "OFF" }
        ),
        [],
        |_| Ok(()),
    )?;
    Ok(())
}

/// Writes the whole database anew, without what is left of deleted rows.
pub(crate) fn rewrite(connection: &Connection) -> Result<()> {
    Ok(connection.execute_batch("VACUUM")?)
}

/// Empties the log.
///
/// # Errors
/// Of SQLite; `false` if a reader keeps the log from being emptied.
pub(crate) fn empty_log(connection: &Connection) -> Result<bool> {
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(busy == 0)
}
