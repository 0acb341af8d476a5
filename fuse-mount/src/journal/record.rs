//! Records of the journal: each is one change of the overlay, complete in itself, with every
//! value that the change depends on (numbers, times), so that applying it again gives the same.
//!
//! Encoding: a kind byte, then the fields in order, little-endian; byte strings with a 32-bit
//! length; optional values behind a byte 0 or 1. Version 1 (the segment's header carries it).

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::object::{Timestamp, Xattrs};

/// A file to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Creation<'a> {
    pub(crate) number: u64,
    /// Directory and name; `None` makes a file without a name.
    pub(crate) place: Option<(u64, &'a [u8])>,
    /// File type and permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    /// Target of a symbolic link, else empty.
    pub(crate) target: &'a [u8],
    pub(crate) xattrs: Xattrs,
    pub(crate) time: Timestamp,
}

/// Attributes after a change, all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttributesChange {
    pub(crate) number: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    /// New length, if it changes.
    pub(crate) size: Option<u64>,
}

/// What the bytes of a range become, besides being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeKind {
    Hole,
    Zero,
    Allocated,
}

/// A piece of a file: offset, length, where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredPiece {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) source: StoredSource,
}

/// Where the bytes of a [`StoredPiece`] are: number or id, and position there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredSource {
    Journal(u64, u64),
    Blob([u8; 32], u64),
    Zero,
}

/// One change of the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Create(Creation<'a>),
    Link {
        number: u64,
        parent: u64,
        name: &'a [u8],
        time: Timestamp,
    },
    Remove {
        parent: u64,
        name: &'a [u8],
        time: Timestamp,
    },
    Rename {
        parent: u64,
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
        /// Number for the whiteout that RENAME_WHITEOUT leaves, else 0.
        whiteout: u64,
        time: Timestamp,
    },
    Attributes(AttributesChange),
    Xattr {
        number: u64,
        name: &'a [u8],
        value: Option<&'a [u8]>,
        mode: u32,
        ctime: Timestamp,
    },
    /// `time` sets mtime and ctime; `None` when the kernel sends them itself.
    Write {
        number: u64,
        offset: u64,
        mode: u32,
        time: Option<Timestamp>,
        data: &'a [u8],
    },
    /// `size` is the file's length afterwards.
    Range {
        number: u64,
        kind: RangeKind,
        offset: u64,
        length: u64,
        size: u64,
        mode: u32,
        time: Timestamp,
    },
    Clone {
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
        mode: u32,
        time: Timestamp,
    },
    /// The content becomes these bytes, in pieces: a buffer has grown too large.
    Spill {
        number: u64,
        data: &'a [u8],
    },
    /// Pieces of a file without a name, carried over a checkpoint.
    Pieces {
        number: u64,
        size: u64,
        pieces: Vec<StoredPiece>,
    },
    /// Newest requests before a checkpoint: the kernel's number, the inode it was about.
    Recent(Vec<(u64, u64)>),
    /// Where an inode was when the kernel first heard of it (in the log of known inodes), or when a
    /// record of this epoch first named it (in the journal).
    Known {
        number: u64,
        parent: u64,
        name: &'a [u8],
    },
    /// Whose changes the records behind it are, up to the next such record: number of the actor (0
    /// for nobody who is known), and who that is unless the journal said so before.
    Actor {
        number: u32,
        description: &'a [u8],
    },
    /// What the kernel is to forget after a switch: the name of this inode in the directory, or
    /// without a directory (0) what it knows of the inode.
    Outdated {
        number: u64,
        parent: u64,
        name: &'a [u8],
    },
}

const CREATE: u8 = 1;
const LINK: u8 = 2;
const REMOVE: u8 = 3;
const RENAME: u8 = 4;
const ATTRIBUTES: u8 = 5;
const XATTR: u8 = 6;
const WRITE: u8 = 7;
const RANGE: u8 = 8;
const CLONE: u8 = 9;
const RECENT: u8 = 10;
const KNOWN: u8 = 11;
const SPILL: u8 = 12;
const PIECES: u8 = 13;
const OUTDATED: u8 = 14;
const ACTOR: u8 = 15;

struct Encoder<'v>(&'v mut Vec<u8>);

impl Encoder<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn bytes(&mut self, value: &[u8]) {
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
    }
    fn time(&mut self, value: Timestamp) {
        self.u64(value.seconds as u64);
        self.u32(value.nanoseconds);
    }
    fn option<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            encode(self, value);
        }
    }
}

struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }
    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp {
            seconds: self.u64()? as i64,
            nanoseconds: self.u32()?,
        })
    }
    fn option<T>(&mut self, decode: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => decode(self).map(Some),
            _ => None,
        }
    }
}

impl<'a> Record<'a> {
    /// Appends the encoding to `buffer`, without the data of a write, which follows it.
    pub(crate) fn encode_head(&self, buffer: &mut Vec<u8>) {
        let mut out = Encoder(buffer);
        match self {
            Record::Create(creation) => {
                out.u8(CREATE);
                out.u64(creation.number);
                out.option(creation.place, |out, (parent, name)| {
                    out.u64(parent);
                    out.bytes(name);
                });
                out.u32(creation.mode);
                out.u32(creation.uid);
                out.u32(creation.gid);
                out.u64(creation.rdev);
                out.bytes(creation.target);
                out.u32(creation.xattrs.len() as u32);
                for (name, value) in creation.xattrs.iter() {
                    out.bytes(name);
                    out.bytes(value);
                }
                out.time(creation.time);
            }
            Record::Link {
                number,
                parent,
                name,
                time,
            } => {
                out.u8(LINK);
                out.u64(*number);
                out.u64(*parent);
                out.bytes(name);
                out.time(*time);
            }
            Record::Remove { parent, name, time } => {
                out.u8(REMOVE);
                out.u64(*parent);
                out.bytes(name);
                out.time(*time);
            }
            Record::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
                whiteout,
                time,
            } => {
                out.u8(RENAME);
                out.u64(*parent);
                out.bytes(name);
                out.u64(*new_parent);
                out.bytes(new_name);
                out.u32(*flags);
                out.u64(*whiteout);
                out.time(*time);
            }
            Record::Attributes(change) => {
                out.u8(ATTRIBUTES);
                out.u64(change.number);
                out.u32(change.mode);
                out.u32(change.uid);
                out.u32(change.gid);
                out.time(change.atime);
                out.time(change.mtime);
                out.time(change.ctime);
                out.option(change.size, Encoder::u64);
            }
            Record::Xattr {
                number,
                name,
                value,
                mode,
                ctime,
            } => {
                out.u8(XATTR);
                out.u64(*number);
                out.bytes(name);
                out.option(*value, Encoder::bytes);
                out.u32(*mode);
                out.time(*ctime);
            }
            Record::Write {
                number,
                offset,
                mode,
                time,
                data,
            } => {
                out.u8(WRITE);
                out.u64(*number);
                out.u64(*offset);
                out.u32(*mode);
                out.option(*time, Encoder::time);
                out.u32(data.len() as u32);
            }
            Record::Range {
                number,
                kind,
                offset,
                length,
                size,
                mode,
                time,
            } => {
                out.u8(RANGE);
                out.u64(*number);
                out.u8(match kind {
                    RangeKind::Hole => 0,
                    RangeKind::Zero => 1,
                    RangeKind::Allocated => 2,
                });
                out.u64(*offset);
                out.u64(*length);
                out.u64(*size);
                out.u32(*mode);
                out.time(*time);
            }
            Record::Clone {
                from,
                from_offset,
                to,
                to_offset,
                length,
                mode,
                time,
            } => {
                out.u8(CLONE);
                out.u64(*from);
                out.u64(*from_offset);
                out.u64(*to);
                out.u64(*to_offset);
                out.u64(*length);
                out.u32(*mode);
                out.time(*time);
            }
            Record::Spill { number, data } => {
                out.u8(SPILL);
                out.u64(*number);
                out.u32(data.len() as u32);
            }
            Record::Pieces {
                number,
                size,
                pieces,
            } => {
                out.u8(PIECES);
                out.u64(*number);
                out.u64(*size);
                out.u32(pieces.len() as u32);
                for piece in pieces {
                    out.u64(piece.offset);
                    out.u64(piece.length);
                    match piece.source {
                        StoredSource::Journal(segment, position) => {
                            out.u8(0);
                            out.u64(segment);
                            out.u64(position);
                        }
                        StoredSource::Blob(blob, position) => {
                            out.u8(1);
                            out.0.extend_from_slice(&blob);
                            out.u64(position);
                        }
                        StoredSource::Zero => out.u8(2),
                    }
                }
            }
            Record::Recent(requests) => {
                out.u8(RECENT);
                out.u32(requests.len() as u32);
                for (unique, number) in requests {
                    out.u64(*unique);
                    out.u64(*number);
                }
            }
            Record::Actor {
                number,
                description,
            } => {
                out.u8(ACTOR);
                out.u32(*number);
                out.bytes(description);
            }
            Record::Known {
                number,
                parent,
                name,
            }
            | Record::Outdated {
                number,
                parent,
                name,
            } => {
                out.u8(if matches!(self, Record::Known { .. }) {
                    KNOWN
                } else {
                    OUTDATED
                });
                out.u64(*number);
                out.u64(*parent);
                out.bytes(name);
            }
        }
    }

    /// The data that follows the head: only a write has some.
    pub(crate) fn data(&self) -> &'a [u8] {
        match self {
            Record::Write { data, .. } | Record::Spill { data, .. } => data,
            _ => &[],
        }
    }

    /// Reads a whole record; `None` if the bytes are not exactly one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let record = match from.u8()? {
            CREATE => Record::Create(Creation {
                number: from.u64()?,
                place: from.option(|from| Some((from.u64()?, from.bytes()?)))?,
                mode: from.u32()?,
                uid: from.u32()?,
                gid: from.u32()?,
                rdev: from.u64()?,
                target: from.bytes()?,
                xattrs: {
                    let mut xattrs = BTreeMap::new();
                    for _ in 0..from.u32()? {
                        xattrs.insert(from.bytes()?.into(), from.bytes()?.into());
                    }
                    Arc::new(xattrs)
                },
                time: from.time()?,
            }),
            LINK => Record::Link {
                number: from.u64()?,
                parent: from.u64()?,
                name: from.bytes()?,
                time: from.time()?,
            },
            REMOVE => Record::Remove {
                parent: from.u64()?,
                name: from.bytes()?,
                time: from.time()?,
            },
            RENAME => Record::Rename {
                parent: from.u64()?,
                name: from.bytes()?,
                new_parent: from.u64()?,
                new_name: from.bytes()?,
                flags: from.u32()?,
                whiteout: from.u64()?,
                time: from.time()?,
            },
            ATTRIBUTES => Record::Attributes(AttributesChange {
                number: from.u64()?,
                mode: from.u32()?,
                uid: from.u32()?,
                gid: from.u32()?,
                atime: from.time()?,
                mtime: from.time()?,
                ctime: from.time()?,
                size: from.option(Decoder::u64)?,
            }),
            XATTR => Record::Xattr {
                number: from.u64()?,
                name: from.bytes()?,
                value: from.option(Decoder::bytes)?,
                mode: from.u32()?,
                ctime: from.time()?,
            },
            WRITE => Record::Write {
                number: from.u64()?,
                offset: from.u64()?,
                mode: from.u32()?,
                time: from.option(Decoder::time)?,
                data: from.bytes()?,
            },
            RANGE => Record::Range {
                number: from.u64()?,
                kind: match from.u8()? {
                    0 => RangeKind::Hole,
                    1 => RangeKind::Zero,
                    2 => RangeKind::Allocated,
                    _ => return None,
                },
                offset: from.u64()?,
                length: from.u64()?,
                size: from.u64()?,
                mode: from.u32()?,
                time: from.time()?,
            },
            CLONE => Record::Clone {
                from: from.u64()?,
                from_offset: from.u64()?,
                to: from.u64()?,
                to_offset: from.u64()?,
                length: from.u64()?,
                mode: from.u32()?,
                time: from.time()?,
            },
            SPILL => Record::Spill {
                number: from.u64()?,
                data: from.bytes()?,
            },
            PIECES => Record::Pieces {
                number: from.u64()?,
                size: from.u64()?,
                pieces: {
                    let mut pieces = Vec::new();
                    for _ in 0..from.u32()? {
                        pieces.push(StoredPiece {
                            offset: from.u64()?,
                            length: from.u64()?,
                            source: match from.u8()? {
                                0 => StoredSource::Journal(from.u64()?, from.u64()?),
                                1 => {
                                    let blob = from.take(32)?.try_into().ok()?;
                                    StoredSource::Blob(blob, from.u64()?)
                                }
                                2 => StoredSource::Zero,
                                _ => return None,
                            },
                        });
                    }
                    pieces
                },
            },
            RECENT => {
                let count = from.u32()?;
                let mut requests = Vec::new();
                for _ in 0..count {
                    requests.push((from.u64()?, from.u64()?));
                }
                Record::Recent(requests)
            }
            KNOWN => Record::Known {
                number: from.u64()?,
                parent: from.u64()?,
                name: from.bytes()?,
            },
            ACTOR => Record::Actor {
                number: from.u32()?,
                description: from.bytes()?,
            },
            OUTDATED => Record::Outdated {
                number: from.u64()?,
                parent: from.u64()?,
                name: from.bytes()?,
            },
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }

    /// Whether it is written even where space is kept back: space comes free by it or by the
    /// checkpoint that it belongs to, or a daemon that takes over needs it.
    pub(crate) fn takes_last_space(&self) -> bool {
        match self {
            Record::Remove { .. }
            | Record::Recent(_)
            | Record::Pieces { .. }
            | Record::Known { .. }
            | Record::Actor { .. }
            | Record::Outdated { .. } => true,
            Record::Create(creation) => creation.place.is_none(),
            Record::Attributes(change) => change.size.is_some(),
            Record::Range { kind, .. } => *kind == RangeKind::Hole,
            _ => false,
        }
    }

    /// The inodes that it names by number and doesn't make; 0 stands for none.
    pub(crate) fn named_inodes(&self) -> [u64; 2] {
        match self {
            Record::Create(creation) => [creation.place.map_or(0, |(parent, _)| parent), 0],
            Record::Link { number, parent, .. } => [*number, *parent],
            Record::Remove { parent, .. } | Record::Known { parent, .. } => [*parent, 0],
            Record::Rename {
                parent, new_parent, ..
            } => [*parent, *new_parent],
            Record::Attributes(change) => [change.number, 0],
            Record::Xattr { number, .. }
            | Record::Write { number, .. }
            | Record::Spill { number, .. }
            | Record::Range { number, .. }
            | Record::Pieces { number, .. } => [*number, 0],
            Record::Clone { from, to, .. } => [*from, *to],
            Record::Recent(_) | Record::Outdated { .. } | Record::Actor { .. } => [0, 0],
        }
    }

    /// The directories among them whose names it needs; 0 stands for none.
    pub(crate) fn named_directories(&self) -> [u64; 2] {
        match self {
            Record::Link { parent, .. } => [*parent, 0],
            Record::Create(_)
            | Record::Remove { .. }
            | Record::Known { .. }
            | Record::Rename { .. } => self.named_inodes(),
            _ => [0, 0],
        }
    }

    /// The inode that a repeated request is answered with.
    pub(crate) fn subject(&self) -> u64 {
        match self {
            Record::Create(creation) => creation.number,
            Record::Link { number, .. }
            | Record::Xattr { number, .. }
            | Record::Write { number, .. }
            | Record::Range { number, .. }
            | Record::Spill { number, .. }
            | Record::Pieces { number, .. }
            | Record::Known { number, .. }
            | Record::Outdated { number, .. } => *number,
            Record::Attributes(change) => change.number,
            Record::Clone { to, .. } => *to,
            Record::Remove { parent, .. } | Record::Rename { parent, .. } => *parent,
            Record::Recent(_) | Record::Actor { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksum of all samples in format version 1.
    const GOLDEN_CHECKSUM: u32 = 2_793_437_967;

    fn encode(record: &Record<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.encode_head(&mut bytes);
        bytes.extend_from_slice(record.data());
        bytes
    }

    fn samples() -> Vec<Record<'static>> {
        let time = Timestamp {
            seconds: -2,
            nanoseconds: 7,
        };
        let mut xattrs = BTreeMap::new();
        xattrs.insert(b"user.a"[..].into(), b"v"[..].into());
        vec![
            Record::Create(Creation {
                number: 5,
                place: Some((1, b"name")),
                mode: 0o100_644,
                uid: 1,
                gid: 2,
                rdev: 3,
                target: b"",
                xattrs: Arc::new(xattrs),
                time,
            }),
            Record::Link {
                number: 5,
                parent: 1,
                name: b"b",
                time,
            },
            Record::Remove {
                parent: 1,
                name: b"b",
                time,
            },
            Record::Rename {
                parent: 1,
                name: b"a",
                new_parent: 2,
                new_name: b"b",
                flags: 1,
                whiteout: 0,
                time,
            },
            Record::Attributes(AttributesChange {
                number: 5,
                mode: 1,
                uid: 2,
                gid: 3,
                atime: time,
                mtime: time,
                ctime: time,
                size: Some(9),
            }),
            Record::Xattr {
                number: 5,
                name: b"user.a",
                value: None,
                mode: 1,
                ctime: time,
            },
            Record::Write {
                number: 5,
                offset: 4096,
                mode: 1,
                time: Some(time),
                data: b"bytes",
            },
            Record::Range {
                number: 5,
                kind: RangeKind::Zero,
                offset: 1,
                length: 2,
                size: 3,
                mode: 1,
                time,
            },
            Record::Clone {
                from: 5,
                from_offset: 0,
                to: 6,
                to_offset: 1,
                length: 2,
                mode: 1,
                time,
            },
            Record::Recent(vec![(1, 2)]),
            Record::Spill {
                number: 5,
                data: b"spilled",
            },
            Record::Pieces {
                number: 5,
                size: 100,
                pieces: vec![
                    StoredPiece {
                        offset: 0,
                        length: 1,
                        source: StoredSource::Journal(2, 3),
                    },
                    StoredPiece {
                        offset: 4,
                        length: 1,
                        source: StoredSource::Blob([9; 32], 3),
                    },
                    StoredPiece {
                        offset: 8,
                        length: 1,
                        source: StoredSource::Zero,
                    },
                ],
            },
            Record::Known {
                number: 5,
                parent: 1,
                name: b"n",
            },
            Record::Outdated {
                number: 6,
                parent: 1,
                name: b"n",
            },
            Record::Actor {
                number: 7,
                description: b"who",
            },
        ]
    }

    #[test]
    fn records_round_trip_and_refuse_cut_or_longer_bytes() {
        for record in samples() {
            let bytes = encode(&record);
            assert_eq!(Record::decode(&bytes).as_ref(), Some(&record));
            for length in 0..bytes.len() {
                assert_eq!(
                    Record::decode(&bytes[..length]),
                    None,
                    "{record:?} cut at {length}"
                );
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert_eq!(Record::decode(&longer), None);
        }
    }

    /// The bytes of format version 1; they change only with a new version.
    #[test]
    fn encoding_is_pinned_by_golden_vectors() {
        let all: Vec<u8> = samples().iter().flat_map(encode).collect();
        assert_eq!(crc32fast::hash(&all), GOLDEN_CHECKSUM);
        assert_eq!(
            workspace_store::id::to_hex(&encode(&samples()[1])),
            concat!(
                "02",
                "0500000000000000",
                "0100000000000000",
                "01000000",
                "62",
                "feffffffffffffff",
                "07000000"
            )
        );
        assert_eq!(
            workspace_store::id::to_hex(&encode(&samples()[6])),
            concat!(
                "07",
                "0500000000000000",
                "0010000000000000",
                "01000000",
                "01",
                "feffffffffffffff",
                "07000000",
                "05000000",
                "6279746573"
            )
        );
    }
}
