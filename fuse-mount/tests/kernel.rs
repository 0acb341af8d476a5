//! The transport against the real kernel: mounts a small filesystem in memory. Needs root and
//! `/dev/fuse`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this is a test")]

#[path = "common/helper.rs"]
mod helper;
#[path = "common/memory.rs"]
mod memory;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fuse_mount::fs::request::{Errno, KernelSession, Notification};
use fuse_mount::fuse::mount::{abort_connection, find_mount, mount_by_helper};
use fuse_mount::fuse::{Environment, MountError, Session, SessionOptions};
use helper::flush_helper;
use memory::Memory;

/// A mount for one test; unmounted at its end.
struct Mounted {
    session: Session,
    memory: Arc<Memory>,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Self {
        Self::with(SessionOptions::default())
    }

    fn with(options: SessionOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let session = Session::mount(directory.path(), options, environment(&memory)).unwrap();
        Self {
            session,
            memory,
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn count(&self, name: &str) -> u64 {
        let counts = self.session.request_counts();
        let found = counts.iter().find(|entry| entry.name == name);
        found.map_or(0, |entry| entry.count)
    }

    fn kernel(&self) -> Arc<dyn KernelSession> {
        self.session.kernel_session()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.session.unmount(true) {
            eprintln!("unmounting: {error}");
        }
    }
}

fn environment(memory: &Arc<Memory>) -> Environment {
    Environment {
        handler: memory.clone(),
        holder: None,
        flush_helper: Some(Arc::new(flush_helper())),
    }
}

#[test]
fn files_directories_and_links_work() {
    let mounted = Mounted::new();
    let path = mounted.path("a");
    fs::write(&path, "hello").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
    OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b" world")
        .unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello world");
    File::create(&path).unwrap().write_all(b"x").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "x", "O_TRUNC truncates");

    fs::create_dir(mounted.path("d")).unwrap();
    fs::rename(&path, mounted.path("d/b")).unwrap();
    assert!(!path.exists());
    fs::hard_link(mounted.path("d/b"), mounted.path("c")).unwrap();
    assert_eq!(fs::metadata(mounted.path("c")).unwrap().nlink(), 2);
    symlink("d/b", mounted.path("l")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("l")).unwrap(), "x");
    assert_eq!(
        fs::remove_dir(mounted.path("d"))
            .unwrap_err()
            .raw_os_error(),
        Some(libc::ENOTEMPTY)
    );

    let exchange = |from: &str, to: &str, flags: u32| {
        let name =
            |name: &str| std::ffi::CString::new(mounted.path(name).as_os_str().as_bytes()).unwrap();
        let (from, to) = (name(from), name(to));
        // SAFETY: the strings end with NUL and the buffers have the given lengths.
        unsafe {
            libc::renameat2(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                flags,
            )
        }
    };
    fs::write(mounted.path("e"), "e").unwrap();
    assert_eq!(exchange("e", "c", libc::RENAME_EXCHANGE), 0);
    assert_eq!(fs::read_to_string(mounted.path("c")).unwrap(), "e");
    assert_eq!(exchange("e", "c", libc::RENAME_NOREPLACE), -1);

    nix::sys::stat::mknod(
        &mounted.path("null"),
        nix::sys::stat::SFlag::S_IFCHR,
        nix::sys::stat::Mode::from_bits_truncate(0o666),
        nix::sys::stat::makedev(1, 3),
    )
    .unwrap();
    let metadata = fs::metadata(mounted.path("null")).unwrap();
    assert!(metadata.file_type().is_char_device());
    assert_eq!(metadata.rdev(), nix::sys::stat::makedev(1, 3));
    fs::write(mounted.path("null"), "devices work").unwrap();

    let statistics = nix::sys::statvfs::statvfs(mounted.directory.path()).unwrap();
    assert_eq!(statistics.blocks(), 1000);
    assert_eq!(statistics.name_max(), 255);
    let thread = nix::unistd::gettid().as_raw() as u64;
    assert_eq!(mounted.memory.last_pid.load(Ordering::Relaxed), thread);
}

#[test]
fn kernel_asks_open_and_opendir_once_and_never_flushes() {
    let mounted = Mounted::new();
    for number in 0..50 {
        let path = mounted.path(&format!("f{number}"));
        fs::write(&path, "x").unwrap();
        fs::read(&path).unwrap();
        fs::read_dir(mounted.directory.path())
            .unwrap()
            .for_each(drop);
    }
    assert!(mounted.count("open") <= 1, "{}", mounted.count("open"));
    assert_eq!(mounted.count("opendir"), 1);
    assert!(mounted.count("flush") <= 1);
    assert!(mounted.count("release") <= 1);
    assert_eq!(mounted.count("create"), 50);
}

#[test]
fn missing_names_are_asked_for_once() {
    let mounted = Mounted::new();
    for _ in 0..20 {
        assert!(!mounted.path("nothing").exists());
    }
    assert_eq!(mounted.count("lookup"), 1);
    fs::write(mounted.path("nothing"), "now it is there").unwrap();
    assert!(mounted.path("nothing").exists());
}

#[test]
fn ten_thousand_entries_are_listed_once_each_while_others_are_deleted() {
    let mounted = Mounted::new();
    for number in 0..10_000 {
        File::create(mounted.path(&format!("f{number:05}"))).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for entry in fs::read_dir(mounted.directory.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let number: u32 = name[1..].parse().unwrap();
        if number.is_multiple_of(3) {
            fs::remove_file(mounted.path(&name)).unwrap();
        }
        assert!(seen.insert(number), "{name} twice");
    }
    assert_eq!(seen.len(), 10_000);
    let left = fs::read_dir(mounted.directory.path()).unwrap().count();
    assert_eq!(left, 10_000 - 3334);
}

#[test]
fn large_files_and_maps_keep_their_content() {
    let mounted = Mounted::new();
    let data: Vec<u8> = (0..9_000_001_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(mounted.path("big"), &data).unwrap();
    assert!(
        mounted.memory.blocked.load(Ordering::Relaxed) > 0,
        "workers were used"
    );
    nix::mount::mount(
        None::<&str>,
        mounted.directory.path(),
        None::<&str>,
        nix::mount::MsFlags::MS_REMOUNT,
        None::<&str>,
    )
    .unwrap();
    fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    assert!(fs::read(mounted.path("big")).unwrap() == data);

    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(mounted.path("big"))
        .unwrap();
    // SAFETY: nobody shortens the file while it is mapped.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
    assert_eq!(map[5_000_000], data[5_000_000]);
    map[5_000_000..5_000_004].copy_from_slice(b"mmap");
    map.flush().unwrap();
    file.seek(SeekFrom::Start(5_000_000)).unwrap();
    let mut read = [0; 4];
    file.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"mmap");
    file.sync_all().unwrap();
    assert_eq!(mounted.count("fsync"), 2, "msync and fsync");
}

#[test]
fn nameless_files_xattrs_holes_and_copies_work() {
    let mounted = Mounted::new();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(mounted.directory.path())
        .unwrap();
    file.write_all_at(b"secret", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let link = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    let name = [mounted.path("named").as_os_str().as_bytes(), b"\0"].concat();
    // SAFETY: the strings end with NUL and the buffers have the given lengths.
    let linked = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            link.as_ptr().cast(),
            libc::AT_FDCWD,
            name.as_ptr().cast(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    assert_eq!(linked, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"secret");

    set_xattr(&mounted.path("named"), "user.a", b"value").unwrap();
    assert_eq!(
        get_xattr(&mounted.path("named"), "user.a").unwrap(),
        b"value"
    );
    assert_eq!(
        get_xattr(&mounted.path("named"), "user.b"),
        Err(Errno(libc::ENODATA))
    );

    nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::empty(), 0, 8192).unwrap();
    assert_eq!(fs::metadata(mounted.path("named")).unwrap().len(), 8192);
    assert_eq!(
        nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekHole).unwrap(),
        8192
    );
    let copy = File::create(mounted.path("copy")).unwrap();
    let copied = nix::fcntl::copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), 6).unwrap();
    assert_eq!(copied, 6);
    assert_eq!(fs::read(mounted.path("copy")).unwrap(), b"secret");
    assert_eq!(
        mounted.count("copy_file_range") + mounted.count("copy_file_range_64"),
        1
    );
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the strings end with NUL and the buffers have the given lengths.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

fn get_xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    let mut value = vec![0; 1000];
    // SAFETY: the strings end with NUL and the buffers have the given lengths.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    match usize::try_from(length) {
        Ok(length) => {
            value.truncate(length);
            Ok(value)
        }
        Err(_) => Err(Errno(
            std::io::Error::last_os_error().raw_os_error().unwrap(),
        )),
    }
}

#[test]
fn flush_waits_for_all_writes_of_open_files() {
    for has_helper in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let mut environment = environment(&memory);
        if !has_helper {
            environment.flush_helper = None;
        }
        let options = SessionOptions {
            max_background: 4,
            congestion_threshold: 3,
            ..SessionOptions::default()
        };
        let session = Session::mount(directory.path(), options, environment).unwrap();
        let mut file = File::create(directory.path().join("f")).unwrap();
        let data = vec![7_u8; 24 << 20];
        memory.write_delay_milliseconds.store(15, Ordering::Relaxed);
        file.write_all(&data).unwrap();
        session.kernel_session().flush().unwrap();
        let written = memory.bytes_written.load(Ordering::Relaxed);
        assert_eq!(written, data.len() as u64, "helper: {has_helper}");
        memory.write_delay_milliseconds.store(0, Ordering::Relaxed);
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "the barrier is not listed");
        drop(file);
        session.unmount(false).unwrap();
        assert!(session.has_ended());
    }
}

#[test]
fn notifications_make_the_kernel_ask_again() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, "old").unwrap();
    assert!(!mounted.path("planted").exists());
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");

    mounted.memory.plant(b"planted");
    let name: Box<[u8]> = Box::from(&b"planted"[..]);
    mounted
        .kernel()
        .notify(Notification::Entry { parent: 1, name });
    eventually("the new name is seen", || mounted.path("planted").exists());

    let child = mounted.memory.uproot(b"planted");
    let name: Box<[u8]> = Box::from(&b"planted"[..]);
    mounted.kernel().notify(Notification::Delete {
        parent: 1,
        child,
        name,
    });
    eventually("the name is gone", || !mounted.path("planted").exists());

    // Unknown names and inodes are no trouble.
    let name: Box<[u8]> = Box::from(&b"never heard of"[..]);
    mounted
        .kernel()
        .notify(Notification::Entry { parent: 1, name });
    mounted.kernel().notify(Notification::Inode {
        inode: 999_999,
        offset: 0,
        length: 0,
    });
    eventually("all were sent", || mounted.count("notifications") == 4);
}

#[test]
fn without_the_write_cache_changed_content_is_seen_after_a_notification() {
    let mounted = Mounted::with(SessionOptions {
        writeback_cache: false,
        ..SessionOptions::default()
    });
    let path = mounted.path("f");
    fs::write(&path, "old").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    let inode = mounted.memory.replace_content(b"f", b"changed");
    mounted.kernel().notify(Notification::Inode {
        inode,
        offset: 0,
        length: 0,
    });
    eventually("the new content is seen", || {
        fs::read_to_string(&path).unwrap() == "changed"
    });
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn panic_in_the_filesystem_is_an_input_output_error() {
    let mounted = Mounted::new();
    mounted
        .memory
        .panic_on_lookup
        .store(true, Ordering::Relaxed);
    let error = fs::metadata(mounted.path("x")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    mounted
        .memory
        .panic_on_lookup
        .store(false, Ordering::Relaxed);
    fs::write(mounted.path("x"), "the session goes on").unwrap();
}

#[test]
fn unmounting_ends_the_session_and_busy_mounts_stay() {
    let mounted = Mounted::new();
    let file = File::create(mounted.path("open")).unwrap();
    let error = mounted.session.unmount(false).unwrap_err();
    assert!(error.to_string().contains("fuser -vm"), "{error}");
    drop(file);
    let at = fs::canonicalize(mounted.directory.path()).unwrap();
    assert_eq!(find_mount(&at).unwrap().unwrap().source, "kura");
    mounted.session.unmount(false).unwrap();
    assert!(mounted.session.has_ended());
    assert!(mounted.memory.session.lock().is_none(), "detached");
    assert_eq!(find_mount(&at).unwrap(), None);
    mounted.session.unmount(false).unwrap();
}

#[test]
fn unmounting_from_outside_ends_the_session() {
    let mounted = Mounted::new();
    nix::mount::umount(mounted.directory.path()).unwrap();
    assert!(mounted.session.wait(Duration::from_secs(5)));
}

#[test]
fn lazily_unmounted_mount_in_use_is_aborted() {
    let mounted = Mounted::with(SessionOptions {
        unmount_timeout_milliseconds: 200,
        ..SessionOptions::default()
    });
    let file = File::create(mounted.path("open")).unwrap();
    mounted.session.unmount(true).unwrap();
    assert!(mounted.session.has_ended());
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn mounts_in_the_way_are_named_and_dead_ones_repaired() {
    let mounted = Mounted::new();
    let again = |options: SessionOptions| {
        Session::mount(
            mounted.directory.path(),
            options,
            environment(&mounted.memory),
        )
    };
    let error = again(SessionOptions::default()).unwrap_err();
    assert!(
        matches!(error, MountError::AlreadyMounted { .. }),
        "{error}"
    );
    assert!(
        error
            .hint()
            .unwrap()
            .starts_with("unmount it first: umount ")
    );

    let at = fs::canonicalize(mounted.directory.path()).unwrap();
    abort_connection(find_mount(&at).unwrap().unwrap().device).unwrap();
    assert!(mounted.session.wait(Duration::from_secs(5)));
    let error = again(SessionOptions::default()).unwrap_err();
    assert!(matches!(error, MountError::Dead(_)), "{error}");
    let repaired = again(SessionOptions {
        repair: true,
        ..SessionOptions::default()
    })
    .unwrap();
    fs::write(mounted.path("alive"), "").unwrap();
    repaired.unmount(false).unwrap();
}

#[test]
fn options_reach_the_kernel() {
    let mounted = Mounted::with(SessionOptions {
        read_only: true,
        source: "other".to_owned(),
        subtype: Some("kura".to_owned()),
        allow_suid_and_devices: false,
        ..SessionOptions::default()
    });
    let at = fs::canonicalize(mounted.directory.path()).unwrap();
    let line = find_mount(&at).unwrap().unwrap();
    assert_eq!(
        (line.kind.as_str(), line.source.as_str()),
        ("fuse.kura", "other")
    );
    let error = File::create(mounted.path("x")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let options = table
        .lines()
        .find(|line| line.contains(at.to_str().unwrap()))
        .unwrap();
    for option in [
        "ro",
        "nosuid",
        "nodev",
        "allow_other",
        "default_permissions",
    ] {
        assert!(options.contains(option), "{option} in {options}");
    }
}

#[test]
fn users_are_translated_both_ways() {
    let mounted = Mounted::with(SessionOptions {
        uid_map: "0:1000:1,5000:0:1".parse().unwrap(),
        gid_map: "0:1000:1,5001:7:1".parse().unwrap(),
        ..SessionOptions::default()
    });
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    assert_eq!(mounted.memory.stored(b"f").0.uid, 1000);
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
    std::os::unix::fs::chown(&path, Some(5000), Some(5001)).unwrap();
    let stored = mounted.memory.stored(b"f").0;
    assert_eq!((stored.uid, stored.gid), (0, 7));
    assert_eq!(fs::metadata(&path).unwrap().uid(), 5000);
    let error = std::os::unix::fs::chown(&path, Some(77), None).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));

    let acl = |user: u32| {
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in [
            (1_u16, u32::MAX),
            (2, user),
            (4, u32::MAX),
            (16, u32::MAX),
            (32, u32::MAX),
        ] {
            value.extend(tag.to_le_bytes());
            value.extend(6_u16.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    };
    set_xattr(&path, "system.posix_acl_access", &acl(5000)).unwrap();
    let stored = mounted.memory.stored(b"f").1;
    assert_eq!(stored[&b"system.posix_acl_access"[..]], acl(0));
    assert_eq!(
        get_xattr(&path, "system.posix_acl_access").unwrap(),
        acl(5000)
    );
}

#[test]
fn permissions_are_checked_for_others() {
    let mounted = Mounted::new();
    fs::write(mounted.path("private"), "x").unwrap();
    fs::set_permissions(mounted.path("private"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(mounted.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = "import os,sys\nos.setgroups([]);os.setgid(1234);os.setuid(1234)\nos.umask(0o27)\n\
                  p=sys.argv[1]\nopen(p+'/mine','w').write('x')\n\
                  try:\n open(p+'/private')\n sys.exit(1)\nexcept PermissionError: pass\n";
    let status = Command::new("python3")
        .args(["-c", script])
        .arg(mounted.directory.path())
        .status()
        .unwrap();
    assert!(status.success());
    let metadata = fs::metadata(mounted.path("mine")).unwrap();
    assert_eq!(metadata.uid(), 1234);
    assert_eq!(
        metadata.mode() & 0o7777,
        0o640,
        "umask applied by the filesystem"
    );
}

#[test]
fn fusermount_hands_over_a_working_device() {
    let directory = tempfile::tempdir().unwrap();
    let options = SessionOptions::default();
    let device = mount_by_helper(directory.path(), &options).unwrap();
    let memory = Memory::new();
    let state = fuse_mount::fuse::SessionState {
        mountpoint: fs::canonicalize(directory.path()).unwrap(),
        options,
        negotiated: None,
        by_helper: true,
    };
    let session = Session::resume(device, state, environment(&memory)).unwrap();
    fs::write(directory.path().join("f"), "x").unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("f")).unwrap(), "x");
    session.unmount(false).unwrap();
    assert!(session.has_ended());
}

#[test]
fn a_program_is_answered_in_time_while_every_cpu_is_busy() {
    let mounted = Mounted::new();
    let file = mounted.path("file");
    fs::write(&file, "x").unwrap();
    let chmod = |mode: u32| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    // One thread that asks without a pause: dispatch goes to its CPU and gives way there.
    (0..5000).for_each(|round| chmod(0o600 | (round & 1)));
    let hogs = 3 * std::thread::available_parallelism().unwrap().get();
    let is_done = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        for _ in 0..hogs {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Many more requests than are made before dispatch is found starving.
        let longest = (0..100)
            .map(|round| {
                let start = Instant::now();
                chmod(0o600 | (round & 1));
                start.elapsed()
            })
            .max();
        is_done.store(true, Ordering::Relaxed);
        longest.unwrap()
    });
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

#[test]
fn locks_stay_in_the_kernel() {
    let mounted = Mounted::new();
    let file = File::create(mounted.path("locked")).unwrap();
    let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let other = File::open(mounted.path("locked")).unwrap();
    let (_, errno) =
        nix::fcntl::Flock::lock(other, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap_err();
    assert_eq!(errno, nix::errno::Errno::EWOULDBLOCK);
    drop(lock);
    assert_eq!(mounted.count("setlk") + mounted.count("setlkw"), 0);
}

/// Not a test: prints what a round trip and large writes cost.
#[test]
#[ignore = "measures"]
fn measure_round_trip_and_large_writes() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    for round in 0..5 {
        let start = Instant::now();
        for number in 0..20_000_u32 {
            let permissions = fs::Permissions::from_mode(0o600 + number % 2);
            fs::set_permissions(&path, permissions).unwrap();
        }
        let chmod = start.elapsed() / 20_000;
        let start = Instant::now();
        for number in 0..5000 {
            fs::write(mounted.path(&format!("n{round}-{number}")), [7; 4096]).unwrap();
        }
        eprintln!(
            "chmod {chmod:?}, create+write+close {:?}",
            start.elapsed() / 5000
        );
    }
    let at = fs::canonicalize(mounted.directory.path()).unwrap();
    let minor = find_mount(&at).unwrap().unwrap().device.1;
    for (ratio, strict, ahead) in [("1", "1", "128"), ("100", "0", "1024")].repeat(3) {
        let bdi = format!("/sys/class/bdi/0:{minor}");
        fs::write(format!("{bdi}/max_ratio"), ratio).unwrap();
        fs::write(format!("{bdi}/strict_limit"), strict).unwrap();
        fs::write(format!("{bdi}/read_ahead_kb"), ahead).unwrap();
        let data = vec![7; 1 << 20];
        let start = Instant::now();
        let mut file = File::create(mounted.path("big")).unwrap();
        for _ in 0..512 {
            file.write_all(&data).unwrap();
        }
        let written = start.elapsed();
        file.sync_all().unwrap();
        let synced = start.elapsed();
        drop(file);
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        let start = Instant::now();
        let read = fs::read(mounted.path("big")).unwrap().len();
        eprintln!(
            "max_ratio {ratio} strict {strict} ahead {ahead}: write {written:?}, with fsync \
             {synced:?}, cold read of {read} {:?}",
            start.elapsed()
        );
        fs::remove_file(mounted.path("big")).unwrap();
    }
    eprintln!("{:?}", mounted.session.request_counts());
}
