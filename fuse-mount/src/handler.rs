//! Joins the two halves: the filesystem as the transport's handler.

use std::sync::Arc;

use crate::fs::Filesystem;
use crate::fs::request::{Caller, Failure, KernelSession, Mode, Request, Response};
use crate::fuse::Handler;

/// The filesystem as the mounts of one principal see it.
#[derive(Debug)]
pub struct SessionHandler {
    filesystem: Arc<Filesystem>,
    principal: u32,
}

impl SessionHandler {
    /// What is done through it is done by `principal`.
    pub fn new(filesystem: Arc<Filesystem>, principal: &str) -> Arc<Self> {
        let principal = filesystem.principal(principal);
        Arc::new(Self {
            filesystem,
            principal,
        })
    }
}

impl Handler for SessionHandler {
    fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
    ) -> Result<Response, Failure> {
        let caller = Caller {
            principal: self.principal,
            ..*caller
        };
        self.filesystem.handle(&caller, request, mode)
    }

    fn is_known(&self, inode: u64) -> bool {
        self.filesystem.is_known(inode)
    }

    fn attach(&self, session: Arc<dyn KernelSession>) -> u64 {
        self.filesystem.attach_session(session)
    }

    fn detach(&self, id: u64) {
        self.filesystem.detach_session(id);
    }
}

impl Handler for Filesystem {
    fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
    ) -> Result<Response, Failure> {
        Filesystem::handle(self, caller, request, mode)
    }

    fn is_known(&self, inode: u64) -> bool {
        Filesystem::is_known(self, inode)
    }

    fn attach(&self, session: Arc<dyn KernelSession>) -> u64 {
        self.attach_session(session)
    }

    fn detach(&self, id: u64) {
        self.detach_session(id);
    }
}
