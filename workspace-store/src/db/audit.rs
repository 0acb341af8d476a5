//! Rows of the audit log.
//!
//! Invariant: sequence numbers have no gaps, each row's hash covers all its columns and the hash
//! of the row before; `meta` holds number and hash of the last one, so that a log that was cut off
//! is noticed too.

use rusqlite::{Connection, OptionalExtension, Row};

use super::id_column;
use crate::audit::{AuditBreak, AuditEntry, AuditQuery, AuditRecord, AuditVerification};
use crate::error::Result;
use crate::id::{WorkspaceId, from_hex, to_hex};
use crate::object::Timestamp;
use crate::object::codec::{write_bytes, write_number, write_time};

const HEAD_KEY: &str = "audit_head";
const DOMAIN: &[u8] = b"kura.audit\0";
const COLUMNS: &str = "SELECT sequence, time_ns, principal, source, action, workspace, object,
     outcome, details, previous, hash FROM audit";

struct RawEntry {
    sequence: i64,
    time_ns: i64,
    principal: String,
    source: String,
    action: String,
    workspace: Option<Vec<u8>>,
    object: String,
    outcome: String,
    details: String,
    previous: [u8; 32],
    hash: [u8; 32],
}

impl RawEntry {
    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            sequence: row.get(0)?,
            time_ns: row.get(1)?,
            principal: row.get(2)?,
            source: row.get(3)?,
            action: row.get(4)?,
            workspace: row.get(5)?,
            object: row.get(6)?,
            outcome: row.get(7)?,
            details: row.get(8)?,
            previous: id_column(row, 9)?,
            hash: id_column(row, 10)?,
        })
    }

    fn computed_hash(&self) -> [u8; 32] {
        let mut bytes = Vec::with_capacity(256 + self.details.len());
        bytes.extend_from_slice(DOMAIN);
        bytes.push(1);
        write_number(&mut bytes, self.sequence as u64);
        write_time(
            &mut bytes,
            Timestamp::from_nanoseconds(i128::from(self.time_ns)),
        );
        for text in [&self.principal, &self.source, &self.action] {
            write_bytes(&mut bytes, text.as_bytes());
        }
        match &self.workspace {
            None => bytes.push(0),
            Some(id) => {
                bytes.push(1);
                write_bytes(&mut bytes, id);
            }
        }
        for text in [&self.object, &self.outcome, &self.details] {
            write_bytes(&mut bytes, text.as_bytes());
        }
        bytes.extend_from_slice(&self.previous);
        *blake3::hash(&bytes).as_bytes()
    }

    fn into_entry(self) -> AuditEntry {
        AuditEntry {
            sequence: self.sequence as u64,
            time: Timestamp::from_nanoseconds(i128::from(self.time_ns)),
            principal: self.principal,
            source: self.source,
            action: self.action,
            workspace: self.workspace.as_deref().and_then(WorkspaceId::from_slice),
            object: self.object,
            outcome: self.outcome,
            details: serde_json::from_str(&self.details)
                .unwrap_or(serde_json::Value::String(self.details)),
            previous: to_hex(&self.previous),
            hash: to_hex(&self.hash),
        }
    }
}

/// Number and hash of the newest entry, as `meta` has them.
pub(crate) fn head(connection: &Connection) -> Result<(i64, [u8; 32])> {
    let text: Option<String> = connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([HEAD_KEY], |row| row.get(0))
        .optional()?;
    Ok(text
        .as_deref()
        .and_then(|text| text.split_once(' '))
        .and_then(|(sequence, hash)| {
            Some((sequence.parse().ok()?, from_hex(hash)?.try_into().ok()?))
        })
        .unwrap_or((0, [0; 32])))
}

/// Adds an entry; returns its sequence number.
pub(crate) fn append(connection: &Connection, time_ns: i64, record: &AuditRecord) -> Result<u64> {
    let (last, previous) = head(connection)?;
    let mut entry = RawEntry {
        sequence: last + 1,
        time_ns,
        principal: record.principal.clone(),
        source: record.source.clone(),
        action: record.action.clone(),
        workspace: record.workspace.map(|id| id.as_bytes().to_vec()),
        object: record.object.clone(),
        outcome: record.outcome.clone(),
        details: record.details.to_string(),
        previous,
        hash: [0; 32],
    };
    entry.hash = entry.computed_hash();
    connection
        .prepare_cached(
            "INSERT INTO audit (sequence, time_ns, principal, source, action, workspace, object,
             outcome, details, previous, hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute((
            entry.sequence,
            entry.time_ns,
            &entry.principal,
            &entry.source,
            &entry.action,
            &entry.workspace,
            &entry.object,
            &entry.outcome,
            &entry.details,
            &entry.previous,
            &entry.hash,
        ))?;
    connection
        .prepare_cached(
            "INSERT INTO meta (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute((
            HEAD_KEY,
            format!("{} {}", entry.sequence, to_hex(&entry.hash)),
        ))?;
    Ok(entry.sequence as u64)
}

/// Entries, newest first.
pub(crate) fn list(connection: &Connection, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    let limit = if query.limit == 0 {
        -1
    } else {
        query.limit as i64
    };
    let before = query.before.map_or(i64::MAX, |sequence| sequence as i64);
    let mut statement = connection.prepare_cached(&format!(
        "{COLUMNS} WHERE sequence < ?1 AND (?2 IS NULL OR workspace = ?2)
         AND (?4 IS NULL OR outcome = ?4) AND (?5 IS NULL OR principal = ?5)
         ORDER BY sequence DESC LIMIT ?3"
    ))?;
    let workspace = query.workspace.map(|id| id.as_bytes().to_vec());
    let (outcome, principal) = (&query.outcome, &query.principal);
    let values = (before, workspace, limit, outcome, principal);
    let rows = statement.query_map(values, RawEntry::of_row)?;
    let mut entries = Vec::new();
    for row in rows {
        entries.push(row?.into_entry());
    }
    Ok(entries)
}

/// Verifies the whole chain, and that it has an entry of this number and hash.
pub(crate) fn verify(
    connection: &Connection,
    anchor: Option<(u64, &str)>,
) -> Result<AuditVerification> {
    // One transaction, so that head and rows belong together.
    let transaction = connection.unchecked_transaction()?;
    let (last, last_hash) = head(&transaction)?;
    let mut statement = transaction.prepare(&format!("{COLUMNS} ORDER BY sequence"))?;
    let mut rows = statement.query([])?;
    let mut previous = [0; 32];
    let mut entries = 0_u64;
    let broken = |entries: u64, sequence: i64, reason: &str| AuditVerification {
        entries,
        broken: Some(AuditBreak {
            sequence: sequence as u64,
            reason: reason.to_owned(),
        }),
    };
    while let Some(row) = rows.next()? {
        let expected = entries as i64 + 1;
        let Ok(entry) = RawEntry::of_row(row) else {
            return Ok(broken(
                entries,
                expected,
                "the entry has columns of a wrong type",
            ));
        };
        if entry.sequence != expected {
            return Ok(broken(entries, expected, "the entry is missing"));
        }
        if entry.previous != previous {
            return Ok(broken(
                entries,
                expected,
                "the entry doesn't follow the one before",
            ));
        }
        if entry.hash != entry.computed_hash() {
            return Ok(broken(entries, expected, "the entry was changed"));
        }
        previous = entry.hash;
        entries += 1;
        if let Some((sequence, hash)) = anchor
            && sequence == entries
            && !to_hex(&previous).eq_ignore_ascii_case(hash)
        {
            let reason = "the log doesn't lead to the anchored head: this entry or one before it \
                          was changed, and all behind it made anew";
            return Ok(broken(entries, expected, reason));
        }
    }
    if let Some((sequence, _)) = anchor
        && sequence > entries
    {
        let reason = format!("the log ends before the anchored head, which is entry {sequence}");
        return Ok(broken(entries, entries as i64 + 1, &reason));
    }
    if (entries as i64, previous) != (last, last_hash) {
        return Ok(broken(
            entries,
            entries as i64 + 1,
            "the end of the log is missing",
        ));
    }
    Ok(AuditVerification {
        entries,
        broken: None,
    })
}
