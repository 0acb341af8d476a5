//! A store in a directory of its own on the real disk, its daemon and its mounts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::odd_tree::make_small_project;
use crate::process::{Run, run, wait_until};
use crate::repository::binary;

/// What the log says when a change that was acknowledged can't be carried out in a replay.
const LOST_CHANGE: &str = "a checked change could not be applied";

/// Longest wait for a daemon to end or to be there again.
const DAEMON_WAIT: Duration = Duration::from_secs(30);

/// A store; its daemon ends and its mounts go when it is dropped.
#[derive(Debug)]
pub struct TestStore {
    directory: TempDir,
    store: PathBuf,
}

/// The two processes of a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonProcesses {
    /// Serves requests.
    pub worker: i32,
    /// Keeps the mounts over a crash of the worker.
    pub keeper: i32,
}

/// A mounted workspace.
#[derive(Debug)]
pub struct TestMount {
    /// Where it is mounted.
    pub path: PathBuf,
}

impl TestMount {
    /// Path of something in the mount.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }
}

impl TestStore {
    /// A new store below `/var/tmp`.
    pub fn new() -> Self {
        Self::below(Path::new("/var/tmp"))
    }

    /// A store with the workspace `demo`, made from a few ordinary files; and their directory.
    pub fn with_small_project() -> (Self, PathBuf) {
        let store = Self::new();
        let project = store.scratch_directory("project");
        make_small_project(&project);
        store.init("demo", Some(&project));
        (store, project)
    }

    /// A new store on the file system that holds `directory`.
    pub fn below(directory: &Path) -> Self {
        let directory = new_directory(directory);
        let store = directory.path().join("store");
        Self { directory, store }
    }

    /// A store that is there already; its mounts and scratch files are elsewhere.
    pub fn existing(store: PathBuf) -> Self {
        let directory = new_directory(Path::new("/var/tmp"));
        Self { directory, store }
    }

    /// Directory of the store.
    pub fn path(&self) -> &Path {
        &self.store
    }

    /// A new directory or file name for this test, outside the store; nothing is made there.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new directory for this test, outside the store.
    pub fn scratch_directory(&self, name: &str) -> PathBuf {
        let path = self.scratch(name);
        fs::create_dir_all(&path).expect("a scratch directory");
        path
    }

    /// The command `kura` with this store, ready for arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary("kura"));
        command
            .env("KURA_STORE", &self.store)
            .env("HOME", self.directory.path())
            .env("NO_COLOR", "1")
            .env_remove("XDG_DATA_HOME")
            .current_dir(self.directory.path());
        command
    }

    /// Runs `kura` with the given arguments.
    pub fn kura<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Run {
        run(self.command().args(arguments))
    }

    /// Runs `kura`, which must succeed.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Run {
        self.kura(arguments).ok()
    }

    /// Runs `kura … --json`, which must succeed and print one object.
    #[track_caller]
    pub fn json<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Value {
        let run = run(self.command().args(arguments).arg("--json")).ok();
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
    }

    /// Makes a workspace, empty or from a directory or tar file.
    #[track_caller]
    pub fn init(&self, name: &str, from: Option<&Path>) {
        let mut command = self.command();
        command.args(["init", name]);
        if let Some(from) = from {
            command.arg("--from").arg(from);
        }
        let _ = run(&mut command).ok();
    }

    /// Mounts a workspace on a new directory.
    #[track_caller]
    pub fn mount(&self, what: &str) -> TestMount {
        self.mount_with(what, &[])
    }

    /// Mounts a workspace with more arguments.
    #[track_caller]
    pub fn mount_with(&self, what: &str, arguments: &[&str]) -> TestMount {
        let mounts = self.scratch_directory("mounts");
        let path = (0..)
            .map(|number| mounts.join(number.to_string()))
            // Not `exists`: it is false for a dead mount.
            .find(|path| {
                fs::symlink_metadata(path)
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
            })
            .expect("numbers do not end");
        fs::create_dir(&path).expect("a mount point");
        let _ = run(self
            .command()
            .args(["mount", what])
            .arg(&path)
            .args(arguments))
        .ok();
        assert!(
            is_mounted(&path),
            "`kura mount` succeeded but {} is not mounted",
            path.display()
        );
        TestMount { path }
    }

    /// Unmounts, which commits.
    #[track_caller]
    pub fn unmount(&self, mount: &TestMount) {
        let _ = run(self.command().arg("umount").arg(&mount.path)).ok();
        assert!(!is_mounted(&mount.path), "still mounted");
    }

    /// From now on nothing is committed but what the test commits.
    #[track_caller]
    pub fn commit_by_hand(&self, name: &str) {
        self.ok(&["config", "set", "-w", name, "commit.auto", "false"]);
    }

    /// Runs `kura` in a directory of a mount.
    pub fn kura_in<S: AsRef<OsStr>>(&self, directory: &Path, arguments: &[S]) -> Run {
        run(self.command().args(arguments).current_dir(directory))
    }

    /// The newest commit of a workspace.
    #[track_caller]
    pub fn head(&self, name: &str) -> String {
        self.log_ids(name).swap_remove(0)
    }

    /// Commits a workspace and gives the id.
    #[track_caller]
    pub fn commit(&self, name: &str, message: &str) -> String {
        let run = self.ok(&["commit", name, "-m", message]);
        let id = run.last_line().to_owned();
        assert!(
            id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "the last line is not a commit id: {run}"
        );
        id
    }

    /// Ids of a workspace's commits, newest first.
    #[track_caller]
    pub fn log_ids(&self, name: &str) -> Vec<String> {
        let run = self.ok(&["log", name, "--ids"]);
        let ids: Vec<String> = run.stdout.lines().map(str::to_owned).collect();
        assert!(!ids.is_empty(), "no commit in the log: {run}");
        ids
    }

    /// Changed paths as (letter, path), renames as a deletion and an addition.
    #[track_caller]
    pub fn changes(&self, arguments: &[&str]) -> Vec<(char, String)> {
        let run = run(self
            .command()
            .arg("diff")
            .args(arguments)
            .args(["--name-status", "--no-renames"]))
        .ok();
        let mut changes: Vec<(char, String)> = run
            .stdout
            .lines()
            .filter_map(|line| {
                let (letter, path) = line.split_once('\t')?;
                Some((letter.chars().next()?, path.to_owned()))
            })
            .collect();
        changes.sort();
        changes
    }

    /// The processes of the running daemon; waits while a killed worker is being replaced.
    #[track_caller]
    pub fn daemon(&self) -> DaemonProcesses {
        let mut found = None;
        wait_until("the daemon answers", DAEMON_WAIT, || {
            let run = self.kura(&["daemon", "status", "--json"]);
            let Ok(status) = serde_json::from_str::<Value>(&run.stdout) else {
                return false;
            };
            let number = |key| find_number(&status, key).and_then(|pid| i32::try_from(pid).ok());
            found = number("pid").zip(number("keeper_pid"));
            found.is_some()
        });
        let (worker, keeper) = found.expect("waited for it");
        DaemonProcesses { worker, keeper }
    }

    /// Kills the worker as a crash would; the keeper starts a new one.
    #[track_caller]
    pub fn kill_worker(&self) {
        let processes = self.daemon();
        // It may have ended by itself in between.
        let _ = kill(Pid::from_raw(processes.worker), Signal::SIGKILL);
    }

    /// Kills keeper and worker, waits until both are gone and clears the dead mounts.
    #[track_caller]
    pub fn kill_daemon(&self) {
        let processes = self.daemon();
        kill(Pid::from_raw(processes.keeper), Signal::SIGKILL).expect("the keeper runs");
        // The worker may have gone with its keeper.
        let _ = kill(Pid::from_raw(processes.worker), Signal::SIGKILL);
        for pid in [processes.keeper, processes.worker] {
            wait_until("a killed process ends", DAEMON_WAIT, || has_ended(pid));
        }
    }

    /// Ends the daemon cleanly, if it runs.
    pub fn stop_daemon(&self) -> Run {
        self.kura(&["daemon", "stop"])
    }
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if self.store.exists() {
            let pids = processes_of(&self.store);
            let _ = self.kura(&["daemon", "stop", "--force"]);
            for pid in pids {
                for _ in 0..250 {
                    if has_ended(pid) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                if !has_ended(pid) {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
        }
        for mountpoint in mounts_below(self.directory.path()).into_iter().rev() {
            let _ = nix::mount::umount2(&mountpoint, nix::mount::MntFlags::MNT_DETACH);
        }
        let log = self.store.join("log/computerd.log");
        if std::thread::panicking() {
            show_log(&log);
        } else if let Ok(text) = fs::read_to_string(&log) {
            let lost = text.lines().find(|line| line.contains(LOST_CHANGE));
            assert!(lost.is_none(), "a change was lost: {lost:?}");
        }
    }
}

fn new_directory(parent: &Path) -> TempDir {
    tempfile::Builder::new()
        .prefix("kura-test-")
        .tempdir_in(parent)
        .expect("a directory for the test")
}

#[expect(
    clippy::print_stderr,
    reason = "the log of a failed test is for its reader"
)]
fn show_log(path: &Path) {
    let Ok(log) = fs::read_to_string(path) else {
        return;
    };
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(40)..] {
        eprintln!("computerd.log: {line}");
    }
}

/// Whether something is mounted exactly there.
fn is_mounted(path: &Path) -> bool {
    mounts_below(path)
        .iter()
        .any(|mountpoint| mountpoint == path)
}

/// Mount points at and below a path, in the order in which they were mounted.
fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mounts").unwrap_or_default();
    table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(1))
        .map(|field| PathBuf::from(OsStr::from_bytes(field)))
        .filter(|mountpoint| mountpoint.starts_with(path))
        .collect()
}

/// Processes whose command line names the store.
fn processes_of(store: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            // The command line of a process that waits for a mount can't be read: only of ours.
            let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name != b"computerd\n" {
                return false;
            }
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0)
                .any(|argument| argument == store.as_os_str().as_bytes())
        })
        .collect()
}

fn has_ended(pid: i32) -> bool {
    if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) {
        return true;
    }
    // A process whose parent has not yet asked for its end.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .map(|stat| {
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with('Z'))
        })
        .unwrap_or(true)
}

fn find_number(value: &Value, key: &str) -> Option<u64> {
    match value {
        Value::Object(map) => map
            .get(key)
            .and_then(Value::as_u64)
            .or_else(|| map.values().find_map(|inner| find_number(inner, key))),
        Value::Array(list) => list.iter().find_map(|inner| find_number(inner, key)),
        _ => None,
    }
}
