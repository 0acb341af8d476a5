//! Whether a daemon's process is still there, for those who wait for it or for its end.

use std::path::Path;

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

/// The process that keeps the daemon of a store running, if there is one: also while its worker
/// has died and is started again, so that nobody answers at the socket.
///
/// The daemon's lock tells, not the number in its file: a copied store has the number, too. To
/// look, the lock is shared for an instant.
pub fn keeper_of(store: &Path) -> Option<u32> {
    let path = store.join(crate::PID_NAME);
    let file = std::fs::File::open(&path).ok()?;
    match file.try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => {
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        }
        _ => None,
    }
}
