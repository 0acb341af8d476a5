//! `run`: a command whose changes belong to a run.
//!
//! The command's processes are found by a control group of their own where one can be made, and by
//! the variables in their environment, which their children inherit; who loses both stays a
//! descendant of this process, which adopts orphans while the command runs.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use computerd_api::v1::{ErrorKind, MountInfo, RunBegin, RunBegun, RunEnd};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::args::run::RunArgs;
use crate::context::Context;
use crate::env::{KURA_RUN_ID, KURA_STEP};
use crate::error::{CommandError, ExitStatus, Result};
use crate::output::diff::format_counts;

/// Begins the name of a control group of a step.
const CGROUP_PREFIX: &str = "kura-run:";
/// Exit code if the command can't be started, as shells have it.
const EXIT_NOT_FOUND: i32 = 127;
const EXIT_NOT_EXECUTABLE: i32 = 126;
/// Signals that are passed on to the command.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Runs a command; its exit code is this one's.
pub async fn run(context: &Context<'_>, arguments: RunArgs) -> Result<ExitStatus> {
    let printer = context.printer;
    let client = context.client().await?;
    let here = std::env::current_dir().unwrap_or_default();
    let mounts = client.mounts().await?.mounts;
    let mount = mount_at(&here, &mounts);
    let workspace = arguments
        .workspace
        .or_else(|| mount.map(|mount| mount.workspace.clone()))
        .ok_or_else(|| {
            CommandError::usage(
                "no workspace is mounted at the current directory",
                "name one with --workspace NAME, or change into a mount first",
            )
        })?;
    let mount = mount.filter(|mount| mount.workspace == workspace);
    let principal = arguments
        .principal
        .principal
        .or_else(|| mount.map(|mount| mount.principal.clone()));
    let branch = arguments
        .branch
        .or_else(|| mount.and_then(|mount| mount.branch.clone()));
    let mut command = arguments.command;
    if command.is_empty() {
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        command.push(shell.unwrap_or_else(|| "/bin/sh".into()));
    }
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let request = RunBegin {
        run: arguments
            .run_id
            .or_else(|| context.environment.run_id.clone()),
        step: arguments.step,
        command: words.clone(),
        branch: branch.clone(),
        principal: principal.clone(),
    };
    let begun = client.begin_run(&workspace, &request).await?;
    let group = ControlGroup::make(&begun);
    let outcome = execute(&command, &begun, group.as_ref());
    drop(group);
    let exit_code = match &outcome {
        Ok(code) => *code,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        Err(_) => EXIT_NOT_EXECUTABLE,
    };
    let end = RunEnd {
        run: begun.run.clone(),
        step: begun.step,
        branch,
        message: words.join(" "),
        exit_code: Some(exit_code),
        principal,
    };
    let ended = client.end_run(&workspace, &end).await;
    if let Err(error) = outcome {
        let kind = match exit_code {
            EXIT_NOT_FOUND => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        printer.error(&CommandError::new(
            kind,
            format!("run {}: {error}", words[0]),
        ));
    }
    match ended {
        Ok(ended) => {
            if printer.is_json() {
                printer.json("run", &ended)?;
            } else if ended.is_new {
                printer.note(format!(
                    "run {} step {}: {}",
                    ended.run,
                    ended.step,
                    format_counts(&ended.changes)
                ));
                printer.operation(ended.operation.as_ref());
            } else {
                printer.note(format!("run {} step {}", ended.run, ended.step));
            }
        }
        // The command's exit code matters more to who called; what it left is committed later.
        Err(error) => printer.error(&error.into()),
    }
    Ok(ExitStatus::Command(exit_code as u8))
}

/// The mount that a directory is in.
fn mount_at<'m>(directory: &Path, mounts: &'m [MountInfo]) -> Option<&'m MountInfo> {
    mounts
        .iter()
        .filter(|mount| directory.starts_with(mount.mountpoint.to_path()))
        .max_by_key(|mount| mount.mountpoint.as_bytes().len())
}

/// A control group for the processes of a step; removed when they have ended.
struct ControlGroup {
    directory: PathBuf,
    members: File,
}

impl ControlGroup {
    /// Makes one below the group of this process, in the first hierarchy that lets it.
    fn make(step: &RunBegun) -> Option<Self> {
        let name = format!("{CGROUP_PREFIX}{}:{}", step.run, step.step);
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        hierarchies(&own, &mounts)
            .into_iter()
            .find_map(|directory| Self::make_in(&directory.join(&name)))
    }

    fn make_in(directory: &Path) -> Option<Self> {
        std::fs::create_dir(directory).ok()?;
        let members = OpenOptions::new()
            .write(true)
            .open(directory.join("cgroup.procs"));
        match members {
            Ok(members) => Some(Self {
                directory: directory.to_owned(),
                members,
            }),
            Err(_) => {
                let _ = std::fs::remove_dir(directory);
                None
            }
        }
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Processes in the background keep it; then it stays.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Directories of this process's groups, best first: version 2, then those of version 1 that
/// limit nothing by themselves.
fn hierarchies(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for wanted in ["", "name=systemd", "pids"] {
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            (controllers == wanted).then_some(path)
        });
        // Fields: id, parent, device, root, mount point, options …, "-", type, source, options.
        let mount = mounts.lines().find_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let mut head = head.split(' ').skip(3);
            let (root, point) = (head.next()?, head.next()?);
            let mut tail = tail.split(' ');
            let (kind, options) = (tail.next()?, tail.nth(1)?);
            let is_wanted = match wanted {
                "" => kind == "cgroup2",
                _ => kind == "cgroup" && options.split(',').any(|option| option == wanted),
            };
            is_wanted.then_some((root, point))
        });
        if let (Some(path), Some((root, point))) = (path, mount) {
            let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
            found.push(Path::new(point).join(below.trim_start_matches('/')));
        }
    }
    found
}

/// Runs the command to its end; gives its exit code, 128 and the signal if it was killed.
fn execute(
    words: &[OsString],
    step: &RunBegun,
    group: Option<&ControlGroup>,
) -> std::io::Result<i32> {
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env(KURA_RUN_ID, &step.run)
        .env(KURA_STEP, step.step.to_string());
    let blocked: SigSet = FORWARDED
        .into_iter()
        .chain([Signal::SIGCHLD])
        .collect::<SigSet>();
    // Waited for below, one at a time, instead of being handled.
    let before = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let members = group.map(|group| group.members.try_clone()).transpose()?;
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            if let Some(mut members) = members.as_ref() {
                // Without the group there is still the environment.
                let _ = members.write_all(b"0");
            }
            before.thread_set_mask()?;
            Ok(())
        });
    }
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let child = match command.spawn() {
        Ok(child) => Pid::from_raw(child.id() as i32),
        Err(error) => {
            before.thread_set_mask()?;
            return Err(error);
        }
    };
    // What a terminal sends, the command gets itself.
    let from_terminal = std::io::stdin().is_terminal();
    let code = loop {
        match blocked.wait()? {
            Signal::SIGCHLD => {
                if let Some(code) = reap(child) {
                    break code;
                }
            }
            Signal::SIGINT | Signal::SIGQUIT if from_terminal => {}
            signal => {
                let _ = kill(child, signal);
            }
        }
    };
    let _ = nix::sys::prctl::set_child_subreaper(false);
    before.thread_set_mask()?;
    Ok(code)
}

/// Takes in all children that have ended; the exit code if the command is among them.
fn reap(child: Pid) -> Option<i32> {
    let mut code = None;
    loop {
        let flags = Some(nix::sys::wait::WaitPidFlag::WNOHANG);
        match waitpid(None, flags) {
            Ok(WaitStatus::Exited(pid, status)) if pid == child => code = Some(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                code = Some(128 + signal as i32);
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return code,
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => return code.or(Some(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_where_this_process_is() {
        let own = "5:pids:/user/x\n1:name=systemd:/\n0::/user/x\n";
        let mounts = "\
30 20 0:1 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
31 20 0:2 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
32 20 0:3 /user /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
        let expected = [
            "/sys/fs/cgroup/unified/x",
            "/sys/fs/cgroup/systemd",
            "/sys/fs/cgroup/pids/user/x",
        ];
        assert_eq!(hierarchies(own, mounts), expected.map(PathBuf::from));
    }
}
