//! Bringing changes together: merge, conflicts in a mount, resolving, taking changes out.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use e2e::{
    SetOnDrop, TestMount, TestStore, assert_same_tree, manifest, run, shell_ok, wait_until,
    without_root_times,
};

/// Exit code of a verb that left conflicts.
const CONFLICTS: i32 = 8;

fn conflicts(store: &TestStore, name: &str) -> Vec<(String, String)> {
    let list = store.json(&["conflicts", name]);
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    list["conflicts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|conflict| (text(&conflict["path"]), text(&conflict["reason"])))
        .collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).into()
}

#[test]
fn fuse_g8_two_forks_edited_at_once_come_together_while_a_program_writes() {
    let store = TestStore::new();
    store.init("demo", None);
    let main = store.mount("demo");
    shell_ok(
        &main.path,
        "mkdir src; seq 1 20 >src/list; echo same >src/same; ln src/same src/link; echo old >gone; \
         printf '\\0one' >binary",
    );
    store.commit("demo", "base");
    store.ok(&["fork", "demo", "agent"]);
    let fork = store.mount("agent");
    shell_ok(
        &fork.path,
        "sed -i 's/^3$/three/' src/list; echo new >src/new; rm gone; chmod 700 src/same; \
         mv src/link src/moved; setfattr -n user.a -v b src/new",
    );
    let done = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                fs::write(main.join(format!("log-{number}")), format!("{number}\n")).unwrap();
            }
            number
        });
        shell_ok(&main.path, "sed -i 's/^17$/seventeen/' src/list");
        let merged = store.ok(&["merge", "demo", "agent", "-m", "the agent's work"]);
        assert_eq!(merged.last_line().len(), 64, "{merged}");
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(written > 0);
    for number in 1..=written {
        let text = fs::read_to_string(main.join(format!("log-{number}"))).unwrap();
        assert_eq!(text, format!("{number}\n"), "a program's file is whole");
    }
    let list = fs::read_to_string(main.join("src/list")).unwrap();
    assert!(list.contains("three\n") && list.contains("seventeen\n"));
    assert_eq!(list.lines().count(), 20);
    assert!(!main.join("gone").exists());
    assert_eq!(fs::read_to_string(main.join("src/new")).unwrap(), "new\n");
    shell_ok(
        &main.path,
        "test \"$(getfattr --only-values -n user.a src/new)\" = b; test src/same -ef src/moved; \
         test ! -e src/link; test \"$(stat -c %a src/moved)\" = 700",
    );
    assert_eq!(conflicts(&store, "demo"), []);
    let log = store.json(&["log", "demo"]);
    let merge = log["commits"]
        .as_array()
        .unwrap()
        .iter()
        .find(|commit| commit["kind"] == "merge")
        .unwrap();
    assert_eq!(merge["parents"].as_array().unwrap().len(), 2);
    // The commits that came along are commits of this workspace.
    let theirs = merge["parents"][1].as_str().unwrap();
    store.ok(&["show", &format!("demo@{theirs}"), "--no-patch"]);
    // Once more brings nothing; the other way round it is the same tree.
    let head = store.head("demo");
    store.ok(&["merge", "demo", "agent"]);
    assert_eq!(store.head("demo"), head);
    store.ok(&["merge", "agent", "demo"]);
    assert_same_tree(
        &without_root_times(manifest(&main.path)),
        &without_root_times(manifest(&fork.path)),
    );
    let audit = store.json(&["audit", "--verify"]);
    assert_eq!(audit["is_intact"], true);
}

#[test]
fn fuse_g8_conflicts_show_in_the_mount_and_are_resolved_and_undone() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        "mkdir d; for f in text other touched d/in; do printf '1\\n2\\n3\\n' >$f; done; \
         printf '\\0base' >binary",
    );
    store.commit("demo", "base");
    store.ok(&["branch", "create", "demo", "agent"]);
    let agent = store.mount("demo@agent");
    shell_ok(
        &agent.path,
        "sed -i 's/2/theirs/' text other; printf '\\0theirs' >binary; rm touched; rm -r d",
    );
    shell_ok(
        &mount.path,
        "sed -i 's/2/ours/' text other; printf '\\0ours' >binary; echo more >>touched; echo new >d/new",
    );
    let before = manifest(&mount.path);
    let planned = store.kura(&["merge", "demo", "agent", "--dry-run"]);
    assert_eq!(planned.code, CONFLICTS, "{planned}");
    assert!(
        planned.stdout.contains("conflict (content) text"),
        "{planned}"
    );
    assert_same_tree(&before, &manifest(&mount.path));

    let merged = store.kura(&["merge", "demo", "agent"]);
    assert_eq!(merged.code, CONFLICTS, "{merged}");
    assert!(merged.stderr.contains("kura undo demo"), "{merged}");
    let open = pairs([
        ("binary", "content"),
        ("d/new", "directory-deleted"),
        ("other", "content"),
        ("text", "content"),
        ("touched", "deleted"),
    ]);
    assert_eq!(conflicts(&store, "demo"), open);
    let text = fs::read_to_string(mount.join("text")).unwrap();
    assert!(
        text.starts_with("1\n<<<<<<< ours: main\nours\n||||||| base: "),
        "{text}"
    );
    assert!(
        text.contains("\n=======\ntheirs\n>>>>>>> theirs: agent "),
        "{text}"
    );
    assert_eq!(fs::read(mount.join("binary")).unwrap(), b"\0ours");
    let list = store.json(&["conflicts", "demo"]);
    let beside = list["conflicts"][0]["beside"].as_str().unwrap().to_owned();
    assert!(beside.starts_with("binary.theirs-"), "{beside}");
    assert_eq!(fs::read(mount.join(&beside)).unwrap(), b"\0theirs");
    assert!(mount.join("d/new").exists() && !mount.join("d/in").exists());
    assert!(mount.join("touched").exists());
    let status = store.ok(&["status", "demo"]);
    assert!(
        status.stdout.contains("conflicts   5 on main: binary"),
        "{status}"
    );
    assert!(
        store
            .ok(&["log", "demo", "--oneline"])
            .stdout
            .contains("(conflicts)")
    );

    // Later commits carry them on.
    shell_ok(&mount.path, "echo x >unrelated");
    store.commit("demo", "work goes on");
    assert_eq!(conflicts(&store, "demo"), open);
    let with_markers = store.kura(&["resolve", "demo", "text"]);
    assert_eq!(with_markers.code, 3, "{with_markers}");
    assert!(with_markers.stderr.contains("markers"), "{with_markers}");
    let nothing = store.kura(&["resolve", "demo", "unrelated"]);
    assert_eq!(nothing.code, 4, "{nothing}");

    shell_ok(&mount.path, "printf '1\\nboth\\n3\\n' >text");
    store.ok(&["resolve", "demo", "text"]);
    store.ok(&["resolve", "demo", "other", "binary", "--theirs"]);
    assert_eq!(
        fs::read_to_string(mount.join("other")).unwrap(),
        "1\ntheirs\n3\n"
    );
    assert_eq!(fs::read(mount.join("binary")).unwrap(), b"\0theirs");
    assert!(!mount.join(&beside).exists());
    assert_eq!(
        conflicts(&store, "demo"),
        pairs([("d/new", "directory-deleted"), ("touched", "deleted")])
    );
    // An undo brings the conflicts back with the files.
    store.ok(&["undo", "demo", "--yes"]);
    assert_eq!(fs::read(mount.join("binary")).unwrap(), b"\0ours");
    assert_eq!(fs::read(mount.join(&beside)).unwrap(), b"\0theirs");
    assert_eq!(conflicts(&store, "demo").len(), 4);
    store.ok(&["resolve", "demo", ".", "--ours"]);
    assert_eq!(conflicts(&store, "demo"), []);
    assert_eq!(
        fs::read_to_string(mount.join("text")).unwrap(),
        "1\nboth\n3\n"
    );
    assert!(!store.ok(&["status", "demo"]).stdout.contains("conflicts"));
}

#[test]
fn fuse_a_merge_is_undone_and_redone() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    store.ok(&["fork", "demo", "other"]);
    let other = store.mount("other");
    shell_ok(&other.path, "rm -r src/deep; echo other >docs/text");
    shell_ok(&mount.path, "echo mine >>docs/text");
    store.commit("demo", "mine");
    let before = manifest(&mount.path);
    assert_eq!(store.kura(&["merge", "demo", "other"]).code, CONFLICTS);
    let after = manifest(&mount.path);
    store.ok(&["undo", "demo", "--yes"]);
    assert_same_tree(
        &without_root_times(before),
        &without_root_times(manifest(&mount.path)),
    );
    assert_eq!(conflicts(&store, "demo"), []);
    let operations = store.json(&["operations", "demo"]);
    let undo = operations["operations"][0]["id"].to_string();
    store.ok(&["undo", "demo", &undo, "--yes"]);
    assert_same_tree(
        &without_root_times(after),
        &without_root_times(manifest(&mount.path)),
    );
    assert_eq!(conflicts(&store, "demo").len(), 1);
}

#[test]
fn histories_without_a_common_commit_are_not_merged() {
    let store = TestStore::new();
    store.init("demo", None);
    store.init("other", None);
    let refused = store.kura(&["merge", "demo", "other"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("nothing in common"), "{refused}");
    let unknown = store.kura(&["merge", "demo", "nobody"]);
    assert_eq!(unknown.code, 4, "{unknown}");
}

#[test]
fn fuse_a_purged_secret_is_nowhere_and_other_content_stays() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let secret = "the-secret-that-nobody-may-ever-read-0123456789";
    fs::write(mount.join(".env"), secret).unwrap();
    let large: Vec<u8> = (0..400_000_u32)
        .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(mount.join("large"), &large).unwrap();
    shell_ok(
        &mount.path,
        "mkdir d; cp large d/large; cp .env d/secret; echo kept >app",
    );
    let with_secret = store.commit("demo", "with the secret");
    store.ok(&["fork", "demo", "other"]);
    let there = store.kura(&["purge", "demo", ".env", "--yes"]);
    assert_eq!(there.code, 3, "{there}");
    assert!(there.stderr.contains("still there"), "{there}");
    shell_ok(&mount.path, "rm -r .env d/secret large");
    store.commit("demo", "without");
    let other = store.mount("other");
    shell_ok(&other.path, "rm -r .env d/secret large");
    store.commit("other", "without");

    let planned = store.ok(&["purge", "demo", ".env", "d/secret", "large", "--dry-run"]);
    assert!(planned.stdout.contains("1 contents stay"), "{planned}");
    let unasked = store.kura(&["purge", "demo", ".env"]);
    assert_eq!(unasked.code, 2, "{unasked}");
    store.ok(&["purge", "demo", ".env", "d/secret", "large", "--yes"]);
    let found = run(std::process::Command::new("grep")
        .args(["-rlaF", "--", secret])
        .arg(store.path()));
    assert_eq!(found.code, 1, "{found}");
    // Another path has this content.
    assert_eq!(fs::read(mount.join("d/large")).unwrap(), large);
    let read = store.kura(&["cat", &format!("demo@{with_secret}:.env")]);
    assert_eq!(read.code, 4, "{read}");
    assert!(read.stderr.contains("purged"), "{read}");
    store.ok(&["show", &format!("demo@{with_secret}"), "--no-patch"]);
    let shown = store.ok(&["show", &format!("demo@{with_secret}")]);
    assert!(shown.stdout.contains(".env"), "{shown}");
    // It does not come back with an old state.
    store.ok(&["rollback", "demo", &with_secret, "--yes"]);
    assert!(!mount.join(".env").exists() && mount.join("large").exists());
    assert_eq!(fs::read_to_string(mount.join("app")).unwrap(), "kept\n");
    let audit = store.ok(&["audit", "demo"]);
    assert!(audit.stdout.contains("purge"), "{audit}");
    assert_eq!(store.json(&["audit", "--verify"])["is_intact"], true);
}

/// Agent A rewrites and deletes over three commits while B edits other files and other lines, each
/// in a mount of its own; gives that of B.
fn two_agents(store: &TestStore) -> TestMount {
    store.commit_by_hand("demo");
    let a = store.mount_with("demo", &["--as", "a"]);
    let b = store.mount_with("demo", &["--as", "b"]);
    let by = |mount: &TestMount, run: &str, script: &str| {
        shell_ok(&mount.path, script);
        store.ok(&["commit", "demo", "-m", run, "--run", run]);
    };
    by(
        &b,
        "r0",
        "mkdir src; seq 1 20 >src/list; echo 1 >src/a; echo 1 >src/b; echo 1 >src/c",
    );
    by(&a, "r1", "sed -i 's/^3$/bad/' src/list; rm src/a");
    by(&b, "r2", "sed -i 's/^17$/good/' src/list; echo 2 >src/b");
    by(&a, "r1", "echo bad >src/c; echo bad >src/junk");
    by(&b, "r2", "echo 3 >>src/b; echo kept >src/new");
    // In one commit with the other's work.
    shell_ok(&b.path, "echo too >src/kept-too");
    by(&a, "r3", "mv src/junk src/more-junk");
    b
}

#[test]
fn fuse_g4_the_changes_of_one_principal_are_taken_out_and_those_of_others_stay() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = two_agents(&store);
    shell_ok(&mount.path, "echo not committed >src/live");
    let before = manifest(&mount.path);

    let planned = store.ok(&["rollback", "demo", "--by", "a", "--dry-run"]);
    assert!(planned.stdout.contains("A src/a\n"), "{planned}");
    assert_same_tree(&before, &manifest(&mount.path));
    store.ok(&["rollback", "demo", "--by", "a", "--yes"]);
    let list = fs::read_to_string(mount.join("src/list")).unwrap();
    assert!(
        list.contains("\n3\n") && list.contains("\ngood\n"),
        "{list}"
    );
    shell_ok(
        &mount.path,
        "test \"$(cat src/a src/b src/c src/new)\" = \"$(printf '1\\n2\\n3\\n1\\nkept')\"; \
         test ! -e src/junk; test ! -e src/more-junk; test -e src/live; test -e src/kept-too",
    );
    store.ok(&["undo", "demo", "--yes"]);
    assert_same_tree(
        &without_root_times(before),
        &without_root_times(manifest(&mount.path)),
    );
}

#[test]
fn fuse_g4_one_run_is_taken_out_and_what_stands_on_it_is_a_conflict() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = two_agents(&store);
    // Only of one path; r3 moved the file away that r1 made.
    store.ok(&[
        "rollback", "demo", "--run", "r1", "--path", "src/c", "--yes",
    ]);
    assert_eq!(fs::read_to_string(mount.join("src/c")).unwrap(), "1\n");
    assert!(
        fs::read_to_string(mount.join("src/list"))
            .unwrap()
            .contains("bad")
    );
    store.ok(&["undo", "demo", "--yes"]);

    shell_ok(&mount.path, "echo b >>src/c");
    store.commit("demo", "b");
    let taken = store.kura(&["rollback", "demo", "--run", "r1", "--yes"]);
    assert_eq!(taken.code, CONFLICTS, "{taken}");
    assert_eq!(conflicts(&store, "demo"), pairs([("src/c", "content")]));
    let text = fs::read_to_string(mount.join("src/c")).unwrap();
    assert!(
        text.contains("\nbad\nb\n") && text.contains(">>>>>>> theirs: without "),
        "{text}"
    );
    assert_eq!(fs::read_to_string(mount.join("src/a")).unwrap(), "1\n");
    let none = store.kura(&["rollback", "demo", "--run", "nobody", "--yes"]);
    assert_eq!(none.code, 4, "{none}");
}

#[test]
fn fuse_g4_a_run_is_taken_out_without_what_another_principal_did_meanwhile() {
    let store = TestStore::new();
    store.init("demo", None);
    for principal in ["alice", "bob"] {
        store.ok(&["principal", "add", principal]);
        store.ok(&["grant", "demo", principal, "/", "write"]);
    }
    store.commit_by_hand("demo");
    let a = store.mount_with("demo", &["--as", "alice"]);
    let b = store.mount_with("demo", &["--as", "bob"]);
    shell_ok(&a.path, "echo 1 >mine; echo 1 >his");
    store.commit("demo", "before");
    // Both are in the commit that the run's end makes.
    let script = format!("echo 2 >mine; echo 2 >'{}'", a.join("ready").display());
    let mut in_run = store.command();
    in_run
        .args([
            "run", "--as", "alice", "--run-id", "bad", "--", "bash", "-c",
        ])
        .arg(format!(
            "{script}; for i in $(seq 600); do [ -e go ] && break; sleep 0.05; done"
        ))
        .current_dir(&a.path);
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&mut in_run).ok());
        wait_until("the run is ready", Duration::from_secs(20), || {
            a.join("ready").exists()
        });
        shell_ok(&b.path, "echo 2 >his; echo >go");
        let _ = running.join().unwrap();
    });
    store.ok(&["rollback", "demo", "--run", "bad", "--yes"]);
    assert_eq!(fs::read_to_string(b.join("mine")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(b.join("his")).unwrap(), "2\n");
    assert!(!b.join("ready").exists() && b.join("go").exists());
}

#[test]
fn fuse_a_purge_leaves_what_another_name_of_the_file_has() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    shell_ok(&mount.path, "echo shared >a; ln a b; echo alone >c; ln c d");
    store.commit("demo", "with all");
    shell_ok(&mount.path, "rm a c d");
    store.commit("demo", "without");
    store.ok(&["purge", "demo", "a", "c", "d", "--yes"]);
    assert_eq!(fs::read_to_string(mount.join("b")).unwrap(), "shared\n");
    let read = |path: &str| store.kura(&["cat", &format!("demo@HEAD~1:{path}")]);
    assert_eq!(read("b").ok().stdout, "shared\n");
    assert_eq!(read("c").code, 4);
    // Everything else can be written out.
    let target = store.scratch("out");
    let out = target.to_string_lossy();
    let written = store.ok(&["export", "demo@HEAD~1", &out, "--json"]);
    assert!(written.stdout.contains("'c' is left out"), "{written}");
    let names = fs::read_dir(&target).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn fuse_a_conflict_below_a_directory_that_is_gone_can_be_resolved() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    shell_ok(&mount.path, "mkdir -p a/b; echo base >a/b/text");
    store.commit("demo", "base");
    store.ok(&["fork", "demo", "other"]);
    let other = store.mount("other");
    for (mount, word) in [(&mount, "ours"), (&other, "theirs")] {
        shell_ok(&mount.path, &format!("echo {word} >a/b/text"));
    }
    store.commit("other", "theirs");
    assert_eq!(store.kura(&["merge", "demo", "other"]).code, CONFLICTS);
    shell_ok(&mount.path, "rm -r a");
    store.ok(&["resolve", "demo", "a/b/text", "--theirs"]);
    let text = fs::read_to_string(mount.join("a/b/text")).unwrap();
    assert_eq!(text, "theirs\n");
    assert_eq!(conflicts(&store, "demo"), []);
}
