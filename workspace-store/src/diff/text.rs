//! Differences as text: patches that `git apply` and `patch` take, and line counts.
//!
//! What a patch can't express (owners, times, attributes, directories, special files) is said
//! in lines that begin with `#`, which those programs skip.

use std::io::Write;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::{DiffEntry, DiffKind};
use crate::error::{ErrorKind, Result, StoreError};
use crate::object::{Attributes, Inode, Node};
use crate::reader::ObjectReader;

/// A NUL among this many first bytes makes a file binary.
const BINARY_PROBE_BYTES: usize = 8 << 10;
/// After this time a coarser diff of one file is good enough.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How patches are made.
#[derive(Debug, Clone)]
pub struct PatchOptions {
    /// Unchanged lines around each change.
    pub context_lines: usize,
    /// Larger files are treated like binary ones.
    pub size_limit_bytes: u64,
}

impl Default for PatchOptions {
    fn default() -> Self {
        Self {
            context_lines: 3,
            size_limit_bytes: 16 << 20,
        }
    }
}

/// Changed lines of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStatistics {
    /// The entry's path.
    pub path: Vec<u8>,
    /// The old path of a renamed entry.
    pub from: Option<Vec<u8>>,
    /// Lines only in the new side.
    pub insertions: usize,
    /// Lines only in the old side.
    pub deletions: usize,
    /// Whether lines can't be counted.
    pub is_binary: bool,
}

/// Whether content is not text: a NUL among its first 8 KiB.
pub fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(BINARY_PROBE_BYTES)].contains(&0)
}

/// A path as git shows it: in double quotes with C escapes if it has unusual bytes.
pub fn quote_path(path: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_plain) {
        return path.to_vec();
    }
    let mut quoted = vec![b'"'];
    for byte in path {
        match byte {
            0x07 => quoted.extend_from_slice(b"\\a"),
            0x08 => quoted.extend_from_slice(b"\\b"),
            b'\t' => quoted.extend_from_slice(b"\\t"),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            0x0b => quoted.extend_from_slice(b"\\v"),
            0x0c => quoted.extend_from_slice(b"\\f"),
            b'\r' => quoted.extend_from_slice(b"\\r"),
            b'"' => quoted.extend_from_slice(b"\\\""),
            b'\\' => quoted.extend_from_slice(b"\\\\"),
            byte if is_plain(byte) => quoted.push(*byte),
            byte => quoted.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

/// One side of a file as a patch sees it.
enum Side {
    Absent,
    Text(Vec<u8>),
    Binary,
}

fn has_content(inode: Option<&Inode>) -> bool {
    matches!(
        inode.map(|inode| &inode.node),
        Some(Node::Regular { .. } | Node::Symlink { .. })
    )
}

fn read_side(
    reader: &dyn ObjectReader,
    inode: Option<&Inode>,
    options: &PatchOptions,
) -> Result<Side> {
    Ok(match inode.map(|inode| &inode.node) {
        Some(Node::Regular { size, .. }) if *size > options.size_limit_bytes => Side::Binary,
        Some(Node::Regular { blob, size, .. }) => {
            match reader.read_whole_blob(*blob, *size, options.size_limit_bytes) {
                Ok(content) if !is_binary(&content) => Side::Text(content),
                Ok(_) => Side::Binary,
                // It was purged.
                Err(error) if error.kind() == ErrorKind::NotFound => Side::Binary,
                Err(error) => return Err(error),
            }
        }
        Some(Node::Symlink { target }) => Side::Text(target.to_vec()),
        _ => Side::Absent,
    })
}

/// Lines with their ends.
pub(crate) fn split_lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The sides of an entry that belong into one patch each: a change of kind is two patches.
fn sides(entry: &DiffEntry) -> Vec<(Option<&Inode>, Option<&Inode>)> {
    let (old, new) = (entry.old.as_ref(), entry.new.as_ref());
    if entry.kind == DiffKind::TypeChanged {
        return vec![(old, None), (None, new)];
    }
    vec![(old, new)]
}

/// Counts inserted and deleted lines of each entry that has content.
///
/// # Errors
/// Errors of the reader.
pub fn statistics(
    reader: &dyn ObjectReader,
    entries: &[DiffEntry],
    options: &PatchOptions,
) -> Result<Vec<FileStatistics>> {
    let mut all = Vec::new();
    for entry in entries {
        let mut result = FileStatistics {
            path: entry.path.clone(),
            from: match &entry.kind {
                DiffKind::Renamed { from, .. } => Some(from.clone()),
                _ => None,
            },
            insertions: 0,
            deletions: 0,
            is_binary: false,
        };
        let mut has_any = result.from.is_some();
        for (old, new) in sides(entry) {
            if !has_content(old) && !has_content(new) {
                continue;
            }
            has_any = true;
            if is_equal_content(old, new) {
                continue;
            }
            let old = read_side(reader, old, options)?;
            let new = read_side(reader, new, options)?;
            let (Some(old), Some(new)) = (text_of(&old), text_of(&new)) else {
                result.is_binary = true;
                continue;
            };
            for operation in compare(&split_lines(old), &split_lines(new)) {
                if operation.tag() != DiffTag::Equal {
                    result.deletions += operation.old_range().len();
                    result.insertions += operation.new_range().len();
                }
            }
        }
        if has_any {
            all.push(result);
        }
    }
    Ok(all)
}

fn text_of(side: &Side) -> Option<&[u8]> {
    match side {
        Side::Absent => Some(b""),
        Side::Text(text) => Some(text),
        Side::Binary => None,
    }
}

fn is_equal_content(old: Option<&Inode>, new: Option<&Inode>) -> bool {
    match (old.map(|inode| &inode.node), new.map(|inode| &inode.node)) {
        (Some(Node::Regular { blob: old, .. }), Some(Node::Regular { blob: new, .. })) => {
            old == new
        }
        (old, new) => old == new,
    }
}

fn compare(old: &[&[u8]], new: &[&[u8]]) -> Vec<similar::DiffOp> {
    let deadline = Instant::now() + TIME_LIMIT;
    capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(deadline))
}

/// Writes the entries as a patch.
///
/// # Errors
/// Errors of the reader and of `output`.
pub fn render_patch(
    reader: &dyn ObjectReader,
    entries: &[DiffEntry],
    options: &PatchOptions,
    output: &mut dyn Write,
) -> Result<()> {
    for entry in entries {
        let mut patch = Vec::new();
        describe_metadata(entry, &mut patch);
        for (old, new) in sides(entry) {
            if has_content(old) || has_content(new) {
                render_one(reader, entry, old, new, options, &mut patch)?;
            }
        }
        output
            .write_all(&patch)
            .map_err(|error| StoreError::io("writing the patch", error))?;
    }
    Ok(())
}

fn kind_name(inode: &Inode) -> &'static str {
    match inode.node {
        Node::Regular { .. } => "file",
        Node::Directory { .. } => "directory",
        Node::Symlink { .. } => "symbolic link",
        Node::Fifo => "named pipe",
        Node::Socket => "socket",
        Node::CharDevice { .. } => "character device",
        Node::BlockDevice { .. } => "block device",
    }
}

fn line(patch: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        patch.extend_from_slice(part);
    }
    patch.push(b'\n');
}

fn attribute_names(old: &Attributes, new: &Attributes) -> Vec<u8> {
    let mut names = Vec::new();
    let all: std::collections::BTreeSet<_> = old.xattrs.keys().chain(new.xattrs.keys()).collect();
    for name in all {
        if old.xattrs.get(name) != new.xattrs.get(name) {
            names.push(b' ');
            names.extend_from_slice(&quote_path(name));
        }
    }
    names
}

fn describe_metadata(entry: &DiffEntry, patch: &mut Vec<u8>) {
    let path = quote_path(if entry.path.is_empty() {
        b"."
    } else {
        &entry.path
    });
    match (&entry.old, &entry.new) {
        (None, Some(inode)) if !has_content(Some(inode)) => {
            line(
                patch,
                &[b"# new ", kind_name(inode).as_bytes(), b" ", &path],
            );
        }
        (Some(inode), None) if !has_content(Some(inode)) => {
            line(
                patch,
                &[b"# deleted ", kind_name(inode).as_bytes(), b" ", &path],
            );
        }
        (Some(old), Some(new)) => {
            let changes = entry.changes;
            if entry.kind == DiffKind::TypeChanged {
                let change = format!("# {} becomes {}: ", kind_name(old), kind_name(new));
                line(patch, &[change.as_bytes(), &path]);
            } else if !has_content(Some(new)) {
                if let DiffKind::Renamed { from, .. } = &entry.kind {
                    let kind = kind_name(new).as_bytes();
                    let from = quote_path(from);
                    line(patch, &[b"# renamed ", kind, b" ", &from, b" to ", &path]);
                }
                if old.node != new.node && !matches!(new.node, Node::Directory { .. }) {
                    line(
                        patch,
                        &[b"# changed ", kind_name(new).as_bytes(), b" ", &path],
                    );
                }
                if changes.mode {
                    let (old, new) = (old.attributes.mode, new.attributes.mode);
                    let change = format!("# mode {old:04o} to {new:04o}: ");
                    line(patch, &[change.as_bytes(), &path]);
                }
            }
            let (old, new) = (&old.attributes, &new.attributes);
            if changes.owner {
                let change = format!(
                    "# owner {}:{} to {}:{}: ",
                    old.uid, old.gid, new.uid, new.gid
                );
                line(patch, &[change.as_bytes(), &path]);
            }
            if changes.xattrs {
                let names = attribute_names(old, new);
                line(patch, &[b"# extended attributes", &names, b": ", &path]);
            }
            if changes.links {
                line(patch, &[b"# hard links: ", &path]);
            }
            if changes.holes {
                line(patch, &[b"# holes: ", &path]);
            }
            if changes.mtime && entry.kind == DiffKind::Metadata {
                line(patch, &[b"# modification time: ", &path]);
            }
        }
        _ => {}
    }
}

fn git_mode(inode: &Inode) -> String {
    match inode.node {
        Node::Symlink { .. } => "120000".to_owned(),
        _ => format!("{:06o}", 0o100_000 | (inode.attributes.mode & 0o7777)),
    }
}

fn short_id(inode: Option<&Inode>) -> String {
    match inode.map(|inode| &inode.node) {
        Some(Node::Regular { blob, .. }) => blob.to_hex()[..12].to_owned(),
        Some(Node::Symlink { target }) => blake3::hash(target).to_hex()[..12].to_owned(),
        _ => "0".repeat(12),
    }
}

/// A path in a `---` or `+++` line; a tab ends a name with spaces, as git does.
fn file_line(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let mut line = quote_path(&[prefix, path].concat());
    if line.contains(&b' ') && line[0] != b'"' {
        line.push(b'\t');
    }
    line
}

fn render_one(
    reader: &dyn ObjectReader,
    entry: &DiffEntry,
    old: Option<&Inode>,
    new: Option<&Inode>,
    options: &PatchOptions,
    patch: &mut Vec<u8>,
) -> Result<()> {
    let old = old.filter(|inode| has_content(Some(inode)));
    let new = new.filter(|inode| has_content(Some(inode)));
    let new_path = &entry.path;
    let old_path = match &entry.kind {
        DiffKind::Renamed { from, .. } => from,
        _ => new_path,
    };
    let old_name = quote_path(&[b"a/", &old_path[..]].concat());
    let new_name = quote_path(&[b"b/", &new_path[..]].concat());
    let mut header = Vec::new();
    match (old, new) {
        (None, Some(new)) => line(&mut header, &[b"new file mode ", git_mode(new).as_bytes()]),
        (Some(old), None) => {
            line(
                &mut header,
                &[b"deleted file mode ", git_mode(old).as_bytes()],
            );
        }
        (Some(old), Some(new)) => {
            if git_mode(old) != git_mode(new) {
                line(&mut header, &[b"old mode ", git_mode(old).as_bytes()]);
                line(&mut header, &[b"new mode ", git_mode(new).as_bytes()]);
            }
            if let DiffKind::Renamed { from, similarity } = &entry.kind {
                let percent = format!("similarity index {similarity}%");
                line(&mut header, &[percent.as_bytes()]);
                line(&mut header, &[b"rename from ", &quote_path(from)]);
                line(&mut header, &[b"rename to ", &quote_path(new_path)]);
            }
        }
        (None, None) => return Ok(()),
    }
    let mut body = Vec::new();
    if !is_equal_content(old, new) {
        let ids = format!("index {}..{}", short_id(old), short_id(new));
        line(&mut header, &[ids.as_bytes()]);
        let old_file = old.map_or(b"/dev/null".to_vec(), |_| file_line(b"a/", old_path));
        let new_file = new.map_or(b"/dev/null".to_vec(), |_| file_line(b"b/", new_path));
        let old_side = read_side(reader, old, options)?;
        let new_side = read_side(reader, new, options)?;
        match (text_of(&old_side), text_of(&new_side)) {
            (Some(old), Some(new)) => {
                render_hunks(old, new, options.context_lines, &mut body);
                if !body.is_empty() {
                    line(&mut header, &[b"--- ", &old_file]);
                    line(&mut header, &[b"+++ ", &new_file]);
                }
            }
            _ => {
                let old_file = old.map_or(b"/dev/null".to_vec(), |_| old_name.clone());
                let new_file = new.map_or(b"/dev/null".to_vec(), |_| new_name.clone());
                let parts: [&[u8]; 5] =
                    [b"Binary files ", &old_file, b" and ", &new_file, b" differ"];
                line(&mut body, &parts);
            }
        }
    }
    if !header.is_empty() || !body.is_empty() {
        line(patch, &[b"diff --git ", &old_name, b" ", &new_name]);
        patch.append(&mut header);
        patch.append(&mut body);
    }
    Ok(())
}

fn render_hunks(old: &[u8], new: &[u8], context_lines: usize, patch: &mut Vec<u8>) {
    let old = split_lines(old);
    let new = split_lines(new);
    let operations = compare(&old, &new);
    if operations.iter().all(|one| one.tag() == DiffTag::Equal) {
        return;
    }
    for group in group_diff_ops(operations, context_lines) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let hunk = format!("@@ -{} +{} @@", range(&old_range), range(&new_range));
        line(patch, &[hunk.as_bytes()]);
        for operation in &group {
            if operation.tag() == DiffTag::Equal {
                render_lines(b' ', &old[operation.old_range()], patch);
            } else {
                render_lines(b'-', &old[operation.old_range()], patch);
                render_lines(b'+', &new[operation.new_range()], patch);
            }
        }
    }
}

/// A range as unified hunks write it: an empty one names the line before it.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn render_lines(sign: u8, lines: &[&[u8]], patch: &mut Vec<u8>) {
    for line in lines {
        patch.push(sign);
        patch.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            patch.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}
