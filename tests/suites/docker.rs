//! Workspaces in containers of a real engine: bound mounts and the volume driver.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use e2e::{Container, TestStore, docker, require_docker, run, shell_ok, wait_until};

const WORK: &str = "cd /workspace; echo made >made; mkdir -p x/y; mv x z; ln made hard; ln -s made link; chmod 750 made; : >index.lock; rm index.lock; echo more >>made; mkfifo pipe; rm pipe; rm -rf z; [ $(stat -c %u made) = $(id -u) ]";

/// The volume driver of a store; it and the volumes it made end with it.
struct Driver<'a> {
    store: &'a TestStore,
    volumes: Vec<String>,
}

impl<'a> Driver<'a> {
    fn start(store: &'a TestStore) -> Self {
        require_docker("kura-test:small");
        store.ok(&["volume-plugin", "--detach"]);
        wait_until("the driver's socket", Duration::from_secs(10), || {
            fs::exists("/run/docker/plugins/kura.sock").expect("a readable directory")
        });
        Self {
            store,
            volumes: Vec::new(),
        }
    }

    fn create(&mut self, name: &str, options: &[&str]) {
        let mut arguments = vec!["volume", "create", "--driver", "kura"];
        for option in options {
            arguments.extend(["-o", option]);
        }
        arguments.push(name);
        docker(arguments).ok();
        self.volumes.push(name.to_owned());
    }

    fn run(&self, volume: &str, script: &str) -> e2e::Run {
        docker([
            "run",
            "--rm",
            "--network",
            "none",
            "--volume-driver",
            "kura",
            "-v",
            &format!("{volume}:/workspace"),
            "kura-test:small",
            "sh",
            "-euc",
            script,
        ])
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        for volume in &self.volumes {
            let _ = docker(["volume", "rm", "-f", volume]);
        }
        let _ = self.store.kura(&["volume-plugin", "--stop"]);
    }
}

#[test]
fn docker_a_bound_mount_works_as_root_and_as_an_ordinary_user() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount_with("demo", &["--allow-other"]);
    shell_ok(&mount.path, "mkdir root user; chown 1000:1000 user");
    for (directory, user) in [("root", "0:0"), ("user", "1000:1000")] {
        let bind = format!("{}:/workspace", mount.join(directory).display());
        docker([
            "run",
            "--rm",
            "--network",
            "none",
            "-u",
            user,
            "-v",
            &bind,
            "kura-test:small",
            "sh",
            "-euc",
            WORK,
        ])
        .ok();
        let made = fs::metadata(mount.join(directory).join("made")).unwrap();
        assert_eq!(format!("{}:{}", made.uid(), made.gid()), user);
        assert_eq!((made.mode() & 0o7777, made.nlink()), (0o750, 2));
        assert_eq!(
            fs::read_to_string(mount.join(directory).join("made")).unwrap(),
            "made\nmore\n"
        );
    }
    let denied = docker([
        "run",
        "--rm",
        "--network",
        "none",
        "-u",
        "1000:1000",
        "-v",
        &format!("{}:/workspace", mount.path.display()),
        "kura-test:small",
        "sh",
        "-c",
        "echo x >/workspace/root/no",
    ]);
    assert_ne!(denied.code, 0, "root's directory is open to everybody");
}

#[test]
fn docker_a_remount_reaches_a_running_container_through_its_parent() {
    let store = TestStore::new();
    store.init("demo", None);
    let parent = store.scratch_directory("parent");
    let inner = parent.join("demo");
    fs::create_dir(&inner).unwrap();
    shell_ok(
        &parent,
        &format!(
            "mount --bind '{0}' '{0}'; mount --make-shared '{0}'",
            parent.display()
        ),
    );
    let container = Container::start(
        "kura-test:small",
        &[
            "-v".to_owned(),
            format!("{}:/parent:rslave", parent.display()),
        ],
    );
    for round in 0..3 {
        let _ = run(store
            .command()
            .args(["mount", "demo"])
            .arg(&inner)
            .arg("--allow-other"))
        .ok();
        container.ok(&format!(
            "echo {round} >/parent/demo/round-{round}; ls /parent/demo"
        ));
        assert!(inner.join(format!("round-{round}")).exists());
        let _ = run(store.command().arg("umount").arg(&inner)).ok();
    }
    drop(container);
    let list = store.ok(&["ls", "demo@main:"]).stdout;
    for round in 0..3 {
        assert!(list.contains(&format!("round-{round}")), "{list}");
    }
}

#[test]
fn docker_ids_are_mapped_between_container_and_workspace() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount_with(
        "demo",
        &[
            "--allow-other",
            "--uid-map",
            "1000:0:1",
            "--gid-map",
            "1000:0:1",
        ],
    );
    docker([
        "run",
        "--rm",
        "--network",
        "none",
        "-u",
        "1000:1000",
        "-v",
        &format!("{}:/workspace", mount.path.display()),
        "kura-test:small",
        "sh",
        "-euc",
        WORK,
    ])
    .ok();
    assert_eq!(fs::metadata(mount.join("made")).unwrap().uid(), 1000);
    store.unmount(&mount);
    let plain = store.mount("demo");
    assert_eq!(
        fs::metadata(plain.join("made")).unwrap().uid(),
        0,
        "stored as root's"
    );
}

#[test]
fn docker_rollback_reaches_a_running_container() {
    let store = TestStore::new();
    store.init("demo", None);
    let mount = store.mount_with("demo", &["--allow-other"]);
    let container = Container::start(
        "kura-test:small",
        &[
            "-v".to_owned(),
            format!("{}:/workspace", mount.path.display()),
        ],
    );
    container
        .ok("mkdir -p /workspace/a/b; for n in $(seq 200); do echo $n >/workspace/a/b/$n; done");
    let sums = container.ok("cd /workspace; find . -type f -exec sha256sum {} + | sort");
    let good = store.commit("demo", "good");
    container.ok("rm -rf /workspace/a; echo x >/workspace/new; ls /workspace");
    store.ok(&["rollback", "demo", &good, "--yes"]);
    assert_eq!(
        container.ok("cd /workspace; find . -type f -exec sha256sum {} + | sort"),
        sums
    );
    container.ok("echo goes on >/workspace/a/b/201; [ ! -e /workspace/new ]");
}

#[test]
fn docker_the_volume_driver_serves_runs_options_list_inspect_and_remove() {
    let store = TestStore::new();
    let project = store.scratch_directory("project");
    fs::write(project.join("file"), "first\n").unwrap();
    store.init("kura-test-demo", Some(&project));
    let first = store.log_ids("kura-test-demo")[0].clone();
    let mut driver = Driver::start(&store);
    driver.volumes.push("kura-test-demo".to_owned());

    // The workspace of that name, without creating a volume first.
    driver
        .run(
            "kura-test-demo",
            "cat /workspace/file; echo second >/workspace/file",
        )
        .ok();
    assert_eq!(
        store.ok(&["cat", "kura-test-demo@main:file"]).stdout,
        "second\n"
    );

    // A new workspace, made by its first use.
    driver.volumes.push("kura-test-new".to_owned());
    driver
        .run("kura-test-new", &WORK.replace("pipe", "fifo"))
        .ok();
    assert_eq!(
        store.ok(&["cat", "kura-test-new@main:made"]).stdout,
        "made\nmore\n"
    );

    driver.create(
        "kura-test-old",
        &["workspace=kura-test-demo", &format!("rev={first}")],
    );
    let old = driver.run("kura-test-old", "cat /workspace/file").ok();
    assert_eq!(old.stdout, "first\n");
    let refused = driver.run("kura-test-old", "echo x >/workspace/file");
    assert_ne!(refused.code, 0, "an old version can be written");

    driver.create(
        "kura-test-read",
        &["workspace=kura-test-demo", "read-only=true", "as=reader"],
    );
    let refused = driver.run(
        "kura-test-read",
        "cat /workspace/file; echo x >/workspace/file",
    );
    assert_ne!(refused.code, 0, "a read-only volume can be written");
    assert_eq!(refused.stdout, "second\n");

    let list = docker(["volume", "ls", "--filter", "driver=kura", "-q"])
        .ok()
        .stdout;
    for name in &driver.volumes {
        assert!(
            list.lines().any(|line| line == name),
            "{name} is not in {list}"
        );
    }
    let container = Container::start(
        "kura-test:small",
        &["--volume-driver", "kura", "-v", "kura-test-demo:/workspace"],
    );
    let inspected = docker(["volume", "inspect", "kura-test-demo"]).ok().stdout;
    let head = store.log_ids("kura-test-demo")[0].clone();
    assert!(
        inspected.contains(&head) || inspected.contains(&head[..12]),
        "no commit in {inspected}"
    );
    // Two containers share one volume.
    driver
        .run("kura-test-demo", "echo shared >/workspace/shared")
        .ok();
    assert_eq!(container.ok("cat /workspace/shared"), "shared\n");
    drop(container);

    let before = store.log_ids("kura-test-new");
    docker(["volume", "rm", "kura-test-new"]).ok();
    assert_eq!(
        store.log_ids("kura-test-new"),
        before,
        "removing a volume lost history"
    );
    let unknown = docker([
        "volume",
        "create",
        "--driver",
        "kura",
        "-o",
        "colour=red",
        "kura-test-bad",
    ]);
    assert_ne!(unknown.code, 0, "an unknown option is accepted");
    assert!(unknown.stderr.contains("colour"), "{unknown}");
}

#[test]
fn docker_a_compose_file_names_the_driver() {
    let store = TestStore::new();
    store.init("kura-test-compose", None);
    let mut driver = Driver::start(&store);
    driver.volumes.push("kura-test-compose".to_owned());
    let directory = store.scratch_directory("compose");
    fs::write(
        directory.join("docker-compose.yml"),
        "version: '3.3'
services:
  agent:
    image: kura-test:small
    network_mode: none
    command: ['sh', '-c', 'echo composed >/workspace/composed']
    volumes: ['work:/workspace']
volumes:
  work:
    name: kura-test-compose
    driver: kura
    driver_opts: {workspace: kura-test-compose}
",
    )
    .unwrap();
    let compose = |arguments: &[&str]| {
        run(Command::new("docker-compose")
            .args(["-p", "kura-test"])
            .args(arguments)
            .current_dir(&directory))
    };
    let up = compose(&[
        "up",
        "--abort-on-container-exit",
        "--exit-code-from",
        "agent",
    ]);
    compose(&["down"]).ok();
    up.ok();
    assert_eq!(
        store.ok(&["cat", "kura-test-compose@main:composed"]).stdout,
        "composed\n"
    );
}

#[test]
fn docker_g1_a_volume_outlives_killed_workers() {
    let store = TestStore::new();
    store.init("kura-test-kill", None);
    let mut driver = Driver::start(&store);
    driver.volumes.push("kura-test-kill".to_owned());
    let container = Container::start(
        "kura-test:small",
        &["--volume-driver", "kura", "-v", "kura-test-kill:/workspace"],
    );
    for round in 0..3 {
        container.ok(&format!("echo {round} >>/workspace/log"));
        store.kill_worker();
        container.ok("sync; cat /workspace/log >/dev/null");
    }
    assert_eq!(container.ok("cat /workspace/log"), "0\n1\n2\n");
    driver.run("kura-test-kill", "cat /workspace/log").ok();
}
