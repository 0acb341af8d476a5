//! Holding programs up while a commit looks for a point in time.
//!
//! *Writers*: the kernel holds an inode's lock during setxattr(2), and write(2), truncate(2),
//! fallocate(2) and chmod(2) need it. So the helper process sets an attribute with a name that
//! only this session knows, and the answer is kept back; in the end it is an error, and nothing
//! has changed. An attempt that a former daemon left behind gets the error of any unknown
//! `system.` name.
//!
//! *Names*: requests that make, remove or rename files are put aside and done in the end.
//! The locks of directories are held meanwhile, so nothing here or in a flush may look a name up;
//! inodes are opened by their handle.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::decode::Header;
use super::dispatch::Server;
use super::flush::random_name;
use crate::fs::request::{Mode, Request};

/// Inodes held at a time: each takes a thread of the helper.
const INODES_MAX: usize = 256;
/// How long to wait until the kernel holds all of them. One that comes later is held all the same.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(200);

/// What a session holds up.
#[derive(Debug)]
pub(super) struct Holds {
    attribute: Vec<u8>,
    /// Anything is held: all that other requests look at.
    is_active: AtomicBool,
    held: Mutex<Held>,
    arrived: Condvar,
    server: OnceLock<Weak<Server>>,
}

#[derive(Debug, Default)]
struct Held {
    /// Inodes whose writers are to be held.
    inodes: usize,
    /// The kernel's numbers of the requests that hold them.
    requests: Vec<u64>,
    /// Requests put aside, if those for names are.
    names: Option<Vec<Box<[u8]>>>,
}

impl Holds {
    /// Nothing is held.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            attribute: random_name(b"system.kura-hold-")?,
            is_active: AtomicBool::new(false),
            held: Mutex::default(),
            arrived: Condvar::new(),
            server: OnceLock::new(),
        })
    }

    /// Who does the requests that were put aside.
    pub(super) fn serve_with(&self, server: &Arc<Server>) {
        self.server.get_or_init(|| Arc::downgrade(server));
    }

    /// Takes a request that has to wait; then it is not to be answered now.
    pub(super) fn take(
        &self,
        header: &Header,
        request: &Request<'_>,
        bytes: &[u8],
        mode: Mode,
    ) -> bool {
        if !self.is_active.load(Ordering::Acquire) {
            return false;
        }
        let mut held = self.held.lock();
        match request {
            Request::SetXattr { name, .. } if *name == self.attribute && held.inodes > 0 => {
                held.requests.push(header.unique);
                self.arrived.notify_all();
                true
            }
            Request::Create { .. }
            | Request::TemporaryFile { .. }
            | Request::MakeNode { .. }
            | Request::MakeDirectory { .. }
            | Request::SymbolicLink { .. }
            | Request::Link { .. }
            | Request::Unlink { .. }
            | Request::RemoveDirectory { .. }
            | Request::Rename { .. }
                if mode == Mode::Inline =>
            {
                let Some(names) = &mut held.names else {
                    return false;
                };
                names.push(bytes.into());
                true
            }
            _ => false,
        }
    }

    /// Holds the writers of some more inodes; `start` makes the helper's calls for the attribute
    /// and returns their number.
    pub(super) fn hold_writers(
        &self,
        inodes: &[u64],
        start: impl FnOnce(&[u8], &[u64]) -> io::Result<usize>,
    ) -> io::Result<()> {
        if inodes.is_empty() {
            return Ok(());
        }
        let wanted_before = {
            let mut held = self.held.lock();
            if held.inodes + inodes.len() > INODES_MAX {
                return Err(io::Error::other("too many files change at a time"));
            }
            let before = held.inodes;
            held.inodes += inodes.len();
            self.update(&held);
            before
        };
        let started = start(&self.attribute, inodes)?;
        let deadline = Instant::now() + ARRIVAL_TIMEOUT;
        let mut held = self.held.lock();
        // Inodes that the kernel has dropped meanwhile have no writers.
        held.inodes = wanted_before + started;
        while held.requests.len() < held.inodes {
            if self.arrived.wait_until(&mut held, deadline).timed_out() {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
        }
        Ok(())
    }

    pub(super) fn release_writers(&self) {
        let requests = {
            let mut held = self.held.lock();
            held.inodes = 0;
            self.update(&held);
            std::mem::take(&mut held.requests)
        };
        if let Some(server) = self.server.get().and_then(Weak::upgrade) {
            for unique in requests {
                server.refuse(unique, libc::EAGAIN);
            }
        }
    }

    pub(super) fn hold_names(&self) {
        let mut held = self.held.lock();
        held.names.get_or_insert_default();
        self.update(&held);
    }

    pub(super) fn release_names(&self) {
        let names = {
            let mut held = self.held.lock();
            let names = held.names.take();
            self.update(&held);
            names
        };
        if let Some(server) = self.server.get().and_then(Weak::upgrade) {
            for request in names.into_iter().flatten() {
                server.answer_late(&request);
            }
        }
    }

    fn update(&self, held: &Held) {
        let is_active = held.inodes > 0 || held.names.is_some();
        self.is_active.store(is_active, Ordering::Release);
    }
}
