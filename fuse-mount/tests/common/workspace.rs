//! A filesystem of an empty workspace in a real store, which commits on request only.

use std::path::Path;
use std::sync::Arc;

use fuse_mount::fs::{CommitPolicy, Filesystem, FilesystemOptions};
use workspace_store::store::{Store, StoreOptions};

/// Makes store and filesystem in a directory.
pub fn empty_workspace(directory: &Path) -> (Store, Arc<Filesystem>) {
    let options = StoreOptions {
        create: true,
        ..Default::default()
    };
    let store = Store::open(&directory.join("store"), options).unwrap();
    store.create_workspace("demo", "tester").unwrap();
    let workspace = store.workspace("demo").unwrap();
    let source = store.source(workspace.id, "main").unwrap();
    let options = FilesystemOptions {
        directory: directory.join("overlay"),
        policy: CommitPolicy {
            enabled: false,
            ..CommitPolicy::default()
        },
        author: "tester".into(),
        is_read_only: false,
        is_resumed: false,
        processes: Default::default(),
    };
    let filesystem = Filesystem::open(source, options).unwrap();
    (store, filesystem)
}
