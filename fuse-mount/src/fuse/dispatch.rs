//! The loop that reads requests and answers them.
//!
//! One thread reads; it answers what it can at once and hands the rest to [`Workers`]. Answers
//! are written by whoever has them. The thread ends when the kernel says that the connection is
//! gone.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use nix::errno::Errno as SystemErrno;
use nix::sys::uio::writev;

use super::Handler;
use super::counters::Counters;
use super::decode::{self, Header, InitRequest, Operation};
use super::encode::{Asked, Encoding, Reply};
use super::events::Echoes;
use super::flush::Barriers;
use super::hold::Holds;
use super::init::Negotiated;
use super::late::{Gate, LateAnswer};
use super::notify::Notifier;
use super::options::SessionOptions;
use super::placement::Placement;
use super::protocol::{HEADER_ROOM_BYTES, InitFlags, Opcode, UNIQUE_RESEND};
use super::uid_map::{Direction, translate_acl};
use super::workers::{Job, Outstanding, Workers};
use crate::fs::request::{Caller, Changed, Errno, Failure, HeldAnswer, Mode, Request, Response};

/// A write of so many bytes is handed to a worker: while that copies them to the disk, dispatch
/// copies the next ones from the kernel.
const LARGE_WRITE_BYTES: usize = 256 * 1024;

/// Told when INIT arrives: records what was agreed on.
pub(super) type OnInit = Box<dyn Fn(&Negotiated) -> std::io::Result<()> + Send + Sync>;

/// What all threads of a session need to answer requests.
pub(super) struct Server {
    pub(super) device: Arc<OwnedFd>,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) options: SessionOptions,
    pub(super) encoding: Encoding,
    pub(super) negotiated: OnceLock<Negotiated>,
    pub(super) counters: Arc<Counters>,
    pub(super) barriers: Arc<Barriers>,
    pub(super) echoes: Arc<Echoes>,
    pub(super) holds: Arc<Holds>,
    pub(super) outstanding: Arc<Outstanding>,
    /// Tells this connection's requests from those of others that have the same number.
    pub(super) connection_tag: u64,
    pub(super) gate: Arc<Gate>,
    pub(super) notifier: Weak<Notifier>,
    pub(super) on_init: OnInit,
    pub(super) on_ready: Box<dyn Fn(Result<(), String>) + Send + Sync>,
}

/// A tag in the upper bits of requests' numbers, which the kernel counts up from zero for each
/// connection: the journal of a filesystem with several sessions must tell them apart, also after
/// a restart. Follows from the session's name, which outlives restarts.
pub(super) fn connection_tag(id: &str) -> u64 {
    const TAG_SHIFT: u32 = 46;
    u64::from(crc32fast::hash(id.as_bytes()) & 0xffff) << TAG_SHIFT
}

/// What became of a request.
pub(super) enum Outcome {
    /// The reply is ready to be written.
    Answer,
    /// So is this one, for when the kernels of other sessions know what it did.
    Late(Arc<LateAnswer>),
    /// No reply is expected.
    Silent,
    /// A worker has to do it.
    HandOver,
}

/// Reads and answers until the connection ends.
///
/// # Errors
/// The device cannot be read any more, for another reason than the end of the connection.
pub(super) fn run(server: &Arc<Server>) -> Result<(), SystemErrno> {
    let buffer_bytes = server.options.max_write_bytes as usize + HEADER_ROOM_BYTES;
    let mut buffer = vec![0_u8; buffer_bytes].into_boxed_slice();
    let mut reply = Reply::default();
    let make_work = || {
        let server = server.clone();
        let mut reply = Reply::default();
        move |job: &Job| server.work(job, &mut reply)
    };
    let mut workers = Workers::start(
        server.options.worker_threads,
        buffer_bytes,
        server.outstanding.clone(),
        make_work,
    )
    .map_err(|error| SystemErrno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
    // Seeks wait for writes, and barriers, which wait for all jobs of the workers.
    let mut seekers = Workers::start(1, buffer_bytes, Arc::default(), make_work)
        .map_err(|error| SystemErrno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
    let mut placement = Placement::of_this_thread(server.device.clone());
    loop {
        let start = Instant::now();
        let length = match nix::unistd::read(&*server.device, &mut buffer) {
            Ok(length) => length,
            // ENOENT: the request went away while it was being read.
            Err(SystemErrno::EINTR | SystemErrno::ENOENT) => continue,
            Err(SystemErrno::EAGAIN) => {
                wait_until_readable(server.device.as_fd());
                continue;
            }
            Err(SystemErrno::ENODEV | SystemErrno::ECONNABORTED) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if let Ok((header, _)) = decode::decode_header(&buffer[..length]) {
            let is_waiting = header.opcode.is_some_and(Opcode::is_waited_for);
            placement.begin(header.pid, is_waiting, start.elapsed());
        }
        match server.process(&buffer[..length], Mode::Inline, &mut reply) {
            Outcome::Answer => server.write(&mut reply, &buffer[..length]),
            Outcome::Late(answer) => answer.give(reply.to_vec()),
            Outcome::Silent => {}
            Outcome::HandOver => {
                server.counters.handed_over.fetch_add(1, Ordering::Relaxed);
                let is_seek = decode::decode_header(&buffer[..length])
                    .is_ok_and(|(header, _)| header.opcode == Some(Opcode::Seek));
                let pool = if is_seek { &mut seekers } else { &mut workers };
                pool.hand_over(&mut buffer, length);
            }
        }
        placement.end();
    }
}

/// Somebody who shares the device may have made it non-blocking.
fn wait_until_readable(device: BorrowedFd<'_>) {
    let mut poll = libc::pollfd {
        fd: device.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid pollfd for the duration of the call.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
}

impl Server {
    fn work(&self, job: &Job, reply: &mut Reply) {
        let bytes = &job.bytes[..job.length];
        if let Ok((header, _)) = decode::decode_header(bytes)
            && self.barriers.is_barrier(header.node_id)
        {
            self.outstanding.wait_for_earlier(job.sequence());
        }
        match self.process(bytes, Mode::MayBlock, reply) {
            Outcome::Answer => self.write(reply, bytes),
            Outcome::Late(answer) => answer.give(reply.to_vec()),
            Outcome::Silent => {}
            Outcome::HandOver => {
                tracing::error!("the filesystem would block where it may");
                self.write_error(bytes, libc::EIO);
            }
        }
    }

    /// Does and answers a request that was put aside.
    pub(super) fn answer_late(&self, bytes: &[u8]) {
        let mut reply = Reply::default();
        match self.process(bytes, Mode::MayBlock, &mut reply) {
            Outcome::Answer => self.write(&mut reply, bytes),
            Outcome::Late(answer) => answer.give(reply.to_vec()),
            Outcome::Silent | Outcome::HandOver => {}
        }
    }

    /// Answers a request with an error.
    pub(super) fn refuse(&self, unique: u64, errno: i32) {
        refuse(&self.device, unique, errno);
    }

    /// Answers a request into `reply`.
    fn process(&self, bytes: &[u8], mode: Mode, reply: &mut Reply) -> Outcome {
        let (header, body) = match decode::decode_header(bytes) {
            Ok(parts) => parts,
            Err(error) => {
                tracing::error!(%error, "unreadable request");
                return Outcome::Silent;
            }
        };
        if mode == Mode::Inline {
            self.counters.count(header.opcode);
        }
        let extended_setxattr = self
            .negotiated
            .get()
            .is_none_or(|agreed| agreed.has(InitFlags::SETXATTR_EXT));
        let operation = match decode::decode(&header, body, extended_setxattr) {
            Ok(operation) => operation,
            Err(error) => {
                tracing::error!(%error, "malformed request");
                reply.encode_error(header.unique, Errno(libc::EIO));
                return Outcome::Answer;
            }
        };
        match operation {
            Operation::Filesystem(Request::Write { data, .. })
                if mode == Mode::Inline && data.len() >= LARGE_WRITE_BYTES =>
            {
                Outcome::HandOver
            }
            Operation::Filesystem(request) if self.holds.take(&header, &request, bytes, mode) => {
                Outcome::Silent
            }
            Operation::Filesystem(request) => self.filesystem(&header, request, mode, reply),
            Operation::ForgetMany(forgets) => {
                let caller = self.caller(&header);
                for request in forgets {
                    self.forget(&caller, &request);
                }
                Outcome::Silent
            }
            Operation::Init(offer) => {
                self.init(&header, &offer, reply);
                Outcome::Answer
            }
            Operation::Destroy | Operation::ReleaseDirectory => {
                reply.encode_error(header.unique, Errno(0));
                Outcome::Answer
            }
            // For INTERRUPT, ENOSYS also means: don't send it again. Requests that block do so
            // on a disk, and end.
            Operation::OpenDirectory | Operation::Interrupt | Operation::Unsupported => {
                reply.encode_error(header.unique, Errno(libc::ENOSYS));
                Outcome::Answer
            }
        }
    }

    fn init(&self, header: &Header, offer: &InitRequest, reply: &mut Reply) {
        let agreed = match self.negotiated.get() {
            // The daemon that agreed died before it could answer.
            Some(agreed) => Ok(*agreed),
            None => Negotiated::choose(offer, &self.options).map_err(|error| error.to_string()),
        };
        let result = agreed.and_then(|agreed| {
            (self.on_init)(&agreed).map_err(|error| format!("keeping the device: {error}"))?;
            Ok(agreed)
        });
        match result {
            Ok(agreed) => {
                // Already set to the same if the session was resumed.
                let agreed = self.negotiated.get_or_init(|| agreed);
                tracing::debug!(?agreed, offered = offer.flags, "INIT");
                reply.encode_struct(header.unique, &agreed.answer());
            }
            Err(error) => {
                tracing::error!(%error, "INIT failed");
                reply.encode_error(header.unique, Errno(libc::EPROTO));
                (self.on_ready)(Err(error));
            }
        }
    }

    fn caller(&self, header: &Header) -> Caller {
        Caller {
            uid: self.encoding.uid_map.to_store(header.uid),
            gid: self.encoding.gid_map.to_store(header.gid),
            is_root: header.uid == 0,
            principal: 0,
            pid: header.pid,
            unique: header.unique & !UNIQUE_RESEND | self.connection_tag,
            is_resent: header.is_resent(),
        }
    }

    pub(super) fn forget(&self, caller: &Caller, request: &Request<'_>) {
        if let Request::Forget { inode, .. } = request
            && self.barriers.is_barrier(*inode)
        {
            return;
        }
        if let Err(failure) = self.call(caller, request, Mode::MayBlock) {
            tracing::error!(?failure, ?request, "forgetting failed");
        }
    }

    /// Calls the filesystem with a request that changes nothing; a panic is an I/O error.
    pub(super) fn call(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
    ) -> Result<Response, Failure> {
        self.call_changing(caller, request, mode, &mut Changed::default())
    }

    fn call_changing(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        changed: &mut Changed,
    ) -> Result<Response, Failure> {
        let call = AssertUnwindSafe(|| self.handler.handle(caller, request, mode, changed));
        catch_unwind(call).unwrap_or_else(|_| {
            tracing::error!(
                ?caller,
                "the filesystem panicked; the request is answered EIO"
            );
            Err(Failure::Errno(Errno(libc::EIO)))
        })
    }

    /// Answers a request for the filesystem, and tells the other sessions what it changed.
    fn filesystem(
        &self,
        header: &Header,
        request: Request<'_>,
        mode: Mode,
        reply: &mut Reply,
    ) -> Outcome {
        let mut changed = Changed::default();
        let outcome = self.answer(header, request, mode, reply, &mut changed);
        if changed.is_empty() {
            return outcome;
        }
        let answer = self
            .gate
            .hold(&self.device, &self.notifier, header.unique, &mut changed);
        let held: HeldAnswer = answer.clone();
        self.handler.tell_others(&changed.others, &held);
        match outcome {
            Outcome::Answer => Outcome::Late(answer),
            other => other,
        }
    }

    fn answer(
        &self,
        header: &Header,
        request: Request<'_>,
        mode: Mode,
        reply: &mut Reply,
        changed: &mut Changed,
    ) -> Outcome {
        let caller = self.caller(header);
        if let Some(outcome) = self.answer_echo(header, &caller, &request, mode, reply) {
            return outcome;
        }
        let mut translated = Vec::new();
        let mut request = request;
        let answer_error = |reply: &mut Reply, errno: i32| {
            reply.encode_error(header.unique, Errno(errno));
            Outcome::Answer
        };
        let size = requested_size(&request);
        let (mut is_lookup, mut is_acl, mut is_direct) = (false, false, false);
        match &mut request {
            Request::Forget { .. } => {
                self.forget(&caller, &request);
                return Outcome::Silent;
            }
            Request::Open { .. } if !self.options.keep_open => {
                return answer_error(reply, libc::ENOSYS);
            }
            // Files created before the kernel knew that there is no OPEN are still released.
            Request::Release { .. } if !self.options.keep_open => {
                return answer_error(reply, 0);
            }
            Request::SetXattr { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::RemoveXattr { .. }
                if !self.options.xattrs =>
            {
                return answer_error(reply, libc::ENOSYS);
            }
            Request::Lookup { .. } => is_lookup = true,
            // With the writeback cache the kernel is the one who knows where the end is.
            Request::Write { appends, .. } => *appends &= !self.options.writeback_cache,
            Request::Open { flags, .. } | Request::Create { flags, .. } => {
                is_direct = self.is_direct(*flags);
            }
            Request::SetAttributes { changes, .. } => {
                let maps = &self.encoding;
                for (id, map) in [
                    (&mut changes.uid, &maps.uid_map),
                    (&mut changes.gid, &maps.gid_map),
                ] {
                    if let Some(host) = *id {
                        *id = map.find_store(host);
                        if id.is_none() {
                            return answer_error(reply, libc::EINVAL);
                        }
                    }
                }
            }
            Request::GetXattr { name, .. } => is_acl = self.translates_acl(name),
            Request::SetXattr { name, value, .. } if self.translates_acl(name) => {
                translated.extend_from_slice(value);
            }
            _ => {}
        }
        if let Request::SetXattr { value, .. } = &mut request
            && !translated.is_empty()
        {
            self.translate_acl(&mut translated, Direction::ToStore);
            *value = &translated;
        }
        let Some(opcode) = header.opcode else {
            return answer_error(reply, libc::ENOSYS);
        };

        let result = match self.barriers.answer(&request, mode) {
            Some(result) => result,
            None => self.call_changing(&caller, &request, mode, changed),
        };
        let response = match result {
            Ok(Response::Data(mut data)) if is_acl && size != 0 => {
                self.translate_acl(&mut data, Direction::ToHost);
                Response::Data(data)
            }
            Ok(response) => response,
            Err(Failure::WouldBlock) => return Outcome::HandOver,
            Err(Failure::Errno(Errno(libc::ENOENT)))
                if is_lookup && !self.encoding.negative_timeout.is_zero() =>
            {
                reply.encode_negative(header.unique, &self.encoding);
                return Outcome::Answer;
            }
            Err(Failure::Errno(errno)) => return answer_error(reply, errno.0),
        };
        let asked = Asked {
            opcode,
            unique: header.unique,
            size,
            is_direct,
        };
        let mut dropped = Vec::new();
        if let Err(error) = reply.encode(&asked, response, &self.encoding, &mut dropped) {
            tracing::error!(%error);
            return answer_error(reply, libc::EIO);
        }
        for entry in dropped {
            self.forget(
                &caller,
                &Request::Forget {
                    inode: entry.inode,
                    count: 1,
                },
            );
        }
        Outcome::Answer
    }

    /// Whether a file is opened past the kernel's cache: who appends to a file that others change
    /// as well would leave his bytes in the cache at the wrong place.
    fn is_direct(&self, flags: u32) -> bool {
        !self.options.writeback_cache && flags as i32 & libc::O_APPEND != 0
    }

    fn translates_acl(&self, name: &[u8]) -> bool {
        name.starts_with(b"system.posix_acl_")
            && !(self.encoding.uid_map.is_identity() && self.encoding.gid_map.is_identity())
    }

    fn translate_acl(&self, value: &mut [u8], direction: Direction) {
        let maps = &self.encoding;
        translate_acl(value, &maps.uid_map, &maps.gid_map, direction);
    }

    /// Writes the answer to a request.
    fn write(&self, reply: &mut Reply, request: &[u8]) {
        let Ok((header, _)) = decode::decode_header(request) else {
            return;
        };
        write_answer(&self.device, &reply.slices(), header.unique);
        if header.opcode == Some(Opcode::Init) {
            (self.on_ready)(Ok(()));
        }
    }

    fn write_error(&self, request: &[u8], errno: i32) {
        if let Ok((header, _)) = decode::decode_header(request) {
            self.refuse(header.unique, errno);
        }
    }
}

/// Writes an answer. One that the kernel refuses is answered EIO, so that nobody waits for ever.
pub(super) fn write_answer(device: &OwnedFd, slices: &[IoSlice<'_>], unique: u64) {
    loop {
        match writev(device, slices) {
            Ok(_) => return,
            Err(SystemErrno::EINTR | SystemErrno::EAGAIN) => {}
            // The caller was killed, or the connection is gone.
            Err(SystemErrno::ENOENT | SystemErrno::ENODEV | SystemErrno::ECONNABORTED) => return,
            Err(errno) => {
                tracing::error!(%errno, "the kernel refused an answer");
                return refuse(device, unique, libc::EIO);
            }
        }
    }
}

fn refuse(device: &OwnedFd, unique: u64, errno: i32) {
    let mut reply = Reply::default();
    reply.encode_error(unique, Errno(errno));
    if let Err(errno) = writev(device, &reply.slices()) {
        tracing::debug!(%errno, "the kernel refused an error");
    }
}

/// Room that the caller has for variable data.
fn requested_size(request: &Request<'_>) -> u32 {
    match request {
        Request::Read { size, .. }
        | Request::GetXattr { size, .. }
        | Request::ListXattr { size, .. }
        | Request::ReadDirectory { size, .. } => *size,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_two_connections_with_one_number_are_told_apart() {
        let tags = ["/mnt/a", "/mnt/b"].map(connection_tag);
        assert_ne!(tags[0], tags[1]);
        assert_eq!(tags[0], connection_tag("/mnt/a"));
        for tag in tags {
            // Above what the kernel counts to, below its bit for requests that are sent again.
            assert_eq!(tag & ((1 << 46) - 1), 0);
            assert_eq!(tag & UNIQUE_RESEND, 0);
        }
    }
}
