//! Real tools in a mount, each compared by content with the same steps in a plain directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use e2e::{
    Manifest, TestStore, assert_same_tree, binary, make_odd_tree, manifest, repository_root, run,
    shell_ok,
};

/// Does the same steps in a plain directory and in a mount; gives both.
fn in_both(store: &TestStore, script: &str) -> (std::path::PathBuf, e2e::TestMount) {
    let plain = store.scratch_directory("plain");
    store.init("demo", None);
    let mount = store.mount("demo");
    let expected = shell_ok(&plain, script);
    let actual = shell_ok(&mount.path, script);
    assert_eq!(
        expected, actual,
        "the tools print something else in a mount"
    );
    (plain, mount)
}

/// A tree without what differs between two runs of the same steps.
fn content_of(top: &Path, is_ignored: impl Fn(&str) -> bool) -> Manifest {
    let mut tree = manifest(top);
    tree.retain(|path, _| !is_ignored(&path.to_string_lossy()));
    for entry in tree.values_mut() {
        entry.mtime_ns = 0;
    }
    tree
}

/// Commits, mounts the commit elsewhere and compares with the live tree.
fn assert_commit_holds(store: &TestStore, mount: &e2e::TestMount) {
    let live = manifest(&mount.path);
    let id = store.commit("demo", "after the tool");
    let committed = store.mount(&format!("demo@{id}"));
    assert_same_tree(&live, &manifest(&committed.path));
}

/// A git repository with some history, made with fixed times so that its ids are always the same.
fn make_origin(directory: &Path) {
    shell_ok(
        directory,
        "export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
         git init -q -b main .
         mkdir -p src/a src/b docs
         for n in $(seq 300); do seq $n $((n * 7)) >src/a/file-$n; echo $n >src/b/file-$n; done
         ln -s ../src docs/src; printf '#!/bin/sh\\n' >run; chmod 755 run
         git add -A; git commit -qm first
         for n in $(seq 30); do echo more >>src/a/file-$n; git commit -qam \"change $n\"; done
         git mv src/b src/c; git commit -qm moved; git tag v1; git checkout -qb side HEAD~5; echo s >side; git add side; git commit -qm side; git checkout -q main",
    );
}

#[test]
fn fuse_git_clones_works_and_collects_garbage_as_in_a_plain_directory() {
    let store = TestStore::new();
    let origin = store.scratch_directory("origin");
    make_origin(&origin);
    let (plain, mount) = in_both(
        &store,
        &format!(
            "export GIT_AUTHOR_DATE='2026-01-02T00:00:00Z' GIT_COMMITTER_DATE='2026-01-02T00:00:00Z'
             git clone -q '{}' work; cd work
             git status --porcelain; git checkout -q side 2>/dev/null || git checkout -qb side origin/side
             git checkout -q main; git merge -q --no-edit side; git rev-parse HEAD
             sed -i s/1/one/ src/a/file-1; git stash -q; git status --porcelain; git stash pop -q; git diff --stat
             git commit -qam changed; git rm -qr src/c; git commit -qm removed; git reset -q --hard HEAD~1
             git worktree add -q ../tree v1; git worktree list | wc -l; git gc -q --prune=now; git fsck --strict --no-dangling; git rev-parse HEAD; git count-objects -v | grep packs; git status --porcelain",
            origin.display()
        ),
    );
    // The index and the reflogs hold inode numbers and times, a work tree its absolute path.
    let ignored = |path: &str| path.contains(".git/") || path == "tree/.git";
    assert_same_tree(
        &content_of(&plain, ignored),
        &content_of(&mount.path, ignored),
    );
    assert_commit_holds(&store, &mount);
    store.unmount(&mount);
    let mount = store.mount("demo");
    let status = shell_ok(
        &mount.join("work"),
        "git status --porcelain; git fsck --strict --no-dangling",
    );
    assert_eq!(status, "");
}

#[test]
fn fuse_npm_ci_installs_the_same_tree() {
    let store = TestStore::new();
    let cache = binary("kura")
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("e2e/npm-cache");
    let project = store.scratch("project");
    let _ = run(
        Command::new(repository_root().join("tests/support/npm-project.sh"))
            .arg(&project)
            .arg(&cache),
    )
    .ok();
    let (plain, mount) = in_both(
        &store,
        &format!(
            "cp -r '{}/.' .; npm ci --offline --cache '{}' --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null; npm run -s check; npm ci --offline --cache '{1}' --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null; npm ls --depth=0 --parseable | wc -l",
            project.display(),
            cache.display()
        ),
    );
    assert_same_tree(
        &content_of(&plain, |_| false),
        &content_of(&mount.path, |_| false),
    );
    assert!(content_of(&plain, |_| false).len() > 3000);
    assert_commit_holds(&store, &mount);
}

#[test]
fn fuse_cargo_builds_runs_and_sees_that_nothing_changed() {
    let store = TestStore::new();
    let (_, mount) = in_both(
        &store,
        r#"mkdir -p app/src; cd app
cat >Cargo.toml <<'END'
[package]
name = "app"
version = "0.1.0"
edition = "2021"
[workspace]
END
echo 'pub fn answer() -> u32 { 42 }' >src/lib.rs
echo 'fn main() { println!("answer {}", app::answer()); }' >src/main.rs
export CARGO_TARGET_DIR=target
cargo build --offline -q; ./target/debug/app
cargo build --offline -v 2>&1 | grep -c Fresh
sleep 1.1; sed -i s/42/43/ src/lib.rs; cargo build --offline -v 2>&1 | grep -c 'Compiling app'; ./target/debug/app
cargo build --offline -v 2>&1 | grep -c Fresh; cargo test --offline -q 2>&1 | grep -c 'test result: ok'"#,
    );
    assert_commit_holds(&store, &mount);
}

#[test]
fn fuse_pip_installs_into_a_virtual_environment() {
    let store = TestStore::new();
    let wheels = store.scratch_directory("wheels");
    shell_ok(
        &wheels,
        "python3 -m venv ../download; ../download/bin/pip download -q --disable-pip-version-check six==1.16.0 click==8.1.7 idna==3.7",
    );
    let (plain, mount) = in_both(
        &store,
        &format!(
            "python3 -m venv venv; venv/bin/pip install -q --disable-pip-version-check --no-index --find-links '{}' six click idna
             venv/bin/python -c 'import six, click, idna; print(six.__version__, idna.encode(\"b\\u00fccher.example\"))'
             venv/bin/pip list --disable-pip-version-check --format freeze | grep -v -E '^(pip|setuptools)='; venv/bin/pip uninstall -qy idna; venv/bin/pip check",
            wheels.display()
        ),
    );
    // Byte code and scripts hold the directory's path and times.
    let ignored = |path: &str| {
        path.contains("__pycache__")
            || path.contains("/bin")
            || path.ends_with("RECORD")
            || path.ends_with(".cfg")
    };
    assert_same_tree(
        &content_of(&plain, ignored),
        &content_of(&mount.path, ignored),
    );
    assert_commit_holds(&store, &mount);
}

#[test]
fn fuse_sqlite_in_wal_mode_with_several_processes() {
    const PROCESSES: usize = 4;
    const ROWS: usize = 150;
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount("demo");
    let program = format!(
        r#"
import sqlite3, sys
c = sqlite3.connect('data.db', timeout=60, isolation_level=None)
for n in range({ROWS}):
    c.execute('begin immediate')
    c.execute('update counter set n = n + 1'); c.execute('insert into rows values(?, ?)', (sys.argv[1], n))
    c.execute('commit')
"#
    );
    fs::write(store.scratch("load.py"), program).unwrap();
    shell_ok(
        &mount.path,
        "sqlite3 data.db 'pragma journal_mode=wal; create table counter(n); insert into counter values(0); create table rows(who, n)'",
    );
    let mut children: Vec<_> = (0..PROCESSES)
        .map(|who| {
            Command::new("python3")
                .arg(store.scratch("load.py"))
                .arg(who.to_string())
                .current_dir(&mount.path)
                .spawn()
                .unwrap()
        })
        .collect();
    let during = store.commit("demo", "while it is written");
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let query = "pragma integrity_check; select n from counter; select count(distinct who || '-' || n) from rows";
    let total = PROCESSES * ROWS;
    assert_eq!(
        shell_ok(&mount.path, &format!("sqlite3 data.db \"{query}\"")),
        format!("ok\n{total}\n{total}\n")
    );
    // A commit is a point in time of all files, so the database in it is whole.
    let copy = store.scratch("copy");
    let _ = run(store
        .command()
        .args(["export", &format!("demo@{during}")])
        .arg(&copy))
    .ok();
    let text = shell_ok(
        &copy,
        "sqlite3 data.db \"pragma integrity_check; select n - (select count(*) from rows) from counter\"",
    );
    assert_eq!(text, "ok\n0\n");
}

#[test]
fn fuse_rsync_and_tar_keep_every_attribute_both_ways() {
    let store = TestStore::new();
    let source = store.scratch_directory("source");
    make_odd_tree(&source);
    let expected = manifest(&source);
    store.init("demo", None);
    let mount = store.mount("demo");
    let back = store.scratch_directory("back");
    shell_ok(
        &mount.path,
        &format!(
            "mkdir by-rsync by-tar; rsync -aHAXS --numeric-ids '{0}/' by-rsync/
             tar -C '{0}' --xattrs --xattrs-include='*' --acls --numeric-owner -cf - . 2>/dev/null | tar -C by-tar --xattrs --xattrs-include='*' --acls --numeric-owner -xpf -
             cp -a by-rsync by-cp
             rsync -aHAXS --numeric-ids by-rsync/ '{1}/'",
            source.display(),
            back.display()
        ),
    );
    assert_same_tree(&expected, &manifest(&mount.join("by-rsync")));
    assert_same_tree(&expected, &manifest(&mount.join("by-cp")));
    assert_same_tree(&expected, &manifest(&back));
    let mut without_sockets = expected;
    without_sockets.retain(|_, entry| entry.kind != "socket");
    assert_same_tree(&without_sockets, &manifest(&mount.join("by-tar")));
    let again = shell_ok(
        &mount.path,
        &format!(
            "rsync -aHAXSn --numeric-ids --itemize-changes '{}/' by-rsync/",
            source.display()
        ),
    );
    assert_eq!(again, "", "rsync sees a difference");
}

#[test]
fn fuse_editors_write_what_they_mean() {
    let store = TestStore::new();
    let (plain, mount) = in_both(
        &store,
        "for n in 1 2 3; do seq 100 >file-$n; done; chmod 640 file-1; ln -s file-2 link; ln file-3 hard
         sed -i 's/^5/five/' file-1; sed -i.bak '/9/d' file-2; sed -i --follow-symlinks 's/1/one/' link
         printf ':%%s/^7/seven/\\n:wq\\n' | vim -u NONE -es file-3 || true
         printf ':set backup\\n:%%s/^8/eight/\\n:wq\\n' | vim -u NONE -es file-1 || true
         perl -pi -e 's/^3/three/' file-3; sort -o file-2 file-2; cat file-1 file-2 file-3 hard",
    );
    assert_same_tree(
        &content_of(&plain, |_| false),
        &content_of(&mount.path, |_| false),
    );
    assert_commit_holds(&store, &mount);
}

#[test]
fn fuse_g11_direct_buffered_and_mapped_access_agree_as_in_a_plain_directory() {
    let store = TestStore::new();
    let script = repository_root().join("tests/support/direct_io.py");
    let (plain, mount) = in_both(&store, &format!("python3 '{}'", script.display()));
    let expected = fs::read(plain.join("file")).unwrap();
    assert!(fs::read(mount.join("file")).unwrap() == expected);
    let id = store.commit("demo", "direct");
    let committed = store.ok(&["cat", &format!("demo@{id}:file")]).stdout_bytes;
    assert!(committed == expected, "the commit has other bytes");
    store.unmount(&mount);
    let mount = store.mount("demo");
    assert!(fs::read(mount.join("file")).unwrap() == expected);
    // The committed file is read and changed directly, before anything else has it in a cache.
    store.unmount(&mount);
    let mount = store.mount("demo");
    let change =
        "dd if=/dev/zero of=file bs=4096 seek=3 count=2 conv=notrunc oflag=direct 2>/dev/null
        dd if=file bs=64k iflag=direct 2>/dev/null | sha256sum";
    assert_eq!(shell_ok(&plain, change), shell_ok(&mount.path, change));
    assert_commit_holds(&store, &mount);
    assert!(fs::read(mount.join("file")).unwrap() == fs::read(plain.join("file")).unwrap());
}
