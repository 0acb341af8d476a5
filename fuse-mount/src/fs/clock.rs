//! The clock of changes: the one that the kernel takes for its own time stamps.
//!
//! Under the writeback cache the kernel stamps some changes and the filesystem others. The kernel's
//! clock moves in ticks of some milliseconds; with a finer one here, a file made now and touched
//! right afterwards would become older.

use nix::time::{ClockId, clock_gettime};
use workspace_store::object::Timestamp;

/// The time of a change made now.
pub(crate) fn now() -> Timestamp {
    match clock_gettime(ClockId::CLOCK_REALTIME_COARSE) {
        Ok(time) => Timestamp {
            seconds: time.tv_sec(),
            nanoseconds: time.tv_nsec() as u32,
        },
        Err(_) => Timestamp::now(),
    }
}
