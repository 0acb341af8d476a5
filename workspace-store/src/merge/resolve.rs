//! Ending a conflict: with what is at its path now, or with one of the sides.

use super::inode::is_same_but_time;
use super::text::has_markers;
use super::{Found, find};
use crate::conflict::{Conflict, ConflictReason};
use crate::edit::{InodeEdit, LinkEdit, NodeEdit, SnapshotEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::object::{Inode, Node, Root};
use crate::path::{display_path, split_path};
use crate::reader::ObjectReader;
use crate::restore::{Wish, wish_edit};

/// Larger files are not searched for markers; a merge makes none in them.
const TEXT_LIMIT_BYTES: u64 = 64 << 20;

/// With what a conflict ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// With what is there now.
    Present,
    /// With the side that was there.
    Ours,
    /// With the side that was brought in.
    Theirs,
    /// With what both came from.
    Base,
}

/// Whether the file at the path of a conflict still has its markers.
///
/// # Errors
/// Errors of the reader.
pub fn has_markers_left(
    reader: &dyn ObjectReader,
    now: &Root,
    conflict: &Conflict,
) -> Result<bool> {
    let may_have = matches!(
        conflict.reason,
        ConflictReason::Content | ConflictReason::Added
    );
    match find(reader, now, &conflict.path)? {
        Some(Found {
            inode:
                Inode {
                    node: Node::Regular { blob, size, .. },
                    ..
                },
            ..
        }) if may_have && conflict.beside.is_none() && size <= TEXT_LIMIT_BYTES => {
            let content = reader.read_whole_blob(blob, size, TEXT_LIMIT_BYTES)?;
            Ok(has_markers(
                &content,
                &format!("theirs: {}", conflict.theirs_label),
            ))
        }
        _ => Ok(false),
    }
}

/// The edit over `now` that ends a conflict. What the merge put beside the path goes, unless
/// somebody has changed it.
///
/// # Errors
/// `Unsupported` where a side is a directory that is not there any more; errors of the reader.
pub fn resolution_edit(
    reader: &dyn ObjectReader,
    now: &Root,
    conflict: &Conflict,
    resolution: Resolution,
) -> Result<SnapshotEdit> {
    let mut wishes = Vec::new();
    let beside = match &conflict.beside {
        Some(path) => find(reader, now, path)?.map(|found| (path, found)),
        None => None,
    };
    let wanted = match resolution {
        Resolution::Present => None,
        Resolution::Ours => Some(conflict.ours.as_ref()),
        Resolution::Theirs => Some(conflict.theirs.as_ref()),
        Resolution::Base => Some(conflict.base.as_ref()),
    };
    let mut edit = SnapshotEdit::unchanged(now);
    if let Some(wanted) = wanted {
        let present = find(reader, now, &conflict.path)?;
        match (wanted, &present) {
            (Some(wanted), Some(present))
                if is_directory(wanted) && is_directory(&present.inode) =>
            {
                wishes.push((&conflict.path, Wish::Directory(wanted.attributes.clone())));
            }
            (Some(wanted), _) if is_directory(wanted) => {
                let is_beside = resolution == Resolution::Theirs;
                let entry = match &beside {
                    Some((_, found)) if is_beside && is_directory(&found.inode) => found.entry(),
                    _ => return Err(not_there(conflict)),
                };
                wishes.push((&conflict.path, Wish::Entry(entry)));
            }
            (Some(wanted), Some(Found { link: Some(id), .. })) => {
                let links = now.links.expect("a link is in the table");
                if let Some(linked) = reader.link(links, *id)? {
                    let inode = InodeEdit {
                        attributes: wanted.attributes.clone(),
                        node: NodeEdit::Stored(wanted.node.clone()),
                    };
                    let link_count = linked.link_count;
                    edit.links.insert(*id, Some(LinkEdit { link_count, inode }));
                }
            }
            (Some(wanted), _) => {
                let entry = crate::object::TreeEntry::Inline(wanted.clone());
                wishes.push((&conflict.path, Wish::Entry(entry)));
            }
            (None, Some(present)) if is_directory(&present.inode) => {
                return Err(not_there(conflict));
            }
            (None, Some(_)) => wishes.push((&conflict.path, Wish::Nothing)),
            (None, None) => {}
        }
    }
    if let (Some((path, found)), Some(theirs)) = (&beside, &conflict.theirs) {
        let is_moved = resolution == Resolution::Theirs;
        let is_unchanged = match (&found.inode.node, &theirs.node) {
            (Node::Directory { tree: now }, Node::Directory { tree }) => now == tree,
            _ => is_same_but_time(&found.inode, theirs),
        };
        if is_moved || is_unchanged {
            wishes.push((path, Wish::Nothing));
        }
    }
    let mut wished = Vec::new();
    for (path, wish) in wishes {
        wished.push((split_path(path)?, wish));
    }
    let links = std::mem::take(&mut edit.links);
    let mut edit = wish_edit(reader, now, wished)?;
    edit.links.extend(links);
    Ok(edit)
}

fn is_directory(inode: &Inode) -> bool {
    matches!(inode.node, Node::Directory { .. })
}

fn not_there(conflict: &Conflict) -> StoreError {
    let path = display_path(&conflict.path);
    StoreError::new(
        ErrorKind::Unsupported,
        format!(
            "'{path}' can't be resolved to this side: it is a directory with other things in it"
        ),
    )
    .with_hint("put it right by hand, then resolve it without an option")
}
