//! Finding what a path stands for in a stored tree.

use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::object::{Inode, Name, Node, Root, TreeEntry};
use crate::path::display_path;
use crate::reader::ObjectReader;

/// The root directory as an inode.
pub fn root_inode(root: &Root) -> Inode {
    Inode {
        attributes: root.attributes.clone(),
        node: Node::Directory { tree: root.tree },
    }
}

/// The inode that an entry stands for, through the link table where it must be.
///
/// # Errors
/// `Corrupt` if the link table lacks it.
pub fn resolve_entry(
    reader: &dyn ObjectReader,
    links: Option<TreeId>,
    entry: &TreeEntry,
) -> Result<Inode> {
    match entry {
        TreeEntry::Inline(inode) => Ok(inode.clone()),
        TreeEntry::Link(id) => {
            let linked = match links {
                Some(links) => reader.link(links, *id)?,
                None => None,
            };
            linked.map(|linked| linked.inode).ok_or_else(|| {
                StoreError::new(
                    ErrorKind::Corrupt,
                    format!("link {:016x} is not in the snapshot's link table", id.0),
                )
                .with_hint("run 'kura fsck'")
            })
        }
    }
}

/// The entry that a path stands for, `None` if there is none. The empty path is the root.
pub fn lookup_path(
    reader: &dyn ObjectReader,
    root: &Root,
    names: &[Name],
) -> Result<Option<TreeEntry>> {
    let mut entry = TreeEntry::Inline(root_inode(root));
    for name in names {
        let TreeEntry::Inline(Inode {
            node: Node::Directory { tree },
            ..
        }) = entry
        else {
            return Ok(None);
        };
        match reader.lookup(tree, name)? {
            Some(next) => entry = next,
            None => return Ok(None),
        }
    }
    Ok(Some(entry))
}

/// The entry that a path stands for.
///
/// # Errors
/// `NotFound` if there is none.
pub fn require_path(reader: &dyn ObjectReader, root: &Root, names: &[Name]) -> Result<TreeEntry> {
    lookup_path(reader, root, names)?.ok_or_else(|| {
        let path = names.join(&b'/');
        StoreError::new(
            ErrorKind::NotFound,
            format!("there is no '{}' in this version", display_path(&path)),
        )
        .with_hint("list what is there with 'kura ls'")
    })
}
