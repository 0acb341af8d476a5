//! Programs that watch a mount (inotify) notice what a rollback changes in it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{TestMount, TestStore, assert_same_tree, manifest, shell_ok, wait_until};
use nix::libc;

const EVENT_WAIT: Duration = Duration::from_secs(10);

/// One event: the path that it names (without a slash at its end) and its mask.
type Event = (PathBuf, u32);

/// An inotify descriptor and what it watches.
struct Watcher {
    descriptor: File,
    paths: BTreeMap<i32, PathBuf>,
    seen: Vec<Event>,
}

impl Watcher {
    fn new() -> Self {
        // SAFETY: no pointer is passed.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        Self {
            // SAFETY: the kernel has just made it for us.
            descriptor: File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }),
            paths: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    fn add(&mut self, path: &Path) {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mask =
            libc::IN_ALL_EVENTS & !(libc::IN_ACCESS | libc::IN_OPEN | libc::IN_CLOSE_NOWRITE);
        // SAFETY: the path ends with NUL.
        let watch =
            unsafe { libc::inotify_add_watch(self.descriptor.as_raw_fd(), name.as_ptr(), mask) };
        assert!(watch >= 0, "{}", std::io::Error::last_os_error());
        self.paths.insert(watch, path.to_owned());
    }

    /// Watches a directory and all below it, as watchers of source trees do.
    fn add_tree(&mut self, path: &Path) {
        self.add(path);
        for entry in fs::read_dir(path).unwrap().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add_tree(&entry.path());
            }
        }
    }

    /// Reads what has arrived.
    fn read(&mut self) {
        let mut buffer = vec![0_u8; 64 << 10];
        while let Ok(length) = self.descriptor.read(&mut buffer) {
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let word = |index: usize| {
                    u32::from_ne_bytes(rest[index * 4..index * 4 + 4].try_into().unwrap())
                };
                let (watch, mask, name_bytes) = (word(0) as i32, word(1), word(3) as usize);
                let name = &rest[16..16 + name_bytes];
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
                let directory = &self.paths[&watch];
                let path = match end {
                    0 => directory.clone(),
                    _ => directory.join(std::ffi::OsStr::from_bytes(&name[..end])),
                };
                self.seen.push((path, mask & libc::IN_ALL_EVENTS));
                rest = &rest[16 + name_bytes..];
            }
        }
    }

    fn has(&mut self, path: &Path, mask: u32) -> bool {
        self.read();
        self.seen
            .iter()
            .any(|(found, what)| found == path && what & mask != 0)
    }

    #[track_caller]
    fn expect(&mut self, path: &Path, mask: u32) {
        let end = Instant::now() + EVENT_WAIT;
        while !self.has(path, mask) {
            assert!(
                Instant::now() < end,
                "no event {mask:#x} for {}; there were {:#x?}",
                path.display(),
                self.seen
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Names with an event, as the last part of their paths.
    fn names(&mut self) -> BTreeSet<String> {
        self.read();
        let last = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        self.seen.iter().map(|(path, _)| last(path)).collect()
    }
}

fn start() -> (TestStore, TestMount) {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    (store, mount)
}

fn roll_back(store: &TestStore, commit: &str) {
    store.ok(&["rollback", "demo", commit, "--yes"]);
}

/// Nothing is left to commit, and committing makes no version.
#[track_caller]
fn assert_clean(store: &TestStore) {
    let status = store.json(&["status", "demo"]);
    assert!(
        !store.ok(&["status", "demo"]).stdout.is_empty(),
        "no status: {status}"
    );
    let before = store.log_ids("demo");
    store.ok(&["commit", "demo", "-m", "nothing"]);
    assert_eq!(store.log_ids("demo"), before, "{status}");
}

#[test]
fn fuse_watchers_see_what_a_rollback_changes_removes_and_brings_back() {
    let (store, mount) = start();
    shell_ok(
        &mount.path,
        "echo 1 >changed; echo 1 >removed; echo 1 >same; ln -s a link; mkfifo pipe; mkdir moded; \
         printf '#!/bin/sh\\n' >program; chmod 755 program
         touch -d '2001-02-03 04:05:06.000000007' changed; touch -d @5.000000009 removed",
    );
    let id = store.commit("demo", "first");
    let expected = manifest(&mount.path);
    shell_ok(
        &mount.path,
        "echo 22 >changed; rm removed link pipe program; ln -s b link; chmod 700 moded; \
         echo x >new; mkdir new-directory; echo 1 >was-file",
    );
    store.commit("demo", "second");

    let mut watcher = Watcher::new();
    watcher.add(&mount.path);
    roll_back(&store, &id);
    // All events are there when the rollback returns.
    watcher.read();
    let at = |name: &str| mount.join(name);
    for (name, mask) in [
        ("changed", libc::IN_DELETE),
        ("changed", libc::IN_CREATE),
        ("changed", libc::IN_CLOSE_WRITE),
        ("removed", libc::IN_CREATE),
        ("removed", libc::IN_CLOSE_WRITE),
        ("link", libc::IN_DELETE),
        ("link", libc::IN_CREATE),
        ("pipe", libc::IN_CREATE),
        ("program", libc::IN_CREATE),
        ("new", libc::IN_DELETE),
        ("new-directory", libc::IN_DELETE),
        ("was-file", libc::IN_DELETE),
        ("moded", libc::IN_ATTRIB),
    ] {
        assert!(
            watcher.has(&at(name), mask),
            "no event {mask:#x} for {name}: {:#x?}",
            watcher.seen
        );
    }
    assert!(!watcher.names().contains("same"), "{:#x?}", watcher.seen);
    assert_same_tree(&expected, &manifest(&mount.path));
    assert_clean(&store);
    assert_same_tree(&expected, &manifest(&mount.path));

    // And by undo, in the same watcher.
    watcher.seen.clear();
    store.ok(&["undo", "demo", "--yes"]);
    watcher.expect(&at("new"), libc::IN_CREATE);
    watcher.expect(&at("removed"), libc::IN_DELETE);
    assert_eq!(fs::read_to_string(at("changed")).unwrap(), "22\n");
    assert_eq!(fs::read_to_string(at("new")).unwrap(), "x\n");
    assert_clean(&store);
    drop(watcher);
    store.unmount(&mount);
}

#[test]
fn fuse_watchers_of_a_tree_hear_of_nested_directories_that_come_and_go() {
    let (store, mount) = start();
    shell_ok(
        &mount.path,
        "mkdir -p keep/a old/b/c; echo 1 >keep/a/file; echo 1 >old/b/c/file",
    );
    let id = store.commit("demo", "first");
    let expected = manifest(&mount.path);
    shell_ok(
        &mount.path,
        "rm -r old; mkdir -p keep/a/new/x/y; echo 1 >keep/a/new/x/y/file; echo 2 >keep/a/file",
    );
    store.commit("demo", "second");
    let mut watcher = Watcher::new();
    watcher.add_tree(&mount.path);
    // The kernel need not have its names any more.
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    // Somebody still works in what goes.
    let open = File::open(mount.join("keep/a/new/x/y/file")).unwrap();
    roll_back(&store, &id);
    watcher.read();
    for (path, mask) in [
        ("keep/a/new/x/y/file", libc::IN_DELETE),
        ("keep/a/new/x/y", libc::IN_DELETE),
        ("keep/a/new", libc::IN_DELETE),
        ("keep/a/file", libc::IN_CREATE),
        ("old", libc::IN_CREATE),
    ] {
        assert!(
            watcher.has(&mount.join(path), mask),
            "no event {mask:#x} for {path}: {:#x?}",
            watcher.seen
        );
    }
    assert!(!mount.join("keep/a/new").exists());
    assert_same_tree(&expected, &manifest(&mount.path));
    assert_clean(&store);
    drop(open);
    // It held the directories above it.
    watcher.expect(&mount.join("keep/a/new/x"), libc::IN_DELETE_SELF);
    // The tree that came back can be watched and changed as any other.
    watcher.add_tree(&mount.join("old"));
    fs::write(mount.join("old/b/c/other"), "x").unwrap();
    watcher.expect(&mount.join("old/b/c/other"), libc::IN_CREATE);
    store.unmount(&mount);
}

#[test]
fn fuse_watchers_of_one_file_hear_that_it_was_replaced() {
    let (store, mount) = start();
    shell_ok(
        &mount.path,
        "mkdir d; echo 1 >d/file; echo 1 >d/other; ln d/file d/second-name",
    );
    let id = store.commit("demo", "first");
    shell_ok(
        &mount.path,
        "echo 22 >d/file; echo 22 >d/other; echo 3 >d/new",
    );
    store.commit("demo", "second");
    let mut watcher = Watcher::new();
    let names = ["d/file", "d/other", "d/new"];
    names.iter().for_each(|name| watcher.add(&mount.join(name)));
    let mut reader = File::open(mount.join("d/other")).unwrap();
    roll_back(&store, &id);
    watcher.read();
    watcher.expect(
        &mount.join("d/file"),
        libc::IN_ATTRIB | libc::IN_DELETE_SELF,
    );
    watcher.expect(&mount.join("d/new"), libc::IN_DELETE_SELF);
    // It is open, so it goes later.
    watcher.expect(&mount.join("d/other"), libc::IN_ATTRIB);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "22\n", "who has it open keeps the old content");
    drop(reader);
    watcher.expect(&mount.join("d/other"), libc::IN_DELETE_SELF);
    assert_eq!(
        fs::read_to_string(mount.join("d/second-name")).unwrap(),
        "1\n"
    );
    assert_eq!(fs::metadata(mount.join("d/file")).unwrap().nlink(), 2);
    assert_clean(&store);
}

#[test]
fn fuse_a_rollback_that_nobody_watches_makes_no_calls() {
    let (store, mount) = start();
    shell_ok(
        &mount.path,
        "mkdir watched; for n in $(seq 200); do echo $n >file-$n; done",
    );
    let id = store.commit("demo", "first");
    let requests = || {
        let mounts = store.json(&["ls-mounts"]);
        mounts["mounts"][0]["request_count"].as_u64().unwrap()
    };
    let mut watcher = Watcher::new();
    watcher.add(&mount.join("watched"));
    shell_ok(
        &mount.path,
        "for n in $(seq 200); do echo x >>file-$n; done; rm file-7",
    );
    store.commit("demo", "second");
    let before = requests();
    roll_back(&store, &id);
    let count = requests() - before;
    // The flushes ask for some, and the kernel forgets inodes, perhaps one by one. Events would
    // take four or more for each file.
    assert!(
        count < 400,
        "{count} requests, though nobody watches what changed"
    );
    assert!(watcher.names().is_empty(), "{:#x?}", watcher.seen);
    assert_eq!(fs::read_to_string(mount.join("file-7")).unwrap(), "7\n");
}

#[test]
fn fuse_a_name_that_a_program_makes_again_at_a_rollback_stays() {
    let (store, mount) = start();
    fs::write(mount.join("kept"), "1").unwrap();
    let id = store.commit("demo", "first");
    let mut watcher = Watcher::new();
    watcher.add(&mount.path);
    for round in 0..8 {
        let names: Vec<PathBuf> = (0..40).map(|n| mount.join(format!("again-{n}"))).collect();
        for name in &names {
            fs::write(name, "old").unwrap();
        }
        store.commit("demo", "more");
        let stop = AtomicBool::new(false);
        let made = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut made = BTreeSet::new();
                while !stop.load(Ordering::Relaxed) {
                    for name in &names {
                        // Only where it is missing: what is written is a file of the program's own.
                        if let Ok(mut file) = File::create_new(name) {
                            std::io::Write::write_all(&mut file, b"new").unwrap();
                            made.insert(name.clone());
                        }
                    }
                }
                made
            });
            roll_back(&store, &id);
            wait_until("all are made again", EVENT_WAIT, || {
                names.iter().all(|name| name.exists())
            });
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert_eq!(made.len(), names.len(), "round {round}");
        for name in &made {
            assert_eq!(fs::read_to_string(name).unwrap(), "new", "round {round}");
        }
        store.commit("demo", "made again");
        let listed = fs::read_dir(&mount.path).unwrap().count();
        assert_eq!(listed, names.len() + 1, "round {round}");
        shell_ok(&mount.path, "rm again-*");
        store.commit("demo", "gone");
        watcher.read();
    }
}

/// The kernel has the program's file at a name whose removal is still to be announced.
#[test]
fn fuse_the_announcement_of_a_removal_takes_no_file_that_a_program_made_since() {
    let (store, mount) = start();
    fs::create_dir(mount.join("d")).unwrap();
    let id = store.commit("demo", "first");
    let name = |number: u32| mount.join(format!("d/file-{number:04}"));
    for number in 0..1500 {
        fs::write(name(number), "old").unwrap();
    }
    store.commit("demo", "second");
    let mut watcher = Watcher::new();
    watcher.add(&mount.join("d"));
    // The kernel must not have the names, or the program would open the old files.
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    let mut files = Vec::new();
    thread::scope(|scope| {
        let rollback = scope.spawn(|| roll_back(&store, &id));
        let end = Instant::now() + EVENT_WAIT;
        while !watcher.has(&name(0), libc::IN_DELETE) && Instant::now() < end {
            thread::yield_now();
        }
        for number in 1400..1500 {
            let mut file = File::create_new(name(number)).unwrap();
            std::io::Write::write_all(&mut file, b"new").unwrap();
            files.push(file);
        }
        rollback.join().unwrap();
    });
    watcher.read();
    let is_removal = |event: &&Event| event.1 == libc::IN_DELETE;
    let announced = watcher.seen.iter().filter(is_removal).count();
    assert!(announced > 1000, "only {announced} removals were announced");
    for (number, file) in (1400..1500).zip(&files) {
        let path = name(number);
        assert_eq!(file.metadata().unwrap().nlink(), 1, "{}", path.display());
        let is_name =
            |event: &&Event| event.0 == path && event.1 & (libc::IN_CREATE | libc::IN_DELETE) != 0;
        let last = watcher.seen.iter().rfind(is_name).map(|event| event.1);
        assert_eq!(last, Some(libc::IN_CREATE), "{}", path.display());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
    assert_eq!(fs::read_dir(mount.join("d")).unwrap().count(), files.len());
}

#[test]
fn fuse_g1_a_worker_that_is_killed_while_it_announces_carries_nothing_out() {
    let (store, mount) = start();
    shell_ok(
        &mount.path,
        "mkdir d; for n in $(seq 300); do echo $n >d/file-$n; done",
    );
    let id = store.commit("demo", "first");
    for round in 0..6_u64 {
        shell_ok(
            &mount.path,
            "for n in $(seq 300); do echo x$n >d/file-$n; done; touch d/extra",
        );
        store.commit("demo", "second");
        let mut watcher = Watcher::new();
        watcher.add(&mount.join("d"));
        thread::scope(|scope| {
            let rollback = scope.spawn(|| store.kura(&["rollback", "demo", &id, "--yes"]));
            // In the midst of the events.
            let end = Instant::now() + EVENT_WAIT;
            while !watcher.has(&mount.join("d/file-9"), libc::IN_DELETE) && Instant::now() < end {
                thread::sleep(Duration::from_micros(200 * round));
            }
            store.kill_worker();
            let _ = rollback.join().unwrap();
        });
        store.daemon();
        for n in 1..=300 {
            // The new worker tells the kernel what has changed.
            let path = mount.join(format!("d/file-{n}"));
            wait_until("the content of the version", EVENT_WAIT, || {
                fs::read_to_string(&path).is_ok_and(|text| text == format!("{n}\n"))
            });
        }
        wait_until("a removed file is gone", EVENT_WAIT, || {
            !mount.join("d/extra").exists()
        });
        assert_clean(&store);
    }
    assert_eq!(
        fs::metadata(mount.join("d")).unwrap().permissions().mode() & 0o777,
        0o755
    );
}
