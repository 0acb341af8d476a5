//! Import of a tar archive: plain or zstd, ustar, GNU and PAX headers.
//!
//! The archive is read header by header; contents stay where they are and are read when the store
//! asks for them (a compressed archive, or one that comes through a pipe, is first spooled to a
//! nameless temporary file). Names that lead out of the tree are rejected before anything is
//! imported. The header fields are decoded by the `tar` crate; the records of PAX are read here,
//! because their values may hold any byte.

mod content;
mod fields;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use tar::{EntryType, Header};

use super::Import;
use super::assembly::{Assembly, DirectoryIndex, Entry};
use content::TarContent;
use fields::{
    Extended, Records, decode_xattr_name, device, number, pairs, parse_number, parse_numbers,
    parse_records, parse_time, tar_names, verify_checksum,
};

use crate::edit::{Content as _, InodeEdit, NodeEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::metadata::{Status, no_xattrs, status, temporary_file};
use crate::object::{Attributes, Hole, Node, Timestamp};
use crate::path::display_path;
use crate::progress::{Progress, check_cancelled};

const BLOCK_BYTES: u64 = 512;
/// Longest extended header that is read; long enough for every path and attribute.
const EXTENDED_HEADER_LIMIT_BYTES: u64 = 64 << 20;

/// How a tar archive is imported.
#[derive(Debug, Clone)]
pub struct TarOptions {
    /// Directory for the temporary file of a compressed archive.
    pub spool_directory: PathBuf,
}

/// Reads the tree in a tar archive, headers now and contents when the store asks for them.
///
/// # Errors
/// `Unsupported` for other compressions than zstd; `InvalidInput` for entries with absolute
/// paths, `..`, or through something that is no directory, and for damaged archives. Nothing is
/// kept then.
pub fn import_tar(mut file: File, options: &TarOptions, progress: &dyn Progress) -> Result<Import> {
    let reading = |error| StoreError::io("reading the tar archive", error);
    let mut magic = Vec::new();
    let is_seekable = file.stream_position().is_ok();
    (&mut file)
        .take(6)
        .read_to_end(&mut magic)
        .map_err(reading)?;
    let archive = match &magic[..] {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let input = io::Cursor::new(magic).chain(file);
            let mut decoder = zstd::stream::read::Decoder::new(input).map_err(reading)?;
            spool(&mut decoder, options)?
        }
        [0x1f, 0x8b, ..] => return Err(unsupported("gzip", "gunzip")),
        [b'B', b'Z', b'h', ..] => return Err(unsupported("bzip2", "bunzip2")),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => return Err(unsupported("xz", "unxz")),
        _ if !is_seekable => spool(&mut io::Cursor::new(magic).chain(file), options)?,
        _ => {
            file.seek(SeekFrom::Current(-(magic.len() as i64)))
                .map_err(reading)?;
            file
        }
    };
    let mut archive = archive;
    let position = archive.stream_position().map_err(reading)?;
    let archive_status = status(archive.as_fd()).map_err(reading)?;
    let mut reader = TarReader {
        archive: Arc::new(archive),
        status: archive_status,
        position,
        globals: BTreeMap::new(),
        assembly: Assembly::new(implied_attributes(0, 0, Timestamp::default())),
        directory_cache: HashMap::new(),
        warnings: Vec::new(),
    };
    reader.read_all(progress)?;
    Ok(reader.assembly.finish(reader.warnings))
}

fn unsupported(compression: &str, tool: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Unsupported,
        format!("the tar archive is compressed with {compression}"),
    )
    .with_hint(format!(
        "decompress it first, for example with '{tool} -c ARCHIVE > archive.tar'; plain and zstd archives can be read"
    ))
}

fn spool(input: &mut dyn Read, options: &TarOptions) -> Result<File> {
    let directory = options.spool_directory.display();
    let mut file = temporary_file(&options.spool_directory).map_err(|error| {
        StoreError::io(format!("creating a temporary file in '{directory}'"), error)
    })?;
    io::copy(input, &mut file)
        .and_then(|_| file.rewind())
        .map_err(|error| {
            StoreError::io(format!("unpacking the tar archive to '{directory}'"), error)
        })?;
    Ok(file)
}

fn implied_attributes(uid: u32, gid: u32, mtime: Timestamp) -> Attributes {
    Attributes {
        mode: 0o755,
        uid,
        gid,
        mtime,
        xattrs: no_xattrs(),
    }
}

struct TarReader {
    archive: Arc<File>,
    status: Status,
    position: u64,
    globals: Records,
    assembly: Assembly,
    directory_cache: HashMap<Vec<u8>, DirectoryIndex>,
    warnings: Vec<String>,
}

fn damaged(what: &str) -> StoreError {
    StoreError::new(
        ErrorKind::InvalidInput,
        format!("the tar archive is damaged: {what}"),
    )
    .with_hint("nothing was imported; check the archive with 'tar -tvf'")
}

fn rejected(path: &[u8], why: &str) -> StoreError {
    StoreError::new(
        ErrorKind::InvalidInput,
        format!("entry '{}' of the tar archive {why}", display_path(path)),
    )
    .with_hint("nothing was imported; make the archive again without this entry")
}

fn field<T>(value: io::Result<T>, what: &str) -> Result<T> {
    value.map_err(|error| damaged(&format!("{what}: {error}")))
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or(bytes)
}

impl TarReader {
    fn read_exact(&self, position: u64, buffer: &mut [u8]) -> Result<()> {
        self.archive
            .read_exact_at(buffer, position)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
                _ => StoreError::io("reading the tar archive", error),
            })
    }

    /// The next block; `None` at the end of the file.
    fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES as usize]>> {
        let mut block = [0; BLOCK_BYTES as usize];
        if self.position >= self.status.size {
            return Ok(None);
        }
        self.read_exact(self.position, &mut block)?;
        self.position += BLOCK_BYTES;
        Ok(Some(block))
    }

    fn read_all(&mut self, progress: &dyn Progress) -> Result<()> {
        let mut extended = Extended::default();
        let mut entry_count = 0_u64;
        while let Some(block) = self.block()? {
            check_cancelled(progress, "the import")?;
            if block.iter().all(|byte| *byte == 0) {
                break;
            }
            let header = Header::from_byte_slice(&block);
            verify_checksum(header)?;
            let size = field(header.entry_size(), "size of an entry")?;
            match header.entry_type() {
                EntryType::XHeader => {
                    let data = self.data(size)?;
                    parse_records(&data, &mut extended)?;
                    extended.has_pax = true;
                }
                EntryType::XGlobalHeader => {
                    let data = self.data(size)?;
                    let mut globals = Extended::default();
                    parse_records(&data, &mut globals)?;
                    self.globals.extend(globals.records);
                }
                EntryType::GNULongName => {
                    extended.path = Some(until_nul(&self.data(size)?).to_vec());
                }
                EntryType::GNULongLink => {
                    extended.link = Some(until_nul(&self.data(size)?).to_vec());
                }
                _ => {
                    let mut merged = std::mem::take(&mut extended);
                    for (key, value) in &self.globals {
                        let records = &mut merged.records;
                        records.entry(key.clone()).or_insert_with(|| value.clone());
                    }
                    entry_count += 1;
                    let (path, bytes) = self.entry(header, size, merged)?;
                    progress.entry(&path, bytes);
                }
            }
        }
        if entry_count == 0 && self.status.size < BLOCK_BYTES {
            return Err(damaged("it holds no entry"));
        }
        Ok(())
    }

    /// The data of an extended header.
    fn data(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > EXTENDED_HEADER_LIMIT_BYTES {
            return Err(damaged("an extended header is too long"));
        }
        let mut data = vec![0; size as usize];
        self.read_exact(self.position, &mut data)?;
        self.skip(size)?;
        Ok(data)
    }

    fn skip(&mut self, size: u64) -> Result<()> {
        let next = size
            .checked_next_multiple_of(BLOCK_BYTES)
            .and_then(|padded| self.position.checked_add(padded))
            .filter(|_| self.position + size <= self.status.size);
        self.position = next.ok_or_else(|| damaged("an entry is longer than the archive"))?;
        Ok(())
    }

    fn entry(
        &mut self,
        header: &Header,
        header_size: u64,
        mut extended: Extended,
    ) -> Result<(Vec<u8>, u64)> {
        let records = &extended.records;
        let raw_path = records
            .get(&b"GNU.sparse.name"[..])
            .or_else(|| records.get(&b"path"[..]))
            .cloned()
            .or(extended.path.take())
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let raw_link = records
            .get(&b"linkpath"[..])
            .cloned()
            .or(extended.link.take())
            .or_else(|| header.link_name_bytes().map(|name| name.into_owned()))
            .unwrap_or_default();
        let names = tar_names(&raw_path, &raw_path)?;
        let path = names.join(&b'/');
        let entry_type = header.entry_type();
        let stored_size = number(records, b"size")?.unwrap_or(header_size);
        let attributes = self.attributes(header, records, &path)?;

        // Entries without content: old archives may give hard links a size without any data.
        let has_data = match entry_type {
            EntryType::Link => extended.has_pax,
            EntryType::Symlink | EntryType::Directory => false,
            _ => true,
        };
        let mut data_position = self.position;
        let mut sparse = None;
        if entry_type == EntryType::GNUSparse {
            sparse = Some(self.old_sparse_map(header)?);
            data_position = self.position;
        }
        if has_data {
            self.skip(stored_size)?;
        }

        let is_directory = entry_type == EntryType::Directory
            || (raw_path.ends_with(b"/") && matches!(entry_type, EntryType::Regular));
        let Some((name, parents)) = names.split_last() else {
            if !is_directory {
                return Err(rejected(&raw_path, "has no name"));
            }
            self.assembly.set_attributes(0, attributes);
            return Ok((path, 0));
        };
        let parent = self.parent(parents, &raw_path, &attributes)?;
        let existing = self.assembly.entry(parent, name);
        if is_directory {
            if let Some(Entry::Directory(index)) = existing {
                self.assembly.set_attributes(index, attributes);
            } else {
                let name = (*name).into();
                let index = self.assembly.add_directory(parent, name, attributes);
                self.directory_cache.insert(path.clone(), index);
            }
            return Ok((path, 0));
        }
        if let Some(Entry::Directory(index)) = existing {
            if !self.assembly.is_empty(index) {
                return Err(rejected(
                    &raw_path,
                    "replaces a directory that is not empty",
                ));
            }
            self.directory_cache.remove(&path);
        }
        if entry_type == EntryType::Link {
            let target = self.link_target(&raw_link, &raw_path)?;
            self.assembly.add_name(parent, (*name).into(), target);
            return Ok((path, 0));
        }
        let is_socket =
            extended.records.get(&b"KURA.type"[..]).map(Vec::as_slice) == Some(b"socket");
        let mut bytes = 0;
        let node = match entry_type {
            EntryType::Symlink => NodeEdit::Stored(Node::Symlink {
                target: {
                    if raw_link.is_empty() || raw_link.contains(&0) {
                        return Err(rejected(&raw_path, "is a symbolic link without a target"));
                    }
                    raw_link.into_boxed_slice()
                },
            }),
            EntryType::Fifo if is_socket => NodeEdit::Stored(Node::Socket),
            EntryType::Fifo => NodeEdit::Stored(Node::Fifo),
            EntryType::Char => NodeEdit::Stored(Node::CharDevice {
                rdev: device(header)?,
            }),
            EntryType::Block => NodeEdit::Stored(Node::BlockDevice {
                rdev: device(header)?,
            }),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let content = self.content(data_position, stored_size, sparse, &extended)?;
                bytes = content.size();
                NodeEdit::Content {
                    key: self.assembly.next_key(),
                    content: Arc::new(content),
                }
            }
            other => {
                let kind = char::from(other.as_byte()).escape_default();
                self.warnings.push(format!(
                    "entry '{}' was left out: its type '{kind}' is unknown",
                    display_path(&path)
                ));
                return Ok((path, 0));
            }
        };
        self.assembly
            .add_inode(parent, (*name).into(), InodeEdit { attributes, node });
        Ok((path, bytes))
    }

    /// The directory that holds an entry; directories that the archive doesn't name are made.
    fn parent(
        &mut self,
        names: &[&[u8]],
        raw_path: &[u8],
        attributes: &Attributes,
    ) -> Result<DirectoryIndex> {
        let path = names.join(&b'/');
        if names.is_empty() {
            return Ok(0);
        }
        if let Some(index) = self.directory_cache.get(&path) {
            return Ok(*index);
        }
        let mut index = 0;
        for name in names {
            index = match self.assembly.entry(index, name) {
                Some(Entry::Directory(child)) => child,
                Some(Entry::Inode(_)) => {
                    return Err(rejected(
                        raw_path,
                        "leads through a symbolic link or file that is no directory",
                    ));
                }
                None => {
                    let implied =
                        implied_attributes(attributes.uid, attributes.gid, attributes.mtime);
                    self.assembly.add_directory(index, (*name).into(), implied)
                }
            };
        }
        self.directory_cache.insert(path, index);
        Ok(index)
    }

    fn link_target(&self, raw_link: &[u8], raw_path: &[u8]) -> Result<usize> {
        let names = tar_names(raw_link, raw_path)?;
        let mut index = 0;
        for (depth, name) in names.iter().enumerate() {
            match self.assembly.entry(index, name) {
                Some(Entry::Directory(child)) => index = child,
                Some(Entry::Inode(inode)) if depth + 1 == names.len() => return Ok(inode),
                _ => break,
            }
        }
        let link = display_path(raw_link);
        Err(rejected(
            raw_path,
            &format!("is a hard link to '{link}', which is not before it in the archive"),
        ))
    }

    fn attributes(
        &mut self,
        header: &Header,
        records: &Records,
        path: &[u8],
    ) -> Result<Attributes> {
        let id = |key: &[u8], value: io::Result<u64>| -> Result<u32> {
            let value = match number(records, key)? {
                Some(value) => value,
                None => field(value, "owner of an entry")?,
            };
            u32::try_from(value).map_err(|_| damaged("an owner is too large"))
        };
        let mtime = match records.get(&b"mtime"[..]) {
            Some(text) => parse_time(text).ok_or_else(|| damaged("a time is not a number"))?,
            None => Timestamp {
                // Times before 1970 are negative numbers in base 256.
                seconds: field(header.mtime(), "time of an entry")? as i64,
                nanoseconds: 0,
            },
        };
        let mut xattrs = BTreeMap::new();
        for (key, value) in records {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                let name = decode_xattr_name(name);
                xattrs.insert(name.into_boxed_slice(), value.clone().into_boxed_slice());
            } else if key.starts_with(b"SCHILY.acl.") {
                self.warnings.push(format!(
                    "the ACL of '{}' was left out: it is not stored as an extended attribute",
                    display_path(path)
                ));
            }
        }
        Ok(Attributes {
            mode: field(header.mode(), "mode of an entry")? & 0o7777,
            uid: id(b"uid", header.uid())?,
            gid: id(b"gid", header.gid())?,
            mtime,
            xattrs: if xattrs.is_empty() {
                no_xattrs()
            } else {
                Arc::new(xattrs)
            },
        })
    }

    /// Reads the map of an old GNU sparse entry, also the blocks that continue it: real size and
    /// data ranges.
    fn old_sparse_map(&mut self, header: &Header) -> Result<(u64, Vec<(u64, u64)>)> {
        let gnu = header
            .as_gnu()
            .ok_or_else(|| damaged("a sparse entry has no GNU header"))?;
        let real_size = field(gnu.real_size(), "size of a sparse entry")?;
        let mut ranges = Vec::new();
        let mut push = |sparse: &tar::GnuSparseHeader| -> Result<()> {
            if !sparse.is_empty() {
                ranges.push((
                    field(sparse.offset(), "sparse map")?,
                    field(sparse.length(), "sparse map")?,
                ));
            }
            Ok(())
        };
        for sparse in &gnu.sparse {
            push(sparse)?;
        }
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let block = self.block()?.ok_or_else(|| damaged("it ends too early"))?;
            let mut extended = tar::GnuExtSparseHeader::new();
            extended.as_mut_bytes().copy_from_slice(&block);
            for sparse in extended.sparse() {
                push(sparse)?;
            }
            is_extended = extended.is_extended();
        }
        Ok((real_size, ranges))
    }

    fn content(
        &self,
        mut position: u64,
        mut stored_size: u64,
        old_sparse: Option<(u64, Vec<(u64, u64)>)>,
        extended: &Extended,
    ) -> Result<TarContent> {
        let records = &extended.records;
        let sparse = if old_sparse.is_some() {
            old_sparse
        } else if records.get(&b"GNU.sparse.major"[..]).map(Vec::as_slice) == Some(b"1") {
            let size = number(records, b"GNU.sparse.realsize")?;
            let size = size.ok_or_else(|| damaged("a sparse entry has no size"))?;
            let (ranges, map_bytes) = self.new_sparse_map(position, stored_size)?;
            position += map_bytes;
            stored_size -= map_bytes;
            Some((size, ranges))
        } else if let Some(size) = number(records, b"GNU.sparse.size")? {
            let numbers = match records.get(&b"GNU.sparse.map"[..]) {
                Some(map) => parse_numbers(map, b',')?,
                None => extended.sparse_pairs.clone(),
            };
            Some((size, pairs(&numbers)))
        } else {
            None
        };
        let (size, ranges) = match (sparse, records.get(&b"KURA.holes"[..])) {
            (Some(sparse), _) => sparse,
            (None, Some(holes)) => {
                // The content is there in full; what is said to be a hole is not read.
                let holes: Vec<Hole> = pairs(&parse_numbers(holes, b',')?)
                    .into_iter()
                    .map(|(offset, length)| Hole { offset, length })
                    .collect();
                return TarContent::with_holes(self, position, stored_size, holes);
            }
            (None, None) => (stored_size, vec![(0, stored_size)]),
        };
        TarContent::with_ranges(self, position, stored_size, size, &ranges)
    }

    /// The map of GNU sparse format 1.0: decimal numbers, one a line, before the data.
    fn new_sparse_map(&self, position: u64, size: u64) -> Result<(Vec<(u64, u64)>, u64)> {
        let mut text = Vec::new();
        let mut numbers: Vec<u64> = Vec::new();
        let mut block = [0; BLOCK_BYTES as usize];
        let mut used = 0;
        loop {
            if used + BLOCK_BYTES > size.next_multiple_of(BLOCK_BYTES) {
                return Err(damaged("a sparse map ends too early"));
            }
            self.read_exact(position + used, &mut block)?;
            used += BLOCK_BYTES;
            for byte in block {
                if byte == b'\n' {
                    numbers.push(parse_number(&text)?);
                    text.clear();
                    if numbers.len() as u64 > 2 * numbers[0] {
                        return Ok((pairs(&numbers[1..]), used));
                    }
                } else if text.len() < 20 {
                    text.push(byte);
                } else {
                    return Err(damaged("a sparse map holds a number that is too long"));
                }
            }
        }
    }
}
