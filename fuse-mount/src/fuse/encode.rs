//! Answers to the kernel: [`Response`]s to bytes. Content is handed to `writev` where it lies;
//! only listings are put together in a buffer, which is used again.

use std::io::IoSlice;
use std::time::Duration;

use workspace_store::object::Timestamp;
use zerocopy::IntoBytes;

use super::protocol::{
    Attr, AttrOut, CopyFileRangeOut, DirectoryEntryHead, EntryOut, FOPEN_DIRECT_IO,
    FOPEN_KEEP_CACHE, GetXattrOut, NOTIFY_DELETE, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE,
    NotifyDelete, NotifyEntry, NotifyInode, Opcode, OpenOut, OutHeader, SeekOut, StatFsOut,
    WriteOut,
};
use super::uid_map::IdMap;
use crate::fs::request::{
    DirectoryEntry, Entry, Errno, FileAttributes, FilesystemStatistics, Notification, Response,
};

/// How long the kernel may believe an answer, and how ids are shown to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoding {
    /// Names.
    pub entry_timeout: Duration,
    /// Attributes.
    pub attribute_timeout: Duration,
    /// Names that are not there; zero: not at all.
    pub negative_timeout: Duration,
    /// Users.
    pub uid_map: IdMap,
    /// Groups.
    pub gid_map: IdMap,
}

/// What the encoder must know of the request that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Operation.
    pub opcode: Opcode,
    /// Number to answer with.
    pub unique: u64,
    /// Room for data that the caller has, 0 if it did not say.
    pub size: u32,
    /// The file is opened past the kernel's cache.
    pub is_direct: bool,
}

/// One answer, ready to be written. Reused: keeps its memory.
#[derive(Debug, Default)]
pub struct Reply {
    /// Header and fixed part.
    head: Vec<u8>,
    /// Variable part: content or a listing.
    tail: Vec<u8>,
    /// Memory for listings while `tail` holds content.
    spare: Vec<u8>,
}

/// The answer does not fit the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the filesystem gave an answer that does not belong to a {0} request")]
pub struct WrongResponse(pub &'static str);

impl Reply {
    /// The pieces to write, in order.
    pub fn slices(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.head), IoSlice::new(&self.tail)]
    }

    /// Whole length.
    pub fn length_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// All bytes of the answer, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head.as_slice(), self.tail.as_slice()].concat()
    }

    fn start(&mut self) {
        self.head.clear();
        self.head.extend_from_slice(OutHeader::default().as_bytes());
        if self.spare.capacity() < self.tail.capacity() {
            std::mem::swap(&mut self.spare, &mut self.tail);
        }
        self.tail.clear();
    }

    fn finish(&mut self, unique: u64, error: i32) {
        let header = OutHeader {
            len: self.length_bytes() as u32,
            error,
            unique,
        };
        self.head[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
    }

    fn push(&mut self, part: &(impl IntoBytes + zerocopy::Immutable)) {
        self.head.extend_from_slice(part.as_bytes());
    }

    /// Answers with an error number; 0 is success without content.
    pub fn encode_error(&mut self, unique: u64, errno: Errno) {
        self.start();
        self.finish(unique, -errno.0);
    }

    /// Answers with a fixed-size struct.
    pub fn encode_struct(&mut self, unique: u64, part: &(impl IntoBytes + zerocopy::Immutable)) {
        self.start();
        self.push(part);
        self.finish(unique, 0);
    }

    /// Answers a request with what the filesystem said. Entries of a listing that do not fit
    /// are left out and given to `dropped`.
    ///
    /// # Errors
    /// The response is not one of this operation; nothing is encoded.
    pub fn encode(
        &mut self,
        asked: &Asked,
        response: Response,
        encoding: &Encoding,
        dropped: &mut Vec<Entry>,
    ) -> Result<(), WrongResponse> {
        use Opcode as O;
        self.start();
        match (asked.opcode, response) {
            (O::Lookup | O::MkNod | O::MkDir | O::SymLink | O::Link, Response::Entry(entry)) => {
                self.push(&encoding.entry(&entry));
            }
            (O::Create | O::TmpFile, Response::Entry(entry)) => {
                self.push(&encoding.entry(&entry));
                self.push(&open_out(asked));
            }
            (O::Open, Response::Empty) => self.push(&open_out(asked)),
            (O::GetAttr | O::SetAttr, Response::Attributes(attributes)) => {
                self.push(&encoding.attributes(&attributes));
            }
            (O::Read, Response::Data(mut data)) => {
                data.truncate(asked.size as usize);
                self.set_tail(data);
            }
            (O::ReadLink, Response::Data(data)) => self.set_tail(data),
            (O::GetXattr | O::ListXattr, Response::XattrSize(size)) => {
                self.push(&GetXattrOut { size, padding: 0 });
            }
            (O::GetXattr | O::ListXattr, Response::Data(data)) => {
                if asked.size == 0 {
                    self.push(&GetXattrOut {
                        size: data.len() as u32,
                        padding: 0,
                    });
                } else if data.len() > asked.size as usize {
                    self.finish(asked.unique, -libc::ERANGE);
                    return Ok(());
                } else {
                    self.set_tail(data);
                }
            }
            (O::Write | O::CopyFileRange, Response::Count(count)) => {
                self.push(&WriteOut {
                    size: count as u32,
                    padding: 0,
                });
            }
            (O::CopyFileRange64, Response::Count(count)) => {
                self.push(&CopyFileRangeOut {
                    bytes_copied: count,
                });
            }
            (O::StatFs, Response::StatFilesystem(statistics)) => {
                self.push(&statistics_out(&statistics));
            }
            (O::Seek, Response::Offset(offset)) => self.push(&SeekOut { offset }),
            (O::ReadDir | O::ReadDirPlus, Response::Directory(entries)) => {
                let plus = asked.opcode == O::ReadDirPlus;
                self.listing(&entries, plus, asked.size as usize, encoding, dropped);
            }
            (
                O::Unlink
                | O::RmDir
                | O::Rename
                | O::Rename2
                | O::Release
                | O::FSync
                | O::FSyncDir
                | O::SyncFs
                | O::SetXattr
                | O::RemoveXattr
                | O::Allocate,
                Response::Empty,
            ) => {}
            (opcode, _) => return Err(WrongResponse(opcode.name())),
        }
        self.finish(asked.unique, 0);
        Ok(())
    }

    /// Says that a name does not exist, so that the kernel remembers it.
    pub fn encode_negative(&mut self, unique: u64, encoding: &Encoding) {
        let (seconds, nanoseconds) = split(encoding.negative_timeout);
        self.encode_struct(
            unique,
            &EntryOut {
                entry_valid: seconds,
                entry_valid_nsec: nanoseconds,
                ..EntryOut::default()
            },
        );
    }

    /// A message to the kernel that no request asked for.
    pub fn encode_notification(&mut self, notification: &Notification) {
        self.start();
        let code = match notification {
            Notification::Inode {
                inode,
                offset,
                length,
            } => {
                self.push(&NotifyInode {
                    ino: *inode,
                    off: *offset,
                    len: *length,
                });
                NOTIFY_INVAL_INODE
            }
            Notification::Entry { parent, name } => {
                self.push(&NotifyEntry {
                    parent: *parent,
                    namelen: name.len() as u32,
                    flags: 0,
                });
                self.tail.extend_from_slice(name);
                self.tail.push(0);
                NOTIFY_INVAL_ENTRY
            }
            Notification::Delete {
                parent,
                child,
                name,
            } => {
                self.push(&NotifyDelete {
                    parent: *parent,
                    child: *child,
                    namelen: name.len() as u32,
                    padding: 0,
                });
                self.tail.extend_from_slice(name);
                self.tail.push(0);
                NOTIFY_DELETE
            }
        };
        self.finish(0, code);
    }

    fn set_tail(&mut self, data: Vec<u8>) {
        let old = std::mem::replace(&mut self.tail, data);
        if old.capacity() > self.spare.capacity() {
            self.spare = old;
        }
    }

    fn listing(
        &mut self,
        entries: &[DirectoryEntry],
        plus: bool,
        size: usize,
        encoding: &Encoding,
        dropped: &mut Vec<Entry>,
    ) {
        let mut is_full = false;
        for entry in entries {
            let start = self.tail.len();
            if !is_full {
                if plus {
                    let head = entry.entry.as_ref().map(|known| encoding.entry(known));
                    self.tail
                        .extend_from_slice(head.unwrap_or_default().as_bytes());
                }
                let head = DirectoryEntryHead {
                    ino: entry.inode,
                    off: entry.cookie,
                    namelen: entry.name.len() as u32,
                    kind: (entry.file_type & libc::S_IFMT) >> 12,
                };
                self.tail.extend_from_slice(head.as_bytes());
                self.tail.extend_from_slice(&entry.name);
                self.tail.resize(self.tail.len().next_multiple_of(8), 0);
                is_full = self.tail.len() > size;
            }
            if is_full {
                self.tail.truncate(start);
                dropped.extend(entry.entry);
            }
        }
    }
}

fn open_out(asked: &Asked) -> OpenOut {
    OpenOut {
        open_flags: if asked.is_direct {
            FOPEN_DIRECT_IO
        } else {
            FOPEN_KEEP_CACHE
        },
        ..OpenOut::default()
    }
}

fn split(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

fn statistics_out(statistics: &FilesystemStatistics) -> StatFsOut {
    StatFsOut {
        blocks: statistics.blocks,
        bfree: statistics.blocks_free,
        bavail: statistics.blocks_available,
        files: statistics.files,
        ffree: statistics.files_free,
        bsize: statistics.block_size,
        namelen: statistics.name_max_bytes,
        frsize: statistics.block_size,
        ..StatFsOut::default()
    }
}

impl Encoding {
    fn attr(&self, attributes: &FileAttributes) -> Attr {
        let time = |time: &Timestamp| (time.seconds, time.nanoseconds);
        let (atime, atimensec) = time(&attributes.atime);
        let (mtime, mtimensec) = time(&attributes.mtime);
        let (ctime, ctimensec) = time(&attributes.ctime);
        Attr {
            ino: attributes.inode,
            size: attributes.size,
            blocks: attributes.blocks,
            atime,
            mtime,
            ctime,
            atimensec,
            mtimensec,
            ctimensec,
            mode: attributes.mode,
            nlink: attributes.link_count,
            uid: self.uid_map.to_host(attributes.uid),
            gid: self.gid_map.to_host(attributes.gid),
            // The kernel's 32-bit form is the lower half of glibc's.
            rdev: attributes.rdev as u32,
            blksize: 4096,
            flags: 0,
        }
    }

    fn entry(&self, entry: &Entry) -> EntryOut {
        let (entry_valid, entry_valid_nsec) = split(self.entry_timeout);
        let (attr_valid, attr_valid_nsec) = split(self.attribute_timeout);
        EntryOut {
            nodeid: entry.inode,
            generation: entry.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attr(&entry.attributes),
        }
    }

    fn attributes(&self, attributes: &FileAttributes) -> AttrOut {
        let (attr_valid, attr_valid_nsec) = split(self.attribute_timeout);
        AttrOut {
            attr_valid,
            attr_valid_nsec,
            dummy: 0,
            attr: self.attr(attributes),
        }
    }
}
