//! The keeper: a tiny process that holds every `/dev/fuse` descriptor, starts the worker and
//! starts it again when it dies, so that a crash of the worker is a pause for containers and not
//! an error [G-1].
//!
//! One thread, no runtime, one poll loop over the worker's socket and a signal descriptor.
//! Invariants: whatever a worker handed over is held until a worker releases it, however often
//! workers die; packets of a dead worker are read before its successor is started.

pub mod link;
pub mod message;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use serde_json::Value;

use message::{PROTOCOL_VERSION, ToKeeper, ToWorker, receive_message, send_message};

/// Variable by which a worker learns the number of the descriptor that leads to its keeper.
pub const SOCKET_VARIABLE: &str = "KURA_KEEPER_SOCKET";

/// A worker that lived shorter than this died early.
const EARLY_DEATH: Duration = Duration::from_secs(5);

/// Longest wait before a worker is started again.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How often it is checked whether a worker that has closed its socket is gone.
const END_CHECK: Duration = Duration::from_millis(20);

/// How long a worker may take to read what it is given.
const SEND_TIMEOUT_SECONDS: i64 = 10;

/// How workers are started.
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// Program.
    pub program: std::path::PathBuf,
    /// Arguments.
    pub arguments: Vec<std::ffi::OsString>,
    /// Descriptors that workers inherit under their own number (the lock of the store).
    pub inherited: Vec<RawFd>,
}

struct Held {
    state: Value,
    descriptor: OwnedFd,
}

struct Worker {
    child: Child,
    socket: OwnedFd,
    started: Instant,
    is_socket_open: bool,
}

/// State of the keeper.
struct Keeper {
    command: WorkerCommand,
    held: BTreeMap<u64, Held>,
    notes: serde_json::Map<String, Value>,
    restart_count: u32,
    early_deaths: u32,
    was_ever_ready: bool,
    is_stopping: bool,
}

/// Keeps workers running until one ends on purpose; returns the exit code to end with.
///
/// # Errors
/// Only what keeps the first worker from being started, or the loop from waiting.
pub fn keep(command: WorkerCommand) -> io::Result<i32> {
    // SAFETY: ignoring a signal installs no handler code.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn)? };
    let mut handled = SigSet::empty();
    for number in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        handled.add(number);
    }
    handled.thread_block()?;
    let signals = SignalFd::with_flags(&handled, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    Keeper {
        command,
        held: BTreeMap::new(),
        notes: serde_json::Map::new(),
        restart_count: 0,
        early_deaths: 0,
        was_ever_ready: false,
        is_stopping: false,
    }
    .run(&signals)
}

impl Keeper {
    fn run(&mut self, signals: &SignalFd) -> io::Result<i32> {
        let mut worker = Some(self.start()?);
        let mut start_at: Option<Instant> = None;
        loop {
            self.wait(signals, worker.as_ref(), start_at)?;
            if let Some(running) = &mut worker {
                self.read_messages(running);
            }
            while let Ok(Some(event)) = signals.read_signal() {
                let number = event.ssi_signo as i32;
                if number == libc::SIGCHLD {
                    continue;
                }
                match &worker {
                    Some(running) => {
                        let number = Signal::try_from(number).unwrap_or(Signal::SIGTERM);
                        let _ = kill(Pid::from_raw(running.child.id() as i32), number);
                    }
                    // Nobody is there to commit; journals keep what was written.
                    None => return Ok(0),
                }
            }
            if let Some(running) = &mut worker
                && let Some(status) = running.child.try_wait()?
            {
                self.read_messages(running);
                let lifetime = running.started.elapsed();
                worker = None;
                if let Some(code) = self.end_code(status) {
                    return Ok(code);
                }
                let delay = self.count_death(status, lifetime);
                start_at = Some(Instant::now() + delay);
            }
            if worker.is_none() && start_at.is_some_and(|at| at <= Instant::now()) {
                match self.start() {
                    Ok(started) => {
                        worker = Some(started);
                        start_at = None;
                    }
                    Err(error) => {
                        tracing::error!(%error, "start the worker");
                        start_at = Some(Instant::now() + MAX_BACKOFF);
                    }
                }
            }
        }
    }

    fn wait(
        &self,
        signals: &SignalFd,
        worker: Option<&Worker>,
        start_at: Option<Instant>,
    ) -> io::Result<()> {
        let mut polled = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if let Some(worker) = worker.filter(|worker| worker.is_socket_open) {
            polled.push(PollFd::new(worker.socket.as_fd(), PollFlags::POLLIN));
        }
        let is_ending = worker.is_some_and(|worker| !worker.is_socket_open);
        let at = start_at.or_else(|| is_ending.then(|| Instant::now() + END_CHECK));
        let timeout = at.map_or(PollTimeout::NONE, |at| {
            let wait = at.saturating_duration_since(Instant::now());
            // Rounded up, so that the loop doesn't spin in the last millisecond.
            PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn start(&self) -> io::Result<Worker> {
        let (own, other) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let timeout = TimeVal::new(SEND_TIMEOUT_SECONDS, 0);
        setsockopt(&own, sockopt::SendTimeout, &timeout)?;
        let other_number = other.as_raw_fd();
        let inherited = self.command.inherited.clone();
        let mut command = Command::new(&self.command.program);
        command
            .args(&self.command.arguments)
            .env(SOCKET_VARIABLE, other_number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: between fork and exec only async-signal-safe calls are made: sigprocmask and
        // fcntl; no allocation.
        unsafe {
            command.pre_exec(move || {
                SigSet::empty().thread_set_mask()?;
                keep_over_exec(other_number)?;
                for number in &inherited {
                    keep_over_exec(*number)?;
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        tracing::info!(pid = child.id(), held = self.held.len(), "worker started");
        Ok(Worker {
            child,
            socket: own,
            started: Instant::now(),
            is_socket_open: true,
        })
    }

    /// Reads everything that the worker has sent.
    fn read_messages(&mut self, worker: &mut Worker) {
        while worker.is_socket_open {
            match receive_message::<ToKeeper>(worker.socket.as_fd(), false) {
                Ok(Some((message, descriptor))) => self.obey(worker, message, descriptor),
                Ok(None) => worker.is_socket_open = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::error!(%error, "read from the worker");
                    if error.kind() != io::ErrorKind::InvalidData {
                        worker.is_socket_open = false;
                    }
                }
            }
        }
    }

    fn obey(&mut self, worker: &Worker, message: ToKeeper, descriptor: Option<OwnedFd>) {
        match message {
            ToKeeper::Hold { id, state } => match descriptor {
                Some(descriptor) => {
                    self.held.insert(id, Held { state, descriptor });
                }
                None => tracing::error!(id, "the worker sent no descriptor to hold"),
            },
            ToKeeper::Update { id, state } => {
                if let Some(held) = self.held.get_mut(&id) {
                    held.state = state;
                }
            }
            ToKeeper::Release { id } => {
                self.held.remove(&id);
            }
            ToKeeper::Note { key, value } => {
                match value {
                    Some(value) => self.notes.insert(key, value),
                    None => self.notes.remove(&key),
                };
            }
            ToKeeper::Take { version } => {
                if let Err(error) = self.give(worker, version) {
                    tracing::error!(%error, "hand the descriptors to the worker");
                }
            }
            ToKeeper::Ready => self.was_ever_ready = true,
            ToKeeper::Stopping => {
                self.is_stopping = true;
                self.held.clear();
            }
        }
    }

    fn give(&self, worker: &Worker, version: u32) -> io::Result<()> {
        // A worker of another version gets no descriptor that it might misunderstand.
        if version == PROTOCOL_VERSION {
            for (id, held) in &self.held {
                let message = ToWorker::Held {
                    id: *id,
                    state: held.state.clone(),
                };
                send_message(
                    worker.socket.as_fd(),
                    &message,
                    Some(held.descriptor.as_fd()),
                )?;
            }
        }
        let message = ToWorker::Taken {
            version: PROTOCOL_VERSION,
            keeper_pid: std::process::id(),
            restart_count: self.restart_count,
            notes: self.notes.clone(),
        };
        send_message(worker.socket.as_fd(), &message, None)
    }

    /// The code to end with after the worker's end; `None` to start another one.
    fn end_code(&self, status: ExitStatus) -> Option<i32> {
        if self.is_stopping {
            return Some(status.code().unwrap_or(0));
        }
        // A first worker that finds the store unusable says so; trying again doesn't help.
        match status.code() {
            Some(code) if !self.was_ever_ready && self.held.is_empty() => Some(code),
            _ => None,
        }
    }

    /// Notes that a worker died; how long to wait before the next one.
    fn count_death(&mut self, status: ExitStatus, lifetime: Duration) -> Duration {
        self.restart_count += 1;
        self.early_deaths = if lifetime < EARLY_DEATH {
            self.early_deaths + 1
        } else {
            0
        };
        // One early death may be bad luck: the second start is at once as well.
        let delay = match self.early_deaths {
            0..=2 => Duration::ZERO,
            deaths => (Duration::from_millis(100) * (1 << (deaths - 3).min(10))).min(MAX_BACKOFF),
        };
        tracing::warn!(
            code = status.code(),
            signal = status.signal(),
            held = self.held.len(),
            restarts = self.restart_count,
            delay_ms = delay.as_millis() as u64,
            "the worker died; starting it again"
        );
        delay
    }
}

/// Clears close-on-exec. Async-signal-safe.
fn keep_over_exec(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: fcntl on a number; no memory is touched.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
