//! Commits and switches of a filesystem, and the thread that makes them by the policy.
//!
//! One at a time (`commit_lock`). A cut is taken under the state's lock at a settled moment, the
//! store works without it; only a switch holds it throughout, so that nobody sees a mixture.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use workspace_store::edit::SnapshotEdit;
use workspace_store::error::{Result, StoreError};
use workspace_store::object::{CommitKind, Root};
use workspace_store::source::{CommitRequest, Lineage, NextVersion, Submission, Submitted};

use super::filesystem::{CommitOutcome, Filesystem, SwitchOutcome};
use super::freeze::Cut;
use super::request::Errno;
use super::state::State;

/// Journal size that asks for a checkpoint whatever the policy says.
const JOURNAL_CHECKPOINT_BYTES: u64 = 256 << 20;
/// Pause after a commit by the policy failed, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// A commit waits so long for what is still to be found out about those who made its changes.
const UNKNOWN_WAIT: Duration = Duration::from_millis(50);
/// Files that a commit makes the kernel ask for again; of more, none.
const REFRESHED_FILES: usize = 256;
/// Attempts to find a moment with few new changes before writers are held up for a switch.
const SWITCH_ATTEMPTS: usize = 3;
/// Changed inodes that are few: storing them takes milliseconds.
const SWITCH_MAX_HELD_CHANGES: usize = 256;

impl Filesystem {
    /// Commits everything written so far: a point in time of the whole tree [G-6].
    pub fn commit(&self, request: CommitRequest) -> Result<CommitOutcome> {
        let _guard = self.lock_commits();
        self.submit_cut(Some(request), false)
    }

    /// Commits everything written so far as the policy would.
    pub fn commit_by_policy(&self) -> Result<CommitOutcome> {
        // Also for this one: somebody waits for it, other than for those of the policy's thread.
        let _hurry = self.background.hurry();
        let _guard = self.commit_lock.lock();
        self.submit_cut(Some(self.policy_request()), true)
    }

    /// The live tree as stored objects, without a commit.
    pub fn live_root(&self) -> Result<Root> {
        let _guard = self.lock_commits();
        self.submit_cut(None, false).map(|outcome| outcome.root)
    }

    fn submit_cut(
        &self,
        commit: Option<CommitRequest>,
        is_automatic: bool,
    ) -> Result<CommitOutcome> {
        // The store knows whether a name without changes makes a commit.
        let is_named = commit.as_ref().is_some_and(CommitRequest::is_named);
        self.threads.finish(Instant::now() + UNKNOWN_WAIT);
        let mut cut = {
            let mut settled = self.settle();
            let unchanged = nothing_to_store(&mut settled.state, commit.is_some());
            if let Some(unchanged) = unchanged.filter(|_| !is_named) {
                return Ok(unchanged);
            }
            settled.state.cut(true).map_err(journal_error)?
        };
        let is_checkpoint = commit.is_none();
        let mut submission = take_submission(&mut cut, commit);
        submission.is_automatic = is_automatic;
        submission.mountpoint = self.only_mountpoint();
        let written = cut.written_files();
        let submit = || self.source.submit(submission);
        // Only this part: programs may wait for what comes before and after it.
        let result = if is_automatic {
            self.background.run(submit)
        } else {
            submit()
        };
        let result = {
            let mut state = self.state.lock();
            state.forget_writers(&written);
            finish(&mut state, cut, is_checkpoint, result)
        };
        // Before the next write to them the kernel asks, in the name of who writes.
        let refreshed = written.iter().filter(|_| written.len() <= REFRESHED_FILES);
        for session in self.session_references() {
            let refresh = |number: &u64| session.refresh_attributes(*number);
            refreshed.clone().for_each(refresh);
        }
        if is_checkpoint {
            // The policy's thread may have seen nothing uncommitted meanwhile.
            self.changed.notify_all();
        }
        result
    }

    /// Waits for the commit or switch that is under way; an automatic one hurries up.
    fn lock_commits(&self) -> MutexGuard<'_, ()> {
        let _hurry = self.background.hurry();
        self.commit_lock.lock()
    }

    /// Stores a cut while nobody else gets at the state.
    fn store_cut(
        &self,
        state: &mut State,
        mut cut: Cut,
        commit: Option<CommitRequest>,
    ) -> Result<CommitOutcome> {
        let is_checkpoint = commit.is_none();
        let result = self.source.submit(take_submission(&mut cut, commit));
        finish(state, cut, is_checkpoint, result)
    }

    /// Makes the live tree equal to what `wanted` makes of it as a new commit, atomically; what was
    /// uncommitted is committed just before it, so nothing is lost [G-4]. Writers are held up only
    /// where they leave no pause. Those who watch have their events when this returns (see
    /// `watch`).
    ///
    /// `wanted` is asked for the tree as it is first, and again while everybody is held up if
    /// something changed meanwhile; if nothing differs then, nothing is committed.
    ///
    /// # Errors
    /// Of `wanted`, the store and the journal; then nothing was switched.
    pub fn switch(
        &self,
        wanted: &dyn Fn(&Root) -> Result<NextVersion>,
        request: CommitRequest,
    ) -> Result<SwitchOutcome> {
        let _guard = self.lock_commits();
        let mut now = self.submit_cut(None, false)?.root;
        let mut target = wanted(&now)?;
        for _ in 1..SWITCH_ATTEMPTS {
            if self.state.lock().changes.inodes.len() <= SWITCH_MAX_HELD_CHANGES {
                break;
            }
            now = self.submit_cut(None, false)?.root;
        }
        let watchers = self.find_watchers();
        // From here on nobody changes anything: what programs have written is in the version
        // before the switch, what they write then goes to the tree after it.
        let mut settled = self.settle();
        let state = &mut *settled.state;
        if nothing_to_store(state, false).is_none() {
            let cut = state.cut(true).map_err(journal_error)?;
            self.store_cut(state, cut, None)?;
        }
        if state.base != now {
            target = wanted(&state.base)?;
        }
        let mut outcome = SwitchOutcome {
            before: state.head,
            before_root: state.base.clone(),
            rescue: None,
            commit: None,
            root: target.root.clone(),
        };
        if state.base == target.root && target.lineage.is_plain() {
            return Ok(outcome);
        }
        if nothing_to_store(state, true).is_none() {
            let rescue = CommitRequest {
                kind: CommitKind::Rescue,
                message: format!("uncommitted work before {}", describe(request.kind)),
                ..request.clone()
            };
            let cut = state.cut(true).map_err(journal_error)?;
            let rescued = self.store_cut(state, cut, Some(rescue))?;
            outcome.before = rescued.commit;
            outcome.rescue = rescued.is_new.then_some(rescued.commit);
        }
        self.load_watched(state, &watchers);
        let plan = state.plan_switch(&target.root).map_err(|errno| {
            let error = std::io::Error::from_raw_os_error(errno.0);
            StoreError::io(
                format!("{}: read the version", describe(request.kind)),
                error,
            )
        })?;
        let mut cut = state.cut(true).map_err(journal_error)?;
        let notifications = plan.notifications();
        if let Err(errno) = state.note_outdated(&notifications) {
            state.put_back(cut);
            return Err(journal_error(errno));
        }
        let mut submission = take_submission(&mut cut, Some(request));
        submission.edit = SnapshotEdit::unchanged(&target.root);
        submission.base = target.root;
        submission.lineage = target.lineage;
        submission.inode_records.extend(
            plan.inode_records
                .iter()
                .map(|(key, row)| (key.clone(), *row)),
        );
        let result = self.source.submit(submission);
        let switched = finish(state, cut, false, result)?;
        let events = state.plan_events(&plan, &watchers);
        state.apply_switch(plan, switched.root);
        drop(settled);
        self.tell_sessions(notifications, &events, &watchers);
        outcome.commit = switched.is_new.then_some(switched.commit);
        Ok(outcome)
    }

    /// Commits what is uncommitted and removes what the journal still has of earlier writes. What
    /// an open file without a name holds stays.
    ///
    /// # Errors
    /// Of the commit and the journal.
    pub fn scrub(&self, request: CommitRequest) -> Result<()> {
        let _guard = self.lock_commits();
        self.submit_cut(Some(request), false)?;
        let mut state = self.state.lock();
        if !state.journal.is_empty() {
            let cut = state.cut(true).map_err(journal_error)?;
            self.store_cut(&mut state, cut, None)?;
        }
        state
            .journal
            .scrub()
            .map_err(|error| StoreError::io("remove what the journal has of earlier writes", error))
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
        let hurry = self.background.hurry();
        if let Some(thread) = self.policy_thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the commit thread panicked");
        }
        drop(hurry);
        let _guard = self.lock_commits();
        if !self.options.is_read_only {
            self.submit_cut(Some(self.policy_request()), false)?;
        }
        let mut state = self.state.lock();
        if !state.journal.is_empty() {
            // Only what needs no place in a version is left: say so, so that no replay finds it.
            let cut = state.cut(false).map_err(journal_error)?;
            self.store_cut(&mut state, cut, None)?;
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
            let (Some(first), Some(last)) = (state.first_change, state.last_change) else {
                self.changed.wait(&mut state);
                continue;
            };
            let policy = *self.policy.lock();
            if !policy.enabled && state.changes.is_empty() && !is_large(&state) {
                // What a checkpoint has stored waits for somebody's commit.
                self.changed.wait(&mut state);
                continue;
            }
            let pause = if is_large(&state) {
                Duration::ZERO
            } else if policy.enabled {
                let deadline = (last + policy.quiet).min(first + policy.max_interval);
                deadline.saturating_duration_since(Instant::now())
            } else {
                // Without commits of its own the overlay only keeps its journal short.
                policy.max_interval
            };
            if !pause.is_zero() {
                self.changed.wait_for(&mut state, pause);
                continue;
            }
            drop(state);
            let result = {
                let _guard = self.commit_lock.lock();
                self.submit_cut(policy.enabled.then(|| self.policy_request()), true)
            };
            match result {
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

/// The journal asks for a checkpoint, whatever the policy says and whether or not a version would
/// differ: files without a name are written into it too.
fn is_large(state: &State) -> bool {
    state.journal.bytes() > JOURNAL_CHECKPOINT_BYTES
}

/// The outcome of a commit or checkpoint that has nothing to store.
fn nothing_to_store(state: &mut State, is_commit: bool) -> Option<CommitOutcome> {
    let has_checkpoint = is_commit && state.is_checkpointed;
    if !state.changes.is_empty() || has_checkpoint || is_large(state) {
        return None;
    }
    if !state.is_checkpointed {
        state.first_change = None;
    }
    Some(outcome_of(state))
}

/// What the store needs of a cut, taken out of it.
fn take_submission(cut: &mut Cut, commit: Option<CommitRequest>) -> Submission {
    Submission {
        expected_head: cut.head,
        base: cut.base.clone(),
        edit: std::mem::replace(&mut cut.edit, SnapshotEdit::unchanged(&cut.base)),
        attribution: std::mem::take(&mut cut.attribution),
        mountpoint: None,
        commit,
        lineage: Lineage::default(),
        is_automatic: false,
        first_journal_segment: cut.first_journal_segment,
        next_inode_number: cut.next_number,
        inode_records: std::mem::take(&mut cut.inode_records),
    }
}

/// Takes the store's answer to a cut into the state.
fn finish(
    state: &mut State,
    cut: Cut,
    is_checkpoint: bool,
    result: Result<Submitted>,
) -> Result<CommitOutcome> {
    match result {
        Ok(submitted) => {
            // A commit that was not made for want of a difference that counts is one, too.
            let is_ahead = state.is_checkpointed || submitted.root != cut.base;
            state.is_checkpointed = is_checkpoint || (!submitted.is_new && is_ahead);
            if is_checkpoint {
                // Still uncommitted: looking at a mount must not put its commit off.
                state.first_change = state.first_change.or(cut.first_change);
            }
            state.complete(cut, &submitted);
            Ok(CommitOutcome {
                commit: submitted.commit,
                is_new: submitted.is_new,
                root: submitted.root,
            })
        }
        Err(error) => {
            state.put_back(cut);
            Err(error)
        }
    }
}

/// The state as it is, for a call that made no commit.
fn outcome_of(state: &State) -> CommitOutcome {
    CommitOutcome {
        commit: state.head,
        is_new: false,
        root: state.base.clone(),
    }
}

fn describe(kind: CommitKind) -> &'static str {
    match kind {
        CommitKind::Rollback => "rollback",
        CommitKind::Restore => "restore",
        CommitKind::Undo => "undo",
        CommitKind::Import => "import",
        CommitKind::Merge => "merge",
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
