//! A store with one workspace, and short ways to change and read it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use workspace_store::commits::ChangeKind;
use workspace_store::edit::{DirectoryEdit, EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Attributes, CommitKind, Name, Node, Root, Timestamp, TreeEntry};
use workspace_store::reader::ObjectReader;
use workspace_store::source::CommitRequest;
use workspace_store::workspace::WorkspaceInfo;
use workspace_store::{CommitId, Store, StoreOptions, TreeId};

pub fn open(directory: &Path) -> Store {
    Store::open(directory, StoreOptions::default()).unwrap()
}

pub fn request(message: &str) -> CommitRequest {
    CommitRequest {
        author: "ada".to_owned(),
        kind: CommitKind::Manual,
        message: message.to_owned(),
        run: None,
        step: None,
    }
}

pub fn name(text: &str) -> Name {
    text.as_bytes().into()
}

pub fn attributes(mode: u32) -> Attributes {
    Attributes {
        mode,
        uid: 1000,
        gid: 100,
        mtime: Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 123_456_789,
        },
        ..Attributes::default()
    }
}

pub fn file(key: u64, content: impl Into<Vec<u8>>) -> EntryEdit {
    let content: Vec<u8> = content.into();
    EntryEdit::Put(InodeEdit {
        attributes: attributes(0o644),
        node: NodeEdit::Content {
            key,
            content: Arc::new(content),
        },
    })
}

pub fn directory(edit: DirectoryEdit) -> EntryEdit {
    EntryEdit::Put(InodeEdit {
        attributes: attributes(0o755),
        node: NodeEdit::Directory(edit),
    })
}

pub fn entries<const N: usize>(list: [(&str, EntryEdit); N]) -> BTreeMap<Name, EntryEdit> {
    list.into_iter()
        .map(|(text, entry)| (name(text), entry))
        .collect()
}

pub fn edit_of<const N: usize>(base: &Root, list: [(&str, EntryEdit); N]) -> SnapshotEdit {
    SnapshotEdit::changing(base, entries(list))
}

pub struct Fixture {
    pub store: Store,
    pub workspace: WorkspaceInfo,
    pub directory: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let workspace = store.create_workspace("demo", "ada").unwrap();
        Self {
            store,
            workspace,
            directory,
        }
    }

    pub fn head(&self) -> (CommitId, Root) {
        let id = self.store.branch(self.workspace.id, "main").unwrap();
        (id, self.store.commit(id).unwrap().root.clone())
    }

    pub fn apply(&self, edit: impl FnOnce(&Root) -> SnapshotEdit) -> CommitId {
        let (head, root) = self.head();
        let edit = edit(&root);
        let done = self
            .store
            .apply_edit(
                self.workspace.id,
                "main",
                head,
                &root,
                edit,
                request("edit"),
                &|_| {},
            )
            .unwrap();
        assert_eq!(self.store.check(&|_| {}).unwrap().problems, []);
        done.commit
    }

    pub fn changes(&self, commit: CommitId) -> Vec<(String, ChangeKind)> {
        let changes = self.store.changes(commit).unwrap();
        changes
            .into_iter()
            .map(|change| {
                (
                    String::from_utf8(change.path.to_vec()).unwrap(),
                    change.kind,
                )
            })
            .collect()
    }
}

pub fn read_file(store: &Store, root: &Root, path: &[&str]) -> Vec<u8> {
    let mut tree = root.tree;
    for (index, component) in path.iter().enumerate() {
        let inode = match store.lookup(tree, component.as_bytes()).unwrap().unwrap() {
            TreeEntry::Inline(inode) => inode,
            TreeEntry::Link(id) => store.link(root.links.unwrap(), id).unwrap().unwrap().inode,
        };
        match inode.node {
            Node::Directory { tree: below } => tree = below,
            Node::Regular { blob, size, .. } => {
                assert_eq!(index + 1, path.len());
                return store.read_whole_blob(blob, size, 1 << 30).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("not a file");
}

pub trait Count {
    fn directory_entries(&self, tree: TreeId) -> usize;
}

impl Count for Store {
    fn directory_entries(&self, tree: TreeId) -> usize {
        ObjectReader::directory(self, tree).unwrap().len()
    }
}
