//! Executions (`kura run`): what ran in a workspace, for whom, and how it ended.
//!
//! A run has numbered steps, one for each command. What a step changed is found by the commits
//! that carry its run and step, or that have changes by processes of it.

use serde::{Deserialize, Serialize};

use crate::commits::ActorFilter;
use crate::db::{history, refs, runs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, WorkspaceId};
use crate::limits::REF_NAME_MAX_BYTES;
use crate::object::Timestamp;
use crate::principal::mask_secrets;
use crate::store::{Store, now_ns};

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStep {
    /// The run.
    pub run: String,
    /// Number of the step in it.
    pub step: u64,
    /// Who ran it.
    pub principal: String,
    /// The command.
    pub command: Vec<String>,
    /// From where it was started; see [`crate::audit::AuditSource`].
    pub source: String,
    /// When it began.
    pub started: Timestamp,
    /// When it ended; `None` while it runs, or if nobody said so.
    pub ended: Option<Timestamp>,
    /// Its exit code, 128 and the signal if it was killed.
    pub exit_code: Option<i32>,
}

/// A step to be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRunStep {
    /// The run; may be new.
    pub run: String,
    /// Number; the next free one if absent.
    pub step: Option<u64>,
    /// Who runs it.
    pub principal: String,
    /// The command; see [`kept_command`].
    pub command: Vec<String>,
    /// From where.
    pub source: String,
}

/// Highest number of a step.
pub const STEP_MAX: u64 = 1_000_000_000;
/// So much is kept of a command line.
pub const COMMAND_MAX_BYTES: usize = 4096;

/// Refuses what can't be the place of something in a run.
///
/// # Errors
/// `InvalidInput`.
pub fn check_run(run: &str, step: Option<u64>) -> Result<()> {
    if !is_run_id(run) {
        return Err(StoreError::new(
            ErrorKind::InvalidInput,
            format!("'{}' can't be the id of a run", run.escape_debug()),
        )
        .with_hint("use letters, digits, '-', '_' and '.', at most 100"));
    }
    match step {
        Some(step) if step > STEP_MAX => Err(StoreError::new(
            ErrorKind::InvalidInput,
            format!("{step} can't be the number of a step"),
        )
        .with_hint(format!("they go up to {STEP_MAX}"))),
        _ => Ok(()),
    }
}

/// What is kept of a command line: its beginning, without tokens.
pub fn kept_command(command: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut room = COMMAND_MAX_BYTES;
    let mut kept = Vec::new();
    for word in command {
        let mut word = mask_secrets(&word);
        let is_longer = word.len() > room;
        if is_longer {
            word.truncate(word.floor_char_boundary(room));
            word.push('…');
        }
        room -= word.len().min(room);
        kept.push(word);
        if is_longer {
            break;
        }
    }
    kept
}

/// Whether a text can be the id of a run: letters, digits, `-`, `_`, `.`, at most 100 bytes. It
/// stands in environment variables, labels and names of control groups.
pub fn is_run_id(text: &str) -> bool {
    (1..=REF_NAME_MAX_BYTES).contains(&text.len())
        && !text.starts_with('.')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl Store {
    /// Notes that a step begins; gives back its number.
    ///
    /// # Errors
    /// `InvalidInput` for a bad id, `AlreadyExists` if the run has this step.
    pub fn begin_run_step(&self, workspace: WorkspaceId, step: NewRunStep) -> Result<u64> {
        check_run(&step.run, step.step)?;
        self.inner.database.write(move |connection| {
            let number = refs::workspace_number(connection, workspace)?;
            runs::begin(connection, number, now_ns(), &step)
        })
    }

    /// Notes that a step has ended.
    ///
    /// # Errors
    /// `NotFound` if it was never begun, `Conflict` if it has ended.
    pub fn end_run_step(
        &self,
        workspace: WorkspaceId,
        run: &str,
        step: u64,
        exit_code: Option<i32>,
    ) -> Result<()> {
        let run = run.to_owned();
        self.inner.database.write(move |connection| {
            let number = refs::workspace_number(connection, workspace)?;
            runs::end(connection, number, &run, step, now_ns(), exit_code)
        })
    }

    /// Steps of all runs of a workspace, newest first; of one run if it is named; at most `limit`
    /// (0: all).
    pub fn run_steps(
        &self,
        workspace: WorkspaceId,
        run: Option<&str>,
        limit: usize,
    ) -> Result<Vec<RunStep>> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            runs::list(connection, number, run, limit)
        })
    }

    /// Steps of runs that nobody began with [`Store::begin_run_step`] but that made changes: run,
    /// step, principal.
    pub fn unknown_run_steps(
        &self,
        workspace: WorkspaceId,
        run: Option<&str>,
    ) -> Result<Vec<(String, Option<u64>, String)>> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            runs::unknown(connection, number, run)
        })
    }

    /// Commits of a workspace with changes by somebody who is meant, oldest first.
    pub fn commits_with(
        &self,
        workspace: WorkspaceId,
        filter: &ActorFilter,
    ) -> Result<Vec<CommitId>> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            let mut found = Vec::new();
            let mut rows: Vec<i64> = history::taking_part(connection, filter)?
                .into_iter()
                .collect();
            rows.sort_unstable();
            for row in rows {
                if history::is_own(connection, number, row)? {
                    found.push(history::read_row(connection, row)?.0);
                }
            }
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_command_line_the_beginning_is_kept_and_no_part_of_a_token() {
        let kept = |words: &[&str]| kept_command(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(kept(&["a", "", "kura_12"]), ["a", "", "kura_12"]);
        let token = format!("kura_{}", "0f".repeat(32));
        assert_eq!(
            kept(&["-H", &format!("Bearer {token}!")]),
            ["-H", "Bearer kura_…!"]
        );
        // One that the limit would cut is no less secret.
        let filler = "é".repeat(COMMAND_MAX_BYTES / 2 - 10);
        let long = kept(&[
            &filler,
            &format!("{token}{token}"),
            &"x".repeat(100),
            "more",
        ]);
        assert_eq!(long.len(), 3);
        assert_eq!(long[..2], [filler.clone(), "kura_…kura_…".to_owned()]);
        assert_eq!(long[2], "xxxx…");
        let cut = kept(&[&format!("y{}", "é".repeat(COMMAND_MAX_BYTES))]);
        assert_eq!(cut[0].len(), COMMAND_MAX_BYTES - 1 + '…'.len_utf8());
    }

    #[test]
    fn ids_of_runs_are_safe_everywhere() {
        for good in ["r", "2026-11-30T10.00.00-abc", "A_b.c"] {
            assert!(is_run_id(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(101)] {
            assert!(!is_run_id(bad), "{bad}");
        }
    }
}
