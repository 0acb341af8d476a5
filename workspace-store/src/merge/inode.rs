//! The rules for one inode that both sides have: attribute by attribute, then the content.

use std::sync::Arc;

use super::MergeOptions;
use super::text::{MergedText, is_text, merge_text};
use crate::conflict::ConflictReason;
use crate::error::{ErrorKind, Result};
use crate::object::{Attributes, Inode, Node, Timestamp, Xattrs};
use crate::reader::ObjectReader;

/// Larger files are not merged by lines.
const TEXT_LIMIT_BYTES: u64 = 16 << 20;

/// Content of a merged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MergedNode {
    /// That of one side.
    Stored(Node),
    /// Joined text, or text with markers.
    Text(Arc<Vec<u8>>),
}

/// An inode joined from two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedInode {
    pub(super) attributes: Attributes,
    pub(super) node: MergedNode,
}

impl MergedInode {
    /// Whether more than the modification time differs.
    pub(super) fn differs_but_for_time(&self, other: &Inode) -> bool {
        match &self.node {
            MergedNode::Text(_) => true,
            MergedNode::Stored(node) => {
                let inode = Inode {
                    attributes: self.attributes.clone(),
                    node: node.clone(),
                };
                !is_same_but_time(&inode, other)
            }
        }
    }
}

impl From<Inode> for MergedInode {
    fn from(inode: Inode) -> Self {
        Self {
            attributes: inode.attributes,
            node: MergedNode::Stored(inode.node),
        }
    }
}

/// What became of two sides of an inode.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) inode: MergedInode,
    /// Why they could not be joined.
    pub(super) reason: Option<ConflictReason>,
    /// Whether the other side has to be put beside it, because its content isn't in here.
    pub(super) is_apart: bool,
}

/// Equal but for the modification time, and for where holes are.
pub(super) fn is_same_but_time(left: &Inode, right: &Inode) -> bool {
    let (a, b) = (&left.attributes, &right.attributes);
    (a.mode, a.uid, a.gid, &a.xattrs) == (b.mode, b.uid, b.gid, &b.xattrs)
        && is_same_content(&left.node, &right.node)
}

fn is_same_content(left: &Node, right: &Node) -> bool {
    match (left, right) {
        (Node::Directory { .. }, Node::Directory { .. }) => true,
        (Node::Regular { blob: left, .. }, Node::Regular { blob: right, .. }) => left == right,
        _ => left == right,
    }
}

/// Whether both are the same kind of file.
pub(super) fn is_same_kind(left: &Inode, right: &Inode) -> bool {
    left.node.file_type_bits() == right.node.file_type_bits()
}

/// Joins the attributes of two sides; whether both changed the same one differently. Then ours
/// stays. The newer time wins where both have another one.
pub(super) fn merge_attributes(
    base: Option<&Attributes>,
    ours: &Attributes,
    theirs: &Attributes,
) -> (Attributes, bool) {
    let mut clashes = false;
    let attributes = Attributes {
        mode: pick(
            base.map(|base| &base.mode),
            &ours.mode,
            &theirs.mode,
            &mut clashes,
        ),
        uid: pick(
            base.map(|base| &base.uid),
            &ours.uid,
            &theirs.uid,
            &mut clashes,
        ),
        gid: pick(
            base.map(|base| &base.gid),
            &ours.gid,
            &theirs.gid,
            &mut clashes,
        ),
        mtime: merge_time(base.map(|base| base.mtime), ours.mtime, theirs.mtime),
        xattrs: merge_xattrs(
            base.map(|base| &base.xattrs),
            &ours.xattrs,
            &theirs.xattrs,
            &mut clashes,
        ),
    };
    (attributes, clashes)
}

fn pick<T: PartialEq + Clone>(base: Option<&T>, ours: &T, theirs: &T, clashes: &mut bool) -> T {
    if ours == theirs || base == Some(theirs) {
        ours.clone()
    } else if base == Some(ours) {
        theirs.clone()
    } else {
        *clashes = true;
        ours.clone()
    }
}

fn merge_time(base: Option<Timestamp>, ours: Timestamp, theirs: Timestamp) -> Timestamp {
    if base == Some(ours) {
        theirs
    } else if base == Some(theirs) {
        ours
    } else {
        ours.max(theirs)
    }
}

fn merge_xattrs(
    base: Option<&Xattrs>,
    ours: &Xattrs,
    theirs: &Xattrs,
    clashes: &mut bool,
) -> Xattrs {
    if ours == theirs || base == Some(theirs) {
        return ours.clone();
    }
    let mut merged = ours.as_ref().clone();
    for name in ours
        .keys()
        .chain(theirs.keys())
        .chain(base.iter().flat_map(|base| base.keys()))
    {
        let base = base.map(|base| base.get(name));
        let (ours, theirs) = (ours.get(name), theirs.get(name));
        // Without a common origin an attribute that only one side has is that side's.
        let base = base.or((ours.is_none() || theirs.is_none()).then_some(None));
        match pick(base.as_ref(), &ours, &theirs, clashes) {
            Some(value) => merged.insert(name.clone(), value.clone()),
            None => merged.remove(name),
        };
    }
    Arc::new(merged)
}

/// Joins two inodes of the same kind that are no directories; `base` is of that kind, too, or
/// there is none.
pub(super) fn merge_inodes(
    reader: &dyn ObjectReader,
    base: Option<&Inode>,
    ours: &Inode,
    theirs: &Inode,
    options: &MergeOptions<'_>,
) -> Result<Joined> {
    let (mut attributes, clashes) = merge_attributes(
        base.map(|base| &base.attributes),
        &ours.attributes,
        &theirs.attributes,
    );
    let mut reason = clashes.then_some(ConflictReason::Attributes);
    let mut is_apart = false;
    let both_changed = if base.is_some() {
        ConflictReason::Content
    } else {
        ConflictReason::Added
    };
    let is_unchanged =
        |side: &Inode| base.is_some_and(|base| is_same_content(&base.node, &side.node));
    let node = if is_same_content(&ours.node, &theirs.node) {
        // Where holes are says nothing about the content.
        let is_theirs = base.is_some_and(|base| base.node == ours.node);
        MergedNode::Stored(if is_theirs { &theirs.node } else { &ours.node }.clone())
    } else if is_unchanged(ours) {
        MergedNode::Stored(theirs.node.clone())
    } else if is_unchanged(theirs) {
        MergedNode::Stored(ours.node.clone())
    } else if let Some(merged) = merge_contents(reader, base, ours, theirs, options)? {
        if merged.has_conflict {
            reason = Some(both_changed);
        }
        attributes.mtime = options.time;
        MergedNode::Text(Arc::new(merged.text))
    } else {
        reason = Some(both_changed);
        is_apart = true;
        attributes = ours.attributes.clone();
        MergedNode::Stored(ours.node.clone())
    };
    Ok(Joined {
        inode: MergedInode { attributes, node },
        reason,
        is_apart,
    })
}

/// The texts of both sides joined; `None` if one of them isn't text.
fn merge_contents(
    reader: &dyn ObjectReader,
    base: Option<&Inode>,
    ours: &Inode,
    theirs: &Inode,
    options: &MergeOptions<'_>,
) -> Result<Option<MergedText>> {
    let base = match base {
        Some(base) => match text_of(reader, base)? {
            Some(text) => Some(text),
            None => return Ok(None),
        },
        None => None,
    };
    let (Some(ours), Some(theirs)) = (text_of(reader, ours)?, text_of(reader, theirs)?) else {
        return Ok(None);
    };
    Ok(Some(merge_text(
        base.as_deref(),
        &ours,
        &theirs,
        &options.labels,
    )))
}

fn text_of(reader: &dyn ObjectReader, inode: &Inode) -> Result<Option<Vec<u8>>> {
    match inode.node {
        Node::Regular { blob, size, .. } if size <= TEXT_LIMIT_BYTES => {
            match reader.read_whole_blob(blob, size, TEXT_LIMIT_BYTES) {
                Ok(content) => Ok(is_text(&content).then_some(content)),
                // It was purged.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        }
        _ => Ok(None),
    }
}
