//! A mounted workspace: start, take over, flush, unmount.
//!
//! The dispatch thread owns the end of a session: it detaches the filesystem and releases the
//! device when the kernel closes the connection, whoever unmounted. Dropping a [`Session`]
//! leaves the mount alone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use parking_lot::{Condvar, Mutex};
use zerocopy::IntoBytes;

use super::counters::{Counters, RequestCount};
use super::dispatch::{self, Server};
use super::encode::Encoding;
use super::events::{self, ANNOUNCE_TIMEOUT, Echoes};
use super::flush::{self, Barriers, FlushHelper};
use super::hold::Holds;
use super::init::Negotiated;
use super::late::Gate;
use super::mount::{self, MountError};
use super::notify::Notifier;
use super::options::{SessionOptions, SessionState};
use super::protocol::{NOTIFY_RESEND, OutHeader};
use super::workers::Outstanding;
use super::{DeviceHolder, Handler};
use crate::fs::request::{Event, HeldAnswer, KernelSession, Notification, Watched};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// What a session works with.
#[derive(Clone)]
pub struct Environment {
    /// The filesystem.
    pub handler: Arc<dyn Handler>,
    /// Who keeps the device for the next process.
    pub holder: Option<Arc<dyn DeviceHolder>>,
    /// Starts the process that flushes; without, `sync -f` and `cat` do it.
    pub flush_helper: Option<Arc<FlushHelper>>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("has_holder", &self.holder.is_some())
            .field("flush_helper", &self.flush_helper)
            .finish_non_exhaustive()
    }
}

/// A kernel connection that is being served.
pub struct Session {
    connection: Arc<Connection>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.state())
            .field("has_ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

/// The part of a session that its threads and the filesystem share.
struct Connection {
    environment: Environment,
    state: Mutex<SessionState>,
    /// Gone with the threads that serve it.
    device: Weak<OwnedFd>,
    /// Device number of the mounted filesystem, for /sys.
    device_number: Mutex<Option<(u32, u32)>>,
    counters: Arc<Counters>,
    barriers: Arc<Barriers>,
    echoes: Arc<Echoes>,
    holds: Arc<Holds>,
    /// Taken away at the end, which ends its thread.
    notifier: Mutex<Option<Arc<Notifier>>>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl KernelSession for Connection {
    fn mountpoint(&self) -> PathBuf {
        Connection::mountpoint(self)
    }

    fn flush(&self) -> io::Result<()> {
        let barrier = self.barriers.open()?;
        let helper = self.environment.flush_helper.as_ref();
        let mountpoint = self.mountpoint();
        match helper {
            Some(helper) => helper.flush(&mountpoint, &barrier),
            None => flush::flush_with_commands(&mountpoint, barrier.name()),
        }
        .map_err(|error| {
            let mountpoint = mountpoint.display();
            io::Error::new(error.kind(), format!("flushing {mountpoint}: {error}"))
        })
    }

    fn hold_writers(&self, inodes: &[u64]) -> io::Result<()> {
        let helper = self.environment.flush_helper.as_ref();
        let helper = helper.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        self.holds.hold_writers(inodes, |attribute, inodes| {
            helper.hold(&self.mountpoint(), attribute, inodes)
        })
    }

    fn release_writers(&self) {
        self.holds.release_writers();
    }

    fn hold_names(&self) {
        self.holds.hold_names();
    }

    fn release_names(&self) {
        self.holds.release_names();
    }

    fn flush_file(&self, inode: u64) -> io::Result<()> {
        let barrier = self.barriers.open()?;
        let helper = self.environment.flush_helper.as_ref();
        let flushed = helper.map(|helper| helper.flush_file(&self.mountpoint(), &barrier, inode));
        match flushed {
            Some(Ok(())) => Ok(()),
            // This kernel doesn't know the file, perhaps because its principal may not.
            Some(Err(error)) if error.raw_os_error() == Some(libc::ESTALE) => Ok(()),
            // Files are opened by number by root only.
            _ => self.flush(),
        }
    }

    fn notify(&self, notification: Notification) {
        if let Some(notifier) = &*self.notifier.lock() {
            notifier.send(notification);
        }
    }

    fn tell(&self, changed: &[Notification], answer: &HeldAnswer) {
        if let Some(notifier) = &*self.notifier.lock() {
            notifier.tell(changed, answer);
        }
    }

    fn refresh_attributes(&self, inode: u64) {
        if let Some(notifier) = &*self.notifier.lock() {
            notifier.refresh_attributes(inode);
        }
    }

    fn watched(&self) -> Watched {
        let helper = self.environment.flush_helper.as_ref();
        // Where nothing can be changed, no call makes an event.
        let (Some(helper), false) = (helper, self.state.lock().options.read_only) else {
            return Watched::default();
        };
        let Some(device) = self.find_device_number() else {
            return Watched::default();
        };
        events::watched(helper, device).unwrap_or_else(|error| {
            let mountpoint = self.mountpoint();
            tracing::warn!(%error, ?mountpoint, "can't find out who watches the mount");
            Watched::default()
        })
    }

    fn announce(&self, events: &[Event]) {
        let Some(helper) = &self.environment.flush_helper else {
            return;
        };
        let deadline = Instant::now() + ANNOUNCE_TIMEOUT;
        let reached = self
            .notifier
            .lock()
            .as_ref()
            .map(|notifier| notifier.mark());
        let is_told = reached.is_some_and(|reached| {
            reached.recv_deadline(deadline) != Err(RecvTimeoutError::Timeout)
        });
        let result = if is_told {
            events::announce(&self.echoes, helper, &self.mountpoint(), events, deadline)
        } else {
            Err(io::ErrorKind::TimedOut.into())
        };
        if let Err(error) = result {
            let mountpoint = self.mountpoint();
            let count = events.len();
            tracing::warn!(%error, ?mountpoint, count, "some who watch the mount hear no event");
        }
    }
}

impl Connection {
    fn mountpoint(&self) -> PathBuf {
        self.state.lock().mountpoint.clone()
    }

    /// Unmounts one directory; says what to do if it is in use.
    fn take_away(&self, mountpoint: &Path, lazy: bool) -> io::Result<()> {
        let result = if self.state.lock().by_helper {
            mount::unmount_by_helper(mountpoint, lazy)
        } else if let Some(helper) = &self.environment.flush_helper {
            helper.unmount(mountpoint, lazy)
        } else {
            flush::unmount_here(mountpoint, lazy)
        };
        match result {
            // Somebody else has unmounted it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            Err(error) => {
                let mountpoint = mountpoint.display();
                let hint = if error.raw_os_error() == Some(libc::EBUSY) {
                    "; end the processes that use it (see `fuser -vm`), or unmount lazily"
                } else {
                    ""
                };
                Err(io::Error::new(
                    error.kind(),
                    format!("unmounting {mountpoint}: {error}{hint}"),
                ))
            }
            Ok(()) => Ok(()),
        }
    }

    fn wait_for_end(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut has_ended = self.has_ended.lock();
        while !*has_ended {
            if self.ended.wait_until(&mut has_ended, deadline).timed_out() {
                return *has_ended;
            }
        }
        true
    }

    fn find_device_number(&self) -> Option<(u32, u32)> {
        let mut number = self.device_number.lock();
        if number.is_none() {
            *number = mount::find_mount(&self.mountpoint())
                .ok()
                .flatten()
                .filter(|line| line.kind.starts_with("fuse"))
                .map(|line| line.device);
        }
        *number
    }
}

impl Session {
    /// Mounts the filesystem on a directory; returns when it can be used.
    ///
    /// # Errors
    /// See [`MountError`]; nothing is left mounted.
    pub fn mount(
        mountpoint: &Path,
        mut options: SessionOptions,
        environment: Environment,
    ) -> Result<Self, MountError> {
        let mountpoint = mount::check_mountpoint(mountpoint, &options)?;
        if options.id.is_empty() {
            options.id = mountpoint.to_string_lossy().into_owned();
        }
        let mut state = SessionState {
            mountpoint: mountpoint.clone(),
            options,
            negotiated: None,
            by_helper: false,
        };
        let device = attach_to_kernel(&mut state, &environment)?;
        let (session, ready) = Self::serve(device, state, environment, Echoes::default())?;
        let reason = match ready.recv_timeout(HANDSHAKE_TIMEOUT) {
            Ok(Ok(())) => None,
            Ok(Err(reason)) => Some(reason),
            Err(RecvTimeoutError::Timeout) => Some("the kernel sends no INIT".to_owned()),
            Err(RecvTimeoutError::Disconnected) => Some("the connection ended".to_owned()),
        };
        if let Some(reason) = reason {
            session.connection.find_device_number();
            if let Err(error) = session.unmount(true) {
                tracing::warn!(%error, "cleaning up after a failed mount");
            }
            return Err(MountError::Handshake { mountpoint, reason });
        }
        if let Some(number) = session.connection.find_device_number() {
            mount::tune_backing_device(number, session.state().options.max_write_bytes);
        }
        Ok(session)
    }

    /// Serves a connection that another process served before, and asks the kernel to send again
    /// what that one did not answer. The other process must be gone.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn resume(
        device: OwnedFd,
        state: SessionState,
        environment: Environment,
    ) -> Result<Self, MountError> {
        let resend = OutHeader {
            len: size_of::<OutHeader>() as u32,
            error: NOTIFY_RESEND,
            unique: 0,
        };
        let echoes = Echoes::of_resumed(&state.mountpoint);
        // Before the loop reads anything: what it reads must not be sent to it a second time.
        if let Err(errno) = nix::unistd::write(&device, resend.as_bytes()) {
            tracing::warn!(
                %errno,
                mountpoint = %state.mountpoint.display(),
                "the kernel does not send requests again; those that were under way hang until \
                 their callers are killed"
            );
        }
        let (session, _ready) = Self::serve(device, state, environment, echoes)?;
        session.connection.find_device_number();
        Ok(session)
    }

    fn serve(
        device: OwnedFd,
        state: SessionState,
        environment: Environment,
        echoes: Echoes,
    ) -> Result<(Self, crossbeam_channel::Receiver<Result<(), String>>), MountError> {
        let mountpoint = state.mountpoint.clone();
        let device = Arc::new(device);
        let counters = Arc::new(Counters::default());
        let barriers = Arc::new(Barriers::default());
        let echoes = Arc::new(echoes);
        let holds = Holds::new()
            .map(Arc::new)
            .map_err(MountError::io("reading random numbers for", &mountpoint))?;
        let gate = Gate::start().map_err(MountError::io("starting threads for", &mountpoint))?;
        let notifier = Notifier::start(device.clone(), counters.clone(), gate.clone())
            .map(Arc::new)
            .map_err(MountError::io("starting threads for", &mountpoint))?;
        let options = state.options.clone();
        let options_id = options.id.clone();
        let negotiated = OnceLock::new();
        if let Some(agreed) = state.negotiated {
            negotiated.get_or_init(|| agreed);
        }
        let connection = Arc::new(Connection {
            environment,
            state: Mutex::new(state),
            device: Arc::downgrade(&device),
            device_number: Mutex::new(None),
            counters: counters.clone(),
            barriers: barriers.clone(),
            echoes: echoes.clone(),
            holds: holds.clone(),
            notifier: Mutex::new(Some(notifier.clone())),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        let (ready_sender, ready) = bounded(2);
        let server = Arc::new(Server {
            device: device.clone(),
            handler: connection.environment.handler.clone(),
            encoding: Encoding {
                entry_timeout: Duration::from_millis(options.entry_timeout_milliseconds),
                attribute_timeout: Duration::from_millis(options.attribute_timeout_milliseconds),
                negative_timeout: Duration::from_millis(options.negative_timeout_milliseconds),
                uid_map: options.uid_map.clone(),
                gid_map: options.gid_map.clone(),
            },
            options,
            negotiated,
            counters,
            barriers,
            echoes,
            holds: holds.clone(),
            outstanding: Arc::new(Outstanding::default()),
            connection_tag: dispatch::connection_tag(&options_id),
            gate,
            notifier: Arc::downgrade(&notifier),
            on_init: {
                let connection = connection.clone();
                Box::new(move |agreed| connection.record(&device, agreed))
            },
            on_ready: Box::new(move |result| drop(ready_sender.try_send(result))),
        });
        drop(notifier);
        holds.serve_with(&server);
        let attachment = connection.environment.handler.attach(connection.clone());
        let ending = connection.clone();
        let started = thread::Builder::new()
            .name("kura-fuse".to_owned())
            .spawn(move || {
                if let Err(errno) = dispatch::run(&server) {
                    let mountpoint = ending.mountpoint();
                    tracing::error!(%errno, ?mountpoint, "reading requests failed");
                }
                drop(server);
                ending.end(attachment);
            });
        if let Err(error) = started {
            connection.environment.handler.detach(attachment);
            return Err(MountError::io("starting threads for", &mountpoint)(error));
        }
        Ok((Self { connection }, ready))
    }

    /// Everything that another process needs to take the session over.
    pub fn state(&self) -> SessionState {
        self.connection.state.lock().clone()
    }

    /// Where the filesystem is mounted; one of the places if there are several.
    pub fn mountpoint(&self) -> PathBuf {
        self.connection.mountpoint()
    }

    /// The device that requests are read from; `None` after the end.
    pub fn device(&self) -> Option<Arc<OwnedFd>> {
        self.connection.device.upgrade()
    }

    /// Shows the same mount in another directory as well (mount(2), MS_BIND): both share the
    /// kernel's cache, its locks and its events.
    ///
    /// # Errors
    /// See [`MountError`]; nothing is left mounted there.
    pub fn mount_also(
        &self,
        mountpoint: &Path,
        read_only: bool,
        repair: bool,
    ) -> Result<PathBuf, MountError> {
        let options = SessionOptions {
            repair,
            ..self.state().options
        };
        let mountpoint = mount::check_mountpoint(mountpoint, &options)?;
        mount::bind(&self.mountpoint(), &mountpoint, read_only)
            .map_err(MountError::io("mounting on", &mountpoint))?;
        Ok(mountpoint)
    }

    /// Takes the mount out of one of its directories; it goes on in `other`.
    ///
    /// # Errors
    /// It is in use there (`EBUSY`, not lazy).
    pub fn unmount_from(&self, mountpoint: &Path, other: &Path, lazy: bool) -> io::Result<()> {
        self.connection.state.lock().mountpoint = other.to_owned();
        self.connection.take_away(mountpoint, lazy)
    }

    /// The session as the filesystem sees it.
    pub fn kernel_session(&self) -> Arc<dyn KernelSession> {
        self.connection.clone()
    }

    /// How often each kind of request arrived, in the kernel's order, without zeros.
    pub fn request_counts(&self) -> Vec<RequestCount> {
        self.connection.counters.snapshot()
    }

    /// Waits until the kernel was told everything that was queued before; false if that takes
    /// longer. Not to be called by what serves requests: the kernel may wait for them.
    pub fn wait_for_notifications(&self, timeout: Duration) -> bool {
        let reached = match &*self.connection.notifier.lock() {
            Some(notifier) => notifier.mark(),
            None => return true,
        };
        reached.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
    }

    /// Whether the connection is gone.
    pub fn has_ended(&self) -> bool {
        *self.connection.has_ended.lock()
    }

    /// Waits until the connection is gone; false if that takes longer.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.connection.wait_for_end(timeout)
    }

    /// Unmounts and waits for the end of the connection; aborts it if that takes too long (some
    /// other mount namespace may still hold it). `lazy`: take it out of the tree even if it is
    /// in use.
    ///
    /// # Errors
    /// The mount is in use (`EBUSY`, not lazy), or the connection cannot be ended.
    pub fn unmount(&self, lazy: bool) -> io::Result<()> {
        let connection = &self.connection;
        if self.has_ended() {
            return Ok(());
        }
        // It can't be found any more afterwards.
        let device_number = connection.find_device_number();
        let mountpoint = connection.mountpoint();
        let timeout = connection.state.lock().options.unmount_timeout_milliseconds;
        let timeout = Duration::from_millis(timeout);
        connection.take_away(&mountpoint, lazy)?;
        if connection.wait_for_end(timeout) {
            return Ok(());
        }
        tracing::warn!(
            mountpoint = %mountpoint.display(),
            "the unmounted filesystem is still in use elsewhere; its connection is aborted"
        );
        let number = device_number.ok_or_else(|| io::Error::from_raw_os_error(libc::ETIMEDOUT))?;
        mount::abort_connection(number)?;
        if connection.wait_for_end(timeout) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
        }
    }
}

impl Connection {
    /// INIT was agreed on; it is answered when this returns.
    fn record(&self, device: &OwnedFd, agreed: &Negotiated) -> io::Result<()> {
        let state = {
            let mut state = self.state.lock();
            state.negotiated = Some(*agreed);
            state.clone()
        };
        match &self.environment.holder {
            Some(holder) => holder.hold(&state.options.id, device.as_fd(), &state),
            None => Ok(()),
        }
    }

    fn end(&self, attachment: u64) {
        *self.notifier.lock() = None;
        self.environment.handler.detach(attachment);
        if let Some(holder) = &self.environment.holder {
            let id = self.state.lock().options.id.clone();
            holder.release(&id);
        }
        *self.has_ended.lock() = true;
        self.ended.notify_all();
    }
}

/// Opens the device, gives it to the holder and mounts it.
fn attach_to_kernel(
    state: &mut SessionState,
    environment: &Environment,
) -> Result<OwnedFd, MountError> {
    let mountpoint = state.mountpoint.clone();
    let hold = |device: &OwnedFd, state: &SessionState| match &environment.holder {
        Some(holder) => holder
            .hold(&state.options.id, device.as_fd(), state)
            .map_err(MountError::io("handing over the device of", &mountpoint)),
        None => Ok(()),
    };
    let release = |state: &SessionState| {
        if let Some(holder) = &environment.holder {
            holder.release(&state.options.id);
        }
    };
    let not_permitted = match mount::open_device() {
        Ok(device) => {
            hold(&device, state)?;
            match mount::mount_directly(&device, &mountpoint, &state.options) {
                Ok(()) => return Ok(device),
                Err(error) => {
                    release(state);
                    if error.raw_os_error() != Some(libc::EPERM) {
                        return Err(MountError::io("mounting on", &mountpoint)(error));
                    }
                    error
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(MountError::NoDevice),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        Err(error) => {
            return Err(MountError::io("opening /dev/fuse to mount on", &mountpoint)(error));
        }
    };
    if state.options.allow_other && !mount::helper_permits_allow_other() {
        return Err(MountError::OthersNotPermitted(mountpoint));
    }
    match mount::mount_by_helper(&mountpoint, &state.options) {
        Ok(device) => {
            state.by_helper = true;
            hold(&device, state)?;
            Ok(device)
        }
        Err(error) => {
            let source = if error.kind() == io::ErrorKind::NotFound {
                not_permitted
            } else {
                error
            };
            Err(MountError::NotPermitted { mountpoint, source })
        }
    }
}
