//! Which commits come from which: the commit that two histories have in common.

use std::collections::{BTreeMap, BinaryHeap};

use crate::db::Connection;
use crate::db::history::{self, CommitRow};
use crate::error::Result;
use crate::id::CommitId;
use crate::store::Store;

const OURS: u8 = 1;
const THEIRS: u8 = 2;

impl Store {
    /// The newest commit that both come from (one of them, if the other comes from it); `None` if
    /// their histories have nothing in common. Forks share the commits that they began with.
    ///
    /// # Errors
    /// `NotFound` if one of them isn't stored.
    pub fn merge_base(&self, ours: CommitId, theirs: CommitId) -> Result<Option<CommitId>> {
        self.inner.database.read(|connection| {
            let ours = history::require(connection, ours)?;
            let theirs = history::require(connection, theirs)?;
            common_ancestor(connection, ours, theirs)?
                .map(|row| Ok(history::read_row(connection, row.number)?.0))
                .transpose()
        })
    }
}

/// Descendants are met before their ancestors, so the first commit that both sides lead to is one
/// that no other common one comes from.
fn common_ancestor(
    connection: &Connection,
    ours: CommitRow,
    theirs: CommitRow,
) -> Result<Option<CommitRow>> {
    let mut sides: BTreeMap<i64, u8> = BTreeMap::new();
    let mut waiting = BinaryHeap::new();
    for (row, side) in [(ours, OURS), (theirs, THEIRS)] {
        if sides
            .insert(row.number, sides.get(&row.number).unwrap_or(&0) | side)
            .is_none()
        {
            waiting.push(row);
        }
    }
    while let Some(row) = waiting.pop() {
        let reached = sides.get(&row.number).copied().unwrap_or_default();
        if reached == OURS | THEIRS {
            return Ok(Some(row));
        }
        for parent in history::parents(connection, row.number)? {
            match sides.get_mut(&parent.number) {
                Some(side) => *side |= reached,
                None => {
                    sides.insert(parent.number, reached);
                    waiting.push(parent);
                }
            }
        }
    }
    Ok(None)
}
