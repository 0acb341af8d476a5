//! A filesystem over a real store without a kernel: opening it, and asking it as the transport does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuse_mount::fs::request::{
    Caller, Entry, Errno, Failure, Mode, Request, Response, SetAttributes,
};
use fuse_mount::fs::{CommitPolicy, Filesystem, FilesystemOptions};
use workspace_store::object::CommitKind;
use workspace_store::source::{CommitRequest, WorkspaceSource};
use workspace_store::store::{Store, StoreOptions};

pub const ROOT: u64 = 1;

pub struct Overlay {
    pub store: Store,
    pub directory: tempfile::TempDir,
}

impl Overlay {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            create: true,
            ..Default::default()
        };
        let store = Store::open(&directory.path().join("store"), options).unwrap();
        store.create_workspace("demo", "tester").unwrap();
        Self { store, directory }
    }

    /// The same after its store was closed.
    pub fn reopened(self) -> Self {
        let path = self.directory.path().join("store");
        Self {
            store: Store::open(&path, StoreOptions::default()).unwrap(),
            directory: self.directory,
        }
    }

    pub fn source(&self) -> Arc<dyn WorkspaceSource> {
        let workspace = self.store.workspace("demo").unwrap();
        self.store.source(workspace.id, "main").unwrap()
    }

    pub fn fork(&self, workspace: workspace_store::WorkspaceId) -> Arc<dyn WorkspaceSource> {
        self.store.source(workspace, "main").unwrap()
    }

    /// A fork of the workspace, which nobody has mounted yet.
    pub fn fork_workspace(&self, name: &str) -> Arc<dyn WorkspaceSource> {
        let demo = self.store.workspace("demo").unwrap();
        self.store
            .fork_workspace(demo.id, demo.head, name, "tester", |_| true)
            .unwrap();
        self.fork(self.store.workspace(name).unwrap().id)
    }

    pub fn open(&self, is_resumed: bool) -> Mounted {
        self.open_source(self.source(), "overlay", is_resumed)
    }

    pub fn open_source(
        &self,
        source: Arc<dyn WorkspaceSource>,
        directory: &str,
        is_resumed: bool,
    ) -> Mounted {
        let filesystem = Filesystem::open(
            source,
            FilesystemOptions {
                directory: self.directory.path().join(directory),
                policy: CommitPolicy {
                    enabled: false,
                    quiet: Duration::from_millis(50),
                    max_interval: Duration::from_secs(3600),
                },
                author: "tester".into(),
                is_read_only: false,
                is_resumed,
                processes: Default::default(),
            },
        )
        .unwrap();
        Mounted {
            filesystem,
            next_unique: AtomicU64::new(2),
        }
    }
}

/// A filesystem and the numbers of its requests. Dropping it without `close` is a kill: nothing is
/// written at that moment.
pub struct Mounted {
    pub filesystem: Arc<Filesystem>,
    pub next_unique: AtomicU64,
}

impl Mounted {
    pub fn caller(&self) -> Caller {
        let unique = self.next_unique.fetch_add(2, Ordering::Relaxed);
        Caller {
            uid: 0,
            gid: 0,
            is_root: true,
            principal: 0,
            pid: 1,
            unique,
            is_resent: false,
        }
    }

    pub fn ask(&self, request: &Request<'_>) -> Result<Response, Errno> {
        match self
            .filesystem
            .handle(&self.caller(), request, Mode::MayBlock)
        {
            Ok(response) => Ok(response),
            Err(Failure::Errno(errno)) => Err(errno),
            Err(Failure::WouldBlock) => panic!("a worker may block"),
        }
    }

    pub fn entry(&self, request: &Request<'_>) -> Entry {
        match self.ask(request).unwrap() {
            Response::Entry(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&self, parent: u64, name: &str, data: &[u8]) -> u64 {
        let name = name.as_bytes();
        let inode = self
            .entry(&Request::Create {
                parent,
                name,
                mode: 0o644,
                umask: 0o022,
                flags: 0,
            })
            .inode;
        self.write(inode, 0, data);
        inode
    }

    pub fn mkdir(&self, parent: u64, name: &str) -> u64 {
        let name = name.as_bytes();
        self.entry(&Request::MakeDirectory {
            parent,
            name,
            mode: 0o755,
            umask: 0o022,
        })
        .inode
    }

    pub fn write(&self, inode: u64, offset: u64, data: &[u8]) {
        for (index, part) in data.chunks(1 << 20).enumerate() {
            let offset = offset + (index << 20) as u64;
            let request = Request::Write {
                inode,
                offset,
                data: part,
                kill_suid_gid: false,
                from_cache: false,
                appends: false,
            };
            assert_eq!(self.ask(&request), Ok(Response::Count(part.len() as u64)));
        }
    }

    pub fn set_size(&self, inode: u64, size: u64) {
        let changes = SetAttributes {
            size: Some(size),
            ..Default::default()
        };
        self.ask(&Request::SetAttributes { inode, changes })
            .unwrap();
    }

    pub fn read(&self, inode: u64) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let request = Request::Read {
                inode,
                offset: content.len() as u64,
                size: 1 << 20,
            };
            match self.ask(&request).unwrap() {
                Response::Data(data) if data.is_empty() => return content,
                Response::Data(data) => content.extend(data),
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn look_up(&self, path: &str) -> Result<Entry, Errno> {
        let mut parent = ROOT;
        let mut found = Err(Errno(libc::ENOENT));
        for name in path.split('/') {
            match self.ask(&Request::Lookup {
                parent,
                name: name.as_bytes(),
            })? {
                Response::Entry(entry) => {
                    parent = entry.inode;
                    found = Ok(entry);
                }
                other => panic!("{other:?}"),
            }
        }
        found
    }

    pub fn content(&self, path: &str) -> Vec<u8> {
        self.read(self.look_up(path).unwrap().inode)
    }

    /// Gives a file another name.
    pub fn link(&self, inode: u64, new_parent: u64, new_name: &str) -> Entry {
        self.entry(&Request::Link {
            inode,
            new_parent,
            new_name: new_name.as_bytes(),
        })
    }

    pub fn unlink(&self, parent: u64, name: &str) {
        assert_eq!(
            self.ask(&Request::Unlink {
                parent,
                name: name.as_bytes()
            }),
            Ok(Response::Empty)
        );
    }

    pub fn rename(&self, from: (u64, &str), to: (u64, &str)) {
        let request = Request::Rename {
            parent: from.0,
            name: from.1.as_bytes(),
            new_parent: to.0,
            new_name: to.1.as_bytes(),
            flags: 0,
        };
        assert_eq!(self.ask(&request), Ok(Response::Empty));
    }

    pub fn commit(&self) -> workspace_store::CommitId {
        self.filesystem.commit(manual()).unwrap().commit
    }

    pub fn names(&self, directory: u64) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let request = Request::ReadDirectory {
                inode: directory,
                cookie,
                size: 4096,
                overhead_bytes: 24,
                plus: false,
            };
            match self.ask(&request).unwrap() {
                Response::Directory(entries) if entries.is_empty() => break,
                Response::Directory(entries) => {
                    cookie = entries.last().unwrap().cookie;
                    names.extend(
                        entries
                            .iter()
                            .map(|entry| String::from_utf8_lossy(&entry.name).into()),
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}

pub fn manual() -> CommitRequest {
    CommitRequest {
        author: "tester".into(),
        kind: CommitKind::Manual,
        message: String::new(),
        run: None,
        step: None,
    }
}

pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
