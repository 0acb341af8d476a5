//! Keeps the dispatch thread on the CPU of a program that asks one thing after the other.
//!
//! The scheduler wakes a thread on an idle CPU if there is one. Program and daemon then wake each
//! other from sleep twice for every request, which in a virtual machine takes ten times as long as
//! the request (ADR-0008). While one thread asks without a pause, dispatch is bound to its CPU and
//! given the policy SCHED_IDLE: a CPU that runs nothing else counts as idle, so the program that
//! dispatch wakes stays there.
//!
//! Which CPU that is, dispatch finds by trying: where they are together, each answer wakes a
//! program that takes the CPU away from dispatch at once, and the kernel counts that. Nothing
//! here looks at another process: what /proc says of one may have to wait for dispatch.
//!
//! A thread of that policy gets no time beside others. The watcher looks every millisecond: if
//! dispatch doesn't get on, it becomes an ordinary thread again at once, and for a while. The
//! watcher sleeps while nobody asks.
//!
//! Threads: dispatch places itself by [`Placement`]; the watcher lets it go.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};
use parking_lot::{Condvar, Mutex};

/// A request that comes so soon and so late after the answer before was waited for while its
/// program ran on another CPU.
const APART: std::ops::Range<Duration> = Duration::from_micros(12)..Duration::from_micros(500);

/// So many of them in a row, from one thread, are worth a placement.
const APART_REQUESTS: u32 = 3;

/// All CPUs are tried so often in a row before dispatch gives up for a while.
const ROUNDS: usize = 2;

/// How often the watcher looks whether dispatch gets on: the more seldom, the longer it did. Each
/// look drives the program to another CPU for some requests.
const MIN_TICK: Duration = Duration::from_millis(1);
const MAX_TICK: Duration = Duration::from_millis(10);

/// How often it looks whether dispatch is of use where it is.
const WINDOW: Duration = Duration::from_millis(20);

/// Fewer requests in a window are not worth a placement.
const WINDOW_MIN_REQUESTS: u64 = 40;

/// Stands for no CPU.
const NOWHERE: usize = usize::MAX;

/// A thread that ran so long between two looks isn't starving.
const RUNNING: Duration = Duration::from_micros(200);

/// Looks in a row without progress after which dispatch is starving.
const STARVING_LOOKS: u32 = 2;

/// How long dispatch stays an ordinary thread after it was starving; doubled each time.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(160);

/// Dispatch's side. Costs a few stores for each request.
pub(super) struct Placement {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
    begun: u64,
    caller: u32,
    /// Requests in a row that came late, and how often this thread had been preempted at the first.
    apart: u32,
    preempted_before: i64,
    /// CPUs tried since dispatch and its caller were together last.
    tried: usize,
}

#[derive(Debug)]
struct Shared {
    device: Arc<OwnedFd>,
    dispatch: Pid,
    /// Requests that dispatch has read, and those that it is done with.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Requests that came from another thread than the one before.
    switches: AtomicU64,
    /// Dispatch may not place itself now.
    is_barred: AtomicBool,
    /// Dispatch was on every CPU, and nowhere with its caller.
    has_given_up: AtomicBool,
    /// The CPU that dispatch is bound to, or [`NOWHERE`].
    cpu: AtomicUsize,
    /// Where dispatch may run at all.
    allowed: OnceLock<CpuSet>,
    /// The thread that watches.
    watcher: OnceLock<Pid>,
    /// The session ends. The watcher sleeps with this lock, so dispatch takes it as an ordinary
    /// thread only.
    is_ending: Mutex<bool>,
    /// Dispatch was placed or has given up, or the session ends.
    changed: Condvar,
}

impl Placement {
    /// For the calling thread, which reads from `device`.
    pub(super) fn of_this_thread(device: Arc<OwnedFd>) -> Self {
        let shared = Arc::new(Shared {
            device,
            dispatch: gettid(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            is_barred: AtomicBool::new(true),
            has_given_up: AtomicBool::new(false),
            allowed: OnceLock::new(),
            watcher: OnceLock::new(),
            cpu: AtomicUsize::new(NOWHERE),
            is_ending: Mutex::default(),
            changed: Condvar::new(),
        });
        let watched = shared.clone();
        let watcher = thread::Builder::new()
            .name("kura-fuse-place".to_owned())
            .spawn(move || watched.watch());
        if let Err(error) = &watcher {
            tracing::warn!(%error, "requests are answered on any CPU");
        }
        Self {
            shared,
            watcher: watcher.ok(),
            begun: 0,
            caller: 0,
            apart: 0,
            preempted_before: 0,
            tried: 0,
        }
    }

    /// A request was read, for which dispatch waited so long. `caller` is the thread that asks, 0
    /// the kernel itself; `is_waiting` says that it does nothing else until it is answered.
    pub(super) fn begin(&mut self, caller: u32, is_waiting: bool, waited: Duration) {
        self.begun += 1;
        self.shared.begun.store(self.begun, Ordering::Relaxed);
        if caller == 0 || !is_waiting {
            return;
        }
        if caller != self.caller {
            self.caller = caller;
            self.apart = 0;
            self.shared.switches.fetch_add(1, Ordering::Relaxed);
        }
        if waited < APART.start {
            self.tried = 0;
        }
        if !APART.contains(&waited) || self.shared.is_barred.load(Ordering::Relaxed) {
            self.apart = 0;
            return;
        }
        self.apart += 1;
        if self.apart == 1 {
            self.preempted_before = preempted();
        } else if self.apart == APART_REQUESTS {
            let answers = i64::from(self.apart - 1);
            let is_together = (preempted() - self.preempted_before) * 2 >= answers;
            self.apart = 0;
            self.shared.go_on(is_together, &mut self.tried);
        }
    }

    /// Dispatch is done with what it read last.
    pub(super) fn end(&self) {
        self.shared.ended.store(self.begun, Ordering::Relaxed);
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        *self.shared.is_ending.lock() = true;
        self.shared.changed.notify_one();
        if let Some(watcher) = self.watcher.take()
            && watcher.join().is_err()
        {
            tracing::error!("the thread that places dispatch panicked");
        }
    }
}

impl Shared {
    /// Requests come late: dispatch is placed, or tries the next CPU, unless it is with its caller.
    fn go_on(&self, is_together: bool, tried: &mut usize) {
        let Some(allowed) = self.allowed.get() else {
            return;
        };
        let placed = self.placed();
        if placed.is_none() {
            // The watcher has let it go meanwhile.
            *tried = 0;
        } else if is_together {
            // The program takes that long between its requests.
            *tried = 0;
            return;
        }
        let Some(next) = placed
            .or_else(|| sched_getcpu().ok())
            .and_then(|cpu| cpu_after(allowed, cpu))
        else {
            return;
        };
        *tried += 1;
        if *tried > ROUNDS * cpu_count(allowed) {
            *tried = 0;
            self.give_up();
        } else {
            self.place(next);
        }
    }

    fn placed(&self) -> Option<usize> {
        Some(self.cpu.load(Ordering::Acquire)).filter(|cpu| *cpu != NOWHERE)
    }

    /// Dispatch was on every CPU: the watcher lets it go, and lets it place itself again later.
    fn give_up(&self) {
        self.is_barred.store(true, Ordering::Relaxed);
        self.has_given_up.store(true, Ordering::Release);
        if self.placed().is_none() {
            self.wake_watcher();
        }
    }

    /// Wakes the watcher, which sleeps without a timer while dispatch is nowhere.
    fn wake_watcher(&self) {
        let _ending = self.is_ending.lock();
        self.changed.notify_one();
    }

    /// Binds dispatch to a CPU, where it gives way to everything else. The watcher knows before
    /// that happens: afterwards dispatch may have to wait for it.
    fn place(&self, cpu: usize) {
        if self.is_barred.load(Ordering::Relaxed) {
            return;
        }
        if self.cpu.swap(cpu, Ordering::AcqRel) == NOWHERE {
            self.wake_watcher();
        }
        let bind = || -> io::Result<()> {
            let mut only = CpuSet::new();
            only.set(cpu)?;
            // The watcher would drive the program away each time it looks.
            if let (Some(watcher), Some(allowed)) = (self.watcher.get(), self.allowed.get()) {
                let mut others = *allowed;
                others.unset(cpu)?;
                sched_setaffinity(*watcher, &others)?;
            }
            sched_setaffinity(self.dispatch, &only)?;
            set_policy(self.dispatch, libc::SCHED_IDLE)
        };
        if let Err(error) = bind() {
            tracing::debug!(%error, cpu, "dispatch can't be bound to a CPU");
            self.is_barred.store(true, Ordering::Relaxed);
            self.let_go();
        }
    }

    /// Makes dispatch an ordinary thread.
    fn let_go(&self) {
        let Some(allowed) = self.allowed.get() else {
            return;
        };
        let free = set_policy(self.dispatch, libc::SCHED_OTHER)
            .and_then(|()| Ok(sched_setaffinity(self.dispatch, allowed)?));
        if let Err(error) = free {
            tracing::error!(%error, "dispatch can't be made an ordinary thread again");
        }
        self.cpu.store(NOWHERE, Ordering::Release);
    }

    fn watch(&self) {
        let _ = self.watcher.set(gettid());
        match sched_getaffinity(self.dispatch) {
            Ok(allowed) if is_worthwhile(&allowed) => drop(self.allowed.set(allowed)),
            // Dispatch stays barred from placing itself.
            _ => return,
        }
        self.is_barred.store(false, Ordering::Relaxed);
        let mut pause = MIN_PAUSE;
        loop {
            {
                let mut is_ending = self.is_ending.lock();
                let has_nothing_to_do =
                    || self.placed().is_none() && !self.has_given_up.load(Ordering::Acquire);
                while has_nothing_to_do() && !*is_ending {
                    self.changed.wait(&mut is_ending);
                }
                if *is_ending {
                    return;
                }
            }
            let start = Instant::now();
            let is_harmful = self.wait_while_useful();
            let has_given_up = self.has_given_up.load(Ordering::Relaxed);
            self.is_barred.store(true, Ordering::Relaxed);
            self.let_go();
            self.has_given_up.store(false, Ordering::Relaxed);
            let mut rest = MIN_PAUSE;
            if is_harmful {
                tracing::debug!(?pause, has_given_up, lasted = ?start.elapsed(), "dispatch is an ordinary thread for now");
                rest = if start.elapsed() > pause {
                    MIN_PAUSE
                } else {
                    pause
                };
                pause = (rest * 2).min(MAX_PAUSE);
            }
            let end = Instant::now() + rest;
            while Instant::now() < end {
                if self.wait(MIN_PAUSE) {
                    return;
                }
                // It may have been about to bind itself when it was let go.
                if is_idle_class(self.dispatch) {
                    self.let_go();
                }
            }
            self.is_barred.store(false, Ordering::Relaxed);
        }
    }

    /// Waits; true if the session ends.
    fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut is_ending = self.is_ending.lock();
        while !*is_ending {
            if self
                .changed
                .wait_until(&mut is_ending, deadline)
                .timed_out()
            {
                break;
            }
        }
        *is_ending
    }

    /// Waits until dispatch starves or gives up (true), or is asked by nobody or by several threads
    /// (false).
    fn wait_while_useful(&self) -> bool {
        let start = Instant::now();
        let (mut window, mut window_start) = (self.counts(), start);
        let mut last_begun = window.begun;
        let (mut stuck_looks, mut run_time) = (0, Duration::ZERO);
        loop {
            let tick = match stuck_looks {
                0 => (start.elapsed() / 8).clamp(MIN_TICK, MAX_TICK),
                _ => MIN_TICK,
            };
            if self.wait(tick) {
                return false;
            }
            if self.has_given_up.load(Ordering::Relaxed) {
                return true;
            }
            if window_start.elapsed() >= WINDOW {
                let now = self.counts();
                if !now.is_useful_since(&window) {
                    return false;
                }
                (window, window_start) = (now, Instant::now());
            }
            let begun = self.begun.load(Ordering::Relaxed);
            let is_stuck = begun == last_begun && self.has_work(begun);
            last_begun = begun;
            if !is_stuck {
                stuck_looks = 0;
                continue;
            }
            // One request may take long: then dispatch runs.
            let before = std::mem::replace(&mut run_time, self.run_time());
            stuck_looks = if run_time - before > RUNNING {
                1
            } else {
                stuck_looks + 1
            };
            if stuck_looks >= STARVING_LOOKS && self.wants_cpu() {
                return true;
            }
        }
    }

    /// How long dispatch has run on a CPU.
    fn run_time(&self) -> Duration {
        // clock_gettime(2) takes the clock of a thread as its complement and the kind of clock (6).
        let clock = ClockId::from_raw((!self.dispatch.as_raw() << 3) | 6);
        clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
    }

    /// Whether dispatch waits for nothing but a CPU.
    fn wants_cpu(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", self.dispatch));
        // proc_pid_stat(5): the state follows the name, which may contain anything.
        stat.is_ok_and(|stat| {
            stat.rsplit_once(')')
                .is_some_and(|(_, fields)| fields.trim_start().starts_with('R'))
        })
    }

    fn counts(&self) -> Counts {
        Counts {
            begun: self.begun.load(Ordering::Relaxed),
            changed: self.switches.load(Ordering::Relaxed),
        }
    }

    /// Whether dispatch is in the middle of a request, or one waits for it.
    fn has_work(&self, begun: u64) -> bool {
        if self.ended.load(Ordering::Relaxed) != begun {
            return true;
        }
        let mut poll = libc::pollfd {
            fd: self.device.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid pollfd for the duration of the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
    }
}

/// What the watcher knows at one moment.
#[derive(Debug, Clone, Copy)]
struct Counts {
    begun: u64,
    changed: u64,
}

impl Counts {
    /// One thread has asked most of the time, and without long pauses.
    fn is_useful_since(&self, before: &Counts) -> bool {
        let requests = self.begun - before.begun;
        let changed = self.changed - before.changed;
        requests >= WINDOW_MIN_REQUESTS && changed * 4 <= requests
    }
}

/// There is another CPU to be woken on, and a way back from SCHED_IDLE (CAP_SYS_NICE). Asks for
/// the calling thread.
fn is_worthwhile(allowed: &CpuSet) -> bool {
    let this = gettid();
    cpu_count(allowed) > 1
        && set_policy(this, libc::SCHED_IDLE).is_ok()
        && set_policy(this, libc::SCHED_OTHER).is_ok()
}

fn is_idle_class(thread: Pid) -> bool {
    // SAFETY: no memory is touched.
    unsafe { libc::sched_getscheduler(thread.as_raw()) == libc::SCHED_IDLE }
}

fn set_policy(thread: Pid, policy: libc::c_int) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameter` is valid for the duration of the call.
    match unsafe { libc::sched_setscheduler(thread.as_raw(), policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How often the kernel took the CPU from the calling thread for another one.
fn preempted() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

fn cpu_count(allowed: &CpuSet) -> usize {
    cpus(allowed).count()
}

fn cpus(allowed: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
}

/// The next CPU of `allowed`; after the last one the first.
fn cpu_after(allowed: &CpuSet, cpu: usize) -> Option<usize> {
    cpus(allowed)
        .find(|next| *next > cpu)
        .or_else(|| cpus(allowed).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_busy_thread_is_worth_it_and_several_are_not() {
        let counts = |begun, changed| Counts { begun, changed };
        let before = counts(1000, 10);
        assert!(!counts(1010, 10).is_useful_since(&before));
        assert!(counts(1100, 11).is_useful_since(&before));
        assert!(counts(1100, 20).is_useful_since(&before));
        assert!(!counts(1100, 60).is_useful_since(&before));
    }

    #[test]
    fn every_allowed_cpu_is_tried_in_turn() {
        let mut allowed = CpuSet::new();
        for cpu in [1, 3, 64] {
            allowed.set(cpu).unwrap();
        }
        assert_eq!(cpu_count(&allowed), 3);
        let mut tried = vec![0];
        for _ in 0..4 {
            tried.push(cpu_after(&allowed, tried[tried.len() - 1]).unwrap());
        }
        assert_eq!(tried, [0, 1, 3, 64, 1]);
        assert_eq!(cpu_after(&CpuSet::new(), 0), None);
    }

    /// A placement of this thread, which no watcher looks after.
    fn shared(device: OwnedFd) -> Shared {
        Shared {
            device: Arc::new(device),
            dispatch: gettid(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            is_barred: AtomicBool::new(false),
            has_given_up: AtomicBool::new(false),
            allowed: OnceLock::from(sched_getaffinity(gettid()).unwrap()),
            watcher: OnceLock::new(),
            cpu: AtomicUsize::new(NOWHERE),
            is_ending: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    #[test]
    fn a_thread_is_bound_and_ordinary_again_and_a_stuck_one_is_seen() {
        let policy = || {
            // SAFETY: no memory is touched.
            unsafe { libc::sched_getscheduler(0) }
        };
        let allowed = sched_getaffinity(gettid()).unwrap();
        if !is_worthwhile(&allowed) {
            // One CPU, or no right to come back: nothing is ever placed.
            return;
        }
        let (read, write) = nix::unistd::pipe().unwrap();
        let shared = shared(read);
        let cpu = sched_getcpu().unwrap();
        shared.place(cpu);
        assert_eq!(policy(), libc::SCHED_IDLE);
        assert_eq!(shared.placed(), Some(cpu));
        assert!(!shared.has_work(0));
        // Nothing waits for it: it is not starving, only of no use.
        assert!(!shared.wait_while_useful());
        nix::unistd::write(&write, b"a request").unwrap();
        assert!(shared.wait_while_useful());
        shared.let_go();
        // However many CPUs it had tried before: it is placed again.
        let mut tried = ROUNDS * cpu_count(&allowed);
        shared.go_on(false, &mut tried);
        assert_eq!((policy(), tried), (libc::SCHED_IDLE, 1));
        assert!(!shared.has_given_up.load(Ordering::Relaxed));
        shared.let_go();
        assert_eq!(policy(), libc::SCHED_OTHER);
        assert_eq!(sched_getaffinity(gettid()).unwrap(), allowed);
    }
}
