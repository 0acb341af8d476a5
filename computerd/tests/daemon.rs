//! The whole daemon with a real store and real mounts. Needs root and /dev/fuse.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use computerd_api::Client;
use computerd_api::v1::{
    CommitBody, CreateWorkspace, DiffQuery, ErrorKind, HandoffRequest, LogQuery, MountRequest,
    PathText, RestoreRequest, RollbackRequest, UndoRequest, UnmountRequest, VolumePluginRequest,
};

struct Daemon {
    directory: tempfile::TempDir,
    keeper: Child,
    runtime: tokio::runtime::Runtime,
}

impl Daemon {
    fn start() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let keeper = spawn(directory.path());
        let daemon = Self {
            directory,
            keeper,
            runtime: tokio::runtime::Runtime::new().unwrap(),
        };
        daemon.wait_until_served();
        daemon
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn client(&self) -> Client {
        Client::new(self.store().join("computerd.sock"))
    }

    fn wait_until_served(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.run(self.client().version()).is_err() {
            assert!(Instant::now() < deadline, "the daemon does not serve");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn create(&self, name: &str) {
        let request = CreateWorkspace {
            name: name.into(),
            ..Default::default()
        };
        self.run(async {
            let events = self.client().create_workspace(&request).await.unwrap();
            events.finish(|_| {}).await.unwrap()
        });
    }

    fn mount(&self, workspace: &str) -> PathBuf {
        let mountpoint = self.directory.path().join("mount");
        std::fs::create_dir_all(&mountpoint).unwrap_or_default();
        self.run(self.client().mount(&self.mount_request(workspace)))
            .unwrap();
        mountpoint
    }

    fn mount_request(&self, workspace: &str) -> MountRequest {
        MountRequest {
            workspace: workspace.into(),
            mountpoint: self.directory.path().join("mount").as_path().into(),
            ..Default::default()
        }
    }

    fn commit(&self, workspace: &str) -> String {
        let body = CommitBody::default();
        self.run(self.client().commit(workspace, &body))
            .unwrap()
            .commit
    }

    fn kill_worker(&self) {
        let status = self.run(self.client().daemon_status()).unwrap();
        kill(status.pid, libc::SIGKILL);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let now = self.run(self.client().daemon_status());
            if now.is_ok_and(|now| now.restart_count > status.restart_count) {
                return;
            }
            assert!(Instant::now() < deadline, "no new worker");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        kill(self.keeper.id(), libc::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(20);
        while matches!(self.keeper.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        for mount in ["mount", "store/mounts/volume", "store/mounts"] {
            let _ = Command::new("umount")
                .arg("-lq")
                .arg(self.directory.path().join(mount))
                .stderr(std::process::Stdio::null())
                .status();
        }
    }
}

fn spawn(directory: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_computerd"))
        .arg("--store")
        .arg(directory.join("store"))
        .spawn()
        .unwrap()
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: kill(2) touches no memory.
    unsafe { libc::kill(pid as i32, signal) };
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn g1_killing_the_worker_under_load_is_a_pause_without_errors() {
    let daemon = Daemon::start();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    let is_done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (mountpoint, is_done) = (mountpoint.clone(), is_done.clone());
        move || {
            let mut log = std::fs::File::create_new(mountpoint.join("log")).unwrap();
            let mut round = 0;
            while !is_done.load(Ordering::Relaxed) {
                writeln!(log, "line {round}").unwrap();
                let path = mountpoint.join(format!("file {round}"));
                let mut file = std::fs::File::create_new(&path).unwrap();
                write!(file, "content {round}").unwrap();
                drop(file);
                assert_eq!(read(&path), format!("content {round}"));
                round += 1;
            }
            round
        }
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        daemon.kill_worker();
    }
    is_done.store(true, Ordering::Relaxed);
    let rounds: usize = writer.join().unwrap();
    assert!(rounds > 10);
    let expected: String = (0..rounds).map(|round| format!("line {round}\n")).collect();
    assert_eq!(read(mountpoint.join("log")), expected);
    assert_eq!(std::fs::read_dir(&mountpoint).unwrap().count(), rounds + 1);
}

#[test]
fn g1_after_the_keeper_s_death_a_new_mount_has_everything_acknowledged() {
    let mut daemon = Daemon::start();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    let config = computerd_api::v1::ConfigChange {
        key: "commit.auto".into(),
        value: Some("false".into()),
        principal: None,
    };
    daemon
        .run(daemon.client().set_config("demo", &config))
        .unwrap();
    std::fs::create_dir(mountpoint.join("dir")).unwrap();
    std::fs::write(mountpoint.join("dir/file"), "kept").unwrap();
    let status = daemon.run(daemon.client().daemon_status()).unwrap();
    kill(daemon.keeper.id(), libc::SIGKILL);
    kill(status.pid, libc::SIGKILL);
    daemon.keeper.wait().unwrap();
    // At once: the worker may still be about to end, and has the store's lock so long.
    daemon.keeper = spawn(daemon.directory.path());
    daemon.wait_until_served();
    assert_eq!(daemon.mount("demo"), mountpoint);
    assert_eq!(read(mountpoint.join("dir/file")), "kept");
    let text = read("/proc/self/mountinfo");
    let name = mountpoint.to_str().unwrap();
    assert_eq!(text.matches(name).count(), 1, "mounts are not stacked");
}

#[test]
fn g4_rollback_of_a_mounted_branch_is_seen_at_once_and_can_be_undone() {
    let daemon = Daemon::start();
    let client = daemon.client();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    std::fs::create_dir(mountpoint.join("dir")).unwrap();
    std::fs::write(mountpoint.join("dir/a"), "one").unwrap();
    std::fs::write(mountpoint.join("b"), "one").unwrap();
    let first = daemon.commit("demo");
    std::fs::remove_dir_all(mountpoint.join("dir")).unwrap();
    std::fs::write(mountpoint.join("b"), "two").unwrap();

    let diff = daemon
        .run(client.diff("demo", &DiffQuery::default()))
        .unwrap();
    assert_eq!((diff.counts.deleted, diff.counts.modified), (2, 1));
    let mut request = RollbackRequest {
        revision: Some(first.clone()),
        dry_run: true,
        ..Default::default()
    };
    let plan = daemon.run(client.rollback("demo", &request)).unwrap();
    assert_eq!((plan.plan.change_count, plan.commit), (3, None));
    assert_eq!(
        read(mountpoint.join("b")),
        "two",
        "a dry run changes nothing"
    );
    request.dry_run = false;
    let done = daemon.run(client.rollback("demo", &request)).unwrap();
    let rescue = done.rescue.unwrap();
    assert_eq!(read(mountpoint.join("dir/a")), "one");
    assert_eq!(read(mountpoint.join("b")), "one");

    let undo = UndoRequest::default();
    daemon.run(client.undo("demo", &undo)).unwrap();
    assert!(!mountpoint.join("dir").exists());
    assert_eq!(read(mountpoint.join("b")), "two");

    let mut restore = RestoreRequest {
        paths: vec!["dir/a".into()],
        from: first.clone(),
        ..Default::default()
    };
    daemon.run(client.restore("demo", &restore)).unwrap();
    assert_eq!(read(mountpoint.join("dir/a")), "one");
    assert_eq!(read(mountpoint.join("b")), "two");
    // What is already so stays so, and makes no commit.
    let again = daemon.run(client.restore("demo", &restore)).unwrap();
    assert_eq!((again.commit, again.plan.change_count), (None, 0));
    assert_eq!(read(mountpoint.join("b")), "two");
    restore.from = rescue;
    restore.paths = vec!["b".into()];
    daemon.run(client.restore("demo", &restore)).unwrap();
    assert_eq!(read(mountpoint.join("dir/a")), "one");
}

#[test]
fn an_undo_of_an_older_operation_keeps_what_came_later_or_is_a_conflict() {
    let daemon = Daemon::start();
    let client = daemon.client();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    std::fs::write(mountpoint.join("a"), "one").unwrap();
    let first = daemon
        .run(client.commit("demo", &CommitBody::default()))
        .unwrap();
    std::fs::write(mountpoint.join("b"), "two").unwrap();
    daemon.commit("demo");
    let undo = UndoRequest {
        operation: Some(first.operation.unwrap().id),
        ..Default::default()
    };
    daemon.run(client.undo("demo", &undo)).unwrap();
    assert!(!mountpoint.join("a").exists());
    assert_eq!(read(mountpoint.join("b")), "two");
    std::fs::write(mountpoint.join("a"), "other").unwrap();
    let error = daemon.run(client.undo("demo", &undo)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error:?}");
    assert!(error.message.contains('a') && error.hint.is_some());
    assert_eq!(read(mountpoint.join("a")), "other");
}

#[test]
fn a_handoff_fences_the_giver_and_the_commit_can_be_continued_on_a_branch() {
    let daemon = Daemon::start();
    let client = daemon.client();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    std::fs::write(mountpoint.join("a"), "given").unwrap();
    let request = HandoffRequest {
        to: "bob".into(),
        ..Default::default()
    };
    let handoff = daemon.run(client.handoff("demo", &request)).unwrap();
    assert_eq!((handoff.fence, handoff.fenced_mounts.len()), (1, 1));
    let error = std::fs::write(mountpoint.join("b"), "late").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    daemon.kill_worker();
    let error = std::fs::write(mountpoint.join("b"), "late").unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(libc::EROFS),
        "a restart lifts no fence"
    );
    let other = daemon.directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let request = MountRequest {
        workspace: "demo".into(),
        revision: Some(handoff.commit),
        mountpoint: other.as_path().into(),
        new_branch: Some("bobs".into()),
        principal: Some("bob".into()),
        ..Default::default()
    };
    daemon.run(client.mount(&request)).unwrap();
    assert_eq!(read(other.join("a")), "given");
    std::fs::write(other.join("a"), "continued").unwrap();
    assert_eq!(read(mountpoint.join("a")), "given");
    let unmount = UnmountRequest {
        mountpoint: other.as_path().into(),
        lazy: false,
    };
    assert!(daemon.run(client.unmount(&unmount)).unwrap().is_new);
}

#[test]
fn a_clean_end_commits_and_unmounts_and_leaves_no_journal() {
    let mut daemon = Daemon::start();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    std::fs::write(mountpoint.join("a"), "last").unwrap();
    kill(daemon.keeper.id(), libc::SIGTERM);
    assert!(daemon.keeper.wait().unwrap().success());
    assert!(!mountpoint.join("a").exists(), "unmounted");
    assert!(!daemon.store().join("computerd.sock").exists());
    daemon.keeper = spawn(daemon.directory.path());
    daemon.wait_until_served();
    let log = daemon
        .run(daemon.client().log("demo", &LogQuery::default()))
        .unwrap();
    assert_eq!(log.commits.len(), 2);
    let query = computerd_api::v1::PathQuery {
        path: "a".into(),
        ..Default::default()
    };
    let content = daemon.run(async {
        let mut stream = daemon.client().content("demo", &query).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await.unwrap() {
            bytes.extend_from_slice(&piece);
        }
        bytes
    });
    assert_eq!(content, b"last");
}

#[test]
fn bad_mounts_are_refused_with_the_next_step_and_the_same_mount_is_no_error() {
    let daemon = Daemon::start();
    let client = daemon.client();
    daemon.create("demo");
    let refused = |request: &MountRequest| daemon.run(client.mount(request)).unwrap_err();
    let missing = refused(&daemon.mount_request("demo"));
    assert_eq!(missing.kind, ErrorKind::NotFound, "{missing:?}");
    assert!(missing.hint.unwrap().contains("mkdir"));
    let mountpoint = daemon.directory.path().join("mount");
    std::fs::create_dir(&mountpoint).unwrap();
    std::fs::write(mountpoint.join("x"), "").unwrap();
    let not_empty = refused(&daemon.mount_request("demo"));
    assert_eq!(not_empty.kind, ErrorKind::InvalidInput, "{not_empty:?}");
    std::fs::remove_file(mountpoint.join("x")).unwrap();
    assert_eq!(
        refused(&daemon.mount_request("nobody")).kind,
        ErrorKind::NotFound
    );
    let mut request = daemon.mount_request("demo");
    request.revision = Some("no-such".into());
    assert_eq!(refused(&request).kind, ErrorKind::NotFound);
    daemon.mount("demo");
    daemon.mount("demo");
    let mut other = daemon.mount_request("demo");
    other.read_only = true;
    let taken = refused(&other);
    assert_eq!(taken.kind, ErrorKind::AlreadyExists, "{taken:?}");
    assert!(taken.hint.unwrap().contains("kura umount"));
    assert_eq!(daemon.run(client.mounts()).unwrap().mounts.len(), 1);
}

#[test]
fn an_older_version_mounts_read_only_and_others_unmount_is_noticed() {
    let daemon = Daemon::start();
    let client = daemon.client();
    daemon.create("demo");
    let mountpoint = daemon.mount("demo");
    std::fs::write(mountpoint.join("a"), "old").unwrap();
    let first = daemon.commit("demo");
    std::fs::write(mountpoint.join("a"), "new").unwrap();
    daemon.commit("demo");
    let old = daemon.directory.path().join("old");
    std::fs::create_dir(&old).unwrap();
    let request = MountRequest {
        workspace: "demo".into(),
        revision: Some(first),
        mountpoint: old.as_path().into(),
        ..Default::default()
    };
    assert!(daemon.run(client.mount(&request)).unwrap().mount.read_only);
    assert_eq!(read(old.join("a")), "old");
    let error = std::fs::write(old.join("b"), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    daemon.kill_worker();
    assert_eq!(read(old.join("a")), "old");
    assert!(Command::new("umount").arg(&old).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(20);
    while daemon.run(client.mounts()).unwrap().mounts.len() != 1 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One request of Docker's plugin protocol.
fn docker(socket: &Path, path: &str, body: &serde_json::Value) -> (bool, serde_json::Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: plugin\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.contains(" 200 "), serde_json::from_str(body).unwrap())
}

#[test]
fn volumes_are_mounted_for_their_users_and_survive_the_worker_s_death() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let socket = daemon.directory.path().join("plugin.sock");
    let request = VolumePluginRequest {
        socket: Some(PathText::from(socket.as_path())),
    };
    assert!(
        daemon
            .run(client.start_volume_plugin(&request))
            .unwrap()
            .is_serving
    );
    let call = |path: &str, body: serde_json::Value| docker(&socket, path, &body);
    let (_, activated) = call("/Plugin.Activate", serde_json::json!({}));
    assert_eq!(activated["Implements"][0], "VolumeDriver");
    let name = serde_json::json!({"Name": "volume"});
    let with_user = |id: &str| serde_json::json!({"Name": "volume", "ID": id});
    let (is_ok, error) = call(
        "/VolumeDriver.Create",
        serde_json::json!({"Name": "volume", "Opts": {"size": "1g"}}),
    );
    assert!(!is_ok && error["Err"].as_str().unwrap().contains("size"));
    assert!(call("/VolumeDriver.Create", name.clone()).0);
    let (is_ok, mounted) = call("/VolumeDriver.Mount", with_user("one"));
    assert!(is_ok, "{mounted}");
    let mountpoint = PathBuf::from(mounted["Mountpoint"].as_str().unwrap());
    std::fs::write(mountpoint.join("a"), "one").unwrap();
    assert!(call("/VolumeDriver.Mount", with_user("two")).0);
    daemon.kill_worker();
    assert_eq!(read(mountpoint.join("a")), "one");
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < deadline, "the driver is served again");
    }
    assert!(call("/VolumeDriver.Unmount", with_user("one")).0);
    assert_eq!(
        read(mountpoint.join("a")),
        "one",
        "the other user still has it"
    );
    let (is_ok, error) = call("/VolumeDriver.Remove", name.clone());
    assert!(
        !is_ok && error["Err"].as_str().unwrap().contains("used"),
        "{error}"
    );
    let (_, got) = call("/VolumeDriver.Get", name.clone());
    assert_eq!(got["Volume"]["Status"]["workspace"], "volume");
    assert!(call("/VolumeDriver.Unmount", with_user("two")).0);
    assert!(!mountpoint.exists());
    assert!(call("/VolumeDriver.Remove", name.clone()).0);
    let (_, list) = call("/VolumeDriver.List", serde_json::json!({}));
    assert_eq!(list["Volumes"].as_array().unwrap().len(), 0);
    let log = daemon
        .run(client.log("volume", &LogQuery::default()))
        .unwrap();
    assert_eq!(log.commits.len(), 2, "the history stays");
}

#[test]
fn a_second_daemon_of_a_store_is_refused_and_a_foreign_database_is_named() {
    let daemon = Daemon::start();
    let second = spawn(daemon.directory.path()).wait().unwrap();
    assert_eq!(second.code(), Some(6), "busy");
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(directory.path().join("store")).unwrap();
    std::fs::write(
        directory.path().join("store/kura.db"),
        "no database at all".repeat(500),
    )
    .unwrap();
    let foreign = spawn(directory.path()).wait().unwrap();
    assert_eq!(foreign.code(), Some(7), "corrupt or incompatible");
}
