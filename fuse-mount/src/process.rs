//! Who is behind a thread id: process, command line, container, run and step.
//!
//! Reading `/proc` of a process can block on locks that it holds while it waits for us: between
//! fork and exec, and where its memory is mapped from our mount. So threads of their own read it,
//! and nobody waits for them without a limit. While a request is not answered its caller can't end,
//! so one that waits for a moment is found even if it lives for a millisecond only
//! ([ADR-0011](../../docs/adr/0011-attribution.md)). A thread that is stuck is left alone and
//! another one goes on.

mod read;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};
use workspace_store::actor::{Actor, Process};

pub use read::{CGROUP_PREFIX, RUN_VARIABLE, STEP_VARIABLE};

/// Questions that may wait; of more nothing is found out.
const QUEUE_LENGTH: usize = 1024;
/// A thread that has read for so long is stuck.
const STUCK: Duration = Duration::from_secs(1);
/// Nice value of the threads.
const PRIORITY: i32 = -10;
/// Threads at most, stuck ones included.
const THREADS_MAX: u32 = 8;

/// What is known of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The process.
    pub process: Process,
    /// Part of the kernel, or this daemon with its helpers: not the author of anything.
    pub is_system: bool,
    /// Its container.
    pub container: Option<String>,
    /// Run and step that it belongs to.
    pub run: Option<RunPlace>,
}

impl Found {
    /// What it says of one who acts as a principal.
    pub fn to_actor(&self, principal: &str) -> Actor {
        Actor {
            principal: principal.to_owned(),
            process: Some(self.process.clone()),
            container: self.container.clone(),
            run: self.run.as_ref().map(|place| place.run.clone()),
            step: self.run.as_ref().and_then(|place| place.step),
        }
    }
}

/// A run, and the step in it if that is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunPlace {
    /// Id of the run.
    pub run: String,
    /// The numbered part.
    pub step: Option<u64>,
}

/// Finds run and step of a container by its labels. May take a while.
pub type LabelReader = Box<dyn Fn(&str) -> Option<RunPlace> + Send + Sync>;

/// A question about a thread, and its answer as soon as there is one.
pub struct Question {
    thread: u32,
    answer: Mutex<Answer>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Answer {
    found: Option<Arc<Found>>,
    /// Nothing more will be found out.
    is_final: bool,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({})", self.thread)
    }
}

impl Question {
    fn set(&self, found: Option<Found>, is_final: bool) {
        let mut answer = self.answer.lock();
        if let Some(found) = found {
            answer.found = Some(Arc::new(found));
        }
        answer.is_final = is_final;
        self.answered.notify_all();
    }

    /// What is known by now, after waiting for it until `deadline`; and whether that is all.
    pub fn wait_until(&self, deadline: Instant) -> (Option<Arc<Found>>, bool) {
        let mut answer = self.answer.lock();
        while !answer.is_final && !self.answered.wait_until(&mut answer, deadline).timed_out() {}
        (answer.found.clone(), answer.is_final)
    }
}

/// See the module's description. One for the whole daemon.
pub struct Processes {
    sender: Sender<Arc<Question>>,
    shared: Arc<Shared>,
}

struct Shared {
    receiver: Receiver<Arc<Question>>,
    labels: Option<LabelReader>,
    begin: Instant,
    threads: AtomicU32,
    /// When the thread that reads now began with it, in milliseconds after `begin`; 0 if none does.
    reading_since_ms: AtomicU64,
    cache: Mutex<read::Cache>,
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Processes")
    }
}

impl Default for Processes {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Processes {
    /// Starts with the first question.
    pub fn new(labels: Option<LabelReader>) -> Self {
        let (sender, receiver) = bounded(QUEUE_LENGTH);
        let shared = Shared {
            receiver,
            labels,
            begin: Instant::now(),
            threads: AtomicU32::new(0),
            reading_since_ms: AtomicU64::new(0),
            cache: Mutex::default(),
        };
        Self {
            sender,
            shared: Arc::new(shared),
        }
    }

    /// Asks about a thread (or process); returns at once.
    pub fn ask(&self, thread: u32) -> Arc<Question> {
        let question = Arc::new(Question {
            thread,
            answer: Mutex::default(),
            answered: Condvar::new(),
        });
        let is_idle = self.shared.threads.load(Ordering::Relaxed) == 0;
        if is_idle || self.is_stuck() {
            self.start_thread();
        }
        if self.sender.try_send(Arc::clone(&question)).is_err() {
            question.set(None, true);
        }
        question
    }

    fn is_stuck(&self) -> bool {
        let since = self.shared.reading_since_ms.load(Ordering::Relaxed);
        since != 0 && self.shared.now_ms().saturating_sub(since) > STUCK.as_millis() as u64
    }

    fn start_thread(&self) {
        let shared = Arc::clone(&self.shared);
        let add = |count: u32| (count < THREADS_MAX).then_some(count + 1);
        if shared
            .threads
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_err()
        {
            return;
        }
        shared.reading_since_ms.store(0, Ordering::Relaxed);
        let started = std::thread::Builder::new()
            .name("kura-processes".into())
            .spawn(move || shared.serve());
        if let Err(error) = started {
            self.shared.threads.fetch_sub(1, Ordering::Relaxed);
            tracing::error!(%error, "no thread to look at processes");
        }
    }
}

impl Shared {
    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64 + 1
    }

    fn serve(&self) {
        // Requests wait for it, so it is not to wait for a CPU itself. Only root may ask for that.
        // SAFETY: changes the calling thread's priority and nothing else.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PRIORITY) };
        while let Ok(question) = self.receiver.recv() {
            let began = self.now_ms();
            self.reading_since_ms.store(began, Ordering::Relaxed);
            let partly = |found: Found| question.set(Some(found), false);
            // Not locked while it reads: a stuck thread must not hold up the next one.
            let mut cache = std::mem::take(&mut *self.cache.lock());
            let found = read::find(
                &mut cache,
                question.thread,
                std::process::id(),
                self.labels.as_ref(),
                &partly,
            );
            *self.cache.lock() = cache;
            question.set(found, true);
            // Another thread may have taken over while this one was stuck.
            let reading = &self.reading_since_ms;
            let _ = reading.compare_exchange(began, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another process than this one, which is the parent of those that it looks at.
    fn look(process: u32) -> Option<Found> {
        read::find(&mut read::Cache::default(), process, 0, None, &|_| {})
    }

    fn ask(processes: &Processes, thread: u32) -> Option<Arc<Found>> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let (found, is_final) = processes.ask(thread).wait_until(deadline);
        assert!(is_final);
        found
    }

    #[test]
    fn a_process_is_found_with_command_ancestors_and_run() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env(RUN_VARIABLE, "r-1")
            .env(STEP_VARIABLE, "7")
            .spawn()
            .unwrap();
        let mut grandchild = std::process::Command::new("sh")
            .args(["-c", "env -i sleep 1000 & echo $!; wait"])
            .env(RUN_VARIABLE, "r-2")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = grandchild.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        let bare: u32 = line.trim().parse().unwrap();
        // Until it has become `sleep`.
        let found = loop {
            let found = look(child.id()).unwrap();
            let bare = look(bare).unwrap();
            if found.process.name == "sleep" && bare.process.name == "sleep" {
                assert_eq!(bare.run.as_ref().unwrap().run, "r-2");
                assert_eq!(bare.process.ancestors[0].0, grandchild.id());
                break found;
            }
        };
        assert_eq!(found.process.command, ["sleep", "1000"]);
        assert_eq!(found.process.pid, child.id());
        assert_eq!(found.process.ancestors[0].0, std::process::id());
        let run = found.run.as_ref().unwrap();
        assert_eq!((run.run.as_str(), run.step), ("r-1", Some(7)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(look(child.id()).is_none());
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(bare as i32),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        grandchild.wait().unwrap();
    }

    #[test]
    fn a_thread_is_found_as_its_process_and_this_one_is_no_author() {
        let processes = Processes::default();
        let thread = std::thread::spawn(nix::unistd::gettid).join().unwrap();
        assert!(ask(&processes, thread.as_raw() as u32).is_none());
        let own = nix::unistd::gettid().as_raw() as u32;
        let found = ask(&processes, own).unwrap();
        assert_eq!(found.process.pid, std::process::id());
        assert!(found.is_system);
    }
}
