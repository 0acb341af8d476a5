//! Bytes of the kernel's protocol, written out by hand from its documented layout: what each
//! request is understood as, and what each answer looks like.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::time::Duration;

use fuse_mount::fs::request::{
    DirectoryEntry, Entry, Errno, FileAttributes, FilesystemStatistics, Notification, Request,
    Response, SetAttributes, SetTime,
};
use fuse_mount::fuse::decode::{DecodeError, InitRequest, Operation, decode, decode_header};
use fuse_mount::fuse::encode::{Asked, Encoding, Reply};
use fuse_mount::fuse::protocol::Opcode;
use workspace_store::object::Timestamp;

/// Little-endian bytes, piece by piece.
#[derive(Default, Clone)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn b() -> Bytes {
    Bytes::default()
}

/// struct fuse_in_header: len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding.
fn request(opcode: u32, node: u64, body: &Bytes) -> Vec<u8> {
    b().u32(40 + body.0.len() as u32)
        .u32(opcode)
        .u64(0x8000_0000_0000_0066)
        .u64(node)
        .u32(1000)
        .u32(1001)
        .u32(4242)
        .u16(0)
        .u16(0)
        .raw(&body.0)
        .0
}

fn understands(opcode: u32, body: Bytes, expected: Request<'_>) {
    let bytes = request(opcode, 9, &body);
    let (header, rest) = decode_header(&bytes).unwrap();
    let operation = decode(&header, rest, true).unwrap();
    assert_eq!(
        operation,
        Operation::Filesystem(expected),
        "opcode {opcode}"
    );
    // Cut short, it is refused, unless nothing of the body counts.
    if !matches!(opcode, 3 | 5 | 17 | 18 | 30 | 50 | 51) {
        for length in 0..rest.len() {
            assert!(
                decode(&header, &rest[..length], true).is_err(),
                "opcode {opcode} of {length} bytes"
            );
        }
    }
}

#[test]
fn headers_carry_the_caller() {
    let bytes = request(1, 9, &b().raw(b"x\0"));
    let (header, body) = decode_header(&bytes).unwrap();
    assert_eq!(header.opcode, Some(Opcode::Lookup));
    assert_eq!(header.unique, 0x8000_0000_0000_0066);
    assert!(header.is_resent());
    assert_eq!(header.node_id, 9);
    assert_eq!((header.uid, header.gid, header.pid), (1000, 1001, 4242));
    assert_eq!(body, b"x\0");
    for length in 0..bytes.len() {
        assert!(decode_header(&bytes[..length]).is_err());
    }
    // One 8-byte extension at the end is not part of the body.
    let mut extended = request(1, 9, &b().raw(b"x\0").raw(&[7; 8]));
    extended[36] = 1;
    assert_eq!(decode_header(&extended).unwrap().1, b"x\0");
}

#[test]
fn every_request_is_understood() {
    understands(
        1,
        b().raw(b"name\0"),
        Request::Lookup {
            parent: 9,
            name: b"name",
        },
    );
    understands(2, b().u64(3), Request::Forget { inode: 9, count: 3 });
    understands(
        3,
        b().u32(0).u32(0).u64(0),
        Request::GetAttributes { inode: 9 },
    );
    let set_attr = |valid: u32| {
        b().u32(valid)
            .u32(0)
            .u64(0)
            .u64(777)
            .u64(0)
            .u64(11)
            .u64(-12_i64 as u64)
            .u64(13)
            .u32(21)
            .u32(22)
            .u32(23)
            .u32(0o100_644)
            .u32(0)
            .u32(5)
            .u32(6)
            .u32(0)
    };
    let at = |seconds, nanoseconds| Timestamp {
        seconds,
        nanoseconds,
    };
    understands(
        4,
        set_attr(0b1100_0011_1111),
        Request::SetAttributes {
            inode: 9,
            changes: SetAttributes {
                mode: Some(0o644),
                uid: Some(5),
                gid: Some(6),
                size: Some(777),
                atime: Some(SetTime::At(at(11, 21))),
                mtime: Some(SetTime::At(at(-12, 22))),
                ctime: Some(at(13, 23)),
                kill_suid_gid: true,
            },
        },
    );
    understands(
        4,
        set_attr(1 << 4 | 1 << 5 | 1 << 7 | 1 << 8),
        Request::SetAttributes {
            inode: 9,
            changes: SetAttributes {
                atime: Some(SetTime::Now),
                mtime: Some(SetTime::Now),
                ..SetAttributes::default()
            },
        },
    );
    understands(5, b(), Request::ReadLink { inode: 9 });
    understands(
        6,
        b().raw(b"name\0target\0"),
        Request::SymbolicLink {
            parent: 9,
            name: b"name",
            target: b"target",
        },
    );
    understands(
        8,
        b().u32(0o20_666).u32(0x103).u32(0o22).u32(0).raw(b"n\0"),
        Request::MakeNode {
            parent: 9,
            name: b"n",
            mode: 0o20_666,
            rdev: 0x103,
            umask: 0o22,
        },
    );
    understands(
        9,
        b().u32(0o755).u32(0o77).raw(b"d\0"),
        Request::MakeDirectory {
            parent: 9,
            name: b"d",
            mode: 0o755,
            umask: 0o77,
        },
    );
    understands(
        10,
        b().raw(b"n\0"),
        Request::Unlink {
            parent: 9,
            name: b"n",
        },
    );
    understands(
        11,
        b().raw(b"n\0"),
        Request::RemoveDirectory {
            parent: 9,
            name: b"n",
        },
    );
    let rename = |flags| Request::Rename {
        parent: 9,
        name: b"a",
        new_parent: 4,
        new_name: b"b",
        flags,
    };
    understands(12, b().u64(4).raw(b"a\0b\0"), rename(0));
    understands(45, b().u64(4).u32(2).u32(0).raw(b"a\0b\0"), rename(2));
    understands(
        13,
        b().u64(77).raw(b"n\0"),
        Request::Link {
            inode: 77,
            new_parent: 9,
            new_name: b"n",
        },
    );
    understands(
        14,
        b().u32(0o1002).u32(1),
        Request::Open {
            inode: 9,
            flags: 0o1002,
            kill_suid_gid: true,
        },
    );
    let read = |size: u32| b().u64(0).u64(8192).u32(size).u32(0).u64(0).u32(0).u32(0);
    understands(
        15,
        read(4096),
        Request::Read {
            inode: 9,
            offset: 8192,
            size: 4096,
        },
    );
    for (flags, kill_suid_gid, from_cache) in
        [(0, false, false), (1, false, true), (4, true, false)]
    {
        understands(
            16,
            b().u64(0)
                .u64(5)
                .u32(3)
                .u32(flags)
                .u64(0)
                .u32(0)
                .u32(0)
                .raw(b"abc"),
            Request::Write {
                inode: 9,
                offset: 5,
                data: b"abc",
                kill_suid_gid,
                from_cache,
                appends: false,
            },
        );
    }
    understands(17, b(), Request::StatFilesystem);
    understands(
        18,
        b().u64(0).u32(0).u32(0).u64(0),
        Request::Release { inode: 9 },
    );
    understands(
        20,
        b().u64(0).u32(1).u32(0),
        Request::Sync {
            inode: 9,
            data_only: true,
        },
    );
    understands(
        21,
        b().u32(5).u32(1).u32(1).u32(0).raw(b"user.a\0value"),
        Request::SetXattr {
            inode: 9,
            name: b"user.a",
            value: b"value",
            flags: 1,
            clear_set_gid: true,
        },
    );
    understands(
        22,
        b().u32(100).u32(0).raw(b"user.a\0"),
        Request::GetXattr {
            inode: 9,
            name: b"user.a",
            size: 100,
        },
    );
    understands(
        23,
        b().u32(100).u32(0),
        Request::ListXattr {
            inode: 9,
            size: 100,
        },
    );
    understands(
        24,
        b().raw(b"user.a\0"),
        Request::RemoveXattr {
            inode: 9,
            name: b"user.a",
        },
    );
    for (opcode, overhead_bytes, plus) in [(28, 24, false), (44, 152, true)] {
        understands(
            opcode,
            read(4096),
            Request::ReadDirectory {
                inode: 9,
                cookie: 8192,
                size: 4096,
                overhead_bytes,
                plus,
            },
        );
    }
    understands(
        30,
        b().u64(0).u32(0).u32(0),
        Request::SyncDirectory { inode: 9 },
    );
    understands(
        35,
        b().u32(0o302).u32(0o100_644).u32(0o22).u32(0).raw(b"n\0"),
        Request::Create {
            parent: 9,
            name: b"n",
            mode: 0o100_644,
            umask: 0o22,
            flags: 0o302,
        },
    );
    understands(
        43,
        b().u64(0).u64(10).u64(20).u32(3).u32(0),
        Request::Allocate {
            inode: 9,
            offset: 10,
            length: 20,
            mode: 3,
        },
    );
    understands(
        46,
        b().u64(0).u64(10).u32(4).u32(0),
        Request::Seek {
            inode: 9,
            offset: 10,
            whence: 4,
        },
    );
    for opcode in [47, 53] {
        understands(
            opcode,
            b().u64(0).u64(1).u64(8).u64(0).u64(2).u64(3).u64(0),
            Request::CopyRange {
                from: 9,
                from_offset: 1,
                to: 8,
                to_offset: 2,
                length: 3,
            },
        );
    }
    understands(50, b().u64(0), Request::SyncFilesystem);
    understands(
        51,
        b().u32(0o2_0200_0002)
            .u32(0o100_600)
            .u32(0)
            .u32(0)
            .raw(b"/\0"),
        Request::TemporaryFile {
            parent: 9,
            mode: 0o100_600,
            umask: 0,
            flags: 0o2_0200_0002,
        },
    );
}

fn operation_of(opcode: u32, body: &Bytes) -> Result<String, DecodeError> {
    let bytes = request(opcode, 9, body);
    let (header, rest) = decode_header(&bytes).unwrap();
    decode(&header, rest, true).map(|operation| format!("{operation:?}"))
}

#[test]
fn requests_to_the_transport_are_understood() {
    let bytes = request(
        26,
        0,
        &b().u32(7)
            .u32(45)
            .u32(131_072)
            .u32(0x4000_0001)
            .u32(0x80)
            .raw(&[0; 44]),
    );
    let (header, body) = decode_header(&bytes).unwrap();
    assert_eq!(
        decode(&header, body, true).unwrap(),
        Operation::Init(InitRequest {
            major: 7,
            minor: 45,
            max_readahead_bytes: 131_072,
            flags: 0x80_4000_0001,
        })
    );
    let bytes = request(42, 0, &b().u32(2).u32(0).u64(5).u64(1).u64(6).u64(2));
    let (header, body) = decode_header(&bytes).unwrap();
    let Operation::ForgetMany(forgets) = decode(&header, body, true).unwrap() else {
        panic!("not a batch");
    };
    let forget = |inode, count| Request::Forget { inode, count };
    assert_eq!(forgets.collect::<Vec<_>>(), [forget(5, 1), forget(6, 2)]);
    assert!(operation_of(42, &b().u32(3).u32(0).u64(5).u64(1)).is_err());
    assert!(operation_of(42, &b().u32(u32::MAX).u32(0)).is_err());

    assert_eq!(operation_of(27, &b().u64(0)).unwrap(), "OpenDirectory");
    assert_eq!(
        operation_of(29, &b().raw(&[0; 24])).unwrap(),
        "ReleaseDirectory"
    );
    assert_eq!(operation_of(36, &b().u64(4)).unwrap(), "Interrupt");
    assert_eq!(operation_of(38, &b()).unwrap(), "Destroy");
    for opcode in [25, 31, 32, 33, 34, 37, 39, 40, 41, 48, 49, 52, 7, 54, 4096] {
        assert_eq!(
            operation_of(opcode, &b()).unwrap(),
            "Unsupported",
            "{opcode}"
        );
    }
}

#[test]
fn old_kernels_send_a_shorter_setxattr() {
    let bytes = request(21, 9, &b().u32(1).u32(2).raw(b"user.a\0v"));
    let (header, body) = decode_header(&bytes).unwrap();
    assert_eq!(
        decode(&header, body, false).unwrap(),
        Operation::Filesystem(Request::SetXattr {
            inode: 9,
            name: b"user.a",
            value: b"v",
            flags: 2,
            clear_set_gid: false,
        })
    );
}

fn encoding() -> Encoding {
    Encoding {
        entry_timeout: Duration::from_millis(3500),
        attribute_timeout: Duration::from_millis(2250),
        negative_timeout: Duration::from_secs(9),
        uid_map: "700:5:1".parse().unwrap(),
        gid_map: "800:6:1".parse().unwrap(),
    }
}

fn attributes() -> FileAttributes {
    let at = |seconds, nanoseconds| Timestamp {
        seconds,
        nanoseconds,
    };
    FileAttributes {
        inode: 42,
        size: 4097,
        blocks: 16,
        atime: at(1, 4),
        mtime: at(-2, 5),
        ctime: at(3, 6),
        mode: 0o100_644,
        link_count: 2,
        uid: 5,
        gid: 6,
        rdev: 0x103,
    }
}

fn entry() -> Entry {
    Entry {
        inode: 42,
        generation: 1,
        attributes: attributes(),
    }
}

/// struct fuse_attr.
fn attr_bytes() -> Bytes {
    b().u64(42)
        .u64(4097)
        .u64(16)
        .u64(1)
        .u64(-2_i64 as u64)
        .u64(3)
        .u32(4)
        .u32(5)
        .u32(6)
        .u32(0o100_644)
        .u32(2)
        .u32(700)
        .u32(800)
        .u32(0x103)
        .u32(4096)
        .u32(0)
}

/// struct fuse_entry_out.
fn entry_bytes() -> Bytes {
    b().u64(42)
        .u64(1)
        .u64(3)
        .u64(2)
        .u32(500_000_000)
        .u32(250_000_000)
        .raw(&attr_bytes().0)
}

fn says(opcode: Opcode, size: u32, response: Response, body: &Bytes) -> Vec<Entry> {
    // A reply is used again: what was in it must not shine through.
    let mut reply = Reply::default();
    let mut dropped = Vec::new();
    for unique in [u64::MAX, 0x8000_0000_0000_0066] {
        dropped.clear();
        let asked = Asked {
            opcode,
            unique,
            size,
            is_direct: false,
        };
        reply
            .encode(&asked, response.clone(), &encoding(), &mut dropped)
            .unwrap();
    }
    let expected = b()
        .u32(16 + body.0.len() as u32)
        .u32(0)
        .u64(0x8000_0000_0000_0066)
        .raw(&body.0);
    assert_eq!(reply.to_vec(), expected.0, "{opcode:?}");
    dropped
}

#[test]
fn every_answer_has_its_layout() {
    use Opcode as O;
    for opcode in [O::Lookup, O::MkNod, O::MkDir, O::SymLink, O::Link] {
        says(opcode, 0, Response::Entry(entry()), &entry_bytes());
    }
    let opened = b().u64(0).u32(2).u32(0);
    for opcode in [O::Create, O::TmpFile] {
        says(
            opcode,
            0,
            Response::Entry(entry()),
            &entry_bytes().raw(&opened.0),
        );
    }
    says(O::Open, 0, Response::Empty, &opened);
    let attributes_out = b().u64(2).u32(250_000_000).u32(0).raw(&attr_bytes().0);
    for opcode in [O::GetAttr, O::SetAttr] {
        says(
            opcode,
            0,
            Response::Attributes(attributes()),
            &attributes_out,
        );
    }
    let data = || Response::Data(b"data".to_vec());
    says(O::Read, 4096, data(), &b().raw(b"data"));
    says(O::Read, 2, data(), &b().raw(b"da"));
    says(O::ReadLink, 0, data(), &b().raw(b"data"));
    for opcode in [O::GetXattr, O::ListXattr] {
        says(opcode, 10, data(), &b().raw(b"data"));
        says(opcode, 0, data(), &b().u32(4).u32(0));
        says(opcode, 0, Response::XattrSize(9), &b().u32(9).u32(0));
    }
    says(O::Write, 0, Response::Count(7), &b().u32(7).u32(0));
    says(O::CopyFileRange, 0, Response::Count(7), &b().u32(7).u32(0));
    says(
        O::CopyFileRange64,
        0,
        Response::Count(1 << 40),
        &b().u64(1 << 40),
    );
    says(O::Seek, 0, Response::Offset(1 << 40), &b().u64(1 << 40));
    for opcode in [
        O::Unlink,
        O::RmDir,
        O::Rename,
        O::Rename2,
        O::Release,
        O::FSync,
        O::FSyncDir,
        O::SyncFs,
        O::SetXattr,
        O::RemoveXattr,
        O::Allocate,
    ] {
        says(opcode, 0, Response::Empty, &b());
    }
    let statistics = FilesystemStatistics {
        blocks: 1,
        blocks_free: 2,
        blocks_available: 3,
        files: 4,
        files_free: 5,
        block_size: 4096,
        name_max_bytes: 255,
    };
    says(
        O::StatFs,
        0,
        Response::StatFilesystem(statistics),
        &b().u64(1)
            .u64(2)
            .u64(3)
            .u64(4)
            .u64(5)
            .u32(4096)
            .u32(255)
            .u32(4096)
            .raw(&[0; 28]),
    );
}

#[test]
fn listings_are_padded_and_end_where_the_room_ends() {
    let listed = |name: &[u8], cookie, known| DirectoryEntry {
        inode: 42,
        cookie,
        file_type: 0o100_000,
        name: name.into(),
        entry: known,
    };
    let dirent = |name: &[u8], cookie: u64| {
        let padding = name.len().next_multiple_of(8) - name.len();
        b().u64(42)
            .u64(cookie)
            .u32(name.len() as u32)
            .u32(8)
            .raw(name)
            .raw(&vec![0; padding])
    };
    let entries = vec![
        listed(b".", 1, None),
        listed(b"12345678", 2, Some(entry())),
        listed(b"123456789", 3, Some(entry())),
    ];
    let whole = b()
        .raw(&dirent(b".", 1).0)
        .raw(&dirent(b"12345678", 2).0)
        .raw(&dirent(b"123456789", 3).0);
    let response = || Response::Directory(entries.clone());
    says(Opcode::ReadDir, 104, response(), &whole);

    let plus = b()
        .raw(&[0; 128])
        .raw(&dirent(b".", 1).0)
        .raw(&entry_bytes().0)
        .raw(&dirent(b"12345678", 2).0);
    let dropped = says(Opcode::ReadDirPlus, 400, response(), &plus);
    assert_eq!(dropped, [entry()], "its lookup count is taken back");
    says(Opcode::ReadDir, 4096, Response::Directory(Vec::new()), &b());
}

#[test]
fn errors_and_absent_names_have_their_layout() {
    let mut reply = Reply::default();
    reply.encode_error(6, Errno(libc::EIO));
    assert_eq!(reply.to_vec(), b().u32(16).u32(-5_i32 as u32).u64(6).0);
    reply.encode_negative(6, &encoding());
    let absent = b().u64(0).u64(0).u64(9).u64(0).raw(&[0; 96]);
    assert_eq!(reply.to_vec(), b().u32(144).u32(0).u64(6).raw(&absent.0).0);

    let asked = |opcode, size| Asked {
        opcode,
        unique: 6,
        size,
        is_direct: false,
    };
    let long = Response::Data(vec![1; 10]);
    reply
        .encode(
            &asked(Opcode::GetXattr, 4),
            long,
            &encoding(),
            &mut Vec::new(),
        )
        .unwrap();
    assert_eq!(reply.to_vec(), b().u32(16).u32(-34_i32 as u32).u64(6).0);
    let wrong = reply.encode(
        &asked(Opcode::Lookup, 0),
        Response::Empty,
        &encoding(),
        &mut Vec::new(),
    );
    assert!(wrong.is_err());
}

#[test]
fn notifications_have_their_layout() {
    let mut reply = Reply::default();
    let name: Box<[u8]> = Box::from(&b"name"[..]);
    reply.encode_notification(&Notification::Inode {
        inode: 5,
        offset: -1,
        length: 7,
    });
    let expected = b().u32(40).u32(2).u64(0).u64(5).u64(u64::MAX).u64(7);
    assert_eq!(reply.to_vec(), expected.0);
    reply.encode_notification(&Notification::Entry {
        parent: 5,
        name: name.clone(),
    });
    let expected = b()
        .u32(37)
        .u32(3)
        .u64(0)
        .u64(5)
        .u32(4)
        .u32(0)
        .raw(b"name\0");
    assert_eq!(reply.to_vec(), expected.0);
    reply.encode_notification(&Notification::Delete {
        parent: 5,
        child: 6,
        name,
    });
    let expected = b()
        .u32(45)
        .u32(6)
        .u64(0)
        .u64(5)
        .u64(6)
        .u32(4)
        .u32(0)
        .raw(b"name\0");
    assert_eq!(reply.to_vec(), expected.0);
}
