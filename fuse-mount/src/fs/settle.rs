//! Finding the moment for a cut: the tree in step with what programs wrote into the kernel's cache.
//!
//! The kernel writes its cache back file by file, in an order of its own. So the state is a point
//! in time only if nothing changed from the start of a write-back until the cut: then everything
//! in it was written before that start. Where programs leave no such pause they are held up, for
//! the milliseconds of a write-back: those that write to a file that just changed, and those that
//! change names. Writers through shared mappings can't be held up [G-6].
//!
//! Runs in threads that serve no requests, under `commit_lock`.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::filesystem::Filesystem;
use super::request::KernelSession;
use super::state::{NumberSet, State};
use crate::journal::record::Record;

/// Write-backs before anybody is held up: the first one finds what has been written for seconds.
const FREE_ATTEMPTS: usize = 2;
/// Write-backs at most; then the cut is what the kernel has handed over.
const ATTEMPTS: usize = 10;

/// What changed during a write-back.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    inodes: NumberSet,
    has_names: bool,
}

impl Touched {
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Create(_)
            | Record::Link { .. }
            | Record::Remove { .. }
            | Record::Rename { .. } => self.has_names = true,
            _ => {
                self.inodes.insert(record.subject());
            }
        }
    }
}

/// The state at a moment when it is in step with the kernel's cache. Programs that are held up go
/// on when it is dropped.
pub(super) struct Settled<'a> {
    // Fields are dropped in this order: requests that go on need the state.
    pub(super) state: MutexGuard<'a, State>,
    _holds: Holds,
}

/// Programs that are held up.
struct Holds {
    sessions: Vec<Arc<dyn KernelSession>>,
    inodes: NumberSet,
    /// Every session can hold up writers.
    is_possible: bool,
}

impl Holds {
    fn flush(&self) {
        for session in &self.sessions {
            if let Err(error) = session.flush() {
                tracing::warn!(%error, "the kernel's cache could not be written back");
            }
        }
    }

    fn hold_writers(&mut self, inodes: NumberSet) {
        let new: Vec<u64> = inodes.difference(&self.inodes).copied().collect();
        for session in &self.sessions {
            if let Err(error) = session.hold_writers(&new) {
                tracing::debug!(%error, "writers can't be held up for a commit");
                self.is_possible = false;
                return;
            }
        }
        self.inodes.extend(new);
    }

    fn hold_names(&self) {
        self.sessions
            .iter()
            .for_each(|session| session.hold_names());
    }

    fn release_names(&self) {
        self.sessions
            .iter()
            .for_each(|session| session.release_names());
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.release_names();
        self.sessions
            .iter()
            .for_each(|session| session.release_writers());
    }
}

impl Filesystem {
    /// Waits for a moment when the state is a point in time of the tree as programs see it.
    pub(super) fn settle(&self) -> Settled<'_> {
        let mut holds = Holds {
            sessions: self.session_references(),
            inodes: NumberSet::default(),
            is_possible: true,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            // Their writes of this attempt come from before it began, or through a mapping.
            let held_throughout = holds.inodes.clone();
            self.state.lock().touched = Some(Touched::default());
            holds.flush();
            let mut state = self.state.lock();
            let touched = state.touched.take().unwrap_or_default();
            let is_settled = !touched.has_names && touched.inodes.is_subset(&held_throughout);
            if holds.sessions.is_empty() || is_settled || !holds.is_possible || attempt == ATTEMPTS
            {
                return Settled {
                    state,
                    _holds: holds,
                };
            }
            drop(state);
            holds.release_names();
            if attempt >= FREE_ATTEMPTS {
                holds.hold_writers(touched.inodes);
                if holds.is_possible {
                    holds.hold_names();
                }
            }
        }
    }
}
