//! What one session changes, the other sees at once.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fuse_mount::fuse::SessionOptions;

use crate::harness::{Two, names};

#[test]
fn names_attributes_and_listings_are_seen_at_once() {
    let two = Two::new();
    for round in 0..50 {
        for (one, other) in two.both_ways() {
            let name = format!("f{round}");
            // Remembered: no such name, an empty listing.
            assert!(!other.path(&name).exists());
            assert_eq!(names(&other.top), Vec::<String>::new());
            fs::write(one.path(&name), "x").unwrap();
            assert_eq!(names(&other.top), [name.as_str()]);
            assert_eq!(fs::read_to_string(other.path(&name)).unwrap(), "x");
            let times = [one, other].map(|mount| fs::metadata(&mount.top).unwrap().mtime_nsec());
            assert_eq!(times[0], times[1]);
            fs::set_permissions(one.path(&name), fs::Permissions::from_mode(0o640)).unwrap();
            let mode = fs::metadata(other.path(&name)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o640);
            fs::create_dir(one.path("d")).unwrap();
            assert_eq!(fs::metadata(&other.top).unwrap().nlink(), 3);
            fs::rename(one.path(&name), one.path("d/g")).unwrap();
            assert!(!other.path(&name).exists());
            assert_eq!(fs::read_to_string(other.path("d/g")).unwrap(), "x");
            fs::hard_link(one.path("d/g"), one.path("h")).unwrap();
            assert_eq!(fs::metadata(other.path("d/g")).unwrap().nlink(), 2);
            fs::remove_file(one.path("d/g")).unwrap();
            assert_eq!(fs::metadata(other.path("h")).unwrap().nlink(), 1);
            fs::write(other.path("d/k"), "k").unwrap();
            fs::rename(one.path("h"), one.path("d/k")).unwrap();
            assert_eq!(fs::read_to_string(other.path("d/k")).unwrap(), "x");
            fs::remove_dir_all(one.path("d")).unwrap();
            assert!(!other.path("d/k").exists());
            assert_eq!(names(&other.top), Vec::<String>::new());
        }
    }
}

#[test]
fn writes_truncations_and_maps_are_seen_at_once() {
    let two = Two::new();
    fs::write(two.a.path("f"), vec![0; 20_000]).unwrap();
    let open = |path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap()
    };
    let files = [open(two.a.path("f")), open(two.b.path("f"))];
    let map = |file: &File| {
        // SAFETY: a new mapping of an open file, used below within the file's length only.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                20_000,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().cast_const()
    };
    let maps = [map(&files[0]), map(&files[1])];
    let byte = |side: usize, at: usize| {
        // SAFETY: within the mapping, and the file is at least that long.
        unsafe { std::ptr::read_volatile(maps[side].add(at)) }
    };
    let mut buffer = [0; 3];
    for round in 0..300_usize {
        let (one, other) = (round % 2, (round + 1) % 2);
        let value = (round % 250) as u8 + 1;
        let at = round * 61 % 19_990;
        files[one].write_all_at(&[value; 3], at as u64).unwrap();
        files[other].read_exact_at(&mut buffer, at as u64).unwrap();
        assert_eq!(buffer, [value; 3], "round {round}");
        assert_eq!((byte(0, at), byte(1, at)), (value, value), "round {round}");
    }
    for round in 0..60_u64 {
        let (one, other) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let length = 20_000 + round * 997;
        files[one].set_len(length).unwrap();
        assert_eq!(files[other].metadata().unwrap().len(), length);
        assert_eq!(files[other].read_at(&mut buffer, length).unwrap(), 0);
        files[one].write_all_at(b"end", length).unwrap();
        assert_eq!(files[other].read_at(&mut buffer, length).unwrap(), 3);
        assert_eq!(&buffer, b"end");
        files[one].set_len(20_000).unwrap();
        assert_eq!(files[other].read_at(&mut buffer, 20_000).unwrap(), 0);
    }
    for map in maps {
        // SAFETY: the mapping made above, which nobody uses any more.
        unsafe { libc::munmap(map.cast_mut().cast(), 20_000) };
    }
}

#[test]
fn appends_of_both_sides_are_all_there() {
    const LINES: usize = 400;
    let two = Two::new();
    fs::write(two.a.path("log"), "").unwrap();
    let open = |path| {
        OpenOptions::new()
            .read(true)
            .append(true)
            .open(path)
            .unwrap()
    };
    // In turns: each sees the other's line.
    let mut files = [open(two.a.path("log")), open(two.b.path("log"))];
    let mut expected = String::new();
    for round in 0..100 {
        let (one, other) = (round % 2, (round + 1) % 2);
        let line = format!("line {round} of {one}\n");
        files[one].write_all(line.as_bytes()).unwrap();
        expected.push_str(&line);
        for side in [other, one] {
            let mut read = String::new();
            files[side].seek(SeekFrom::Start(0)).unwrap();
            files[side].read_to_string(&mut read).unwrap();
            assert_eq!(read, expected, "round {round}, side {side}");
        }
        let path = two.b.path("log");
        assert_eq!(fs::read_to_string(path).unwrap(), expected, "round {round}");
    }
    // At the same time: every line is there, whole.
    fs::write(two.a.path("log"), "").unwrap();
    std::thread::scope(|scope| {
        for (side, mut file) in files.into_iter().enumerate() {
            scope.spawn(move || {
                for number in 0..LINES {
                    let line = format!("{side} {number} {}\n", "x".repeat(number % 300));
                    file.write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(two.a.path("log")).unwrap();
    assert_eq!(text, fs::read_to_string(two.b.path("log")).unwrap());
    assert_eq!(text.lines().count(), 2 * LINES);
    for side in 0..2 {
        for number in 0..LINES {
            let line = format!("{side} {number} {}", "x".repeat(number % 300));
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }
}

#[test]
fn makers_of_names_in_one_directory_do_not_wait_for_each_other_for_ever() {
    const FILES: usize = 300;
    let two = Two::new();
    fs::create_dir(two.a.path("d")).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (mount, word) in [(&two.a, "a"), (&two.b, "b")] {
            for thread in 0..2 {
                scope.spawn(move || {
                    for number in 0..FILES {
                        let name = format!("d/{word}{thread}-{number}");
                        fs::write(mount.path(&name), &name).unwrap();
                        if number % 3 == 0 {
                            fs::rename(mount.path(&name), mount.path(&format!("{name}-moved")))
                                .unwrap();
                        }
                    }
                });
            }
        }
    });
    let took = start.elapsed();
    assert_eq!(names(&two.a.path("d")).len(), 4 * FILES);
    assert_eq!(names(&two.a.path("d")), names(&two.b.path("d")));
    assert!(took < Duration::from_secs(20), "{took:?}");
    eprintln!("{} changes of names took {took:?}", 4 * FILES * 2);
}

#[test]
fn a_stopped_program_of_one_session_does_not_stop_the_other() {
    let two = Two::new();
    fs::write(two.a.path("f"), "0").unwrap();
    // Somebody who holds up everything in `b` for a while.
    two.b.kernel.kernel_session().hold_names();
    let made = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fs::write(two.b.path("waits"), "").unwrap();
            made.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        for number in 0..20 {
            fs::write(two.a.path(&format!("n{number}")), "x").unwrap();
        }
        assert!(!made.load(Ordering::Acquire));
        let took = start.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        two.b.kernel.kernel_session().release_names();
    });
    two.b.kernel.wait_for_notifications(Duration::from_secs(5));
    assert_eq!(names(&two.a.top), names(&two.b.top));
}

#[test]
fn a_reader_beside_a_mount_with_writeback_sees_what_was_closed_or_synced() {
    let two = Two::with(SessionOptions::default());
    for round in 0..30 {
        let text = format!("content {round} {}", "x".repeat(round * 100));
        fs::write(two.a.path("f"), &text).unwrap();
        assert_eq!(fs::read_to_string(two.b.path("f")).unwrap(), text);
        let mut file = OpenOptions::new()
            .append(true)
            .open(two.a.path("f"))
            .unwrap();
        file.write_all(b"more").unwrap();
        file.sync_all().unwrap();
        assert_eq!(
            fs::read_to_string(two.b.path("f")).unwrap(),
            format!("{text}more")
        );
        fs::rename(two.a.path("f"), two.a.path("g")).unwrap();
        assert!(!two.b.path("f").exists());
        fs::rename(two.a.path("g"), two.a.path("f")).unwrap();
        assert!(two.b.path("f").exists());
    }
}
