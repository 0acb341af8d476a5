//! Who may see and do what through the API and the CLI: real sockets, tokens and binaries.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use e2e::{
    Agent, Run, TestStore, binary, demo, request, require_docker, run, shell_ok, wait_until,
};
use serde_json::Value;

const DENIED: i32 = 5;
const NOT_FOUND: i32 = 4;

/// What nobody but the owner may come to know: names and contents of the hidden paths.
const HIDDEN_WORDS: [&str; 6] = [
    "plan-x",
    "launch-codes",
    "id.key",
    "PRIVATE-BYTES",
    "vault",
    "secret-message",
];

fn import(store: &TestStore, script: &str, arguments: &[&str]) -> Run {
    let source = tempfile::tempdir_in("/var/tmp").expect("a directory");
    shell_ok(source.path(), script);
    let mut command = store.command();
    command.args(["import", "demo", "--yes"]).arg(source.path());
    run(command.args(arguments))
}

#[test]
fn g9_what_is_hidden_is_in_no_verb_of_a_principal() {
    let store = TestStore::new();
    let agent = demo(&store);
    import(
        &store,
        "mkdir vault; echo new PRIVATE-BYTES >vault/plan-x",
        &["-m", "secret-message of the vault"],
    )
    .ok();
    let hidden_commit = store.head("demo");
    import(
        &store,
        "mkdir docs vault; echo changed >docs/text; mv docs/text docs/other; echo y >vault/plan-x",
        &["-m", "secret-message of both"],
    )
    .ok();
    let both = store.head("demo");
    store.ok(&["tag", "create", &format!("demo@{hidden_commit}"), "v1"]);

    let verbs: Vec<Vec<&str>> = [
        "list",
        "status demo",
        "ls demo",
        "ls -R demo",
        "ls -Rl demo",
        "ls -Rl demo@HEAD~1",
        "ls -l demo:docs",
        "ls -Rl demo@v1",
        "log demo",
        "log demo docs",
        "log demo docs/text",
        "show demo",
        "show demo@HEAD~1",
        "show demo@v1",
        "diff demo HEAD~1 HEAD",
        "diff demo HEAD~1 HEAD --stat",
        "diff demo HEAD~1 HEAD --name-status",
        "diff demo HEAD HEAD~1 --no-renames",
        "blame demo docs",
        "blame demo docs/other --lines",
        "blame demo src/main.rs",
        "runs demo",
        "conflicts demo",
        "operations demo",
        "branch list demo",
        "tag list demo",
        "grants demo",
        "config list --workspace demo",
        "rollback demo HEAD~1 --dry-run",
        "restore demo docs/text --from HEAD~1 --dry-run",
        "ls-mounts",
    ]
    .iter()
    .map(|verb| verb.split(' ').collect())
    .collect();
    for verb in &verbs {
        for format in [&[][..], &["--json"]] {
            let run = agent.kura(&[verb.as_slice(), format].concat());
            assert!([0, DENIED].contains(&run.code), "{run}");
            let all = format!("{}{}", run.stdout, run.stderr);
            for word in HIDDEN_WORDS {
                assert!(!all.contains(word), "{word} in {run}");
            }
            assert!(
                !all.contains(&hidden_commit[..12]),
                "a hidden commit: {run}"
            );
        }
    }
    for path in ["vault", "vault/plan-x", "vault/deep", "docs/id.key"] {
        for verb in [
            vec!["cat".to_owned(), format!("demo:{path}")],
            vec!["ls".to_owned(), format!("demo:{path}")],
            vec!["cat".to_owned(), format!("demo@HEAD~1:{path}")],
            vec!["log".to_owned(), "demo".to_owned(), path.to_owned()],
            vec!["blame".to_owned(), "demo".to_owned(), path.to_owned()],
            ["blame", "demo", path, "--lines"]
                .map(str::to_owned)
                .to_vec(),
            ["restore", "demo", path, "--from", "HEAD~1", "--yes"]
                .map(str::to_owned)
                .to_vec(),
        ] {
            let verb: Vec<&str> = verb.iter().map(String::as_str).collect();
            let hidden = agent.refused(NOT_FOUND, &verb);
            // What isn't there at all is spoken of in the same words.
            let absent: Vec<String> = verb
                .iter()
                .map(|word| word.replace(path, &"z".repeat(path.len())))
                .collect();
            let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
            let absent = agent.refused(NOT_FOUND, &absent);
            let same = absent.stderr.replace(&"z".repeat(path.len()), path);
            assert_eq!(hidden.stderr, same);
        }
        let diff = agent.ok(&["diff", "demo", "HEAD~1", "HEAD", "--", path]);
        assert_eq!(diff.stdout, "", "{diff}");
    }
    // What the owner sees has it all: the words above are the right ones.
    let everything = store.ok(&["ls", "-R", "demo"]).stdout;
    for word in ["vault", "id.key"] {
        assert!(everything.contains(word));
    }
    assert!(store.ok(&["log", "demo"]).stdout.contains("secret-message"));

    // The commit that changed only hidden paths doesn't exist; the one before it stands for it.
    let ids = agent.ok(&["log", "demo", "--ids"]).stdout;
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids[0], both);
    assert!(!ids.contains(&hidden_commit.as_str()));
    assert_eq!(ids.len() + 1, store.log_ids("demo").len());
    let shown = agent.json(&["show", &format!("demo@{hidden_commit}")]);
    assert_eq!(shown["commit"]["id"], ids[1]);
    let step_back = agent.json(&["show", "demo@HEAD~1"]);
    assert_eq!(step_back["commit"]["id"], ids[1]);
    let shown = agent.json(&["show", "demo"]);
    assert_eq!(shown["commit"]["parents"], serde_json::json!([ids[1]]));
    assert_eq!(shown["commit"]["message"], "");
    let listed = agent.json(&["ls", "-l", "demo:docs"]);
    for entry in listed["entries"].as_array().unwrap() {
        assert_eq!(entry["link_count"], 1, "{entry}");
    }
}

#[test]
fn g9_two_principals_see_two_workspaces_and_grants_count_at_once() {
    let store = TestStore::new();
    let ada = demo(&store);
    let bob = Agent::new(&store, "bob");
    bob.refused(NOT_FOUND, &["ls", "demo"]);
    assert_eq!(bob.json(&["list"])["workspaces"], serde_json::json!([]));
    bob.grant("vault/deep/launch-codes", "read");
    assert_eq!(
        bob.ok(&["ls", "-R", "demo"]).stdout,
        "vault/\nvault/deep/\nvault/deep/launch-codes\n"
    );
    assert_eq!(
        bob.ok(&["cat", "demo:vault/deep/launch-codes"]).stdout,
        "x\n"
    );
    bob.refused(NOT_FOUND, &["cat", "demo:vault/plan-x"]);
    bob.refused(NOT_FOUND, &["cat", "demo:src/main.rs"]);
    ada.refused(NOT_FOUND, &["cat", "demo:vault/deep/launch-codes"]);
    assert_eq!(ada.ok(&["cat", "demo:src/main.rs"]).stdout, "main\n");

    // Groups, own rules before a group's, ends, revocation, undo: from one request to the next.
    store.ok(&["group", "add", "team", "bob"]);
    store.ok(&["grant", "demo", "@team", "src", "read"]);
    assert_eq!(bob.ok(&["cat", "demo:src/main.rs"]).stdout, "main\n");
    bob.grant("src", "hidden");
    bob.refused(NOT_FOUND, &["cat", "demo:src/main.rs"]);
    store.ok(&["revoke", "demo", "bob", "src"]);
    bob.ok(&["cat", "demo:src/main.rs"]);
    store.ok(&["undo", "demo", "--yes"]);
    bob.refused(NOT_FOUND, &["cat", "demo:src/main.rs"]);
    store.ok(&["undo", "demo", "--yes"]);
    store.ok(&["group", "remove", "team", "bob"]);
    bob.refused(NOT_FOUND, &["cat", "demo:src/main.rs"]);
    store.ok(&["grant", "demo", "bob", "docs", "read", "--until", "2s"]);
    bob.ok(&["cat", "demo:docs/text"]);
    wait_until("the grant ends", Duration::from_secs(10), || {
        bob.kura(&["cat", "demo:docs/text"]).code == NOT_FOUND
    });

    // Which grant decides is said to the owner, and to a principal of itself.
    let decision = store.json(&["grants", "demo", "--of", "ada", "--path", "docs/id.key"]);
    assert_eq!(decision["decision"]["access"], "hidden");
    assert_eq!(decision["decision"]["decided_by"][0]["pattern"], "*.key");
    let own = ada.json(&["grants", "demo", "--of", "ada", "--path", "docs/text"]);
    assert_eq!(own["decision"]["access"], "write");
    ada.refused(DENIED, &["grants", "demo", "--of", "bob"]);

    // A fork takes the grants along, and a principal can't make one of what it doesn't see.
    ada.refused(DENIED, &["fork", "demo", "copy"]);
    store.ok(&["fork", "demo", "copy"]);
    ada.refused(NOT_FOUND, &["cat", "copy:vault/plan-x"]);
    ada.ok(&["cat", "copy:src/main.rs"]);
}

#[test]
fn g9_tokens_end_when_they_expire_are_revoked_or_their_principal_is_disabled() {
    let store = TestStore::new();
    let agent = demo(&store);
    let mode = fs::metadata(&agent.token).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    agent.ok(&["ls", "demo"]);
    let secret = fs::read_to_string(&agent.token).unwrap();
    let path = "/v1/workspaces";
    for wrong in [
        None,
        Some(""),
        Some("kura_"),
        Some("kura_0000000000000000000000000000000000000000000000000000000000000000"),
        Some(&secret[..secret.len() - 2]),
        Some(&secret.trim().to_uppercase()),
    ] {
        let (status, answer) = request(&store, "GET", path, wrong, "");
        assert_eq!(status, 401, "{wrong:?}: {answer}");
    }
    let spoofed = format!("{}\r\nX-Principal: root", secret.trim());
    assert_eq!(request(&store, "GET", path, Some(&spoofed), "").0, 200);

    agent.new_token(&["--expires", "2s"]);
    agent.ok(&["ls", "demo"]);
    wait_until("the token expires", Duration::from_secs(10), || {
        agent.kura(&["ls", "demo"]).code == DENIED
    });
    agent.new_token(&[]);
    agent.ok(&["ls", "demo"]);
    let tokens = store.json(&["principal", "token", "list", "ada"]);
    let last = tokens["tokens"].as_array().unwrap().last().unwrap();
    assert_eq!(last["is_good"], true);
    assert!(!tokens.to_string().contains(secret.trim()));
    store.ok(&["principal", "token", "revoke", last["id"].as_str().unwrap()]);
    agent.refused(DENIED, &["ls", "demo"]);
    agent.new_token(&[]);
    agent.ok(&["ls", "demo"]);
    store.ok(&["principal", "disable", "ada"]);
    agent.refused(DENIED, &["ls", "demo"]);
    store.ok(&["principal", "enable", "ada"]);
    agent.ok(&["ls", "demo"]);
    // The daemon begins anew, the token stays good; no secret is in the store or its log.
    store.kill_worker();
    store.daemon();
    agent.ok(&["ls", "demo"]);
    let secret = fs::read_to_string(&agent.token).unwrap();
    let found = run(Command::new("grep")
        .args(["-rlF", secret.trim()])
        .arg(store.path()));
    assert_eq!(found.stdout, "", "{found}");
}

#[test]
fn g9_a_principal_changes_what_it_may_write_and_nothing_else() {
    let store = TestStore::new();
    let agent = demo(&store);
    let first = store.head("demo");
    import(
        &store,
        "mkdir docs vault; echo changed >docs/text; echo more >docs/more
         echo new >vault/plan-x; echo new >docs/id.key",
        &[],
    )
    .ok();
    let content = |path: &str| store.ok(&["cat", &format!("demo:{path}")]).stdout;
    // A whole rollback of what it sees: hidden paths stay as they are.
    agent.ok(&["rollback", "demo", &first, "--yes"]);
    assert_eq!(content("docs/text"), "text\n");
    assert_eq!(store.kura(&["cat", "demo:docs/more"]).code, NOT_FOUND);
    assert_eq!(content("vault/plan-x"), "new\n");
    assert_eq!(content("docs/id.key"), "new\n");
    assert_eq!(store.json(&["show", "demo"])["commit"]["author"], "ada");
    agent.ok(&["undo", "demo", "--yes"]);
    assert_eq!(content("docs/text"), "changed\n");
    assert_eq!(content("vault/plan-x"), "new\n");
    agent.ok(&["restore", "demo", "docs", "--from", &first, "--yes"]);
    assert_eq!(content("docs/text"), "text\n");
    assert_eq!(content("docs/id.key"), "new\n");

    // What it may only read.
    import(&store, "mkdir src; echo changed >src/main.rs", &[]).ok();
    agent.refused(
        DENIED,
        &["restore", "demo", "src/main.rs", "--from", &first, "--yes"],
    );
    let refused = agent.refused(DENIED, &["rollback", "demo", &first, "--yes"]);
    assert!(refused.stderr.contains("src/main.rs"), "{refused}");
    assert_eq!(content("src/main.rs"), "changed\n");
    agent.refused(
        DENIED,
        &["restore", "demo", "src", "--from", &first, "--dry-run"],
    );

    // The whole workspace is the matter of those who may write all of it.
    for verb in [
        &["branch", "create", "demo", "mine"][..],
        &["tag", "create", "demo", "mine"],
        &["handoff", "demo", "--to", "ada"],
        &[
            "config",
            "set",
            "commit.quiet-ms",
            "100",
            "--workspace",
            "demo",
        ],
    ] {
        agent.refused(DENIED, verb);
    }

    // The administrator may act as a principal, which has the principal's rights.
    let denied = import(&store, "mkdir src; echo x >src/main.rs", &["--as", "ada"]);
    assert_eq!(denied.code, DENIED, "{denied}");
    import(
        &store,
        "mkdir docs; echo by ada >docs/text",
        &["--as", "ada"],
    )
    .ok();
    assert_eq!(content("docs/text"), "by ada\n");
    // And can't name one that there isn't: it would have no rules.
    let unknown = import(&store, "mkdir src; echo x >src/main.rs", &["--as", "adda"]);
    assert_eq!(unknown.code, NOT_FOUND, "{unknown}");
    assert_eq!(content("src/main.rs"), "changed\n");
    let other = agent.kura(&["rollback", "demo", &first, "--yes", "--as", "root"]);
    assert_eq!(other.code, DENIED, "{other}");
    let reserved = store.kura(&["principal", "add", "root"]);
    assert_ne!(reserved.code, 0);
}

#[test]
fn g9_a_hash_is_no_capability() {
    let store = TestStore::new();
    let agent = demo(&store);
    let source = store.scratch_directory("other");
    shell_ok(&source, "echo PRIVATE-BYTES >plan-x");
    store.init("other", Some(&source));
    let foreign = store.head("other");
    let tree = store.json(&["show", "demo"])["commit"]["tree"].clone();
    let tree = tree.as_str().unwrap();
    for id in [&foreign, &foreign[..16], tree, &"0".repeat(64)] {
        for verb in ["ls", "show"] {
            agent.refused(NOT_FOUND, &[verb, &format!("demo@{id}")]);
        }
        agent.refused(NOT_FOUND, &["diff", "demo", id, "HEAD"]);
        agent.refused(NOT_FOUND, &["rollback", "demo", id, "--yes"]);
        agent.refused(
            NOT_FOUND,
            &["restore", "demo", "docs/text", "--from", id, "--yes"],
        );
    }
    agent.refused(NOT_FOUND, &["ls", "other"]);
    agent.refused(NOT_FOUND, &["ls", &format!("other@{foreign}")]);
    let missing = agent.refused(NOT_FOUND, &["ls", "other"]).stderr;
    let absent = agent.refused(NOT_FOUND, &["ls", "never"]).stderr;
    assert_eq!(missing, absent.replace("never", "other"));
}

#[test]
fn g9_every_route_that_is_not_opened_is_closed_to_principals() {
    let store = TestStore::new();
    let agent = demo(&store);
    let (_, document) = agent.request("GET", "/v1/openapi.json", "");
    let document: Value =
        serde_json::from_str(&document[document.find("\r\n\r\n").unwrap() + 4..]).unwrap();
    let nobody = Agent::new(&store, "nobody");
    let mut denied = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let filled = path
                .replace("{workspace}", "demo")
                .replace("{name}", "main");
            // Without grants, nothing of the workspace is there.
            let (status, answer) = nobody.request(&method, &filled, "{}");
            match path.as_str() {
                "/v1/version" | "/v1/openapi.json" | "/v1/audit" => {}
                "/v1/workspaces" | "/v1/mounts" if method == "GET" => assert_eq!(status, 200),
                _ => assert!(
                    [400, 403, 404].contains(&status),
                    "{method} {path}: {answer}"
                ),
            }
            assert!(!answer.contains("vault"), "{method} {path}: {answer}");
            denied += u32::from(status == 403);
        }
    }
    assert!(denied >= 20, "{denied}");
    // What makes the daemon touch the host's files, or is the owner's alone.
    let target = store.scratch("out");
    let target = target.to_str().unwrap();
    for verb in [
        &["export", "demo", target][..],
        &["import", "demo", "/etc", "--yes"],
        &["init", "mine"],
        &["mount", "demo", target],
        &["umount", target],
        &["principal", "list"],
        &["principal", "add", "eve"],
        &["principal", "token", "create", "ada"],
        &["principal", "token", "list"],
        &["group", "add", "team", "ada"],
        &["grant", "demo", "ada", "/", "write"],
        &["revoke", "demo", "ada", "vault"],
        &["daemon", "stop"],
        &["purge", "demo", "docs/text", "--yes"],
        &["ui", "demo", "--no-open"],
        &["audit", "--verify"],
        &["audit", "--by", "root"],
    ] {
        agent.refused(DENIED, verb);
    }
    assert!(!fs::exists(target).unwrap());
    agent.refused(NOT_FOUND, &["cat", "demo:vault/plan-x"]);
}

#[test]
fn g10_denials_are_in_the_audit_log_under_the_principal_of_the_token() {
    let store = TestStore::new();
    let agent = demo(&store);
    for _ in 0..20 {
        agent.refused(NOT_FOUND, &["cat", "demo:vault/plan-x"]);
    }
    agent.refused(DENIED, &["grant", "demo", "ada", "/", "write"]);
    agent.refused(DENIED, &["branch", "create", "demo", "mine"]);
    assert_eq!(request(&store, "GET", "/v1/workspaces", None, "").0, 401);
    // Repetitions are written when the window or the daemon ends.
    store.stop_daemon().ok();
    let audit = store.json(&["audit", "-n", "1000"]);
    let denied: Vec<(&str, &str, &str)> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["outcome"] == "denied")
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap();
            (text("principal"), text("action"), text("target"))
        })
        .collect();
    let count = |action: &str, target: &str| {
        denied
            .iter()
            .filter(|denial| **denial == ("ada", action, target))
            .count()
    };
    assert_eq!(count("content", "vault/plan-x"), 2, "{denied:?}");
    assert_eq!(
        count("grants", "/v1/workspaces/demo/grants"),
        1,
        "{denied:?}"
    );
    assert!(
        denied.iter().any(|denial| denial.1 == "branches"),
        "{denied:?}"
    );
    assert!(
        denied.iter().any(|denial| denial.1 == "authenticate"),
        "{denied:?}"
    );
    let repeated = audit["entries"].as_array().unwrap().iter().any(|entry| {
        entry["target"] == "vault/plan-x" && entry["detail"].as_str().unwrap().contains("19")
    });
    assert!(repeated, "{audit}");
    // A principal sees its own entries, and nobody else's.
    for entry in agent.json(&["audit"])["entries"].as_array().unwrap() {
        assert_eq!(entry["principal"], "ada");
    }
    store.ok(&["audit", "--verify"]);
}

#[test]
fn docker_g9_an_agent_in_a_container_uses_the_bound_socket() {
    require_docker("kura-test:tools");
    let store = TestStore::new();
    let agent = demo(&store);
    let secret = fs::read_to_string(&agent.token).unwrap();
    let script = "kura cat demo:src/main.rs; refused() { if kura \"$@\"; then exit 1; fi; }
                  refused cat demo:vault/plan-x; refused principal list
                  unset KURA_TOKEN; refused list";
    let run = e2e::docker([
        "run",
        "--rm",
        "--network",
        "none",
        "-u",
        "1000:1000",
        "-v",
        &format!("{}:/usr/local/bin/kura:ro", binary("kura").display()),
        "-v",
        &format!("{}:/run/kura:ro", store.path().join("agents").display()),
        "-e",
        "KURA_SOCKET=/run/kura/agents.sock",
        "-e",
        &format!("KURA_TOKEN={}", secret.trim()),
        "kura-test:tools",
        "sh",
        "-euc",
        script,
    ])
    .ok();
    assert_eq!(run.stdout, "main\n");
}

#[test]
fn a_workspace_can_be_handed_back_to_the_owner() {
    let store = TestStore::new();
    store.init("demo", None);
    store.ok(&["principal", "add", "builder"]);
    store.ok(&["grant", "demo", "builder", "/", "write"]);
    store.ok(&["handoff", "demo", "--to", "builder"]);
    store.ok(&["handoff", "demo", "--to", "root", "--as", "builder"]);
    let unknown = store.kura(&["handoff", "demo", "--to", "nobody"]);
    assert_eq!(unknown.code, NOT_FOUND, "{unknown}");
    assert!(unknown.stderr.contains("hand over to nobody"), "{unknown}");
}
