//! Starts computerd when a verb needs it.
//!
//! Two verbs at once are safe: whoever holds the lock file starts it, the other one finds it
//! running. The lock is released by the kernel when its holder ends.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use computerd_api::process::keeper_of;
use computerd_api::v1::ErrorKind;
use computerd_api::{Client, LOG_NAME};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::env::Environment;
use crate::error::{CommandError, Result, kind_of_exit_code};

/// Name of the daemon's program.
const PROGRAM_NAME: &str = "computerd";

/// Name of the lock file in the store's directory.
const LOCK_NAME: &str = "start.lock";

/// How long the daemon may take until its socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a daemon that is there may take to start its worker again: its longest pause between
/// attempts, and as long to take over.
const RESTART_TIMEOUT: Duration = Duration::from_secs(20);

/// How often we look.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How much of the log an error shows.
const SHOWN_LOG_LINES: usize = 8;
const SHOWN_LOG_BYTES: u64 = 8 << 10;

/// Starts the daemon of `store` unless `client` reaches one, and waits until it answers.
///
/// # Errors
/// If the program is missing, ends at once or doesn't answer in time; with the end of its log.
pub async fn start(store: &Path, client: &Client, environment: &Environment) -> Result<()> {
    let program = find_program(environment)?;
    let log_path = store.join(LOG_NAME);
    for directory in [store, log_path.parent().unwrap_or(store)] {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| {
                CommandError::io(format!("make directory {}", directory.display()), &error)
            })?;
    }
    // Before the lock, for which others would not wait so long.
    if wait_for_restart(store, client).await? {
        return Ok(());
    }
    let deadline = Instant::now() + START_TIMEOUT;
    let _lock = lock(&store.join(LOCK_NAME), deadline).await?;
    if client.is_running().await? {
        return Ok(());
    }
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|error| CommandError::io(format!("open {}", log_path.display()), &error))?;
    let log_start_bytes = log.metadata().map_or(0, |metadata| metadata.len());
    let mut child = spawn(&program, store, &log)?;
    let Some(failure) = wait(&mut child, client, deadline).await? else {
        return Ok(());
    };
    let (reason, hint) = match &failure {
        Failure::Ended(status) => {
            let log = log_end(&log_path, log_start_bytes);
            match last_words(&log) {
                Some((message, hint)) => (message, hint),
                None => (format!("it ended at once ({status}){}", indent(&log)), None),
            }
        }
        Failure::Silent => {
            let limit = START_TIMEOUT.as_secs();
            let log = indent(&log_end(&log_path, log_start_bytes));
            let reason = format!("its socket didn't answer within {limit} s{log}");
            (reason, None)
        }
    };
    Err(CommandError::with_hint(
        failure.kind(),
        format!("start computerd for {}: {reason}", store.display()),
        hint.unwrap_or_else(|| "`kura daemon logs` shows more of its log".to_owned()),
    ))
}

/// Waits for the worker of a daemon that is there, which may have died a moment ago; whether one
/// answers.
///
/// # Errors
/// `Unavailable` if the daemon is there and its worker doesn't come.
pub async fn wait_for_restart(store: &Path, client: &Client) -> Result<bool> {
    let deadline = Instant::now() + RESTART_TIMEOUT;
    loop {
        // In this order: a keeper that ends after its worker answered is no matter.
        let keeper = keeper_of(store);
        if client.is_running().await? {
            return Ok(true);
        }
        let Some(pid) = keeper else {
            return Ok(false);
        };
        if Instant::now() >= deadline {
            let limit = RESTART_TIMEOUT.as_secs();
            return Err(CommandError::with_hint(
                ErrorKind::Unavailable,
                format!(
                    "reach computerd (pid {pid}) of {}: its worker has not answered for {limit} s",
                    store.display()
                ),
                format!(
                    "`kura daemon logs` says why; what was written is safe, and `kill {pid}` ends \
                     the daemon"
                ),
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Why the daemon doesn't answer.
#[derive(Debug)]
enum Failure {
    /// It ended with an error.
    Ended(ExitStatus),
    /// It didn't answer in time.
    Silent,
}

impl Failure {
    /// computerd ends with the exit codes that kura has too.
    fn kind(&self) -> ErrorKind {
        match self {
            Failure::Ended(status) => status
                .code()
                .map_or(ErrorKind::Unavailable, kind_of_exit_code),
            Failure::Silent => ErrorKind::Unavailable,
        }
    }
}

/// Waits until the socket answers; `None` when it does.
async fn wait(child: &mut Child, client: &Client, deadline: Instant) -> Result<Option<Failure>> {
    loop {
        if client.is_running().await? {
            return Ok(None);
        }
        // Success means that it went to the background, or found another one that is starting.
        match child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                return Ok(Some(Failure::Ended(status)));
            }
            _ => {}
        }
        if Instant::now() >= deadline {
            return Ok(Some(Failure::Silent));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn spawn(program: &Path, store: &Path, log: &File) -> Result<Child> {
    let clone = |file: &File| {
        file.try_clone()
            .map_err(|error| CommandError::io("duplicate the log's descriptor", &error))
    };
    let mut command = Command::new(program);
    command
        .arg("--store")
        .arg(store)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(clone(log)?)
        .stderr(clone(log)?);
    // SAFETY: setsid is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            // Away from our terminal and its signals.
            nix::unistd::setsid()?;
            Ok(())
        });
    }
    command.spawn().map_err(|error| {
        CommandError::with_hint(
            ErrorKind::Unavailable,
            format!("start {}: {error}", program.display()),
            "KURA_COMPUTERD names the program of the daemon",
        )
    })
}

/// The daemon's program: `KURA_COMPUTERD`, else next to this program, else in `PATH`.
fn find_program(environment: &Environment) -> Result<PathBuf> {
    if let Some(program) = &environment.computerd {
        return crate::context::absolute(program);
    }
    let own = std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.join(PROGRAM_NAME)));
    own.filter(|program| is_executable(program))
        .or_else(|| find_in_path(environment.path.as_deref()?))
        .ok_or_else(|| {
            CommandError::with_hint(
                ErrorKind::Unavailable,
                "find the program computerd: it is neither next to kura nor in PATH",
                "install it, or set KURA_COMPUTERD to its path",
            )
        })
}

fn find_in_path(path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(PROGRAM_NAME))
        .find(|program| is_executable(program))
}

fn is_executable(program: &Path) -> bool {
    program
        .metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

async fn lock(path: &Path, deadline: Instant) -> Result<Flock<File>> {
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| CommandError::io(format!("open {}", path.display()), &error))?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file = back,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(CommandError::with_hint(
                    ErrorKind::Busy,
                    format!(
                        "lock {}: another kura is starting the daemon",
                        path.display()
                    ),
                    "try again",
                ));
            }
            Err((_, errno)) => {
                return Err(CommandError::io(
                    format!("lock {}", path.display()),
                    &errno.into(),
                ));
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The end of the log since `start_bytes`; empty if it can't be read.
fn log_end(path: &Path, start_bytes: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        // A log that is shorter than before was begun anew by the daemon.
        let begin = if start_bytes <= length {
            start_bytes
        } else {
            0
        };
        file.seek(SeekFrom::Start(
            begin.max(length.saturating_sub(SHOWN_LOG_BYTES)),
        ))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// What computerd says when it ends with an error: `computerd: MESSAGE`, then `hint: HINT`.
fn last_words(log: &str) -> Option<(String, Option<String>)> {
    let (_, tail) = log.rsplit_once("computerd: ").filter(|(before, _)| {
        // At the beginning of a line, else it is part of another message.
        before.is_empty() || before.ends_with('\n')
    })?;
    let (message, rest) = tail.split_once('\n').unwrap_or((tail, ""));
    let hint = rest.lines().find_map(|line| line.strip_prefix("hint: "));
    Some((message.to_owned(), hint.map(str::to_owned)))
}

/// The last lines, each on a line of its own and indented.
fn indent(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let skip = lines.len().saturating_sub(SHOWN_LOG_LINES);
    lines[skip..]
        .iter()
        .map(|line| format!("\n  {line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_files_in_absolute_directories_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("computerd");
        let path = std::env::join_paths([Path::new("."), directory.path()]).unwrap();
        assert_eq!(find_in_path(&path), None);
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        assert_eq!(find_in_path(&path), None);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_in_path(&path), Some(program));
    }

    #[tokio::test]
    async fn a_daemon_that_ends_is_reported_with_the_end_of_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("computerd");
        std::fs::write(
            &program,
            "#!/bin/sh\necho \"no luck with $2\" >&2\nexit 6\n",
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let store = directory.path().join("store");
        let client = Client::new(store.join(computerd_api::SOCKET_NAME));
        let environment = Environment {
            computerd: Some(program),
            ..Environment::default()
        };
        let error = start(&store, &client, &environment).await.unwrap_err();
        assert_eq!(error.exit_code(), ErrorKind::Unavailable.exit_code());
        let CommandError::Failed(body) = error else {
            panic!("{error:?}");
        };
        assert!(body.message.contains("exit status: 6"), "{}", body.message);
        let line = format!("\n  no luck with {}", store.display());
        assert!(body.message.ends_with(&line), "{}", body.message);
    }

    #[test]
    fn the_last_words_of_the_daemon_are_its_error() {
        let log = "{\"level\":\"ERROR\"}\ncomputerd: open /s/kura.db: format 1000\nhint: update\n";
        let (message, hint) = last_words(log).unwrap();
        assert_eq!(message, "open /s/kura.db: format 1000");
        assert_eq!(hint.as_deref(), Some("update"));
        assert_eq!(last_words("INFO start computerd: now\n"), None);
        assert_eq!(last_words(""), None);
    }
}
