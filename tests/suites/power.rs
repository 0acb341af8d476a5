//! Power cuts: what was synced, and every commit that was reported, is there afterwards [G-2].
//!
//! Writers report to the test what the mount has acknowledged; a cut must keep all that was
//! reported before it. Contents follow from their number, so that anything torn shows.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{CuttableDisk, DiskAfterCut, TestStore, run, shell_ok};

/// Power cuts under load.
const CUTS: u32 = 12;

/// Length of the load.
const LOAD: Duration = Duration::from_secs(9);

/// Files that are there before, to be written in place, one after the other, again and again.
const OLD_FILES: u64 = 600;

/// Most steps of one writer between the look at what was acknowledged and the cut.
const MEANWHILE: u64 = 200;

/// Block of the file that is written with `O_DSYNC`.
const BLOCK_BYTES: usize = 4096;

/// O_DSYNC of this kernel.
const O_DSYNC: i32 = 0o10000;

/// How many of each kind were acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Records at the end of `log`.
    records: AtomicU64,
    /// Blocks of `blocks`.
    blocks: AtomicU64,
    /// Files of `saved/`, each renamed to its name and its directory synced.
    saved: AtomicU64,
    /// Writes to the files of `old/`, in place.
    overwritten: AtomicU64,
    /// Rows of `wal.db` and `delete.db`.
    rows: AtomicU64,
    /// Commits, each with the number of the marker file in it.
    commits: Mutex<Vec<(u64, String)>>,
}

/// [`Acknowledged`] at one instant.
#[derive(Debug, Clone)]
struct Acknowledgements {
    records: u64,
    blocks: u64,
    saved: u64,
    overwritten: u64,
    rows: u64,
    commits: Vec<(u64, String)>,
}

impl Acknowledged {
    fn now(&self) -> Acknowledgements {
        let number = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Acknowledgements {
            records: number(&self.records),
            blocks: number(&self.blocks),
            saved: number(&self.saved),
            overwritten: number(&self.overwritten),
            rows: number(&self.rows),
            commits: self.commits.lock().unwrap().clone(),
        }
    }
}

/// Content that follows from what it is for, and its number.
fn content(purpose: &str, number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // Bytes that do not compress, each block different from those of every other number.
    let mut state = blake3::hash(format!("{purpose} {number}").as_bytes());
    for chunk in bytes.chunks_mut(4096) {
        state = blake3::hash(state.as_bytes());
        for part in chunk.chunks_mut(32) {
            part.copy_from_slice(&state.as_bytes()[..part.len()]);
        }
    }
    bytes
}

/// A record of the log: small and large ones, so that all ways into the journal are taken.
fn record(number: u64) -> Vec<u8> {
    let length = match number % 8 {
        0 => 150_000,
        1 | 2 => 20_000 + (number as usize * 7919) % 20_000,
        _ => 10 + (number as usize * 31) % 3000,
    };
    content("record", number, length)
}

fn saved_file(number: u64) -> Vec<u8> {
    content("saved", number, 100 + (number as usize * 977) % 30_000)
}

/// Content of a file of `old/` after it was written so many times.
fn old_file(file: u64, generation: u64) -> Vec<u8> {
    let length = 300 + (file as usize * 29) % 9000;
    content("old", file + generation * OLD_FILES, length)
}

fn old_name(file: u64) -> String {
    format!("old/{}/{file}", file % 30)
}

/// Repeats `step` with growing numbers until the end; each is acknowledged when it returns.
fn repeat(end: &AtomicBool, counter: &AtomicU64, mut step: impl FnMut(u64)) {
    for number in 0.. {
        if end.load(Ordering::Relaxed) {
            return;
        }
        step(number);
        counter.store(number + 1, Ordering::SeqCst);
    }
}

fn append_records(top: &Path, end: &AtomicBool, counter: &AtomicU64) {
    let path = top.join("log");
    let mut log = File::create(path).unwrap();
    repeat(end, counter, |number| {
        log.write_all(&record(number)).unwrap();
        if number % 2 == 0 {
            log.sync_all().unwrap();
        } else {
            log.sync_data().unwrap();
        }
    });
}

fn write_blocks(top: &Path, end: &AtomicBool, counter: &AtomicU64) {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(O_DSYNC)
        .open(top.join("blocks"))
        .unwrap();
    repeat(end, counter, |number| {
        let block = content("block", number, BLOCK_BYTES);
        let place = number * BLOCK_BYTES as u64;
        file.write_all_at(&block, place).unwrap();
    });
}

fn save_files(top: &Path, end: &AtomicBool, counter: &AtomicU64) {
    let directory = top.join("saved");
    fs::create_dir(&directory).unwrap();
    repeat(end, counter, |number| {
        let temporary = directory.join("new");
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&saved_file(number)).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temporary, directory.join(number.to_string())).unwrap();
        File::open(&directory).unwrap().sync_all().unwrap();
    });
}

fn overwrite_old_files(top: &Path, end: &AtomicBool, counter: &AtomicU64) {
    repeat(end, counter, |number| {
        let (file, generation) = (number % OLD_FILES, number / OLD_FILES + 1);
        let path = top.join(old_name(file));
        let opened = OpenOptions::new().write(true).open(path).unwrap();
        opened.write_all_at(&old_file(file, generation), 0).unwrap();
        opened.sync_data().unwrap();
    });
}

fn insert_rows(top: &Path, end: &AtomicBool, counter: &AtomicU64) {
    let program = r"import sqlite3
databases = []
# Without `extra` a transaction that ends by a deletion may be rolled back by a power cut.
for mode, synchronous in [('wal', 'full'), ('delete', 'extra')]:
    c = sqlite3.connect(mode + '.db', timeout=60, isolation_level=None)
    assert c.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
    c.execute('pragma synchronous=' + synchronous)
    c.execute('create table t(n integer primary key, text)')
    databases.append(c)
n = 0
while True:
    for c in databases:
        c.execute('begin immediate'); c.execute('insert into t values(?, ?)', (n, str(n) * 300)); c.execute('commit')
    n += 1
    print(n, flush=True)";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .current_dir(top)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        counter.store(line.unwrap().trim().parse().unwrap(), Ordering::SeqCst);
        if end.load(Ordering::Relaxed) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn make_commits(store: &TestStore, top: &Path, end: &AtomicBool, acknowledged: &Acknowledged) {
    repeat(end, &AtomicU64::new(0), |number| {
        // Not synced: the commit makes it durable.
        fs::write(
            top.join(format!("marker-{number}")),
            content("marker", number, 50_000),
        )
        .unwrap();
        let id = store.commit("demo", &format!("marker {number}"));
        acknowledged.commits.lock().unwrap().push((number, id));
        thread::sleep(Duration::from_millis(300));
    });
}

/// Fails unless `found` begins as the numbered pieces do, with at least `acknowledged` of them, and
/// goes on as they do.
#[track_caller]
fn assert_pieces(what: &str, found: &[u8], acknowledged: u64, piece: impl Fn(u64) -> Vec<u8>) {
    let mut rest = found;
    for number in 0.. {
        let expected = piece(number);
        let length = rest.len().min(expected.len());
        let is_acknowledged = number < acknowledged;
        assert!(
            rest[..length] == expected[..length],
            "{what}: piece {number} of {acknowledged} acknowledged ones has other bytes"
        );
        assert!(
            length == expected.len() || !is_acknowledged,
            "{what}: only {number} of {acknowledged} acknowledged pieces are there"
        );
        rest = &rest[length..];
        if rest.is_empty() && number + 1 >= acknowledged {
            return;
        }
    }
}

/// Opens what a cut left with a new daemon and compares it with what was acknowledged.
fn check_cut(disk: &DiskAfterCut, store: &Path, acknowledged: &Acknowledgements) {
    let disk = disk.power_on();
    let store = TestStore::existing(disk.path().join(store));
    let mount = store.mount("demo");
    let read = |name: &str| fs::read(mount.join(name)).unwrap_or_default();

    assert_pieces("log", &read("log"), acknowledged.records, record);
    assert_pieces("blocks", &read("blocks"), acknowledged.blocks, |number| {
        content("block", number, BLOCK_BYTES)
    });
    for number in 0.. {
        match fs::read(mount.join(format!("saved/{number}"))) {
            Ok(found) => assert!(found == saved_file(number), "saved/{number} is torn"),
            Err(_) if number >= acknowledged.saved => break,
            Err(error) => panic!("saved/{number} of {}: {error}", acknowledged.saved),
        }
    }
    let next = acknowledged.overwritten;
    for number in next + MEANWHILE..next + OLD_FILES {
        // Its next write had not begun.
        let (file, generation) = (number % OLD_FILES, number / OLD_FILES);
        let name = old_name(file);
        assert!(
            read(&name) == old_file(file, generation),
            "{name} is not as written {generation} times; {next} writes were acknowledged"
        );
    }
    for name in ["wal", "delete"] {
        if acknowledged.rows == 0 {
            break;
        }
        let output = shell_ok(
            &mount.path,
            &format!("sqlite3 {name}.db 'pragma integrity_check; select count(*), max(n) from t'"),
        );
        let (state, numbers) = output.trim().split_once('\n').unwrap();
        assert_eq!(state, "ok", "{name}.db");
        let (count, last) = numbers.split_once('|').unwrap();
        let (count, last): (u64, u64) = (count.parse().unwrap(), last.parse().unwrap());
        assert_eq!(count, last + 1, "{name}.db has gaps");
        assert!(
            count >= acknowledged.rows,
            "{name}.db: {count} of {} acknowledged rows",
            acknowledged.rows
        );
    }
    let ids = store.log_ids("demo");
    for (number, id) in &acknowledged.commits {
        assert!(ids.contains(id), "commit {id} of marker {number} is lost");
    }
    for (number, id) in acknowledged.commits.iter().rev().take(3) {
        let run = store.ok(&["cat", &format!("demo@{id}:marker-{number}")]);
        assert!(
            run.stdout_bytes == content("marker", *number, 50_000),
            "marker {number} in commit {id} is torn"
        );
    }
    store.ok(&["audit", "--verify"]);

    // It is usable, and what was replayed can be committed.
    fs::write(mount.join("after"), "content").unwrap();
    let id = store.commit("demo", "after the cut");
    store.unmount(&mount);
    if acknowledged.records > 0 {
        let log = store.ok(&["cat", &format!("demo@{id}:log")]).stdout_bytes;
        assert_pieces("committed log", &log, acknowledged.records, record);
    }
}

/// Path of the store on the disk, as it is also after a cut.
fn place_on(disk: &CuttableDisk, store: &TestStore) -> PathBuf {
    store.path().strip_prefix(disk.path()).unwrap().to_owned()
}

#[test]
fn fuse_g2_everything_acknowledged_survives_power_cuts_under_load() {
    let disk = CuttableDisk::new();
    let store = TestStore::below(disk.path());
    let project = store.scratch_directory("project");
    for number in 0..OLD_FILES {
        let path = project.join(old_name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, old_file(number, 0)).unwrap();
    }
    store.init("demo", Some(&project));
    let place = place_on(&disk, &store);
    let mount = store.mount("demo");
    let top = mount.path.as_path();

    let (end, acknowledged) = (AtomicBool::new(false), Acknowledged::default());
    let mut cuts = Vec::new();
    thread::scope(|scope| {
        let (end, acknowledged) = (&end, &acknowledged);
        scope.spawn(|| append_records(top, end, &acknowledged.records));
        scope.spawn(|| write_blocks(top, end, &acknowledged.blocks));
        scope.spawn(|| save_files(top, end, &acknowledged.saved));
        scope.spawn(|| overwrite_old_files(top, end, &acknowledged.overwritten));
        scope.spawn(|| insert_rows(top, end, &acknowledged.rows));
        scope.spawn(|| make_commits(&store, top, end, acknowledged));
        let begin = Instant::now();
        for number in 0..CUTS {
            // At random within its part of the time.
            let noise = blake3::hash(format!("{begin:?} {number}").as_bytes()).as_bytes()[0];
            let part = LOAD / CUTS;
            let instant = part * number + part * u32::from(noise) / 256;
            thread::sleep(instant.saturating_sub(begin.elapsed()));
            let before = acknowledged.now();
            cuts.push((disk.cut(), before));
        }
        end.store(true, Ordering::Relaxed);
    });
    let total = acknowledged.now();
    assert!(
        total.records > 100
            && total.blocks > 100
            && total.saved > 50
            && total.overwritten > 100
            && total.rows > 50
            && total.commits.len() > 3,
        "too little was done: {total:?}"
    );
    thread::scope(|scope| {
        for half in cuts.chunks(cuts.len().div_ceil(2)) {
            let place = &place;
            scope.spawn(move || {
                for (cut, before) in half {
                    check_cut(cut, place, before);
                }
            });
        }
    });
}

#[test]
fn fuse_g2_what_a_new_worker_syncs_survives_a_power_cut() {
    let disk = CuttableDisk::new();
    let store = TestStore::below(disk.path());
    store.init("demo", None);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let file = File::create(mount.join("file")).unwrap();
    file.write_all_at(b"written before", 0).unwrap();
    // Hands it to the daemon, and asks nothing of the disk.
    drop(File::open(mount.join("file")).unwrap());
    drop(file);
    let worker = store.daemon().worker;
    store.kill_worker();
    e2e::wait_until("another worker", Duration::from_secs(10), || {
        store.daemon().worker != worker
    });
    // Nothing new: what the killed worker acknowledged is what this makes durable.
    File::open(mount.join("file")).unwrap().sync_all().unwrap();
    let cut = disk.cut();

    let disk_after = cut.power_on();
    let store_after = TestStore::existing(disk_after.path().join(place_on(&disk, &store)));
    let mount_after = store_after.mount("demo");
    assert_eq!(
        fs::read_to_string(mount_after.join("file")).unwrap(),
        "written before"
    );
    let run = run(store_after.command().args(["audit", "--verify"]));
    let _ = run.ok();
}
