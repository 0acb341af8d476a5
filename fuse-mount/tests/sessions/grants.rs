//! What a session's principal may not do is refused on inodes, and changes of grants take effect
//! on what is open.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use workspace_store::policy::Access::{Hidden, Read, Write};

use crate::harness::{Two, names};

const GRANTS: &[(&str, workspace_store::policy::Access)] = &[
    ("**", Write),
    ("secrets/**", Hidden),
    ("secrets", Hidden),
    ("*.key", Hidden),
    ("docs", Read),
];

fn filled() -> Two {
    let two = Two::new();
    let top = &two.a;
    for directory in ["secrets", "docs", "src", "mixed"] {
        fs::create_dir(top.path(directory)).unwrap();
    }
    for file in [
        "secrets/s",
        "docs/d",
        "src/a",
        "src/id.key",
        "mixed/x.key",
        "mixed/y",
    ] {
        fs::write(top.path(file), format!("content of {file}")).unwrap();
    }
    two
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn hidden_things_are_not_there() {
    let two = filled();
    // The kernel knows all of it before.
    assert_eq!(names(&two.b.top).len(), 4);
    assert!(two.b.path("secrets/s").exists());
    two.grant(GRANTS);
    let b = |name: &str| two.b.path(name);
    assert_eq!(names(&two.b.top), ["docs", "mixed", "src"]);
    assert_eq!(names(&b("src")), ["a"]);
    for path in [
        "secrets",
        "secrets/s",
        "src/id.key",
        "mixed/x.key",
        "secrets/none",
    ] {
        assert_eq!(code(fs::symlink_metadata(b(path))), libc::ENOENT, "{path}");
        assert_eq!(code(File::open(b(path))), libc::ENOENT, "{path}");
        assert_eq!(
            code(fs::rename(b(path), b("moved"))),
            libc::ENOENT,
            "{path}"
        );
    }
    for path in ["src/id.key", "secrets"] {
        assert_eq!(code(fs::remove_file(b(path))), libc::ENOENT, "{path}");
    }
    // Making a name tells nothing of what is there.
    for path in ["src/id.key", "src/new.key", "secrets"] {
        assert_eq!(code(fs::write(b(path), "")), libc::EACCES, "{path}");
        assert_eq!(code(fs::create_dir(b(path))), libc::EACCES, "{path}");
        assert_eq!(code(symlink("x", b(path))), libc::EACCES, "{path}");
        assert_eq!(
            code(fs::hard_link(b("src/a"), b(path))),
            libc::EACCES,
            "{path}"
        );
        assert_eq!(
            code(fs::rename(b("src/a"), b(path))),
            libc::EACCES,
            "{path}"
        );
    }
    // A directory with something hidden is not empty, and not movable.
    fs::remove_file(b("mixed/y")).unwrap();
    assert_eq!(names(&b("mixed")), Vec::<String>::new());
    assert_eq!(code(fs::remove_dir(b("mixed"))), libc::ENOTEMPTY);
    assert_eq!(code(fs::rename(b("mixed"), b("elsewhere"))), libc::EACCES);
    assert_eq!(code(fs::rename(b("src"), b("docs/src"))), libc::EACCES);
    assert_eq!(fs::metadata(&two.b.top).unwrap().nlink(), 1);
    // What rules say nothing about may be moved.
    fs::create_dir_all(b("plain/below")).unwrap();
    fs::write(b("plain/below/f"), "f").unwrap();
    fs::rename(b("plain"), b("src/plain")).unwrap();
    assert_eq!(
        fs::read_to_string(two.a.path("src/plain/below/f")).unwrap(),
        "f"
    );
    assert_eq!(names(&two.a.top), ["docs", "mixed", "secrets", "src"]);
}

#[test]
fn what_may_be_read_only_is_not_changed() {
    let two = filled();
    two.grant(GRANTS);
    let b = |name: &str| two.b.path(name);
    assert_eq!(
        fs::read_to_string(b("docs/d")).unwrap(),
        "content of docs/d"
    );
    let open = |options: &mut OpenOptions| code(options.open(b("docs/d")));
    assert_eq!(open(OpenOptions::new().write(true)), libc::EACCES);
    assert_eq!(open(OpenOptions::new().append(true)), libc::EACCES);
    assert_eq!(
        open(OpenOptions::new().write(true).truncate(true)),
        libc::EACCES
    );
    assert_eq!(
        open(OpenOptions::new().write(true).create(true)),
        libc::EACCES
    );
    let exclusive = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(b("docs/d"));
    assert_eq!(exclusive.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    assert_eq!(code(fs::set_permissions(b("docs/d"), mode)), libc::EACCES);
    assert_eq!(code(fs::remove_file(b("docs/d"))), libc::EACCES);
    assert_eq!(code(fs::rename(b("docs/d"), b("d"))), libc::EACCES);
    assert_eq!(code(fs::rename(b("src/a"), b("docs/a"))), libc::EACCES);
    assert_eq!(code(fs::hard_link(b("docs/d"), b("d"))), libc::EACCES);
    assert_eq!(code(fs::write(b("docs/new"), "")), libc::EACCES);
    let temporary = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(b("docs"));
    assert_eq!(code(temporary), libc::EACCES);
    // By number: a descriptor that was opened for reading, again for writing.
    let file = File::open(b("docs/d")).unwrap();
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    assert_eq!(
        code(OpenOptions::new().write(true).open(again)),
        libc::EACCES
    );
    assert_eq!(
        fs::read_to_string(two.a.path("docs/d")).unwrap(),
        "content of docs/d"
    );
}

#[test]
fn a_file_has_the_least_access_of_its_names() {
    let two = filled();
    two.grant(GRANTS);
    let (a, b) = (|name: &str| two.a.path(name), |name: &str| two.b.path(name));
    // One name becomes hidden: the file is, under all of them.
    assert_eq!(fs::read_to_string(b("src/a")).unwrap(), "content of src/a");
    let open = File::open(b("src/a")).unwrap();
    fs::hard_link(a("src/a"), a("secrets/link")).unwrap();
    assert_eq!(code(File::open(b("src/a"))), libc::ENOENT);
    assert_eq!(names(&b("src")), Vec::<String>::new());
    assert_eq!(code(open.read_at(&mut [0; 4], 0)), libc::EACCES);
    fs::remove_file(a("secrets/link")).unwrap();
    assert_eq!(fs::read_to_string(b("src/a")).unwrap(), "content of src/a");
    open.read_at(&mut [0; 4], 0).unwrap();
    fs::hard_link(a("docs/d"), a("src/d")).unwrap();
    assert_eq!(code(fs::write(b("src/d"), "")), libc::EACCES);
    assert_eq!(fs::metadata(b("src/d")).unwrap().nlink(), 2);
    // A directory that moves to where it is hidden.
    fs::create_dir(a("dir")).unwrap();
    fs::write(a("dir/f"), "f").unwrap();
    let (directory, file) = (
        File::open(b("dir")).unwrap(),
        File::open(b("dir/f")).unwrap(),
    );
    let within = format!("/proc/self/fd/{}", directory.as_raw_fd());
    assert_eq!(names(Path::new(&within)), ["f"]);
    fs::rename(a("dir"), a("secrets/dir")).unwrap();
    assert_eq!(code(file.read_at(&mut [0; 1], 0)), libc::EACCES);
    assert_eq!(code(fs::metadata(format!("{within}/f"))), libc::ENOENT);
    assert_eq!(code(fs::read_dir(&within).map(|_| ())), libc::ENOENT);
    fs::rename(a("secrets/dir"), a("dir")).unwrap();
    assert_eq!(fs::read_to_string(b("dir/f")).unwrap(), "f");
    // An open file without a name keeps what its last name gave.
    let unlinked = OpenOptions::new()
        .read(true)
        .write(true)
        .open(b("dir/f"))
        .unwrap();
    fs::remove_file(b("dir/f")).unwrap();
    unlinked.write_all_at(b"g", 0).unwrap();
    unlinked.read_at(&mut [0; 4], 0).unwrap();
}

#[test]
fn a_directory_on_the_way_to_something_visible_shows_only_that() {
    let two = filled();
    fs::create_dir_all(two.a.path("deep/er/est")).unwrap();
    fs::write(two.a.path("deep/er/est/f"), "f").unwrap();
    fs::write(two.a.path("deep/er/hidden"), "h").unwrap();
    two.grant(&[("deep/er/est", Read)]);
    assert_eq!(names(&two.b.top), ["deep"]);
    assert_eq!(names(&two.b.path("deep/er")), ["est"]);
    assert_eq!(
        fs::read_to_string(two.b.path("deep/er/est/f")).unwrap(),
        "f"
    );
    assert_eq!(code(fs::read(two.b.path("deep/er/hidden"))), libc::ENOENT);
    assert_eq!(code(fs::write(two.b.path("deep/er/new"), "")), libc::EACCES);
    two.grant(&[]);
    assert_eq!(names(&two.b.top), Vec::<String>::new());
    assert_eq!(code(fs::metadata(two.b.path("deep"))), libc::ENOENT);
}

#[test]
fn a_change_of_grants_reaches_what_is_open_and_mapped() {
    let two = filled();
    two.grant(GRANTS);
    let b = |name: &str| two.b.path(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(b("src/a"))
        .unwrap();
    file.write_all_at(b"CONTENT", 0).unwrap();
    let length = 4096;
    // SAFETY: a new mapping of an open file.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    let at = map.cast::<u8>();
    // SAFETY: the mapping's first byte.
    assert_eq!(unsafe { at.read_volatile() }, b'C');

    two.grant(&[("src", Read)]);
    assert_eq!(code(file.write_all_at(b"x", 0)), libc::EACCES);
    assert_eq!(code(file.set_len(0)), libc::EACCES);
    file.read_at(&mut [0; 4], 0).unwrap();
    // SAFETY: the file is as long as before.
    unsafe { at.write_volatile(b'!') };
    // SAFETY: the mapping made above.
    unsafe { libc::msync(map, length, libc::MS_SYNC) };
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(fs::read(two.a.path("src/a")).unwrap()[0], b'C');
    assert_eq!(
        fs::read(b("src/a")).unwrap()[0],
        b'C',
        "nor does it stay in the cache"
    );

    two.grant(&[("docs", Read)]);
    assert_eq!(code(file.read_at(&mut [0; 4], 0)), libc::EACCES);
    assert_eq!(code(file.metadata()), libc::ENOENT);
    assert!(faults(at), "the mapping has lost its pages");
    two.grant(GRANTS);
    file.write_all_at(b"again", 0).unwrap();
    assert!(!faults(at));
    // SAFETY: the mapping made above.
    unsafe { libc::munmap(map, length) };
}

/// Whether reading an address is a bus error; tried in a child.
fn faults(at: *const u8) -> bool {
    // SAFETY: the child only reads and exits.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the address was mapped in the parent; a fault ends the child.
            let byte = unsafe { at.read_volatile() };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(byte == 0)) };
        }
        child => {
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            libc::WIFSIGNALED(status)
        }
    }
}

#[test]
fn a_name_that_becomes_visible_is_found_although_it_was_remembered_as_missing() {
    let two = filled();
    two.grant(GRANTS);
    for _ in 0..20 {
        assert!(!two.b.path("src/id.key").exists());
        assert_eq!(names(&two.b.path("src")), ["a"]);
        two.grant(&[("**", Read)]);
        assert_eq!(
            fs::read(two.b.path("src/id.key")).unwrap(),
            b"content of src/id.key"
        );
        assert_eq!(names(&two.b.path("src")), ["a", "id.key"]);
        two.grant(GRANTS);
    }
    fs::rename(two.a.path("src/id.key"), two.a.path("src/id")).unwrap();
    assert_eq!(names(&two.b.path("src")), ["a", "id"]);
    fs::rename(two.a.path("src/id"), two.a.path("src/id.key")).unwrap();
    assert_eq!(names(&two.b.path("src")), ["a"]);
}

#[test]
fn grants_change_under_readers_and_writers_without_a_hang() {
    let two = filled();
    two.grant(GRANTS);
    let is_done = AtomicBool::new(false);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !is_done.load(Ordering::Acquire) {
                round += 1;
                let path = two.b.path(&format!("src/n{}", round % 40));
                let result = fs::write(&path, "x").and_then(|()| fs::read(&path).map(|_| ()));
                refused.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
            }
        });
        for _ in 0..100 {
            two.grant(&[("**", Read)]);
            two.grant(GRANTS);
        }
        is_done.store(true, Ordering::Release);
    });
    assert!(refused.load(Ordering::Relaxed) > 0);
    assert_eq!(names(&two.b.top), ["docs", "mixed", "src"]);
}
