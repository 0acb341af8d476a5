//! Wrong input: a clear message with the next step, the right exit code, nothing half done.

use std::fs;
use std::path::Path;
use std::process::Command;

use e2e::{
    Run, TestStore, assert_same_tree, docker, manifest, require_docker, run, shell, shell_ok,
};

const FAILURE: i32 = 1;
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 4;
const PERMISSION: i32 = 5;
const UNAVAILABLE: i32 = 6;
const INCOMPATIBLE: i32 = 7;

/// A store with one workspace of two commits.
fn demo() -> TestStore {
    let store = TestStore::new();
    let project = store.scratch_directory("project");
    shell_ok(
        &project,
        "echo one >file; mkdir directory; echo two >directory/inner",
    );
    store.init("demo", Some(&project));
    let more = store.scratch_directory("more");
    fs::write(more.join("second"), "x").expect("a scratch file");
    let _ = run(store
        .command()
        .args(["import", "demo"])
        .arg(&more)
        .arg("--yes"))
    .ok();
    store
}

/// The command fails with one of these codes, says each of the words and gives a hint.
#[track_caller]
fn refuse(run: &Run, codes: &[i32], words: &[&str]) {
    assert!(codes.contains(&run.code), "want exit code {codes:?}: {run}");
    assert!(run.stderr.contains("error: "), "no error on stderr: {run}");
    for word in words {
        assert!(
            run.stderr.contains(word),
            "the message does not say `{word}`: {run}"
        );
    }
    assert!(
        run.stderr.contains("hint: ") || run.code == USAGE,
        "no next step: {run}"
    );
    assert!(!run.stderr.contains("panicked"), "{run}");
    assert_eq!(run.stdout, "", "data on stdout of a failure: {run}");
}

#[test]
fn an_unknown_workspace_is_named() {
    let store = demo();
    for verb in ["status", "log", "diff", "operations"] {
        refuse(&store.kura(&[verb, "nowhere"]), &[NOT_FOUND], &["nowhere"]);
    }
    refuse(
        &store.kura(&["commit", "nowhere", "-m", "x"]),
        &[NOT_FOUND],
        &["nowhere"],
    );
    let directory = store.scratch("mount-point");
    refuse(
        &run(store.command().args(["mount", "nowhere"]).arg(&directory)),
        &[NOT_FOUND],
        &["nowhere"],
    );
    assert!(!directory.exists(), "a mount point was made for nothing");
}

#[test]
fn an_unknown_revision_or_path_is_named() {
    let store = demo();
    let before = store.log_ids("demo");
    for revision in ["no-branch", "ffffffffffff", "HEAD~99"] {
        refuse(
            &store.kura(&["show", "demo", revision]),
            &[NOT_FOUND],
            &[revision],
        );
        refuse(
            &store.kura(&["rollback", "demo", revision, "--yes"]),
            &[NOT_FOUND],
            &[revision],
        );
    }
    refuse(
        &store.kura(&["cat", "demo:no/such/file"]),
        &[NOT_FOUND],
        &["no/such/file"],
    );
    refuse(
        &store.kura(&["restore", "demo", "missing", "--from", "HEAD~1", "--yes"]),
        &[NOT_FOUND],
        &["missing"],
    );
    refuse(
        &store.kura(&["log", "demo", "no/such/file"]),
        &[NOT_FOUND],
        &["no/such/file"],
    );
    let absent = store.scratch("absent");
    for arguments in [&["init", "new", "--from"][..], &["import", "demo"]] {
        let refused = run(store.command().args(arguments).arg(&absent));
        refuse(&refused, &[NOT_FOUND], &["absent", "check the path"]);
    }
    assert_eq!(store.log_ids("demo"), before);
}

#[test]
fn an_ambiguous_prefix_lists_what_it_may_mean() {
    let store = demo();
    // Seventeen commits: at least two begin with the same digit.
    for number in 0..16 {
        let source = store.scratch_directory(&format!("source-{number}"));
        fs::write(source.join("number"), number.to_string()).unwrap();
        let _ = run(store
            .command()
            .args(["import", "demo"])
            .arg(&source)
            .arg("--yes"))
        .ok();
    }
    let ids = store.log_ids("demo");
    let (first, second) = ids
        .iter()
        .enumerate()
        .find_map(|(index, id)| {
            let other = ids[index + 1..]
                .iter()
                .find(|other| other[..1] == id[..1])?;
            Some((id, other))
        })
        .unwrap();
    let common = first
        .bytes()
        .zip(second.bytes())
        .take_while(|(one, other)| one == other)
        .count();
    let prefix = &first[..common];
    let run = store.kura(&["show", "demo", prefix]);
    // A prefix may have a least length; then it says so.
    refuse(&run, &[FAILURE, USAGE, NOT_FOUND], &[prefix]);
    let word = if run.stderr.contains("ambiguous") {
        &first[..7]
    } else {
        "at least"
    };
    assert!(run.stderr.contains(word), "{run}");
}

#[test]
fn fuse_a_mount_point_that_cannot_be_used_stays_as_it_is() {
    let store = demo();
    let full = store.scratch_directory("full");
    fs::write(full.join("something"), "x").unwrap();
    refuse(
        &run(store.command().args(["mount", "demo"]).arg(&full)),
        &[FAILURE],
        &["full", "empty"],
    );
    let file = store.scratch("file");
    fs::write(&file, "x").unwrap();
    refuse(
        &run(store.command().args(["mount", "demo"]).arg(&file)),
        &[FAILURE, NOT_FOUND],
        &["file", "director"],
    );
    store.init("other", None);
    let mount = store.mount("demo");
    refuse(
        &run(store.command().args(["mount", "other"]).arg(&mount.path)),
        &[FAILURE, 3, UNAVAILABLE],
        &["already a mount"],
    );
    let inside = mount.join("inside");
    fs::create_dir(&inside).unwrap();
    refuse(
        &run(store.command().args(["mount", "other"]).arg(&inside)),
        &[FAILURE],
        &["inside the mount of demo"],
    );
    // The same again is no mistake.
    let _ = run(store.command().args(["mount", "demo"]).arg(&mount.path)).ok();
    assert!(mount.join("file").exists());
    assert_eq!(fs::read_to_string(full.join("something")).unwrap(), "x");
    refuse(
        &run(store.command().arg("umount").arg(&full)),
        &[FAILURE, NOT_FOUND],
        &["full"],
    );
}

#[test]
fn a_path_outside_the_tree_is_refused() {
    let store = demo();
    let before = store.log_ids("demo");
    for path in ["../etc/passwd", "directory/../../x", "/etc/passwd"] {
        let run = store.kura(&["cat", &format!("demo:{path}")]);
        assert!([FAILURE, USAGE, NOT_FOUND].contains(&run.code), "{run}");
        let run = store.kura(&["restore", "demo", path, "--from", "HEAD~1", "--yes"]);
        assert!([FAILURE, USAGE, NOT_FOUND].contains(&run.code), "{run}");
        let run = store.kura(&["rollback", "demo", "HEAD~1", "--path", path, "--yes"]);
        assert!([FAILURE, USAGE, NOT_FOUND].contains(&run.code), "{run}");
    }
    assert_eq!(store.log_ids("demo"), before);
}

#[test]
fn a_name_is_a_tag_or_a_branch_but_not_both() {
    let store = demo();
    store.ok(&["tag", "create", "demo", "one"]);
    refuse(
        &store.kura(&["branch", "create", "demo", "one"]),
        &[FAILURE],
        &["there is a tag 'one'"],
    );
    refuse(
        &store.kura(&["tag", "create", "demo", "main"]),
        &[FAILURE],
        &["there is a branch 'main'"],
    );
}

#[test]
fn a_branch_with_the_name_of_a_lease_is_an_ordinary_one() {
    let store = demo();
    store.ok(&["branch", "create", "demo", "lease.main"]);
    store.ok(&["undo", "demo", "--yes"]);
    let branches = store.ok(&["branch", "list", "demo"]).stdout;
    assert!(!branches.contains("lease.main"), "{branches}");
}

#[test]
fn a_wrong_name_is_a_mistake_of_usage() {
    let store = demo();
    for name in [
        "",
        "a/b",
        "..",
        ".hidden",
        "with space",
        "new\nline",
        "a@b:c",
    ] {
        let run = store.kura(&["init", name]);
        assert!([FAILURE, USAGE].contains(&run.code), "{name:?}: {run}");
    }
    let again = store.kura(&["init", "demo"]);
    refuse(&again, &[FAILURE], &["demo", "exists"]);
    let missing = store.kura(&["init", "new", "--from", "/no/such/directory"]);
    refuse(&missing, &[FAILURE, NOT_FOUND], &["/no/such/directory"]);
    let list = store.ok(&["list"]).stdout;
    assert!(!list.contains("new"), "half a workspace is left: {list}");
    assert_eq!(store.kura(&["no-such-verb"]).code, USAGE);
    assert_eq!(store.kura::<&str>(&[]).code, USAGE);
}

fn edit_database(store: &TestStore, statement: &str) {
    let _ = store.stop_daemon().ok();
    run(Command::new("sqlite3")
        .arg(store.path().join("kura.db"))
        .arg(statement))
    .ok();
}

#[test]
fn a_store_of_a_newer_format_is_left_alone() {
    let store = demo();
    edit_database(&store, "pragma user_version = 1000");
    let before = fs::read(store.path().join("kura.db")).unwrap();
    refuse(&store.kura(&["list"]), &[INCOMPATIBLE], &["1000"]);
    assert!(
        fs::read(store.path().join("kura.db")).unwrap() == before,
        "the store was changed"
    );
    edit_database_offline(&store, "pragma user_version = 2");
    assert!(store.ok(&["list"]).stdout.contains("demo"));
}

/// Like [`edit_database`], when the daemon can't run.
fn edit_database_offline(store: &TestStore, statement: &str) {
    run(Command::new("sqlite3")
        .arg(store.path().join("kura.db"))
        .arg(statement))
    .ok();
}

#[test]
fn g12_a_foreign_or_broken_database_is_left_alone() {
    let foreign = TestStore::new();
    fs::create_dir_all(foreign.path()).unwrap();
    shell_ok(
        foreign.path(),
        "sqlite3 kura.db 'create table other(a); insert into other values(1)'",
    );
    let before = fs::read(foreign.path().join("kura.db")).unwrap();
    refuse(&foreign.kura(&["list"]), &[INCOMPATIBLE], &["kura.db"]);
    assert!(fs::read(foreign.path().join("kura.db")).unwrap() == before);

    let garbage = TestStore::new();
    fs::create_dir_all(garbage.path()).unwrap();
    fs::write(
        garbage.path().join("kura.db"),
        "this is not a database ".repeat(500),
    )
    .unwrap();
    let before = fs::read(garbage.path().join("kura.db")).unwrap();
    refuse(&garbage.kura(&["list"]), &[INCOMPATIBLE], &["kura.db"]);
    assert!(fs::read(garbage.path().join("kura.db")).unwrap() == before);
}

#[test]
fn tar_entries_that_leave_the_tree_are_refused() {
    let store = demo();
    let scratch = store.scratch_directory("tars");
    shell_ok(
        &scratch,
        r#"python3 - <<'END'
import io, tarfile
def make(file, *members):
    with tarfile.open(file, 'w') as t:
        for name, kind, target in members:
            m = tarfile.TarInfo(name); m.type = kind; m.linkname = target
            data = b'data' if kind == tarfile.REGTYPE else b''
            m.size = len(data); t.addfile(m, io.BytesIO(data))
R, S, H = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
make('dots.tar', ('ok', R, ''), ('../outside', R, ''))
make('inner.tar', ('ok', R, ''), ('a/../../outside', R, ''))
make('absolute.tar', ('ok', R, ''), ('/tmp/outside', R, ''))
make('through-link.tar', ('d', S, '/tmp'), ('d/outside', R, ''))
make('hard.tar', ('h', H, '../../etc/passwd'))
END"#,
    );
    let before = store.log_ids("demo");
    for name in ["dots", "inner", "absolute", "through-link", "hard"] {
        let file = scratch.join(format!("{name}.tar"));
        let run_init = run(store.command().args(["init", name, "--from"]).arg(&file));
        refuse(&run_init, &[FAILURE, NOT_FOUND], &[]);
        let import = run(store
            .command()
            .args(["import", "demo"])
            .arg(&file)
            .arg("--yes"));
        refuse(&import, &[FAILURE, NOT_FOUND], &[]);
    }
    assert_eq!(store.log_ids("demo"), before);
    let list = store.ok(&["list"]).stdout;
    assert_eq!(
        list.matches("absolute").count(),
        0,
        "half a workspace is left: {list}"
    );
    assert!(!Path::new("/tmp/outside").exists());
    fs::write(scratch.join("broken.tar"), "no tar at all ".repeat(200)).unwrap();
    let broken = run(store
        .command()
        .args(["init", "broken", "--from"])
        .arg(scratch.join("broken.tar")));
    refuse(
        &broken,
        &[FAILURE, INCOMPATIBLE],
        &["not a tar archive, or it is damaged"],
    );
}

#[test]
fn fuse_names_with_a_slash_or_nul_do_not_reach_the_tree() {
    let store = demo();
    let mount = store.mount("demo");
    let script = "python3 - <<'END'
import os
for name in ['a\\0b', '', '.', '..', 'n' * 256]:
    try:
        os.mkdir(name)
    except (OSError, ValueError):
        continue
    raise SystemExit('made %r' % name)
END";
    let before = manifest(&mount.path);
    shell(&mount.path, script).ok();
    assert_same_tree(&before, &manifest(&mount.path));
}

#[test]
fn docker_without_the_fuse_device_or_the_right_to_mount_the_store_still_works() {
    require_docker("kura-test:tools");
    let store = demo();
    let _ = store.stop_daemon().ok();
    let programs = e2e::binary("kura").parent().unwrap().to_path_buf();
    let container = |options: &[&str], script: &str| {
        let (programs, directory) = (
            format!("{}:/kura:ro", programs.display()),
            format!("{}:/store", store.path().display()),
        );
        let mut arguments = vec![
            "run",
            "--rm",
            "--network",
            "none",
            "-v",
            &programs,
            "-v",
            &directory,
            "-e",
            "KURA_STORE=/store",
        ];
        arguments.extend(options);
        arguments.extend(["kura-test:tools", "sh", "-c", script]);
        docker(arguments)
    };
    let no_device = container(
        &[],
        "/kura/kura mount demo /mnt; code=$?; /kura/kura cat demo:file; /kura/kura daemon stop; exit $code",
    );
    assert_eq!(no_device.code, UNAVAILABLE, "{no_device}");
    assert!(
        no_device.stderr.contains("/dev/fuse") && no_device.stderr.contains("hint: "),
        "{no_device}"
    );
    assert!(
        no_device.stdout.contains("one"),
        "reading needs no mount: {no_device}"
    );
    let no_right = container(
        &["--device", "/dev/fuse"],
        "/kura/kura mount demo /mnt; code=$?; /kura/kura daemon stop; exit $code",
    );
    assert!(
        [PERMISSION, UNAVAILABLE].contains(&no_right.code),
        "{no_right}"
    );
    assert!(no_right.stderr.contains("hint: "), "{no_right}");
    assert_eq!(store.ok(&["cat", "demo:file"]).stdout, "one\n");
}

#[test]
fn fuse_g12_a_full_disk_is_an_error_and_loses_nothing() {
    let outer = TestStore::new();
    let disk = outer.scratch_directory("disk");
    shell_ok(
        &disk,
        "truncate -s 190M ../disk.img; mkfs.ext4 -q -F -m 0 ../disk.img; mount -o loop ../disk.img .",
    );
    let store = TestStore::below(&disk);
    store.init("demo", None);
    let mount = store.mount("demo");
    fs::write(mount.join("old"), vec![b'o'; 300_000]).unwrap();
    let id = store.commit("demo", "before");
    let filled = shell(
        &mount.path,
        "head -c 400000000 /dev/urandom >fill; sync fill",
    );
    assert_ne!(filled.code, 0, "400 MB into 190: {filled}");
    assert!(filled.stderr.contains("No space left"), "{filled}");
    assert_eq!(fs::read(mount.join("old")).unwrap(), vec![b'o'; 300_000]);
    fs::remove_file(mount.join("fill")).unwrap();
    e2e::wait_until(
        "space after a deletion",
        std::time::Duration::from_secs(20),
        || fs::write(mount.join("new"), vec![b'n'; 100_000]).is_ok(),
    );
    let after = store.commit("demo", "after");
    assert_ne!(id, after);
    let old = store.ok(&["cat", &format!("demo@{id}:old")]);
    assert_eq!(old.stdout.len(), 300_000);
    drop(store);
    shell_ok(Path::new("/"), &format!("umount '{}'", disk.display()));
}
