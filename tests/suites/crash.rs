//! Killed daemons: what the mount acknowledged is there, and containers see a pause, not an error.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use e2e::{
    Container, TestStore, assert_same_tree, make_odd_tree, manifest, require_docker, shell_ok,
    wait_until,
};

/// Rounds of each kill test; each kills the worker several times.
const ROUNDS: usize = 4;

/// How long a new worker serves before it is killed. Shorter lives make the keeper wait longer
/// before it starts the next one, which is right for crash loops and slow for tests.
const KILL_INTERVAL: Duration = Duration::from_millis(700);

/// Most kills while one piece of work runs, so that it comes to its end.
const MAX_KILLS: u64 = 6;

/// Kills the worker again and again while `work` runs; gives what it returned and the kills.
fn while_killing<T: Send>(store: &TestStore, work: impl FnOnce() -> T + Send) -> (T, u64) {
    let done = AtomicBool::new(false);
    let kills = AtomicU64::new(0);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(150));
            while !done.load(Ordering::Relaxed) && kills.load(Ordering::Relaxed) < MAX_KILLS {
                store.kill_worker();
                kills.fetch_add(1, Ordering::Relaxed);
                store.daemon();
                thread::sleep(KILL_INTERVAL);
            }
        });
        let worker = scope.spawn(work);
        let result = worker.join();
        done.store(true, Ordering::Relaxed);
        result
    });
    let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // The keeper takes this for the end of a crash loop.
    thread::sleep(Duration::from_millis(5200));
    (result, kills.load(Ordering::Relaxed))
}

/// A tree of many small files as a tar file, and what it holds.
fn archive(store: &TestStore) -> (std::path::PathBuf, e2e::Manifest) {
    let tree = store.scratch_directory("tree");
    shell_ok(
        &tree,
        "for d in $(seq 60); do mkdir dir-$d; for f in $(seq 60); do seq $f $((f * 20)) >dir-$d/file-$f; done; ln -s file-1 dir-$d/link; ln dir-$d/file-2 dir-$d/hard; chmod 600 dir-$d/file-3; done; head -c 30000000 /dev/urandom >big",
    );
    let archive = store.scratch("tree.tar");
    shell_ok(&tree, &format!("tar -cf '{}' .", archive.display()));
    let unpacked = store.scratch_directory("reference");
    shell_ok(&unpacked, &format!("tar -xpf '{}'", archive.display()));
    (archive, manifest(&unpacked))
}

#[test]
fn docker_g1_untar_in_a_container_outlives_killed_workers() {
    require_docker("kura-test:tools");
    let store = TestStore::new();
    let (archive, expected) = archive(&store);
    store.init("demo", None);
    let mount = store.mount_with("demo", &["--allow-other"]);
    let container = Container::start(
        "kura-test:tools",
        &[
            "-v".to_owned(),
            format!("{}:/workspace", mount.path.display()),
            "-v".to_owned(),
            format!("{}:/tree.tar:ro", archive.display()),
        ],
    );
    let mut kills = 0;
    for round in 0..ROUNDS {
        let script = format!("mkdir /workspace/{round}; tar -xpf /tree.tar -C /workspace/{round}");
        let (output, round_kills) = while_killing(&store, || container.ok(&script));
        kills += round_kills;
        assert_eq!(output, "", "tar complains");
        assert_same_tree(&expected, &manifest(&mount.join(round.to_string())));
    }
    assert!(kills >= ROUNDS as u64, "only {kills} kills");
    store.commit("demo", "after all");
    drop(container);
    store.unmount(&mount);
    let mount = store.mount("demo");
    for round in 0..ROUNDS {
        assert_same_tree(&expected, &manifest(&mount.join(round.to_string())));
    }
}

#[test]
fn docker_g1_sqlite_in_a_container_outlives_killed_workers() {
    const ROWS: usize = 400;
    require_docker("kura-test:tools");
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount_with("demo", &["--allow-other"]);
    let container = Container::start(
        "kura-test:tools",
        &[
            "-v".to_owned(),
            format!("{}:/workspace", mount.path.display()),
        ],
    );
    for (round, journal_mode) in ["wal", "delete", "wal", "truncate"].into_iter().enumerate() {
        let script = format!(
            r#"cat >/tmp/load.py <<'END'
import sqlite3, time
c = sqlite3.connect('/workspace/{round}.db', timeout=60, isolation_level=None)
assert c.execute('pragma journal_mode={journal_mode}').fetchone()[0] == '{journal_mode}'
c.execute('create table t(n integer primary key, text)')
for n in range({ROWS}):
    c.execute('begin immediate'); c.execute('insert into t values(?, ?)', (n, str(n) * 200)); c.execute('commit')
    assert c.execute('select max(n) from t').fetchone()[0] == n
    time.sleep(0.005)
assert c.execute('pragma integrity_check').fetchone()[0] == 'ok'
print(c.execute('select count(*), sum(length(text)) from t').fetchone())
END
python3 /tmp/load.py"#
        );
        let (output, kills) = while_killing(&store, || container.ok(&script));
        let length: usize = (0..ROWS).map(|n| n.to_string().len() * 200).sum();
        assert_eq!(output.trim(), format!("({ROWS}, {length})"));
        assert!(kills > 0, "no kill in the round");
    }
    let ok = shell_ok(
        &mount.path,
        "for d in *.db; do sqlite3 $d 'pragma integrity_check; select count(*) from t'; done",
    );
    assert_eq!(ok, format!("ok\n{ROWS}\n").repeat(4));
}

#[test]
fn fuse_g1_appends_creates_and_reads_are_neither_lost_nor_doubled_by_killed_workers() {
    const OPERATIONS: usize = 6000;
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let ((), kills) = while_killing(&store, || {
        let mut log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(mount.join("log"))
            .unwrap();
        for number in 0..OPERATIONS {
            writeln!(log, "{number}").unwrap();
            let path = mount.join(format!("file-{number}"));
            // Exclusive: a create that the daemon carried out twice would fail.
            let mut file = fs::OpenOptions::new()
                .create_new(true)
                .write(true)
                .open(&path)
                .unwrap();
            write!(file, "content {number}").unwrap();
            drop(file);
            assert_eq!(
                fs::read_to_string(&path).unwrap(),
                format!("content {number}")
            );
            match number % 4 {
                1 => fs::remove_file(&path).unwrap(),
                2 => fs::rename(&path, mount.join(format!("moved-{number}"))).unwrap(),
                3 => fs::hard_link(&path, mount.join(format!("hard-{number}"))).unwrap(),
                _ => {}
            }
            if number % 50 == 0 {
                thread::sleep(Duration::from_millis(20));
            }
        }
    });
    assert!(kills > 1, "only {kills} kills");
    let check = |top: &std::path::Path| {
        let log = fs::read_to_string(top.join("log")).unwrap();
        let expected: String = (0..OPERATIONS)
            .map(|number| format!("{number}\n"))
            .collect();
        assert!(log == expected, "the log has other lines");
        for number in 0..OPERATIONS {
            let (is_there, name) = match number % 4 {
                1 => (false, format!("file-{number}")),
                2 => (true, format!("moved-{number}")),
                _ => (true, format!("file-{number}")),
            };
            let content = fs::read_to_string(top.join(&name)).ok();
            assert_eq!(
                content,
                is_there.then(|| format!("content {number}")),
                "{name}"
            );
        }
    };
    check(&mount.path);
    store.unmount(&mount);
    check(&store.mount("demo").path);
}

#[test]
fn fuse_verbs_wait_for_a_worker_that_is_started_again() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    fs::write(mount.join("file"), "content").unwrap();
    // The later deaths come early, so that the keeper waits before it starts the next worker.
    for _ in 0..6 {
        store.kill_worker();
        let log = store.ok(&["log", "demo", "--oneline"]);
        assert!(!log.stdout.is_empty(), "{log}");
    }
    store.kill_worker();
    let refused = store.kura(&["daemon", "status"]);
    assert!(
        refused.code == 0 || refused.stderr.contains("again"),
        "{refused}"
    );
    // Not "isn't running": the mount must be committed and ended.
    store.ok(&["daemon", "stop"]);
    assert!(!mount.join("file").exists());
    assert_eq!(store.ok(&["cat", "demo@main:file"]).stdout, "content");
}

#[test]
fn fuse_g1_everything_acknowledged_is_there_after_keeper_and_worker_are_killed() {
    for round in 0..ROUNDS {
        let store = TestStore::new();
        store.init("demo", None);
        let mount = store.mount("demo");
        make_odd_tree(&mount.path);
        let mut synced = fs::File::create(mount.join("synced")).unwrap();
        writeln!(synced, "synced {round}").unwrap();
        synced.sync_all().unwrap();
        drop(synced);
        if round % 2 == 1 {
            store.commit("demo", "in between");
        }
        shell_ok(
            &mount.path,
            "mkdir late; echo late >late/file; mv late/file late/moved; rm .hidden; sync -f .",
        );
        let expected = manifest(&mount.path);
        store.kill_daemon();
        // What the kernel has cached may still be read.
        assert!(
            fs::write(mount.join("after-death"), "x").is_err(),
            "a dead mount must say so"
        );

        // The same mount point: the dead mount is cleared, not covered.
        store.ok(&["mount", "demo", &mount.path.to_string_lossy()]);
        assert_same_tree(&expected, &manifest(&mount.path));
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let count = table
            .lines()
            .filter(|line| line.split(' ').nth(1) == mount.path.to_str())
            .count();
        assert_eq!(count, 1, "mounts are stacked");
        store.unmount(&mount);
        assert_same_tree(&expected, &manifest(&store.mount("demo").path));
    }
}

#[test]
fn fuse_g2_reported_commits_and_synced_data_survive_a_kill_of_everything() {
    let store = TestStore::new();
    store.init("demo", None);
    let mut reported = store.log_ids("demo");
    for round in 0..ROUNDS {
        let mount = store.mount("demo");
        for number in 0..5 {
            let name = format!("{round}-{number}");
            fs::write(mount.join(&name), &name).unwrap();
            reported.insert(0, store.commit("demo", &name));
        }
        store.kill_daemon();
        let ids = store.log_ids("demo");
        for id in &reported {
            assert!(ids.contains(id), "round {round}: commit {id} is lost");
        }
        let mount_again = store.mount("demo");
        for number in 0..5 {
            let name = format!("{round}-{number}");
            assert_eq!(fs::read_to_string(mount_again.join(&name)).unwrap(), name);
        }
        store.unmount(&mount_again);
    }
}

#[test]
fn fuse_a_stopped_daemon_has_committed_and_unmounted_everything() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    fs::write(mount.join("file"), "content").unwrap();
    let _ = store.stop_daemon().ok();
    wait_until("the mount is gone", Duration::from_secs(10), || {
        fs::read_dir(&mount.path).is_ok_and(|mut entries| entries.next().is_none())
    });
    assert_eq!(store.ok(&["cat", "demo@main:file"]).stdout, "content");
}

#[test]
fn fuse_g1_two_processes_share_a_file_through_killed_workers() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let (status, kills) = while_killing(&store, || {
        let mut children: Vec<_> = (0..3)
            .map(|writer| {
                Command::new("bash")
                    .args([
                        "-euc",
                        "for n in $(seq 800); do echo \"$0 $n\" >>shared; done",
                    ])
                    .arg(writer.to_string())
                    .current_dir(&mount.path)
                    .stdin(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        thread::sleep(Duration::from_secs(2));
        children
            .iter_mut()
            .map(|child| child.wait().unwrap().success())
            .collect::<Vec<_>>()
    });
    assert_eq!(status, [true, true, true]);
    assert!(kills > 0);
    let text = fs::read_to_string(mount.join("shared")).unwrap();
    for writer in 0..3 {
        let numbers: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{writer} ")))
            .collect();
        let expected: Vec<String> = (1..=800).map(|number: u32| number.to_string()).collect();
        assert_eq!(numbers, expected, "lines of writer {writer}");
    }
}
