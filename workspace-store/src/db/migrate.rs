//! Recognising a database, making a new one, and bringing an old one to the current version.
//!
//! Invariant: nothing is written to a database that isn't ours or that is newer than us.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::schema::{
    APPLICATION_ID, INCOMPATIBLE_ON_USE, KNOWN_COMPATIBLE, KNOWN_INCOMPATIBLE,
    KNOWN_READ_ONLY_COMPATIBLE, SCHEMA_VERSION, TABLES, VERSION_2_TABLES,
};
use crate::error::{ErrorKind, Result, StoreError};

const PAGE_BYTES: u32 = 8192;

/// Steps from one version to the next: `MIGRATIONS[n]` brings version n+1 to n+2.
const MIGRATIONS: &[&[&str]] = &[VERSION_2_TABLES];

/// Makes the tables of an empty database, or checks and migrates an existing one.
///
/// # Errors
/// `Incompatible` for a foreign or newer database, `Corrupt` for one that can't be read.
pub(crate) fn prepare(connection: &Connection, path: &Path) -> Result<()> {
    let broken = |error: rusqlite::Error| {
        let reason = StoreError::from(error);
        match reason.kind() {
            ErrorKind::Corrupt => StoreError::new(
                ErrorKind::Corrupt,
                format!("{} is not a readable database", path.display()),
            )
            .with_hint("restore it from a backup, or point --store to another directory")
            .with_source(reason),
            _ => reason,
        }
    };
    let application_id: i32 = pragma(connection, "application_id").map_err(broken)?;
    let version: i32 = pragma(connection, "user_version").map_err(broken)?;
    let table_count: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(broken)?;
    if application_id == 0 && version == 0 && table_count == 0 {
        return create(connection);
    }
    if application_id != APPLICATION_ID {
        return Err(StoreError::new(
            ErrorKind::Incompatible,
            format!("{} is a database of another program", path.display()),
        )
        .with_hint("point --store to another directory"));
    }
    if version > SCHEMA_VERSION {
        return Err(newer(
            path,
            &format!("version {version} (this one knows {SCHEMA_VERSION})"),
        ));
    }
    if version < 1 {
        return Err(StoreError::new(
            ErrorKind::Corrupt,
            format!("{} has the impossible version {version}", path.display()),
        ));
    }
    check_features(connection, path)?;
    for (index, step) in MIGRATIONS.iter().enumerate().skip(version as usize - 1) {
        let next = index + 2;
        let step = step.concat();
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {step}; PRAGMA user_version = {next}; COMMIT"
        ))?;
    }
    Ok(())
}

fn create(connection: &Connection) -> Result<()> {
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let features = [
        ("features_compatible", KNOWN_COMPATIBLE),
        ("features_read_only_compatible", KNOWN_READ_ONLY_COMPATIBLE),
        ("features_incompatible", KNOWN_INCOMPATIBLE),
    ];
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let made = (|| {
        connection.execute_batch(TABLES)?;
        for tables in MIGRATIONS.iter().copied().flatten() {
            connection.execute_batch(tables)?;
        }
        for (key, names) in features {
            connection.execute(
                "INSERT INTO meta (key, value) VALUES (?1, ?2)",
                (key, names.join(" ")),
            )?;
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        connection.execute_batch("COMMIT")
    })();
    if made.is_err() {
        // The error that matters is the first one; a failed rollback leaves nothing either.
        let _ = connection.execute_batch("ROLLBACK");
    }
    Ok(made?)
}

/// Checks that this version knows every feature that matters.
///
/// # Errors
/// `Incompatible` if it doesn't.
pub(crate) fn check_features(connection: &Connection, path: &Path) -> Result<()> {
    let features = |key: &str| -> Result<String> {
        Ok(connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
                row.get(0)
            })
            .optional()?
            .unwrap_or_default())
    };
    let unknown = |text: &str, known: &[&str]| -> Option<String> {
        text.split_whitespace()
            .find(|name| !known.contains(name))
            .map(str::to_owned)
    };
    let known = [KNOWN_INCOMPATIBLE, INCOMPATIBLE_ON_USE].concat();
    if let Some(name) = unknown(&features("features_incompatible")?, &known) {
        return Err(newer(path, &format!("the feature '{name}'")));
    }
    let read_only = features("features_read_only_compatible")?;
    if let Some(name) = unknown(&read_only, KNOWN_READ_ONLY_COMPATIBLE) {
        return Err(newer(
            path,
            &format!("the feature '{name}', which forbids writing"),
        ));
    }
    Ok(())
}

/// Notes that the database uses a feature that must be known, inside the transaction that does.
pub(super) fn note_feature(connection: &Connection, name: &str) -> Result<()> {
    connection
        .prepare_cached(
            "UPDATE meta SET value = value || ' ' || ?1 WHERE key = 'features_incompatible'
             AND instr(' ' || value || ' ', ' ' || ?1 || ' ') = 0",
        )?
        .execute([name])?;
    Ok(())
}

fn newer(path: &Path, what: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Incompatible,
        format!(
            "{} was written by a newer version of kura: it has {what}",
            path.display()
        ),
    )
    .with_hint("update kura")
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}
