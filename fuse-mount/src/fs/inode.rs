//! The inode table's values: what the overlay knows of every inode it has loaded or made.
//!
//! Numbers: those that the overlay gives to new inodes grow from a start taken from the clock and
//! stay below 2^52; numbers of inodes that come from the store follow from the directory's number
//! and the name and lie between 2^52 and 2^53, so that every number is exact in a double (programs
//! compare them so). A number is never used twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::TreeId;
use workspace_store::id::BlobId;
use workspace_store::object::{Attributes, Hole, LinkId, Name, Node, Timestamp, Xattrs};

use super::extent::ExtentMap;
use super::request::FileAttributes;

/// Number of the root directory.
pub(crate) const ROOT: u64 = 1;
/// Numbers that follow from a name start here.
const DERIVED_START: u64 = 1 << 52;
/// A file up to this size is held as one buffer.
pub(crate) const SMALL_FILE_BYTES: u64 = 64 << 10;
/// Positions tried for names whose hashes collide.
const PROBES: u64 = 16;

/// Hash of a name: its position in listings, the same after every restart.
fn hash_name(seed: u64, name: &[u8]) -> u64 {
    // FNV-1a with a final mix: speed matters more than strength, collisions are handled.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The number of an inode that comes from the store.
pub(crate) fn derived_number(directory: u64, name: &[u8]) -> u64 {
    DERIVED_START | (hash_name(directory, name) & (DERIVED_START - 1))
}

/// The number of a file with several names.
pub(crate) fn linked_number(link: LinkId) -> u64 {
    if link.0 > ROOT && link.0 < DERIVED_START {
        link.0
    } else {
        derived_number(0, &link.0.to_be_bytes())
    }
}

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct DirectoryName {
    pub(crate) name: Name,
    pub(crate) number: u64,
}

/// Names of a directory by their position, which is a hash of the name.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<u64, DirectoryName>);

impl Names {
    fn first_position(name: &[u8]) -> u64 {
        // Positions 1 and 2 are those after `.` and `..`; the kernel's offsets are signed.
        (hash_name(0, name) >> 2) + 16
    }

    /// Position of a name.
    pub(crate) fn position(&self, name: &[u8]) -> Option<u64> {
        let first = Self::first_position(name);
        (first..first + PROBES).find(|at| {
            self.0
                .get(at)
                .is_some_and(|found| found.name.as_ref() == name)
        })
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.position(name)
            .and_then(|position| self.0.get(&position))
            .map(|found| found.number)
    }

    pub(crate) fn at(&self, position: u64) -> Option<&DirectoryName> {
        self.0.get(&position)
    }

    /// Adds a name that isn't there; `None` if all its positions are taken.
    pub(crate) fn insert(&mut self, name: &[u8], number: u64) -> Option<u64> {
        let first = Self::first_position(name);
        let position = (first..first + PROBES).find(|at| !self.0.contains_key(at))?;
        self.0.insert(
            position,
            DirectoryName {
                name: name.into(),
                number,
            },
        );
        Some(position)
    }

    /// Whether [`Names::insert`] would succeed.
    pub(crate) fn has_room_for(&self, name: &[u8]) -> bool {
        let first = Self::first_position(name);
        (first..first + PROBES).any(|at| !self.0.contains_key(&at))
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<(u64, u64)> {
        let position = self.position(name)?;
        self.0
            .remove(&position)
            .map(|removed| (position, removed.number))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names after a position, in order.
    pub(crate) fn after(&self, position: u64) -> impl Iterator<Item = (u64, &DirectoryName)> {
        let from = (
            std::ops::Bound::Excluded(position),
            std::ops::Bound::Unbounded,
        );
        self.0.range::<u64, _>(from).map(|(at, name)| (*at, name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DirectoryName> {
        self.0.values()
    }
}

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// What it is in the overlay's base; `None` if it isn't there.
    pub(crate) base: Option<TreeId>,
    /// Its names; `None` until they are needed.
    pub(crate) names: Option<Names>,
    /// How many of them are directories.
    pub(crate) subdirectories: u32,
}

/// Content of a regular file.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// As the store has it.
    Stored {
        blob: BlobId,
        size: u64,
        holes: Arc<[Hole]>,
    },
    /// Changed, in one buffer without holes.
    Small(Arc<Vec<u8>>),
    /// Changed, in pieces.
    Extents(Arc<ExtentMap>),
}

impl Content {
    pub(crate) fn empty() -> Self {
        Content::Small(Arc::new(Vec::new()))
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Content::Stored { size, .. } => *size,
            Content::Small(bytes) => bytes.len() as u64,
            Content::Extents(map) => map.size(),
        }
    }

    /// Bytes that take up space.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        match self {
            Content::Stored { size, holes, .. } => {
                size - holes.iter().map(|hole| hole.length).sum::<u64>()
            }
            Content::Small(bytes) => bytes.len() as u64,
            Content::Extents(map) => map.allocated_bytes(),
        }
    }

    /// Whether both are the same bytes without looking at them.
    pub(crate) fn is_same(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Small(a), Content::Small(b)) => Arc::ptr_eq(a, b),
            (Content::Extents(a), Content::Extents(b)) => Arc::ptr_eq(a, b),
            (
                Content::Stored {
                    blob: a,
                    size,
                    holes,
                },
                Content::Stored {
                    blob: b,
                    size: other_size,
                    holes: other_holes,
                },
            ) => a == b && size == other_size && holes == other_holes,
            _ => false,
        }
    }

    /// The content as pieces, for changes that one buffer can't hold.
    pub(crate) fn to_extents(&self) -> Option<ExtentMap> {
        match self {
            Content::Stored { blob, size, holes } => {
                Some(ExtentMap::from_blob(*blob, *size, holes))
            }
            Content::Extents(map) => Some(ExtentMap::clone(map)),
            Content::Small(_) => None,
        }
    }
}

/// What kind of inode it is, with what only that kind has.
#[derive(Debug)]
pub(crate) enum Kind {
    Directory(Directory),
    Regular(Content),
    Symlink(Box<[u8]>),
    Fifo,
    Socket,
    CharDevice(u64),
    BlockDevice(u64),
}

impl Kind {
    /// File type bits of `st_mode`.
    pub(crate) fn file_type(&self) -> u32 {
        match self {
            Kind::Directory(_) => libc::S_IFDIR,
            Kind::Regular(_) => libc::S_IFREG,
            Kind::Symlink(_) => libc::S_IFLNK,
            Kind::Fifo => libc::S_IFIFO,
            Kind::Socket => libc::S_IFSOCK,
            Kind::CharDevice(_) => libc::S_IFCHR,
            Kind::BlockDevice(_) => libc::S_IFBLK,
        }
    }

    /// The kind of a stored inode.
    pub(crate) fn from_stored(node: &Node) -> Self {
        match node {
            Node::Regular { blob, size, holes } => Kind::Regular(Content::Stored {
                blob: *blob,
                size: *size,
                holes: holes.clone(),
            }),
            Node::Directory { tree } => Kind::Directory(Directory {
                base: Some(*tree),
                names: None,
                subdirectories: 0,
            }),
            Node::Symlink { target } => Kind::Symlink(target.clone()),
            Node::Fifo => Kind::Fifo,
            Node::Socket => Kind::Socket,
            Node::CharDevice { rdev } => Kind::CharDevice(*rdev),
            Node::BlockDevice { rdev } => Kind::BlockDevice(*rdev),
        }
    }
}

/// The places where an inode has names: directory and position there.
#[derive(Debug, Default)]
pub(crate) enum Places {
    #[default]
    None,
    One((u64, u64)),
    Many(Vec<(u64, u64)>),
}

impl Places {
    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        match self {
            Places::None => &[],
            Places::One(place) => std::slice::from_ref(place),
            Places::Many(places) => places,
        }
    }

    pub(crate) fn add(&mut self, place: (u64, u64)) {
        *self = match std::mem::take(self) {
            Places::None => Places::One(place),
            Places::One(first) => Places::Many(vec![first, place]),
            Places::Many(mut places) => {
                places.push(place);
                Places::Many(places)
            }
        };
    }

    pub(crate) fn remove(&mut self, place: (u64, u64)) {
        *self = match std::mem::take(self) {
            Places::One(first) if first == place => Places::None,
            Places::Many(mut places) => {
                if let Some(index) = places.iter().position(|found| *found == place) {
                    places.swap_remove(index);
                }
                match places.as_slice() {
                    [] => Places::None,
                    [only] => Places::One(*only),
                    _ => Places::Many(places),
                }
            }
            other => other,
        };
    }
}

/// One inode.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) kind: Kind,
    /// Permission bits (`07777`).
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) xattrs: Xattrs,
    /// Names it has, of which some may lie in directories that aren't loaded. Of a directory: 1,
    /// or 0 when it was removed.
    pub(crate) link_count: u32,
    pub(crate) places: Places,
    /// Set once it has, or had, several names.
    pub(crate) link: Option<LinkId>,
    /// How often the kernel was told of it and hasn't forgotten yet.
    pub(crate) lookups: u64,
    /// An earlier daemon told the kernel of it, perhaps: `lookups` is too low by an unknown number,
    /// until the kernel forgets it.
    pub(crate) is_inherited: bool,
    /// The kernel may know it, and after a restart only its name would tell where it is.
    pub(crate) needs_known_record: bool,
    /// The epoch of the journal ([`State::epoch`](super::state::State)) that tells where it is.
    pub(crate) noted_epoch: u32,
    /// Number of who writes to it, by what the kernel tells; 0 if nobody is known to.
    pub(crate) writer: u32,
}

impl Inode {
    /// The inode of a stored one, with one place.
    pub(crate) fn from_stored(
        stored: &workspace_store::object::Inode,
        ctime: Option<Timestamp>,
    ) -> Self {
        let attributes = &stored.attributes;
        Self {
            kind: Kind::from_stored(&stored.node),
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            atime: attributes.mtime,
            mtime: attributes.mtime,
            ctime: ctime.unwrap_or(attributes.mtime),
            xattrs: attributes.xattrs.clone(),
            link_count: 1,
            places: Places::None,
            link: None,
            lookups: 0,
            is_inherited: false,
            needs_known_record: true,
            noted_epoch: 0,
            writer: 0,
        }
    }

    /// Whether the kernel may have it open.
    pub(crate) fn is_used(&self) -> bool {
        self.lookups > 0 || self.is_inherited
    }

    /// Its attributes as they are stored.
    pub(crate) fn stored_attributes(&self) -> Attributes {
        Attributes {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime,
            xattrs: self.xattrs.clone(),
        }
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        match &self.kind {
            Kind::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.kind {
            Kind::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::Regular(content) => Some(content),
            _ => None,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    /// Attributes as `stat(2)` shows them.
    pub(crate) fn file_attributes(&self, number: u64) -> FileAttributes {
        let (size, allocated) = match &self.kind {
            Kind::Regular(content) => (content.size(), content.allocated_bytes()),
            Kind::Directory(_) => (4096, 4096),
            Kind::Symlink(target) => (target.len() as u64, 0),
            _ => (0, 0),
        };
        let rdev = match &self.kind {
            Kind::CharDevice(rdev) | Kind::BlockDevice(rdev) => *rdev,
            _ => 0,
        };
        FileAttributes {
            inode: number,
            size,
            blocks: allocated.div_ceil(4096) * 8,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            mode: self.kind.file_type() | self.mode,
            link_count: match &self.kind {
                Kind::Directory(directory) if self.link_count > 0 => 2 + directory.subdirectories,
                _ => self.link_count,
            },
            uid: self.uid,
            gid: self.gid,
            rdev,
        }
    }
}
