//! Who changed what: processes, runs and containers behind changes, and how that is looked at.

use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::{Container, TestStore, require_docker, shell, shell_ok, wait_until};
use serde_json::Value;

/// Longest wait for an automatic commit.
const COMMIT_WAIT: Duration = Duration::from_secs(20);

/// The actors of the newest change of a path, with the whole description of the change.
fn blame(store: &TestStore, path: &str) -> (Vec<Value>, Value) {
    let found = store.json(&["blame", "demo", path]);
    let newest = found["newest"].clone();
    let actors = newest["actors"].as_array().expect("actors").clone();
    (actors, newest)
}

/// Command lines of those who changed a path last.
fn commands(store: &TestStore, path: &str) -> Vec<String> {
    let (actors, _) = blame(store, path);
    actors.iter().map(command).collect()
}

fn command(actor: &Value) -> String {
    let words = actor["process"]["command"].as_array();
    let words = words.map(|words| words.iter().map(|word| word.as_str().unwrap_or("?")));
    words.map_or("?".to_owned(), |words| words.collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn assert_changed_by(store: &TestStore, path: &str, wanted: &str) {
    let found = commands(store, path);
    assert!(
        found.len() == 1 && found[0].contains(wanted),
        "{path} was changed by {found:?}, not by '{wanted}' alone"
    );
}

#[test]
fn fuse_every_way_to_change_a_file_names_the_process_that_did_it() {
    let (store, _) = TestStore::with_small_project();
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        "for n in old grow map both cut; do echo one >$n; done; mkdir dir; echo 1 >dir/in",
    );
    store.commit("demo", "before");
    let script = r#"
        sh -c 'echo from-sh > by-sh'
        sh -c 'sh -c "echo nested > by-nested"'
        sed -i s/one/two/ old
        sh -c 'echo more >> grow'
        python3 -c '
import mmap
with open("map", "r+b") as file:
    with mmap.mmap(file.fileno(), 0) as memory:
        memory[0:3] = b"MAP"
'
        sh -c 'echo a >> both'; bash -c 'echo b >> both'
        truncate -s 1 cut
        cp old copied
        ln -s old symbolic
        ln src/file-2 hard
        mv dir moved
        chmod 700 src
        python3 -c 'import os; os.setxattr("grow", "user.by", b"python")'
        git init -q repository
        git -C repository -c user.name=a -c user.email=a@b commit -q --allow-empty -m empty
    "#;
    shell_ok(&mount.path, script);
    store.commit("demo", "after");
    for (path, wanted) in [
        ("by-sh", "sh -c echo from-sh"),
        ("by-nested", "sh -c echo nested"),
        ("old", "sed -i"),
        ("map", "python3 -c"),
        ("cut", "truncate -s 1"),
        ("copied", "cp old copied"),
        ("symbolic", "ln -s"),
        ("hard", "ln src/file-2 hard"),
        ("dir/in", "mv dir moved"),
        ("moved/in", "mv dir moved"),
        ("src", "chmod 700"),
        ("repository/.git/description", "git init"),
        ("repository/.git/HEAD", "git init"),
    ] {
        assert_changed_by(&store, path, wanted);
    }
    let both = commands(&store, "both");
    assert!(
        both.len() == 2 && both[0].starts_with("sh -c") && both[1].starts_with("bash -c"),
        "{both:?}"
    );
    let grow = commands(&store, "grow");
    assert!(grow.len() == 2 && grow[1].contains("python3"), "{grow:?}");
    let (actors, newest) = blame(&store, "by-nested");
    assert_eq!(newest["change"], "added");
    let ancestors = actors[0]["process"]["ancestors"].as_array().unwrap();
    assert!(
        ancestors.iter().any(|found| found["name"] == "bash"),
        "{ancestors:?}"
    );
    let text = store.ok(&["show", "demo"]).stdout;
    assert!(text.contains("sed -i s/one/two/ old"), "{text}");
    store.unmount(&mount);
}

#[test]
fn fuse_processes_that_live_for_a_moment_are_found() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    let count = 300;
    let script = format!("for i in $(seq {count}); do sh -c \"echo $i >short-$i\"; done");
    shell_ok(&mount.path, &script);
    store.commit("demo", "short");
    let mut known = 0;
    for id in store.log_ids("demo") {
        let shown = store.json(&["show", &format!("demo@{id}"), "--no-patch"]);
        for found in shown["processes"].as_array().unwrap() {
            let is_short = |change: &&Value| {
                let path = change["path"].as_str();
                path.is_some_and(|path| path.starts_with("short-"))
            };
            let shorts = found["paths"].as_array().unwrap().iter().filter(is_short);
            if command(&found["actor"]).starts_with("sh -c echo ") {
                known += shorts.count();
            }
        }
    }
    assert!(known * 20 >= count * 19, "{known} of {count} are known");
    println!("{known} of {count} short-lived processes are known");
    store.unmount(&mount);
}

#[test]
fn fuse_a_writer_that_keeps_its_file_open_is_known_at_every_commit() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    shell_ok(&mount.path, "sh -c 'echo first > log'");
    store.commit("demo", "first");
    let mut writer = Command::new("python3")
        .args([
            "-u",
            "-c",
            "import sys\nwith open('log', 'a') as log:\n for line in sys.stdin:\n  log.write(line); log.flush(); print('done')",
        ])
        .current_dir(&mount.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(writer.stdout.take().unwrap());
    for round in 0..3 {
        use std::io::{BufRead, Write};
        writeln!(input, "line {round}").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        store.commit("demo", &format!("round {round}"));
        assert_changed_by(&store, "log", "import sys");
    }
    drop(input);
    writer.wait().unwrap();
    store.unmount(&mount);
}

#[test]
fn fuse_attribution_survives_a_killed_worker() {
    let (store, _) = TestStore::with_small_project();
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    shell_ok(&mount.path, "echo 1 > gone");
    store.commit("demo", "before");
    shell_ok(
        &mount.path,
        "KURA_RUN_ID=before-death KURA_STEP=4 sh -c 'echo x > made; rm gone'",
    );
    // What a checkpoint has taken out of the journal is known as well.
    store.ok(&["status", "demo"]);
    shell_ok(&mount.path, "sh -c 'echo y > later'");
    store.kill_worker();
    shell_ok(&mount.path, "bash -c 'echo z > afterwards'");
    store.commit("demo", "after the death");
    assert_changed_by(&store, "made", "sh -c echo x > made");
    assert_changed_by(&store, "gone", "rm gone");
    assert_changed_by(&store, "later", "sh -c echo y > later");
    assert_changed_by(&store, "afterwards", "bash -c echo z");
    let (actors, _) = blame(&store, "made");
    assert_eq!(
        (&actors[0]["run"], &actors[0]["step"]),
        (&"before-death".into(), &4.into())
    );
    store.unmount(&mount);
}

#[test]
fn docker_changes_in_containers_carry_container_run_and_step() {
    require_docker("kura-test:small");
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount_with("demo", &["--allow-other"]);
    let volume = format!("{}:/workspace", mount.path.display());
    let plain = Container::start("kura-test:small", &["-v", &volume]);
    let variables = [
        "-v",
        &volume,
        "-e",
        "KURA_RUN_ID=by-variable",
        "-e",
        "KURA_STEP=2",
    ];
    let by_variable = Container::start("kura-test:small", &variables);
    let labels = [
        "-v",
        &volume,
        "--label",
        "kura.run=by-label",
        "--label",
        "kura.step=3",
    ];
    let by_label = Container::start("kura-test:small", &labels);
    plain.ok("cd /workspace; sh -c 'echo 1 > plain'; echo 2 >> README.md");
    by_variable.ok("cd /workspace; sh -c 'echo 1 > variable'");
    by_label.ok("cd /workspace; sh -c 'echo 1 > label'");
    store.commit("demo", "containers");
    for (path, container, run, step) in [
        ("plain", &plain, Value::Null, Value::Null),
        ("README.md", &plain, Value::Null, Value::Null),
        ("variable", &by_variable, "by-variable".into(), 2.into()),
        ("label", &by_label, "by-label".into(), 3.into()),
    ] {
        let (actors, _) = blame(&store, path);
        assert_eq!(actors.len(), 1, "{path}: {actors:?}");
        let id = actors[0]["container"].as_str().unwrap_or_default();
        assert!(
            id.starts_with(container.id()) || container.id().starts_with(id),
            "{path}: {id}"
        );
        assert_eq!(actors[0]["run"], run, "{path}");
        assert_eq!(actors[0]["step"], step, "{path}");
    }
    let text = store
        .ok(&["log", "demo", "--run", "by-label", "--step", "3", "--ids"])
        .stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    let runs = store.ok(&["runs", "demo"]).stdout;
    assert!(
        runs.contains("by-label") && runs.contains("by-variable"),
        "{runs}"
    );
    drop((plain, by_variable, by_label));
    store.unmount(&mount);
}

#[test]
fn fuse_a_run_passes_everything_through_and_commits_what_it_left() {
    let (store, _) = TestStore::with_small_project();
    store.commit_by_hand("demo");
    let mount = store.mount_with("demo", &["--as", "agent"]);
    let before = store.log_ids("demo").len();
    let script = "echo out; echo err >&2; echo made > made; exit 7";
    let ran = store.kura_in(
        &mount.path,
        &["run", "--run-id", "r1", "--", "sh", "-c", script],
    );
    assert_eq!(ran.code, 7, "{ran:?}");
    assert_eq!(ran.stdout, "out\n");
    assert!(
        ran.stderr.contains("err\n") && ran.stderr.contains("run r1 step 1"),
        "{ran:?}"
    );
    assert_eq!(store.log_ids("demo").len(), before + 1);
    let newest = store.json(&["log", "demo", "-n", "1"])["commits"][0].clone();
    assert_eq!(newest["run"], "r1");
    assert_eq!(newest["step"], 1);
    assert_eq!(newest["author"], "agent");
    assert_eq!(newest["message"], format!("sh -c {script}"));

    // A second step; who loses the environment is found by the group or by its ancestors.
    let script = "env -i sh -c 'echo bare > bare'; echo $KURA_RUN_ID $KURA_STEP";
    let ran = store.kura_in(
        &mount.path,
        &["run", "--run-id", "r1", "--", "sh", "-c", script],
    );
    assert_eq!(ran.stdout, "r1 2\n", "{ran:?}");
    let (actors, _) = blame(&store, "bare");
    assert_eq!(
        (&actors[0]["run"], &actors[0]["step"]),
        (&"r1".into(), &2.into())
    );
    assert_eq!(actors[0]["principal"], "agent");

    // Nothing changed: no commit.
    let count = store.log_ids("demo").len();
    store
        .kura_in(&mount.path, &["run", "--run-id", "r1", "--", "true"])
        .ok();
    assert_eq!(store.log_ids("demo").len(), count);

    // Input goes in, signals go on.
    let missing = store.kura_in(&mount.path, &["run", "--", "/does/not/exist"]);
    assert_eq!(missing.code, 127, "{missing:?}");
    let mut child = store
        .command()
        .args(["-q", "run", "--run-id", "signals", "--", "sh", "-c"])
        .arg("read line; trap 'exit 9' TERM; echo got $line; while :; do sleep 0.05; done")
        .current_dir(&mount.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::{BufRead, Write};
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    std::io::BufReader::new(output)
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "got input\n");
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));

    let steps = store.json(&["runs", "demo"])["steps"]
        .as_array()
        .unwrap()
        .clone();
    let of = |run: &str| -> Vec<&Value> {
        let mut found: Vec<_> = steps.iter().filter(|step| step["run"] == run).collect();
        found.sort_by_key(|step| step["step"].as_u64());
        found
    };
    let first = of("r1");
    assert_eq!(first.len(), 3);
    assert_eq!(first[0]["exit_code"], 7);
    assert_eq!(first[0]["principal"], "agent");
    assert_eq!(first[0]["path_count"], 1);
    assert_eq!(first[0]["commits"].as_array().unwrap().len(), 1);
    assert_eq!(first[2]["path_count"], 0);
    assert_eq!(of("signals")[0]["exit_code"], 9);
    store.unmount(&mount);
}

#[test]
fn fuse_an_automatic_commit_inside_a_run_carries_run_and_step() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    let mut child = store
        .command()
        .args([
            "-q",
            "run",
            "--run-id",
            "long",
            "--",
            "sh",
            "-c",
            "echo x > inside; exec sleep 1000",
        ])
        .current_dir(&mount.path)
        .spawn()
        .unwrap();
    let newest = || store.json(&["log", "demo", "-n", "1"])["commits"][0].clone();
    wait_until("the automatic commit", COMMIT_WAIT, || {
        newest()["run"] == "long"
    });
    assert_eq!(newest()["step"], 1);
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    store.unmount(&mount);
}

/// Agent A works in a run of three commands, while B edits other files.
#[test]
fn fuse_an_incident_is_explained_by_log_blame_show_and_audit() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        "mkdir shared; for i in 1 2 3 4; do echo line $i >> shared/text; echo $i > shared/f$i; done",
    );
    store.commit("demo", "before");
    let step = |script: &str| {
        store
            .kura_in(
                &mount.path,
                &["run", "--run-id", "incident", "--", "sh", "-c", script],
            )
            .ok();
    };
    let edit_b = |script: &str| {
        let script = format!("KURA_RUN_ID=b-run sh -c '{script}'");
        shell(&mount.path, &script).ok();
    };
    step("rm shared/f1 shared/f2");
    edit_b("echo by b > shared/b1");
    step("sed -i 's/line 2/RUINED/' shared/text; echo rewritten > shared/f3");
    edit_b("echo line 5 >> shared/text; echo by b > shared/f4");
    step("rm -rf src");
    store.commit("demo", "end");

    for (path, step) in [
        ("shared/f1", 1),
        ("shared/f2", 1),
        ("shared/f3", 2),
        ("src", 3),
        ("src/file-1", 3),
    ] {
        let (actors, _) = blame(&store, path);
        assert_eq!(actors.len(), 1, "{path}: {actors:?}");
        assert_eq!(actors[0]["run"], "incident", "{path}");
        assert_eq!(actors[0]["step"], step, "{path}");
    }
    for path in ["shared/b1", "shared/f4"] {
        let (actors, _) = blame(&store, path);
        assert_eq!(actors[0]["run"], "b-run", "{path}");
    }
    let lines = store.json(&["blame", "demo", "shared/text", "--lines"]);
    let run_of = |number: usize| {
        let origin = lines["lines"][number]["origin"].as_u64().unwrap() as usize;
        let actors = lines["origins"][origin]["actors"].as_array().unwrap();
        actors.last().unwrap()["run"].clone()
    };
    assert_eq!(lines["lines"][1]["text"], "RUINED");
    assert_eq!(run_of(0), Value::Null);
    assert_eq!(run_of(1), "incident");
    assert_eq!(run_of(4), "b-run");

    let of_run = store
        .ok(&["log", "demo", "--run", "incident", "--ids"])
        .stdout;
    let second = store
        .ok(&["log", "demo", "--run", "incident", "--step", "2", "--ids"])
        .stdout;
    assert!(of_run.lines().count() >= 3, "{of_run}");
    assert!(
        second.lines().count() >= 1 && second.len() < of_run.len(),
        "{second}"
    );
    let of_b = store.ok(&["log", "demo", "--run", "b-run", "--ids"]).stdout;
    assert!(!of_b.is_empty());
    let id = second.lines().next().unwrap();
    let shown = store
        .ok(&["show", &format!("demo@{id}"), "--no-patch"])
        .stdout;
    assert!(
        shown.contains("sed -i s/line 2/RUINED/ shared/text"),
        "{shown}"
    );
    assert!(shown.contains("run incident step 2"), "{shown}");

    let entries = store.json(&["audit", "demo"])["entries"]
        .as_array()
        .unwrap()
        .clone();
    let begun: Vec<_> = entries
        .iter()
        .filter(|entry| entry["action"] == "run.begin")
        .collect();
    assert_eq!(begun.len(), 3);
    assert!(
        begun.iter().all(|entry| entry["source"]["pid"].is_u64()),
        "{begun:?}"
    );
    let commits: Vec<_> = entries
        .iter()
        .filter(|entry| entry["action"] == "commit" && entry["source"]["run"] == "incident")
        .collect();
    assert!(commits.len() >= 3, "{entries:?}");
    let here = mount.path.to_str().unwrap();
    assert!(
        commits.iter().all(|entry| entry["source"]["mount"] == here),
        "{commits:?}"
    );
    store.unmount(&mount);
}

#[test]
fn fuse_lines_are_followed_through_renames() {
    let (store, _) = TestStore::with_small_project();
    let mount = store.mount("demo");
    shell_ok(&mount.path, "printf 'a\\nb\\nc\\n' > first");
    let made = store.commit("demo", "make");
    shell_ok(&mount.path, "mkdir d; mv first d/second");
    store.commit("demo", "move");
    shell_ok(&mount.path, "sed -i 's/b/B/' d/second");
    let changed = store.commit("demo", "change");
    let found = store.json(&["blame", "demo", "d/second", "--lines"]);
    let commit_of = |line: usize| {
        let origin = found["lines"][line]["origin"].as_u64().unwrap() as usize;
        found["origins"][origin]["commit"]["id"].clone()
    };
    assert_eq!(
        [commit_of(0), commit_of(1), commit_of(2)],
        [made.as_str(), &changed, &made].map(Value::from)
    );
    let text = store.ok(&["blame", "demo", "d/second", "--lines"]).stdout;
    assert_eq!(text.lines().count(), 3);
    store.unmount(&mount);
}

#[test]
fn g10_the_head_of_the_audit_log_is_an_anchor() {
    let (store, _) = TestStore::with_small_project();
    let file = store.scratch("head.txt");
    let head = store.ok(&["audit", "head", "--sign"]).stdout;
    std::fs::write(&file, &head).unwrap();
    let file = file.to_str().unwrap();
    store.ok(&["audit", "verify", "--head", file]);
    store.ok(&["tag", "create", "demo", "later"]);
    let verified = store.ok(&["audit", "verify", "--head", file]);
    assert!(verified.stderr.contains("intact"), "{verified:?}");
    let json = store.scratch("head.json");
    std::fs::write(&json, store.ok(&["audit", "head", "--json"]).stdout).unwrap();
    store.ok(&["audit", "verify", "--head", json.to_str().unwrap()]);
    for (from, to) in [
        ("sequence ", "sequence 1"),
        ("hash ", "hash 0"),
        ("signature ", "signature 0"),
    ] {
        std::fs::write(file, head.replacen(from, to, 1)).unwrap();
        let refused = store.kura(&["audit", "verify", "--head", file]);
        assert_eq!(refused.code, 7, "{from}: {refused:?}");
    }
    let unsigned: String = head
        .lines()
        .filter(|line| !line.starts_with("public-key") && !line.starts_with("signature"))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(file, &unsigned).unwrap();
    store.ok(&["audit", "verify", "--head", file]);
    // Without a signature it is the chain itself that doesn't lead there.
    let hash = unsigned
        .lines()
        .find_map(|line| line.strip_prefix("hash "))
        .unwrap();
    let other = if hash.starts_with('0') { "1" } else { "0" };
    let other = unsigned.replace(hash, &format!("{other}{}", &hash[1..]));
    std::fs::write(file, other).unwrap();
    let refused = store.kura(&["audit", "verify", "--head", file]);
    assert_eq!(refused.code, 7, "{refused:?}");
    std::fs::write(file, unsigned.replacen("sequence ", "sequence 9", 1)).unwrap();
    let refused = store.kura(&["audit", "verify", "--head", file]);
    assert!(refused.stderr.contains("ends before"), "{refused:?}");
}
