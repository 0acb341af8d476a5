//! Several principals at work in one workspace at the same time, each with its own grants.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use e2e::{Container, TestMount, TestStore, wait_until};
use nix::errno::Errno;
use serde_json::Value;

fn code<T: std::fmt::Debug>(result: Result<T, std::io::Error>) -> Errno {
    let error = result.expect_err("it must be refused");
    Errno::from_raw(error.raw_os_error().expect("an error of the system"))
}

fn names(path: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .expect("a readable directory")
        .map(|entry| {
            entry
                .expect("a readable directory")
                .file_name()
                .into_string()
                .expect("a readable directory")
        })
        .collect();
    names.sort();
    names
}

/// A workspace with a few files, its owner's mount, and two principals.
fn store_with_two() -> (TestStore, TestMount) {
    let store = TestStore::new();
    store.init("demo", None);
    let own = store.mount_with("demo", &["--allow-other"]);
    for directory in ["backend", "frontend", "secrets", "shared"] {
        fs::create_dir(own.join(directory)).expect("a readable directory");
        fs::write(own.join(directory).join("file"), format!("{directory}\n"))
            .expect("a readable directory");
    }
    for (name, directory) in [("anna", "backend"), ("bert", "frontend")] {
        store.ok(&["principal", "add", name, "--kind", "agent"]);
        store.ok(&["grant", "demo", name, &format!("/{directory}"), "write"]);
        store.ok(&["grant", "demo", name, "/shared", "write"]);
    }
    (store, own)
}

fn mount_as(store: &TestStore, name: &str) -> TestMount {
    store.mount_with("demo", &["--allow-other", "--as", name])
}

#[test]
fn docker_g9_two_agents_see_different_trees_of_one_workspace_at_the_same_time() {
    let (store, own) = store_with_two();
    let (anna, bert) = (mount_as(&store, "anna"), mount_as(&store, "bert"));
    let start = |mount: &TestMount| {
        Container::start(
            "kura-test:small",
            &[
                "-v".to_owned(),
                format!("{}:/workspace", mount.path.display()),
            ],
        )
    };
    let (in_anna, in_bert) = (start(&anna), start(&bert));
    assert_eq!(in_anna.ok("ls /workspace"), "backend\nshared\n");
    assert_eq!(in_bert.ok("ls /workspace"), "frontend\nshared\n");
    // Both at work, and each sees at once what the other leaves where both may look.
    for round in 0..20 {
        in_anna.ok(&format!(
            "echo {round} >/workspace/shared/anna; echo {round} >>/workspace/shared/log"
        ));
        assert_eq!(
            in_bert.ok("cat /workspace/shared/anna"),
            format!("{round}\n")
        );
        in_bert.ok(&format!(
            "mv /workspace/shared/anna /workspace/frontend/taken; echo {round} >>/workspace/shared/log"
        ));
        assert_eq!(in_anna.ok("ls /workspace/shared"), "file\nlog\n");
    }
    assert_eq!(in_anna.ok("wc -l </workspace/shared/log"), "40\n");
    assert_ne!(in_anna.shell("cat /workspace/frontend/taken").code, 0);
    assert_ne!(in_bert.shell("ls /workspace/secrets").code, 0);
    assert_ne!(in_bert.shell("echo x >/workspace/new").code, 0);
    assert_eq!(
        names(&own.path),
        ["backend", "frontend", "secrets", "shared"],
        "the owner sees all of it"
    );
    assert_eq!(
        fs::read_to_string(own.join("frontend/taken")).unwrap(),
        "19\n"
    );
}

#[test]
fn fuse_g9_changed_grants_reach_live_mounts_before_the_command_returns() {
    let (store, own) = store_with_two();
    let anna = mount_as(&store, "anna");
    let open = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(anna.join("backend/file"))
        .unwrap();
    for _ in 0..5 {
        assert_eq!(code(fs::metadata(anna.join("secrets/file"))), Errno::ENOENT);
        store.ok(&["grant", "demo", "anna", "/secrets", "read"]);
        assert_eq!(
            fs::read_to_string(anna.join("secrets/file")).unwrap(),
            "secrets\n"
        );
        assert_eq!(
            code(fs::write(anna.join("secrets/file"), "")),
            Errno::EACCES
        );
        store.ok(&["revoke", "demo", "anna", "/secrets"]);

        open.write_all_at(b"B", 0).unwrap();
        store.ok(&["grant", "demo", "anna", "/backend", "read"]);
        assert_eq!(code(open.write_all_at(b"x", 0)), Errno::EACCES);
        store.ok(&["undo", "demo", "--yes"]);
        open.write_all_at(b"B", 0).unwrap();
    }
    // For a time only.
    store.ok(&[
        "grant",
        "demo",
        "anna",
        "secrets",
        "read",
        "--until",
        "2 seconds",
    ]);
    fs::read(anna.join("secrets/file")).unwrap();
    wait_until("the grant to end", Duration::from_secs(10), || {
        fs::read(anna.join("secrets/file")).is_err()
    });
    store.ok(&["principal", "disable", "anna"]);
    assert_eq!(names(&anna.path), Vec::<String>::new());
    assert_eq!(code(open.read_at(&mut [0; 1], 0)), Errno::EACCES);
    assert_eq!(
        fs::read_to_string(own.join("backend/file")).unwrap(),
        "Backend\n"
    );
    let audit = store.ok(&["audit"]).stdout;
    assert!(
        audit.contains("denied") && audit.contains("secrets/file"),
        "{audit}"
    );
}

#[test]
fn fuse_g9_grants_hold_and_sessions_agree_after_the_worker_was_killed() {
    let (store, own) = store_with_two();
    let (anna, bert) = (mount_as(&store, "anna"), mount_as(&store, "bert"));
    for round in 0..4 {
        let text = format!("round {round}\n");
        fs::write(anna.join("shared/note"), &text).unwrap();
        assert_eq!(fs::read_to_string(bert.join("shared/note")).unwrap(), text);
        store.kill_worker();
        assert_eq!(code(fs::read(anna.join("secrets/file"))), Errno::ENOENT);
        assert_eq!(names(&bert.path), ["frontend", "shared"]);
        let text = format!("after {round}\n");
        fs::write(bert.join("shared/note"), &text).unwrap();
        wait_until("all kernels to know", Duration::from_secs(10), || {
            [&anna, &own]
                .iter()
                .all(|mount| fs::read_to_string(mount.join("shared/note")).unwrap() == text)
        });
    }
}

#[test]
fn fuse_two_writers_of_one_branch_lose_nothing() {
    const LINES: usize = 500;
    let (store, own) = store_with_two();
    let (anna, bert) = (mount_as(&store, "anna"), mount_as(&store, "bert"));
    let mounts = [&anna, &bert, &own];
    std::thread::scope(|scope| {
        for (writer, mount) in mounts.into_iter().enumerate() {
            scope.spawn(move || {
                let mut log = fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(mount.join("shared/log"))
                    .unwrap();
                for number in 0..LINES {
                    log.write_all(format!("{writer} {number}\n").as_bytes())
                        .unwrap();
                    fs::write(mount.join(format!("shared/{writer}-{number}")), "x").unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(own.join("shared/log")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 3 * LINES);
    for mount in mounts {
        assert_eq!(names(&mount.join("shared")).len(), 3 * LINES + 2);
    }
    store.commit("demo", "all of it");
    let committed = store.ok(&["cat", "demo@main:shared/log"]).stdout;
    assert_eq!(committed, text);
}

#[test]
fn fuse_a_mount_that_is_alone_makes_room_for_a_second_one_unless_it_is_in_use() {
    let store = TestStore::new();
    store.init("demo", None);
    let first = store.mount("demo");
    let shared = |mount: &TestMount| {
        let list = store.json(&["ls-mounts"]);
        let mounts = list["mounts"].as_array().unwrap().clone();
        let path = mount.path.to_str().unwrap();
        let found = mounts.iter().find(|found| found["mountpoint"] == path);
        found
            .map(|found| found["shared"].clone())
            .unwrap_or_else(|| panic!("{list}"))
    };
    assert_eq!(shared(&first), Value::Bool(false));
    fs::write(first.join("f"), "written before\n").unwrap();
    let held = fs::File::open(first.join("f")).unwrap();
    let directory = store.scratch_directory("second");
    let refused = store.kura(&[
        "mount",
        "demo",
        directory.to_str().unwrap(),
        "--as",
        "other",
    ]);
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("is in use"), "{refused}");
    drop(held);
    let second = store.mount_with("demo", &["--as", "other"]);
    assert_eq!(
        (shared(&first), shared(&second)),
        (Value::Bool(true), Value::Bool(true))
    );
    assert_eq!(
        fs::read_to_string(second.join("f")).unwrap(),
        "written before\n"
    );
    for round in 0..50 {
        fs::write(first.join("f"), format!("{round}")).unwrap();
        assert_eq!(
            fs::read_to_string(second.join("f")).unwrap(),
            format!("{round}")
        );
        fs::write(second.join("f"), format!("{round}!")).unwrap();
        assert_eq!(
            fs::read_to_string(first.join("f")).unwrap(),
            format!("{round}!")
        );
    }
}
