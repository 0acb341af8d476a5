//! Opening a filesystem: the overlay's state, and the replay of its journal.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use workspace_store::background::Background;
use workspace_store::error::{ErrorKind, Result, StoreError};
use workspace_store::source::WorkspaceSource;

use super::actors::Threads;
use super::filesystem::{Filesystem, FilesystemOptions};
use super::inode::Content;
use super::load::KnownPlaces;
use super::request::Errno;
use super::state::State;
use crate::journal::Journal;
use crate::journal::record::Record;

/// Stack for a thread that commits: trees are walked recursively, as deep as their directories.
pub const COMMIT_STACK_BYTES: usize = 256 << 20;

impl Filesystem {
    /// Opens the overlay of a branch and replays its journal.
    ///
    /// # Errors
    /// `Conflict` if the branch was moved while there were uncommitted changes; `Io`, `NoSpace`
    /// of the directory; errors of the store.
    pub fn open(source: Arc<dyn WorkspaceSource>, options: FilesystemOptions) -> Result<Arc<Self>> {
        let directory = options.directory.clone();
        let journal_directory = directory.join("journal");
        let io = |error| StoreError::io(format!("open overlay {}", directory.display()), error);
        create_durably(&journal_directory).map_err(io)?;
        let head = source.head()?;
        let overlay = source.overlay()?.filter(|_| !options.is_read_only);
        let first = overlay
            .as_ref()
            .map_or(1, |overlay| overlay.first_journal_segment);
        let journal = Journal::open(&journal_directory, first).map_err(io)?;
        let segments = journal.replayable();
        let is_clean = segments.is_empty();
        let (base, base_commit, next_number) = match &overlay {
            // The base may be ahead of the branch: a checkpoint that no commit followed yet.
            Some(overlay) if !is_clean || overlay.head == head.commit => (
                overlay.base.clone(),
                overlay.head,
                overlay.next_inode_number,
            ),
            Some(overlay) => (head.root.clone(), head.commit, overlay.next_inode_number),
            None => (head.root.clone(), head.commit, first_inode_number()),
        };
        let known_directory = directory.join("known");
        let keeps_known = options.is_resumed || !is_clean;
        let (known_journal, known) = open_known(&known_directory, keeps_known).map_err(io)?;
        let mut state = State::new(
            source.clone(),
            base,
            base_commit,
            next_number,
            journal,
            known_journal,
        );
        for (name, row) in source.inode_records(0)? {
            if let Ok(bytes) = <[u8; 8]>::try_from(name.as_ref()) {
                let link = workspace_store::object::LinkId(u64::from_be_bytes(bytes));
                state.link_numbers.insert(link, row.number);
            }
        }
        state.is_replaying = true;
        // What the records name is found as a resumed kernel's requests find it.
        state.is_resumed = true;
        replay(&mut state, &segments, &known).map_err(|error| {
            StoreError::new(
                ErrorKind::Corrupt,
                format!(
                    "replay the journal in {}: {error}",
                    journal_directory.display()
                ),
            )
            .with_hint("keep the directory and report it; `kura log` shows what is committed")
        })?;
        state.is_replaying = false;
        let last_number = state.actors.last_number();
        state.actors.end_replay();
        state.is_resumed = options.is_resumed;
        state.awaits_sessions = options.is_resumed;
        state.is_checkpointed = state.base != head.root;
        if !options.is_resumed {
            state.drop_unused();
        }
        let needed = state.needed_segments();
        state
            .journal
            .discard_before(&journal_directory, first, |number| needed.contains(&number))
            .map_err(io)?;
        if state.head != head.commit {
            if !state.changes.is_empty() {
                return Err(StoreError::new(
                    ErrorKind::Conflict,
                    format!(
                        "open overlay {}: its branch has moved from {} to {} under uncommitted changes",
                        directory.display(),
                        state.head,
                        head.commit
                    ),
                )
                .with_hint("move the branch back with `kura undo`, or remove the overlay's directory to give the changes up"));
            }
            state.base = head.root.clone();
            state.head = head.commit;
            state.is_checkpointed = false;
        }
        let is_read_only = options.is_read_only;
        let processes = Arc::clone(&options.processes);
        let filesystem = Arc::new(Self {
            threads: Threads::new(processes, &options.author, last_number),
            policy: Mutex::new(options.policy),
            options,
            source,
            state: Mutex::new(state),
            changed: Condvar::new(),
            known,
            sessions: Mutex::new(Vec::new()),
            next_session: AtomicU64::new(1),
            commit_lock: Mutex::new(()),
            background: Background::new(),
            synced: Mutex::new(0),
            is_read_only: AtomicBool::new(is_read_only),
            is_closing: AtomicBool::new(false),
            policy_thread: Mutex::new(None),
        });
        if !is_read_only {
            let worker = Arc::clone(&filesystem);
            let thread = std::thread::Builder::new()
                .name("kura-commit".into())
                .stack_size(COMMIT_STACK_BYTES)
                .spawn(move || worker.run_policy())
                .map_err(|error| StoreError::io("start the commit thread", error))?;
            *filesystem.policy_thread.lock() = Some(thread);
        }
        Ok(filesystem)
    }
}

/// Makes a directory and those on the way to it that are missing, so that their names survive a
/// power loss, as the journal's segments below them do.
fn create_durably(directory: &Path) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create_durably(parent)?;
        std::fs::create_dir(directory)?;
        std::fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Where the numbers of new inodes start in an overlay that never was mounted: from the clock, so
/// that forks of a workspace don't give the same numbers to different files, also if they are
/// mounted one right after the other.
fn first_inode_number() -> u64 {
    let now = workspace_store::object::Timestamp::now();
    let fraction = (u64::from(now.nanoseconds) << 18) / 1_000_000_000;
    (((now.seconds.max(0) as u64) << 18) + fraction) & ((1 << 52) - 1)
}

/// Opens the log of known inodes and reads it, or starts it anew.
fn open_known(directory: &Path, keep: bool) -> std::io::Result<(Journal, KnownPlaces)> {
    let mut known = KnownPlaces::new();
    let mut journal = Journal::open(directory, 1)?;
    if !keep {
        journal.clear();
        return Ok((journal, known));
    }
    Journal::replay(&journal.replayable(), &mut |_, record, _| {
        if let Record::Known {
            number,
            parent,
            name,
        } = record
        {
            known.insert(*number, (*parent, (*name).into()));
        }
        Ok(())
    })?;
    Ok((journal, known))
}

fn replay(
    state: &mut State,
    segments: &[Arc<crate::journal::segment::Segment>],
    known: &KnownPlaces,
) -> std::io::Result<()> {
    Journal::replay(segments, &mut |unique, record, location| {
        state
            .prepare_replay(record, known)
            .map_err(|errno| std::io::Error::from_raw_os_error(errno.0))?;
        state.apply(unique, record, location);
        if unique != 0 {
            state.answered.insert(unique, record.subject());
        }
        state.first_change.get_or_insert_with(Instant::now);
        state.last_change = Some(Instant::now());
        Ok(())
    })
}

impl State {
    fn needed_segments(&self) -> std::collections::HashSet<u64> {
        let mut needed = std::collections::HashSet::new();
        for inode in self.inodes.values() {
            if let Some(Content::Extents(map)) = inode.content() {
                map.for_each_segment(|segment| {
                    needed.insert(segment.number());
                });
            }
        }
        needed
    }

    /// Nobody has files open that lost their names: they go.
    fn drop_unused(&mut self) {
        for number in std::mem::take(&mut self.orphans) {
            self.inodes.remove(&number);
        }
        for inode in self.inodes.values_mut() {
            inode.is_inherited = false;
        }
        self.answered.clear();
        self.outdated.clear();
    }

    /// Brings what a record names into the table.
    fn prepare_replay(
        &mut self,
        record: &Record<'_>,
        known: &KnownPlaces,
    ) -> std::result::Result<(), Errno> {
        for number in record
            .named_inodes()
            .into_iter()
            .filter(|number| *number != 0)
        {
            self.find_inode(number, known)?;
        }
        let directories = record.named_directories();
        for directory in directories.into_iter().filter(|number| *number != 0) {
            self.load_directory(directory)?;
        }
        Ok(())
    }
}
