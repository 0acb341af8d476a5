//! The kernel's FUSE connection: mounts a [`Handler`] and serves the kernel's requests.
//!
//! This module knows the protocol of the kernel and nothing of the filesystem's semantics, which
//! it sees through [`crate::fs::request`]. One dispatch thread reads requests and answers them;
//! what has to wait for a disk goes to a small pool of workers; notifications have a thread of
//! their own, because the kernel may hold them up. A session can be taken over by another
//! process ([`Session::resume`]) if somebody kept the device ([`DeviceHolder`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::fs::request::{
    Caller, Changed, Failure, HeldAnswer, KernelSession, Mode, Notification, Request, Response,
};

mod counters;
pub mod decode;
mod dispatch;
pub mod encode;
mod events;
pub mod flush;
mod hold;
pub mod init;
mod late;
pub mod mount;
mod notify;
pub mod options;
mod placement;
pub mod protocol;
mod session;
pub mod uid_map;
mod workers;

pub use counters::RequestCount;
pub use flush::{FlushHelper, serve_flush_helper};
pub use mount::MountError;
pub use options::{ReadDirectoryPlus, SessionOptions, SessionState};
pub use session::{Environment, Session};

/// A filesystem, as the transport sees it. Called from several threads at a time.
pub trait Handler: Send + Sync {
    /// Does what the request asks.
    ///
    /// A `Lookup` of a name that does not exist is `ENOENT`; the transport makes a remembered
    /// "does not exist" of it. `Create` on a connection that keeps OPEN is an open too, and gets
    /// its `Release`.
    ///
    /// # Errors
    /// The error number of the answer, or [`Failure::WouldBlock`] to be called again by a worker
    /// (only in [`Mode::Inline`]). What is `changed` counts in any case.
    fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        changed: &mut Changed,
    ) -> Result<Response, Failure>;

    /// Tells the other sessions what a request of this one has changed; returns at once.
    fn tell_others(&self, changed: &[Notification], answer: &HeldAnswer) {
        let _ = (changed, answer);
    }

    /// Whether a kernel may know the inode: an answer named it, and it was not forgotten since.
    /// Where nobody can tell, it may.
    fn is_known(&self, inode: u64) -> bool {
        let _ = inode;
        true
    }

    /// A kernel connection shows the filesystem from now on; returns a number for
    /// [`Handler::detach`].
    fn attach(&self, session: Arc<dyn KernelSession>) -> u64;

    /// The connection is gone.
    fn detach(&self, id: u64);
}

/// Keeps devices of sessions beyond the life of this process.
pub trait DeviceHolder: Send + Sync {
    /// Keep (a duplicate of) this device and what belongs to it. Called before the mount exists,
    /// and again, with the result of INIT, before INIT is answered.
    ///
    /// # Errors
    /// The device cannot be kept; then the mount fails.
    fn hold(&self, id: &str, device: BorrowedFd<'_>, state: &SessionState) -> io::Result<()>;

    /// The session ended; the device is of no use any more.
    fn release(&self, id: &str);
}
