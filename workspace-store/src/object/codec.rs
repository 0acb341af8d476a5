//! Canonical encodings of tree nodes, manifests, commits and roots.
//!
//! Invariant: every value has exactly one encoding, and the decoders accept no other: unsorted or
//! impossible names, non-minimal numbers, trailing bytes and unknown versions are refused. So the
//! id of a value is the hash of its encoding. Ids of trees and commits are hashed with a domain
//! prefix, so that file content can never pass for one. Golden vectors in the tests pin the bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, ChunkId, CommitId, ConflictSetId, TreeId};
use crate::limits::{
    CHUNK_MAX_BYTES, NAME_MAX_BYTES, SYMLINK_TARGET_MAX_BYTES, XATTR_VALUE_MAX_BYTES,
};
use crate::object::{
    Attributes, Commit, CommitKind, Hole, Inode, LinkId, LinkedInode, Name, Node, Root, Timestamp,
    TreeEntry, Xattrs,
};
use crate::reader::TreeChild;

mod conflicts;

pub(crate) use conflicts::{conflict_set_id, decode_conflicts, encode_conflicts};

const VERSION: u8 = 1;
/// Version of a commit that has optional parts. They follow its other fields, each as a tag and
/// bytes with their length before them, in ascending order of their tags.
const COMMIT_VERSION_WITH_PARTS: u8 = 2;
const COMMIT_PART_CONFLICTS: u8 = 1;
const TREE_DOMAIN: &[u8] = b"kura.tree\0";
const COMMIT_DOMAIN: &[u8] = b"kura.commit\0";
const MANIFEST_DOMAIN: &[u8] = b"kura.manifest\0";

const NODE_LEAF: u8 = 1;
const NODE_INNER: u8 = 2;
const NODE_LINK_LEAF: u8 = 3;

const TAG_LINK: u8 = 0;
const TAG_REGULAR: u8 = 1;
const TAG_DIRECTORY: u8 = 2;
const TAG_SYMLINK: u8 = 3;
const TAG_FIFO: u8 = 4;
const TAG_SOCKET: u8 = 5;
const TAG_CHAR_DEVICE: u8 = 6;
const TAG_BLOCK_DEVICE: u8 = 7;
const FLAG_XATTRS: u8 = 0x40;
const FLAG_HOLES: u8 = 0x80;

/// A node of a directory or of a link table, as stored. Keys of a link table are 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredNode {
    /// Entries of a directory.
    Leaf(Vec<(Name, TreeEntry)>),
    /// Entries of a link table.
    LinkLeaf(Vec<(Name, LinkedInode)>),
    /// Child nodes of either.
    Inner(Vec<TreeChild>),
}

/// Equal chunks of a blob that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRun {
    /// The chunk.
    pub(crate) chunk: ChunkId,
    /// Its length in bytes.
    pub(crate) size: u32,
    /// How often it stands there, at least once.
    pub(crate) repetitions: u64,
    /// Offset in the blob of the first byte after the run.
    pub(crate) end: u64,
}

/// The chunks of a blob, in order; a large empty region is one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    runs: Vec<ChunkRun>,
}

impl Manifest {
    /// Adds a chunk at the end.
    pub(crate) fn push(&mut self, chunk: ChunkId, size: u32) {
        let end = self.size() + u64::from(size);
        match self.runs.last_mut() {
            Some(last) if last.chunk == chunk && last.size == size => {
                last.repetitions += 1;
                last.end = end;
            }
            _ => self.runs.push(ChunkRun {
                chunk,
                size,
                repetitions: 1,
                end,
            }),
        }
    }

    /// Length of the blob.
    pub(crate) fn size(&self) -> u64 {
        self.runs.last().map_or(0, |last| last.end)
    }

    /// The runs in order.
    pub(crate) fn runs(&self) -> &[ChunkRun] {
        &self.runs
    }

    /// The chunk that holds the byte at `offset`, where it begins, and its length.
    pub(crate) fn locate(&self, offset: u64) -> Option<(ChunkId, u64, u32)> {
        let run = self
            .runs
            .get(self.runs.partition_point(|run| run.end <= offset))?;
        let size = u64::from(run.size);
        let begin = run.end - size * run.repetitions;
        Some((run.chunk, begin + (offset - begin) / size * size, run.size))
    }
}

/// The key of a link in a link table.
pub(crate) fn link_key(id: LinkId) -> Name {
    Box::new(id.0.to_be_bytes())
}

/// The link that a key of a link table stands for.
pub(crate) fn link_of_key(key: &[u8]) -> Option<LinkId> {
    key.try_into()
        .ok()
        .map(|bytes| LinkId(u64::from_be_bytes(bytes)))
}

/// Whether `name` can be the name of a directory entry.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX_BYTES
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| *byte == 0 || *byte == b'/')
}

/// Id of an encoded tree node.
pub(crate) fn tree_id(encoded: &[u8]) -> TreeId {
    TreeId(domain_hash(TREE_DOMAIN, &[encoded]))
}

/// Id of an encoded commit.
pub(crate) fn commit_id(encoded: &[u8]) -> CommitId {
    CommitId(domain_hash(COMMIT_DOMAIN, &[encoded]))
}

/// Checksum that binds an encoded manifest to its blob.
pub(crate) fn manifest_checksum(blob: BlobId, encoded: &[u8]) -> [u8; 32] {
    domain_hash(MANIFEST_DOMAIN, &[&blob.0, encoded])
}

fn domain_hash(domain: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(domain);
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// Encodes a tree node.
pub(crate) fn encode_node(node: &StoredNode) -> Vec<u8> {
    let mut output = Vec::with_capacity(4096);
    output.push(VERSION);
    match node {
        StoredNode::Leaf(entries) => {
            output.push(NODE_LEAF);
            write_number(&mut output, entries.len() as u64);
            for (name, entry) in entries {
                write_bytes(&mut output, name);
                match entry {
                    TreeEntry::Link(id) => {
                        output.push(TAG_LINK);
                        output.extend_from_slice(&id.0.to_be_bytes());
                    }
                    TreeEntry::Inline(inode) => write_inode(&mut output, inode),
                }
            }
        }
        StoredNode::LinkLeaf(entries) => {
            output.push(NODE_LINK_LEAF);
            write_number(&mut output, entries.len() as u64);
            for (key, linked) in entries {
                output.extend_from_slice(key);
                write_number(&mut output, u64::from(linked.link_count));
                write_inode(&mut output, &linked.inode);
            }
        }
        StoredNode::Inner(children) => {
            output.push(NODE_INNER);
            write_number(&mut output, children.len() as u64);
            for child in children {
                write_bytes(&mut output, &child.last_name);
                write_number(&mut output, child.entry_count);
                output.extend_from_slice(&child.node.0);
            }
        }
    }
    output
}

/// Decodes a tree node.
///
/// # Errors
/// `Corrupt` for anything that [`encode_node`] doesn't write.
pub(crate) fn decode_node(bytes: &[u8]) -> Result<StoredNode> {
    let mut input = Input::open(bytes, "directory node")?;
    let kind = input.byte()?;
    let count = input.count()?;
    let node = match kind {
        NODE_LEAF => {
            let mut entries: Vec<(Name, TreeEntry)> = Vec::with_capacity(count);
            for _ in 0..count {
                let name = input.name()?;
                input.ascending(entries.last().map(|(last, _)| last.as_ref()), &name)?;
                let tag = input.byte()?;
                let entry = if tag == TAG_LINK {
                    TreeEntry::Link(LinkId(u64::from_be_bytes(input.array()?)))
                } else {
                    TreeEntry::Inline(input.inode(tag)?)
                };
                entries.push((name, entry));
            }
            StoredNode::Leaf(entries)
        }
        NODE_LINK_LEAF => {
            let mut entries: Vec<(Name, LinkedInode)> = Vec::with_capacity(count);
            for _ in 0..count {
                let key: Name = Box::new(input.array::<8>()?);
                input.ascending(entries.last().map(|(last, _)| last.as_ref()), &key)?;
                let link_count = input.number_u32()?;
                let tag = input.byte()?;
                let inode = input.inode(tag)?;
                if link_count == 0 || matches!(inode.node, Node::Directory { .. }) {
                    return Err(input.error("impossible entry of a link table"));
                }
                entries.push((key, LinkedInode { link_count, inode }));
            }
            StoredNode::LinkLeaf(entries)
        }
        NODE_INNER => {
            let mut children: Vec<TreeChild> = Vec::with_capacity(count);
            let mut total = 0_u64;
            for _ in 0..count {
                let last_name: Name = input.bytes(NAME_MAX_BYTES)?.into();
                input.ascending(
                    children.last().map(|last| last.last_name.as_ref()),
                    &last_name,
                )?;
                let entry_count = input.number()?;
                total = match total.checked_add(entry_count) {
                    Some(total) if entry_count > 0 => total,
                    _ => return Err(input.error("impossible number of entries")),
                };
                let node = TreeId(input.array()?);
                children.push(TreeChild {
                    last_name,
                    entry_count,
                    node,
                });
            }
            if children.is_empty() {
                return Err(input.error("inner node without children"));
            }
            StoredNode::Inner(children)
        }
        _ => return Err(input.error("unknown kind of node")),
    };
    input.finish()?;
    Ok(node)
}

/// Encodes a manifest.
pub(crate) fn encode_manifest(manifest: &Manifest) -> Vec<u8> {
    let mut output = Vec::with_capacity(8 + manifest.runs.len() * 36);
    output.push(VERSION);
    write_number(&mut output, manifest.runs.len() as u64);
    for run in &manifest.runs {
        output.extend_from_slice(&run.chunk.0);
        write_number(&mut output, u64::from(run.size));
        write_number(&mut output, run.repetitions);
    }
    output
}

/// Decodes a manifest.
///
/// # Errors
/// `Corrupt` for anything that [`encode_manifest`] doesn't write.
pub(crate) fn decode_manifest(bytes: &[u8]) -> Result<Manifest> {
    let mut input = Input::open(bytes, "list of chunks")?;
    let count = input.count()?;
    let mut manifest = Manifest {
        runs: Vec::with_capacity(count.min(bytes.len() / 34)),
    };
    let mut end = 0_u64;
    for _ in 0..count {
        let chunk = ChunkId(input.array()?);
        let size = input.number_u32()?;
        let repetitions = input.number()?;
        if size == 0 || size as usize > CHUNK_MAX_BYTES || repetitions == 0 {
            return Err(input.error("impossible chunk"));
        }
        if manifest
            .runs
            .last()
            .is_some_and(|last| last.chunk == chunk && last.size == size)
        {
            return Err(input.error("equal chunks stand apart"));
        }
        end = u64::from(size)
            .checked_mul(repetitions)
            .and_then(|length| end.checked_add(length))
            .ok_or_else(|| input.error("impossible length"))?;
        manifest.runs.push(ChunkRun {
            chunk,
            size,
            repetitions,
            end,
        });
    }
    input.finish()?;
    Ok(manifest)
}

/// Encodes a commit.
pub(crate) fn encode_commit(commit: &Commit) -> Vec<u8> {
    let mut output = Vec::with_capacity(256 + commit.message.len());
    output.push(match commit.conflicts {
        None => VERSION,
        Some(_) => COMMIT_VERSION_WITH_PARTS,
    });
    write_root(&mut output, &commit.root);
    write_number(&mut output, commit.parents.len() as u64);
    for parent in &commit.parents {
        output.extend_from_slice(&parent.0);
    }
    write_bytes(&mut output, commit.author.as_bytes());
    output.push(commit_kind_number(commit.kind));
    write_time(&mut output, commit.time);
    write_bytes(&mut output, commit.message.as_bytes());
    match &commit.run {
        None => output.push(0),
        Some(run) => {
            output.push(1);
            write_bytes(&mut output, run.as_bytes());
        }
    }
    match commit.step {
        None => output.push(0),
        Some(step) => {
            output.push(1);
            write_number(&mut output, step);
        }
    }
    if let Some(conflicts) = &commit.conflicts {
        output.push(COMMIT_PART_CONFLICTS);
        write_bytes(&mut output, conflicts.as_bytes());
    }
    output
}

/// Decodes a commit.
///
/// # Errors
/// `Corrupt` for anything that [`encode_commit`] doesn't write.
pub(crate) fn decode_commit(bytes: &[u8]) -> Result<Commit> {
    let (mut input, version) = Input::open_up_to(bytes, "commit", COMMIT_VERSION_WITH_PARTS)?;
    let root = input.root()?;
    let parents = (0..input.count()?)
        .map(|_| input.array().map(CommitId))
        .collect::<Result<_>>()?;
    let author = input.text()?;
    let kind = match input.byte()? {
        0 => CommitKind::Init,
        1 => CommitKind::Snapshot,
        2 => CommitKind::Manual,
        3 => CommitKind::Import,
        4 => CommitKind::Rescue,
        5 => CommitKind::Rollback,
        6 => CommitKind::Restore,
        7 => CommitKind::Undo,
        8 => CommitKind::Handoff,
        9 => CommitKind::Merge,
        _ => return Err(input.error("unknown kind of commit")),
    };
    let time = input.time()?;
    let message = input.text()?;
    let run = input.flag()?.then(|| input.text()).transpose()?;
    let step = input.flag()?.then(|| input.number()).transpose()?;
    let conflicts = if version == COMMIT_VERSION_WITH_PARTS {
        match input.byte()? {
            COMMIT_PART_CONFLICTS => {}
            _ => return Err(input.error("unknown part")),
        }
        let id = ConflictSetId::from_slice(input.bytes(32)?);
        Some(id.ok_or_else(|| input.error("impossible id"))?)
    } else {
        None
    };
    input.finish()?;
    Ok(Commit {
        root,
        parents,
        author,
        kind,
        time,
        message,
        run,
        step,
        conflicts,
    })
}

/// Encodes a root by itself.
pub(crate) fn encode_root(root: &Root) -> Vec<u8> {
    let mut output = vec![VERSION];
    write_root(&mut output, root);
    output
}

/// Decodes a root.
///
/// # Errors
/// `Corrupt` for anything that [`encode_root`] doesn't write.
pub(crate) fn decode_root(bytes: &[u8]) -> Result<Root> {
    let mut input = Input::open(bytes, "root")?;
    let root = input.root()?;
    input.finish()?;
    Ok(root)
}

fn commit_kind_number(kind: CommitKind) -> u8 {
    match kind {
        CommitKind::Init => 0,
        CommitKind::Snapshot => 1,
        CommitKind::Manual => 2,
        CommitKind::Import => 3,
        CommitKind::Rescue => 4,
        CommitKind::Rollback => 5,
        CommitKind::Restore => 6,
        CommitKind::Undo => 7,
        CommitKind::Handoff => 8,
        CommitKind::Merge => 9,
    }
}

/// Appends a number, seven bits a byte, lowest first.
pub(crate) fn write_number(output: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        output.push(number as u8 | 0x80);
        number >>= 7;
    }
    output.push(number as u8);
}

/// Appends bytes with their length before them.
pub(crate) fn write_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    write_number(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
}

/// Appends a time: seconds with the sign in the lowest bit, then nanoseconds.
pub(crate) fn write_time(output: &mut Vec<u8>, time: Timestamp) {
    write_number(output, (time.seconds << 1 ^ time.seconds >> 63) as u64);
    write_number(output, u64::from(time.nanoseconds));
}

fn write_attributes(output: &mut Vec<u8>, attributes: &Attributes) {
    write_number(output, u64::from(attributes.mode));
    write_number(output, u64::from(attributes.uid));
    write_number(output, u64::from(attributes.gid));
    write_time(output, attributes.mtime);
}

fn write_xattrs(output: &mut Vec<u8>, xattrs: &Xattrs) {
    write_number(output, xattrs.len() as u64);
    for (name, value) in xattrs.iter() {
        write_bytes(output, name);
        write_bytes(output, value);
    }
}

fn write_inode(output: &mut Vec<u8>, inode: &Inode) {
    let mut tag = match &inode.node {
        Node::Regular { holes, .. } if holes.is_empty() => TAG_REGULAR,
        Node::Regular { .. } => TAG_REGULAR | FLAG_HOLES,
        Node::Directory { .. } => TAG_DIRECTORY,
        Node::Symlink { .. } => TAG_SYMLINK,
        Node::Fifo => TAG_FIFO,
        Node::Socket => TAG_SOCKET,
        Node::CharDevice { .. } => TAG_CHAR_DEVICE,
        Node::BlockDevice { .. } => TAG_BLOCK_DEVICE,
    };
    if !inode.attributes.xattrs.is_empty() {
        tag |= FLAG_XATTRS;
    }
    output.push(tag);
    write_attributes(output, &inode.attributes);
    if tag & FLAG_XATTRS != 0 {
        write_xattrs(output, &inode.attributes.xattrs);
    }
    match &inode.node {
        Node::Regular { blob, size, holes } => {
            output.extend_from_slice(&blob.0);
            write_number(output, *size);
            if tag & FLAG_HOLES != 0 {
                write_number(output, holes.len() as u64);
                for hole in holes.iter() {
                    write_number(output, hole.offset);
                    write_number(output, hole.length);
                }
            }
        }
        Node::Directory { tree } => output.extend_from_slice(&tree.0),
        Node::Symlink { target } => write_bytes(output, target),
        Node::Fifo | Node::Socket => {}
        Node::CharDevice { rdev } | Node::BlockDevice { rdev } => write_number(output, *rdev),
    }
}

fn write_root(output: &mut Vec<u8>, root: &Root) {
    write_attributes(output, &root.attributes);
    write_xattrs(output, &root.attributes.xattrs);
    output.extend_from_slice(&root.tree.0);
    match root.links {
        None => output.push(0),
        Some(links) => {
            output.push(1);
            output.extend_from_slice(&links.0);
        }
    }
}

/// Bytes being decoded.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Input<'a> {
    /// Starts at the version byte of an encoded `what`.
    pub(crate) fn open(bytes: &'a [u8], what: &'static str) -> Result<Self> {
        Ok(Self::open_up_to(bytes, what, VERSION)?.0)
    }

    /// The same for something that has several versions; gives back which one.
    pub(crate) fn open_up_to(
        bytes: &'a [u8],
        what: &'static str,
        newest: u8,
    ) -> Result<(Self, u8)> {
        let mut input = Self { rest: bytes, what };
        let version = input.byte()?;
        if (VERSION..=newest).contains(&version) {
            return Ok((input, version));
        }
        Err(StoreError::new(
            ErrorKind::Incompatible,
            format!("{what} has format {version}, this version knows formats up to {newest}"),
        )
        .with_hint("it was written by a newer version of kura; update this one"))
    }

    /// The error for a defect found here.
    pub(crate) fn error(&self, reason: &str) -> StoreError {
        StoreError::new(
            ErrorKind::Corrupt,
            format!("{} is malformed: {reason}", self.what),
        )
    }

    /// Ends decoding; nothing may be left.
    pub(crate) fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error("bytes after its end"))
        }
    }

    /// Whether all bytes are used.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| self.error("it ends early"))?;
        self.rest = rest;
        Ok(*first)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let (first, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.error("it ends early"))?;
        self.rest = rest;
        Ok(*first)
    }

    /// A number.
    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.error("number out of range"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.error("number not in its shortest form"));
                }
                return Ok(number);
            }
        }
        Err(self.error("number out of range"))
    }

    pub(crate) fn number_u32(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| self.error("number out of range"))
    }

    /// A count of elements that take at least a byte each.
    pub(crate) fn count(&mut self) -> Result<usize> {
        match usize::try_from(self.number()?) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(self.error("more elements than bytes")),
        }
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self, max_bytes: usize) -> Result<&'a [u8]> {
        let length = self.count()?;
        if length > max_bytes {
            return Err(self.error("element is too long"));
        }
        let (first, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(first)
    }

    fn text(&mut self) -> Result<String> {
        let bytes = self.bytes(usize::MAX)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.error("text is not UTF-8"))
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("unknown flag")),
        }
    }

    fn name(&mut self) -> Result<Name> {
        let name = self.bytes(NAME_MAX_BYTES)?;
        if is_valid_name(name) {
            Ok(name.into())
        } else {
            Err(self.error("impossible name"))
        }
    }

    fn ascending(&self, last: Option<&[u8]>, next: &[u8]) -> Result<()> {
        match last {
            Some(last) if last >= next => Err(self.error("names are not in ascending order")),
            _ => Ok(()),
        }
    }

    fn time(&mut self) -> Result<Timestamp> {
        let folded = self.number()?;
        let seconds = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        let nanoseconds = self.number_u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(self.error("time out of range"));
        }
        Ok(Timestamp {
            seconds,
            nanoseconds,
        })
    }

    fn attributes(&mut self) -> Result<Attributes> {
        let mode = self.number_u32()?;
        if mode > 0o7777 {
            return Err(self.error("mode out of range"));
        }
        Ok(Attributes {
            mode,
            uid: self.number_u32()?,
            gid: self.number_u32()?,
            mtime: self.time()?,
            xattrs: Xattrs::default(),
        })
    }

    fn xattrs(&mut self) -> Result<Xattrs> {
        let mut xattrs = BTreeMap::new();
        let mut last: Option<&[u8]> = None;
        for _ in 0..self.count()? {
            let name = self.bytes(NAME_MAX_BYTES)?;
            self.ascending(last, name)?;
            last = Some(name);
            if name.is_empty() || name.contains(&0) {
                return Err(self.error("impossible name of an extended attribute"));
            }
            xattrs.insert(name.into(), self.bytes(XATTR_VALUE_MAX_BYTES)?.into());
        }
        Ok(Arc::new(xattrs))
    }

    fn inode(&mut self, tag: u8) -> Result<Inode> {
        let mut attributes = self.attributes()?;
        if tag & FLAG_XATTRS != 0 {
            attributes.xattrs = self.xattrs()?;
            if attributes.xattrs.is_empty() {
                return Err(self.error("empty list of extended attributes"));
            }
        }
        let node = match tag & !FLAG_XATTRS {
            tag if tag & !FLAG_HOLES == TAG_REGULAR => {
                let blob = BlobId(self.array()?);
                let size = self.number()?;
                let holes = if tag & FLAG_HOLES != 0 {
                    self.holes(size)?
                } else {
                    Arc::new([])
                };
                Node::Regular { blob, size, holes }
            }
            TAG_DIRECTORY => Node::Directory {
                tree: TreeId(self.array()?),
            },
            TAG_SYMLINK => {
                let target = self.bytes(SYMLINK_TARGET_MAX_BYTES)?;
                if target.is_empty() || target.contains(&0) {
                    return Err(self.error("impossible target of a symbolic link"));
                }
                Node::Symlink {
                    target: target.into(),
                }
            }
            TAG_FIFO => Node::Fifo,
            TAG_SOCKET => Node::Socket,
            TAG_CHAR_DEVICE => Node::CharDevice {
                rdev: self.number()?,
            },
            TAG_BLOCK_DEVICE => Node::BlockDevice {
                rdev: self.number()?,
            },
            _ => return Err(self.error("unknown kind of entry")),
        };
        Ok(Inode { attributes, node })
    }

    fn holes(&mut self, size: u64) -> Result<Arc<[Hole]>> {
        let holes: Vec<Hole> = (0..self.count()?)
            .map(|_| {
                Ok(Hole {
                    offset: self.number()?,
                    length: self.number()?,
                })
            })
            .collect::<Result<_>>()?;
        if holes.is_empty() || !are_valid_holes(&holes, size) {
            return Err(self.error("impossible holes"));
        }
        Ok(holes.into())
    }

    fn root(&mut self) -> Result<Root> {
        let mut attributes = self.attributes()?;
        attributes.xattrs = self.xattrs()?;
        let tree = TreeId(self.array()?);
        let links = self.flag()?.then(|| self.array().map(TreeId)).transpose()?;
        Ok(Root {
            attributes,
            tree,
            links,
        })
    }
}

/// Whether holes are in ascending order, apart from each other and within the file.
pub(crate) fn are_valid_holes(holes: &[Hole], size: u64) -> bool {
    let mut end_of_last: Option<u64> = None;
    holes.iter().all(|hole| {
        let is_apart = end_of_last.is_none_or(|end| end < hole.offset);
        let end = hole.offset.checked_add(hole.length);
        end_of_last = end;
        is_apart && hole.length > 0 && end.is_some_and(|end| end <= size)
    })
}

#[cfg(test)]
mod tests;
