//! A filesystem of an empty workspace, mounted twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuse_mount::fs::FilesystemSession;
use fuse_mount::fuse::{Environment, Session, SessionOptions};
use workspace_store::Store;
use workspace_store::object::Timestamp;
use workspace_store::policy::{Access, Pattern, Policy, Rule};

use crate::helper::flush_helper;
use crate::workspace::empty_workspace;

/// Names in a directory, sorted.
pub fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// One of the mounts.
pub struct Mount {
    pub kernel: Session,
    pub session: Arc<FilesystemSession>,
    pub top: PathBuf,
}

impl Mount {
    pub fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }
}

/// Both; unmounted at the end.
pub struct Two {
    pub a: Mount,
    pub b: Mount,
    _directory: tempfile::TempDir,
    _store: Store,
}

impl Two {
    pub fn new() -> Self {
        Self::with(SessionOptions::default().shared())
    }

    /// `first` are the options of the first mount.
    pub fn with(first: SessionOptions) -> Self {
        let directory = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let (store, filesystem) = empty_workspace(directory.path());
        let helper = Arc::new(flush_helper());
        let mount = |name: &str, options: SessionOptions| {
            let session = FilesystemSession::new(filesystem.clone());
            let environment = Environment {
                handler: session.clone(),
                holder: None,
                flush_helper: Some(helper.clone()),
            };
            let top = directory.path().join(name);
            fs::create_dir(&top).unwrap();
            let kernel = Session::mount(&top, options, environment).unwrap();
            Mount {
                kernel,
                session,
                top,
            }
        };
        let read_only = first.writeback_cache;
        Self {
            a: mount("a", first),
            b: mount(
                "b",
                SessionOptions {
                    read_only,
                    ..SessionOptions::default()
                }
                .shared(),
            ),
            _directory: directory,
            _store: store,
        }
    }

    /// Grants for `b`: pattern and access. Everything else is hidden.
    pub fn grant(&self, rules: &[(&str, Access)]) {
        let rules = rules
            .iter()
            .map(|(pattern, access)| Rule {
                pattern: Pattern::parse(pattern.as_bytes()).unwrap(),
                access: *access,
                until: None,
                is_own: true,
            })
            .collect();
        let policy = Policy::compile(rules, Access::Hidden, Timestamp::now());
        self.b.session.set_policy(policy);
        assert!(self.b.kernel.wait_for_notifications(Duration::from_secs(5)));
    }

    /// Both mounts in both orders.
    pub fn both_ways(&self) -> [(&Mount, &Mount); 2] {
        [(&self.a, &self.b), (&self.b, &self.a)]
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for mount in [&self.a, &self.b] {
            mount.kernel.wait_for_notifications(Duration::from_secs(5));
            let ended = mount.kernel.unmount(true);
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}
