//! Counts of requests, for status and for tests of how many round trips something takes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::protocol::Opcode;

/// How often one kind of request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCount {
    /// Name of the operation as the kernel calls it, in lower case; `unknown`, `handed_over`
    /// (to a worker) and `notifications` besides.
    pub name: &'static str,
    /// Number since the session began in this process.
    pub count: u64,
}

/// The counters of a session.
#[derive(Debug)]
pub(super) struct Counters {
    by_opcode: [AtomicU64; 64],
    pub(super) unknown: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) notifications: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            by_opcode: [const { AtomicU64::new(0) }; 64],
            unknown: AtomicU64::new(0),
            handed_over: AtomicU64::new(0),
            notifications: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(super) fn count(&self, opcode: Option<Opcode>) {
        let counter = opcode
            .and_then(|opcode| self.by_opcode.get(opcode as usize))
            .unwrap_or(&self.unknown);
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted, in the kernel's order, without zeros.
    pub(super) fn snapshot(&self) -> Vec<RequestCount> {
        let opcodes = Opcode::ALL
            .iter()
            .map(|opcode| (opcode.name(), &self.by_opcode[*opcode as usize]));
        let others = [
            ("unknown", &self.unknown),
            ("handed_over", &self.handed_over),
            ("notifications", &self.notifications),
        ];
        opcodes
            .chain(others)
            .map(|(name, counter)| RequestCount {
                name,
                count: counter.load(Ordering::Relaxed),
            })
            .filter(|entry| entry.count > 0)
            .collect()
    }
}
