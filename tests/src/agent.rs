//! Principals with tokens, as the tests of access need them, and a workspace to look at.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::process::{Run, exchange, run, shell_ok};
use crate::store::TestStore;

/// A principal with a token in a file.
#[derive(Debug)]
pub struct Agent<'a> {
    store: &'a TestStore,
    name: &'static str,
    /// The file with its token.
    pub token: PathBuf,
}

impl<'a> Agent<'a> {
    /// Makes the principal known, with a token.
    pub fn new(store: &'a TestStore, name: &'static str) -> Self {
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
    pub fn new_token(&self, arguments: &[&str]) -> Run {
        let _ = fs::remove_file(&self.token);
        let mut command = self.store.command();
        command.args(["principal", "token", "create", self.name, "--output"]);
        run(command.arg(&self.token).args(arguments)).ok()
    }

    /// Lets it see or change paths of `demo`.
    pub fn grant(&self, pattern: &str, access: &str) {
        self.store
            .ok(&["grant", "demo", self.name, pattern, access]);
    }

    /// Runs `kura` with its token.
    pub fn kura(&self, arguments: &[&str]) -> Run {
        run(self
            .store
            .command()
            .env("KURA_TOKEN_FILE", &self.token)
            .args(arguments))
    }

    /// The same; it must work.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Run {
        self.kura(arguments).ok()
    }

    /// The same, and what it printed.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let run = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
    }

    /// The same; it must end with a code.
    #[track_caller]
    pub fn refused(&self, code: i32, arguments: &[&str]) -> Run {
        let run = self.kura(arguments);
        assert_eq!(run.code, code, "{run}");
        run
    }

    /// One request as a program would make it that is not `kura`: status and body.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let secret = fs::read_to_string(&self.token).expect("the token's file");
        request(self.store, method, path, Some(secret.trim()), body)
    }
}

/// A request at the agents' socket: status and answer.
pub fn request(
    store: &TestStore,
    method: &str,
    path: &str,
    secret: Option<&str>,
    body: &str,
) -> (u16, String) {
    let stream =
        UnixStream::connect(store.path().join("agents/agents.sock")).expect("the agents' socket");
    let authorization = secret.map_or(String::new(), |secret| {
        format!("Authorization: Bearer {secret}\r\n")
    });
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(stream, &request)
}

/// The workspace `demo` with hidden and visible history, and agents that see parts of it.
pub fn demo(store: &TestStore) -> Agent<'_> {
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
