//! Opening connections and setting them up.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{ErrorKind, Result, StoreError};

const CACHED_STATEMENTS: usize = 96;
const CACHE_KIBIBYTES: i64 = 16 * 1024;

/// Opens the one connection that writes; changes nothing yet.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_millis(200))?;
    // Deleted content must not survive in free pages.
    connection.pragma_update(None, "secure_delete", true)?;
    Ok(connection)
}

/// Sets up the write connection of a database that is known to be ours.
pub(super) fn configure_writer(connection: &Connection) -> Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::new(
            ErrorKind::Unsupported,
            format!("the database can't use a write-ahead log here (it stays in mode {mode})"),
        )
        .with_hint("put the store on a local disk"));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // The writer thread copies the log itself, after it has answered.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(())
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES / 4)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(connection)
}
