//! The filesystem of one branch: its state, and what works on it: requests, commits, the policy.
//!
//! Threads: any number of sessions call [`Filesystem::handle`]; one thread of its own makes commits
//! by the policy; commits and switches exclude each other (`commit_lock`). Lock order:
//! `commit_lock`, `synced`, `state`, `sessions`. No lock is held while the kernel is
//! asked to write its cache back.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use workspace_store::background::Background;
use workspace_store::id::CommitId;
use workspace_store::object::Root;
use workspace_store::source::WorkspaceSource;

use super::actors::{Threads, Who};
use super::attribution::announces_write;
use super::content::Frozen;
use super::data::{ListRequest, WriteRequest};
use super::inode::{Inode, Kind};
use super::load::KnownPlaces;
use super::names::{NAME_MAX_BYTES, NewInode};
use super::request::{
    Caller, Changed, Errno, Failure, FilesystemStatistics, HeldAnswer, KernelSession, Mode,
    Notification, Request, Response,
};
use super::state::State;
use super::view::View;
use crate::process::Processes;

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
    /// Finds out who changes something.
    pub processes: Arc<Processes>,
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

/// Result of a switch.
#[derive(Debug, Clone)]
pub struct SwitchOutcome {
    /// The version that was switched from, with everything that was written until then.
    pub before: CommitId,
    /// Its tree.
    pub before_root: Root,
    /// `before`, if it had to be made.
    pub rescue: Option<CommitId>,
    /// The new version; `None` if nothing differed.
    pub commit: Option<CommitId>,
    /// The tree now.
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
    pub(super) options: FilesystemOptions,
    pub(super) source: Arc<dyn WorkspaceSource>,
    pub(super) state: Mutex<State>,
    /// Wakes the policy's thread.
    pub(super) changed: Condvar,
    pub(super) known: KnownPlaces,
    /// Who sends requests.
    pub(super) threads: Threads,
    pub(super) sessions: Mutex<Vec<Attached>>,
    pub(super) next_session: AtomicU64,
    pub(super) commit_lock: Mutex<()>,
    /// What automatic commits run in.
    pub(super) background: Arc<Background>,
    /// Bytes of the journal that are on the disk.
    pub(super) synced: Mutex<u64>,
    pub(super) is_read_only: AtomicBool,
    pub(super) is_closing: AtomicBool,
    pub(super) policy: Mutex<CommitPolicy>,
    pub(super) policy_thread: Mutex<Option<JoinHandle<()>>>,
}

/// A kernel connection and what its principal may see, if that is limited.
pub(super) type Seer = (Arc<dyn KernelSession>, Option<Arc<View>>);

/// A kernel connection.
pub(super) struct Attached {
    number: u64,
    kernel: Arc<dyn KernelSession>,
    view: Option<Arc<View>>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attached")
    }
}

impl Filesystem {
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
        self.handle_in(None, caller, request, mode, &mut Changed::default())
    }

    /// As [`Filesystem::handle`], as far as a view allows; says what kernels must forget.
    pub(super) fn handle_in(
        &self,
        view: Option<&View>,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        changed: &mut Changed,
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
            Request::Seek { inode, .. } => {
                if mode == Mode::Inline {
                    return Err(Failure::WouldBlock);
                }
                // The kernel asks for holes without telling what it holds itself.
                for session in self.session_references() {
                    session.flush_file(*inode).map_err(|error| {
                        tracing::warn!(inode, %error, "a file could not be written back");
                        Errno(libc::EIO)
                    })?;
                }
            }
            Request::StatFilesystem => {
                return self.statistics().map_err(Failure::Errno);
            }
            Request::Read {
                inode,
                offset,
                size,
            } => {
                let asked = ReadRequest {
                    number: *inode,
                    offset: *offset,
                    size: *size,
                };
                return self.read(view, caller, &asked, mode);
            }
            _ => {}
        }
        if changes_something(request) && self.is_read_only.load(Ordering::Acquire) {
            return Err(Failure::Errno(Errno(libc::EROFS)));
        }
        let who =
            (changes_something(request) || announces_write(request)).then(|| self.author(caller));
        let mut state = self.state.lock();
        if let Some(who) = &who {
            state.begin(who, request);
        }
        let was_clean = state.first_change.is_none();
        let mode = |state: &State| Some(state.inodes.get(&written_by(request)?)?.mode);
        let mode_before = mode(&state);
        let end = written_by(request).and_then(|number| state.size_of(number));
        let result = self.answer(&mut state, view, caller, request, changed);
        changed.others = state.take_told();
        changed.own.extend(misplaced(request, end));
        if state.awaits_sessions {
            state.outdated.extend(changed.others.iter().cloned());
        }
        let has_new_mode = mode(&state) != mode_before;
        let is_dirty_now = was_clean && state.first_change.is_some();
        drop(state);
        if is_dirty_now {
            self.changed.notify_all();
        }
        if has_new_mode && let Some(inode) = written_by(request) {
            // Set-id bits went; the answer doesn't say so.
            for session in self.session_references() {
                session.refresh_attributes(inode);
            }
        }
        result.map_err(Failure::Errno)
    }

    /// Who asks. May wait a moment for that.
    fn author(&self, caller: &Caller) -> Arc<Who> {
        if caller.pid == 0 {
            return Who::nobody();
        }
        self.threads.find(caller.principal, caller.pid)
    }

    /// The number by which requests name a principal ([`Caller::principal`]).
    pub fn principal(&self, name: &str) -> u32 {
        self.threads.principal(name)
    }

    fn answer(
        &self,
        state: &mut State,
        view: Option<&View>,
        caller: &Caller,
        request: &Request<'_>,
        changed: &mut Changed,
    ) -> std::result::Result<Response, Errno> {
        self.find_inodes(state, request)?;
        let Some(view) = view.filter(|view| !view.is_unrestricted()) else {
            return self.carry_out(state, None, caller, request);
        };
        // What an earlier daemon did was allowed then, and may look impossible now.
        if !(caller.is_resent && state.answered.contains_key(&caller.unique)) {
            view.check(state, caller, request, changed)?;
        }
        let mut response = self.carry_out(state, Some(view), caller, request)?;
        view.cover_response(state, request, &mut response);
        Ok(response)
    }

    fn carry_out(
        &self,
        state: &mut State,
        view: Option<&View>,
        caller: &Caller,
        request: &Request<'_>,
    ) -> std::result::Result<Response, Errno> {
        if caller.is_resent
            && let Some(number) = state.answered.get(&caller.unique).copied()
        {
            state.note_told_again(request);
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
                appends,
            } => state.write(
                caller,
                &WriteRequest {
                    number: inode,
                    offset,
                    data,
                    kill_suid_gid,
                    from_cache,
                    appends,
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
            } => {
                let asked = ListRequest {
                    number: inode,
                    cookie,
                    size,
                    overhead_bytes,
                    plus,
                };
                state.list(&asked, view)
            }
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
        view: Option<&View>,
        caller: &Caller,
        asked: &ReadRequest,
        mode: Mode,
    ) -> std::result::Result<Response, Failure> {
        let ReadRequest {
            number,
            offset,
            size,
        } = *asked;
        let mut state = self.state.lock();
        if state.is_resumed {
            state.find_inode(number, &self.known)?;
        }
        if let Some(view) = view {
            let request = Request::Read {
                inode: number,
                offset,
                size,
            };
            view.check(&mut state, caller, &request, &mut Changed::default())?;
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
        let unsynced = self.state.lock().journal.unsynced();
        if let Err(error) = unsynced.sync() {
            tracing::error!(%error, "the journal can't be synced");
            return Err(Errno(error.raw_os_error().unwrap_or(libc::EIO)));
        }
        self.state.lock().journal.mark_synced(&unsynced);
        *synced = unsynced.appended_bytes;
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
        self.attach(session, None)
    }

    pub(super) fn attach(&self, session: Arc<dyn KernelSession>, view: Option<Arc<View>>) -> u64 {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        for notification in &state.outdated {
            session.notify(notification.clone());
        }
        let mut sessions = self.sessions.lock();
        sessions.push(Attached {
            number,
            kernel: session,
            view,
        });
        state.session_count = sessions.len();
        state.told = (sessions.len() > 1 || state.awaits_sessions).then(Vec::new);
        number
    }

    /// All kernel connections of an earlier daemon are attached again, or gone.
    pub fn sessions_are_back(&self) {
        let mut state = self.state.lock();
        state.awaits_sessions = false;
        state.outdated = Vec::new();
        if state.session_count < 2 {
            state.told = None;
        }
    }

    /// Removes a kernel connection.
    pub fn detach_session(&self, number: u64) {
        let mut state = self.state.lock();
        let mut sessions = self.sessions.lock();
        sessions.retain(|attached| attached.number != number);
        state.session_count = sessions.len();
        if sessions.len() < 2 && !state.awaits_sessions {
            state.told = None;
        }
    }

    pub(super) fn session_references(&self) -> Vec<Arc<dyn KernelSession>> {
        self.sessions
            .lock()
            .iter()
            .map(|attached| Arc::clone(&attached.kernel))
            .collect()
    }

    /// Where it is mounted, if that is one place.
    pub(super) fn only_mountpoint(&self) -> Option<String> {
        let sessions = self.session_references();
        let [only] = &sessions[..] else { return None };
        Some(only.mountpoint().to_string_lossy().into_owned())
    }

    /// One of the connections.
    pub(super) fn kernel_session(&self, number: u64) -> Option<Arc<dyn KernelSession>> {
        let sessions = self.sessions.lock();
        let found = sessions.iter().find(|attached| attached.number == number)?;
        Some(Arc::clone(&found.kernel))
    }

    /// The connections with their views.
    pub(super) fn session_views(&self) -> Vec<Seer> {
        self.sessions
            .lock()
            .iter()
            .map(|attached| (Arc::clone(&attached.kernel), attached.view.clone()))
            .collect()
    }

    /// Queues what a session has changed for the kernels of the others.
    pub(super) fn tell_others(&self, own: u64, changed: &[Notification], answer: &HeldAnswer) {
        let sessions: Vec<Arc<dyn KernelSession>> = self
            .sessions
            .lock()
            .iter()
            .filter(|attached| attached.number != own)
            .map(|attached| Arc::clone(&attached.kernel))
            .collect();
        for session in sessions {
            session.tell(changed, answer);
        }
    }

    pub(super) fn notify_sessions(&self, notifications: &[Notification]) {
        for session in self.session_references() {
            for notification in notifications {
                session.notify(notification.clone());
            }
        }
    }

    /// Whether the kernel may know an inode.
    pub fn is_known(&self, inode: u64) -> bool {
        let state = self.state.lock();
        state.inodes.get(&inode).is_some_and(Inode::is_used)
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
}

/// A part of a file.
struct ReadRequest {
    number: u64,
    offset: u64,
    size: u32,
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
        Request::CopyRange {
            from,
            from_offset,
            length,
            ..
        } => state
            .copied_bytes(*from, *from_offset, *length)
            .map(Response::Count),
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

/// The inode whose content a request changes.
fn written_by(request: &Request<'_>) -> Option<u64> {
    match *request {
        Request::Write { inode, .. }
        | Request::Allocate { inode, .. }
        | Request::CopyRange { to: inode, .. } => Some(inode),
        _ => None,
    }
}

/// What the kernel that asked has in its cache at a wrong place: it believed the end of the file to
/// be elsewhere than at `end`.
fn misplaced(request: &Request<'_>, end: Option<u64>) -> Option<Notification> {
    match *request {
        Request::Write {
            inode,
            offset,
            appends: true,
            ..
        } if end.is_some_and(|end| end != offset) => Some(Notification::Inode {
            inode,
            offset: offset.min(end?) as i64,
            length: 0,
        }),
        _ => None,
    }
}

/// The inodes that a request names.
pub(super) fn numbers_of(request: &Request<'_>) -> [u64; 2] {
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
