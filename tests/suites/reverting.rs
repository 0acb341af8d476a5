//! Going back and handing over: rollback, undo, handoff, import over what is there.

use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use e2e::{
    SetOnDrop, TestStore, assert_same_tree, make_odd_tree, manifest, run, shell_ok,
    without_root_times,
};

#[test]
fn fuse_g4_rollback_of_a_live_mount_keeps_open_files_and_can_be_undone() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    let good = store.commit("demo", "good");
    let original = manifest(&mount.path);

    shell_ok(
        &mount.path,
        "rm -rf src/deep src/file-2; echo changed >src/file-3; echo new >src/new; chmod 600 src/file-1",
    );
    let mut open = fs::File::open(mount.join("src/file-3")).unwrap();
    let shell_directory = mount.join("docs");
    // Not committed by hand: a rollback must keep it all the same.
    let broken = manifest(&mount.path);
    store.ok(&["rollback", "demo", &good, "--yes"]);

    assert_same_tree(&original, &manifest(&mount.path));
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "changed\n", "an open file keeps what it had");
    assert!(shell_directory.join("text").exists());

    store.ok(&["undo", "demo", "--yes"]);
    assert_same_tree(
        &without_root_times(broken.clone()),
        &without_root_times(manifest(&mount.path)),
    );
    store.ok(&["undo", "demo", "--yes"]);
    assert_same_tree(&original, &manifest(&mount.path));
    for id in store.log_ids("demo") {
        store.ok(&["show", &format!("demo@{id}")]);
    }
    assert!(
        store.log_ids("demo").contains(&good),
        "a rollback adds to history"
    );
}

#[test]
fn fuse_g4_a_rollback_under_makers_of_names_is_one_commit_whose_undo_brings_all_back() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    fs::write(mount.join("first"), "x").unwrap();
    let good = store.commit("demo", "good");
    let done = AtomicBool::new(false);
    let rolled_back: Vec<Vec<String>> = thread::scope(|scope| {
        // Also when an assertion fails: the scope waits for the writers.
        let _done = SetOnDrop(&done);
        for writer in 0..2 {
            let (mount, done) = (&mount, &done);
            scope.spawn(move || {
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    let name = mount.join(format!("{writer}-{number}"));
                    // The directory is never taken away, so neither fails.
                    fs::write(&name, "content").unwrap();
                    let _ = fs::rename(&name, mount.join(format!("{writer}-{number}-moved")));
                }
            });
        }
        let mut commits = Vec::new();
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(300));
            let before = store.log_ids("demo");
            store.ok(&["rollback", "demo", &good, "--yes"]);
            let log = store.json(&["log", "demo"]);
            let log = log["commits"].as_array().unwrap().clone();
            let new: Vec<_> = log
                .iter()
                .take_while(|commit| commit["id"] != before[0].as_str())
                .collect();
            let of_kind = |kind: &str| -> Vec<String> {
                let of_kind = new.iter().filter(|commit| commit["kind"] == kind);
                of_kind
                    .map(|commit| commit["id"].as_str().unwrap().to_owned())
                    .collect()
            };
            assert_eq!(of_kind("rescue").len(), 1, "{new:?}");
            commits.push(of_kind("rollback"));
        }
        commits
    });
    assert!(
        rolled_back.iter().all(|commits| commits.len() == 1),
        "{rolled_back:?}"
    );
    // Now without writers: what the last one took away comes back, all of it.
    store.ok(&["rollback", "demo", &good, "--yes"]);
    let operations = store.json(&["operations", "demo"]);
    let newest = operations["operations"][0]["id"].to_string();
    let before = store.log_ids("demo")[1].clone();
    store.ok(&["undo", "demo", &newest, "--yes"]);
    assert_eq!(store.changes(&["demo", &before, "main"]), []);
}

#[test]
fn fuse_rollback_of_one_path_leaves_the_rest() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    let good = store.commit("demo", "good");
    let deep = manifest(&mount.join("src/deep"));
    shell_ok(&mount.path, "rm -rf src/deep; echo kept >docs/kept");
    store.ok(&["rollback", "demo", &good, "--path", "src/deep", "--yes"]);
    assert_same_tree(&deep, &manifest(&mount.join("src/deep")));
    assert_eq!(
        fs::read_to_string(mount.join("docs/kept")).unwrap(),
        "kept\n"
    );
}

#[test]
fn a_dry_run_changes_nothing_and_a_destructive_verb_asks_first() {
    let (store, project) = TestStore::with_small_project();
    let first = store.head("demo");
    let other = store.scratch_directory("other");
    fs::write(other.join("only"), "this").unwrap();
    let _ = run(store
        .command()
        .args(["import", "demo"])
        .arg(&other)
        .arg("--replace")
        .arg("--yes"))
    .ok();
    let before = store.log_ids("demo");

    let plan = store.ok(&["rollback", "demo", &first, "--dry-run"]);
    assert!(plan.stdout.contains("src/file-1"), "no plan: {plan}");
    assert_eq!(store.log_ids("demo"), before);

    let refused = store.kura(&["rollback", "demo", &first]);
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("--yes"), "no hint: {refused}");
    assert_eq!(store.log_ids("demo"), before);

    store.ok(&["rollback", "demo", &first, "--yes"]);
    assert_eq!(store.log_ids("demo").len(), before.len() + 1);
    let exported = store.scratch("exported");
    let _ = run(store.command().args(["export", "demo@main"]).arg(&exported)).ok();
    assert_same_tree(
        &without_root_times(manifest(&project)),
        &without_root_times(manifest(&exported)),
    );
}

#[test]
fn fuse_handoff_fences_the_giver_and_the_taker_goes_on_from_the_same_bytes() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    make_odd_tree(&mount.path);
    let given = manifest(&mount.path);
    let handed = store.ok(&["handoff", "demo", "--to", "second-agent", "-m", "go on"]);
    let id = handed.last_line().to_owned();
    assert_eq!(id.len(), 64, "{handed}");
    let refused = fs::write(mount.join("too-late"), "x").map_err(|error| error.raw_os_error());
    assert_eq!(
        refused,
        Err(Some(nix::libc::EROFS)),
        "the giver can't write any more"
    );

    let taken = store.mount_with(&format!("demo@{id}"), &["--branch", "second"]);
    assert_same_tree(&given, &manifest(&taken.path));
    fs::write(taken.join("goes-on"), "x").unwrap();
    store.unmount(&taken);
    assert_eq!(store.ok(&["cat", "demo@second:goes-on"]).stdout, "x");
    assert!(!mount.join("goes-on").exists());
}

#[test]
fn fuse_after_a_handoff_only_the_taker_changes_the_branch() {
    let (store, project) = TestStore::with_small_project();
    let mount = store.mount("demo");
    fs::write(mount.join("work"), "of the giver").unwrap();
    let first = store.log_ids("demo").pop().unwrap();
    store.ok(&["handoff", "demo", "--to", "taker"]);
    let handed = store.log_ids("demo");

    let project = project.to_str().unwrap();
    let verbs: &[&[&str]] = &[
        &["rollback", "demo", &first, "--yes"],
        &["rollback", "demo", &first, "--dry-run"],
        &["restore", "demo", "docs", "--from", &first, "--yes"],
        &["import", "demo", project, "--to", "again", "--yes"],
        &["commit", "demo", "-m", "mine"],
        &["handoff", "demo", "--to", "somebody"],
    ];
    for verb in verbs {
        let refused = store.kura(verb);
        assert_eq!(refused.code, 5, "{refused}");
        assert!(refused.stderr.contains("taker"), "{refused}");
        assert!(refused.stderr.contains("hint: "), "{refused}");
    }
    assert_eq!(store.log_ids("demo"), handed);

    // The taker may, and goes on live once the giver's mount is gone.
    store.ok(&["rollback", "demo", &first, "--yes", "--as", "taker"]);
    assert!(!mount.join("work").exists());
    store.ok(&["undo", "demo", "--yes", "--as", "taker"]);
    store.unmount(&mount);
    let taken = store.mount_with("demo", &["--as", "taker"]);
    fs::write(taken.join("goes-on"), "x").unwrap();
    store.unmount(&taken);
    assert_eq!(store.ok(&["cat", "demo@main:goes-on"]).stdout, "x");

    // A fork is a workspace of its own.
    store.ok(&["fork", "demo", "fork"]);
    store.ok(&["commit", "fork", "-m", "anybody's"]);
    store.ok(&["rollback", "fork", &first, "--yes"]);

    // Undoing the handoff gives the branch back to all.
    let operations = store.json(&["operations", "demo"]);
    let handoff = operations["operations"].as_array().unwrap();
    let handoff = handoff
        .iter()
        .find(|operation| operation["kind"] == "set-setting")
        .unwrap();
    store.ok(&["undo", "demo", &handoff["id"].to_string(), "--yes"]);
    store.ok(&["rollback", "demo", &first, "--yes"]);

    // Live again, whoever has a branch of that name mounted in another workspace; and with a
    // number that was never used.
    let mount = store.mount("demo");
    let _other = store.mount_with("fork", &["--as", "stranger"]);
    let again = store.json(&["handoff", "demo", "--to", "taker"]);
    assert_eq!(again["fence"], 2);
    assert!(fs::write(mount.join("fenced"), "x").is_err());
    store.ok(&["undo", "demo", "--yes"]);
    fs::write(mount.join("live"), "x").unwrap();
}

#[test]
fn an_import_keeps_the_hard_links_of_both_sides() {
    let store = TestStore::new();
    let first = store.scratch_directory("first");
    shell_ok(
        &first,
        "echo one >a; ln a b; ln a c; mkdir d; echo two >d/x; ln d/x d/y",
    );
    let second = store.scratch_directory("second");
    shell_ok(
        &second,
        "echo other >a; ln a b; mkdir d; echo three >d/z; ln d/z z",
    );
    store.init("demo", Some(&first));
    let import = |arguments: &[&str]| {
        let _ = run(store
            .command()
            .args(["import", "demo"])
            .arg(&second)
            .args(arguments)
            .arg("--yes"))
        .ok();
    };
    import(&["--to", "below"]);
    import(&[]);
    let expected = store.scratch_directory("expected");
    shell_ok(
        &expected,
        "cp -a ../first/. .; mkdir below; cp -a ../second/. below/",
    );
    // As tar does it: an entry that is replaced leaves its other names alone.
    shell_ok(
        &expected,
        "rm a b; cp -a ../second/a a; ln a b; cp -a ../second/z z; ln z d/z",
    );
    shell_ok(
        &expected,
        "touch -r ../second/d d; touch -r ../second below",
    );
    let exported = store.scratch("exported");
    let _ = run(store.command().args(["export", "demo@main"]).arg(&exported)).ok();
    assert_same_tree(
        &without_root_times(manifest(&expected)),
        &without_root_times(manifest(&exported)),
    );
}
