//! The worker's end of the connection to its keeper.
//!
//! Threads: every function may be called from any thread; one lock orders the messages.
//! When the keeper is gone the worker goes on: functions then do nothing but say so once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::Value;

use super::message::{PROTOCOL_VERSION, ToKeeper, ToWorker, receive_message, send_message};

/// A descriptor that an earlier worker left with the keeper.
#[derive(Debug)]
pub struct Inherited {
    /// Its id.
    pub id: u64,
    /// What the earlier worker said about it.
    pub state: Value,
    /// The descriptor.
    pub descriptor: OwnedFd,
}

/// What a starting worker gets from the keeper.
#[derive(Debug, Default)]
pub struct Inheritance {
    /// Descriptors.
    pub descriptors: Vec<Inherited>,
    /// Values noted by earlier workers.
    pub notes: serde_json::Map<String, Value>,
    /// Process id of the keeper.
    pub keeper_pid: u32,
    /// How many workers died so far.
    pub restart_count: u32,
}

/// The connection to the keeper.
#[derive(Debug)]
pub struct KeeperLink {
    socket: Option<OwnedFd>,
    order: Mutex<()>,
    is_lost: AtomicBool,
}

impl KeeperLink {
    /// A worker without a keeper: descriptors are not kept over its end.
    pub fn none() -> Self {
        Self {
            socket: None,
            order: Mutex::new(()),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Takes everything that the keeper holds.
    ///
    /// # Errors
    /// If the keeper is gone or of another version.
    pub fn connect(socket: OwnedFd) -> io::Result<(Self, Inheritance)> {
        let take = ToKeeper::Take {
            version: PROTOCOL_VERSION,
        };
        send_message(socket.as_fd(), &take, None)?;
        let mut inheritance = Inheritance::default();
        loop {
            match receive_message::<ToWorker>(socket.as_fd(), true)? {
                Some((ToWorker::Held { id, state }, Some(descriptor))) => {
                    inheritance.descriptors.push(Inherited {
                        id,
                        state,
                        descriptor,
                    });
                }
                Some((ToWorker::Held { id, .. }, None)) => {
                    tracing::error!(id, "the keeper sent a state without its descriptor");
                }
                Some((
                    ToWorker::Taken {
                        version,
                        keeper_pid,
                        restart_count,
                        notes,
                    },
                    _,
                )) => {
                    if version != PROTOCOL_VERSION {
                        return Err(io::Error::other(format!(
                            "the keeper speaks version {version}, this worker {PROTOCOL_VERSION}; \
                             stop the daemon (kura daemon stop) and start it again"
                        )));
                    }
                    inheritance.keeper_pid = keeper_pid;
                    inheritance.restart_count = restart_count;
                    inheritance.notes = notes;
                    break;
                }
                None => return Err(io::Error::other("the keeper is gone")),
            }
        }
        let link = Self {
            socket: Some(socket),
            ..Self::none()
        };
        Ok((link, inheritance))
    }

    /// Has the keeper hold `descriptor`; when this returns it survives this process.
    pub fn hold(&self, id: u64, state: Value, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&ToKeeper::Hold { id, state }, Some(descriptor))
    }

    /// Replaces the state of a held descriptor.
    pub fn update(&self, id: u64, state: Value) -> io::Result<()> {
        self.send(&ToKeeper::Update { id, state }, None)
    }

    /// Lets a descriptor go.
    pub fn release(&self, id: u64) {
        self.send_or_log(&ToKeeper::Release { id });
    }

    /// Keeps a value for the next worker.
    pub fn note(&self, key: &str, value: Option<Value>) {
        self.send_or_log(&ToKeeper::Note {
            key: key.to_owned(),
            value,
        });
    }

    /// Says that requests are served now.
    pub fn ready(&self) {
        self.send_or_log(&ToKeeper::Ready);
    }

    /// Says that this worker ends on purpose.
    pub fn stopping(&self) {
        self.send_or_log(&ToKeeper::Stopping);
    }

    /// Waits until the keeper is gone; returns at once when there never was one.
    pub fn wait_for_loss(&self) {
        let Some(socket) = &self.socket else { return };
        loop {
            match receive_message::<ToWorker>(socket.as_fd(), true) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "read from the keeper");
                    break;
                }
            }
        }
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Whether a keeper holds this worker's descriptors.
    pub fn is_kept(&self) -> bool {
        self.socket.is_some() && !self.is_lost.load(Ordering::Relaxed)
    }

    fn send(&self, message: &ToKeeper, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let _order = self.order.lock();
        match send_message(socket.as_fd(), message, descriptor) {
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                self.is_lost.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    fn send_or_log(&self, message: &ToKeeper) {
        if let Err(error) = self.send(message, None) {
            tracing::error!(%error, ?message, "tell the keeper");
        }
    }
}
