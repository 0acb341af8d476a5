//! Reading `/proc`. May block; see the module above.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use workspace_store::actor::Process;
use workspace_store::object::Timestamp;
use workspace_store::runs::{STEP_MAX, is_run_id, kept_command};

use super::{Found, LabelReader, RunPlace};

/// Environment variable with the id of the run that a process belongs to.
pub const RUN_VARIABLE: &str = "KURA_RUN_ID";
/// Environment variable with the number of the step.
pub const STEP_VARIABLE: &str = "KURA_STEP";
/// A control group whose name begins so holds the processes of a step: run and step follow,
/// separated by colons.
pub const CGROUP_PREFIX: &str = "kura-run:";

/// Ancestors that are named.
const ANCESTORS_MAX: usize = 8;
/// Ancestors that are asked for a run.
const ANCESTRY_MAX: usize = 64;
/// Flag of a kernel thread (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// What was read of an ancestor is believed for so long: it may execute another program.
const ANCESTOR_AGE: Duration = Duration::from_secs(1);
/// Ancestors and containers that are remembered.
const CACHE_LENGTH: usize = 4096;

/// What is remembered from one question to the next.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// By pid: when it was read, and what.
    ancestors: HashMap<u32, (Instant, Ancestor)>,
    containers: HashMap<String, Option<RunPlace>>,
    /// When this system was booted, in milliseconds since the epoch.
    boot_ms: Option<u64>,
}

#[derive(Debug, Clone)]
struct Ancestor {
    name: String,
    parent: u32,
    run: Option<RunPlace>,
}

fn read(pid: u32, name: &str) -> Option<Vec<u8>> {
    let path: PathBuf = format!("/proc/{pid}/{name}").into();
    std::fs::read(path).ok()
}

/// What `/proc/PID/stat` says.
struct Stat {
    name: String,
    parent: u32,
    flags: u64,
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&read(pid, "stat")?)
}

fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    // The name may contain anything, parentheses too.
    let open = bytes.iter().position(|byte| *byte == b'(')?;
    let close = bytes.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 2..)?).ok()?;
    let field = |number: usize| rest.split(' ').nth(number - 3);
    Some(Stat {
        name,
        parent: field(4)?.parse().ok()?,
        flags: field(9)?.parse().ok()?,
        start_ticks: field(22)?.parse().ok()?,
    })
}

/// The process that a thread belongs to.
fn process_of(thread: u32) -> Option<u32> {
    let status = read(thread, "status")?;
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

fn command(pid: u32) -> Vec<String> {
    let Some(mut bytes) = read(pid, "cmdline") else {
        return Vec::new();
    };
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Vec::new();
    }
    let words = bytes.split(|byte| *byte == 0);
    kept_command(words.map(|word| String::from_utf8_lossy(word).into_owned()))
}

/// The run that an environment names.
fn run_of_environment(bytes: &[u8]) -> Option<RunPlace> {
    let value = |name: &str| {
        bytes.split(|byte| *byte == 0).find_map(|line| {
            let rest = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(rest).ok()
        })
    };
    run_place(value(RUN_VARIABLE)?, value(STEP_VARIABLE))
}

/// A run as somebody outside named it.
pub(super) fn run_place(run: &str, step: Option<&str>) -> Option<RunPlace> {
    is_run_id(run).then(|| RunPlace {
        run: run.to_owned(),
        step: step
            .and_then(|step| step.parse().ok())
            .filter(|step| *step <= STEP_MAX),
    })
}

/// The run that a control group names: the innermost one.
fn run_of_groups(text: &str) -> Option<RunPlace> {
    let mut names = text.lines().flat_map(|line| line.rsplit('/'));
    let name = names.find_map(|name| name.strip_prefix(CGROUP_PREFIX))?;
    let (run, step) = name.split_once(':')?;
    run_place(run, Some(step))
}

/// The container that a control group belongs to: engines put its id, 64 digits, into the path.
fn container_of_groups(text: &str) -> Option<String> {
    let is_id = |word: &&str| {
        word.len() == 64
            && word
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    text.lines()
        .flat_map(|line| line.rsplit(['/', '-', '.', ':']))
        .find(is_id)
        .map(str::to_owned)
}

impl Cache {
    fn started_ms(&mut self, start_ticks: u64) -> u64 {
        let boot_ms = *self.boot_ms.get_or_insert_with(|| {
            let up = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
            let up_ms = up.map_or(0, |up| {
                up.tv_sec() as u64 * 1000 + up.tv_nsec() as u64 / 1_000_000
            });
            let now_ms = Timestamp::now().as_nanoseconds() / 1_000_000;
            (now_ms as u64).saturating_sub(up_ms)
        });
        // USER_HZ is 100 on every architecture that Kura runs on.
        boot_ms + start_ticks * 10
    }

    fn ancestor(&mut self, pid: u32) -> Option<Ancestor> {
        if let Some((read_at, known)) = self.ancestors.get(&pid)
            && read_at.elapsed() < ANCESTOR_AGE
        {
            return Some(known.clone());
        }
        let stat = stat(pid)?;
        let groups = read(pid, "cgroup").unwrap_or_default();
        let run = run_of_groups(&String::from_utf8_lossy(&groups))
            .or_else(|| run_of_environment(&read(pid, "environ")?));
        let ancestor = Ancestor {
            name: stat.name,
            parent: stat.parent,
            run,
        };
        if self.ancestors.len() >= CACHE_LENGTH {
            self.ancestors.clear();
        }
        self.ancestors
            .insert(pid, (Instant::now(), ancestor.clone()));
        Some(ancestor)
    }
}

/// Finds out about a thread; `own` is the daemon's process, and `partly` is given what is known before what may take longer.
pub(super) fn find(
    cache: &mut Cache,
    thread: u32,
    own: u32,
    labels: Option<&LabelReader>,
    partly: &dyn Fn(Found),
) -> Option<Found> {
    let pid = process_of(thread)?;
    let stat = stat(pid)?;
    let groups = read(pid, "cgroup").unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups);
    let mut found = Found {
        is_system: stat.flags & KERNEL_THREAD != 0 || pid == own || stat.parent == own,
        container: container_of_groups(&groups),
        run: run_of_groups(&groups),
        process: Process {
            pid,
            started_ms: cache.started_ms(stat.start_ticks),
            name: stat.name,
            ..Process::default()
        },
    };
    if found.is_system {
        return Some(found);
    }
    partly(found.clone());
    found.process.command = command(pid);
    if found.run.is_none() {
        found.run = read(pid, "environ").and_then(|bytes| run_of_environment(&bytes));
    }
    partly(found.clone());
    let mut next = stat.parent;
    for depth in 0..ANCESTRY_MAX {
        let is_enough = depth >= ANCESTORS_MAX && found.run.is_some();
        if next == 0 || is_enough {
            break;
        }
        let Some(ancestor) = cache.ancestor(next) else {
            break;
        };
        if depth < ANCESTORS_MAX {
            found.process.ancestors.push((next, ancestor.name));
        }
        if found.run.is_none() {
            found.run = ancestor.run;
        }
        // The daemon's helpers.
        found.is_system |= next == own;
        next = ancestor.parent;
    }
    if found.run.is_none()
        && let (Some(container), Some(labels)) = (&found.container, labels)
    {
        found.run = match cache.containers.get(container) {
            Some(known) => known.clone(),
            None => {
                partly(found.clone());
                let run = labels(container);
                if cache.containers.len() >= CACHE_LENGTH {
                    cache.containers.clear();
                }
                cache.containers.insert(container.clone(), run.clone());
                run
            }
        };
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_confuse_it() {
        let text = "4711 (a) b (c) S 17 4711 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 9";
        let stat = parse_stat(text.as_bytes()).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert_eq!((stat.parent, stat.start_ticks), (17, 123_456));
        assert_eq!(stat.flags, 4_194_560);
    }

    #[test]
    fn control_groups_tell_container_and_run() {
        let id = "0123456789abcdef".repeat(4);
        for line in [
            format!("4:memory:/docker/{id}"),
            format!("0::/system.slice/docker-{id}.scope"),
            format!("0::/kubepods/pod1/cri-containerd-{id}.scope/init"),
        ] {
            assert_eq!(container_of_groups(&line), Some(id.clone()), "{line}");
        }
        assert_eq!(container_of_groups("0::/user.slice"), None);
        let nested = "4:pids:/kura-run:outer:1/kura-run:inner:22\n0::/";
        let run = run_of_groups(nested).unwrap();
        assert_eq!((run.run.as_str(), run.step), ("inner", Some(22)));
        assert_eq!(run_of_groups("0::/kura-run:../x:1"), None);
    }
}
