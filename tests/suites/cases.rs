//! The outside cases (small reproductions of public bug reports), each group against a mount.
//!
//! They lie in `KURA_CASES_DIR`, else in `shared/cases` beside the repository. What fails or does
//! not apply must be listed in tests/cases-exclude.txt with a reason, and what is listed must
//! still fail; so the list is exact.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{TestStore, binary, repository_root, run, shell_ok};

fn cases_directory() -> PathBuf {
    let directory = env::var_os("KURA_CASES_DIR")
        .map_or_else(|| repository_root().join("../shared/cases"), PathBuf::from);
    assert!(
        directory.join("run.sh").is_file(),
        "no cases in {}; name their directory in KURA_CASES_DIR (`.ci/run` leaves this suite out \
         where there are none)",
        directory.display()
    );
    directory
}

/// Number of a listed case → (`fail` or `skip`, reason).
fn listed() -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(repository_root().join("tests/cases-exclude.txt"))
        .expect("tests/cases-exclude.txt");
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let mut words = line.splitn(3, char::is_whitespace);
            let number = words.next().unwrap_or_default().to_owned();
            let state = words.next().unwrap_or_default().trim().to_owned();
            let reason = words.next().unwrap_or_default().trim().to_owned();
            assert!(
                matches!(state.as_str(), "fail" | "skip") && !reason.is_empty(),
                "a line of the list is not `number fail|skip reason`: {line}"
            );
            (number, (state, reason))
        })
        .collect()
}

/// Runs a group (or some files) and compares the results with the list.
fn check(what: &[PathBuf], prepare: impl FnOnce(&TestStore) -> Vec<(String, String)>) {
    let cases = cases_directory();
    let store = TestStore::new();
    store.init("cases", None);
    // Shared, as systemd makes it everywhere: running namespaces are to see a new mount.
    shell_ok(
        &store.scratch_directory("mounts"),
        "mount --bind . .; mount --make-shared \"$PWD\"",
    );
    let mount = store.mount_with("cases", &["--allow-other"]);
    let peer = store.mount_with("cases", &["--allow-other"]);
    let settings = run(
        Command::new(repository_root().join("tests/support/cases-env.sh"))
            .arg(binary("kura"))
            .arg(store.path())
            .arg("cases")
            .arg(&mount.path)
            .arg(&peer.path),
    )
    .ok()
    .stdout;
    let settings_file = store.scratch("settings.sh");
    fs::write(&settings_file, settings).expect("a scratch file");
    let table = store.scratch("results.tsv");
    let more = prepare(&store);
    let mut command = Command::new("bash");
    command
        .args(["-c", ". \"$0\"; exec \"$@\""])
        .arg(&settings_file)
        .arg(cases.join("run.sh"))
        .arg(&mount.path)
        .args(what)
        .env("OUT", &table)
        // Where this build goes is not where the cases' own builds go.
        .env_remove("CARGO_TARGET_DIR")
        .envs(more);
    let output = run(&mut command);
    let results = fs::read_to_string(&table).unwrap_or_else(|_| panic!("no results: {output}"));
    let list = listed();
    let mut problems = Vec::new();
    let mut count = 0;
    for line in results.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, result, _, reason] = fields[..] else {
            panic!("not a result: {line}");
        };
        count += 1;
        let number = name.split('-').next().unwrap_or_default();
        let expected = list.get(number).map_or("pass", |(state, _)| state.as_str());
        let actual = if result == "hang" { "fail" } else { result };
        if !actual.eq_ignore_ascii_case(expected) {
            problems.push(format!("{name}: {result}, want {expected} ({reason})"));
        }
    }
    assert!(count > 0, "no case ran: {output}");
    assert!(
        problems.is_empty(),
        "{} of {count} cases are not as listed:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

fn check_group(group: &str) {
    check(&[PathBuf::from(group)], |_| Vec::new());
}

#[test]
fn fuse_g11_cases_posix() {
    check_group("posix");
}

#[test]
fn fuse_g11_cases_tools() {
    check_group("tools");
}

#[test]
fn fuse_g11_cases_locks() {
    check_group("locks");
}

#[test]
fn fuse_g11_cases_names() {
    check_group("names");
}

#[test]
fn fuse_cases_perf_shape() {
    check_group("perf-shape");
}

/// A store on a small disk of its own (a file system in a file).
struct SmallDisk {
    directory: PathBuf,
}

impl SmallDisk {
    fn new(directory: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&directory).expect("a directory for the disk");
        shell_ok(
            &directory,
            &format!(
                "truncate -s {size} ../small.img; mkfs.ext4 -q -F -m 0 ../small.img; mount -o loop ../small.img ."
            ),
        );
        Self { directory }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.directory));
    }
}

#[test]
fn docker_cases_lifecycle() {
    let outer = TestStore::new();
    let disk = SmallDisk::new(outer.scratch("small-disk"), "190M");
    let small = TestStore::below(&disk.directory);
    small.init("small", None);
    let small_mount = small.mount("small");
    check(&[PathBuf::from("lifecycle")], |_| {
        vec![(
            "CASE_SMALL_DIR".to_owned(),
            small_mount.path.to_string_lossy().into_owned(),
        )]
    });
    drop(small);
    drop(disk);
}

#[test]
fn fuse_cases_versioning() {
    let mut files = files_of("versioning");
    files.retain(|path| !is_case(path, "627"));
    check(&files, |_| Vec::new());
}

/// The case that fills the store's disk has a small disk to itself.
#[test]
fn fuse_cases_versioning_on_a_full_disk() {
    let outer = TestStore::new();
    let disk = SmallDisk::new(outer.scratch("small-disk"), "400M");
    let store = TestStore::below(&disk.directory);
    store.init("cases", None);
    let mount = store.mount_with("cases", &["--allow-other"]);
    let settings = run(
        Command::new(repository_root().join("tests/support/cases-env.sh"))
            .arg(binary("kura"))
            .arg(store.path())
            .arg("cases")
            .arg(&mount.path),
    )
    .ok()
    .stdout;
    let settings_file = store.scratch("settings.sh");
    fs::write(&settings_file, settings).unwrap();
    let fill = disk.directory.join("fill");
    let case = files_of("versioning")
        .into_iter()
        .find(|path| is_case(path, "627"))
        .expect("case 627");
    let result = run(Command::new("bash")
        .args(["-c", ". \"$0\"; exec \"$@\""])
        .arg(&settings_file)
        .arg(case)
        .arg(&mount.path)
        .env(
            "CASE_FULL_ON",
            format!(
                "dd if=/dev/zero of={0} bs=1M status=none; sync {0}; true",
                fill.display()
            ),
        )
        .env("CASE_FULL_OFF", format!("rm -f {}", fill.display())));
    let expected = if listed().contains_key("627") { 1 } else { 0 };
    drop(store);
    drop(disk);
    assert_eq!(result.code, expected, "{result}");
}

fn is_case(path: &Path, number: &str) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(number))
}

fn files_of(group: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(cases_directory().join(group))
        .expect("a group of cases")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit())
        })
        .collect();
    files.sort();
    files
}
