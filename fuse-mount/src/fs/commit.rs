//! Commits and switches of a filesystem, and the thread that makes them by the policy.
//!
//! One at a time (`commit_lock`). A cut is taken under the state's lock, the store works without
//! it; only a switch holds it throughout, so that nobody sees a mixture.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use workspace_store::edit::SnapshotEdit;
use workspace_store::error::{ErrorKind, Result, StoreError};
use workspace_store::object::{CommitKind, Root};
use workspace_store::source::{CommitRequest, Submission, Submitted};

use super::filesystem::{CommitOutcome, Filesystem};
use super::freeze::InodeRecords;
use super::request::Errno;

/// Journal size that asks for a checkpoint whatever the policy says.
const JOURNAL_CHECKPOINT_BYTES: u64 = 256 << 20;
/// Pause after a commit by the policy failed, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Attempts to find a moment without new changes before writers are held up for a switch.
const SWITCH_ATTEMPTS: usize = 3;

impl Filesystem {
    /// Commits everything written so far: a point in time of the whole tree [G-6].
    pub fn commit(&self, request: CommitRequest) -> Result<CommitOutcome> {
        let _guard = self.commit_lock.lock();
        self.flush_sessions();
        self.submit_cut(Some(request))
    }

    /// The live tree as stored objects, without a commit.
    pub fn live_root(&self) -> Result<Root> {
        let _guard = self.commit_lock.lock();
        self.flush_sessions();
        self.submit_cut(None).map(|outcome| outcome.root)
    }

    fn submit_cut(&self, commit: Option<CommitRequest>) -> Result<CommitOutcome> {
        let cut = {
            let mut state = self.state.lock();
            let has_checkpoint = commit.is_some() && state.is_checkpointed;
            if state.changes.is_empty() && !has_checkpoint {
                state.first_change = None;
                return Ok(CommitOutcome {
                    commit: state.head,
                    is_new: false,
                    root: state.base.clone(),
                });
            }
            state.cut(true).map_err(journal_error)?
        };
        let is_checkpoint = commit.is_none();
        let submission = Submission {
            expected_head: cut.head,
            base: cut.base.clone(),
            edit: cut.edit.clone(),
            commit,
            first_journal_segment: cut.first_journal_segment,
            next_inode_number: cut.next_number,
            inode_records: cut.inode_records.clone(),
        };
        match self.source.submit(submission) {
            Ok(submitted) => {
                let mut state = self.state.lock();
                state.is_checkpointed = is_checkpoint;
                state.complete(cut, &submitted);
                Ok(outcome(&submitted))
            }
            Err(error) => {
                self.state.lock().put_back(cut);
                Err(error)
            }
        }
    }

    /// Makes the live tree equal to `target` as a new commit, atomically; what was uncommitted is
    /// committed first, so nothing is lost [G-4].
    pub fn switch(&self, target: Root, request: CommitRequest) -> Result<CommitOutcome> {
        let _guard = self.commit_lock.lock();
        let rescue = CommitRequest {
            kind: CommitKind::Rescue,
            message: format!("uncommitted work before {}", describe(request.kind)),
            ..request.clone()
        };
        let mut attempt = 0;
        let mut state = loop {
            self.flush_sessions();
            self.submit_cut(Some(rescue.clone()))?;
            let state = self.state.lock();
            if state.changes.is_empty() {
                break state;
            }
            attempt += 1;
            if attempt >= SWITCH_ATTEMPTS {
                return Err(StoreError::new(
                    ErrorKind::Busy,
                    format!(
                        "{} the workspace: files change without a pause",
                        describe(request.kind)
                    ),
                )
                .with_hint("stop what writes into it, then try again"));
            }
        };
        if state.base == target {
            return Ok(CommitOutcome {
                commit: state.head,
                is_new: false,
                root: target,
            });
        }
        let plan = state.plan_switch(&target).map_err(journal_error)?;
        let cut = state.cut(true).map_err(journal_error)?;
        let mut inode_records: InodeRecords = cut.inode_records.clone();
        inode_records.extend(
            plan.inode_records
                .iter()
                .map(|(key, row)| (key.clone(), *row)),
        );
        let submission = Submission {
            expected_head: state.head,
            edit: SnapshotEdit::unchanged(&target),
            base: target.clone(),
            commit: Some(request),
            first_journal_segment: cut.first_journal_segment,
            next_inode_number: state.next_number,
            inode_records,
        };
        let submitted = match self.source.submit(submission) {
            Ok(submitted) => submitted,
            Err(error) => {
                state.put_back(cut);
                return Err(error);
            }
        };
        state.is_checkpointed = false;
        state.complete(cut, &submitted);
        let notifications = state.apply_switch(plan, submitted.root.clone());
        drop(state);
        self.notify_sessions(&notifications);
        Ok(outcome(&submitted))
    }

    /// Commits what is uncommitted, for the last time, and removes the journal.
    ///
    /// # Errors
    /// Of the commit; then the journal stays, and opening again replays it.
    pub fn close(&self) -> Result<()> {
        self.is_closing.store(true, Ordering::Release);
        {
            // The thread checks the flag under this lock before it waits.
            let _state = self.state.lock();
            self.changed.notify_all();
        }
        if let Some(thread) = self.policy_thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the commit thread panicked");
        }
        let _guard = self.commit_lock.lock();
        if !self.options.is_read_only {
            self.flush_sessions();
            self.submit_cut(Some(self.policy_request()))?;
        }
        let mut state = self.state.lock();
        if !state.journal.is_empty() {
            // Only what needs no place in a version is left: say so, so that no replay finds it.
            let cut = state.cut(false).map_err(journal_error)?;
            let submission = Submission {
                expected_head: state.head,
                edit: SnapshotEdit::unchanged(&state.base),
                base: state.base.clone(),
                commit: None,
                first_journal_segment: cut.first_journal_segment,
                next_inode_number: state.next_number,
                inode_records: Default::default(),
            };
            self.source.submit(submission)?;
        }
        state.journal.clear();
        state.known.clear();
        Ok(())
    }

    fn policy_request(&self) -> CommitRequest {
        CommitRequest {
            author: self.options.author.clone(),
            kind: CommitKind::Snapshot,
            message: String::new(),
            run: None,
            step: None,
        }
    }

    /// Waits for changes and commits them by the policy. Sleeps without a timer while there are
    /// none [G-5].
    pub(super) fn run_policy(&self) {
        let mut retry = RETRY_MIN;
        loop {
            let mut state = self.state.lock();
            if self.is_closing.load(Ordering::Acquire) {
                return;
            }
            let policy = *self.policy.lock();
            let is_large = state.journal.bytes() > JOURNAL_CHECKPOINT_BYTES;
            let deadline = match (state.first_change, state.last_change) {
                (Some(first), Some(last)) if policy.enabled => {
                    (last + policy.quiet).min(first + policy.max_interval)
                }
                // Without commits of its own the overlay still keeps its journal short.
                (Some(first), _) => first + policy.max_interval,
                _ => {
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            let now = Instant::now();
            if now < deadline && !is_large {
                self.changed.wait_for(&mut state, deadline - now);
                continue;
            }
            if !policy.enabled && !is_large {
                self.changed.wait_for(&mut state, policy.max_interval);
                continue;
            }
            drop(state);
            let _guard = self.commit_lock.lock();
            self.flush_sessions();
            match self.submit_cut(policy.enabled.then(|| self.policy_request())) {
                Ok(_) => retry = RETRY_MIN,
                Err(error) => {
                    tracing::error!(?error, "an automatic commit failed; it is tried again");
                    let mut state = self.state.lock();
                    if !self.is_closing.load(Ordering::Acquire) {
                        self.changed.wait_for(&mut state, retry);
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
        }
    }
}

fn outcome(submitted: &Submitted) -> CommitOutcome {
    CommitOutcome {
        commit: submitted.commit,
        is_new: submitted.is_new,
        root: submitted.root.clone(),
    }
}

fn describe(kind: CommitKind) -> &'static str {
    match kind {
        CommitKind::Rollback => "roll back",
        CommitKind::Restore => "restore in",
        CommitKind::Undo => "undo in",
        CommitKind::Merge => "merge into",
        _ => "change",
    }
}

fn journal_error(errno: Errno) -> StoreError {
    StoreError::io(
        "write the journal",
        std::io::Error::from_raw_os_error(errno.0),
    )
    .with_hint("free space on the disk that holds the store, then try again")
}
