//! The thread that owns the write connection.
//!
//! Jobs that wait together share one transaction, each inside a savepoint of its own, so that a
//! job that fails takes nothing with it. A job is answered after the transaction is committed. A
//! group of jobs that nobody needs durable yet is committed without waiting for the disk; the next
//! durable group makes it durable too, because both are in the same log.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::error::{ErrorKind, Result, StoreError};
use crate::limits::{JOBS_PER_TRANSACTION, WRITE_AHEAD_LOG_BYTES};

/// Jobs that may wait; a caller beyond that is held up.
const QUEUE_LENGTH: usize = 64;

type Answer = Box<dyn FnOnce(std::result::Result<(), &StoreError>) + Send>;
/// Runs on the connection, or, with `None`, only makes the answer that says it didn't run.
type Run = Box<dyn FnOnce(Option<&Connection>) -> (bool, Answer) + Send>;

struct Job {
    is_durable: bool,
    /// Runs outside of any transaction, with no other job.
    is_alone: bool,
    run: Run,
}

/// Handle of the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    sender: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

/// A job that was queued.
#[derive(Debug)]
pub(crate) struct Pending<T>(Receiver<Result<T>>);

impl<T> Pending<T> {
    /// Waits for its transaction.
    pub(crate) fn wait(self) -> Result<T> {
        self.0.recv().unwrap_or_else(|_| Err(closed()))
    }
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(connection: Connection, path: &Path) -> Result<Self> {
        let (sender, receiver) = bounded(QUEUE_LENGTH);
        let log = log_path(path);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(connection, &receiver, &log))
            .map_err(|error| StoreError::io("cannot start the database's thread", error))?;
        Ok(Self {
            sender: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// `Unavailable` if the writer was closed.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        is_durable: bool,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.queue(is_durable, false, job)
    }

    fn queue<T: Send + 'static>(
        &self,
        is_durable: bool,
        is_alone: bool,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        let sender = self.sender.lock().clone().ok_or_else(closed)?;
        let (reply, answer) = bounded(1);
        let run: Run = Box::new(move |connection| {
            let result = match connection {
                None => Err(closed()),
                Some(connection) => std::panic::catch_unwind(AssertUnwindSafe(|| job(connection)))
                    .unwrap_or_else(|_| {
                        Err(StoreError::new(
                            ErrorKind::Internal,
                            "a job of the database panicked",
                        ))
                    }),
            };
            let is_ok = result.is_ok();
            let answer: Answer = Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => result,
                    Err(error) => Err(copy_of(error)),
                };
                // A caller that went away needs no answer.
                let _ = reply.send(result);
            });
            (is_ok, answer)
        });
        let job = Job {
            is_durable,
            is_alone,
            run,
        };
        sender.send(job).map_err(|_| closed())?;
        Ok(Pending(answer))
    }

    /// Runs a job outside of any transaction.
    ///
    /// # Errors
    /// Of the job; `Unavailable` if the writer was closed.
    pub(super) fn alone<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(true, true, job)?.wait()
    }

    /// Finishes what is queued and ends the thread.
    pub(super) fn close(&self) -> Result<()> {
        self.sender.lock().take();
        match self.thread.lock().take() {
            None => Ok(()),
            Some(thread) => thread.join().unwrap_or_else(|_| {
                Err(StoreError::new(
                    ErrorKind::Internal,
                    "the database's thread panicked",
                ))
            }),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "closing the database failed");
        }
    }
}

/// Path of the write-ahead log of the database at `path`.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn closed() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the store is closed")
}

fn copy_of(error: &StoreError) -> StoreError {
    let copy = StoreError::new(error.kind(), error.message());
    match error.hint() {
        Some(hint) => copy.with_hint(hint),
        None => copy,
    }
}

fn serve(connection: Connection, receiver: &Receiver<Job>, log: &Path) -> Result<()> {
    let mut waits_for_disk = true;
    let mut waiting: Option<Job> = None;
    while let Some(first) = waiting.take().or_else(|| receiver.recv().ok()) {
        if first.is_alone {
            let ready = set_waiting(&connection, &mut waits_for_disk, true);
            let (_, answer) = (first.run)(ready.is_ok().then_some(&connection));
            answer(ready.as_ref().copied());
            continue;
        }
        let mut jobs = vec![first];
        while jobs.len() < JOBS_PER_TRANSACTION
            && let Ok(job) = receiver.try_recv()
        {
            if job.is_alone {
                waiting = Some(job);
                break;
            }
            jobs.push(job);
        }
        let is_durable = jobs.iter().any(|job| job.is_durable);
        let mut answers = Vec::with_capacity(jobs.len());
        let ready = set_waiting(&connection, &mut waits_for_disk, is_durable);
        let committed = run_group(&connection, ready, jobs, &mut answers);
        if committed.is_err() {
            // Whoever waits is told; nothing else may be lost with them.
            tracing::error!(error = ?committed, "a transaction of the database failed");
        }
        // Before the answers: the next job waits for it in any case, and who looks at the store
        // after a commit doesn't find its content twice.
        if std::fs::metadata(log).is_ok_and(|metadata| metadata.len() > WRITE_AHEAD_LOG_BYTES) {
            checkpoint(&connection);
        }
        for answer in answers {
            answer(committed.as_ref().copied());
        }
    }
    connection.busy_timeout(Duration::from_secs(2))?;
    checkpoint(&connection);
    connection.close().map_err(|(_, error)| error.into())
}

fn set_waiting(connection: &Connection, waits: &mut bool, is_durable: bool) -> Result<()> {
    if *waits != is_durable {
        let level = if is_durable { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", level)?;
        *waits = is_durable;
    }
    Ok(())
}

/// Runs the jobs in one transaction; on an error none of them has happened.
fn run_group(
    connection: &Connection,
    ready: Result<()>,
    jobs: Vec<Job>,
    answers: &mut Vec<Answer>,
) -> Result<()> {
    let begun = ready.and_then(|()| Ok(connection.execute_batch("BEGIN IMMEDIATE")?));
    let mut broken = begun.err();
    for job in jobs {
        if broken.is_none() {
            broken = connection
                .execute_batch("SAVEPOINT job")
                .err()
                .map(StoreError::from);
        }
        let (is_ok, answer) = (job.run)(broken.is_none().then_some(connection));
        answers.push(answer);
        if broken.is_none() {
            let end = if is_ok {
                "RELEASE job"
            } else {
                "ROLLBACK TO job; RELEASE job"
            };
            // Fails if SQLite has given up the whole transaction, for example on a full disk.
            broken = connection.execute_batch(end).err().map(StoreError::from);
        }
    }
    if broken.is_none() {
        broken = connection
            .execute_batch("COMMIT")
            .err()
            .map(StoreError::from);
    }
    match broken {
        None => Ok(()),
        Some(error) => {
            if !connection.is_autocommit() {
                // Nothing more can be done; the answers carry the first error.
                let _ = connection.execute_batch("ROLLBACK");
            }
            Err(error)
        }
    }
}

fn checkpoint(connection: &Connection) {
    let result: rusqlite::Result<i64> =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    if let Err(error) = result {
        // The log keeps everything; the next attempt copies it.
        tracing::warn!(%error, "copying the write-ahead log into the database failed");
    }
}
