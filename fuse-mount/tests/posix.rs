//! The filesystem behind the real kernel, over a real store: what programs see must be what a
//! local filesystem shows. Needs root and `/dev/fuse`.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

#[path = "common/helper.rs"]
mod helper;
#[path = "common/workspace.rs"]
mod workspace;

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use fuse_mount::fs::FilesystemSession;
use fuse_mount::fuse::{Environment, Session, SessionOptions};
use helper::flush_helper;
use workspace::empty_workspace;
use workspace_store::store::Store;

/// A mounted workspace; unmounted at the end of its test.
struct Mounted {
    session: Session,
    top: PathBuf,
    _directory: tempfile::TempDir,
    _store: Store,
}

impl Mounted {
    fn new() -> Self {
        let directory = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let (store, filesystem) = empty_workspace(directory.path());
        let environment = Environment {
            handler: FilesystemSession::new(filesystem),
            holder: None,
            flush_helper: Some(Arc::new(flush_helper())),
        };
        let top = directory.path().join("mount");
        fs::create_dir(&top).unwrap();
        let session = Session::mount(&top, SessionOptions::default(), environment).unwrap();
        Self {
            session,
            top,
            _directory: directory,
            _store: store,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ended = self.session.unmount(true);
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

#[test]
fn a_file_touched_right_after_it_was_made_does_not_become_older() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    for _ in 0..50 {
        let file = fs::File::create(&path).unwrap();
        let made = file.metadata().unwrap().modified().unwrap();
        // SAFETY: the descriptor is open, and no times means the current one.
        let touched = unsafe { libc::futimens(file.as_raw_fd(), std::ptr::null()) };
        assert_eq!(touched, 0);
        let touched = file.metadata().unwrap().modified().unwrap();
        assert!(touched >= made, "made {made:?}, touched {touched:?}");
        fs::remove_file(&path).unwrap();
    }
}
#[test]
fn holes_and_data_are_found_in_a_file_that_is_being_written() {
    const MEBIBYTE: u64 = 1 << 20;
    let mounted = Mounted::new();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("f"))
        .unwrap();
    let seek = |offset: u64, whence: i32| {
        // SAFETY: the descriptor is open.
        let found = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) };
        u64::try_from(found).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
    };
    for round in 0..20 {
        file.set_len(0).unwrap();
        file.write_all_at(&[7; 100_000], 0).unwrap();
        assert_eq!(seek(0, libc::SEEK_DATA), Ok(0), "round {round}");
        assert_eq!(seek(0, libc::SEEK_HOLE), Ok(100_000), "round {round}");
        file.set_len(3 * MEBIBYTE).unwrap();
        file.write_all_at(b"x", 2 * MEBIBYTE).unwrap();
        let first_hole = 100_000_u64.next_multiple_of(4096);
        assert_eq!(seek(0, libc::SEEK_HOLE), Ok(first_hole), "round {round}");
        assert_eq!(seek(first_hole, libc::SEEK_DATA), Ok(2 * MEBIBYTE));
        assert_eq!(seek(2 * MEBIBYTE, libc::SEEK_HOLE), Ok(2 * MEBIBYTE + 4096));
        assert_eq!(seek(2 * MEBIBYTE + 4096, libc::SEEK_DATA), Err(libc::ENXIO));
        assert_eq!(seek(3 * MEBIBYTE, libc::SEEK_HOLE), Err(libc::ENXIO));
    }
    assert_eq!(file.metadata().unwrap().size(), 3 * MEBIBYTE);
}

#[test]
fn set_id_bits_go_when_somebody_else_changes_the_content() {
    use std::os::unix::fs::PermissionsExt;
    let mounted = Mounted::new();
    let source = fs::File::create_new(mounted.path("source")).unwrap();
    source.write_all_at(b"source", 0).unwrap();
    type Change<'a> = (&'a str, &'a dyn Fn(&fs::File));
    let changes: [Change<'_>; 4] = [
        ("write", &|file| file.write_all_at(b"x", 1).unwrap()),
        ("truncate", &|file| file.set_len(3).unwrap()),
        ("fallocate", &|file| {
            // SAFETY: the descriptor is open.
            let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 100) };
            assert_eq!(result, 0);
        }),
        ("copy_file_range", &|file| {
            let source = fs::File::open(mounted.path("source")).unwrap();
            let copied =
                nix::fcntl::copy_file_range(&source, Some(&mut 0), file, Some(&mut 0), 6).unwrap();
            assert_eq!(copied, 6);
        }),
    ];
    // Set-gid without the group's execute bit stays for the file's group, which 1234 is not in.
    let cases = [
        (0, 0o6775, 0o6775),
        (1234, 0o6775, 0o775),
        (1234, 0o2644, 0o644),
        (0, 0o2644, 0o2644),
    ];
    nix::unistd::setfsgid(nix::unistd::Gid::from_raw(1234));
    for (user, bits, expected) in cases {
        for (name, change) in changes {
            let path = mounted.path(&format!("{name}-{user}-{bits}"));
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap();
            std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            // The thread's own user for access to files.
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(user));
            change(&file);
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(0));
            let mode = file.metadata().unwrap().mode() & 0o7777;
            assert_eq!(mode, expected, "{name} of {bits:o} by {user}: {mode:o}");
        }
    }
}
