//! Finds entries that moved: whole directories and files by their ids, then similar files.
//!
//! Bounded: similarity is looked for among a limited number of files of limited size.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::tree::{children, expand, metadata_changes};
use super::{DiffEntry, DiffKind};
use crate::error::Result;
use crate::id::{BlobId, TreeId};
use crate::object::{Inode, Node};
use crate::reader::ObjectReader;

/// Larger files are only found when their content is equal.
const SIMILARITY_LIMIT_BYTES: u64 = 1 << 20;
/// Most deleted files that are compared with most added files.
const SIMILARITY_LIMIT_FILES: usize = 300;
/// Most bytes that are read to compare.
const SIMILARITY_TOTAL_LIMIT_BYTES: u64 = 64 << 20;
/// Least similarity of a renamed file, in percent.
const SIMILARITY_LEAST_PERCENT: u64 = 50;

#[derive(PartialEq, Eq, Hash)]
enum Identity {
    File(BlobId),
    Directory(TreeId),
    Symlink(Box<[u8]>),
    /// Empty files and directories, which say nothing about where they come from, need the
    /// same name.
    Empty(u32, Vec<u8>),
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn identity(
    reader: &dyn ObjectReader,
    path: &[u8],
    inode: Option<&Inode>,
) -> Result<Option<Identity>> {
    let Some(inode) = inode else {
        return Ok(None);
    };
    let empty = || Identity::Empty(inode.node.file_type_bits(), last_name(path).to_vec());
    Ok(match &inode.node {
        Node::Regular { size: 0, .. } => Some(empty()),
        Node::Regular { blob, .. } => Some(Identity::File(*blob)),
        Node::Directory { tree } => Some(
            if reader.tree_node(*tree)? == crate::reader::TreeNode::Leaf(Vec::new()) {
                empty()
            } else {
                Identity::Directory(*tree)
            },
        ),
        Node::Symlink { target } => Some(Identity::Symlink(target.clone())),
        _ => None,
    })
}

/// Joins deleted and added entries into renamed ones; lists what is below the directories that
/// did not move as a whole. `whole_directories`: a moved directory may be one entry.
pub(super) fn detect(
    reader: &dyn ObjectReader,
    links: [Option<TreeId>; 2],
    entries: Vec<DiffEntry>,
    whole_directories: bool,
) -> Result<Vec<DiffEntry>> {
    let mut entries = entries;
    let has = |kind| entries.iter().any(|entry| entry.kind == kind);
    if !(has(DiffKind::Added) && has(DiffKind::Deleted)) {
        // Nothing can have moved. Level by level would cost the square of the depth.
        return expand(reader, links, entries);
    }
    if whole_directories {
        // Level by level, so that a moved directory is one entry.
        let mut is_expanded = HashSet::new();
        loop {
            entries = join_exact(reader, entries)?;
            let children = expand_one_level(reader, links, &entries, &mut is_expanded)?;
            if children.is_empty() {
                break;
            }
            entries.extend(children);
        }
    } else {
        entries = join_exact(reader, expand(reader, links, entries)?)?;
    }
    join_similar(reader, entries)
}

fn expand_one_level(
    reader: &dyn ObjectReader,
    links: [Option<TreeId>; 2],
    entries: &[DiffEntry],
    is_expanded: &mut HashSet<(Vec<u8>, bool)>,
) -> Result<Vec<DiffEntry>> {
    let mut all = Vec::new();
    for entry in entries {
        if is_expanded.insert((entry.path.clone(), entry.kind == DiffKind::Deleted)) {
            all.append(&mut children(reader, links, entry)?);
        }
    }
    Ok(all)
}

/// Joins deleted and added entries that are the same file, link or directory into renamed ones.
pub(crate) fn join_exact(
    reader: &dyn ObjectReader,
    entries: Vec<DiffEntry>,
) -> Result<Vec<DiffEntry>> {
    let mut sources: HashMap<Identity, Vec<usize>> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.kind == DiffKind::Deleted
            && let Some(identity) = identity(reader, &entry.path, entry.old.as_ref())?
        {
            sources.entry(identity).or_default().push(index);
        }
    }
    if sources.is_empty() {
        return Ok(entries);
    }
    let mut pairs = BTreeMap::new();
    // First those that keep their name, then the others in order.
    for same_name in [true, false] {
        for (index, entry) in entries.iter().enumerate() {
            if entry.kind != DiffKind::Added || pairs.contains_key(&index) {
                continue;
            }
            let Some(identity) = identity(reader, &entry.path, entry.new.as_ref())? else {
                continue;
            };
            let Some(candidates) = sources.get_mut(&identity) else {
                continue;
            };
            let position = candidates.iter().position(|candidate| {
                !same_name || last_name(&entries[*candidate].path) == last_name(&entry.path)
            });
            if let Some(position) = position {
                pairs.insert(index, (candidates.remove(position), 100));
            }
        }
    }
    Ok(join(entries, &pairs))
}

fn join(entries: Vec<DiffEntry>, pairs: &BTreeMap<usize, (usize, u8)>) -> Vec<DiffEntry> {
    let mut entries: Vec<_> = entries.into_iter().map(Some).collect();
    for (target, (source, similarity)) in pairs {
        let (Some(source), Some(target)) = (entries[*source].take(), entries[*target].as_mut())
        else {
            continue;
        };
        if let (Some(old), Some(new)) = (&source.old, &target.new) {
            target.changes = metadata_changes(old, new);
            target.changes.links = source.old_link != target.new_link;
        }
        target.kind = DiffKind::Renamed {
            from: source.path,
            similarity: *similarity,
        };
        target.old = source.old;
        target.old_link = source.old_link;
    }
    entries.into_iter().flatten().collect()
}

fn comparable(inode: Option<&Inode>) -> Option<(BlobId, u64)> {
    match inode?.node {
        Node::Regular { blob, size, .. } if (1..SIMILARITY_LIMIT_BYTES).contains(&size) => {
            Some((blob, size))
        }
        _ => None,
    }
}

/// Bytes of a file by the hash of the line they are in.
type Lines = HashMap<u64, u64>;

fn lines(content: &[u8]) -> Lines {
    let mut lines = Lines::new();
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        // Long lines (binary files) are cut, so that parts of them can be equal.
        for piece in line.chunks(64) {
            let mut hasher = DefaultHasher::new();
            piece.hash(&mut hasher);
            *lines.entry(hasher.finish()).or_default() += piece.len() as u64;
        }
    }
    lines
}

fn common_bytes(left: &Lines, right: &Lines) -> u64 {
    left.iter()
        .filter_map(|(hash, bytes)| right.get(hash).map(|other| *bytes.min(other)))
        .sum()
}

fn join_similar(reader: &dyn ObjectReader, entries: Vec<DiffEntry>) -> Result<Vec<DiffEntry>> {
    let side = |kind: DiffKind| -> Vec<(usize, BlobId, u64)> {
        entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.kind == kind)
            .filter_map(|(index, entry)| {
                let (blob, size) = comparable(entry.old.as_ref().or(entry.new.as_ref()))?;
                Some((index, blob, size))
            })
            .collect()
    };
    let sources = side(DiffKind::Deleted);
    let targets = side(DiffKind::Added);
    let total: u64 = sources
        .iter()
        .chain(&targets)
        .map(|(_, _, size)| size)
        .sum();
    if sources.is_empty()
        || targets.is_empty()
        || sources.len().max(targets.len()) > SIMILARITY_LIMIT_FILES
        || total > SIMILARITY_TOTAL_LIMIT_BYTES
    {
        return Ok(entries);
    }
    let read = |side: &[(usize, BlobId, u64)]| -> Result<Vec<Lines>> {
        side.iter()
            .map(|(_, blob, size)| {
                let content = reader.read_whole_blob(*blob, *size, SIMILARITY_LIMIT_BYTES)?;
                Ok(lines(&content))
            })
            .collect()
    };
    let source_lines = read(&sources)?;
    let target_lines = read(&targets)?;
    let mut scores = Vec::new();
    for ((source, _, source_size), source_lines) in sources.iter().zip(&source_lines) {
        for ((target, _, target_size), target_lines) in targets.iter().zip(&target_lines) {
            let larger = *source_size.max(target_size);
            if source_size.min(target_size) * 100 / larger < SIMILARITY_LEAST_PERCENT {
                continue;
            }
            let percent = common_bytes(source_lines, target_lines) * 100 / larger;
            if percent >= SIMILARITY_LEAST_PERCENT {
                let same_name =
                    last_name(&entries[*source].path) == last_name(&entries[*target].path);
                scores.push((percent as u8, same_name, *source, *target));
            }
        }
    }
    scores.sort_by(|left, right| {
        (right.0, right.1)
            .cmp(&(left.0, left.1))
            .then((left.2, left.3).cmp(&(right.2, right.3)))
    });
    let mut used = HashSet::new();
    let mut pairs = BTreeMap::new();
    for (percent, _, source, target) in scores {
        if !used.contains(&source) && !pairs.contains_key(&target) {
            used.insert(source);
            // Only equal content counts as fully the same.
            pairs.insert(target, (source, percent.min(99)));
        }
    }
    Ok(join(entries, &pairs))
}
