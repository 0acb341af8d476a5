//! Joins the two halves: the filesystem as the transport's handler.

use std::sync::Arc;

use crate::fs::Filesystem;
use crate::fs::request::{Caller, Failure, KernelSession, Mode, Request, Response};
use crate::fuse::Handler;

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
