//! Joins the two halves: a filesystem's session as the transport's handler.

use std::sync::Arc;

use crate::fs::FilesystemSession;
use crate::fs::request::{
    Caller, Changed, Failure, HeldAnswer, KernelSession, Mode, Notification, Request, Response,
};
use crate::fuse::Handler;

impl Handler for FilesystemSession {
    fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        changed: &mut Changed,
    ) -> Result<Response, Failure> {
        FilesystemSession::handle(self, caller, request, mode, changed)
    }

    fn tell_others(&self, changed: &[Notification], answer: &HeldAnswer) {
        FilesystemSession::tell_others(self, changed, answer);
    }

    fn is_known(&self, inode: u64) -> bool {
        FilesystemSession::is_known(self, inode)
    }

    fn attach(&self, session: Arc<dyn KernelSession>) -> u64 {
        FilesystemSession::attach(self, session)
    }

    fn detach(&self, id: u64) {
        FilesystemSession::detach(self, id);
    }
}
