//! An attacker's tricks, by a root process in a container: each gets around rules that only compare
//! path strings, and none around grants. The tricks are in `tests/attacks/attacks.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::{Container, TestStore, manifest, repository_root, require_docker, run, wait_until};

/// Fewer would not be what is promised.
const TRICKS_MINIMUM: usize = 60;

fn script() -> std::path::PathBuf {
    repository_root().join("tests/attacks/attacks.py")
}

fn build(top: &Path) {
    run(Command::new("python3").arg(script()).arg("build").arg(top)).ok();
}

/// Runs all tricks in a container on `top`; `revoke` is called when the tricks that need it have
/// opened what they use later.
fn attack(
    store: &TestStore,
    top: &Path,
    rules: &str,
    secret_inode: u64,
    revoke: &dyn Fn(),
) -> BTreeMap<String, String> {
    let control = store.scratch_directory(&format!("control-{rules}"));
    let container = Container::start(
        "kura-test:tools",
        &[
            "--cap-add=SYS_ADMIN".to_owned(),
            "--cap-add=DAC_READ_SEARCH".to_owned(),
            "--security-opt=seccomp=unconfined".to_owned(),
            format!("-v={}:/workspace", top.display()),
            format!("-v={}:/control", control.display()),
            format!(
                "-v={}:/attacks:ro",
                script().parent().expect("a directory").display()
            ),
            format!("-e=SECRET_INODE={secret_inode}"),
        ],
    );
    container.ok(&format!(
        "(python3 -B /attacks/attacks.py run /workspace {rules} >/control/out 2>/control/errors; \
         echo >/control/done) >/dev/null 2>&1 &"
    ));
    wait_until(
        "the tricks to be prepared",
        Duration::from_secs(240),
        || control.join("ready").exists() || control.join("done").exists(),
    );
    revoke();
    fs::write(control.join("revoked"), "").expect("a writable directory");
    wait_until("the tricks to end", Duration::from_secs(120), || {
        control.join("done").exists()
    });
    let errors = fs::read_to_string(control.join("errors")).expect("a readable file");
    assert_eq!(errors, "");
    let text = fs::read_to_string(control.join("out")).expect("a readable file");
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, result)| (name.to_owned(), result.to_owned()))
        .collect()
}

#[test]
fn docker_g9_tricks_that_get_around_string_rules_find_nothing_behind_grants() {
    require_docker("kura-test:tools");
    let store = TestStore::new();

    // A directory with rules about strings: every trick works.
    let plain = store.scratch_directory("plain");
    build(&plain);
    let worked = attack(&store, &plain, "string", 0, &|| {});
    let without_effect: Vec<_> = worked
        .iter()
        .filter(|(_, result)| *result != "leak")
        .collect();
    assert_eq!(
        without_effect,
        Vec::new(),
        "no real tricks: a plain directory withstands them"
    );
    assert!(worked.len() >= TRICKS_MINIMUM, "{} tricks", worked.len());

    // The same tree behind grants: none does.
    store.init("demo", None);
    let own = store.mount_with("demo", &["--allow-other"]);
    build(&own.path);
    store.ok(&["principal", "add", "attacker", "--kind", "agent"]);
    for (pattern, access) in [
        ("/", "write"),
        ("secrets", "hidden"),
        ("*.key", "hidden"),
        ("docs", "read"),
    ] {
        store.ok(&["grant", "demo", "attacker", pattern, access]);
    }
    let secret_inode = fs::metadata(own.join("secrets/token")).unwrap().ino();
    let guarded = |directory: &str| manifest(&own.join(directory));
    let before = ["secrets", "docs", "certs.key", "live"].map(guarded);
    let mount = store.mount_with("demo", &["--allow-other", "--as", "attacker"]);
    let held = attack(&store, &mount.path, "none", secret_inode, &|| {
        store.ok(&["grant", "demo", "attacker", "live", "hidden"]);
    });
    let leaks: Vec<_> = held
        .iter()
        .filter(|(_, result)| !result.starts_with("held"))
        .collect();
    assert_eq!(leaks, Vec::new(), "something behind grants was got at");
    assert_eq!(
        held.keys().collect::<Vec<_>>(),
        worked.keys().collect::<Vec<_>>()
    );
    assert_eq!(
        ["secrets", "docs", "certs.key", "live"].map(guarded),
        before
    );
    let audit = store.json(&["audit", "--denied", "--by", "attacker", "-n", "1000"]);
    let denied: BTreeSet<&str> = audit["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    for action in ["look up", "open for writing", "remove", "rename", "create"] {
        assert!(
            denied.iter().any(|found| found.contains(action)),
            "no denial to {action}: {denied:?}"
        );
    }
    println!(
        "{} tricks: {} get around string rules, {} around grants",
        held.len(),
        worked.len(),
        leaks.len()
    );
}
