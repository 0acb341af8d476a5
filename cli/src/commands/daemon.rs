//! `daemon`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use computerd_api::process::{is_alive, keeper_of};
use computerd_api::v1::{DaemonStatus, ErrorBody, ErrorKind, StopRequest};
use computerd_api::{Client, LOG_NAME};

use crate::args::daemon::{DaemonArgs, DaemonCommand, DaemonLogsArgs};
use crate::context::{Context, StoreUse};
use crate::error::{CommandError, Result};
use crate::launcher;
use crate::output::sanitize::sanitize;
use crate::output::table::format_bytes;
use crate::output::time::relative;

/// How long a daemon may take to write everything and end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How often we look whether it ended, or its log grew.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// How much of the log is searched for its last lines.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// Starts, stops and looks at the daemon.
pub async fn daemon(context: &Context<'_>, arguments: DaemonArgs) -> Result<()> {
    match arguments.command {
        DaemonCommand::Start(_) => start(context).await,
        DaemonCommand::Stop(arguments) => stop(context, arguments.force).await,
        DaemonCommand::Status(_) => status(context).await,
        DaemonCommand::Logs(arguments) => logs(context, arguments).await,
    }
}

async fn start(context: &Context<'_>) -> Result<()> {
    let printer = context.printer;
    let was_running = context.client_without_start()?.is_running().await?;
    let client = context.client_for(StoreUse::CreateIfAbsent).await?;
    let status = client.daemon_status().await?;
    if printer.is_json() {
        return printer.json("daemon_status", &status);
    }
    let what = if was_running {
        "runs already"
    } else {
        "started"
    };
    printer.note(format!("computerd {what} (pid {})", status.pid));
    Ok(())
}

async fn stop(context: &Context<'_>, force: bool) -> Result<()> {
    let printer = context.printer;
    let client = context.client_without_start()?;
    if !launcher::wait_for_restart(&context.store()?, &client).await? {
        if printer.is_json() {
            return printer.json("daemon_stop", &serde_json::json!({ "was_running": false }));
        }
        printer.note("computerd isn't running");
        return Ok(());
    }
    let stopped = client.stop(&StopRequest { force }).await?;
    let pids: Vec<u32> = [Some(stopped.pid), stopped.keeper_pid]
        .into_iter()
        .flatten()
        .collect();
    wait_for_end(&client, &pids).await?;
    if printer.is_json() {
        return printer.json("daemon_stop", &stopped);
    }
    for mount in &stopped.unmounted {
        printer.note(format!("unmounted {}", sanitize(mount.as_bytes())));
    }
    printer.note("computerd ended");
    Ok(())
}

async fn wait_for_end(client: &Client, pids: &[u32]) -> Result<()> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    while client.is_running().await? || pids.iter().any(|pid| is_alive(*pid)) {
        if Instant::now() >= deadline {
            let limit = STOP_TIMEOUT.as_secs();
            return Err(CommandError::with_hint(
                ErrorKind::Busy,
                format!("computerd (pid {pids:?}) has not ended within {limit} s"),
                "it may still be writing; `kura daemon logs` shows what it does",
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn status(context: &Context<'_>) -> Result<()> {
    let printer = context.printer;
    let client = context.client_without_start()?;
    let store = context.store()?;
    if !client.is_running().await? {
        if let Some(keeper) = keeper_of(&store) {
            return Err(CommandError::with_hint(
                ErrorKind::Unavailable,
                format!(
                    "computerd (pid {keeper}) of {} is starting its worker again",
                    store.display()
                ),
                "try again in a moment; `kura daemon logs` says why the last one ended",
            ));
        }
        return Err(CommandError::with_hint(
            ErrorKind::Unavailable,
            format!("computerd of {} isn't running", store.display()),
            "it starts by itself when a verb needs it, or by `kura daemon start`",
        ));
    }
    let status = client.daemon_status().await?;
    if printer.is_json() {
        return printer.json("daemon_status", &status);
    }
    for (name, value) in status_fields(context, &status) {
        printer.line(format!("{name:<14} {value}"))?;
    }
    Ok(())
}

fn status_fields(context: &Context<'_>, status: &DaemonStatus) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("version", status.version.version.clone()),
        ("pid", status.pid.to_string()),
    ];
    if let Some(keeper) = status.keeper_pid {
        fields.push(("keeper", keeper.to_string()));
        fields.push(("restarts", status.restart_count.to_string()));
    }
    fields.push(("since", relative(&status.since, context.now())));
    fields.push(("store", sanitize(status.store.as_bytes())));
    fields.push(("log", sanitize(status.log.as_bytes())));
    fields.push(("workspaces", status.workspace_count.to_string()));
    fields.push(("mounts", status.mount_count.to_string()));
    fields.push(("leases", status.lease_count.to_string()));
    fields.push(("queue", status.queued_commit_count.to_string()));
    if let Some(bytes) = status.memory_bytes {
        fields.push(("memory", format_bytes(bytes)));
    }
    if let Some(socket) = &status.volume_plugin {
        fields.push(("volume plugin", sanitize(socket.as_bytes())));
    }
    fields
}

/// Reads the log file itself, so that it works when the daemon doesn't.
async fn logs(context: &Context<'_>, arguments: DaemonLogsArgs) -> Result<()> {
    let printer = context.printer;
    let path = context.store()?.join(LOG_NAME);
    if arguments.path || printer.is_json() {
        if printer.is_json() {
            let path = computerd_api::v1::PathText::from(path.as_path());
            return printer.json("daemon_log", &serde_json::json!({ "path": path }));
        }
        return printer.line(path.as_os_str().as_encoded_bytes());
    }
    let failed = |error: &std::io::Error| log_error(&path, error);
    let mut file = File::open(&path).map_err(|error| failed(&error))?;
    let length = file.metadata().map_err(|error| failed(&error))?.len();
    let start = length.saturating_sub(MAX_LOG_BYTES);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))
        .and_then(|_| file.read_to_end(&mut bytes))
        .map_err(|error| failed(&error))?;
    printer.write(printer.content(last_lines(&bytes, arguments.lines)))?;
    printer.flush()?;
    if !arguments.follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        bytes.clear();
        file.read_to_end(&mut bytes)
            .map_err(|error| failed(&error))?;
        printer.write(printer.content(&bytes))?;
        printer.flush()?;
    }
}

fn log_error(path: &Path, error: &std::io::Error) -> CommandError {
    match CommandError::io(format!("read {}", path.display()), error) {
        CommandError::Failed(body) if body.kind == ErrorKind::NotFound => {
            let body: ErrorBody = body.with_hint(
                "the daemon of this store was never started; --store DIR chooses another",
            );
            body.into()
        }
        other => other,
    }
}

/// The end of `bytes` with at most `count` lines.
fn last_lines(bytes: &[u8], count: usize) -> &[u8] {
    if count == 0 {
        return &[];
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let breaks = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    match breaks.map(|(at, _)| at).nth(count - 1) {
        Some(at) => &bytes[at + 1..],
        None => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 1), b"c");
        assert_eq!(last_lines(b"a\nb\n", 5), b"a\nb\n");
        assert_eq!(last_lines(b"a\n", 0), b"");
        assert_eq!(last_lines(b"", 3), b"");
    }

    #[test]
    fn a_process_is_alive_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(is_alive(child.id()));
        child.kill().unwrap();
        // A zombie from here on, until it is waited for.
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_alive(child.id()) {
            assert!(Instant::now() < deadline, "the zombie counts as alive");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }
}
