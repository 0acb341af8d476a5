//! Running programs and keeping what they said.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a program did.
#[derive(Debug, Clone)]
pub struct Run {
    /// The command as text, for messages.
    pub command: String,
    /// Exit code; 128 and the signal's number if it was killed.
    pub code: i32,
    /// Standard output, bytes kept in `stdout_bytes`.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Standard output as it came.
    pub stdout_bytes: Vec<u8>,
}

impl Run {
    /// Fails the test unless the program ended with 0.
    #[track_caller]
    pub fn ok(self) -> Run {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// The last line of standard output that is not empty.
    #[track_caller]
    pub fn last_line(&self) -> &str {
        self.stdout
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or_else(|| panic!("no output: {self}"))
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` ended with {}\nstdout: {}\nstderr: {}",
            self.command,
            self.code,
            tail(&self.stdout),
            tail(&self.stderr)
        )
    }
}

fn tail(text: &str) -> &str {
    const SHOWN_BYTES: usize = 4000;
    let mut start = text.len().saturating_sub(SHOWN_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Runs a prepared command without standard input.
pub fn run(command: &mut Command) -> Run {
    use std::os::unix::process::ExitStatusExt;
    let text = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("`{text}` does not start: {error}"));
    let code = output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    Run {
        command: text,
        code,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        stdout_bytes: output.stdout,
    }
}

/// Runs a program that must succeed and gives its standard output.
#[track_caller]
pub fn run_ok<I, S>(program: &str, arguments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    run(Command::new(program).args(arguments)).ok().stdout
}

/// Runs a bash script (`-eu -o pipefail`) in a directory.
pub fn shell(directory: &Path, script: &str) -> Run {
    run(Command::new("bash")
        .args(["-eu", "-o", "pipefail", "-c", script])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "test")
        .env("GIT_AUTHOR_EMAIL", "test@example.invalid")
        .env("GIT_COMMITTER_NAME", "test")
        .env("GIT_COMMITTER_EMAIL", "test@example.invalid")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .current_dir(directory))
}

/// Runs a bash script that must succeed and gives its standard output.
#[track_caller]
pub fn shell_ok(directory: &Path, script: &str) -> String {
    shell(directory, script).ok().stdout
}

/// Sends an HTTP request as it is, with `Connection: close`: status and the whole answer.
pub fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, String) {
    // At once: who is refused by the head of a request need not read its body.
    stream
        .write_all(request.as_bytes())
        .expect("a request is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1);
    let status = status.and_then(|status| status.parse().ok());
    (status.expect("a status"), answer)
}

/// Sets a flag when it goes, also by a panic: what waits for the flag ends then.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until a condition holds; fails the test with `what` after `limit`.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
