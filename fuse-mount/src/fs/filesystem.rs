//! The filesystem of one branch: its state, and what works on it: requests, commits, the policy.
//!
//! Threads: any number of sessions call [`Filesystem::handle`]; one thread of its own makes commits
//! by the policy; commits and switches exclude each other (`commit_lock`). Lock order:
//! `commit_lock`, `synced`, `state`; `sessions` is taken alone. No lock is held while the kernel is
//! asked to write its cache back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use workspace_store::edit::SnapshotEdit;
use workspace_store::error::{ErrorKind, Result, StoreError};
use workspace_store::id::CommitId;
use workspace_store::object::{CommitKind, Root};
use workspace_store::source::{CommitRequest, Submission, Submitted, WorkspaceSource};

use super::content::Frozen;
use super::data::{ListRequest, WriteRequest};
use super::freeze::InodeRecords;
use super::inode::{Content, Kind};
use super::load::KnownPlaces;
use super::names::{NAME_MAX_BYTES, NewInode};
use super::request::{
    Caller, Errno, Failure, FilesystemStatistics, KernelSession, Mode, Notification, Request,
    Response,
};
use super::state::State;
use crate::journal::Journal;
use crate::journal::record::Record;

/// Journal size that asks for a checkpoint whatever the policy says.
const JOURNAL_CHECKPOINT_BYTES: u64 = 256 << 20;
/// Pause after a commit by the policy failed, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Attempts to find a moment without new changes before writers are held up for a switch.
const SWITCH_ATTEMPTS: usize = 3;
/// Stack of the commit thread: trees are walked recursively, as deep as their directories.
const COMMIT_STACK_BYTES: usize = 256 << 20;

/// When changes become commits by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// Whether they do at all.
    pub enabled: bool,
    /// Time without a change after which they do.
    pub quiet: Duration,
    /// Longest time from the first change.
    pub max_interval: Duration,
}

impl Default for CommitPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            quiet: Duration::from_millis(500),
            max_interval: Duration::from_secs(5),
        }
    }
}

/// How to open a [`Filesystem`].
#[derive(Debug, Clone)]
pub struct FilesystemOptions {
    /// Where journal and inode log are kept; made if missing. Nobody else may use it.
    pub directory: PathBuf,
    /// When changes become commits.
    pub policy: CommitPolicy,
    /// Principal of the commits that the policy makes.
    pub author: String,
    /// Refuse changes.
    pub is_read_only: bool,
    /// A kernel connection of an earlier daemon will be resumed on it.
    pub is_resumed: bool,
}

/// Result of a commit.
#[derive(Debug, Clone)]
pub struct CommitOutcome {
    /// The branch's head now.
    pub commit: CommitId,
    /// Whether it was made by this call; else nothing had changed.
    pub is_new: bool,
    /// Its tree.
    pub root: Root,
}

/// What is uncommitted, and sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlayStatus {
    /// Whether a commit now would have something to store.
    pub is_dirty: bool,
    /// Files and directories changed since the last commit.
    pub changed_inodes: u64,
    /// Size of the journal.
    pub journal_bytes: u64,
    /// Inodes in memory.
    pub loaded_inodes: u64,
    /// The branch's newest commit.
    pub head: CommitId,
}

/// See the module's description.
#[derive(Debug)]
pub struct Filesystem {
    options: FilesystemOptions,
    source: Arc<dyn WorkspaceSource>,
    state: Mutex<State>,
    /// Wakes the policy's thread.
    changed: Condvar,
    known: KnownPlaces,
    sessions: Mutex<Vec<(u64, SessionReference)>>,
    next_session: AtomicU64,
    commit_lock: Mutex<()>,
    /// Bytes of the journal that are on the disk.
    synced: Mutex<u64>,
    is_read_only: AtomicBool,
    is_closing: AtomicBool,
    policy: Mutex<CommitPolicy>,
    policy_thread: Mutex<Option<JoinHandle<()>>>,
}

struct SessionReference(Arc<dyn KernelSession>);

impl std::fmt::Debug for SessionReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KernelSession")
    }
}

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
        std::fs::create_dir_all(&journal_directory).map_err(io)?;
        let head = source.head()?;
        let overlay = source.overlay()?.filter(|_| !options.is_read_only);
        let first = overlay
            .as_ref()
            .map_or(1, |overlay| overlay.first_journal_segment);
        let journal = Journal::open(&journal_directory, first).map_err(io)?;
        let segments = journal.replayable();
        let is_clean = segments.is_empty();
        let (base, base_commit, next_number) = match &overlay {
            Some(overlay) if !is_clean => (
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
        state.is_resumed = options.is_resumed;
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
        let filesystem = Arc::new(Self {
            policy: Mutex::new(options.policy),
            options,
            source,
            state: Mutex::new(state),
            changed: Condvar::new(),
            known,
            sessions: Mutex::new(Vec::new()),
            next_session: AtomicU64::new(1),
            commit_lock: Mutex::new(()),
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

    /// Answers a request of the kernel.
    ///
    /// # Errors
    /// `WouldBlock` in [`Mode::Inline`] when a disk has to be waited for; nothing has been done.
    pub fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
    ) -> std::result::Result<Response, Failure> {
        match request {
            Request::Sync { .. } | Request::SyncDirectory { .. } | Request::SyncFilesystem => {
                if mode == Mode::Inline {
                    return Err(Failure::WouldBlock);
                }
                self.sync().map_err(Failure::Errno)?;
                if let Request::Sync { inode, .. } = request {
                    // Its cache was written back just now, so it uses more space than the kernel
                    // knows, and the kernel doesn't ask again by itself.
                    for session in self.session_references() {
                        session.refresh_attributes(*inode);
                    }
                }
                return Ok(Response::Empty);
            }
            Request::StatFilesystem => {
                return self.statistics().map_err(Failure::Errno);
            }
            Request::Read {
                inode,
                offset,
                size,
            } => {
                return self.read(*inode, *offset, *size, mode);
            }
            _ => {}
        }
        if changes_something(request) && self.is_read_only.load(Ordering::Acquire) {
            return Err(Failure::Errno(Errno(libc::EROFS)));
        }
        let mut state = self.state.lock();
        let was_clean = state.first_change.is_none();
        let result = self.answer(&mut state, caller, request);
        let is_dirty_now = was_clean && state.first_change.is_some();
        drop(state);
        if is_dirty_now {
            self.changed.notify_all();
        }
        result.map_err(Failure::Errno)
    }

    fn answer(
        &self,
        state: &mut State,
        caller: &Caller,
        request: &Request<'_>,
    ) -> std::result::Result<Response, Errno> {
        self.find_inodes(state, request)?;
        if caller.is_resent
            && let Some(number) = state.answered.get(&caller.unique).copied()
        {
            return answer_again(state, request, number);
        }
        match *request {
            Request::Lookup { parent, name } => state.lookup(parent, name),
            Request::Forget { inode, count } => {
                state.forget(inode, count);
                Ok(Response::Empty)
            }
            Request::GetAttributes { inode } => state.get_attributes(inode),
            Request::SetAttributes { inode, ref changes } => {
                state.set_attributes(caller, inode, changes)
            }
            Request::ReadLink { inode } => match &state.inode(inode)?.kind {
                Kind::Symlink(target) => Ok(Response::Data(target.to_vec())),
                _ => Err(Errno(libc::EINVAL)),
            },
            Request::MakeNode {
                parent,
                name,
                mode,
                rdev,
                umask,
            } => state.make(
                caller,
                parent,
                name,
                &NewInode {
                    mode,
                    umask,
                    rdev,
                    target: b"",
                },
            ),
            Request::MakeDirectory {
                parent,
                name,
                mode,
                umask,
            } => {
                let mode = libc::S_IFDIR | mode & 0o7777;
                state.make(
                    caller,
                    parent,
                    name,
                    &NewInode {
                        mode,
                        umask,
                        rdev: 0,
                        target: b"",
                    },
                )
            }
            Request::SymbolicLink {
                parent,
                name,
                target,
            } => {
                let mode = libc::S_IFLNK | 0o777;
                state.make(
                    caller,
                    parent,
                    name,
                    &NewInode {
                        mode,
                        umask: 0,
                        rdev: 0,
                        target,
                    },
                )
            }
            Request::Create {
                parent,
                name,
                mode,
                umask,
                flags,
            } => {
                let mode = libc::S_IFREG | mode & 0o7777;
                let new = NewInode {
                    mode,
                    umask,
                    rdev: 0,
                    target: b"",
                };
                state.create(caller, parent, name, &new, flags as i32)
            }
            Request::TemporaryFile {
                parent,
                mode,
                umask,
                ..
            } => {
                let mode = libc::S_IFREG | mode & 0o7777;
                let new = NewInode {
                    mode,
                    umask,
                    rdev: 0,
                    target: b"",
                };
                state.make_temporary(caller, parent, &new)
            }
            Request::Unlink { parent, name } => state.unlink(caller, parent, name),
            Request::RemoveDirectory { parent, name } => {
                state.remove_directory(caller, parent, name)
            }
            Request::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
            } => state.rename(caller, (parent, name), (new_parent, new_name), flags),
            Request::Link {
                inode,
                new_parent,
                new_name,
            } => state.link(caller, inode, new_parent, new_name),
            Request::Open {
                inode,
                flags,
                kill_suid_gid,
            } => {
                if flags as i32 & libc::O_TRUNC != 0 {
                    let changes = super::request::SetAttributes {
                        size: Some(0),
                        kill_suid_gid,
                        ..Default::default()
                    };
                    state.set_attributes(caller, inode, &changes)?;
                }
                Ok(Response::Empty)
            }
            Request::Release { .. } => Ok(Response::Empty),
            Request::Write {
                inode,
                offset,
                data,
                kill_suid_gid,
                from_cache,
            } => state.write(
                caller,
                &WriteRequest {
                    number: inode,
                    offset,
                    data,
                    kill_suid_gid,
                    from_cache,
                },
            ),
            Request::SetXattr {
                inode,
                name,
                value,
                flags,
                clear_set_gid,
            } => state.set_xattr(caller, inode, name, value, flags as i32, clear_set_gid),
            Request::GetXattr { inode, name, size } => state.get_xattr(inode, name, size),
            Request::ListXattr { inode, size } => state.list_xattrs(inode, size),
            Request::RemoveXattr { inode, name } => state.remove_xattr(caller, inode, name),
            Request::ReadDirectory {
                inode,
                cookie,
                size,
                overhead_bytes,
                plus,
            } => state.list(&ListRequest {
                number: inode,
                cookie,
                size,
                overhead_bytes,
                plus,
            }),
            Request::Allocate {
                inode,
                offset,
                length,
                mode,
            } => {
                if length > self.available_bytes()? {
                    return Err(Errno(libc::ENOSPC));
                }
                state.allocate(caller, inode, offset, length, mode as i32)
            }
            Request::Seek {
                inode,
                offset,
                whence,
            } => state.seek(inode, offset, whence as i32),
            Request::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                length,
            } => state.copy_range(caller, (from, from_offset), (to, to_offset), length),
            Request::Read { .. }
            | Request::StatFilesystem
            | Request::Sync { .. }
            | Request::SyncDirectory { .. }
            | Request::SyncFilesystem => Err(Errno(libc::ENOSYS)),
        }
    }

    /// After a restart the kernel names inodes that this daemon hasn't loaded.
    fn find_inodes(
        &self,
        state: &mut State,
        request: &Request<'_>,
    ) -> std::result::Result<(), Errno> {
        if !state.is_resumed {
            return Ok(());
        }
        for number in numbers_of(request) {
            if number != 0 && !matches!(request, Request::Forget { .. }) {
                state.find_inode(number, &self.known)?;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        number: u64,
        offset: u64,
        size: u32,
        mode: Mode,
    ) -> std::result::Result<Response, Failure> {
        let mut state = self.state.lock();
        if state.is_resumed {
            state.find_inode(number, &self.known)?;
        }
        if mode == Mode::Inline && !state.is_quick_read(number, u64::from(size)) {
            return Err(Failure::WouldBlock);
        }
        let content = match &state.inode(number)?.kind {
            Kind::Regular(content) => content.clone(),
            Kind::Directory(_) => return Err(Failure::Errno(Errno(libc::EISDIR))),
            _ => return Err(Failure::Errno(Errno(libc::EINVAL))),
        };
        drop(state);
        let length = u64::from(size).min(content.size().saturating_sub(offset));
        let mut data = vec![0; length as usize];
        let frozen = Frozen {
            content,
            source: Arc::clone(&self.source),
        };
        let count = frozen.read(offset, &mut data).map_err(|error| {
            tracing::error!(number, offset, %error, "content can't be read");
            Errno(error.raw_os_error().unwrap_or(libc::EIO))
        })?;
        data.truncate(count);
        Ok(Response::Data(data))
    }

    /// Makes everything acknowledged so far durable [G-2].
    fn sync(&self) -> std::result::Result<(), Errno> {
        let wanted = self.state.lock().journal.appended_bytes();
        let mut synced = self.synced.lock();
        if *synced >= wanted {
            return Ok(());
        }
        let (segments, pool, appended) = {
            let state = self.state.lock();
            let (segments, pool) = state.journal.unsynced();
            (segments, pool, state.journal.appended_bytes())
        };
        let result = pool
            .sync_directory()
            .and_then(|()| segments.iter().try_for_each(|segment| segment.sync()));
        if let Err(error) = result {
            tracing::error!(%error, "the journal can't be synced");
            return Err(Errno(error.raw_os_error().unwrap_or(libc::EIO)));
        }
        self.state.lock().journal.mark_synced(&segments);
        *synced = appended;
        Ok(())
    }

    fn statistics(&self) -> std::result::Result<Response, Errno> {
        let found = nix::sys::statvfs::statvfs(&self.options.directory)
            .map_err(|errno| Errno(errno as i32))?;
        Ok(Response::StatFilesystem(FilesystemStatistics {
            blocks: found.blocks(),
            blocks_free: found.blocks_free(),
            blocks_available: found.blocks_available(),
            files: found.files(),
            files_free: found.files_free(),
            block_size: found.fragment_size() as u32,
            name_max_bytes: NAME_MAX_BYTES as u32,
        }))
    }

    fn available_bytes(&self) -> std::result::Result<u64, Errno> {
        let found = nix::sys::statvfs::statvfs(&self.options.directory)
            .map_err(|errno| Errno(errno as i32))?;
        Ok(found.blocks_available() * found.fragment_size())
    }

    /// Adds a kernel connection; returns its number for [`Filesystem::detach_session`].
    pub fn attach_session(&self, session: Arc<dyn KernelSession>) -> u64 {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        self.sessions
            .lock()
            .push((number, SessionReference(session)));
        number
    }

    /// Removes a kernel connection.
    pub fn detach_session(&self, number: u64) {
        self.sessions.lock().retain(|(found, _)| *found != number);
    }

    fn session_references(&self) -> Vec<Arc<dyn KernelSession>> {
        self.sessions
            .lock()
            .iter()
            .map(|(_, session)| Arc::clone(&session.0))
            .collect()
    }

    /// Makes the kernel hand over what it still holds, so that a cut has all that was written.
    fn flush_sessions(&self) {
        for session in self.session_references() {
            if let Err(error) = session.flush() {
                tracing::warn!(%error, "the kernel's cache could not be written back");
            }
        }
    }

    fn notify_sessions(&self, notifications: &[Notification]) {
        for session in self.session_references() {
            for notification in notifications {
                session.notify(notification.clone());
            }
        }
    }

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

    /// What is uncommitted, and sizes.
    pub fn status(&self) -> OverlayStatus {
        let state = self.state.lock();
        OverlayStatus {
            is_dirty: !state.changes.is_empty(),
            changed_inodes: state.changed_inode_count() as u64,
            journal_bytes: state.journal.bytes(),
            loaded_inodes: state.inodes.len() as u64,
            head: state.head,
        }
    }

    /// Refuses or allows changes from now on.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only
            .store(is_read_only || self.options.is_read_only, Ordering::Release);
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// Changes when commits are made by themselves.
    pub fn set_policy(&self, policy: CommitPolicy) {
        *self.policy.lock() = policy;
        self.changed.notify_all();
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
    fn run_policy(&self) {
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

/// Where the numbers of new inodes start in an overlay that never was mounted: from the clock, so
/// that forks of a workspace don't give the same numbers to different files.
fn first_inode_number() -> u64 {
    let seconds = workspace_store::object::Timestamp::now().seconds.max(0) as u64;
    (seconds << 18) & ((1 << 52) - 1)
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

/// The answer to a request that an earlier daemon carried out already.
fn answer_again(
    state: &mut State,
    request: &Request<'_>,
    number: u64,
) -> std::result::Result<Response, Errno> {
    match request {
        Request::MakeNode { .. }
        | Request::MakeDirectory { .. }
        | Request::SymbolicLink { .. }
        | Request::Link { .. }
        | Request::Create { .. }
        | Request::TemporaryFile { .. } => state.entry(number).map(Response::Entry),
        Request::SetAttributes { .. } => state.get_attributes(number),
        Request::Write { data, .. } => Ok(Response::Count(data.len() as u64)),
        Request::CopyRange { length, .. } => Ok(Response::Count(*length)),
        _ => Ok(Response::Empty),
    }
}

fn changes_something(request: &Request<'_>) -> bool {
    match request {
        Request::SetAttributes { .. }
        | Request::MakeNode { .. }
        | Request::MakeDirectory { .. }
        | Request::Unlink { .. }
        | Request::RemoveDirectory { .. }
        | Request::SymbolicLink { .. }
        | Request::Rename { .. }
        | Request::Link { .. }
        | Request::Write { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::Create { .. }
        | Request::TemporaryFile { .. }
        | Request::Allocate { .. }
        | Request::CopyRange { .. } => true,
        Request::Open { flags, .. } => *flags as i32 & libc::O_TRUNC != 0,
        _ => false,
    }
}

/// The inodes that a request names.
fn numbers_of(request: &Request<'_>) -> [u64; 2] {
    match *request {
        Request::Lookup { parent, .. }
        | Request::MakeNode { parent, .. }
        | Request::MakeDirectory { parent, .. }
        | Request::Unlink { parent, .. }
        | Request::RemoveDirectory { parent, .. }
        | Request::SymbolicLink { parent, .. }
        | Request::Create { parent, .. }
        | Request::TemporaryFile { parent, .. } => [parent, 0],
        Request::Rename {
            parent, new_parent, ..
        } => [parent, new_parent],
        Request::Link {
            inode, new_parent, ..
        } => [inode, new_parent],
        Request::CopyRange { from, to, .. } => [from, to],
        Request::Forget { inode, .. }
        | Request::GetAttributes { inode }
        | Request::SetAttributes { inode, .. }
        | Request::ReadLink { inode }
        | Request::Open { inode, .. }
        | Request::Release { inode }
        | Request::Read { inode, .. }
        | Request::Write { inode, .. }
        | Request::Sync { inode, .. }
        | Request::SyncDirectory { inode }
        | Request::SetXattr { inode, .. }
        | Request::GetXattr { inode, .. }
        | Request::ListXattr { inode, .. }
        | Request::RemoveXattr { inode, .. }
        | Request::ReadDirectory { inode, .. }
        | Request::Allocate { inode, .. }
        | Request::Seek { inode, .. } => [inode, 0],
        Request::StatFilesystem | Request::SyncFilesystem => [0, 0],
    }
}

/// Bytes of files without a name, for the segments that they keep.
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
        self.answered.clear();
    }

    /// Brings what a record names into the table.
    fn prepare_replay(
        &mut self,
        record: &Record<'_>,
        known: &KnownPlaces,
    ) -> std::result::Result<(), Errno> {
        let (numbers, directories): ([u64; 2], [u64; 2]) = match record {
            Record::Create(creation) => {
                let parent = creation.place.map_or(0, |(parent, _)| parent);
                ([0, 0], [parent, 0])
            }
            Record::Link { number, parent, .. } => ([*number, 0], [*parent, 0]),
            Record::Remove { parent, .. } => ([0, 0], [*parent, 0]),
            Record::Rename {
                parent, new_parent, ..
            } => ([0, 0], [*parent, *new_parent]),
            Record::Attributes(change) => ([change.number, 0], [0, 0]),
            Record::Xattr { number, .. }
            | Record::Write { number, .. }
            | Record::Spill { number, .. }
            | Record::Range { number, .. }
            | Record::Pieces { number, .. } => ([*number, 0], [0, 0]),
            Record::Clone { from, to, .. } => ([*from, *to], [0, 0]),
            Record::Recent(_) | Record::Known { .. } => ([0, 0], [0, 0]),
        };
        for number in numbers
            .into_iter()
            .chain(directories)
            .filter(|number| *number != 0)
        {
            self.find_inode(number, known)?;
        }
        for directory in directories.into_iter().filter(|number| *number != 0) {
            self.load_directory(directory)?;
        }
        Ok(())
    }
}
