//! Encoding of sets of conflicts.

use super::{Input, VERSION, domain_hash, write_bytes, write_inode};
use crate::conflict::{Conflict, ConflictReason, ConflictSet};
use crate::error::Result;
use crate::id::{CommitId, ConflictSetId};
use crate::object::Inode;

const CONFLICTS_DOMAIN: &[u8] = b"kura.conflicts\0";

/// Id of an encoded set.
pub(crate) fn conflict_set_id(encoded: &[u8]) -> ConflictSetId {
    ConflictSetId(domain_hash(CONFLICTS_DOMAIN, &[encoded]))
}

/// Encodes a set: conflict after conflict.
pub(crate) fn encode_conflicts(set: &ConflictSet) -> Vec<u8> {
    let mut output = vec![VERSION];
    for conflict in set.entries() {
        write_bytes(&mut output, &conflict.path);
        output.push(reason_number(conflict.reason));
        output.extend_from_slice(conflict.base_commit.as_bytes());
        output.extend_from_slice(conflict.theirs_commit.as_bytes());
        write_bytes(&mut output, conflict.theirs_label.as_bytes());
        for side in [&conflict.base, &conflict.ours, &conflict.theirs] {
            match side {
                None => output.push(0),
                Some(inode) => {
                    output.push(1);
                    write_inode(&mut output, inode);
                }
            }
        }
        match &conflict.beside {
            None => output.push(0),
            Some(path) => {
                output.push(1);
                write_bytes(&mut output, path);
            }
        }
    }
    output
}

/// Decodes a set.
///
/// # Errors
/// `Corrupt` for anything that [`encode_conflicts`] doesn't write.
pub(crate) fn decode_conflicts(bytes: &[u8]) -> Result<ConflictSet> {
    let mut input = Input::open(bytes, "set of conflicts")?;
    let mut entries: Vec<Conflict> = Vec::new();
    while !input.is_empty() {
        let path: Box<[u8]> = input.bytes(usize::MAX)?.into();
        let reason = match input.byte()? {
            0 => ConflictReason::Content,
            1 => ConflictReason::Added,
            2 => ConflictReason::Deleted,
            3 => ConflictReason::Kind,
            4 => ConflictReason::Attributes,
            5 => ConflictReason::DirectoryDeleted,
            _ => return Err(input.error("unknown reason")),
        };
        let base_commit = CommitId(input.array()?);
        let theirs_commit = CommitId(input.array()?);
        if let Some(last) = entries.last()
            && (&last.path, last.theirs_commit) >= (&path, theirs_commit)
        {
            return Err(input.error("paths are not in ascending order"));
        }
        let theirs_label = input.text()?;
        let mut side = || -> Result<Option<Inode>> {
            if !input.flag()? {
                return Ok(None);
            }
            let tag = input.byte()?;
            input.inode(tag).map(Some)
        };
        let (base, ours, theirs) = (side()?, side()?, side()?);
        let beside = match input.flag()? {
            true => Some(input.bytes(usize::MAX)?.into()),
            false => None,
        };
        entries.push(Conflict {
            path,
            reason,
            base_commit,
            theirs_commit,
            theirs_label,
            base,
            ours,
            theirs,
            beside,
        });
    }
    Ok(ConflictSet::new(entries))
}

fn reason_number(reason: ConflictReason) -> u8 {
    match reason {
        ConflictReason::Content => 0,
        ConflictReason::Added => 1,
        ConflictReason::Deleted => 2,
        ConflictReason::Kind => 3,
        ConflictReason::Attributes => 4,
        ConflictReason::DirectoryDeleted => 5,
    }
}
