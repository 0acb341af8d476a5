//! Read connections, opened when needed and kept for the next reader.
//!
//! Threads: a connection is used by one thread at a time; the lock is held only to take one out
//! and to put it back.

use std::path::PathBuf;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::connection;
use crate::error::{ErrorKind, Result, StoreError};
use crate::limits::READ_CONNECTIONS_KEPT;

/// The pool; `None` once it is closed.
#[derive(Debug)]
pub(crate) struct ReaderPool {
    path: PathBuf,
    idle: Mutex<Option<Vec<Connection>>>,
}

impl ReaderPool {
    /// A pool over the database at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
        }
    }

    /// Runs `query` on a connection.
    ///
    /// # Errors
    /// `Unavailable` if the pool is closed; errors of `query`.
    pub(super) fn with<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let taken = match self.idle.lock().as_mut() {
            Some(idle) => idle.pop(),
            None => {
                return Err(StoreError::new(
                    ErrorKind::Unavailable,
                    "the store is closed",
                ));
            }
        };
        let connection = match taken {
            Some(connection) => connection,
            None => connection::open_reader(&self.path)?,
        };
        let result = query(&connection);
        if let Some(idle) = self.idle.lock().as_mut()
            && idle.len() < READ_CONNECTIONS_KEPT
        {
            idle.push(connection);
        }
        result
    }

    /// Closes what is idle; what is in use closes when its reader is done.
    pub(super) fn close(&self) {
        self.idle.lock().take();
    }
}
