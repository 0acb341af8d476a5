//! Notifications to the kernel: a queue and a thread.
//!
//! The kernel may make the writer wait for the lock of a directory that a request holds, and
//! that request waits for the dispatch thread. So only this thread writes notifications, and
//! nothing ever waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use crossbeam_channel::{Sender, unbounded};
use nix::errno::Errno;
use nix::sys::uio::writev;

use super::counters::Counters;
use super::encode::Reply;
use crate::fs::request::Notification;

/// The queue; its thread ends when the queue is dropped.
#[derive(Debug)]
pub(super) struct Notifier {
    queue: Sender<Notification>,
    device: Arc<OwnedFd>,
    counters: Arc<Counters>,
}

impl Notifier {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(device: Arc<OwnedFd>, counters: Arc<Counters>) -> io::Result<Self> {
        let (queue, notifications) = unbounded::<Notification>();
        let own = (Arc::clone(&device), Arc::clone(&counters));
        thread::Builder::new()
            .name("kura-fuse-note".to_owned())
            .spawn(move || {
                let mut message = Reply::default();
                for notification in notifications {
                    write_notification(&device, &counters, &mut message, &notification);
                }
            })?;
        Ok(Self {
            queue,
            device: own.0,
            counters: own.1,
        })
    }

    /// Queues a notification; returns at once.
    pub(super) fn send(&self, notification: Notification) {
        // Fails only when the thread is gone, and then so is the connection.
        drop(self.queue.send(notification));
    }

    /// Makes the kernel ask for attributes again, from the calling thread.
    pub(super) fn refresh_attributes(&self, inode: u64) {
        let notification = Notification::Inode {
            inode,
            offset: -1,
            length: 0,
        };
        write_notification(
            &self.device,
            &self.counters,
            &mut Reply::default(),
            &notification,
        );
    }
}

fn write_notification(
    device: &OwnedFd,
    counters: &Counters,
    message: &mut Reply,
    notification: &Notification,
) {
    message.encode_notification(notification);
    counters.notifications.fetch_add(1, Ordering::Relaxed);
    match writev(device, &message.slices()) {
        // The kernel does not know the name or inode (any more), or is gone.
        Ok(_) | Err(Errno::ENOENT | Errno::ENODEV | Errno::ENOTDIR) => {}
        // The name is busy: a directory in use, a mountpoint.
        Err(Errno::ENOTEMPTY | Errno::EBUSY) => {}
        Err(errno) => tracing::warn!(
            %errno,
            ?notification,
            "the kernel refused a notification; it may show old data"
        ),
    }
}
