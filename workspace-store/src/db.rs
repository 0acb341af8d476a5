//! The database: the only part of the store that speaks SQL.
//!
//! One thread owns the write connection ([`writer`]); reads take a connection of a pool
//! ([`reader_pool`]). A lock file keeps a second process out. Functions in the modules below work
//! on the rows of one family each and take the connection they run on, so that a caller joins as
//! many of them as it likes in one transaction.

pub(crate) mod audit;
pub(crate) mod conflicts;
pub(crate) mod connection;
pub(crate) mod grants;
pub(crate) mod history;
pub(crate) mod migrate;
pub(crate) mod objects;
pub(crate) mod operations;
pub(crate) mod overlay;
pub(crate) mod principals;
pub(crate) mod purge;
pub(crate) mod reader_pool;
pub(crate) mod refs;
pub(crate) mod runs;
mod schema;
pub(crate) mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
pub(crate) use rusqlite::Connection;

use crate::error::{ErrorKind, Result, StoreError};
use reader_pool::ReaderPool;
use writer::{Pending, Writer};

const DATABASE_FILE: &str = "kura.db";
const LOCK_FILE: &str = "kura.lock";

/// The open database of a store.
#[derive(Debug)]
pub(crate) struct Database {
    path: PathBuf,
    writer: Writer,
    readers: ReaderPool,
    lock: Mutex<Option<Flock<File>>>,
}

impl Database {
    /// Opens the database in `directory`, or makes it if `create` is set and it isn't there.
    ///
    /// # Errors
    /// `Busy` if another process has it open, `NotFound` if it isn't there, `Incompatible` if it
    /// belongs to another program or a newer version, `Corrupt` if it can't be read.
    pub(crate) fn open(directory: &Path, create: bool) -> Result<Self> {
        let path = directory.join(DATABASE_FILE);
        if !create && !path.exists() {
            return Err(StoreError::new(
                ErrorKind::NotFound,
                format!("there is no store in {}", directory.display()),
            )
            .with_hint("check --store and KURA_STORE, or make one with `kura init`"));
        }
        if create {
            create_directory(directory)?;
        }
        let lock = take_lock(directory)?;
        let connection = connection::open_writer(&path)?;
        migrate::prepare(&connection, &path)?;
        connection::configure_writer(&connection)?;
        let readers = ReaderPool::new(path.clone());
        // Fails here rather than at the first read if the file can't be opened a second time.
        readers.with(|connection| migrate::check_features(connection, &path))?;
        let writer = Writer::start(connection, &path)?;
        Ok(Self {
            path,
            writer,
            readers,
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Runs `job` in a transaction and waits until it is durable.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // The writer's thread works on behalf of the one that asked.
        let source = crate::audit::current_source();
        let job =
            move |connection: &Connection| crate::audit::with_source(source, || job(connection));
        self.writer.submit(true, job)?.wait()
    }

    /// Runs `job` on the write connection outside of any transaction.
    pub(crate) fn alone<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.alone(job)
    }

    /// Queues `job` for a transaction that becomes durable with the next one of [`Self::write`].
    pub(crate) fn write_later<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.writer.submit(false, job)
    }

    /// Runs `query` on a read connection.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.with(query)
    }

    /// Size of the database file and its log in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        [self.path.clone(), writer::log_path(&self.path)]
            .iter()
            .filter_map(|path| std::fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Ends the writer, copies the log into the database and gives up the lock.
    pub(crate) fn close(&self) -> Result<()> {
        self.readers.close();
        let result = self.writer.close();
        self.lock.lock().take();
        result
    }
}

fn create_directory(directory: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| {
            StoreError::io(
                format!("cannot make the store's directory {}", directory.display()),
                error,
            )
        })
}

fn take_lock(directory: &Path) -> Result<Flock<File>> {
    let path = directory.join(LOCK_FILE);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| StoreError::io(format!("cannot open {}", path.display()), error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        if errno == nix::errno::Errno::EWOULDBLOCK {
            StoreError::new(
                ErrorKind::Busy,
                format!(
                    "the store in {} is in use by another process",
                    directory.display()
                ),
            )
            .with_hint("a computerd owns it; talk to that one, or end it with `kura daemon stop`")
        } else {
            StoreError::io(format!("cannot lock {}", path.display()), errno.into())
        }
    })
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let (kind, hint) = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => (ErrorKind::NoSpace, "make room on the store's disk"),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
                ErrorKind::Corrupt,
                "run `kura fsck`; if it fails, go back to a backup of the store",
            ),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                ErrorKind::Busy,
                "another program has the database open; end it and try again",
            ),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                ErrorKind::ReadOnly,
                "check the permissions of the store's directory",
            ),
            Some(ErrorCode::CannotOpen) => (
                ErrorKind::Io,
                "check the permissions of the store's directory",
            ),
            Some(ErrorCode::SystemIoFailure) => (ErrorKind::Io, "check the store's disk"),
            _ => (
                ErrorKind::Internal,
                "this is a defect of kura; please report it",
            ),
        };
        let kind = match &error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..) => ErrorKind::Corrupt,
            _ => kind,
        };
        StoreError::new(kind, format!("the database refused: {error}"))
            .with_hint(hint)
            .with_source(error)
    }
}

/// An id read from a column.
pub(crate) fn id_column<const LENGTH: usize>(
    row: &rusqlite::Row<'_>,
    column: usize,
) -> rusqlite::Result<[u8; LENGTH]> {
    let value = row.get_ref(column)?;
    value
        .as_blob()
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| {
            rusqlite::Error::InvalidColumnType(column, "id".to_owned(), value.data_type())
        })
}
