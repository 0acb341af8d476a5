//! Events of inotify and fanotify for what changed behind the kernel's back.
//!
//! The kernel makes events only from calls of programs, none from notifications. So a helper
//! process makes the calls that a program would have made (`helper`), and the session answers them
//! without changing anything: *echoes* of what has happened already.
//!
//! The session knows the helper by a name that exists only for this announcement: the helper looks
//! it up first, and the process id of that request is the helper's. It thereby also knows that it
//! is in this mount and not in what somebody mounted over it. What such a process asks is never
//! carried out: it is an echo that was expected, or refused. That holds until the helper has said
//! that it is done, or is dead; also for a helper that a killed daemon left behind, whose requests
//! the kernel sends to the next one.
//!
//! Locking: `expected` is held for moments, and no other lock is taken meanwhile.

mod helper;

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;

use super::decode::Header;
use super::dispatch::{Outcome, Server};
use super::encode::{Asked, Encoding, Reply};
use super::flush::{self, FlushHelper, HelperProcess};
use super::protocol::ROOT_ID;
use crate::fs::request::{
    Caller, Entry, Errno, Event, Failure, FileAttributes, Happening, Mode, Request, Response,
    Watched,
};
pub(super) use helper::serve;

/// Longest time that a switch waits for the events of one step.
pub(super) const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(2);
const SCAN_TIMEOUT: Duration = Duration::from_secs(1);
const HELLO_PREFIX: &[u8] = b".kura-events-";
/// One of the numbers that no inode of the filesystem has.
const HELLO_INODE: u64 = u64::MAX >> 1;

/// A process whose requests are not carried out.
#[derive(Debug)]
struct Helper {
    /// As the kernel's requests name it.
    pid: u32,
    process: OwnedFd,
}

impl Helper {
    fn find(pid: u32) -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let process = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
        Ok(Self { pid, process })
    }

    fn is_alive(&self) -> bool {
        !is_ready(self.process.as_fd(), Duration::ZERO)
    }
}

#[derive(Debug, Default)]
struct Expected {
    /// By directory and name.
    names: HashMap<(u64, Box<[u8]>), Happening>,
    /// The inodes that lose names, with their types.
    removed: HashMap<u64, u32>,
    attributes: HashSet<u64>,
    /// The name that the helper looks up in the root, and the helper's process id.
    hello: Option<(Vec<u8>, u32)>,
    is_announcing: bool,
    helpers: Vec<Helper>,
}

/// The echoes that a session expects.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// Whether anything is in `expected`; requests look no further if not.
    is_active: AtomicBool,
    expected: Mutex<Expected>,
}

/// How a request is to be answered.
enum Verdict {
    Hello,
    /// As if there were no echoes.
    Usual,
    Refuse(i32),
    Removed {
        child: u64,
        file_type: u32,
        replaced_by: Option<u64>,
    },
    Created {
        child: u64,
    },
    Attributes,
    /// The kernel writes back the change time of an inode that has just lost a name.
    /// `is_echo`: certainly of one that the switch took away.
    LastTimes {
        file_type: u32,
        is_echo: bool,
    },
}

impl Echoes {
    /// Those of a session that was served before, perhaps by a daemon that died in an
    /// announcement.
    pub(super) fn of_resumed(mountpoint: &Path) -> Self {
        let echoes = Self::default();
        let helpers: Vec<Helper> = helper::find_processes(mountpoint)
            .into_iter()
            .filter_map(|pid| Helper::find(pid).ok())
            .collect();
        let is_active = !helpers.is_empty();
        echoes.expected.lock().helpers = helpers;
        echoes.is_active.store(is_active, Ordering::Release);
        echoes
    }

    fn expect(&self, events: &[Event]) {
        let mut expected = self.expected.lock();
        expected.is_announcing = true;
        for event in events {
            match event.happening {
                Happening::Attributes { .. } => {
                    expected.attributes.insert(event.parent);
                }
                happening => {
                    if let Happening::Removed {
                        child, file_type, ..
                    } = happening
                    {
                        expected.removed.insert(child, file_type);
                    }
                    let place = (event.parent, event.name.clone());
                    expected.names.insert(place, happening);
                }
            }
        }
        self.is_active.store(true, Ordering::Release);
    }

    /// `is_done`: the helper waits for its next work; else it may be in the middle of a call.
    fn finish(&self, is_done: bool) {
        let mut expected = self.expected.lock();
        let helpers = std::mem::take(&mut expected.helpers);
        *expected = Expected::default();
        if !is_done {
            expected.helpers = helpers;
        }
        self.is_active
            .store(!expected.helpers.is_empty(), Ordering::Release);
    }

    fn judge(&self, pid: u32, request: &Request<'_>) -> Verdict {
        let mut expected = self.expected.lock();
        if let Request::Lookup { parent, name } = request
            && *parent == ROOT_ID
            && let Some((hello, helper)) = &expected.hello
            && hello == name
        {
            // Another number: the mount counts processes in another pid namespace.
            let found = (*helper == pid).then(|| Helper::find(pid).ok()).flatten();
            expected.hello = None;
            return match found {
                Some(helper) => {
                    expected.helpers.push(helper);
                    Verdict::Hello
                }
                None => Verdict::Refuse(libc::ENOENT),
            };
        }
        expected.helpers.retain(Helper::is_alive);
        if !expected.helpers.iter().any(|helper| helper.pid == pid) {
            if expected.helpers.is_empty() && !expected.is_announcing {
                self.is_active.store(false, Ordering::Release);
            }
            return Verdict::Usual;
        }
        let (parent, name, is_change) = match request {
            Request::Lookup { parent, name } => (*parent, *name, false),
            Request::Unlink { parent, name }
            | Request::RemoveDirectory { parent, name }
            | Request::MakeNode { parent, name, .. }
            | Request::MakeDirectory { parent, name, .. }
            | Request::SymbolicLink { parent, name, .. } => (*parent, *name, true),
            Request::SetAttributes { inode, changes } if changes.mode.is_some() => {
                return if expected.attributes.contains(inode) {
                    Verdict::Attributes
                } else {
                    Verdict::Refuse(libc::EPERM)
                };
            }
            Request::SetAttributes { inode, .. } => {
                return match expected.removed.get(inode) {
                    Some(file_type) => Verdict::LastTimes {
                        file_type: *file_type,
                        is_echo: true,
                    },
                    None if expected.is_announcing => Verdict::Usual,
                    // Only regular files have times in the kernel.
                    None => Verdict::LastTimes {
                        file_type: libc::S_IFREG,
                        is_echo: false,
                    },
                };
            }
            _ => return Verdict::Usual,
        };
        let is_removal = matches!(
            request,
            Request::Unlink { .. } | Request::RemoveDirectory { .. }
        );
        match expected.names.get(&(parent, name.into())) {
            Some(Happening::Removed {
                child,
                file_type,
                replaced_by,
            }) if is_removal || !is_change => Verdict::Removed {
                child: *child,
                file_type: *file_type,
                replaced_by: *replaced_by,
            },
            Some(Happening::Created { child, .. }) if !is_removal => {
                Verdict::Created { child: *child }
            }
            _ if is_change => Verdict::Refuse(libc::EPERM),
            _ => Verdict::Usual,
        }
    }
}

impl Server {
    /// Answers a request if it is an echo, or of a process that may make nothing else. Others cost
    /// one look at a flag.
    pub(super) fn answer_echo(
        &self,
        header: &Header,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        reply: &mut Reply,
    ) -> Option<Outcome> {
        if !self.echoes.is_active.load(Ordering::Acquire) {
            return None;
        }
        let result = match self.echoes.judge(header.pid, request) {
            Verdict::Usual => return None,
            Verdict::Refuse(errno) => Err(Failure::Errno(Errno(errno))),
            Verdict::Hello => Ok(Response::Entry(Entry {
                inode: HELLO_INODE,
                generation: 0,
                attributes: flush::attributes(HELLO_INODE),
            })),
            Verdict::Removed {
                child,
                file_type,
                replaced_by,
            } => match request {
                Request::Lookup { .. } => self.look_up_removed(caller, child, file_type, mode),
                _ => self.remove_again(caller, request, replaced_by, mode),
            },
            Verdict::Created { child } => self.create_again(caller, request, child, mode),
            Verdict::Attributes => {
                let inode = header.node_id;
                self.call(caller, &Request::GetAttributes { inode }, mode)
            }
            Verdict::LastTimes { file_type, is_echo } => {
                let inode = header.node_id;
                let look = Request::GetAttributes { inode };
                let request = if is_echo { &look } else { request };
                match self.call(caller, request, mode) {
                    // The kernel would keep an error for the next syncfs.
                    Err(Failure::Errno(_)) => {
                        Ok(Response::Attributes(attributes_of_gone(inode, file_type)))
                    }
                    result => result,
                }
            }
        };
        let response = match result {
            Ok(response) => response,
            Err(Failure::WouldBlock) => return Some(Outcome::HandOver),
            Err(Failure::Errno(errno)) => {
                reply.encode_error(header.unique, errno);
                return Some(Outcome::Answer);
            }
        };
        let mut encoding = self.encoding.clone();
        if let Request::Lookup { .. } = request {
            // What is shown here is not so: nobody else may believe it.
            encoding = Encoding {
                entry_timeout: Duration::ZERO,
                ..encoding
            };
        }
        let asked = Asked {
            opcode: header.opcode?,
            unique: header.unique,
            size: 0,
            is_direct: false,
        };
        if let Err(error) = reply.encode(&asked, response, &encoding, &mut Vec::new()) {
            tracing::error!(%error);
            reply.encode_error(header.unique, Errno(libc::EIO));
        }
        Some(Outcome::Answer)
    }

    /// The inode that a name stood for: the one that the kernel may still have at this name.
    fn look_up_removed(
        &self,
        caller: &Caller,
        child: u64,
        file_type: u32,
        mode: Mode,
    ) -> Result<Response, Failure> {
        let request = Request::Lookup {
            parent: child,
            name: b".",
        };
        match self.call(caller, &request, mode) {
            // The kernel has forgotten it, and so did the filesystem. Numbers are not used again.
            Err(Failure::Errno(_)) => Ok(Response::Entry(Entry {
                inode: child,
                generation: 0,
                attributes: attributes_of_gone(child, file_type),
            })),
            result => result,
        }
    }

    /// Lets the kernel take a name away if what it has there is certainly the old inode: there is
    /// no new one, or it is one that no kernel has heard of. Meanwhile the kernel holds the
    /// directory's lock for the helper, so no name comes or goes in this mount.
    fn remove_again(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        replaced_by: Option<u64>,
        mode: Mode,
    ) -> Result<Response, Failure> {
        let (Request::Unlink { parent, name } | Request::RemoveDirectory { parent, name }) =
            *request
        else {
            return Err(Failure::Errno(Errno(libc::EPERM)));
        };
        let unknown = replaced_by.filter(|number| !self.handler.is_known(*number));
        match self.call(caller, &Request::Lookup { parent, name }, mode) {
            Err(Failure::Errno(Errno(libc::ENOENT | libc::ESTALE | libc::ENOTDIR))) => {
                Ok(Response::Empty)
            }
            Ok(Response::Entry(entry)) => {
                self.take_back(caller, &entry);
                if Some(entry.inode) == unknown {
                    Ok(Response::Empty)
                } else {
                    Err(Failure::Errno(Errno(libc::EBUSY)))
                }
            }
            Ok(_) => Err(Failure::Errno(Errno(libc::EIO))),
            Err(failure) => Err(failure),
        }
    }

    /// Lets the kernel make a name that is there. It is shown as missing until then.
    fn create_again(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        child: u64,
        mode: Mode,
    ) -> Result<Response, Failure> {
        let (parent, name, file_type) = match *request {
            Request::Lookup { parent, name } => (parent, name, None),
            Request::MakeNode {
                parent, name, mode, ..
            } => (parent, name, Some(mode & libc::S_IFMT)),
            Request::MakeDirectory { parent, name, .. } => (parent, name, Some(libc::S_IFDIR)),
            Request::SymbolicLink { parent, name, .. } => (parent, name, Some(libc::S_IFLNK)),
            _ => return Err(Failure::Errno(Errno(libc::EPERM))),
        };
        let response = self.call(caller, &Request::Lookup { parent, name }, mode)?;
        let Response::Entry(entry) = &response else {
            return Err(Failure::Errno(Errno(libc::EIO)));
        };
        let is_expected = entry.inode == child;
        let found = entry.attributes.mode & libc::S_IFMT;
        let errno = match file_type {
            None if is_expected => libc::ENOENT,
            // Somebody has put something else there; the helper gets to see it.
            None => return Ok(response),
            Some(wanted) if is_expected && wanted == found => return Ok(response),
            Some(_) => libc::EEXIST,
        };
        self.take_back(caller, entry);
        Err(Failure::Errno(Errno(errno)))
    }

    /// The kernel is not told of this entry.
    fn take_back(&self, caller: &Caller, entry: &Entry) {
        let request = Request::Forget {
            inode: entry.inode,
            count: 1,
        };
        self.forget(caller, &request);
    }
}

/// Attributes of an inode that the filesystem does not have any more.
fn attributes_of_gone(inode: u64, file_type: u32) -> FileAttributes {
    FileAttributes {
        inode,
        mode: file_type | 0o755,
        link_count: 1,
        ..FileAttributes::default()
    }
}

/// Has events made and waits for them, at most until `deadline`.
///
/// # Errors
/// No helper can be started, or it is not done in time. Some events are missing then.
pub(super) fn announce(
    echoes: &Echoes,
    helper: &FlushHelper,
    mountpoint: &Path,
    events: &[Event],
    deadline: Instant,
) -> io::Result<()> {
    let mut process = helper.take_event_process()?;
    echoes.expect(events);
    let result = helper::batches(events).try_for_each(|batch| {
        let hello = flush::random_name(HELLO_PREFIX)?;
        let message = helper::announcement(&hello, &batch);
        echoes.expected.lock().hello = Some((hello, process.pid()));
        ask(
            &mut process,
            helper::ANNOUNCE,
            mountpoint,
            &message,
            deadline,
        )
        .map(drop)
    });
    if result.is_ok() {
        helper.keep_event_process(process);
    } else {
        // Kills it; until it is dead its requests are refused.
        drop(process);
    }
    echoes.finish(result.is_ok());
    result
}

/// What is watched in the filesystem with this device number.
///
/// # Errors
/// No helper can be started, or it is not done in time.
pub(super) fn watched(helper: &FlushHelper, device: (u32, u32)) -> io::Result<Watched> {
    let mut process = helper.take_event_process()?;
    let message = helper::scan_request(device);
    let deadline = Instant::now() + SCAN_TIMEOUT;
    let answer = ask(
        &mut process,
        helper::SCAN,
        Path::new(""),
        &message,
        deadline,
    )?;
    let (watched, is_stuck) = helper::scan_result(&answer)?;
    if !is_stuck {
        helper.keep_event_process(process);
    }
    Ok(watched)
}

/// Asks a helper process; after an error it is of no use any more.
fn ask(
    process: &mut HelperProcess,
    operation: u8,
    mountpoint: &Path,
    message: &[u8],
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    process.send(operation, mountpoint, &[b"", message])?;
    let mut head = [0_u8; 8];
    read_until(process, &mut head, deadline)?;
    let [a, b, c, d, e, f, g, h] = head;
    match i32::from_le_bytes([a, b, c, d]) {
        0 => {}
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    let mut answer = vec![0; u32::from_le_bytes([e, f, g, h]) as usize];
    read_until(process, &mut answer, deadline)?;
    Ok(answer)
}

fn read_until(process: &mut HelperProcess, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if !is_ready(process.answers().as_fd(), left) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match process.answers().read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

/// Whether a descriptor becomes readable within this time.
fn is_ready(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
        match poll(&mut descriptors, timeout) {
            Ok(count) => return count > 0,
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return true,
        }
    }
}
