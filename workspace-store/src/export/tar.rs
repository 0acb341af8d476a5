//! Export as a tar archive in PAX format, in a fixed order, with all that the store keeps.
//!
//! Beyond the standard: extended attributes are `SCHILY.xattr.*` records (as GNU tar, star and
//! bsdtar write them); holes are written as zeros and listed in a record `KURA.holes`
//! (`offset,length,…`); a socket is a FIFO with the record `KURA.type=socket`. Other programs
//! ignore these two.

use std::collections::HashMap;
use std::io::{self, Write};

use tar::{EntryType, Header};

use super::{BUFFER_BYTES, Export, copy_range};
use crate::error::{Result, StoreError};
use crate::id::TreeId;
use crate::lookup::{require_path, resolve_entry};
use crate::object::{Inode, LinkId, Name, Node, Root, Timestamp, TreeEntry};
use crate::path::{display_path, join_path, split_path};
use crate::progress::{Progress, check_cancelled};
use crate::reader::ObjectReader;

const BLOCK_BYTES: u64 = 512;

/// Writes the tree of `root`, or what is at `path` in it, as a tar archive.
///
/// The caller flushes and syncs `output`.
///
/// # Errors
/// `NotFound` if there is no such path; after later errors the archive has no end mark.
pub fn export_tar(
    reader: &dyn ObjectReader,
    root: &Root,
    path: &[u8],
    output: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<Export> {
    let names = split_path(path)?;
    let entry = require_path(reader, root, &names)?;
    let mut writer = TarWriter {
        reader,
        progress,
        output,
        links: root.links,
        first_names: HashMap::new(),
        buffer: vec![0; BUFFER_BYTES],
        export: Export::default(),
    };
    let inode = resolve_entry(reader, root.links, &entry)?;
    if let Node::Directory { tree } = inode.node {
        writer.inode(b"./", &inode)?;
        writer.directory(tree)?;
    } else {
        let name = names.last().map_or(&b"file"[..], |name| name);
        writer.entry(name, &entry)?;
    }
    writer.bytes(b"the end", &[0; 2 * BLOCK_BYTES as usize])?;
    Ok(writer.export)
}

/// A directory being written: its path and the entries still to come.
type Level = (Vec<u8>, std::vec::IntoIter<(Name, TreeEntry)>);

struct TarWriter<'a> {
    reader: &'a dyn ObjectReader,
    progress: &'a dyn Progress,
    output: &'a mut dyn Write,
    links: Option<TreeId>,
    first_names: HashMap<LinkId, Vec<u8>>,
    buffer: Vec<u8>,
    export: Export,
}

impl TarWriter<'_> {
    fn bytes(&mut self, path: &[u8], bytes: &[u8]) -> Result<()> {
        self.output.write_all(bytes).map_err(|error| {
            StoreError::io(
                format!("writing '{}' to the archive", display_path(path)),
                error,
            )
        })
    }

    fn pad(&mut self, path: &[u8], size: u64) -> Result<()> {
        let padding = size.next_multiple_of(BLOCK_BYTES) - size;
        self.bytes(path, &[0; BLOCK_BYTES as usize][..padding as usize])
    }

    fn directory(&mut self, tree: TreeId) -> Result<()> {
        let top: Level = (Vec::new(), self.reader.directory(tree)?.into_iter());
        let mut levels = vec![top];
        while let Some((directory, entries)) = levels.last_mut() {
            let Some((name, entry)) = entries.next() else {
                levels.pop();
                continue;
            };
            let path = join_path(directory, &name);
            self.entry(&path, &entry)?;
            if let TreeEntry::Inline(Inode {
                node: Node::Directory { tree },
                ..
            }) = entry
            {
                let entries = self.reader.directory(tree)?.into_iter();
                levels.push((path, entries));
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &[u8], entry: &TreeEntry) -> Result<()> {
        check_cancelled(self.progress, "the export")?;
        let inode = resolve_entry(self.reader, self.links, entry)?;
        let mut bytes = 0;
        let first = match entry {
            TreeEntry::Link(id) => self.first_names.get(id).cloned(),
            TreeEntry::Inline(_) => None,
        };
        if let Some(first) = first {
            self.header(path, &inode, EntryType::Link, Some(&first), 0)?;
        } else {
            if let TreeEntry::Link(id) = entry {
                self.first_names.insert(*id, path.to_vec());
            }
            bytes = self.inode(path, &inode)?;
        }
        self.export.entry_count += 1;
        self.export.byte_count += bytes;
        self.progress.entry(path, bytes);
        Ok(())
    }

    /// Writes one inode; returns the bytes of its content.
    fn inode(&mut self, path: &[u8], inode: &Inode) -> Result<u64> {
        match &inode.node {
            Node::Regular { blob, size, .. } => {
                self.header(path, inode, EntryType::Regular, None, *size)?;
                let mut buffer = std::mem::take(&mut self.buffer);
                let output = &mut *self.output;
                copy_range(
                    self.reader,
                    *blob,
                    path,
                    (0, *size),
                    &mut buffer,
                    |_, data| output.write_all(data),
                )?;
                self.buffer = buffer;
                self.pad(path, *size)?;
                return Ok(*size);
            }
            Node::Directory { .. } => {
                let mut path = path.to_vec();
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                self.header(&path, inode, EntryType::Directory, None, 0)?;
            }
            Node::Symlink { target } => {
                self.header(path, inode, EntryType::Symlink, Some(target), 0)?;
            }
            Node::Fifo | Node::Socket => self.header(path, inode, EntryType::Fifo, None, 0)?,
            Node::CharDevice { .. } => self.header(path, inode, EntryType::Char, None, 0)?,
            Node::BlockDevice { .. } => self.header(path, inode, EntryType::Block, None, 0)?,
        }
        Ok(0)
    }

    fn header(
        &mut self,
        path: &[u8],
        inode: &Inode,
        entry_type: EntryType,
        link: Option<&[u8]>,
        size: u64,
    ) -> Result<()> {
        let mut records = Vec::new();
        let mut header = Header::new_ustar();
        header.set_entry_type(entry_type);
        header.set_mode(inode.attributes.mode);
        let mut is_binary = set_text(&mut header.as_old_mut().name, path, "path", &mut records);
        if let Some(link) = link {
            let field = &mut header.as_old_mut().linkname;
            is_binary |= set_text(field, link, "linkpath", &mut records);
        }
        // Numbers that don't fit into the octal fields go into records.
        let mut number = |key: &str, value: u64, limit: u64| {
            if value > limit {
                push_record(&mut records, key.as_bytes(), value.to_string().as_bytes());
            }
            value.min(limit)
        };
        header.set_uid(number("uid", inode.attributes.uid.into(), 0o7_777_777));
        header.set_gid(number("gid", inode.attributes.gid.into(), 0o7_777_777));
        header.set_size(number("size", size, 0o77_777_777_777));
        let mtime = inode.attributes.mtime;
        header.set_mtime(mtime.seconds.clamp(0, 0o77_777_777_777) as u64);
        if mtime.nanoseconds != 0 || !(0..=0o77_777_777_777).contains(&mtime.seconds) {
            push_record(&mut records, b"mtime", format_time(mtime).as_bytes());
        }
        let rdev = match inode.node {
            Node::CharDevice { rdev } | Node::BlockDevice { rdev } => rdev,
            _ => 0,
        };
        let fail = |error: io::Error| {
            StoreError::io(format!("describing '{}'", display_path(path)), error)
        };
        header.set_device_major(libc::major(rdev)).map_err(fail)?;
        header.set_device_minor(libc::minor(rdev)).map_err(fail)?;
        if entry_type != EntryType::Link {
            self.attribute_records(inode, &mut records);
        }
        if !records.is_empty() {
            let mut all = Vec::new();
            if is_binary {
                push_record(&mut all, b"hdrcharset", b"BINARY");
            }
            all.append(&mut records);
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            extended.set_mode(0o644);
            extended.set_uid(0);
            extended.set_gid(0);
            extended.set_mtime(0);
            extended.set_size(all.len() as u64);
            extended.as_old_mut().name[..10].copy_from_slice(b"PaxHeaders");
            extended.set_cksum();
            self.bytes(path, extended.as_bytes())?;
            self.bytes(path, &all)?;
            self.pad(path, all.len() as u64)?;
        }
        header.set_cksum();
        self.bytes(path, header.as_bytes())
    }

    fn attribute_records(&self, inode: &Inode, records: &mut Vec<u8>) {
        for (name, value) in inode.attributes.xattrs.iter() {
            let mut key = b"SCHILY.xattr.".to_vec();
            for byte in name {
                match byte {
                    b'=' => key.extend_from_slice(b"%3D"),
                    b'%' => key.extend_from_slice(b"%25"),
                    byte => key.push(*byte),
                }
            }
            push_record(records, &key, value);
        }
        match &inode.node {
            Node::Regular { holes, .. } if !holes.is_empty() => {
                let numbers: Vec<String> = holes
                    .iter()
                    .map(|hole| format!("{},{}", hole.offset, hole.length))
                    .collect();
                push_record(records, b"KURA.holes", numbers.join(",").as_bytes());
            }
            Node::Socket => push_record(records, b"KURA.type", b"socket"),
            _ => {}
        }
    }
}

/// Puts a text into a header field, or into a record if it is too long; returns whether a
/// record that is not UTF-8 was made.
fn set_text(field: &mut [u8], text: &[u8], key: &str, records: &mut Vec<u8>) -> bool {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
    if text.len() <= field.len() {
        return false;
    }
    push_record(records, key.as_bytes(), text);
    std::str::from_utf8(text).is_err()
}

fn push_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits, a space, '=' and the newline.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn format_time(time: Timestamp) -> String {
    let nanoseconds = time.as_nanoseconds();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let absolute = nanoseconds.unsigned_abs();
    format!(
        "{sign}{}.{:09}",
        absolute / 1_000_000_000,
        absolute % 1_000_000_000
    )
}
