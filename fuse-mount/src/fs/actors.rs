//! Who changes the filesystem: actors by number, found by the threads that send requests.
//!
//! [`Threads`] has a lock of its own, taken before the state's and for a map lookup only. A thread
//! that is new, or was looked up a while ago, is asked for while its request waits, for
//! [`WAIT`] at most: it can't end meanwhile. Numbers are valid for one [`super::Filesystem`]; the
//! journal carries them over to the next one together with what they stand for.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use workspace_store::actor::{Actor, Process};

use crate::process::{Processes, Question};

/// A request of a thread that nobody knows waits for so long at most.
const WAIT: Duration = Duration::from_millis(25);
/// A thread is asked for anew after this: it may be another one, or execute another program.
const BELIEVED: Duration = Duration::from_millis(250);
/// All waits together take at most this part of the time …
const WAITING_SHARE: u32 = 4;
/// … counted over so much waiting.
const WAITING_MAX: Duration = Duration::from_millis(250);
/// Threads and actors that are remembered before those not used any more are forgotten.
const REMEMBERED: usize = 4096;

/// An actor by its number.
#[derive(Debug)]
pub(crate) struct Who {
    /// Number; 0 for nobody.
    pub(crate) number: u32,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    actor: Arc<Actor>,
    /// The kernel or the daemon itself.
    is_system: bool,
    /// More may become known.
    question: Option<Arc<Question>>,
}

impl Who {
    /// Somebody of whom nothing is known.
    pub(crate) fn nobody() -> Arc<Self> {
        static NOBODY: LazyLock<Arc<Who>> =
            LazyLock::new(|| Arc::new(Who::new(0, Arc::default(), false, None)));
        Arc::clone(&NOBODY)
    }

    /// Somebody whom the journal tells of.
    pub(crate) fn stored(number: u32, actor: Actor) -> Arc<Self> {
        Arc::new(Self::new(number, Arc::new(actor), false, None))
    }

    fn new(
        number: u32,
        actor: Arc<Actor>,
        is_system: bool,
        question: Option<Arc<Question>>,
    ) -> Self {
        let known = Known {
            actor,
            is_system,
            question,
        };
        Self {
            number,
            known: Mutex::new(known),
        }
    }

    /// Whether changes have another author than this: unknown, the kernel, or the daemon.
    pub(crate) fn is_no_author(&self) -> bool {
        self.number == 0 || self.known.lock().is_system
    }

    /// Whether the process was found, at least in part.
    pub(crate) fn is_found(&self) -> bool {
        self.refresh(Instant::now());
        let known = self.known.lock();
        let process = known.actor.process.as_ref();
        process.is_some_and(|process| !process.name.is_empty())
    }

    /// Takes in what became known until `deadline`.
    fn refresh(&self, deadline: Instant) {
        let question = self.known.lock().question.clone();
        let Some(question) = question else {
            return;
        };
        let (found, is_final) = question.wait_until(deadline);
        let mut known = self.known.lock();
        if let Some(found) = found {
            known.is_system = found.is_system;
            known.actor = Arc::new(found.to_actor(&known.actor.principal));
        }
        if is_final {
            known.question = None;
        }
    }

    /// What is known by now, and whether that is all.
    pub(crate) fn actor(&self) -> (Arc<Actor>, bool) {
        self.refresh(Instant::now());
        let known = self.known.lock();
        (Arc::clone(&known.actor), known.question.is_none())
    }
}

/// The threads that send requests.
#[derive(Debug)]
pub(crate) struct Threads {
    processes: Arc<Processes>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    principals: Vec<Arc<str>>,
    by_thread: HashMap<(u32, u32), Entry>,
    by_actor: HashMap<Arc<Actor>, Arc<Who>>,
    last_number: u32,
    /// How long requests may still wait, by the time of the last look.
    may_wait: Duration,
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    who: Arc<Who>,
    since: Instant,
}

impl Threads {
    /// Knows nobody; new numbers are greater than `last_number`.
    pub(crate) fn new(processes: Arc<Processes>, principal: &str, last_number: u32) -> Self {
        let table = Table {
            principals: vec![principal.into()],
            last_number,
            ..Table::default()
        };
        Self {
            processes,
            table: Mutex::new(table),
        }
    }

    /// The number of a principal for [`Threads::find`]; 0 is the filesystem's own.
    pub(crate) fn principal(&self, name: &str) -> u32 {
        let principals = &mut self.table.lock().principals;
        let known = principals.iter().position(|known| **known == *name);
        let position = known.unwrap_or_else(|| {
            principals.push(name.into());
            principals.len() - 1
        });
        position as u32
    }

    /// Who a thread is that sends a request for a principal. May wait for [`WAIT`].
    pub(crate) fn find(&self, principal: u32, thread: u32) -> Arc<Who> {
        let key = (principal, thread);
        let now = Instant::now();
        let (name, may_wait) = {
            let mut table = self.table.lock();
            if let Some(entry) = table.by_thread.get(&key)
                && now.duration_since(entry.since) < BELIEVED
            {
                return Arc::clone(&entry.who);
            }
            let name = table.principals.get(principal as usize).cloned();
            (name.unwrap_or_default(), table.time_to_wait(now))
        };
        let question = self.processes.ask(thread);
        let (found, is_final) = question.wait_until(now + may_wait);
        let mut table = self.table.lock();
        table.may_wait = table.may_wait.saturating_sub(now.elapsed());
        let (actor, is_system) = match &found {
            Some(found) => (found.to_actor(&name), found.is_system),
            None => (unknown(&name, thread), false),
        };
        let who = table.who(actor, is_system, (!is_final).then_some(question));
        let who_then = Arc::clone(&who);
        table.by_thread.insert(
            key,
            Entry {
                who,
                since: Instant::now(),
            },
        );
        table.forget_unused();
        who_then
    }

    /// Waits until `deadline` for what is not known yet of those who made changes.
    pub(crate) fn finish(&self, deadline: Instant) {
        let waiting: Vec<Arc<Who>> = {
            let table = self.table.lock();
            let all = table.by_thread.values().map(|entry| &entry.who);
            all.filter(|who| who.known.lock().question.is_some())
                .cloned()
                .collect()
        };
        for who in waiting {
            who.refresh(deadline);
        }
    }
}

impl Table {
    /// How long a request may wait now.
    fn time_to_wait(&mut self, now: Instant) -> Duration {
        let since = self.looked.map_or(WAITING_MAX * WAITING_SHARE, |looked| {
            now.duration_since(looked)
        });
        self.looked = Some(now);
        self.may_wait = (self.may_wait + since / WAITING_SHARE).min(WAITING_MAX);
        self.may_wait.min(WAIT)
    }

    fn who(&mut self, actor: Actor, is_system: bool, question: Option<Arc<Question>>) -> Arc<Who> {
        if let (None, Some(known)) = (&question, self.by_actor.get(&actor)) {
            return Arc::clone(known);
        }
        self.last_number += 1;
        let actor = Arc::new(actor);
        let is_complete = question.is_none();
        let who = Arc::new(Who::new(
            self.last_number,
            Arc::clone(&actor),
            is_system,
            question,
        ));
        if is_complete {
            self.by_actor.insert(actor, Arc::clone(&who));
        }
        who
    }

    fn forget_unused(&mut self) {
        if self.by_thread.len() > REMEMBERED {
            self.by_thread
                .retain(|_, entry| entry.since.elapsed() < BELIEVED);
        }
        if self.by_actor.len() > 2 * REMEMBERED {
            self.by_actor.retain(|_, who| Arc::strong_count(who) > 1);
        }
    }
}

fn unknown(principal: &str, thread: u32) -> Actor {
    Actor {
        process: Some(Process {
            pid: thread,
            ..Process::default()
        }),
        ..Actor::of_principal(principal)
    }
}

/// Who made the changes that the state holds, and what the journal knows of them.
#[derive(Debug)]
pub(crate) struct Actors {
    known: HashMap<u32, Noted>,
    /// Makes the change that is recorded next.
    current: Arc<Who>,
    /// Whom the journal takes for the author of its next record; `None` at its begin.
    in_journal: Option<u32>,
}

#[derive(Debug)]
struct Noted {
    who: Arc<Who>,
    /// The epoch in which the journal was told last, and whether it was told all.
    told: Option<(u32, bool)>,
}

impl Default for Actors {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            current: Who::nobody(),
            in_journal: None,
        }
    }
}

impl Actors {
    /// Number of who makes the change that is recorded next.
    pub(crate) fn current(&self) -> u32 {
        self.current.number
    }

    /// From now on this one makes the changes.
    pub(crate) fn begin(&mut self, who: &Arc<Who>) {
        if self.current.number != who.number {
            self.add(who);
            self.current = Arc::clone(who);
        }
    }

    /// Remembers somebody.
    pub(crate) fn add(&mut self, who: &Arc<Who>) {
        if who.number != 0 {
            self.known.entry(who.number).or_insert_with(|| Noted {
                who: Arc::clone(who),
                told: None,
            });
        }
    }

    /// The one with this number; nobody if it is forgotten.
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<Who>> {
        self.known.get(&number).map(|noted| &noted.who)
    }

    /// The greatest number.
    pub(crate) fn last_number(&self) -> u32 {
        self.known.keys().copied().max().unwrap_or(0)
    }

    /// What the journal must be told before the next record: the number of its author and, if it
    /// doesn't know that one, who it is.
    pub(crate) fn to_tell(&self, epoch: u32) -> Option<(u32, Vec<u8>)> {
        let number = self.current.number;
        let is_author = self.in_journal == Some(number);
        let Some(noted) = self.known.get(&number) else {
            return (!is_author && self.in_journal.is_some()).then(|| (number, Vec::new()));
        };
        let is_told = match noted.told {
            Some((told, true)) => told == epoch,
            Some((told, false)) => told == epoch && !noted.who.actor().1,
            None => false,
        };
        if is_told {
            return (!is_author).then(|| (number, Vec::new()));
        }
        Some((number, noted.who.actor().0.to_bytes()))
    }

    /// The journal was told.
    pub(crate) fn mark_told(&mut self, epoch: u32, number: u32, is_described: bool) {
        self.in_journal = Some(number);
        if is_described && let Some(noted) = self.known.get_mut(&number) {
            noted.told = Some((epoch, noted.who.actor().1));
        }
    }

    /// The journal begins a segment that a replay may start at.
    pub(crate) fn begin_segment(&mut self) {
        self.in_journal = None;
    }

    /// Takes in what the journal tells.
    pub(crate) fn replay(&mut self, number: u32, description: &[u8]) {
        if !description.is_empty() {
            match Actor::from_bytes(description) {
                Ok(actor) => {
                    let who = Who::stored(number, actor);
                    self.known.insert(number, Noted { who, told: None });
                }
                Err(error) => tracing::error!(%error, "the journal's description of an actor"),
            }
        }
        let known = self.get(number).cloned();
        self.current = known.unwrap_or_else(Who::nobody);
    }

    /// The replay is over: nobody's change is recorded next.
    pub(crate) fn end_replay(&mut self) {
        self.current = Who::nobody();
        self.begin_segment();
    }

    /// Forgets those whom no change needs any more, if they have become many.
    pub(crate) fn forget_unused(&mut self, is_used: impl Fn(u32) -> bool) {
        if self.known.len() <= REMEMBERED {
            return;
        }
        let newest = self.last_number().saturating_sub(REMEMBERED as u32 / 2);
        let current = self.current.number;
        self.known
            .retain(|number, _| *number > newest || *number == current || is_used(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_process_are_one_actor_and_principals_are_not() {
        let threads = Threads::new(Arc::default(), "ada", 0);
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let bob = threads.principal("bob");
        let long = Instant::now() + Duration::from_secs(10);
        let mut actors = Vec::new();
        for principal in [0, bob] {
            let who = threads.find(principal, child.id());
            who.refresh(long);
            // A child of this process, which is the daemon here.
            assert!(who.is_no_author());
            actors.push(who.actor().0);
        }
        assert_eq!(actors[0].principal, "ada");
        assert_eq!(actors[1].principal, "bob");
        assert_eq!(actors[0].process.as_ref().unwrap().pid, child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        // Another thread of this process is the same actor.
        let (send, receive) = std::sync::mpsc::channel();
        let (end, until) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            send.send(nix::unistd::gettid()).unwrap();
            let _ = until.recv();
        });
        let ids = [nix::unistd::gettid(), receive.recv().unwrap()];
        let numbers = ids.map(|id| {
            // One that is found late has a number of its own.
            loop {
                let who = threads.find(0, id.as_raw() as u32);
                let mut table = threads.table.lock();
                if table
                    .by_actor
                    .values()
                    .any(|known| Arc::ptr_eq(known, &who))
                {
                    return who.number;
                }
                assert!(Instant::now() < long, "{id} is not found");
                table.by_thread.clear();
            }
        });
        assert_eq!(numbers[0], numbers[1]);
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn the_journal_is_told_once_of_each_and_again_in_a_new_segment() {
        let mut actors = Actors::default();
        assert_eq!(actors.to_tell(1), None);
        let ada = Who::stored(1, Actor::of_principal("ada"));
        let bob = Who::stored(2, Actor::of_principal("bob"));
        let tell = |actors: &mut Actors, epoch, who: &Arc<Who>| {
            actors.begin(who);
            let told = actors.to_tell(epoch);
            if let Some((number, description)) = &told {
                actors.mark_told(epoch, *number, !description.is_empty());
            }
            told.map(|(number, description)| (number, !description.is_empty()))
        };
        assert_eq!(tell(&mut actors, 1, &ada), Some((1, true)));
        assert_eq!(tell(&mut actors, 1, &ada), None);
        assert_eq!(tell(&mut actors, 1, &bob), Some((2, true)));
        assert_eq!(tell(&mut actors, 1, &ada), Some((1, false)));
        assert_eq!(tell(&mut actors, 1, &Who::nobody()), Some((0, false)));
        actors.begin_segment();
        assert_eq!(tell(&mut actors, 2, &Who::nobody()), None);
        assert_eq!(tell(&mut actors, 2, &ada), Some((1, true)));
    }
}
