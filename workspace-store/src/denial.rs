//! Denials in the audit log: the first of its kind at once, its repetitions as one entry with
//! their number.
//!
//! Threads: any; one lock, held for a look-up. Who is denied something often (a mount that is
//! walked again and again) costs the log one entry a minute. Repetitions that weren't written yet
//! are lost with the process; the first entry isn't.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::audit::AuditRecord;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::store::{Store, now_ns};

/// Repetitions within this time are one entry.
pub const DENIAL_WINDOW: Duration = Duration::from_secs(60);

/// Different denials that are told apart within one window; more count as one.
const DENIALS_TOLD_APART: usize = 4096;

/// Stands for the objects of denials beyond those that are told apart.
const MANY_OBJECTS: &str = "…";

/// Something that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Denial {
    /// Who tried it.
    pub principal: String,
    /// Through which surface: `api`, `mount`, `docker`.
    pub source: String,
    /// What was tried: a verb, or a filesystem call such as `open`.
    pub action: String,
    /// The workspace it concerned.
    pub workspace: Option<WorkspaceId>,
    /// On what: a path, a revision, a route.
    pub object: String,
}

/// Denials of the current window.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<HashMap<Denial, Repetitions>>);

#[derive(Debug)]
struct Repetitions {
    since: Instant,
    count: u64,
}

impl Store {
    /// Records that something was refused. Doesn't wait for the disk.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn record_denial(&self, mut denial: Denial) -> Result<()> {
        let mut log = self.inner.denials.0.lock();
        if log.len() >= DENIALS_TOLD_APART && !log.contains_key(&denial) {
            denial.object = MANY_OBJECTS.to_owned();
        }
        if let Some(repetitions) = log.get_mut(&denial) {
            repetitions.count += 1;
            return Ok(());
        }
        let first = Repetitions {
            since: Instant::now(),
            count: 0,
        };
        log.insert(denial.clone(), first);
        drop(log);
        self.append_denial(denial, 1)
    }

    /// Writes down the repetitions of windows that are over, or of all. To be called every few
    /// seconds.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn flush_denials(&self, are_all_over: bool) -> Result<()> {
        let mut over = Vec::new();
        self.inner.denials.0.lock().retain(|denial, repetitions| {
            let is_over = are_all_over || repetitions.since.elapsed() >= DENIAL_WINDOW;
            if is_over && repetitions.count > 0 {
                over.push((denial.clone(), repetitions.count));
            }
            !is_over
        });
        for (denial, count) in over {
            self.append_denial(denial, count)?;
        }
        Ok(())
    }

    fn append_denial(&self, denial: Denial, count: u64) -> Result<()> {
        let record = AuditRecord {
            principal: denial.principal,
            source: denial.source,
            action: denial.action,
            workspace: denial.workspace,
            object: denial.object,
            outcome: "denied".to_owned(),
            details: serde_json::json!({ "count": count }),
        };
        let _queued = self.inner.database.write_later(move |connection| {
            crate::db::audit::append(connection, now_ns(), &record)
        })?;
        Ok(())
    }
}
