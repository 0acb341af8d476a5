//! The audit log: append-only, hash-chained records of who did what, with what outcome.

mod source;

use serde::{Deserialize, Serialize};

use crate::db;
use crate::error::Result;
use crate::id::{WorkspaceId, to_hex};
use crate::object::Timestamp;
use crate::store::{Store, now_ns};

pub use source::{AuditSource, with_source};
pub(crate) use source::{current as current_source, text_for as source_text};

/// What is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Who did it (or tried to).
    pub principal: String,
    /// From where: the surface (`api`, `mount`, `docker`, …), or all of an [`AuditSource`].
    pub source: String,
    /// What was done, for example `branch.create`.
    pub action: String,
    /// The workspace it concerned.
    pub workspace: Option<WorkspaceId>,
    /// To what: a ref, a path, an id.
    pub object: String,
    /// `ok`, `denied` or `failed`.
    pub outcome: String,
    /// More, depending on the action.
    pub details: serde_json::Value,
}

/// A record as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Position in the log, from 1, without gaps.
    pub sequence: u64,
    /// When it was recorded.
    pub time: Timestamp,
    /// Who did it (or tried to).
    pub principal: String,
    /// Through which surface.
    pub source: String,
    /// What was done.
    pub action: String,
    /// The workspace it concerned.
    pub workspace: Option<WorkspaceId>,
    /// To what.
    pub object: String,
    /// `ok`, `denied` or `failed`.
    pub outcome: String,
    /// More, depending on the action.
    pub details: serde_json::Value,
    /// Hash of the entry before, as hexadecimal digits (zeros for the first).
    pub previous: String,
    /// Hash over this entry and `previous`, as hexadecimal digits.
    pub hash: String,
}

/// Which entries to read, newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only of this principal.
    pub principal: Option<String>,
    /// Only with this outcome.
    pub outcome: Option<String>,
    /// Only before this sequence number (for the next page).
    pub before: Option<u64>,
    /// At most so many; 0 means all.
    pub limit: usize,
}

/// Result of a verification of the whole chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditVerification {
    /// Entries that were looked at.
    pub entries: u64,
    /// Where the chain breaks first, if it does.
    pub broken: Option<AuditBreak>,
}

/// The first entry that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditBreak {
    /// Its sequence number.
    pub sequence: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl Store {
    /// Adds an entry to the audit log; gives back its sequence number.
    ///
    /// Changes of the store itself are recorded by the functions that make them, in the same
    /// transaction; this is for everything else, denials above all.
    pub fn audit_append(&self, mut record: AuditRecord) -> Result<u64> {
        record.source = source_text(&record.source);
        self.inner
            .database
            .write(move |connection| db::audit::append(connection, now_ns(), &record))
    }

    /// Entries of the audit log, newest first.
    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        self.inner
            .database
            .read(|connection| db::audit::list(connection, query))
    }

    /// Number and hash (hexadecimal digits) of the newest entry; 0 and zeros if there is none.
    pub fn audit_head(&self) -> Result<(u64, String)> {
        let (sequence, hash) = self.inner.database.read(db::audit::head)?;
        Ok((sequence as u64, to_hex(&hash)))
    }

    /// Verifies the whole audit log and says where it breaks.
    pub fn audit_verify(&self) -> Result<AuditVerification> {
        self.audit_verify_to(None)
    }

    /// Verifies the whole audit log, and that it leads to a head (number and hash) that was kept
    /// elsewhere: nothing up to there was changed or cut off, however well that was hidden.
    pub fn audit_verify_to(&self, anchor: Option<(u64, &str)>) -> Result<AuditVerification> {
        self.inner
            .database
            .read(|connection| db::audit::verify(connection, anchor))
    }
}
