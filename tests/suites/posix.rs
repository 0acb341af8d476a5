//! POSIX suites from the crate registry on a mount, compared test by test with the same on the
//! real disk. `tests/support/prepare.sh suites` installs them.
//!
//! What differs must be listed in tests/posix/<suite>.txt with a reason, and what is listed must
//! still differ.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use e2e::{Run, TestStore, binary, repository_root, run};

/// An installed suite.
fn suite(name: &str) -> PathBuf {
    let target = binary("kura");
    let path = std::env::var_os("KURA_TEST_STATE")
        .map_or_else(
            || {
                target
                    .ancestors()
                    .nth(2)
                    .expect("target/debug/kura")
                    .join("e2e")
            },
            PathBuf::from,
        )
        .join("suites/bin")
        .join(name);
    assert!(
        path.is_file(),
        "{} is not there; run tests/support/prepare.sh suites",
        path.display()
    );
    path
}

fn configuration(name: &str) -> PathBuf {
    repository_root().join("tests/posix").join(name)
}

/// Name of a listed test → what it does on a mount.
fn listed(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(configuration(file)).expect("the list of a suite");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.splitn(3, "  ").collect();
            let [name, state @ ("fail" | "skip"), _reason] = words[..] else {
                panic!("a line of {file} is not `name  fail|skip  reason`: {line}");
            };
            (name.to_owned(), state.to_owned())
        })
        .collect()
}

/// Runs pjdfstest; gives what each test did, and the whole output for messages.
fn pjdfstest(directory: &Path) -> (BTreeMap<String, String>, Run) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1777)).expect("it is ours");
    let run = run(Command::new(suite("pjdfstest"))
        .arg("-c")
        .arg(configuration("pjdfstest.toml"))
        .arg("-p")
        .arg(directory)
        // Another file system, for what may not cross one.
        .args(["-s", "/dev/shm"]));
    let results = run.stdout.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, state) = (words.next()?, words.next()?);
        let state = match state {
            "ok" | "success" => "pass",
            "FAILED" => "fail",
            "skipped" => "skip",
            _ => return None,
        };
        (words.next().is_none() && name.contains("::")).then(|| (name.to_owned(), state.to_owned()))
    });
    (results.collect(), run)
}

fn count(results: &BTreeMap<String, String>, state: &str) -> usize {
    results.values().filter(|found| *found == state).count()
}

#[test]
fn fuse_g11_pjdfstest_does_the_same_as_on_the_real_disk() {
    let store = TestStore::new();
    store.init("posix", None);
    let mount = store.mount_with("posix", &["--allow-other"]);
    let (on_disk, disk_run) = pjdfstest(&store.scratch_directory("disk"));
    let (on_mount, mount_run) = pjdfstest(&mount.path);
    assert_eq!(count(&on_disk, "fail"), 0, "on the real disk: {disk_run}");
    assert!(count(&on_disk, "pass") > 380, "{disk_run}");
    assert_eq!(on_disk.len(), on_mount.len(), "{mount_run}");
    let differing: BTreeMap<String, String> = on_mount
        .into_iter()
        .filter(|(name, state)| on_disk.get(name) != Some(state))
        .collect();
    assert_eq!(
        differing,
        listed("pjdfstest.txt"),
        "what differs and what tests/posix/pjdfstest.txt lists: {}",
        mount_run.stdout
    );
}

/// Starts fsx on new files, one after the other; fails the test at the first difference.
fn fsx(directory: &Path, artifacts: &Path, seeds: std::ops::Range<u32>, operations: u32) {
    for seed in seeds {
        let _ = run(Command::new(suite("fsx"))
            .args([
                "-q",
                "-q",
                "-N",
                &operations.to_string(),
                "-S",
                &seed.to_string(),
                "-f",
            ])
            .arg(configuration("fsx.toml"))
            .arg("-P")
            .arg(artifacts)
            .arg(directory.join(format!("file-{seed}"))))
        .ok();
    }
}

#[test]
fn fuse_g11_fsx_finds_nothing_through_commits_and_killed_workers() {
    const OPERATIONS: u32 = 4000;
    const KILLS: usize = 3;
    let store = TestStore::new();
    store.init("posix", None);
    let mount = store.mount("posix");
    let (disk, artifacts) = (
        store.scratch_directory("disk"),
        store.scratch_directory("artifacts"),
    );
    // The same on the real disk: else its failures would be taken for ours.
    fsx(&disk, &artifacts, 1..2, OPERATIONS);
    let kills = thread::scope(|scope| {
        let writers = [1..4, 4..7].map(|seeds| {
            let (mount, artifacts) = (&mount, &artifacts);
            scope.spawn(move || fsx(&mount.path, artifacts, seeds, OPERATIONS))
        });
        let mut kills = 0;
        while !writers.iter().all(|writer| writer.is_finished()) {
            thread::sleep(Duration::from_millis(400));
            // The worker may be gone just now.
            let _ = store.kura(&["commit", "posix", "-m", "between"]);
            thread::sleep(Duration::from_millis(200));
            if kills < KILLS {
                store.kill_worker();
                let _ = store.daemon();
                kills += 1;
            }
        }
        kills
    });
    assert!(kills > 0, "nothing was killed");
    assert!(store.log_ids("posix").len() > 2, "nothing was committed");
}
