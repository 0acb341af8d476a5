//! The audit log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks for audit entries, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditQuery {
    /// Only entries of this workspace; of the whole store if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Only entries of this principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Only entries with this outcome: `ok`, `denied` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// At most this many; the daemon chooses when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only entries with a smaller number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// Audit entries, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The entries.
    pub entries: Vec<AuditEntryInfo>,
}

/// One record of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntryInfo {
    /// Number, without gaps in the store.
    pub sequence: u64,
    /// When, RFC 3339 in UTC with nanoseconds.
    pub time: String,
    /// Who.
    pub principal: String,
    /// From where: surface, mount, host, container, process, run, step, as far as they are known.
    pub source: serde_json::Value,
    /// Workspace, if the action was on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// What was done ("commit", "rollback" …).
    pub action: String,
    /// To what.
    pub target: String,
    /// `ok`, `denied` or `failed`.
    pub outcome: String,
    /// The operation that it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u64>,
    /// More about it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Hash of this entry and all before it.
    pub hash: String,
}

/// The newest entry of the audit log at a moment, to be kept elsewhere: a log that was changed
/// or cut off later doesn't lead to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// Number of the entry; 0 for an empty log.
    pub sequence: u64,
    /// Its hash, 64 hexadecimal digits.
    pub hash: String,
    /// When the head was taken, RFC 3339 in UTC.
    pub time: String,
    /// The store's public key (ed25519), if it is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Signature of the lines `kura audit head 1`, `sequence …`, `hash …` and `time …`, each with
    /// its line end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// Asks for the head of the audit log.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditHeadRequest {
    /// Sign it with the store's key, which is made if there is none.
    #[serde(default)]
    pub sign: bool,
}

/// Asks for a check of the whole chain.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditVerifyRequest {
    /// A head that was kept elsewhere: the log must lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<AuditHead>,
}

/// Outcome of a check of the whole chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerification {
    /// Whether every entry follows from the one before it.
    pub is_intact: bool,
    /// How many entries were checked.
    pub entry_count: u64,
    /// Hash of the newest entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_hash: Option<String>,
    /// First entry that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad_sequence: Option<u64>,
    /// What is wrong there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
