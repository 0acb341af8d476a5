//! Running commands, taking times, and what several of them come to.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Run, TestStore, run};

/// Where and how often to measure.
pub(crate) struct Bench {
    scratch: PathBuf,
    pub(crate) repetitions: usize,
}

/// Several times of the same thing, in seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(pub(crate) Vec<f64>);

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => sorted[count / 2],
            count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
        }
    }

    pub(crate) fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn greatest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }
}

/// A store of its own, whose daemon and mounts end with it.
pub(crate) struct Store(TestStore);

impl Bench {
    pub(crate) fn new(scratch: &Path, repetitions: usize) -> Result<Self> {
        ensure!(repetitions > 0, "--repetitions must be at least 1");
        fs::create_dir_all(scratch).with_context(|| format!("make {}", scratch.display()))?;
        Ok(Self {
            scratch: scratch.to_owned(),
            repetitions,
        })
    }

    /// Tells how far we are.
    pub(crate) fn say(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// An empty directory.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// A new store.
    pub(crate) fn store(&self) -> Store {
        Store(TestStore::below(&self.scratch))
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_dir_all(path).with_context(|| format!("remove {}", path.display()))
    }
}

impl Store {
    /// Runs `kura` and gives the time it took.
    pub(crate) fn timed<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Duration> {
        let start = Instant::now();
        self.kura(arguments)?;
        Ok(start.elapsed())
    }

    /// Runs `kura`, which must succeed.
    pub(crate) fn kura<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<()> {
        let run = self.0.kura(arguments);
        ensure!(run.code == 0, "{run}");
        Ok(())
    }

    /// A new directory beside the store.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        self.0.scratch_directory(name)
    }

    /// From now on nothing is committed but what is measured.
    pub(crate) fn commit_by_hand(&self, workspace: &str) {
        self.0.commit_by_hand(workspace);
    }

    /// Mounts a workspace on a new directory.
    pub(crate) fn mount(&self, workspace: &str) -> PathBuf {
        self.0.mount(workspace).path
    }

    /// Memory of the worker that is in use now, in bytes.
    pub(crate) fn memory_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.daemon().worker))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("no VmRSS")?.parse::<u64>()? * 1024)
    }

    /// Space that the database takes, in bytes, with its log.
    pub(crate) fn stored_bytes(&self) -> Result<u64> {
        disk_bytes(self.0.path(), &["kura.db", "kura.db-wal"])
    }
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<Run> {
    let run = run(command);
    ensure!(run.code == 0, "{run}");
    Ok(run)
}

/// Runs a bash script and gives the time it took.
pub(crate) fn shell(directory: &Path, script: &str) -> Result<Duration> {
    let start = Instant::now();
    let run = e2e::shell(directory, script);
    ensure!(run.code == 0, "{run}");
    Ok(start.elapsed())
}

/// Whether a program can be called.
pub(crate) fn is_installed(program: &str) -> bool {
    run(Command::new("sh").args(["-c", &format!("command -v {program}")])).code == 0
}

/// Space on the disk of these names in a directory; those that aren't there count nothing.
pub(crate) fn disk_bytes(directory: &Path, names: &[&str]) -> Result<u64> {
    let mut bytes = 0;
    for name in names {
        let path = directory.join(name);
        if path.exists() {
            let run = succeed(Command::new("du").args(["-s", "-B1"]).arg(&path))?;
            let figure = run.stdout.split_whitespace().next();
            bytes += figure.context("no output of du")?.parse::<u64>()?;
        }
    }
    Ok(bytes)
}
