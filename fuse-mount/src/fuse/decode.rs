//! Requests of the kernel: bytes to [`Request`]s. Nothing is copied but the fixed-size heads;
//! names and data are borrowed from the read buffer.

use workspace_store::object::Timestamp;
use zerocopy::FromBytes;

use super::protocol::{
    AllocateIn, BatchForgetIn, CopyFileRangeIn, CreateIn, DIRECTORY_ENTRY_BYTES,
    DIRECTORY_ENTRY_PLUS_BYTES, FSYNC_FDATASYNC, FSyncIn, ForgetIn, ForgetOne, GetXattrIn,
    InHeader, InitIn, LinkIn, MkDirIn, MkNodIn, OPEN_KILL_SUIDGID, Opcode, OpenIn, ReadIn,
    Rename2In, RenameIn, SETXATTR_ACL_KILL_SGID, SeekIn, SetAttrIn, SetXattrIn, SetXattrShortIn,
    UNIQUE_RESEND, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, set_attr,
};
use crate::fs::request::{Request, SetAttributes, SetTime};

/// Who and what a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the operation.
    pub opcode_number: u32,
    /// The operation, if it is known.
    pub opcode: Option<Opcode>,
    /// Number of the request exactly as received; the answer carries it unchanged.
    pub unique: u64,
    /// Inode in question.
    pub node_id: u64,
    /// User, as the kernel sees it.
    pub uid: u32,
    /// Group, as the kernel sees it.
    pub gid: u32,
    /// Thread that asks.
    pub pid: u32,
}

impl Header {
    /// Whether the kernel sent the request before.
    pub fn is_resent(&self) -> bool {
        self.unique & UNIQUE_RESEND != 0
    }
}

/// What a request asks the transport for.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation<'a> {
    /// The filesystem answers it.
    Filesystem(Request<'a>),
    /// BATCH_FORGET: a [`Request::Forget`] of each.
    ForgetMany(ForgetMany<'a>),
    /// The first request of a connection.
    Init(InitRequest),
    /// The caller of another request got a signal.
    Interrupt,
    /// The connection ends.
    Destroy,
    /// OPENDIR: answered by the transport.
    OpenDirectory,
    /// RELEASEDIR: answered by the transport.
    ReleaseDirectory,
    /// Not done here: ENOSYS.
    Unsupported,
}

/// The kernel's side of INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitRequest {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Read ahead at most.
    pub max_readahead_bytes: u32,
    /// Offered features, both words.
    pub flags: u64,
}

/// The inodes of a BATCH_FORGET.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgetMany<'a> {
    remaining: &'a [u8],
    count: u32,
}

impl<'a> Iterator for ForgetMany<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        self.count = self.count.checked_sub(1)?;
        let (one, rest) = ForgetOne::read_from_prefix(self.remaining).ok()?;
        self.remaining = rest;
        Some(Request::Forget {
            inode: one.nodeid,
            count: one.nlookup,
        })
    }
}

/// A request that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than its fixed part.
    #[error("{operation} request of {length_bytes} bytes is too short")]
    Short {
        /// Name of the operation.
        operation: &'static str,
        /// Length of what follows the header.
        length_bytes: usize,
    },
    /// A name without its end.
    #[error("{operation} request has a name that does not end")]
    Name {
        /// Name of the operation.
        operation: &'static str,
    },
}

/// Splits the header from the rest of a request.
///
/// # Errors
/// There are fewer bytes than the header announces.
pub fn decode_header(bytes: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let short = || DecodeError::Short {
        operation: "any",
        length_bytes: bytes.len(),
    };
    let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| short())?;
    // Extensions stand at the end; none is asked for, so none is read.
    let length = (header.len as usize)
        .checked_sub(usize::from(header.total_extlen) * 8)
        .ok_or_else(short)?;
    let body = bytes.get(size_of::<InHeader>()..length).ok_or_else(short)?;
    let header = Header {
        opcode_number: header.opcode,
        opcode: Opcode::from_number(header.opcode),
        unique: header.unique,
        node_id: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
    };
    Ok((header, body))
}

/// The rest of a request, being consumed.
struct Body<'a> {
    operation: &'static str,
    whole: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    fn short(&self) -> DecodeError {
        DecodeError::Short {
            operation: self.operation,
            length_bytes: self.whole.len(),
        }
    }

    fn take<T: FromBytes>(&mut self) -> Result<T, DecodeError> {
        let (head, rest) = T::read_from_prefix(self.bytes).map_err(|_| self.short())?;
        self.bytes = rest;
        Ok(head)
    }

    fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = self
            .bytes
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(DecodeError::Name {
                operation: self.operation,
            })?;
        let name = &self.bytes[..end];
        self.bytes = &self.bytes[end + 1..];
        Ok(name)
    }

    fn data(&mut self, length: u32) -> Result<&'a [u8], DecodeError> {
        self.bytes
            .get(..length as usize)
            .ok_or_else(|| self.short())
    }
}

/// Understands a request. `extended_setxattr`: SETXATTR has its longer form.
///
/// # Errors
/// The request is cut short, or a name does not end.
pub fn decode<'a>(
    header: &Header,
    body: &'a [u8],
    extended_setxattr: bool,
) -> Result<Operation<'a>, DecodeError> {
    let Some(opcode) = header.opcode else {
        return Ok(Operation::Unsupported);
    };
    let inode = header.node_id;
    let mut body = Body {
        operation: opcode.name(),
        whole: body,
        bytes: body,
    };
    let request = match opcode {
        Opcode::Lookup => Request::Lookup {
            parent: inode,
            name: body.name()?,
        },
        Opcode::Forget => Request::Forget {
            inode,
            count: body.take::<ForgetIn>()?.nlookup,
        },
        Opcode::BatchForget => {
            let count = body.take::<BatchForgetIn>()?.count;
            body.data(count.saturating_mul(size_of::<ForgetOne>() as u32))?;
            return Ok(Operation::ForgetMany(ForgetMany {
                remaining: body.bytes,
                count,
            }));
        }
        Opcode::GetAttr => Request::GetAttributes { inode },
        Opcode::SetAttr => Request::SetAttributes {
            inode,
            changes: changes(&body.take()?),
        },
        Opcode::ReadLink => Request::ReadLink { inode },
        Opcode::SymLink => Request::SymbolicLink {
            parent: inode,
            name: body.name()?,
            target: body.name()?,
        },
        Opcode::MkNod => {
            let head: MkNodIn = body.take()?;
            Request::MakeNode {
                parent: inode,
                name: body.name()?,
                mode: head.mode,
                rdev: u64::from(head.rdev),
                umask: head.umask,
            }
        }
        Opcode::MkDir => {
            let head: MkDirIn = body.take()?;
            Request::MakeDirectory {
                parent: inode,
                name: body.name()?,
                mode: head.mode,
                umask: head.umask,
            }
        }
        Opcode::Unlink => Request::Unlink {
            parent: inode,
            name: body.name()?,
        },
        Opcode::RmDir => Request::RemoveDirectory {
            parent: inode,
            name: body.name()?,
        },
        Opcode::Rename => {
            let head: RenameIn = body.take()?;
            Request::Rename {
                parent: inode,
                name: body.name()?,
                new_parent: head.newdir,
                new_name: body.name()?,
                flags: 0,
            }
        }
        Opcode::Rename2 => {
            let head: Rename2In = body.take()?;
            Request::Rename {
                parent: inode,
                name: body.name()?,
                new_parent: head.newdir,
                new_name: body.name()?,
                flags: head.flags,
            }
        }
        Opcode::Link => Request::Link {
            inode: body.take::<LinkIn>()?.oldnodeid,
            new_parent: inode,
            new_name: body.name()?,
        },
        Opcode::Open => {
            let head: OpenIn = body.take()?;
            Request::Open {
                inode,
                flags: head.flags,
                kill_suid_gid: head.open_flags & OPEN_KILL_SUIDGID != 0,
            }
        }
        Opcode::Release => Request::Release { inode },
        Opcode::Read => {
            let head: ReadIn = body.take()?;
            Request::Read {
                inode,
                offset: head.offset,
                size: head.size,
            }
        }
        Opcode::Write => {
            let head: WriteIn = body.take()?;
            Request::Write {
                inode,
                offset: head.offset,
                data: body.data(head.size)?,
                kill_suid_gid: head.write_flags & WRITE_KILL_SUIDGID != 0,
                from_cache: head.write_flags & WRITE_CACHE != 0,
                appends: head.write_flags & WRITE_CACHE == 0
                    && head.flags as i32 & libc::O_APPEND != 0,
            }
        }
        Opcode::StatFs => Request::StatFilesystem,
        Opcode::FSync => Request::Sync {
            inode,
            data_only: body.take::<FSyncIn>()?.fsync_flags & FSYNC_FDATASYNC != 0,
        },
        Opcode::FSyncDir => Request::SyncDirectory { inode },
        Opcode::SyncFs => Request::SyncFilesystem,
        Opcode::SetXattr => {
            let head = if extended_setxattr {
                body.take::<SetXattrIn>()?
            } else {
                let short: SetXattrShortIn = body.take()?;
                SetXattrIn {
                    size: short.size,
                    flags: short.flags,
                    ..SetXattrIn::default()
                }
            };
            Request::SetXattr {
                inode,
                name: body.name()?,
                value: body.data(head.size)?,
                flags: head.flags,
                clear_set_gid: head.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0,
            }
        }
        Opcode::GetXattr => {
            let head: GetXattrIn = body.take()?;
            Request::GetXattr {
                inode,
                name: body.name()?,
                size: head.size,
            }
        }
        Opcode::ListXattr => Request::ListXattr {
            inode,
            size: body.take::<GetXattrIn>()?.size,
        },
        Opcode::RemoveXattr => Request::RemoveXattr {
            inode,
            name: body.name()?,
        },
        Opcode::ReadDir | Opcode::ReadDirPlus => {
            let head: ReadIn = body.take()?;
            let plus = opcode == Opcode::ReadDirPlus;
            let overhead_bytes = if plus {
                DIRECTORY_ENTRY_PLUS_BYTES
            } else {
                DIRECTORY_ENTRY_BYTES
            };
            Request::ReadDirectory {
                inode,
                cookie: head.offset,
                size: head.size,
                overhead_bytes: overhead_bytes as u32,
                plus,
            }
        }
        Opcode::Create => {
            let head: CreateIn = body.take()?;
            Request::Create {
                parent: inode,
                name: body.name()?,
                mode: head.mode,
                umask: head.umask,
                flags: head.flags,
            }
        }
        Opcode::TmpFile => {
            let head: CreateIn = body.take()?;
            Request::TemporaryFile {
                parent: inode,
                mode: head.mode,
                umask: head.umask,
                flags: head.flags,
            }
        }
        Opcode::Allocate => {
            let head: AllocateIn = body.take()?;
            Request::Allocate {
                inode,
                offset: head.offset,
                length: head.length,
                mode: head.mode,
            }
        }
        Opcode::Seek => {
            let head: SeekIn = body.take()?;
            Request::Seek {
                inode,
                offset: head.offset,
                whence: head.whence,
            }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let head: CopyFileRangeIn = body.take()?;
            Request::CopyRange {
                from: inode,
                from_offset: head.off_in,
                to: head.nodeid_out,
                to_offset: head.off_out,
                length: head.len,
            }
        }
        Opcode::Init => {
            let head: InitIn = body.take()?;
            // The second word of flags came with 7.36.
            let high = body.take::<u32>().unwrap_or(0);
            return Ok(Operation::Init(InitRequest {
                major: head.major,
                minor: head.minor,
                max_readahead_bytes: head.max_readahead,
                flags: u64::from(head.flags) | u64::from(high) << 32,
            }));
        }
        Opcode::Interrupt => return Ok(Operation::Interrupt),
        Opcode::Destroy => return Ok(Operation::Destroy),
        Opcode::OpenDir => return Ok(Operation::OpenDirectory),
        Opcode::ReleaseDir => return Ok(Operation::ReleaseDirectory),
        // Locks stay in the kernel; ACCESS is for mounts without default_permissions; FLUSH has
        // nothing to do; StatX without a birth time says no more than GetAttr.
        Opcode::Flush
        | Opcode::GetLock
        | Opcode::SetLock
        | Opcode::SetLockWait
        | Opcode::Access
        | Opcode::BlockMap
        | Opcode::Ioctl
        | Opcode::Poll
        | Opcode::NotifyReply
        | Opcode::SetupMapping
        | Opcode::RemoveMapping
        | Opcode::StatX => return Ok(Operation::Unsupported),
    };
    Ok(Operation::Filesystem(request))
}

fn changes(head: &SetAttrIn) -> SetAttributes {
    let has = |flag: u32| head.valid & flag != 0;
    let time = |flag: u32, now: u32, seconds: i64, nanoseconds: u32| {
        has(flag).then(|| {
            if has(now) {
                SetTime::Now
            } else {
                SetTime::At(Timestamp {
                    seconds,
                    nanoseconds,
                })
            }
        })
    };
    SetAttributes {
        mode: has(set_attr::MODE).then_some(head.mode & 0o7777),
        uid: has(set_attr::UID).then_some(head.uid),
        gid: has(set_attr::GID).then_some(head.gid),
        size: has(set_attr::SIZE).then_some(head.size),
        atime: time(
            set_attr::ATIME,
            set_attr::ATIME_NOW,
            head.atime,
            head.atimensec,
        ),
        mtime: time(
            set_attr::MTIME,
            set_attr::MTIME_NOW,
            head.mtime,
            head.mtimensec,
        ),
        ctime: has(set_attr::CTIME).then_some(Timestamp {
            seconds: head.ctime,
            nanoseconds: head.ctimensec,
        }),
        kill_suid_gid: has(set_attr::KILL_SUIDGID),
    }
}
