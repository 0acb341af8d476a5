//! Whether a daemon's process is still there, for those who wait for its end.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Whether a process runs. One that has ended stays as a zombie until its parent asks, which may
/// be never: it does not run.
pub fn is_alive(pid: u32) -> bool {
    let Ok(number) = i32::try_from(pid) else {
        return false;
    };
    if kill(Pid::from_raw(number), None) == Err(Errno::ESRCH) {
        return false;
    }
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = state.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !after_name.is_some_and(|rest| rest.starts_with('Z'))
}
