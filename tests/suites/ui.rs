//! The page to look at: what its port refuses, and the page itself in a real headless browser.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use e2e::{TestMount, TestStore, binary, exchange, repository_root, run, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use workspace_store::edit::{EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Attributes, CommitKind};
use workspace_store::source::CommitRequest;
use workspace_store::{Store, StoreOptions};

/// A running `kura ui`.
struct Page {
    program: Child,
    url: String,
    port: u16,
}

impl Page {
    fn serve(store: &TestStore, arguments: &[&str]) -> Self {
        let mut program = store
            .command()
            .args(["ui", "--json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kura starts");
        let mut line = String::new();
        let stdout = program.stdout.take().expect("it is a pipe");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("kura ui prints a line");
        let opened: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("{error}: {line:?}");
        });
        assert_eq!(opened["type"], "ui");
        Self {
            program,
            url: opened["url"].as_str().expect("an address").to_owned(),
            port: u16::try_from(opened["port"].as_u64().expect("a port")).expect("a port"),
        }
    }

    fn token(&self) -> &str {
        self.url.split_once("#token=").expect("a token").1
    }

    /// Sends a request as it is, with the right `Host` unless the headers have one.
    fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the page is served");
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("a time limit");
        let mut text = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: 127.0.0.1:{}\r\n", self.port);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let (status, answer) = exchange(stream, &text);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        Answer {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn enter(&self, token: &str) -> Answer {
        let body = serde_json::json!({ "token": token }).to_string();
        self.send("POST", "/session", &[("Origin", &self.origin())], &body)
    }

    /// Ends with Ctrl-C.
    fn interrupt(&mut self) -> i32 {
        let pid = Pid::from_raw(i32::try_from(self.program.id()).expect("a process id"));
        kill(pid, Signal::SIGINT).expect("it runs");
        self.program.wait().expect("it ends").code().unwrap_or(-1)
    }

    fn is_served(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The cookie that the answer sets, as a browser sends it back.
    fn cookie(&self) -> String {
        let line = self.head.split("set-cookie: ").nth(1).expect("a cookie");
        line.split(';').next().expect("a cookie").to_owned()
    }
}

#[test]
fn the_page_lets_in_one_browser_once_and_only_with_cookie_and_key() {
    let store = TestStore::new();
    store.init("demo", None);
    let page = Page::serve(&store, &["demo"]);
    assert_eq!(page.token().len(), 64);
    let origin = page.origin();
    let listed = |headers: &[(&str, &str)]| page.send("GET", "/v1/workspaces", headers, "").status;
    assert_eq!(listed(&[]), 401);
    let wrong = page.token().replace(|c: char| c.is_ascii_digit(), "a");
    for token in ["", "x", &wrong] {
        assert_eq!(page.enter(token).status, 401, "{token}");
    }
    let entered = page.enter(page.token());
    assert_eq!(entered.status, 200);
    let (cookie, key) = (entered.cookie(), entered.json()["key"].clone());
    let key = key.as_str().unwrap();
    for attribute in ["httponly", "samesite=strict", "path=/"] {
        assert!(entered.head.contains(attribute), "{}", entered.head);
    }
    assert_eq!(entered.json()["workspace"], "demo");
    assert_eq!(
        page.enter(page.token()).status,
        401,
        "the link lets in once"
    );
    // Either alone is not enough: a cookie is sent to every port of the host.
    assert_eq!(listed(&[("Cookie", &cookie)]), 401);
    assert_eq!(listed(&[("X-Kura-Page", key)]), 401);
    assert_eq!(listed(&[("Cookie", &cookie), ("X-Kura-Page", "0")]), 401);
    assert_eq!(listed(&[("Cookie", &cookie), ("X-Kura-Page", key)]), 200);
    let other = Page::serve(&store, &[]);
    let mine = [("Cookie", cookie.as_str()), ("X-Kura-Page", key)];
    assert_eq!(other.send("GET", "/v1/workspaces", &mine, "").status, 401);
    let mut log = vec![("Origin", origin.as_str())];
    log.extend(mine);
    let answer = page.send("POST", "/v1/workspaces/demo/log", &log, "{}");
    assert_eq!(answer.json()["commits"][0]["kind"], "init");
    let denials = store.json(&["audit", "demo", "--denied"]);
    assert!(denials.to_string().contains("lets in once"), "{denials}");
    assert!(!denials.to_string().contains(page.token()));
}

#[test]
fn the_page_refuses_other_hosts_origins_methods_and_verbs() {
    let store = TestStore::new();
    store.init("demo", None);
    let page = Page::serve(&store, &["demo"]);
    let entered = page.enter(page.token());
    let (cookie, key) = (entered.cookie(), entered.json()["key"].clone());
    let (origin, port) = (page.origin(), page.port);
    let mine = [
        ("Cookie", cookie.as_str()),
        ("X-Kura-Page", key.as_str().unwrap()),
    ];
    let send = |method: &str, target: &str, more: &[(&str, &str)]| {
        page.send(method, target, &[&mine[..], more].concat(), "{}")
            .status
    };
    let log = "/v1/workspaces/demo/log";
    assert_eq!(send("POST", log, &[("Origin", &origin)]), 200);
    assert_eq!(
        send("POST", log, &[]),
        403,
        "a POST says where it comes from"
    );
    let hosts = [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "127.0.0.1".to_owned(),
        format!("127.0.0.1.evil.example:{port}"),
        format!("127.0.0.1:{}", port ^ 1),
    ];
    for host in &hosts {
        assert_eq!(
            send("GET", "/v1/workspaces", &[("Host", host)]),
            403,
            "{host}"
        );
        assert_eq!(send("GET", "/", &[("Host", host)]), 403, "{host}");
        let other = format!("http://{host}");
        assert_eq!(send("POST", log, &[("Origin", &other)]), 403, "{host}");
    }
    for other in ["null", "http://localhost", "https://127.0.0.1"] {
        assert_eq!(send("POST", log, &[("Origin", other)]), 403, "{other}");
    }
    let absolute = format!("http://evil.example:{port}/v1/workspaces");
    assert_eq!(send("GET", &absolute, &[]), 403);
    for site in ["cross-site", "same-site"] {
        let more = [("Origin", origin.as_str()), ("Sec-Fetch-Site", site)];
        assert_eq!(send("POST", log, &more), 403, "{site}");
        assert_eq!(send("GET", "/v1/workspaces", &more), 403, "{site}");
    }
    let localhost = format!("localhost:{port}");
    assert_eq!(send("GET", "/", &[("Host", &localhost)]), 200);
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
        let status = send(method, log, &[("Origin", &origin)]);
        assert!([403, 405].contains(&status), "{method}: {status}");
        let status = send(method, "/", &[("Origin", &origin)]);
        assert!([403, 405].contains(&status), "{method}: {status}");
    }
    // What changes more than the page says, and what is the owner's, stays out of reach.
    for verb in [
        "/v1/daemon/stop",
        "/v1/mounts",
        "/v1/mounts/remove",
        "/v1/principals",
        "/v1/tokens",
        "/v1/ui",
        "/v1/workspaces",
        "/v1/workspaces/demo/export",
        "/v1/workspaces/demo/import",
        "/v1/workspaces/demo/commits",
        "/v1/workspaces/demo/branches",
        "/v1/workspaces/demo/config",
    ] {
        assert_eq!(send("POST", verb, &[("Origin", &origin)]), 403, "{verb}");
    }
    assert_eq!(
        send(
            "DELETE",
            "/v1/workspaces/demo/branches/main",
            &[("Origin", &origin)]
        ),
        403
    );
    assert_eq!(send("GET", "/v1/config", &[]), 403);
    for path in [
        "/../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/page/../app.js",
        "/app.js/",
        "/%2e%2e/app.js",
        "/src/lib.rs",
    ] {
        assert_eq!(send("GET", path, &[]), 404, "{path}");
    }
    assert!(page.is_served() && store.kura(&["log", "demo"]).code == 0);
}

#[test]
fn no_answer_of_the_page_may_run_foreign_code_or_be_kept_or_framed() {
    let store = TestStore::new();
    store.init("demo", None);
    let page = Page::serve(&store, &[]);
    let requests = [
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/app.js"),
        ("GET", "/page.css"),
        ("GET", "/icon.svg"),
        ("GET", "/nowhere"),
        ("GET", "/v1/workspaces"),
        ("DELETE", "/session"),
    ];
    for (method, target) in requests {
        let answer = page.send(method, target, &[], "");
        let policy = answer.head.split("content-security-policy: ").nth(1);
        let policy = policy
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default();
        assert!(
            policy.contains("default-src 'none'"),
            "{target}: {}",
            answer.head
        );
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        for wanted in [
            "script-src 'self'",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(wanted), "{target}: {policy}");
        }
        for header in [
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{target}: {}", answer.head);
        }
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
    }
    let html = page.send("GET", "/", &[], "").body;
    assert!(
        !html.contains("<style") && !html.contains(" style="),
        "inline style"
    );
    assert_eq!(html.matches("<script").count(), 1);
    assert!(html.contains("<script type=\"module\" src=\"/app.js\"></script>"));
}

#[test]
fn the_page_ends_with_its_program_however_that_ends() {
    let store = TestStore::new();
    store.init("demo", None);
    let mut page = Page::serve(&store, &["demo"]);
    assert!(page.is_served());
    // The port is on the loopback interface and nowhere else.
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listening = format!("0100007F:{:04X} 00000000:0000 0A", page.port);
    assert!(table.contains(&listening), "{table}");
    let wide = format!("00000000:{:04X} ", page.port);
    assert!(!table.contains(&wide), "{table}");
    let port = page.port.to_string();
    let taken = store.kura(&["ui", "demo", "--port", &port]);
    assert_eq!(taken.code, 6, "{taken}");
    assert!(taken.stderr.contains("the port is taken"), "{taken}");
    assert_eq!(page.interrupt(), 0);
    let limit = Duration::from_secs(10);
    wait_until("the page ends after Ctrl-C", limit, || !page.is_served());

    let mut page = Page::serve(&store, &["demo", "--port", &port]);
    assert_eq!(page.port.to_string(), port);
    page.program.kill().unwrap();
    page.program.wait().unwrap();
    wait_until("the page ends after kill -9", limit, || !page.is_served());

    let mut page = Page::serve(&store, &["demo"]);
    let _ = store.stop_daemon().ok();
    assert!(!page.is_served());
    let code = page.program.wait().unwrap().code();
    assert_eq!(code, Some(6), "the daemon is gone");
    let missing = store.kura(&["ui", "nowhere"]);
    assert_eq!(missing.code, 4, "{missing}");
}

/// Where the driver of the browser is; `prepare.sh` puts it there.
fn driver() -> PathBuf {
    let state = match std::env::var_os("KURA_TEST_STATE") {
        Some(state) => PathBuf::from(state),
        None => binary("kura")
            .ancestors()
            .nth(2)
            .expect("the target directory")
            .join("e2e"),
    };
    let driver = state.join("ui");
    assert!(
        driver.join("node_modules/playwright-core").exists()
            && Path::new("/usr/bin/chromium").exists(),
        "no browser or no driver for it in {}; run tests/support/prepare.sh packages browser",
        driver.display()
    );
    driver
}

/// Runs a script of tests/ui against the page. Screenshots are kept in target/e2e/ui/pictures.
fn drive(store: &TestStore, page: &Page, script: &str, mount: Option<&TestMount>) {
    let driver = driver();
    let pictures = driver.join("pictures");
    fs::create_dir_all(&pictures).expect("a directory");
    let mut command = Command::new("timeout");
    command
        .args(["100", "node"])
        .arg(repository_root().join("tests/ui").join(script))
        .env("KURA_UI_MODULES", &driver)
        .env("KURA_UI_URL", &page.url)
        .env("KURA_UI_PICTURES", &pictures)
        .env("KURA_PROGRAM", binary("kura"))
        .env("KURA_STORE", store.path());
    if let Some(mount) = mount {
        command.env("KURA_UI_MOUNT", &mount.path);
    }
    let driven = run(&mut command).ok();
    assert!(driven.stdout.contains("ok "), "{driven}");
}

fn commit(store: &TestStore, message: &str, more: &[&str]) {
    let arguments = [&["commit", "demo", "-m", message][..], more].concat();
    let _ = store.ok(&arguments);
}

#[test]
fn fuse_the_page_shows_a_workspace_and_goes_back_in_a_real_browser() {
    let store = TestStore::new();
    store.init("demo", None);
    // Nothing is committed but what the test commits.
    store.commit_by_hand("demo");
    for (name, pattern, access) in [
        ("agent-b", "/", "write"),
        ("intern", "/", "read"),
        ("intern", "doomed.txt", "hidden"),
    ] {
        let _ = store.kura(&["principal", "add", name]);
        let _ = store.ok(&["grant", "demo", name, pattern, access]);
    }
    let mount = store.mount("demo");
    let write = |name: &str, content: &[u8]| fs::write(mount.join(name), content).unwrap();
    let set_mode = |name: &str, mode| {
        fs::set_permissions(mount.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    write("notes.txt", b"one\ntwo\nthree\n");
    write("doomed.txt", b"doomed\n");
    write("run.sh", b"#!/bin/sh\n");
    write(
        "old name.txt",
        &b"a line that is moved with its file\n".repeat(20),
    );
    write("picture", b"\x00\x01\x02");
    set_mode("run.sh", 0o644);
    commit(&store, "first step", &["--run", "nightly", "--step", "1"]);
    write("notes.txt", b"one\ntwo, changed\nthree\n");
    write("fresh.txt", b"fresh\n");
    fs::remove_file(mount.join("doomed.txt")).unwrap();
    let second = ["--run", "nightly", "--step", "2", "--as", "agent-b"];
    commit(&store, "second step", &second);
    let token = store.scratch("intern.token");
    let create = ["principal", "token", "create", "intern", "--output"];
    let _ = run(store.command().args(create).arg(&token)).ok();
    let refused = run(store
        .command()
        .env("KURA_TOKEN_FILE", &token)
        .args(["cat", "demo:doomed.txt"]));
    assert_eq!(refused.code, 4, "{refused}");
    write("picture", b"\x00\x01\x03\x04");
    set_mode("run.sh", 0o755);
    fs::rename(mount.join("old name.txt"), mount.join("new name.txt")).unwrap();
    std::os::unix::fs::symlink("notes.txt", mount.join("link")).unwrap();
    commit(&store, "binary, mode, rename", &[]);
    write(
        "<img src=x onerror=alert(1)>",
        b"<script>alert(2)</script>\n",
    );
    write("line\nbreak", b"x\n");
    write("abc\u{202e}txt.exe", b"x\n");
    let broken = std::ffi::OsStr::from_bytes(b"bad\xff");
    fs::write(mount.join(Path::new(broken)), "x\n").unwrap();
    commit(&store, "hostile\n\n<img src=x onerror=alert(3)>", &[]);
    write("uncommitted.txt", b"not yet\n");
    let page = Page::serve(&store, &["demo"]);
    drive(&store, &page, "page.mjs", Some(&mount));
}

#[test]
fn fuse_the_page_shows_the_commands_of_a_run_and_takes_it_out() {
    let store = TestStore::new();
    store.init("demo", None);
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let write = |name: &str, content: &str| fs::write(mount.join(name), content).unwrap();
    let text = "export const tax = 0.19;\nexport const name = \"shop\";\n";
    write("total.js", text);
    commit(&store, "first version", &[]);
    let step = |script: &str| {
        let mut command = store.command();
        command.current_dir(&mount.path);
        command.args(["run", "--run-id", "r1", "--", "sh", "-c", script]);
        run(&mut command)
    };
    let _ = step("sed -i s/0.19/0.2/ total.js; echo made >made.txt").ok();
    assert_eq!(step("echo more >>made.txt; exit 3").code, 3);
    write("later.txt", "later\n");
    commit(&store, "later work", &[]);
    let page = Page::serve(&store, &["demo"]);
    drive(&store, &page, "runs.mjs", Some(&mount));
}

/// Makes a workspace with so many commits, each of one changed file.
fn make_many_commits(directory: &Path, count: u64) {
    let store = Store::open(directory, StoreOptions::default()).expect("a new store");
    let workspace = store.create_workspace("demo", "root").expect("a workspace");
    let mut head = workspace.head;
    let mut root = store.commit(head).expect("the first commit").root.clone();
    for number in 1..count {
        let content = format!("{number}\n").into_bytes();
        let entry = EntryEdit::Put(InodeEdit {
            attributes: Attributes {
                mode: 0o644,
                ..Attributes::default()
            },
            node: NodeEdit::Content {
                key: 1,
                content: Arc::new(content),
            },
        });
        let name = format!("file-{}", number % 40);
        let edit = SnapshotEdit::changing(&root, [(name.as_bytes().into(), entry)].into());
        let request = CommitRequest {
            author: format!("agent-{}", number % 7),
            kind: CommitKind::Manual,
            message: format!("commit {number}"),
            run: Some(format!("run-{}", number / 50)),
            step: Some(number % 50),
        };
        let done = store
            .apply_edit(workspace.id, "main", head, &root, edit, request, &|_| {})
            .expect("a commit");
        (head, root) = (done.commit, done.root);
    }
    store.close().expect("the store ends");
}

#[test]
fn the_page_of_ten_thousand_commits_is_used_within_two_seconds() {
    // In memory, where ten thousand durable commits take seconds.
    let store = TestStore::below(Path::new("/dev/shm"));
    make_many_commits(store.path(), 10_000);
    let page = Page::serve(&store, &["demo"]);
    drive(&store, &page, "many.mjs", None);
}
