//! Progress of long operations (import, export), and how a caller stops them.
//!
//! Threads: an operation may call its `Progress` from several threads.

use crate::error::{ErrorKind, Result, StoreError};

/// Is told how far an operation is; may stop it.
pub trait Progress: Send + Sync {
    /// One more entry is done; `bytes` of content belong to it.
    fn entry(&self, path: &[u8], bytes: u64);

    /// Whether to stop as soon as possible.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Shows nothing and never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn entry(&self, _path: &[u8], _bytes: u64) {}
}

/// `Busy` if the caller wants to stop.
pub(crate) fn check_cancelled(progress: &dyn Progress, what: &str) -> Result<()> {
    if progress.is_cancelled() {
        return Err(
            StoreError::new(ErrorKind::Busy, format!("{what} was cancelled"))
                .with_hint("start it again to do it from the beginning"),
        );
    }
    Ok(())
}
