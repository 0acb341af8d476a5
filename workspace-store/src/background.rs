//! Work that gives way: automatic commits run at a lower priority than the programs whose changes
//! they store, until somebody waits for them.
//!
//! The priority is that of a thread (nice(2)), so it must never be lowered around a lock that
//! requests wait for, except for the few instructions of the store's caches. Threads that the store
//! starts for such work belong to it. Who can't raise a priority again (an ordinary user) never
//! lowers one.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// How much nicer the work is: it gets about a tenth of a CPU that a program wants for itself. More
/// would let a commit that somebody asks for meanwhile wait in the store's caches for it.
const NICE_INCREMENT: i32 = 10;
const NICE_MAX: i32 = 19;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Background>>> = const { RefCell::new(None) };
}

/// The background work of one mount.
#[derive(Debug)]
pub struct Background {
    normal: i32,
    /// Equal to `normal` where it can't be raised again.
    lowered: i32,
    workers: Mutex<Workers>,
}

#[derive(Debug, Default)]
struct Workers {
    threads: Vec<libc::pid_t>,
    /// Callers that wait for the work.
    waiting: usize,
}

impl Background {
    /// Work that is nicer than the calling thread.
    pub fn new() -> Arc<Self> {
        let normal = priority_of(0);
        let lowered = (normal + NICE_INCREMENT).min(NICE_MAX);
        let can_raise = std::thread::spawn(move || {
            set_priority(0, lowered).is_ok() && set_priority(0, normal).is_ok()
        })
        .join()
        .unwrap_or(false);
        Arc::new(Self {
            normal,
            lowered: if can_raise { lowered } else { normal },
            workers: Mutex::default(),
        })
    }

    /// Does `work` on this thread, giving way to others while nobody [waits](Self::hurry).
    pub fn run<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let _membership = Membership::begin(self);
        work()
    }

    /// From now on until the guard is dropped the work runs at normal priority.
    pub fn hurry(&self) -> Hurry<'_> {
        let mut workers = self.workers.lock();
        workers.waiting += 1;
        for thread in &workers.threads {
            self.set(*thread, self.normal);
        }
        Hurry { background: self }
    }

    /// What the calling thread works for.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    fn set(&self, thread: libc::pid_t, priority: i32) {
        if self.lowered != self.normal
            && let Err(error) = set_priority(thread, priority)
        {
            tracing::debug!(%error, priority, "a thread keeps its priority");
        }
    }
}

/// Does `work` on this thread for whom `background` says, or just so.
pub(crate) fn run_for<T>(background: Option<&Arc<Background>>, work: impl FnOnce() -> T) -> T {
    match background {
        Some(background) => background.run(work),
        None => work(),
    }
}

/// Somebody waits.
#[derive(Debug)]
pub struct Hurry<'b> {
    background: &'b Background,
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        let mut workers = self.background.workers.lock();
        workers.waiting -= 1;
        if workers.waiting == 0 {
            for thread in &workers.threads {
                self.background.set(*thread, self.background.lowered);
            }
        }
    }
}

/// A thread that does the work.
struct Membership<'b> {
    background: &'b Arc<Background>,
    thread: libc::pid_t,
    outer: Option<Arc<Background>>,
}

impl<'b> Membership<'b> {
    fn begin(background: &'b Arc<Background>) -> Self {
        let thread = nix::unistd::gettid().as_raw();
        let outer = CURRENT.replace(Some(Arc::clone(background)));
        let mut workers = background.workers.lock();
        workers.threads.push(thread);
        // Also when somebody waits: a thread starts with the priority of the one that started it.
        let priority = if workers.waiting == 0 {
            background.lowered
        } else {
            background.normal
        };
        background.set(thread, priority);
        Self {
            background,
            thread,
            outer,
        }
    }
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        let mut workers = self.background.workers.lock();
        workers.threads.retain(|thread| *thread != self.thread);
        self.background.set(self.thread, self.background.normal);
        CURRENT.set(self.outer.take());
    }
}

/// The nice value of a thread; 0: the calling one.
fn priority_of(thread: libc::pid_t) -> i32 {
    // SAFETY: a system call without pointers; the thread exists or the call fails.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, thread as libc::id_t) }
}

fn set_priority(thread: libc::pid_t, priority: i32) -> io::Result<()> {
    // SAFETY: a system call without pointers; the thread exists or the call fails.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_gives_way_until_somebody_waits_and_the_thread_is_as_before_afterwards() {
        let background = Background::new();
        let (normal, lowered) = (background.normal, background.lowered);
        assert_eq!(normal, priority_of(0));
        background.run(|| {
            assert_eq!(priority_of(0), lowered);
            let first = background.hurry();
            let second = background.hurry();
            assert_eq!(priority_of(0), normal);
            drop(first);
            assert_eq!(priority_of(0), normal, "somebody still waits");
            drop(second);
            assert_eq!(priority_of(0), lowered);
        });
        assert_eq!(priority_of(0), normal);
        assert!(Background::current().is_none());
        assert!(background.workers.lock().threads.is_empty());
    }

    #[test]
    fn threads_started_for_the_work_belong_to_it() {
        let background = Background::new();
        let (normal, lowered) = (background.normal, background.lowered);
        let (started, has_started) = channel();
        let (go_on, may_go_on) = channel::<()>();
        background.run(|| {
            let current = Background::current();
            std::thread::scope(|scope| {
                let helper = scope.spawn(move || {
                    run_for(current.as_ref(), || {
                        started.send(priority_of(0)).unwrap();
                        may_go_on.recv().unwrap();
                        priority_of(0)
                    })
                });
                assert_eq!(has_started.recv(), Ok(lowered));
                let hurry = background.hurry();
                go_on.send(()).unwrap();
                assert_eq!(helper.join().unwrap(), normal);
                // And those that start later than the hurry.
                let late = Background::current();
                let helper = scope.spawn(move || run_for(late.as_ref(), || priority_of(0)));
                assert_eq!(helper.join().unwrap(), normal);
                drop(hurry);
            });
        });
    }

    #[test]
    fn storing_content_uses_helpers_of_the_background() {
        let directory = tempfile::tempdir().unwrap();
        let options = crate::StoreOptions {
            threads: 3,
            ..Default::default()
        };
        let store = crate::Store::open(directory.path(), options).unwrap();
        let background = Background::new();
        let seen = Mutex::new(Vec::new());
        let hurry = Mutex::new(None);
        let contents: Vec<_> = (0..64_u64)
            .map(|key| {
                let bytes: Vec<u8> = (0..40_000).map(|at| (at * (key + 3) / 7) as u8).collect();
                (key, Arc::new(bytes) as Arc<dyn crate::edit::Content>)
            })
            .collect();
        let report = |_| {
            let mut seen = seen.lock();
            seen.push((nix::unistd::gettid(), priority_of(0)));
            if seen.len() == contents.len() {
                *hurry.lock() = Some((background.hurry(), seen.len()));
            }
            drop(seen);
            // Gives the others time to start.
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        background
            .run(|| store.inner.put_blobs(&contents, &report))
            .unwrap();
        let (hurry, count) = hurry.into_inner().unwrap();
        drop(hurry);
        let seen = seen.into_inner();
        let threads: std::collections::BTreeSet<_> =
            seen.iter().map(|(thread, _)| *thread).collect();
        assert!(threads.len() > 1, "several threads stored content");
        let (before, after) = seen.split_at(count);
        assert!(before.iter().all(|(_, found)| *found == background.lowered));
        assert!(!after.is_empty());
        assert!(after.iter().all(|(_, found)| *found == background.normal));
        store.inner.put_blobs(&contents[..1], &|_| {}).unwrap();
        assert_eq!(priority_of(0), background.normal);
        store.close().unwrap();
    }
}
