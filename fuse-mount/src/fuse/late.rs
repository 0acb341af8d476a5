//! Answers that wait until the kernels of other sessions know of the change.
//!
//! A program that was answered may tell another one, in another session, which must see the
//! change then. So the answer is kept back until the notifiers of the other sessions have written
//! what their kernels must forget. A kernel may make its notifier wait for the lock of an inode
//! that one of its own requests holds. If the answer to that request were kept back as well, two
//! sessions could wait for each other; so no answer is kept back while a notification about one of
//! its inodes is on its way to its own kernel, and one that is kept back then goes at once. What
//! still takes longer than [`PATIENCE`] (a stopped program with a lock) isn't waited for.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::dispatch::write_answer;
use super::notify::Notifier;
use crate::fs::request::{Changed, Notification};

/// How long an answer waits at most.
const PATIENCE: Duration = Duration::from_millis(200);

/// One session's answers that are kept back, and notifications on their way to its kernel.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    has_answers: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Notifications that are queued or being written, by inode.
    pending: HashMap<u64, u32>,
    /// Answers kept back, by the inodes that their requests may hold in the kernel.
    held: HashMap<u64, Vec<Weak<LateAnswer>>>,
    /// All of them, by age.
    by_age: VecDeque<(Instant, Weak<LateAnswer>)>,
    /// Since when the notifier is at the one that it writes.
    writing_since: Option<Instant>,
    /// The watching thread sleeps until there is an answer.
    is_asleep: bool,
    has_ended: bool,
}

/// An answer that is kept back; it is written when the last reference goes, if not before.
#[derive(Debug)]
pub(super) struct LateAnswer {
    device: Arc<OwnedFd>,
    /// The kernel's number of the request.
    unique: u64,
    answer: Mutex<Answer>,
    inodes: Vec<u64>,
    gate: Weak<Gate>,
    /// What this session's kernel must forget once it has the answer.
    own: Vec<Notification>,
    notifier: Weak<Notifier>,
}

#[derive(Debug, Default)]
struct Answer {
    bytes: Option<Vec<u8>>,
    is_released: bool,
}

/// The inode whose locks the kernel takes for a notification, if it takes any.
fn locked_inode(notification: &Notification) -> Option<u64> {
    match notification {
        Notification::Entry { parent, .. } | Notification::Delete { parent, .. } => Some(*parent),
        Notification::Inode { inode, offset, .. } => (*offset >= 0).then_some(*inode),
    }
}

impl Gate {
    /// Starts the thread that lets go what has waited too long.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start() -> std::io::Result<Arc<Self>> {
        let gate = Arc::new(Self::default());
        let own = gate.clone();
        thread::Builder::new()
            .name("kura-fuse-late".to_owned())
            .spawn(move || own.watch())?;
        Ok(gate)
    }

    fn watch(&self) {
        let mut state = self.state.lock();
        while !state.has_ended {
            let Some((since, _)) = state.by_age.front() else {
                state.is_asleep = true;
                self.has_answers.wait(&mut state);
                state.is_asleep = false;
                continue;
            };
            let deadline = *since + PATIENCE;
            if Instant::now() < deadline {
                // Mostly they are gone long before.
                self.has_answers.wait_until(&mut state, deadline);
                continue;
            }
            let found = state.by_age.pop_front();
            if let Some(answer) = found.and_then(|(_, answer)| answer.upgrade()) {
                // Dropping the answer takes the lock.
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    tracing::debug!("another session's kernel is slow to take a change in");
                    answer.release();
                    drop(answer);
                });
            }
        }
    }

    /// The session is gone: nothing waits any more.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        self.has_answers.notify_all();
    }

    /// An answer that is to wait for the others; not where that could make them wait for us.
    pub(super) fn hold(
        self: &Arc<Self>,
        device: &Arc<OwnedFd>,
        notifier: &Weak<Notifier>,
        unique: u64,
        changed: &mut Changed,
    ) -> Arc<LateAnswer> {
        let mut inodes: Vec<u64> = changed
            .others
            .iter()
            .map(|notification| match notification {
                Notification::Entry { parent, .. } | Notification::Delete { parent, .. } => *parent,
                Notification::Inode { inode, .. } => *inode,
            })
            .collect();
        inodes.sort_unstable();
        inodes.dedup();
        let mut state = self.state.lock();
        let is_awaited = inodes.iter().any(|inode| state.pending.contains_key(inode));
        let is_released = is_awaited || changed.others.is_empty() || state.has_ended;
        let answer = Arc::new(LateAnswer {
            device: device.clone(),
            unique,
            answer: Mutex::new(Answer {
                bytes: None,
                is_released,
            }),
            inodes: if is_released { Vec::new() } else { inodes },
            gate: Arc::downgrade(self),
            own: std::mem::take(&mut changed.own),
            notifier: notifier.clone(),
        });
        if !is_released {
            for inode in &answer.inodes {
                let held = state.held.entry(*inode).or_default();
                held.push(Arc::downgrade(&answer));
            }
            if state.is_asleep {
                self.has_answers.notify_all();
            }
            let weak = Arc::downgrade(&answer);
            state.by_age.push_back((Instant::now(), weak));
        }
        answer
    }

    /// Notifications are going to be queued for this session's kernel. Lets go what they could
    /// wait for. Whether it is worth waiting for them: not when the kernel is stuck.
    pub(super) fn announce<'n>(
        &self,
        notifications: impl Iterator<Item = &'n Notification>,
    ) -> bool {
        let mut blocking = Vec::new();
        let is_moving = {
            let mut state = self.state.lock();
            for inode in notifications.filter_map(locked_inode) {
                *state.pending.entry(inode).or_default() += 1;
                if let Some(held) = state.held.get(&inode) {
                    blocking.extend(held.iter().filter_map(Weak::upgrade));
                }
            }
            let is_stuck = |since: Instant| since.elapsed() > PATIENCE / 2;
            !state.writing_since.is_some_and(is_stuck)
        };
        for answer in blocking {
            answer.release();
        }
        is_moving
    }

    /// The notifier begins to write.
    pub(super) fn writing(&self) {
        self.state.lock().writing_since = Some(Instant::now());
    }

    /// A notification was written.
    pub(super) fn written(&self, notification: &Notification) {
        let mut state = self.state.lock();
        state.writing_since = None;
        let Some(inode) = locked_inode(notification) else {
            return;
        };
        if let Some(count) = state.pending.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                state.pending.remove(&inode);
            }
        }
    }

    fn forget(&self, answer: &LateAnswer) {
        if answer.inodes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for inode in &answer.inodes {
            if let Some(held) = state.held.get_mut(inode) {
                held.retain(|other| other.strong_count() > 0);
                if held.is_empty() {
                    state.held.remove(inode);
                }
            }
        }
        while let Some((_, first)) = state.by_age.front()
            && first.strong_count() == 0
        {
            state.by_age.pop_front();
        }
    }
}

impl LateAnswer {
    /// The answer; it is written now if nobody is waited for any more.
    pub(super) fn give(&self, bytes: Vec<u8>) {
        let mut answer = self.answer.lock();
        if answer.is_released {
            drop(answer);
            self.write(&bytes);
        } else {
            answer.bytes = Some(bytes);
        }
    }

    /// Waits no longer.
    fn release(&self) {
        let bytes = {
            let mut answer = self.answer.lock();
            answer.is_released = true;
            answer.bytes.take()
        };
        if let Some(bytes) = bytes {
            self.write(&bytes);
        }
    }

    fn write(&self, bytes: &[u8]) {
        write_answer(&self.device, &[IoSlice::new(bytes)], self.unique);
        if let Some(notifier) = self.notifier.upgrade() {
            for notification in &self.own {
                notifier.send(notification.clone());
            }
        }
    }
}

impl Drop for LateAnswer {
    fn drop(&mut self) {
        self.release();
        if let Some(gate) = self.gate.upgrade() {
            gate.forget(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn entry(parent: u64) -> Notification {
        Notification::Entry {
            parent,
            name: Box::from(&b"name"[..]),
        }
    }

    fn changed(parent: u64) -> Changed {
        Changed {
            others: vec![entry(parent)],
            own: Vec::new(),
        }
    }

    /// A pipe stands for the device.
    fn pipe() -> (OwnedFd, Arc<OwnedFd>) {
        let (read, write) = nix::unistd::pipe().unwrap();
        nix::fcntl::fcntl(
            read.as_fd(),
            nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK),
        )
        .unwrap();
        (read, Arc::new(write))
    }

    fn read(pipe: &OwnedFd) -> Vec<u8> {
        let mut bytes = [0; 64];
        let count = nix::unistd::read(pipe, &mut bytes).unwrap_or(0);
        bytes[..count].to_vec()
    }

    #[test]
    fn an_answer_waits_until_all_others_know() {
        let gate = Gate::start().unwrap();
        let (reader, device) = pipe();
        let answer = gate.hold(&device, &Weak::new(), 1, &mut changed(7));
        let other = answer.clone();
        answer.give(b"answer".to_vec());
        drop(answer);
        assert_eq!(read(&reader), b"");
        drop(other);
        assert_eq!(read(&reader), b"answer");
        gate.end();
    }

    #[test]
    fn an_answer_whose_inode_a_notification_may_wait_for_goes_at_once() {
        let gate = Gate::start().unwrap();
        let (reader, device) = pipe();
        let answer = gate.hold(&device, &Weak::new(), 1, &mut changed(7));
        answer.give(b"first".to_vec());
        gate.announce([entry(8)].iter());
        assert_eq!(read(&reader), b"");
        gate.announce([entry(7)].iter());
        assert_eq!(read(&reader), b"first");
        // And one that comes while the notification is on its way is not kept back at all.
        let second = gate.hold(&device, &Weak::new(), 1, &mut changed(7));
        second.give(b"second".to_vec());
        assert_eq!(read(&reader), b"second");
        gate.written(&entry(7));
        let third = gate.hold(&device, &Weak::new(), 1, &mut changed(7));
        third.give(b"third".to_vec());
        assert_eq!(read(&reader), b"");
        gate.end();
    }

    #[test]
    fn an_answer_does_not_wait_for_ever_for_a_kernel_that_is_stuck() {
        let gate = Gate::start().unwrap();
        let (reader, device) = pipe();
        let answer = gate.hold(&device, &Weak::new(), 1, &mut changed(7));
        answer.give(b"answer".to_vec());
        let deadline = Instant::now() + PATIENCE * 20;
        let mut found = Vec::new();
        while found.is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
            found = read(&reader);
        }
        assert_eq!(found, b"answer");
        gate.writing();
        thread::sleep(PATIENCE);
        assert!(
            !gate.announce([entry(9)].iter()),
            "nobody waits for it any more"
        );
        gate.written(&entry(9));
        assert!(gate.announce([entry(9)].iter()));
        gate.end();
    }
}
