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

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::errno::Errno;
use nix::sys::uio::writev;

use super::counters::Counters;
use super::encode::Reply;
use super::late::Gate;
use crate::fs::request::{HeldAnswer, Notification};

/// What is in the queue.
enum Entry {
    Notification(Notification),
    /// The answer to the request that changed it all may go.
    Told(#[expect(dead_code, reason = "its end is the message")] HeldAnswer),
    /// Everything before it was written when its other end is dropped.
    Mark(#[expect(dead_code, reason = "its end is the message")] Sender<()>),
}

/// The queue; its thread ends when the queue is dropped.
pub(super) struct Notifier {
    queue: Sender<Entry>,
    gate: Arc<Gate>,
    device: Arc<OwnedFd>,
    counters: Arc<Counters>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

impl Notifier {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(
        device: Arc<OwnedFd>,
        counters: Arc<Counters>,
        gate: Arc<Gate>,
    ) -> io::Result<Self> {
        let (queue, notifications) = unbounded::<Entry>();
        let own = (Arc::clone(&device), Arc::clone(&counters));
        let written = Arc::clone(&gate);
        thread::Builder::new()
            .name("kura-fuse-note".to_owned())
            .spawn(move || {
                let mut message = Reply::default();
                for entry in notifications {
                    if let Entry::Notification(notification) = entry {
                        written.writing();
                        write_notification(&device, &counters, &mut message, &notification);
                        written.written(&notification);
                    }
                }
                written.end();
            })?;
        Ok(Self {
            queue,
            gate,
            device: own.0,
            counters: own.1,
        })
    }

    /// Queues a notification; returns at once.
    pub(super) fn send(&self, notification: Notification) {
        self.gate.announce(std::iter::once(&notification));
        // Fails only when the thread is gone, and then so is the connection.
        drop(self.queue.send(Entry::Notification(notification)));
    }

    /// Queues what another session has changed; its answer is let go when the kernel was told.
    pub(super) fn tell(&self, changed: &[Notification], answer: &HeldAnswer) {
        let is_awaited = self.gate.announce(changed.iter());
        for notification in changed {
            drop(self.queue.send(Entry::Notification(notification.clone())));
        }
        if is_awaited {
            drop(self.queue.send(Entry::Told(Arc::clone(answer))));
        }
    }

    /// Queues a mark; the receiver is disconnected when everything before it was written.
    pub(super) fn mark(&self) -> Receiver<()> {
        let (mark, reached) = bounded(1);
        drop(self.queue.send(Entry::Mark(mark)));
        reached
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
