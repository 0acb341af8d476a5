//! Tests of `export`.

use std::ffi::CString;
use std::fs;
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::*;
use crate::diff::{DiffOptions, diff_roots};
use crate::import::{Import, TarOptions, import_directory, import_tar};
use crate::memory_store::MemoryStore;
use crate::object::{Node, Root};
use crate::progress::{NoProgress, Progress};

fn store_import(store: &MemoryStore, import: Import) -> Root {
    assert_eq!(import.warnings, Vec::<String>::new());
    store.apply(&store.empty(), import.edit).unwrap()
}

fn tar_options() -> TarOptions {
    TarOptions {
        spool_directory: std::env::temp_dir(),
    }
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = CString::new(name).unwrap();
    // SAFETY: both strings end with NUL and the value is as long as stated.
    let result = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    assert_eq!(result, 0, "{name:?}: {}", std::io::Error::last_os_error());
}

fn make_node(path: &Path, mode: u32, rdev: u64) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with NUL.
    let result = unsafe { libc::mknod(path.as_ptr(), mode, rdev) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A tree with everything that an inode can carry; owners and devices only as root.
fn rich_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("file"), "content").unwrap();
    fs::write(root.join("nothing"), "").unwrap();
    fs::write(
        root.join("big"),
        (0..3_000_000_u32)
            .map(|n| (n / 7) as u8)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    fs::write(
        root.join(std::ffi::OsStr::from_bytes(b"odd \xff\xfe\n name")),
        "odd",
    )
    .unwrap();
    let long = "n".repeat(255);
    fs::create_dir_all(root.join("long").join(&long)).unwrap();
    fs::write(
        root.join("long")
            .join(&long)
            .join(std::ffi::OsStr::from_bytes(&[0xe9; 200])),
        "long",
    )
    .unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("deep/er/{number}")), number.to_string()).unwrap();
    }
    fs::hard_link(root.join("file"), root.join("deep/file again")).unwrap();
    fs::hard_link(root.join("file"), root.join("a third")).unwrap();
    symlink("/etc/passwd", root.join("absolute link")).unwrap();
    symlink("deep/er", root.join("link")).unwrap();
    symlink("t".repeat(300), root.join("long link")).unwrap();
    fs::hard_link(root.join("link"), root.join("link again")).unwrap();
    make_node(&root.join("pipe"), libc::S_IFIFO | 0o640, 0);
    make_node(&root.join("socket"), libc::S_IFSOCK | 0o600, 0);
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&[7; 8192], 1 << 20).unwrap();
    sparse.write_all_at(&[8; 100], 4 << 20).unwrap();
    sparse.set_len(8 << 20).unwrap();
    let hole = fs::File::create(root.join("only a hole")).unwrap();
    hole.set_len(1 << 20).unwrap();
    set_xattr(&root.join("file"), "user.plain", b"value");
    set_xattr(&root.join("empty"), "user.binary=%", b"a\nb\0c");
    set_xattr(&root.join("nothing"), "user.nothing", b"");
    // A POSIX ACL: version 2, user::rw-, user:1234:r--, group::r--, mask::r--, other::---
    let acl = [
        &2_u32.to_le_bytes()[..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 0xd2, 4, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[16, 0, 4, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    set_xattr(&root.join("nothing"), "system.posix_acl_access", &acl);
    set_xattr(&root.join("deep"), "system.posix_acl_default", &acl);
    if is_root() {
        std::os::unix::fs::chown(root.join("file"), Some(1234), Some(3_000_000_000)).unwrap();
        std::os::unix::fs::lchown(root.join("long link"), Some(77), Some(78)).unwrap();
        std::os::unix::fs::chown(root.join("deep/er"), Some(5), Some(6)).unwrap();
        make_node(
            &root.join("null"),
            libc::S_IFCHR | 0o666,
            libc::makedev(1, 3),
        );
        make_node(
            &root.join("disk"),
            libc::S_IFBLK | 0o600,
            libc::makedev(259, 300_000),
        );
        set_xattr(&root.join("link"), "trusted.of.link", b"yes");
        set_xattr(&root.join("socket"), "trusted.of.socket", b"yes");
    }
    let unreadable = if is_root() { 0o000 } else { 0o400 };
    for (path, mode) in [
        ("big", 0o4755),
        ("nothing", 0o640),
        ("deep/er", 0o2775),
        ("empty", 0o1777),
        ("deep/er/still", 0o555),
        ("deep/er/1", unreadable),
        ("pipe", 0o622),
        ("", 0o751),
    ] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (path, seconds, nanoseconds) in [
        ("file", 1_000_000_000, 123_456_789),
        ("link", 12, 1),
        ("big", -5, 999_999_999),
        ("pipe", 1, 0),
        ("deep/er/still", 99, 5),
        ("deep/er", 8_000_000_000, 6),
        ("deep", 1, 7),
        ("", 1, 8),
    ] {
        let path = CString::new(root.join(path).as_os_str().as_bytes()).unwrap();
        let time = libc::timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = [time, time];
        // SAFETY: the path ends with NUL and there are two times.
        let result = unsafe {
            libc::utimensat(
                libc::AT_FDCWD,
                path.as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        };
        assert_eq!(result, 0);
    }
}

fn rich_import(store: &MemoryStore) -> Root {
    let directory = tempfile::tempdir().unwrap();
    rich_tree(directory.path());
    let root = store_import(
        store,
        import_directory(directory.path(), &NoProgress).unwrap(),
    );
    let flat = store.flatten(&root).unwrap();
    assert_eq!(flat[&b"file"[..]].1, flat[&b"deep/file again"[..]].1);
    assert_eq!(
        flat[&b"file"[..]].1,
        Some(crate::import::assembly::link_id_of_path(b"a third"))
    );
    assert_eq!(
        flat[&b"file"[..]].0.attributes.mtime.nanoseconds,
        123_456_789
    );
    assert_eq!(flat[&b"big"[..]].0.attributes.mode, 0o4755);
    assert_eq!(flat[&b"big"[..]].0.attributes.mtime.seconds, -5);
    assert_eq!(
        flat[&b"empty"[..]].0.attributes.xattrs[&b"user.binary=%"[..]][..],
        *b"a\nb\0c"
    );
    assert!(
        matches!(&flat[&b"sparse"[..]].0.node, Node::Regular { holes, .. } if holes.len() == 3)
    );
    assert_eq!(flat[&b"socket"[..]].0.node, Node::Socket);
    assert!(
        flat[&b"nothing"[..]]
            .0
            .attributes
            .xattrs
            .contains_key(&b"system.posix_acl_access"[..])
    );
    root
}

fn assert_same(store: &MemoryStore, old: &Root, new: &Root) {
    let options = DiffOptions {
        times: true,
        ..DiffOptions::default()
    };
    let entries = diff_roots(store, old, new, &options).unwrap();
    assert!(entries.is_empty(), "{entries:#?}");
    assert_eq!(old, new);
}

#[test]
fn a_directory_comes_back_with_every_attribute() {
    let store = MemoryStore::default();
    let root = rich_import(&store);
    let target = tempfile::tempdir().unwrap();
    let export =
        export_directory(&store, &root, b"", &target.path().join("out"), &NoProgress).unwrap();
    assert_eq!(export.warnings, Vec::<String>::new());
    let again = import_directory(&target.path().join("out"), &NoProgress).unwrap();
    assert_eq!(again.entry_count, export.entry_count);
    assert_eq!(again.byte_count, export.byte_count);
    assert_same(&store, &root, &store_import(&store, again));
}

fn exported_tar(store: &MemoryStore, root: &Root) -> fs::File {
    let mut file = tempfile::tempfile().unwrap();
    let export = export_tar(store, root, b"", &mut file, &NoProgress).unwrap();
    assert_eq!(export.warnings, Vec::<String>::new());
    file.rewind().unwrap();
    file
}

#[test]
fn a_tar_archive_comes_back_with_every_attribute_also_compressed() {
    let store = MemoryStore::default();
    let root = rich_import(&store);
    let mut file = exported_tar(&store, &root);
    let mut compressed = tempfile::tempfile().unwrap();
    zstd::stream::copy_encode(&mut file, &mut compressed, 1).unwrap();
    for mut archive in [file, compressed] {
        archive.rewind().unwrap();
        let import = import_tar(archive, &tar_options(), &NoProgress).unwrap();
        assert_same(&store, &root, &store_import(&store, import));
    }
}

#[test]
fn other_programs_read_and_write_our_archives() {
    let store = MemoryStore::default();
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    rich_tree(&source);
    // GNU tar knows no sockets, and stores ACLs as text.
    fs::remove_file(source.join("socket")).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new("tar")
            .args(arguments)
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let options = [
        "--xattrs",
        "--xattrs-include=*",
        "-S",
        "-C",
        "source",
        "-cf",
    ];
    for format in ["--format=posix", "--format=gnu"] {
        for version in [
            "--sparse-version=1.0",
            "--sparse-version=0.1",
            "--sparse-version=0.0",
        ] {
            let mut arguments = vec![format, version];
            arguments.extend(options);
            arguments.extend(["a.tar", "."]);
            run(&arguments);
            let archive = fs::File::open(directory.path().join("a.tar")).unwrap();
            let import = import_tar(archive, &tar_options(), &NoProgress).unwrap();
            let from_tar = store_import(&store, import);
            let direct = store_import(&store, import_directory(&source, &NoProgress).unwrap());
            let is_posix = format == "--format=posix";
            for entry in diff_roots(&store, &direct, &from_tar, &DiffOptions::default()).unwrap() {
                // GNU tar finds holes in its own way, and its own format has whole seconds and
                // no attributes.
                let changes = entry.changes;
                assert_eq!(
                    entry.kind,
                    crate::diff::DiffKind::Metadata,
                    "{format} {version} {entry:?}"
                );
                assert!(
                    !changes.mode && !changes.owner && !changes.links,
                    "{format} {entry:?}"
                );
                assert!(
                    !is_posix || !(changes.mtime || changes.xattrs),
                    "{format} {entry:?}"
                );
            }
        }
    }
    let root = store_import(&store, import_directory(&source, &NoProgress).unwrap());
    let mut file = exported_tar(&store, &root);
    let mut out = fs::File::create(directory.path().join("b.tar")).unwrap();
    std::io::copy(&mut file, &mut out).unwrap();
    out.flush().unwrap();
    fs::create_dir(directory.path().join("unpacked")).unwrap();
    run(&[
        "--xattrs",
        "--xattrs-include=*",
        "-p",
        "-C",
        "unpacked",
        "-xf",
        "b.tar",
    ]);
    let unpacked = import_directory(&directory.path().join("unpacked"), &NoProgress).unwrap();
    let unpacked = store_import(&store, unpacked);
    for entry in diff_roots(&store, &root, &unpacked, &DiffOptions::default()).unwrap() {
        assert_eq!(entry.kind, crate::diff::DiffKind::Metadata, "{entry:?}");
        let only_holes = crate::diff::MetadataChanges {
            holes: true,
            ..Default::default()
        };
        assert_eq!(entry.changes, only_holes, "{entry:?}");
    }
}

#[test]
fn parts_of_a_tree_can_be_exported() {
    let store = MemoryStore::default();
    let root = rich_import(&store);
    let target = tempfile::tempdir().unwrap();
    let part = target.path().join("part");
    export_directory(&store, &root, b"deep/er", &part, &NoProgress).unwrap();
    assert_eq!(fs::read_to_string(part.join("42")).unwrap(), "42");
    assert_eq!(
        fs::metadata(&part).unwrap().permissions().mode() & 0o7777,
        0o2775
    );
    let single = target.path().join("single");
    export_directory(&store, &root, b"deep/file again", &single, &NoProgress).unwrap();
    assert_eq!(fs::read_to_string(&single).unwrap(), "content");
    let error = export_directory(&store, &root, b"file", &single, &NoProgress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let error = export_directory(&store, &root, b"none", &part, &NoProgress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = export_directory(&store, &root, b"", &part, &NoProgress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_file_that_changes_or_vanishes_during_an_import_is_an_error() {
    let store = MemoryStore::default();
    for change in ["write", "replace", "remove", "link"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("victim");
        fs::write(&path, "before").unwrap();
        let import = import_directory(directory.path(), &NoProgress).unwrap();
        match change {
            "write" => fs::write(&path, "behind").unwrap(),
            "replace" => {
                fs::write(directory.path().join("new"), "before").unwrap();
                fs::rename(directory.path().join("new"), &path).unwrap();
            }
            "link" => {
                fs::remove_file(&path).unwrap();
                symlink("/etc/hostname", &path).unwrap();
            }
            _ => fs::remove_file(&path).unwrap(),
        }
        let error = store.apply(&store.empty(), import.edit).unwrap_err();
        assert!(error.message().contains("victim"), "{change}: {error}");
    }
}

/// One entry of an archive as a test writes it.
fn archive(entries: &[(u8, &[u8], &[u8])]) -> fs::File {
    let mut file = tempfile::tempfile().unwrap();
    for (kind, path, link) in entries {
        let mut header = ::tar::Header::new_ustar();
        header.set_entry_type(::tar::EntryType::new(*kind));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        let data: &[u8] = if *kind == b'0' { link } else { b"" };
        header.set_size(data.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path);
        if *kind != b'0' {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
        }
        header.set_cksum();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(data).unwrap();
        file.write_all(&vec![0; data.len().next_multiple_of(512) - data.len()])
            .unwrap();
    }
    file.write_all(&[0; 1024]).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn archives_that_lead_out_of_the_tree_are_rejected() {
    for entries in [
        &[(b'0', &b"../escape"[..], &b"x"[..])][..],
        &[(b'0', b"/etc/passwd", b"x")],
        &[(b'0', b"a/../../b", b"x")],
        &[(b'2', b"out", b"/etc"), (b'0', b"out/passwd", b"x")],
        &[(b'1', b"hard", b"/etc/passwd")],
        &[(b'1', b"hard", b"../x")],
        &[(b'1', b"hard", b"missing")],
        &[(b'5', b"d", b""), (b'0', b"d/f", b"x"), (b'0', b"d", b"y")],
    ] {
        let error = import_tar(archive(entries), &tar_options(), &NoProgress).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{entries:?}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn the_last_of_several_entries_of_a_name_wins() {
    let store = MemoryStore::default();
    let file = archive(&[
        (b'0', b"./a", b"first"),
        (b'1', b"b", b"a"),
        (b'0', b"a", b"second"),
        (b'0', b"x/y/z", b"deep"),
    ]);
    let root = store_import(
        &store,
        import_tar(file, &tar_options(), &NoProgress).unwrap(),
    );
    let flat = store.flatten(&root).unwrap();
    assert_eq!(root.links, None);
    let content = |path: &[u8]| match flat[path].0.node {
        Node::Regular { blob, size, .. } => store.read_whole_blob(blob, size, 100).unwrap(),
        _ => panic!(),
    };
    assert_eq!(
        (content(b"a"), content(b"b"), content(b"x/y/z")),
        (b"second".to_vec(), b"first".to_vec(), b"deep".to_vec())
    );
    assert_eq!(flat[&b"x/y"[..]].0.attributes.mode, 0o755);
}

#[test]
fn other_compressions_and_other_files_are_named() {
    for (bytes, kind) in [
        (&b"\x1f\x8b\x08\0\0\0\0"[..], ErrorKind::Unsupported),
        (b"\xfd7zXZ\0", ErrorKind::Unsupported),
        (&[b'x'; 2048], ErrorKind::InvalidInput),
        (b"", ErrorKind::InvalidInput),
    ] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let error = import_tar(file, &tar_options(), &NoProgress).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
    }
}

struct StopAfter(std::sync::atomic::AtomicU64, u64);

impl Progress for StopAfter {
    fn entry(&self, _path: &[u8], _bytes: u64) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed) >= self.1
    }
}

#[test]
fn imports_and_exports_can_be_stopped() {
    let store = MemoryStore::default();
    let root = rich_import(&store);
    let target = tempfile::tempdir().unwrap();
    let stop = StopAfter(0.into(), 20);
    let error = export_directory(&store, &root, b"", target.path(), &stop).unwrap_err();
    assert!(error.message().contains("incomplete"), "{error}");
    let stop = StopAfter(0.into(), 5);
    assert_eq!(
        import_directory(target.path(), &stop).unwrap_err().kind(),
        ErrorKind::Busy
    );
}

#[test]
fn what_an_ordinary_user_cannot_set_is_said_and_left_out() {
    if !is_root() {
        return;
    }
    let store = MemoryStore::default();
    let root = rich_import(&store);
    let target = tempfile::tempdir().unwrap();
    let out = target.path().join("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(target.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let export = std::thread::scope(|scope| {
        let export = scope.spawn(|| {
            // The system call itself changes only this thread and those that it starts.
            // SAFETY: no memory is touched, and the thread ends with the export.
            let result = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>())
                    | libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534)
                    | libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534)
            };
            assert_eq!(result, 0);
            export_directory(&store, &root, b"", &out, &NoProgress)
        });
        export.join().unwrap().unwrap()
    });
    for part in [
        "device 'null' was left out",
        "owner 0:0 of 'big' not set",
        "setuid and setgid bits of 'big' not set",
        "attribute trusted.of.link of 'link' not set",
    ] {
        let is_said = export.warnings.iter().any(|warning| warning.contains(part));
        assert!(is_said, "{part}: {:#?}", export.warnings);
    }
    let big = fs::metadata(out.join("big")).unwrap();
    assert_eq!(big.permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(out.join("deep/er/42")).unwrap(), b"42");
}
