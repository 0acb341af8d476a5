//! An ordinary user: the whole path without root, and clear words where rights lack.
//!
//! Everything runs in a mount namespace of its own, so that `/dev/fuse` and `/etc/fuse.conf` can be
//! what a test needs, whatever they are on this machine.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs;
use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::{Run, TestStore, binary, run, shell_ok, wait_until};

/// `nobody`: `fusermount3` wants a user with a name.
const USER: u32 = 65534;

/// A mount namespace and a store of an ordinary user in it.
struct UserSpace {
    // Before the namespace: its daemon lives there.
    store: TestStore,
    namespace: Child,
}

impl UserSpace {
    /// `device_mode`: permission bits of `/dev/fuse`.
    fn new(device_mode: &str, fuse_conf: &str) -> Self {
        let store = TestStore::new();
        let home = store.path().parent().unwrap().to_owned();
        chown(&home, Some(USER), Some(USER)).unwrap();
        let system = store.scratch_directory("system");
        shell_ok(
            &system,
            &format!(
                "mknod -m {device_mode} fuse c 10 229; echo '{fuse_conf}' >fuse.conf; touch ready"
            ),
        );
        let script = "mount --bind fuse /dev/fuse; mount --bind fuse.conf /etc/fuse.conf; rm ready; exec sleep 600";
        let namespace = Command::new("unshare")
            .args(["-m", "--propagation", "private", "bash", "-euc", script])
            .current_dir(&system)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let space = Self { store, namespace };
        wait_until("the namespace is ready", Duration::from_secs(10), || {
            !system.join("ready").exists()
        });
        space
    }

    /// Runs a bash script as the user, in the home directory; `kura` is in the path.
    fn run(&self, script: &str) -> Run {
        let home = self.store.path().parent().unwrap();
        let programs = binary("kura").parent().unwrap().to_owned();
        run(Command::new("nsenter")
            .arg(format!("--target={}", self.namespace.id()))
            .args(["--mount", "--"])
            .arg("setpriv")
            .args([format!("--reuid={USER}"), format!("--regid={USER}")])
            .args(["--clear-groups", "--inh-caps=-all"])
            .args(["bash", "-euc"])
            .arg(format!("cd '{}'; {script}", home.display()))
            .env("HOME", home)
            .env("KURA_STORE", self.store.path())
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", programs.display()),
            )
            .env("NO_COLOR", "1"))
    }

    #[track_caller]
    fn ok(&self, script: &str) -> String {
        self.run(script).ok().stdout
    }
}

impl Drop for UserSpace {
    fn drop(&mut self) {
        // The daemon must go before its namespace.
        let _ = self.run("kura daemon stop --force");
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}

/// A failure that says each of the words and what to do.
#[track_caller]
fn refuse(run: &Run, words: &[&str]) {
    assert!(run.code != 0, "it succeeded: {run}");
    for word in words {
        assert!(run.stderr.contains(word), "no `{word}`: {run}");
    }
    assert!(run.stderr.contains("hint: "), "no next step: {run}");
    assert!(!run.stderr.contains("panicked"), "{run}");
}

#[test]
fn fuse_an_ordinary_user_mounts_works_commits_rolls_back_and_unmounts() {
    let space = UserSpace::new("666", "");
    space.ok("mkdir project; echo one >project/file; kura init demo --from project");
    space.ok("kura mount demo work");
    let kind = space.ok("stat -f -c %T work; grep -c \" $PWD/work fuse\" /proc/self/mounts");
    assert_eq!(kind, "fuseblk\n1\n");
    space.ok("cd work; test \"$(cat file)\" = one; echo two >file; mkdir -p a/b; echo new >a/b/new; ln -s file link; ln file hard; chmod 640 file; setfattr -n user.note -v x file; truncate -s 3M sparse; sync file");
    let id = space.ok("kura commit demo -m second").trim().to_owned();
    assert_eq!(id.len(), 64, "{id}");
    let log = space.ok("kura log demo --ids");
    assert_eq!(log.lines().next(), Some(id.as_str()));
    assert_eq!(
        space.ok("cd work; stat -c '%u:%g %a %h' file; getfattr --only-values -n user.note file"),
        format!("{USER}:{USER} 640 2\nx")
    );
    // The daemon's death is no end of the mount, also where the helper made it.
    let pid = space.ok("kura daemon status --json | python3 -c 'import json,sys\ndef find(v):\n  if isinstance(v, dict):\n    if \"pid\" in v: return v[\"pid\"]\n    for x in v.values():\n      r = find(x)\n      if r: return r\nprint(find(json.load(sys.stdin)))'");
    space.ok(&format!(
        "kill -9 {}; sleep 0.1; cat work/a/b/new",
        pid.trim()
    ));
    space.ok("kura rollback demo HEAD~1 --yes");
    assert_eq!(space.ok("cd work; ls; cat file"), "file\none\n");
    space.ok("kura undo demo --yes");
    assert_eq!(
        space.ok("cd work; ls; cat file"),
        "a\nfile\nhard\nlink\nsparse\ntwo\n"
    );
    space.ok("echo last >work/last; kura umount work; test -z \"$(grep \" $PWD/work fuse\" /proc/self/mounts)\"; rmdir work");
    assert_eq!(space.ok("kura cat demo:last"), "last\n");

    // Only the user's own; root may ask the daemon as well.
    let other = run(space.store.command().args(["log", "demo", "--ids"])).ok();
    assert_eq!(
        other.stdout.lines().count(),
        space.ok("kura log demo --ids").lines().count()
    );
    space.ok("kura daemon stop");
}

#[test]
fn fuse_an_ordinary_user_is_told_which_right_is_missing() {
    let space = UserSpace::new("600", "");
    space.ok("kura init demo");
    let mount = space.run("kura mount demo work");
    refuse(&mount, &["/dev/fuse"]);
    assert_eq!(space.ok("kura list | grep -c demo; kura ls-mounts"), "1\n");
    space.ok("test ! -e work; kura daemon stop");

    let space = UserSpace::new("666", "");
    space.ok("kura init demo");
    refuse(
        &space.run("kura mount demo work --allow-other"),
        &["user_allow_other", "/etc/fuse.conf"],
    );
    space.ok("test ! -e work; kura mount demo work; echo x >work/file; kura umount work");
    // A directory of somebody else.
    refuse(&space.run("kura mount demo /etc/skel"), &["/etc/skel"]);
    refuse(&space.run("kura mount demo /root"), &["/root"]);
    refuse(
        &space.run("kura init other --store /root/store"),
        &["/root/store"],
    );

    let space = UserSpace::new("666", "user_allow_other");
    space.ok("kura init demo; kura mount demo work --allow-other; echo x >work/file");
    let home = space.store.path().parent().unwrap().to_owned();
    let as_root = run(Command::new("nsenter")
        .arg(format!("--target={}", space.namespace.id()))
        .args(["--mount", "--", "cat"])
        .arg(home.join("work/file")))
    .ok();
    assert_eq!(as_root.stdout, "x\n", "others are let in");
    space.ok("kura umount work");
    assert!(
        fs::read_dir(home.join("work")).is_err()
            || fs::read_dir(home.join("work")).unwrap().next().is_none()
    );
}
