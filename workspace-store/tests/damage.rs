//! What a store does when its process is killed, when its file is changed behind its back, and
//! when it meets a file that it must not touch.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rusqlite::Connection;
use workspace_store::audit::{AuditQuery, AuditRecord};
use workspace_store::edit::{DirectoryEdit, EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Attributes, CommitKind, Node, Root, TreeEntry};
use workspace_store::reader::ObjectReader;
use workspace_store::source::{CommitRequest, Submission};
use workspace_store::{CommitId, ErrorKind, Store, StoreError, StoreOptions, WorkspaceId};

const DATABASE: &str = "kura.db";
const CHILD_DIRECTORY: &str = "KURA_TEST_CHILD_DIRECTORY";

fn open(directory: &Path) -> Store {
    Store::open(directory, StoreOptions::default()).unwrap()
}

fn refusal(directory: &Path) -> StoreError {
    Store::open(directory, StoreOptions::default()).expect_err("the store must be refused")
}

fn request(message: String) -> CommitRequest {
    CommitRequest {
        author: "ada".to_owned(),
        kind: CommitKind::Snapshot,
        message,
        run: None,
        step: None,
    }
}

fn file(key: u64, content: Vec<u8>) -> EntryEdit {
    EntryEdit::Put(InodeEdit {
        attributes: Attributes {
            mode: 0o644,
            ..Attributes::default()
        },
        node: NodeEdit::Content {
            key,
            content: Arc::new(content),
        },
    })
}

fn edit(base: &Root, entries: BTreeMap<Box<[u8]>, EntryEdit>) -> SnapshotEdit {
    SnapshotEdit {
        root: DirectoryEdit {
            base: Some(base.tree),
            entries,
            key: None,
        },
        ..SnapshotEdit::default()
    }
}

/// Content of the two files of the child's commit number `number`: a small and a chunked one.
fn contents(number: u64) -> [(String, Vec<u8>); 2] {
    let mut large = vec![0; 300_000];
    blake3::Hasher::new()
        .update(&number.to_le_bytes())
        .finalize_xof()
        .fill(&mut large);
    [
        (
            format!("small-{}", number % 7),
            number.to_string().into_bytes(),
        ),
        (format!("large-{}", number % 3), large),
    ]
}

fn commit_number(store: &Store, workspace: WorkspaceId, number: u64) -> CommitId {
    let source = store.source(workspace, "main").unwrap();
    let head = source.head().unwrap();
    let entries = contents(number)
        .into_iter()
        .enumerate()
        .map(|(key, (name, content))| {
            (
                name.into_bytes().into_boxed_slice(),
                file(key as u64, content),
            )
        })
        .collect();
    let submitted = source
        .submit(Submission {
            expected_head: head.commit,
            base: head.root.clone(),
            edit: edit(&head.root, entries),
            commit: Some(request(number.to_string())),
            first_journal_segment: number,
            next_inode_number: 100 + number,
            inode_records: BTreeMap::new(),
        })
        .unwrap();
    assert!(submitted.is_new);
    submitted.commit
}

#[test]
#[ignore = "runs as the child of the next test"]
fn child_commits_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else {
        return;
    };
    let store = open(Path::new(&directory));
    let workspace = store.workspace("demo").unwrap().id;
    let first = store.log(workspace, &Default::default()).unwrap().len() as u64;
    for number in first.. {
        let id = commit_number(&store, workspace, number);
        writeln!(std::io::stdout(), "\ncommit {number} {id}").unwrap();
    }
}

/// [G-2] for a killed process: every commit that was reported is whole, and nothing is half done.
#[test]
fn reported_commits_survive_a_kill_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let workspace = store.create_workspace("demo", "ada").unwrap().id;
    store.close().unwrap();
    let mut reported: Vec<(u64, CommitId)> = Vec::new();
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_commits_until_it_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(CHILD_DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let wanted = reported.len() + 3 + round as usize;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while reported.len() < wanted {
            let line = lines.next().expect("the child ended by itself").unwrap();
            if let Some((number, id)) = line
                .strip_prefix("commit ")
                .and_then(|rest| rest.split_once(' '))
            {
                reported.push((number.parse().unwrap(), id.parse().unwrap()));
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(round * 1_700));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            if let Some((number, id)) = line
                .unwrap()
                .strip_prefix("commit ")
                .and_then(|rest| rest.split_once(' '))
            {
                reported.push((number.parse().unwrap(), id.parse().unwrap()));
            }
        }

        let store = open(directory.path());
        assert_eq!(store.check(&|_| {}).unwrap().problems, []);
        let head = store.branch(workspace, "main").unwrap();
        let log = store.log(workspace, &Default::default()).unwrap();
        assert_eq!(log[0].id, head);
        for (number, id) in &reported {
            assert!(
                log.iter().any(|entry| entry.id == *id),
                "commit {number} is lost"
            );
            let root = &store.commit(*id).unwrap().root;
            for (name, content) in contents(*number) {
                let Some(TreeEntry::Inline(inode)) =
                    store.lookup(root.tree, name.as_bytes()).unwrap()
                else {
                    panic!("{name} is missing in commit {number}");
                };
                let Node::Regular { blob, size, .. } = inode.node else {
                    panic!("{name} is no file");
                };
                assert_eq!(store.read_whole_blob(blob, size, 1 << 20).unwrap(), content);
            }
        }
        // The state of the overlay moved together with the branch.
        let source = store.source(workspace, "main").unwrap();
        let overlay = source.overlay().unwrap().unwrap();
        assert_eq!(overlay.head, head);
        let number: u64 = store.commit(head).unwrap().message.parse().unwrap();
        assert_eq!(overlay.first_journal_segment, number);
        // At most one commit was made and not reported; the next round goes on after it.
        let (last, _) = reported[reported.len() - 1];
        assert!(
            number == last || number == last + 1,
            "{number} after {last}"
        );
        if number > last {
            reported.push((number, head));
        }
        store.close().unwrap();
    }
}

#[test]
fn a_second_opener_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let error = refusal(directory.path());
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.hint().is_some());
    store.create_workspace("demo", "ada").unwrap();
    store.close().unwrap();
    assert_eq!(open(directory.path()).workspaces().unwrap().len(), 1);
}

#[test]
fn foreign_newer_and_broken_databases_are_refused_and_left_alone() {
    let make_foreign = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch("CREATE TABLE theirs (a); PRAGMA user_version = 3;")
            .unwrap();
    };
    let make_newer = |path: &Path| {
        open(path.parent().unwrap()).close().unwrap();
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
    };
    let make_featured = |path: &Path| {
        open(path.parent().unwrap()).close().unwrap();
        let connection = Connection::open(path).unwrap();
        let changed = connection
            .execute(
                "UPDATE meta SET value = value || ' time-travel' WHERE key = 'features_incompatible'",
                [],
            )
            .unwrap();
        assert_eq!(changed, 1);
    };
    let make_broken =
        |path: &Path| std::fs::write(path, b"no database at all ".repeat(999)).unwrap();
    let cases: [(&dyn Fn(&Path), ErrorKind, &str); 4] = [
        (&make_foreign, ErrorKind::Incompatible, "another program"),
        (&make_newer, ErrorKind::Incompatible, "99"),
        (&make_featured, ErrorKind::Incompatible, "time-travel"),
        (&make_broken, ErrorKind::Corrupt, "not a readable database"),
    ];
    for (make, kind, text) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DATABASE);
        make(&path);
        let before = std::fs::read(&path).unwrap();
        let error = refusal(directory.path());
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.message().contains(text), "{error:?}");
        assert!(error.hint().is_some(), "{error:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    let nowhere = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        create: false,
        ..StoreOptions::default()
    };
    let error = Store::open(nowhere.path(), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(nowhere.path()).unwrap().count(), 0);
}

/// [G-10] Whatever is changed in the audit log, and wherever it is cut, is found.
#[test]
fn every_change_of_the_audit_log_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let workspace = store.create_workspace("demo", "ada").unwrap().id;
    for outcome in ["ok", "denied", "failed"] {
        store
            .audit_append(AuditRecord {
                principal: "bob".to_owned(),
                source: "api".to_owned(),
                action: "path.read".to_owned(),
                workspace: Some(workspace),
                object: "secret".to_owned(),
                outcome: outcome.to_owned(),
                details: serde_json::json!({ "why": outcome }),
            })
            .unwrap();
    }
    let entries = store.audit(&AuditQuery::default()).unwrap();
    let verified = store.audit_verify().unwrap();
    assert_eq!(verified.entries, entries.len() as u64);
    assert_eq!(verified.broken, None);
    store.close().unwrap();

    let last = entries.len() as u64;
    let changes = [
        (
            "UPDATE audit SET time_ns = time_ns + 1 WHERE sequence = 2",
            2,
        ),
        ("UPDATE audit SET principal = 'eve' WHERE sequence = 2", 2),
        ("UPDATE audit SET source = 'mount' WHERE sequence = 3", 3),
        (
            "UPDATE audit SET action = 'path.writ' WHERE sequence = 2",
            2,
        ),
        ("UPDATE audit SET workspace = NULL WHERE sequence = 2", 2),
        ("UPDATE audit SET object = 'other' WHERE sequence = 3", 3),
        ("UPDATE audit SET outcome = 'ok' WHERE sequence = 3", 3),
        ("UPDATE audit SET details = '{}' WHERE sequence = 2", 2),
        (
            "UPDATE audit SET previous = zeroblob(32) WHERE sequence = 2",
            2,
        ),
        ("UPDATE audit SET hash = zeroblob(32) WHERE sequence = 1", 1),
        ("DELETE FROM audit WHERE sequence = 1", 1),
        ("DELETE FROM audit WHERE sequence = 3", 3),
        (
            "DELETE FROM audit WHERE sequence = (SELECT max(sequence) FROM audit)",
            last,
        ),
        ("DELETE FROM audit", 1),
    ];
    for (change, sequence) in changes {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join(DATABASE);
        std::fs::copy(directory.path().join(DATABASE), &path).unwrap();
        let connection = Connection::open(&path).unwrap();
        let refused = connection.execute(change, []);
        assert!(
            refused.is_err(),
            "the database itself lets '{change}' happen"
        );
        connection
            .execute_batch("DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete;")
            .unwrap();
        assert!(connection.execute(change, []).unwrap() > 0, "{change}");
        drop(connection);
        let store = open(copy.path());
        let broken = store.audit_verify().unwrap().broken;
        let broken = broken.unwrap_or_else(|| panic!("'{change}' was not found"));
        assert_eq!(broken.sequence, sequence, "{change}: {}", broken.reason);
        assert_ne!(store.check(&|_| {}).unwrap().problems, [], "{change}");
    }
}

/// [G-12] Damaged objects are errors where they are read, and a check names them.
#[test]
fn damaged_objects_are_found_and_never_read_as_good() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let workspace = store.create_workspace("demo", "ada").unwrap().id;
    let id = commit_number(&store, workspace, 1);
    let root = store.commit(id).unwrap().root.clone();
    assert_eq!(store.check(&|_| {}).unwrap().problems, []);
    store.close().unwrap();
    let damages = [
        "UPDATE chunk_data SET data = zeroblob(length(data)) WHERE chunk = 2",
        "DELETE FROM chunk_data WHERE chunk = 1",
        "UPDATE chunk SET size = size + 1 WHERE id = 1",
        "UPDATE manifest SET data = zeroblob(length(data))",
        "DELETE FROM manifest",
        "UPDATE tree_node SET data = zeroblob(length(data)) WHERE id = 2",
        "DELETE FROM tree_node WHERE id = 2",
        "UPDATE commit_object SET data = zeroblob(length(data)) WHERE id = 2",
        "DELETE FROM commit_change WHERE commit_id = 2",
    ];
    for damage in damages {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join(DATABASE);
        std::fs::copy(directory.path().join(DATABASE), &path).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection
            .pragma_update(None, "foreign_keys", false)
            .unwrap();
        assert!(connection.execute(damage, []).unwrap() > 0, "{damage}");
        drop(connection);
        let store = open(copy.path());
        assert_ne!(store.check(&|_| {}).unwrap().problems, [], "{damage}");
        for (name, content) in contents(1) {
            let entry = store.lookup(root.tree, name.as_bytes());
            let Ok(Some(TreeEntry::Inline(inode))) = entry else {
                continue;
            };
            if let Node::Regular { blob, size, .. } = inode.node
                && let Ok(read) = store.read_whole_blob(blob, size, 1 << 20)
            {
                assert!(read == content, "{damage}: other bytes than were stored");
            }
        }
    }
}
