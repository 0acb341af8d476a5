//! Writing back everything that the kernel holds of a mount.
//!
//! `syncfs` is called by a helper process that holds no `/dev/fuse` descriptor: a daemon that
//! waits in the kernel for an answer of its own cannot exit when it is killed.
//!
//! Not every kernel's `syncfs` waits for the answers to the writes it starts on FUSE, so a
//! *barrier* follows: a file that exists only for this flush, under a random name. Reading it
//! makes a background request, which the kernel queues behind the writes; the session answers it
//! when all requests before it are done.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::mount::{MntFlags, umount2};
use parking_lot::Mutex;

use super::events;
use super::protocol::ROOT_ID;
use crate::fs::request::{Entry, Errno, Failure, FileAttributes, Mode, Request, Response};

const BARRIER_PREFIX: &[u8] = b".kura-flush-";
/// Inode numbers from here on are barriers; no filesystem gets that far.
const FIRST_BARRIER_INODE: u64 = 1 << 62;
const BARRIER_BYTES: u64 = 4096;
/// For a thread that makes one system call.
const HOLD_STACK_BYTES: usize = 64 * 1024;

/// The barriers of a session.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    by_name: Mutex<HashMap<Vec<u8>, u64>>,
    next: AtomicU64,
}

impl Barriers {
    /// Makes a barrier; it exists until the guard is dropped.
    pub(super) fn open(&self) -> io::Result<BarrierGuard<'_>> {
        let name = random_name(BARRIER_PREFIX)?;
        let inode = FIRST_BARRIER_INODE + self.next.fetch_add(1, Ordering::Relaxed);
        self.by_name.lock().insert(name.clone(), inode);
        Ok(BarrierGuard {
            barriers: self,
            name,
            inode,
        })
    }

    pub(super) fn is_barrier(&self, inode: u64) -> bool {
        inode >= FIRST_BARRIER_INODE
    }

    /// The answer to a request for a barrier; `None` for any other.
    pub(super) fn answer(
        &self,
        request: &Request<'_>,
        mode: Mode,
    ) -> Option<Result<Response, Failure>> {
        let errno = |errno: i32| Err(Failure::Errno(Errno(errno)));
        let inode = match request {
            Request::Lookup { parent, name }
                if *parent == ROOT_ID && name.starts_with(BARRIER_PREFIX) =>
            {
                let inode = *self.by_name.lock().get(*name)?;
                return Some(Ok(entry(inode)));
            }
            // Opened by its handle.
            Request::Lookup { parent, name: b"." } if self.is_barrier(*parent) => {
                return Some(Ok(entry(*parent)));
            }
            Request::GetAttributes { inode }
            | Request::Read { inode, .. }
            | Request::Open { inode, .. }
            | Request::Release { inode }
            | Request::GetXattr { inode, .. }
            | Request::ListXattr { inode, .. }
            | Request::SetAttributes { inode, .. }
            | Request::Write { inode, .. }
            | Request::SetXattr { inode, .. } => *inode,
            _ => return None,
        };
        if !self.is_barrier(inode) {
            return None;
        }
        Some(match request {
            Request::GetAttributes { .. } => Ok(Response::Attributes(attributes(inode))),
            Request::Open { .. } | Request::Release { .. } => Ok(Response::Empty),
            // The worker that answers has waited for all jobs before.
            Request::Read { .. } if mode == Mode::Inline => Err(Failure::WouldBlock),
            Request::Read { size, .. } => Ok(Response::Data(vec![
                0;
                (*size as usize)
                    .min(BARRIER_BYTES as usize)
            ])),
            Request::GetXattr { .. } => errno(libc::ENODATA),
            _ => errno(libc::EACCES),
        })
    }
}

/// A name that nobody can guess.
pub(super) fn random_name(prefix: &[u8]) -> io::Result<Vec<u8>> {
    let mut random = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let mut name = prefix.to_vec();
    for byte in random {
        write!(name, "{byte:02x}")?;
    }
    Ok(name)
}

fn entry(inode: u64) -> Response {
    Response::Entry(Entry {
        inode,
        generation: 0,
        attributes: attributes(inode),
    })
}

/// Attributes of a file that only the session has.
pub(super) fn attributes(inode: u64) -> FileAttributes {
    FileAttributes {
        inode,
        size: BARRIER_BYTES,
        mode: libc::S_IFREG | 0o444,
        link_count: 1,
        ..FileAttributes::default()
    }
}

/// Ends the life of a barrier.
pub(super) struct BarrierGuard<'a> {
    barriers: &'a Barriers,
    name: Vec<u8>,
    inode: u64,
}

impl BarrierGuard<'_> {
    /// Name of the file in the root directory.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its inode number.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }
}

impl Drop for BarrierGuard<'_> {
    fn drop(&mut self) {
        self.barriers.by_name.lock().remove(&self.name);
    }
}

const FLUSH: u8 = b'F';
const FLUSH_FILE: u8 = b'f';
const UNMOUNT: u8 = b'U';
const UNMOUNT_LAZILY: u8 = b'L';
const HOLD: u8 = b'H';
/// Longest path or name in a message.
const FIELD_LIMIT_BYTES: u32 = 64 * 1024;

/// Starts helper processes and talks to them. One process serves one flush at a time; several
/// flushes at a time get several processes, which are kept.
#[derive(Debug)]
pub struct FlushHelper {
    program: OsString,
    arguments: Vec<OsString>,
    idle: Mutex<Vec<HelperProcess>>,
    /// Those for events: what they ask a mount is not carried out, so nobody else uses them.
    idle_for_events: Mutex<Vec<HelperProcess>>,
}

#[derive(Debug)]
pub(super) struct HelperProcess {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // A helper that waits for a dead mount cannot be waited for.
        drop(self.child.kill());
        drop(self.child.try_wait());
    }
}

impl FlushHelper {
    /// A helper that is started as `program arguments…`; it has to call
    /// [`serve_flush_helper`].
    pub fn new(program: impl Into<OsString>, arguments: Vec<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments,
            idle: Mutex::default(),
            idle_for_events: Mutex::default(),
        }
    }

    fn spawn(&self) -> io::Result<HelperProcess> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let program = self.program.to_string_lossy();
                io::Error::new(
                    error.kind(),
                    format!("starting the flush helper `{program}`: {error}"),
                )
            })?;
        let requests = child.stdin.take().expect("stdin is a pipe");
        let answers = child.stdout.take().expect("stdout is a pipe");
        Ok(HelperProcess {
            child,
            requests,
            answers,
        })
    }

    fn ask(&self, operation: u8, mountpoint: &Path, parameters: &[&[u8]; 2]) -> io::Result<usize> {
        let idle = self.idle.lock().pop();
        if let Some(mut process) = idle
            && let Ok(answer) = process.ask(operation, mountpoint, parameters)
        {
            self.idle.lock().push(process);
            return answer;
        }
        // None idle, or it died meanwhile.
        let mut process = self.spawn()?;
        let answer = process
            .ask(operation, mountpoint, parameters)
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("the flush helper gave no answer: {error}"),
                )
            })?;
        self.idle.lock().push(process);
        answer
    }

    /// A process for `events`, and for nothing else from then on.
    pub(super) fn take_event_process(&self) -> io::Result<HelperProcess> {
        while let Some(mut process) = self.idle_for_events.lock().pop() {
            if matches!(process.child.try_wait(), Ok(None)) {
                return Ok(process);
            }
        }
        self.spawn()
    }

    /// The process waits for its next task.
    pub(super) fn keep_event_process(&self, process: HelperProcess) {
        self.idle_for_events.lock().push(process);
    }

    /// Writes back what the kernel holds of the mount, then reads the barrier.
    pub(super) fn flush(&self, mountpoint: &Path, barrier: &BarrierGuard<'_>) -> io::Result<()> {
        let parameters = [&barrier.inode().to_le_bytes()[..], barrier.name()];
        self.ask(FLUSH, mountpoint, &parameters).map(drop)
    }

    /// Starts to set an attribute of these inodes, and returns how many of them there are still.
    pub(super) fn hold(
        &self,
        mountpoint: &Path,
        attribute: &[u8],
        inodes: &[u64],
    ) -> io::Result<usize> {
        let inodes: Vec<u8> = inodes
            .iter()
            .flat_map(|inode| inode.to_le_bytes())
            .collect();
        self.ask(HOLD, mountpoint, &[&inodes, attribute])
    }

    /// Writes back what the kernel holds of one file, then reads the barrier.
    pub(super) fn flush_file(
        &self,
        mountpoint: &Path,
        barrier: &BarrierGuard<'_>,
        inode: u64,
    ) -> io::Result<()> {
        let inodes = [barrier.inode().to_le_bytes(), inode.to_le_bytes()].concat();
        self.ask(FLUSH_FILE, mountpoint, &[&inodes, barrier.name()])
            .map(drop)
    }

    /// Unmounts, in the helper for the same reason as above.
    pub(super) fn unmount(&self, mountpoint: &Path, lazy: bool) -> io::Result<()> {
        let operation = if lazy { UNMOUNT_LAZILY } else { UNMOUNT };
        self.ask(operation, mountpoint, &[b"", b""]).map(drop)
    }
}

impl HelperProcess {
    /// Sends a message; its fields are at most [`FIELD_LIMIT_BYTES`] long.
    pub(super) fn send(
        &mut self,
        operation: u8,
        mountpoint: &Path,
        parameters: &[&[u8]; 2],
    ) -> io::Result<()> {
        let mut message = vec![operation];
        for field in [
            mountpoint.as_os_str().as_bytes(),
            parameters[0],
            parameters[1],
        ] {
            message.extend((field.len() as u32).to_le_bytes());
            message.extend(field);
        }
        self.requests.write_all(&message)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn answers(&mut self) -> &mut ChildStdout {
        &mut self.answers
    }

    /// The outer error means that the helper is of no use any more.
    fn ask(
        &mut self,
        operation: u8,
        mountpoint: &Path,
        parameters: &[&[u8]; 2],
    ) -> io::Result<io::Result<usize>> {
        self.send(operation, mountpoint, parameters)?;
        let mut answer = [0_u8; 4];
        self.answers.read_exact(&mut answer)?;
        let answer = i32::from_le_bytes(answer);
        Ok(usize::try_from(answer).map_err(|_| io::Error::from_raw_os_error(-answer)))
    }
}

/// The helper process: answers requests of a [`FlushHelper`] until its standard input ends.
/// Closes every descriptor but 0 to 2 first, so that it cannot keep a device open.
///
/// # Errors
/// The pipe to the daemon broke in the middle of a message.
pub fn serve_flush_helper(mut requests: impl Read, mut answers: impl Write) -> io::Result<()> {
    // SAFETY: closes descriptors that nothing in this process uses: it is the first thing that
    // a helper process does.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    // Not to be in anybody's way.
    std::env::set_current_dir("/")?;
    let mut operation = [0_u8; 1];
    loop {
        if requests.read(&mut operation)? == 0 {
            return Ok(());
        }
        let mountpoint = read_field(&mut requests)?;
        let inodes = read_field(&mut requests)?;
        let inodes: Vec<u64> = inodes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        let name = read_field(&mut requests)?;
        let mountpoint = Path::new(OsStr::from_bytes(&mountpoint));
        if let Some(answer) = events::serve(operation[0], mountpoint, &name) {
            answers.write_all(&answer)?;
            answers.flush()?;
            continue;
        }
        let result = match operation[0] {
            FLUSH | FLUSH_FILE => flush_here(mountpoint, &inodes, &name).map(|()| 0),
            HOLD => hold_here(mountpoint, &inodes, &name),
            UNMOUNT => unmount_here(mountpoint, false).map(|()| 0),
            UNMOUNT_LAZILY => unmount_here(mountpoint, true).map(|()| 0),
            _ => Err(io::Error::from_raw_os_error(libc::EBADMSG)),
        };
        let answer = match result {
            Ok(count) => count as i32,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        answers.write_all(&answer.to_le_bytes())?;
        answers.flush()?;
    }
}

fn read_field(requests: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0_u8; 4];
    requests.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > FIELD_LIMIT_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    let mut field = vec![0; length as usize];
    requests.read_exact(&mut field)?;
    Ok(field)
}

/// `inodes`: the barrier, then the file to write back; without one it is everything.
fn flush_here(mountpoint: &Path, inodes: &[u64], name: &[u8]) -> io::Result<()> {
    let root = File::open(mountpoint)?;
    match inodes.get(1) {
        Some(inode) => sync_file(&root, *inode)?,
        // SAFETY: the descriptor is open.
        None => drop(nix::errno::Errno::result(unsafe {
            libc::syncfs(root.as_raw_fd())
        })?),
    }
    // By its handle if that is allowed: the root directory may be locked by a request that waits.
    let by_handle = inodes
        .first()
        .map(|inode| open_by_handle(&root, *inode, libc::O_RDONLY));
    let mut barrier = match by_handle {
        Some(Ok(barrier)) => barrier,
        _ => {
            // Relative to the directory that was synced, whatever is mounted there by now.
            let name = CString::new(name)?;
            let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC;
            let mode = nix::sys::stat::Mode::empty();
            nix::fcntl::openat(&root, name.as_c_str(), flags, mode)?.into()
        }
    };
    barrier.read_exact(&mut [0_u8; 1])
}

/// Writes back the pages of one file. Not by fsync, whose lock the caller of lseek holds.
fn sync_file(root: &File, inode: u64) -> io::Result<()> {
    let file = open_by_handle(root, inode, libc::O_RDONLY | libc::O_NONBLOCK)?;
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open.
    nix::errno::Errno::result(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) })?;
    Ok(())
}

/// A thread for each inode begins to set the attribute, and ends when the daemon answers.
fn hold_here(mountpoint: &Path, inodes: &[u64], attribute: &[u8]) -> io::Result<usize> {
    let root = File::open(mountpoint)?;
    let attribute = CString::new(attribute)?;
    let mut count = 0;
    for inode in inodes {
        let file = match open_by_handle(&root, *inode, libc::O_PATH) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => continue,
            Err(error) => return Err(error),
        };
        let attribute = attribute.clone();
        std::thread::Builder::new()
            .stack_size(HOLD_STACK_BYTES)
            .spawn(move || {
                let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
                // SAFETY: both strings end with NUL; the value is empty.
                unsafe {
                    libc::setxattr(
                        path.as_ptr().cast(),
                        attribute.as_ptr(),
                        std::ptr::null(),
                        0,
                        0,
                    )
                };
            })?;
        count += 1;
    }
    Ok(count)
}

/// Opens an inode of the mount by the handle that the kernel's FUSE makes of its number and
/// generation (`fuse_encode_fh`), which takes no directory's lock.
fn open_by_handle(root: &File, inode: u64, flags: libc::c_int) -> io::Result<File> {
    #[repr(C)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        inode_high: u32,
        inode_low: u32,
        generation: u32,
    }
    let mut handle = Handle {
        bytes: 12,
        kind: 0x81,
        inode_high: (inode >> 32) as u32,
        inode_low: inode as u32,
        generation: 0,
    };
    // SAFETY: `handle` has the layout of file_handle with 12 bytes behind its head.
    let descriptor = unsafe {
        libc::open_by_handle_at(
            root.as_raw_fd(),
            (&raw mut handle).cast(),
            flags | libc::O_CLOEXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Unmounts in the calling process.
///
/// # Errors
/// Those of umount2(2).
pub(super) fn unmount_here(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, lazy);
    umount2(mountpoint, flags).map_err(io::Error::from)
}

/// Flushes without a helper of ours: `sync -f` and `cat`, which hold no device either.
pub(super) fn flush_with_commands(mountpoint: &Path, barrier: &[u8]) -> io::Result<()> {
    let barrier = mountpoint.join(OsStr::from_bytes(barrier));
    for (program, arguments) in [
        ("sync", vec![OsStr::new("-f"), mountpoint.as_os_str()]),
        ("cat", vec![barrier.as_os_str()]),
    ] {
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("starting {program}: {error}"))
            })?;
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "flushing {}: {program} failed: {}",
                mountpoint.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
    }
    Ok(())
}
