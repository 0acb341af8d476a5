//! A session's own way into the filesystem: what it changes is told to the other sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::filesystem::Filesystem;
use super::request::{
    Caller, Changed, Failure, HeldAnswer, KernelSession, Mode, Notification, Request, Response,
};

/// The handler of one kernel connection.
#[derive(Debug)]
pub struct FilesystemSession {
    pub(super) filesystem: Arc<Filesystem>,
    /// Its number among the filesystem's sessions; 0 while it is none.
    pub(super) number: AtomicU64,
}

impl FilesystemSession {
    /// A session to be.
    pub fn new(filesystem: Arc<Filesystem>) -> Arc<Self> {
        Arc::new(Self {
            filesystem,
            number: AtomicU64::new(0),
        })
    }

    /// Answers a request of this session's kernel.
    ///
    /// # Errors
    /// As [`Filesystem::handle`].
    pub fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        changed: &mut Changed,
    ) -> Result<Response, Failure> {
        self.filesystem
            .handle_telling(caller, request, mode, changed)
    }

    /// Queues what this session has changed for the kernels of the others.
    pub fn tell_others(&self, changed: &[Notification], answer: &HeldAnswer) {
        let own = self.number.load(Ordering::Acquire);
        self.filesystem.tell_others(own, changed, answer);
    }

    /// The kernel connection is there.
    pub fn attach(&self, session: Arc<dyn KernelSession>) -> u64 {
        let number = self.filesystem.attach_session(session);
        self.number.store(number, Ordering::Release);
        number
    }

    /// The kernel connection is gone.
    pub fn detach(&self, number: u64) {
        self.filesystem.detach_session(number);
    }

    /// Whether the kernel may know an inode.
    pub fn is_known(&self, inode: u64) -> bool {
        self.filesystem.is_known(inode)
    }
}
