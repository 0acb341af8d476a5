//! Who may see and do what through the API and the CLI: real sockets, tokens and binaries.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use e2e::{Run, TestStore, binary, require_docker, run, shell_ok, wait_until};
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

/// A principal with a token in a file.
struct Agent<'a> {
    store: &'a TestStore,
    name: &'static str,
    token: PathBuf,
}

impl<'a> Agent<'a> {
    fn new(store: &'a TestStore, name: &'static str) -> Self {
        store.ok(&["principal", "add", name]);
        let agent = Self {
            store,
            name,
            token: store.scratch(&format!("{name}.token")),
        };
        agent.new_token(&[]);
        agent
    }

    /// Replaces the token in the file.
    fn new_token(&self, arguments: &[&str]) -> Run {
        let _ = fs::remove_file(&self.token);
        let mut command = self.store.command();
        command.args(["principal", "token", "create", self.name, "--output"]);
        run(command.arg(&self.token).args(arguments)).ok()
    }

    fn grant(&self, pattern: &str, access: &str) {
        self.store
            .ok(&["grant", "demo", self.name, pattern, access]);
    }

    fn kura(&self, arguments: &[&str]) -> Run {
        run(self
            .store
            .command()
            .env("KURA_TOKEN_FILE", &self.token)
            .args(arguments))
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> Run {
        self.kura(arguments).ok()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let run = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
    }

    #[track_caller]
    fn refused(&self, code: i32, arguments: &[&str]) -> Run {
        let run = self.kura(arguments);
        assert_eq!(run.code, code, "{run}");
        run
    }

    /// One request as a program would make it that is not `kura`: status and body.
    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let secret = fs::read_to_string(&self.token).expect("the token's file");
        request(self.store, method, path, Some(secret.trim()), body)
    }
}

fn request(
    store: &TestStore,
    method: &str,
    path: &str,
    secret: Option<&str>,
    body: &str,
) -> (u16, String) {
    let mut stream =
        UnixStream::connect(store.path().join("agents/agents.sock")).expect("the agents' socket");
    let authorization = secret.map_or(String::new(), |secret| {
        format!("Authorization: Bearer {secret}\r\n")
    });
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // At once: who is refused by the head of a request need not read its body.
    stream
        .write_all(request.as_bytes())
        .expect("a request is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.expect("a status"), answer)
}

/// The workspace `demo` with hidden and visible history, and agents that see parts of it.
fn demo(store: &TestStore) -> Agent<'_> {
    let project = store.scratch_directory("project");
    shell_ok(
        &project,
        "mkdir -p docs src vault/deep; echo text >docs/text; echo PRIVATE-BYTES >docs/id.key
         echo main >src/main.rs; echo PRIVATE-BYTES >vault/plan-x; echo x >vault/deep/launch-codes
         ln docs/text docs/name",
    );
    store.init("demo", Some(&project));
    let agent = Agent::new(store, "ada");
    agent.grant("/", "read");
    agent.grant("docs/**", "write");
    agent.grant("vault", "hidden");
    agent.grant("*.key", "hidden");
    agent
}

/// Brings a small tree in as a commit.
fn import(store: &TestStore, script: &str, arguments: &[&str]) -> Run {
    let source = tempfile::tempdir_in("/var/tmp").expect("a directory");
    shell_ok(source.path(), script);
    let mut command = store.command();
    command.args(["import", "demo", "--yes"]).arg(source.path());
    run(command.args(arguments))
}

fn head(store: &TestStore) -> String {
    store.log_ids("demo")[0].clone()
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
    let hidden_commit = head(&store);
    import(
        &store,
        "mkdir docs vault; echo changed >docs/text; mv docs/text docs/other; echo y >vault/plan-x",
        &["-m", "secret-message of both"],
    )
    .ok();
    let both = head(&store);
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
    let first = head(&store);
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
    let foreign = store.log_ids("other")[0].clone();
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
    let before = head(&store);
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

#[test]
fn g9_blame_and_runs_tell_what_can_be_seen() {
    let store = TestStore::new();
    let agent = demo(&store);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let owner = |run: &str, script: &str| {
        let mut command = store.command();
        command.args(["run", "--run-id", run, "--", "sh", "-c", script]);
        run_in(&mut command, &mount.path).ok();
        head(&store)
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
    let ended = run_in(&mut command, &mount.path);
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
    let mut command = store.command();
    command.args(["run", "--run-id", "open", "--", "sh", "-c"]);
    command.arg("echo x >>docs/text # vault");
    run_in(&mut command, &mount.path).ok();
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
    let hidden = store.log_ids("twin")[0].clone();
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

fn run_in(command: &mut Command, directory: &std::path::Path) -> Run {
    run(command.current_dir(directory))
}
