//! The keeper with real processes: workers are killed, descriptors come back.
//!
//! The workers are this test program itself, run again with `WORKER_ROLE` set.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use computerd::keeper::link::KeeperLink;
use computerd::keeper::{SOCKET_VARIABLE, WorkerCommand, keep};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;
use serde_json::json;

const ROLE: &str = "WORKER_ROLE";
const DIRECTORY: &str = "WORKER_DIRECTORY";
const KEEPER_PID: &str = "keeper.pid";

/// Not a test by itself: what the keeper and the workers of the tests below run.
#[test]
#[ignore = "run by the other tests as a child process"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let directory = std::env::var(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    match role.as_str() {
        "keeper" => {
            let worker_role = std::env::var("NEXT_ROLE").unwrap();
            // SAFETY: libtest runs this single test; nobody reads the environment meanwhile.
            unsafe { std::env::set_var(ROLE, worker_role) };
            let command = WorkerCommand {
                program: std::env::current_exe().unwrap(),
                arguments: child_arguments(),
                inherited: Vec::new(),
            };
            // The keeper has its process for itself, as signals go to any thread: here they
            // would go to libtest's.
            // SAFETY: the C library lets a forked child of a threaded process allocate.
            match unsafe { nix::unistd::fork() }.unwrap() {
                ForkResult::Child => std::process::exit(keep(command).unwrap()),
                ForkResult::Parent { child } => {
                    std::fs::write(directory.join(KEEPER_PID), child.to_string()).unwrap();
                    match waitpid(child, None).unwrap() {
                        WaitStatus::Exited(_, code) => std::process::exit(code),
                        _ => std::process::exit(1),
                    }
                }
            }
        }
        "worker" => worker(directory),
        "broken" => std::process::exit(7),
        other => panic!("{other}"),
    }
}

fn child_arguments() -> Vec<std::ffi::OsString> {
    [
        "--exact",
        "child",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(Into::into)
    .to_vec()
}

/// The first worker makes a file and a pipe, hands both over and waits for its death; each next
/// one appends a line to the inherited file and counts up its state. The third ends on purpose.
fn worker(directory: &Path) -> ! {
    let number = std::env::var(SOCKET_VARIABLE).unwrap().parse().unwrap();
    // SAFETY: the keeper made this descriptor for us.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let (link, inheritance) = KeeperLink::connect(socket).unwrap();
    link.ready();
    let generation = inheritance.restart_count;
    if generation == 0 {
        assert!(inheritance.descriptors.is_empty());
        let file = File::create_new(directory.join("log")).unwrap();
        (&file).write_all(b"generation 0\n").unwrap();
        link.hold(1, json!({"generation": 0}), file.as_fd())
            .unwrap();
        let released = File::create_new(directory.join("released")).unwrap();
        link.hold(2, json!({}), released.as_fd()).unwrap();
        link.release(2);
        link.note("plugin", Some(json!("on")));
    } else {
        assert_eq!(inheritance.descriptors.len(), 1, "the released one is gone");
        let held = &inheritance.descriptors[0];
        assert_eq!(
            (held.id, &held.state["generation"]),
            (1, &json!(generation - 1))
        );
        assert_eq!(inheritance.notes["plugin"], "on");
        assert_eq!(inheritance.keeper_pid, std::os::unix::process::parent_id());
        let file = File::from(held.descriptor.try_clone().unwrap());
        writeln!(&file, "generation {generation}").unwrap();
        link.update(1, json!({"generation": generation})).unwrap();
    }
    if generation == 3 {
        link.stopping();
        std::process::exit(42);
    }
    let pid = std::process::id().to_string();
    std::fs::write(directory.join(format!("pid.{generation}")), pid).unwrap();
    link.wait_for_loss();
    std::process::exit(0)
}

struct Keeper {
    child: Child,
    pid_file: PathBuf,
}

impl Keeper {
    fn start(directory: &Path, worker_role: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(child_arguments())
            .env(ROLE, "keeper")
            .env("NEXT_ROLE", worker_role)
            .env(DIRECTORY, directory)
            .spawn()
            .unwrap();
        Self {
            child,
            pid_file: directory.join(KEEPER_PID),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Its workers end when they notice.
        if let Ok(None) = self.child.try_wait() {
            kill(wait_for_pid(&self.pid_file), libc::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

fn wait_for_pid(path: &Path) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let pid = std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.parse().ok());
        if let Some(pid) = pid {
            return pid;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} did not appear", path.display());
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: kill(2) touches no memory.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn g1_descriptors_survive_killed_workers_and_an_intended_end_ends_the_keeper() {
    let directory = tempfile::tempdir().unwrap();
    let mut keeper = Keeper::start(directory.path(), "worker");
    for generation in 0..3 {
        let pid = wait_for_pid(&directory.path().join(format!("pid.{generation}")));
        kill(pid, libc::SIGKILL);
    }
    let status = keeper.child.wait().unwrap();
    assert_eq!(status.code(), Some(42));
    let mut log = String::new();
    File::open(directory.path().join("log"))
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert_eq!(
        log,
        "generation 0\ngeneration 1\ngeneration 2\ngeneration 3\n"
    );
}

#[test]
fn the_first_worker_s_error_ends_the_keeper_with_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let mut keeper = Keeper::start(directory.path(), "broken");
    assert_eq!(keeper.child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_hangup_is_ignored_and_a_termination_is_passed_on() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::start(directory.path(), "worker");
    let keeper_pid = wait_for_pid(&keeper.pid_file);
    wait_for_pid(&directory.path().join("pid.0"));
    kill(keeper_pid, libc::SIGHUP);
    // This worker has the default action for SIGTERM: it dies and is replaced.
    kill(keeper_pid, libc::SIGTERM);
    wait_for_pid(&directory.path().join("pid.1"));
}
