//! The audit log: append-only, hash-chained records of who did what, with what outcome.

use serde::{Deserialize, Serialize};

use crate::db;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::object::Timestamp;
use crate::store::{Store, now_ns};

/// What is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Who did it (or tried to).
    pub principal: String,
    /// Through which surface: `api`, `mount`, `docker`, ….
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
    pub fn audit_append(&self, record: AuditRecord) -> Result<u64> {
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

    /// Verifies the whole audit log and says where it breaks.
    pub fn audit_verify(&self) -> Result<AuditVerification> {
        self.inner.database.read(db::audit::verify)
    }
}
