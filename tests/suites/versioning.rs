//! History: what commits hold, when they are made, and how they come back.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{
    Manifest, TestStore, assert_same_tree, make_odd_tree, make_small_project, manifest, run,
    shell_ok, wait_until,
};

/// Longer than the quiet time of the commit policy and than the longest interval under load.
const COMMIT_POLICY_WAIT: Duration = Duration::from_secs(8);

/// Paths that differ in any commit after `base`, over the whole history.
fn paths_touched_since(store: &TestStore, name: &str, base: &str) -> Vec<String> {
    let ids = store.log_ids(name);
    let newer: Vec<&String> = ids.iter().take_while(|id| *id != base).collect();
    let mut paths = Vec::new();
    for id in newer {
        let run = store.ok(&["show", &format!("{name}@{id}"), "--name-status"]);
        paths.extend(
            run.stdout
                .lines()
                .filter(|line| line.contains('\t'))
                .flat_map(|line| line.split('\t').skip(1).map(str::to_owned)),
        );
    }
    paths.sort();
    paths.dedup();
    paths
}

#[test]
fn fuse_g5_an_idle_or_reading_session_commits_nothing() {
    let (store, _) = TestStore::with_small_project();
    let before = store.log_ids("demo");
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        "ls -lR . >/dev/null; find . -type f -exec cat {} + >/dev/null; grep -r one . >/dev/null; stat src/* >/dev/null",
    );
    thread::sleep(COMMIT_POLICY_WAIT);
    assert_eq!(store.log_ids("demo"), before, "reading made a commit");
    store.unmount(&mount);
    assert_eq!(store.log_ids("demo"), before, "unmounting made a commit");
}

#[test]
fn fuse_writing_is_committed_without_asking() {
    let store = TestStore::new();
    store.init("demo", None);
    let before = store.log_ids("demo");
    let mount = store.mount("demo");
    fs::write(mount.join("new"), "content").unwrap();
    wait_until("an automatic commit", COMMIT_POLICY_WAIT, || {
        store.log_ids("demo").len() > before.len()
    });
    assert_eq!(store.ok(&["cat", "demo@main:new"]).stdout, "content");
    let after = store.log_ids("demo");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(store.log_ids("demo"), after, "nothing changed since");
}

#[test]
fn fuse_g7_every_attribute_comes_back_from_import_through_mount_export_and_tar() {
    let store = TestStore::new();
    let source = store.scratch_directory("source");
    make_odd_tree(&source);
    let expected = manifest(&source);
    store.init("demo", Some(&source));

    let directory = store.scratch("exported");
    let _ = run(store
        .command()
        .args(["export", "demo@main"])
        .arg(&directory))
    .ok();
    assert_same_tree(&expected, &manifest(&directory));
    let sparse = fs::metadata(directory.join("sparse")).unwrap();
    assert!(
        sparse.blocks() * 512 < sparse.len() / 2,
        "the exported file has no holes: {} blocks",
        sparse.blocks()
    );

    let mount = store.mount_with("demo", &["--read-only"]);
    assert_same_tree(&expected, &manifest(&mount.path));
    store.unmount(&mount);

    let archive = store.scratch("exported.tar");
    let _ = run(store
        .command()
        .args(["export", "demo@main", "--tar"])
        .arg(&archive))
    .ok();
    let unpacked = store.scratch_directory("unpacked");
    shell_ok(
        &unpacked,
        &format!(
            "tar --xattrs --xattrs-include='*' --acls --numeric-owner -xpf '{}'",
            archive.display()
        ),
    );
    // Other programs know no sockets (they see a FIFO) and other records for ACLs.
    let for_others = |mut tree: Manifest| {
        tree.retain(|_, entry| entry.kind != "socket");
        for entry in tree.values_mut() {
            entry
                .xattrs
                .retain(|name, _| !name.starts_with(b"system.posix_acl"));
        }
        tree
    };
    let mut by_tar = manifest(&unpacked);
    assert_eq!(
        by_tar.remove(Path::new("socket")).map(|entry| entry.kind),
        Some("fifo")
    );
    assert_same_tree(&for_others(expected.clone()), &by_tar);

    store.init("from-tar", Some(&archive));
    let again = store.scratch("exported-again");
    let _ = run(store
        .command()
        .args(["export", "from-tar@main"])
        .arg(&again))
    .ok();
    assert_same_tree(&expected, &manifest(&again));
}

#[test]
fn fuse_g7_what_is_made_in_a_mount_comes_back_by_restore_and_rollback() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let top = mount.join("tree");
    fs::create_dir(&top).unwrap();
    make_odd_tree(&top);
    let expected = manifest(&top);
    let id = store.commit("demo", "odd tree");
    assert_same_tree(&expected, &manifest(&top));

    shell_ok(&mount.path, "rm -rf tree");
    store.commit("demo", "all gone");
    store.ok(&["restore", "demo", "tree", "--from", &id, "--yes"]);
    assert_same_tree(&expected, &manifest(&top));

    shell_ok(
        &mount.path,
        "chmod -R a+rwX tree; rm -rf tree/plain; echo more >>tree/owned; mv tree/zero-length tree/zero; rm -f tree/socket tree/pipe; chown -R 5:5 tree/group-directory",
    );
    store.ok(&["rollback", "demo", &id, "--yes"]);
    assert_same_tree(&expected, &manifest(&top));
    store.unmount(&mount);
    let mount = store.mount("demo");
    assert_same_tree(&expected, &manifest(&mount.join("tree")));
}

#[test]
fn g3_a_tree_id_covers_every_byte_and_attribute() {
    let store = TestStore::new();
    let source = store.scratch_directory("source");
    make_small_project(&source);
    let tree_of = |name: &str| {
        store.init(name, Some(&source));
        let value = store.json(&["show", &format!("{name}@main")]);
        find_text(&value, "tree").unwrap_or_else(|| panic!("no tree in {value}"))
    };
    let first = tree_of("first");
    assert_eq!(tree_of("same"), first, "equal trees have equal ids");
    let mut seen = vec![first];
    for (index, change) in [
        "chmod 751 src/file-1",
        "chown 1:0 src/file-2",
        "touch -d '2001-02-03 04:05:06.000000007' src/file-3",
        "setfattr -n user.a -v b src/file-4",
        "printf X | dd of=src/file-5 conv=notrunc status=none",
        "mkdir empty",
        "ln src/file-1 src/hard",
        "ln -sfn ../docs docs/link",
    ]
    .iter()
    .enumerate()
    {
        shell_ok(&source, change);
        let tree = tree_of(&format!("changed-{index}"));
        assert!(!seen.contains(&tree), "`{change}` does not change the id");
        seen.push(tree);
    }
}

fn find_text(value: &serde_json::Value, key: &str) -> Option<String> {
    match value {
        serde_json::Value::Object(map) => map
            .get(key)
            .and_then(|found| found.as_str().map(str::to_owned))
            .or_else(|| map.values().find_map(|inner| find_text(inner, key))),
        serde_json::Value::Array(list) => list.iter().find_map(|inner| find_text(inner, key)),
        _ => None,
    }
}

#[test]
fn fuse_g6_a_commit_is_a_point_in_time_while_writers_go_on() {
    const WRITERS: usize = 3;
    const COMMITS: usize = 20;
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let stop = AtomicBool::new(false);
    let mut ids = Vec::new();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (first, second) = (
                mount.join(format!("{writer}-first")),
                mount.join(format!("{writer}-second")),
            );
            let stop = &stop;
            scope.spawn(move || {
                let mut first = fs::File::create(first).unwrap();
                let mut second = fs::File::create(second).unwrap();
                let mut number = 0u64;
                // Always the first file before the second: no instant has them the other way round.
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    for file in [&mut first, &mut second] {
                        file.seek(SeekFrom::Start(0)).unwrap();
                        write!(file, "{number:020}").unwrap();
                    }
                }
            });
        }
        let renamer = mount.join("walker");
        let stop_renamer = &stop;
        scope.spawn(move || {
            fs::create_dir_all(renamer.join("a")).unwrap();
            fs::create_dir_all(renamer.join("b")).unwrap();
            fs::write(renamer.join("a/token"), "token").unwrap();
            let mut is_in_a = true;
            while !stop_renamer.load(Ordering::Relaxed) {
                let (from, to) = if is_in_a { ("a", "b") } else { ("b", "a") };
                fs::rename(
                    renamer.join(from).join("token"),
                    renamer.join(to).join("token"),
                )
                .unwrap();
                is_in_a = !is_in_a;
            }
        });
        let (steps, stop_steps) = (mount.join("steps"), &stop);
        scope.spawn(move || {
            fs::create_dir(&steps).unwrap();
            let mut content = fs::File::create(steps.join("content")).unwrap();
            fs::write(steps.join("step-0"), "").unwrap();
            let mut number = 0u64;
            // First into a file that stays open, so into the kernel's cache, then a name.
            while !stop_steps.load(Ordering::Relaxed) {
                let from = steps.join(format!("step-{number}"));
                number += 1;
                content.seek(SeekFrom::Start(0)).unwrap();
                write!(content, "{number:020}").unwrap();
                fs::rename(from, steps.join(format!("step-{number}"))).unwrap();
            }
        });
        thread::sleep(Duration::from_millis(300));
        for number in 0..COMMITS {
            ids.push(store.commit("demo", &format!("cut {number}")));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut values = Vec::new();
    for id in &ids {
        for writer in 0..WRITERS {
            let read = |which: &str| -> u64 {
                let run = store.ok(&["cat", &format!("demo@{id}:{writer}-{which}")]);
                run.stdout
                    .trim()
                    .parse()
                    .unwrap_or_else(|_| panic!("torn content {:?} in {id}", run.stdout))
            };
            let (first, second) = (read("first"), read("second"));
            assert!(
                first == second || first == second + 1,
                "commit {id}: writer {writer} had written {first} and {second}"
            );
            values.push(first);
        }
        let content = store.ok(&["cat", &format!("demo@{id}:steps/content")]);
        let content: u64 = content.stdout.trim().parse().expect("a number");
        let names = store.ok(&["ls", &format!("demo@{id}:steps")]).stdout;
        assert!(
            [content, content.wrapping_sub(1)]
                .iter()
                .any(|step| names.contains(&format!("step-{step}"))),
            "commit {id}: content is of step {content}, names are {names:?}"
        );
        let listing = store.ok(&["ls", &format!("demo@{id}:walker"), "--recursive"]);
        assert_eq!(
            listing.stdout.matches("token").count(),
            1,
            "the moving file is there exactly once in {id}: {}",
            listing.stdout
        );
    }
    values.sort_unstable();
    values.dedup();
    assert!(
        values.len() > COMMITS,
        "the writers stood still: {values:?}"
    );
}

#[test]
fn fuse_a_message_is_not_lost_to_an_automatic_commit() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    fs::write(mount.join("file"), "content").unwrap();
    store.unmount(&mount);
    let named = store.commit("demo", "what I did");
    let log = store.ok(&["log", "demo", "--oneline"]).stdout;
    assert!(log.contains("what I did"), "{log}");
    assert_eq!(store.commit("demo", "and again"), named);

    // The name is no step of its own: undo takes back what the commit holds.
    let mount = store.mount("demo");
    store.ok(&["undo", "demo", "--yes"]);
    assert!(!mount.join("file").exists());
}

#[test]
fn fuse_looking_at_uncommitted_work_does_not_put_its_commit_off() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let before = store.log_ids("demo");
    fs::write(mount.join("new"), "content").unwrap();
    for _ in 0..2 {
        store.ok(&["status", "demo"]);
        store.ok(&["rollback", "demo", "HEAD", "--dry-run"]);
    }
    wait_until("an automatic commit", COMMIT_POLICY_WAIT, || {
        store.log_ids("demo").len() > before.len()
    });
}

#[test]
fn fuse_g5_files_that_come_and_go_make_no_commit() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    fs::create_dir(mount.join("directory")).unwrap();
    let before = store.commit("demo", "begin");
    for place in ["", "directory"] {
        fs::write(mount.join(place).join("index.lock"), "x").unwrap();
        fs::remove_file(mount.join(place).join("index.lock")).unwrap();
    }
    thread::sleep(COMMIT_POLICY_WAIT);
    assert_eq!(store.head("demo"), before);
    // Asked for, the times of directories are in a commit all the same.
    shell_ok(&mount.path, "touch -d 2001-02-03 directory");
    thread::sleep(COMMIT_POLICY_WAIT);
    let exported = store.scratch("exported");
    let _ = run(store.command().args(["export", "demo"]).arg(&exported)).ok();
    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(
        time(&exported.join("directory")),
        time(&mount.join("directory"))
    );
    // And they outlive the mount.
    let expected = time(&mount.join("directory"));
    store.unmount(&mount);
    let mount = store.mount("demo");
    assert_eq!(time(&mount.join("directory")), expected);
}

#[test]
fn fuse_editors_and_stream_editors_show_as_the_change_that_was_meant() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    let base = store.commit("demo", "base");
    shell_ok(&mount.path, "sed -i s/100/hundred/ src/file-1");
    let after_sed = store.commit("demo", "sed");
    shell_ok(
        &mount.path,
        "printf ':%%s/text/words/\\n:wq\\n' | vim -u NONE -es docs/text || true",
    );
    assert_eq!(
        fs::read_to_string(mount.join("docs/text")).unwrap(),
        "words\n"
    );
    let after_vim = store.commit("demo", "vim");
    assert_eq!(
        store.changes(&["demo", &base, &after_sed]),
        [('M', "src/file-1".to_owned())]
    );
    assert_eq!(
        store.changes(&["demo", &after_sed, &after_vim]),
        [('M', "docs/text".to_owned())]
    );
    assert_eq!(
        paths_touched_since(&store, "demo", &base),
        ["docs/text", "src/file-1"],
        "no temporary name in any commit"
    );
}

#[test]
fn fuse_git_shows_no_temporary_names() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        "git init -q -b main .; for n in $(seq 40); do echo $n >file-$n; done; git add -A; git commit -qm one",
    );
    let base = store.commit("demo", "repository");
    shell_ok(
        &mount.path,
        "for n in $(seq 40); do echo more >>file-$n; git commit -qam $n; done; git gc -q --prune=now; git fsck --strict",
    );
    store.commit("demo", "collected");
    let touched = paths_touched_since(&store, "demo", &base);
    assert!(
        touched.iter().any(|path| path.ends_with(".pack")),
        "{touched:?}"
    );
    let temporary: Vec<&String> = touched
        .iter()
        .filter(|path| path.ends_with(".lock") || path.contains("tmp_") || path.contains(".tmp-"))
        .collect();
    assert!(temporary.is_empty(), "temporary names: {temporary:?}");
}

#[test]
fn fuse_a_change_of_one_byte_in_a_big_file_stores_little() {
    const BIG_BYTES: usize = 48 << 20;
    const MAX_GROWTH_BYTES: u64 = 4 << 20;
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let mut content = vec![0u8; BIG_BYTES];
    fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut content)
        .unwrap();
    fs::write(mount.join("big"), &content).unwrap();
    let base = store.commit("demo", "big");
    let before = stored_bytes(&store, &base);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(mount.join("big"))
        .unwrap();
    file.seek(SeekFrom::Start(20_000_000)).unwrap();
    file.write_all(&[!content[20_000_000]]).unwrap();
    drop(file);
    let changed = store.commit("demo", "one byte");
    content[20_000_000] = !content[20_000_000];
    let out = run(store
        .command()
        .args(["cat", &format!("demo@{changed}:big")]))
    .ok();
    assert!(
        out.stdout_bytes == content,
        "the committed content is wrong"
    );
    let growth = stored_bytes(&store, &changed).saturating_sub(before);
    assert!(
        growth < MAX_GROWTH_BYTES,
        "the store grew by {growth} bytes"
    );
}

/// Bytes of the database with its log, once the commit is in it.
fn stored_bytes(store: &TestStore, commit: &str) -> u64 {
    store.ok(&["show", &format!("demo@{commit}")]);
    ["kura.db", "kura.db-wal"]
        .iter()
        .filter_map(|name| fs::metadata(store.path().join(name)).ok())
        .map(|metadata| metadata.len())
        .sum()
}

#[test]
fn fuse_a_long_commit_does_not_hold_up_the_mount() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        "head -c 200000000 /dev/urandom >big; for n in $(seq 2000); do echo $n >small-$n; done",
    );
    let mut commit: std::process::Child = store
        .command()
        .args(["commit", "demo", "-m", "long"])
        .spawn()
        .unwrap();
    let mut slowest = Duration::ZERO;
    let mut count = 0;
    while commit.try_wait().unwrap().is_none() {
        let start = Instant::now();
        let path = mount.join(format!("during-{count}"));
        fs::write(&path, "x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        slowest = slowest.max(start.elapsed());
        count += 1;
        thread::sleep(Duration::from_millis(5));
    }
    assert!(commit.wait().unwrap().success());
    // Generous: writing 200 MB back to a slow disk may hold one write for a while.
    assert!(
        slowest < Duration::from_secs(5),
        "a write waited {slowest:?} ({count} writes)"
    );
}

#[test]
fn g10_every_operation_leaves_an_audit_entry_and_the_chain_holds() {
    let (store, _) = TestStore::with_small_project();
    let id = store.head("demo");
    store.ok(&["tag", "create", &format!("demo@{id}"), "first"]);
    store.ok(&["fork", "demo", "copy"]);
    let text = run(store.command().args(["audit", "demo", "--json"]))
        .ok()
        .stdout;
    for action in ["create-workspace", "create-tag", "commit"] {
        assert!(text.contains(action), "no {action} in {text}");
    }
    store.ok(&["audit", "--verify"]);
    let _ = store.stop_daemon().ok();
    let database = store.path().join("kura.db");
    let statement = |text: &str| run(Command::new("sqlite3").arg(&database).arg(text));
    let change = "UPDATE audit SET principal = 'somebody-else' WHERE rowid = 1; SELECT changes();";
    assert_ne!(
        statement(change).code,
        0,
        "the database lets entries be changed"
    );
    // Somebody who goes around that is noticed.
    let triggers = statement(
        "SELECT 'DROP TRIGGER ' || name || ';' FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'",
    )
    .ok();
    let changed = statement(&format!("{} {change}", triggers.stdout));
    assert_eq!(changed.stdout.trim(), "1", "{changed}");
    let verified = store.kura(&["audit", "--verify"]);
    assert_eq!(
        verified.code, 7,
        "a changed entry must be noticed: {verified}"
    );
}

#[test]
fn fuse_a_very_deep_tree_is_committed_compared_rolled_back_and_exported() {
    const DEPTH: usize = 3000;
    let store = TestStore::new();
    store.init("demo", None);
    // Only what is asked of the daemon commits: on the threads that answer.
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let empty = store.log_ids("demo").remove(0);
    let make = format!(
        "python3 -c 'import os
for _ in range({DEPTH}): os.mkdir(\"d\"); os.chdir(\"d\")
open(\"bottom\", \"w\").write(\"reached\")'"
    );
    let read = format!(
        "python3 -c 'import os
for _ in range({DEPTH}): os.chdir(\"d\")
print(open(\"bottom\").read(), os.listdir(\".\"))'"
    );
    let reached = "reached ['bottom']\n";
    shell_ok(&mount.path, &make);
    let id = store.commit("demo", "deep");
    assert_eq!(shell_ok(&mount.path, &read), reached);
    let bottom = format!("{}bottom", "d/".repeat(DEPTH));
    let changes = store.changes(&["demo", &empty, &id]);
    assert!(
        changes.contains(&('A', bottom.clone())),
        "{} changes",
        changes.len()
    );
    store.ok(&["rollback", "demo", &empty, "--yes"]);
    assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 0);
    store.ok(&["rollback", "demo", &id, "--yes"]);
    assert_eq!(shell_ok(&mount.path, &read), reached);
    let target = store.scratch("exported");
    store.ok(&["export", &format!("demo@{id}"), &target.to_string_lossy()]);
    assert_eq!(shell_ok(&target, &read), reached);
    // Deeper than the test's own clean-up can go.
    shell_ok(&target, "rm -rf d");
    shell_ok(&mount.path, "rm -rf d");
    store.commit("demo", "gone");
    store.unmount(&mount);
}

#[test]
fn fuse_two_mounts_of_a_branch_are_one_to_the_kernel_until_the_last_ends() {
    let store = TestStore::new();
    store.init("demo", None);
    let first = store.mount("demo");
    let second = store.mount("demo");
    let read_only = store.mount_with("demo", &["--read-only"]);
    fs::write(first.join("file"), "one").unwrap();
    assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "one");
    fs::write(second.join("file"), "longer than one").unwrap();
    for mount in [&first, &second, &read_only] {
        assert_eq!(
            fs::read_to_string(mount.join("file")).unwrap(),
            "longer than one"
        );
    }
    let refused = fs::write(read_only.join("file"), "no").map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(nix::libc::EROFS)));

    // A new worker goes on with all of them.
    store.kill_worker();
    fs::write(first.join("after"), "the kill").unwrap();
    assert_eq!(
        fs::read_to_string(second.join("after")).unwrap(),
        "the kill"
    );
    let mounts = store.json(&["ls-mounts"]);
    assert_eq!(mounts["mounts"].as_array().unwrap().len(), 3);

    // The first may go first; what is in the kernel's cache is committed through another.
    store.unmount(&first);
    let mut open = fs::File::create(second.join("open")).unwrap();
    open.write_all(b"in the cache").unwrap();
    store.commit("demo", "through the second");
    assert_eq!(store.ok(&["cat", "demo@main:open"]).stdout, "in the cache");
    drop(open);

    // One that others end is noticed.
    shell_ok(
        Path::new("/"),
        &format!("umount '{}'", second.path.display()),
    );
    wait_until("the list without it", Duration::from_secs(5), || {
        store.json(&["ls-mounts"])["mounts"]
            .as_array()
            .unwrap()
            .len()
            == 1
    });
    assert!(read_only.join("open").exists());
    store.unmount(&read_only);
    assert_eq!(
        store
            .ok(&["ls-mounts", "--json"])
            .stdout
            .matches("mountpoint")
            .count(),
        0
    );
}
