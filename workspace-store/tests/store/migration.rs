//! A store that version 1 has written (`golden/store-v1.sql`: its tables and rows as SQL).

use workspace_store::Store;
use workspace_store::audit::AuditQuery;
use workspace_store::commits::LogQuery;
use workspace_store::policy::Access;
use workspace_store::principal::PrincipalKind;

use crate::access::state;
use crate::fixture::{edit_of, file, open, request};

const MESSAGES: [&str; 3] = ["import 2", "import 1", ""];
const VERSION_1: &str = include_str!("../golden/store-v1.sql");

fn version_1() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(directory.path().join("kura.db")).unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    let version: i32 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 1);
    directory
}

fn content(store: &Store, revision: &str, path: &str) -> Vec<u8> {
    let workspace = store.workspace("demo").unwrap().id;
    let commit = store.resolve(workspace, revision).unwrap();
    let root = store.commit(commit).unwrap().root.clone();
    let names = workspace_store::path::split_path(path.as_bytes()).unwrap();
    let entry = workspace_store::lookup::require_path(store, &root, &names).unwrap();
    let inode = workspace_store::lookup::resolve_entry(store, root.links, &entry).unwrap();
    let workspace_store::object::Node::Regular { blob, size, .. } = inode.node else {
        panic!("{path} is no file");
    };
    let mut bytes = vec![0; size as usize];
    let count =
        workspace_store::reader::ObjectReader::read_blob(store, blob, 0, &mut bytes).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}

#[test]
fn a_store_of_version_1_has_all_it_had_and_can_do_what_is_new() {
    let directory = version_1();
    let store = open(directory.path());
    let workspace = store.workspace("demo").unwrap();
    let log = store.log(workspace.id, &LogQuery::default()).unwrap();
    let messages: Vec<&str> = log.iter().map(|entry| &*entry.commit.message).collect();
    assert_eq!(messages, MESSAGES);
    assert_eq!(store.tags(workspace.id).unwrap()[0].name, "v1");
    assert_eq!(content(&store, "v1", "docs/text"), b"first\n");
    assert_eq!(content(&store, "HEAD", "docs/text"), b"second\n");
    assert_eq!(content(&store, "HEAD", "large").len(), 300_000);
    assert_eq!(store.check(&|_| {}).unwrap().problems, []);
    let audit = store.audit_verify().unwrap();
    assert!(audit.broken.is_none() && audit.entries > 3, "{audit:?}");
    let entries = store.audit(&AuditQuery::default()).unwrap();
    assert_eq!(entries.len() as u64, audit.entries);

    // What came with version 2.
    store
        .add_principal("ada", PrincipalKind::Service, "owner")
        .unwrap();
    store
        .set_grant(workspace.id, "ada", "/", state(Access::Read), "owner")
        .unwrap();
    assert_eq!(store.grants(workspace.id, None).unwrap().len(), 1);
    let head = log[0].id;
    let root = log[0].commit.root.clone();
    let edit = edit_of(&root, [("new", file(1, *b"new"))]);
    store
        .apply_edit(
            workspace.id,
            "main",
            head,
            &root,
            edit,
            request("new"),
            &|_| {},
        )
        .unwrap();
    store.close().unwrap();
    let store = open(directory.path());
    assert_eq!(content(&store, "HEAD", "new"), b"new");
    assert_eq!(store.check(&|_| {}).unwrap().problems, []);
    assert!(store.audit_verify().unwrap().broken.is_none());
}
