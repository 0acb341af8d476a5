//! What principals with tokens come to know and do of histories: runs, merges, conflicts, blame.

use std::fs;

use e2e::{Agent, TestStore, demo, run, shell_ok};
use serde_json::Value;

const DENIED: i32 = 5;
const NOT_FOUND: i32 = 4;

#[test]
fn g9_taking_a_run_out_neither_tells_nor_touches_what_is_hidden() {
    let store = TestStore::new();
    let agent = demo(&store);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let commit = |script: &str, run: &str| {
        shell_ok(&mount.path, script);
        store.ok(&["commit", "demo", "-m", "x", "--run", run]);
    };
    commit("echo bad >docs/text; echo bad >docs/id.key", "both");
    commit("echo bad >vault/plan-x", "secret");
    commit("echo later >docs/id.key", "later");
    let answer = |run: &str| {
        let run_of_it = agent.kura(&["rollback", "demo", "--run", run, "--yes"]);
        (run_of_it.code, run_of_it.stderr.replace(run, "RUN"))
    };
    assert_eq!(answer("secret"), answer("never"));
    agent.ok(&["rollback", "demo", "--run", "both", "--yes"]);
    let content = |path: &str| fs::read_to_string(mount.join(path)).expect("content");
    assert_eq!(content("docs/text"), "text\n");
    assert_eq!(content("docs/id.key"), "later\n");
    assert_eq!(content("vault/plan-x"), "bad\n");
    assert_eq!(
        store.json(&["conflicts", "demo"])["conflicts"],
        serde_json::json!([])
    );
}

#[test]
fn g9_what_others_left_hidden_and_uncommitted_is_not_told() {
    let store = TestStore::new();
    let agent = demo(&store);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    shell_ok(&mount.path, "echo changed >docs/text");
    store.commit("demo", "visible");
    shell_ok(&mount.path, "echo more >>docs/id.key");
    let back = agent.json(&["rollback", "demo", "HEAD~1", "--yes"]);
    assert_eq!(back["rescue"], Value::Null, "{back}");
    assert!(back["commit"].is_string(), "{back}");
    shell_ok(&mount.path, "echo still more >>docs/id.key");
    let commit = agent.json(&["commit", "demo", "-m", "mine"]);
    assert_eq!(commit["is_new"], false, "{commit}");
    assert_eq!(commit["commit"], back["commit"], "{commit}");
    // Both were committed all the same.
    let kept = store.ok(&["cat", "demo@HEAD:docs/id.key"]).stdout;
    assert!(kept.ends_with("more\nstill more\n"), "{kept}");
}

#[test]
fn g9_going_back_leaves_conflicts_of_hidden_paths_alone() {
    let store = TestStore::new();
    let agent = demo(&store);
    let before = store.head("demo");
    store.ok(&["fork", "demo", "other"]);
    for (name, word) in [("demo", "ours"), ("other", "theirs")] {
        let mount = store.mount(name);
        shell_ok(
            &mount.path,
            &format!("echo {word} >docs/text; printf '\\0{word}' >docs/id.key"),
        );
        store.commit(name, word);
        store.unmount(&mount);
    }
    let merged = store.kura(&["merge", "demo", "other"]);
    assert_eq!(merged.code, 8, "{merged}");
    let paths = || -> Vec<String> {
        let list = store.json(&["conflicts", "demo"]);
        let list = list["conflicts"].as_array().unwrap().clone();
        list.iter()
            .map(|conflict| conflict["path"].as_str().unwrap().to_owned())
            .collect()
    };
    // A file is told by the first of its names.
    assert_eq!(paths(), ["docs/id.key", "docs/name"]);
    agent.ok(&["rollback", "demo", &before, "--yes"]);
    assert_eq!(paths(), ["docs/id.key"]);
    agent.ok(&["undo", "demo", "--yes"]);
    assert_eq!(paths(), ["docs/id.key", "docs/name"]);
}

#[test]
fn g9_blame_and_runs_tell_what_can_be_seen() {
    let store = TestStore::new();
    let agent = demo(&store);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let owner = |run: &str, script: &str| {
        let command = ["run", "--run-id", run, "--", "sh", "-c", script];
        store.kura_in(&mount.path, &command).ok();
        store.head("demo")
    };
    let visible = owner("open", "echo more >>docs/text");
    let hidden = owner(
        "secret",
        "echo x >>docs/id.key; printf 'one\ntwo\n' >vault/plan",
    );
    let both = owner("both", "mv vault/plan docs/plan; echo y >>docs/id.key");

    // The last change of a directory is the last one that can be seen of it.
    let changed = |path: &str| agent.json(&["blame", "demo", path])["newest"].clone();
    assert_eq!(changed("docs/text")["commit"]["id"], visible);
    assert_eq!(changed("docs")["commit"]["id"], both);
    assert_eq!(
        agent.json(&["blame", "demo@HEAD~1", "docs"])["newest"]["commit"]["id"],
        visible
    );
    // A file that came out of a hidden place is new; the owner knows better.
    let origins = |found: &Value| -> Vec<String> {
        let list = found["origins"].as_array().unwrap().iter();
        list.map(|origin| origin["commit"]["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let arguments = ["blame", "demo", "docs/plan", "--lines"];
    let seen = agent.json(&arguments);
    assert_eq!(origins(&seen), std::slice::from_ref(&both));
    assert_eq!(seen["newest"]["commit"]["message"], "");
    assert_eq!(seen["newest"]["actors"][0].get("process"), None, "{seen}");
    let all = store.json(&arguments);
    assert!(origins(&all).contains(&hidden), "{all}");

    // A run that changed hidden paths only doesn't exist; of another one that part doesn't.
    let listed = |runs: &Value| -> Vec<(String, u64, usize)> {
        let steps = runs["steps"].as_array().unwrap().iter();
        let step = |step: &Value| {
            let words = step["command"].as_array().map_or(0, Vec::len);
            let run = step["run"].as_str().unwrap().to_owned();
            (run, step["path_count"].as_u64().unwrap(), words)
        };
        steps.map(step).collect()
    };
    let named = |run: &str, paths: u64, words: usize| (run.to_owned(), paths, words);
    assert_eq!(
        listed(&agent.json(&["runs", "demo"])),
        [named("both", 1, 0), named("open", 2, 0)]
    );
    assert_eq!(
        listed(&store.json(&["runs", "demo"])),
        [
            named("both", 3, 3),
            named("secret", 2, 3),
            named("open", 2, 3)
        ]
    );
}

#[test]
fn g9_a_principal_runs_merges_and_resolves_with_its_token() {
    let store = TestStore::new();
    let ada = demo(&store);
    let bob = Agent::new(&store, "bob");
    bob.grant("/", "write");
    store.ok(&["fork", "demo", "other"]);
    store.ok(&["revoke", "other", "bob", "/"]);
    for (name, word) in [("demo", "ours"), ("other", "theirs")] {
        let mount = store.mount(name);
        shell_ok(&mount.path, &format!("echo {word} >src/main.rs"));
        store.commit(name, word);
        store.unmount(&mount);
    }
    // Of what one has no grant for nobody hears whether it is there.
    let merge = |agent: &Agent<'_>, from: &str| agent.kura(&["merge", "demo", from]);
    let (there, absent) = (merge(&bob, "other"), merge(&bob, "where"));
    assert_eq!((there.code, absent.code), (NOT_FOUND, NOT_FOUND));
    assert_eq!(there.stderr, absent.stderr.replace("where", "other"));
    assert_eq!(merge(&ada, "other").code, DENIED);
    // Everything comes along, so everything must be seen.
    store.ok(&["grant", "other", "bob", "/", "read"]);
    store.ok(&["grant", "other", "bob", "vault", "hidden"]);
    assert_eq!(merge(&bob, "other").code, DENIED);
    store.ok(&["revoke", "other", "bob", "vault"]);
    let merged = merge(&bob, "other");
    assert_eq!(merged.code, 8, "{merged}");
    let conflicts = bob.json(&["conflicts", "demo"]);
    assert_eq!(conflicts["conflicts"][0]["path"], "src/main.rs");
    ada.refused(DENIED, &["resolve", "demo", "src/main.rs", "--ours"]);
    bob.ok(&["resolve", "demo", "src/main.rs", "--theirs"]);
    assert_eq!(bob.ok(&["cat", "demo:src/main.rs"]).stdout, "theirs\n");
    let newest = &bob.json(&["log", "demo"])["commits"][0];
    assert_eq!(newest["author"], "bob");

    // What is run belongs to the token's principal; only its own step can be ended.
    let mount = store.mount("demo");
    let mut command = store.command();
    command
        .env("KURA_TOKEN_FILE", &bob.token)
        .args(["run", "--workspace", "demo", "--run-id", "mine", "--"])
        .args(["sh", "-c", "echo bob >src/main.rs; exit 3"]);
    let ended = run(command.current_dir(&mount.path));
    assert_eq!(ended.code, 3, "{ended}");
    let step = &bob.json(&["runs", "demo"])["steps"][0];
    assert_eq!(
        (&step["run"], &step["principal"], &step["exit_code"]),
        (&"mine".into(), &"bob".into(), &3.into())
    );
    assert_eq!(step["path_count"], 1, "{step}");
    let other_step = r#"{"run": "mine", "step": 1, "message": ""}"#;
    let (status, answer) = ada.request("POST", "/v1/workspaces/demo/runs/end", other_step);
    assert_eq!(status, 404, "{answer}");
    // Who may write nothing runs nothing.
    let reader = Agent::new(&store, "reader");
    reader.grant("/", "read");
    reader.refused(DENIED, &["run", "--workspace", "demo", "--", "true"]);
}

#[test]
fn g9_messages_conflicts_and_filters_tell_nothing_hidden() {
    let store = TestStore::new();
    let agent = demo(&store);
    store.ok(&["principal", "add", "ann"]);
    store.ok(&["grant", "demo", "ann", "/", "write"]);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let owner =
        |arguments: &[&str]| store.kura(&[&arguments[..1], &["demo"], &arguments[1..]].concat());
    let seen = |verb: &[&str]| {
        let run = agent.ok(&[verb, &["--json"]].concat());
        for word in ["plan-x", "vault", "secretrun", "PRIVATE", "twin"] {
            assert!(!run.stdout.contains(word), "{word} in {run}");
        }
        run.stdout
    };
    let everywhere = || {
        for verb in ["log", "operations", "show", "conflicts", "status", "runs"] {
            seen(&[verb, "demo"]);
        }
    };

    // A command line may say anything.
    let script = "echo x >>docs/text # vault";
    let command = ["run", "--run-id", "open", "--", "sh", "-c", script];
    store.kura_in(&mount.path, &command).ok();
    everywhere();

    // Conflicts of hidden paths, by a merge and by taking out; their ends, and the undoing.
    store.ok(&["branch", "create", "demo", "hush"]);
    let other = store.mount("demo@hush");
    for (mount, mode) in [(&mount, "600"), (&other, "640")] {
        shell_ok(&mount.path, &format!("chmod {mode} vault/plan-x"));
    }
    store.ok(&["commit", "demo", "-m", "a"]);
    store.ok(&["commit", "demo", "--branch", "hush", "-m", "b"]);
    let commits = agent.json(&["log", "demo"])["commits"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(owner(&["merge", "hush"]).code, 8);
    owner(&["resolve", "vault/plan-x"]).ok();
    owner(&["undo", "--yes"]).ok();
    owner(&["resolve", "vault/plan-x"]).ok();
    let log = agent.json(&["log", "demo"]);
    assert_eq!(log["commits"].as_array().unwrap().len(), commits, "{log}");
    for verb in ["log", "show", "conflicts", "runs"] {
        seen(&[verb, "demo"]);
    }
    store.unmount(&other);
    store.ok(&["branch", "delete", "demo", "hush", "--yes"]);

    // What somebody did to hidden paths is found by no filter.
    let by_ann = store.scratch_directory("ann");
    store.ok(&["mount", "demo", by_ann.to_str().unwrap(), "--as", "ann"]);
    shell_ok(&by_ann, "echo h >>vault/plan-x");
    shell_ok(
        &mount.path,
        "KURA_RUN_ID=secretrun sh -c 'echo k >>vault/deep/launch-codes'; echo v >>docs/text",
    );
    store.ok(&["commit", "demo", "-m", "both"]);
    let count = |filter: &[&str]| {
        let log = agent.json(&[&["log", "demo"], filter].concat());
        log["commits"].as_array().unwrap().len()
    };
    assert_eq!(
        (count(&["--by", "ann"]), count(&["--run", "secretrun"])),
        (0, 0)
    );
    assert_eq!(count(&["--run", "open"]), 1);
    store.ok(&["umount", by_ann.to_str().unwrap()]);

    // Of a conflict that can be seen, not whose the other side was.
    store.ok(&["fork", "demo", "twin"]);
    store.ok(&["revoke", "twin", "ada", "docs/**"]);
    store.ok(&["revoke", "twin", "ada", "/"]);
    let twin = store.mount("twin");
    for (mount, word) in [(&mount, "ours"), (&twin, "theirs")] {
        shell_ok(&mount.path, &format!("printf '\\0{word}' >src/main.rs"));
    }
    store.commit("twin", "in the other one");
    store.commit("demo", "here");
    shell_ok(&twin.path, "echo more >>vault/plan-x");
    store.commit("twin", "hidden");
    let hidden = store.head("twin");
    assert_eq!(owner(&["merge", "twin"]).code, 8);
    for verb in ["conflicts", "status", "log"] {
        let text = seen(&[verb, "demo"]);
        assert!(!text.contains(&hidden), "{text}");
    }
    assert_eq!(
        agent.json(&["conflicts", "demo"])["conflicts"][0]["path"],
        "src/main.rs"
    );
}

#[test]
fn g9_a_step_is_ended_once_by_who_may_write() {
    let store = TestStore::new();
    let agent = demo(&store);
    store.commit_by_hand("demo");
    let post = |what: &str, body: &str| {
        agent.request("POST", &format!("/v1/workspaces/demo/{what}"), body)
    };
    let begin = |step: &str| {
        let body = format!(r#"{{"command": ["x"], "run": "r", "step": {step}}}"#);
        post("runs/begin", &body).0
    };
    let end = || {
        post(
            "runs/end",
            r#"{"run": "r", "step": 1, "exit_code": 0, "message": "m"}"#,
        )
        .0
    };
    for step in ["9223372036854775807", "18446744073709551615", "1000000001"] {
        assert_eq!(begin(step), 400, "{step}");
    }
    assert_eq!(begin("1"), 200);
    agent.grant("docs/**", "read");
    assert_eq!(end(), 403);
    agent.grant("docs/**", "write");
    assert_eq!((end(), end()), (200, 409));
    let bad = r#"{"message": "c", "run": "bad id", "step": 1}"#;
    assert_eq!(post("commits", bad).0, 400);
    // A command line is kept for ever: a part of it, and no token.
    let secret = fs::read_to_string(&agent.token).unwrap();
    let words = format!("{} {}", secret.trim(), "x".repeat(100_000));
    let body = format!(r#"{{"command": ["{words}"], "run": "long"}}"#);
    assert_eq!(post("runs/begin", &body).0, 200);
    let runs = store.ok(&["runs", "demo", "--json"]).stdout;
    assert!(
        runs.contains("kura_…") && runs.len() < 10_000,
        "{}",
        runs.len()
    );
    let mount = store.mount("demo");
    shell_ok(
        &mount.path,
        &format!("sh -c 'echo $0 >src/told' {}", secret.trim()),
    );
    store.commit("demo", "told");
    let audit = store.ok(&["audit", "demo", "--json"]).stdout;
    assert!(!audit.contains(secret.trim()), "{audit}");
    let blame = store.ok(&["blame", "demo", "src/told", "--json"]).stdout;
    assert!(
        blame.contains("kura_…") && !blame.contains(secret.trim()),
        "{blame}"
    );
}
