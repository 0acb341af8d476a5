//! Databases that are foreign, newer, broken or tampered with.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use workspace_store::edit::{EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Attributes, CommitKind};
use workspace_store::source::CommitRequest;
use workspace_store::{ErrorKind, Store, StoreError, StoreOptions};

fn open(directory: &Path) -> Result<Store, StoreError> {
    Store::open(
        directory,
        StoreOptions {
            create: false,
            ..StoreOptions::default()
        },
    )
}

/// A closed store with one commit, and a connection to its database.
fn closed_store(directory: &Path) -> Connection {
    let store = Store::open(directory, StoreOptions::default()).unwrap();
    let workspace = store.create_workspace("demo", "ada").unwrap();
    let root = store.commit(workspace.head).unwrap().root.clone();
    let mut large = vec![0; 300_000];
    blake3::Hasher::new().finalize_xof().fill(&mut large);
    let entries = [("small", b"small content".to_vec()), ("large", large)]
        .into_iter()
        .enumerate()
        .map(|(key, (name, content))| {
            let edit = InodeEdit {
                attributes: Attributes::default(),
                node: NodeEdit::Content {
                    key: key as u64,
                    content: Arc::new(content),
                },
            };
            (name.as_bytes().into(), EntryEdit::Put(edit))
        })
        .collect();
    let edit = SnapshotEdit::changing(&root, entries);
    let request = CommitRequest {
        author: "ada".to_owned(),
        kind: CommitKind::Manual,
        message: "two files".to_owned(),
        run: None,
        step: None,
    };
    store
        .apply_edit(
            workspace.id,
            "main",
            workspace.head,
            &root,
            edit,
            request,
            &|_| {},
        )
        .unwrap();
    store
        .set_setting(workspace.id, "key", Some("value"), "ada")
        .unwrap();
    store.close().unwrap();
    Connection::open(directory.join("kura.db")).unwrap()
}

#[test]
fn a_missing_store_is_not_made_by_accident() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_newer_store_is_refused_and_not_touched() {
    for change in [
        "PRAGMA user_version = 1000",
        "UPDATE meta SET value = value || ' future' WHERE key = 'features_incompatible'",
        "UPDATE meta SET value = 'future' WHERE key = 'features_read_only_compatible'",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let connection = closed_store(directory.path());
        connection.execute_batch(change).unwrap();
        connection.close().unwrap();
        let before = std::fs::read(directory.path().join("kura.db")).unwrap();
        let error = open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{change}: {error}");
        assert!(error.message().contains("newer version"), "{error}");
        assert!(error.hint().is_some());
        assert!(
            std::fs::read(directory.path().join("kura.db")).unwrap() == before,
            "{change}"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let connection = closed_store(directory.path());
    connection
        .execute(
            "UPDATE meta SET value = 'future' WHERE key = 'features_compatible'",
            [],
        )
        .unwrap();
    connection.close().unwrap();
    open(directory.path()).expect("an unknown compatible feature does no harm");
}

#[test]
fn foreign_and_broken_databases_are_refused_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kura.db");
    let foreign = Connection::open(&path).unwrap();
    foreign
        .execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
        .unwrap();
    foreign.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.message().contains("another program"), "{error}");
    assert!(std::fs::read(&path).unwrap() == before);

    for bytes in [b"this is a text file, not a database, ".repeat(500), {
        let mut cut = before.clone();
        cut[16..1000].fill(0xa5);
        cut
    }] {
        std::fs::write(&path, &bytes).unwrap();
        let error = open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.hint().is_some());
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
}

#[test]
fn a_creation_that_was_cut_short_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("kura.db"), b"").unwrap();
    let store = open(directory.path()).unwrap();
    store.create_workspace("demo", "ada").unwrap();
}

#[test]
fn damaged_objects_are_found_by_the_check_and_never_read() {
    for (table, column, object) in [
        ("chunk_data", "data", "chunk"),
        ("tree_node", "data", "directory"),
        ("commit_object", "data", "commit"),
        ("manifest", "data", "content"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let connection = closed_store(directory.path());
        // The last row: for chunks and directories the one that the newest commit needs.
        let (row, bytes): (i64, Vec<u8>) = connection
            .query_row(
                &format!("SELECT rowid, {column} FROM {table} ORDER BY rowid DESC LIMIT 1"),
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            connection
                .execute(
                    &format!("UPDATE {table} SET {column} = ?1 WHERE rowid = ?2"),
                    (&damaged, row),
                )
                .unwrap();
            let store = open(directory.path()).unwrap();
            let report = store.check(&|_| {}).unwrap();
            let is_found = report
                .problems
                .iter()
                .any(|problem| problem.object.starts_with(object));
            assert!(is_found, "{table} byte {at}: {:?}", report.problems);
            store.close().unwrap();
        }
    }
}

#[test]
fn g10_tampering_any_byte_of_an_audit_row_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let connection = closed_store(directory.path());
    let error = connection
        .execute("UPDATE audit SET outcome = 'denied'", [])
        .unwrap_err();
    assert!(error.to_string().contains("append-only"));
    let error = connection.execute("DELETE FROM audit", []).unwrap_err();
    assert!(error.to_string().contains("append-only"));
    connection
        .execute_batch("DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete")
        .unwrap();

    let is_broken_at = |what: &str| -> Option<u64> {
        let store = open(directory.path()).unwrap();
        let verification = store.audit_verify().unwrap();
        let is_sound = store.check(&|_| {}).unwrap().problems.is_empty();
        assert_eq!(verification.broken.is_none(), is_sound, "{what}");
        store.close().unwrap();
        verification.broken.map(|found| found.sequence)
    };
    assert_eq!(is_broken_at("untouched"), None);
    let columns = [
        "sequence",
        "time_ns",
        "principal",
        "source",
        "action",
        "workspace",
        "object",
        "outcome",
        "details",
        "previous",
        "hash",
    ];
    for column in columns {
        let row = if column == "sequence" {
            "action = 'commit'"
        } else {
            "sequence = 2"
        };
        let read = |connection: &Connection| -> rusqlite::types::Value {
            connection
                .query_row(
                    &format!("SELECT {column} FROM audit WHERE {row}"),
                    [],
                    |row| row.get(0),
                )
                .unwrap()
        };
        let original = read(&connection);
        use rusqlite::types::Value;
        let variants: Vec<Value> = match &original {
            Value::Integer(number) => (0..8)
                .map(|byte| Value::Integer(number ^ 4 << (8 * byte)))
                .collect(),
            Value::Text(text) => (0..text.len())
                .map(|at| {
                    let mut bytes = text.clone().into_bytes();
                    bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
                    Value::Text(String::from_utf8(bytes).unwrap())
                })
                .chain([Value::Text(format!("{text} "))])
                .collect(),
            Value::Blob(bytes) => (0..bytes.len())
                .map(|at| {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 1;
                    Value::Blob(bytes)
                })
                .collect(),
            other => panic!("{column} is {other:?}"),
        };
        let set = |value: &Value| {
            connection
                .execute(
                    &format!("UPDATE audit SET {column} = ?1 WHERE {row}"),
                    [value],
                )
                .unwrap();
        };
        // Opening a store for each byte is slow; the first, the last and some between will do for
        // the long ones, because all bytes of a column go the same way into the hash.
        let step = (variants.len() / 8).max(1);
        for variant in variants.iter().step_by(step).chain(variants.last()) {
            set(variant);
            assert_eq!(is_broken_at(column), Some(2), "{column} = {variant:?}");
        }
        set(&original);
    }
    assert_eq!(is_broken_at("all set back"), None);

    connection
        .execute_batch("SAVEPOINT cut; DELETE FROM audit WHERE sequence = 3; RELEASE cut")
        .unwrap();
    assert_eq!(is_broken_at("cut off at the end"), Some(3));
    connection.execute("DELETE FROM audit", []).unwrap();
    assert_eq!(is_broken_at("all gone"), Some(1));
}

#[test]
fn g10_removed_swapped_and_cut_off_audit_entries_are_found() {
    let broken_at = |damage: &str, anchor: bool| -> Option<u64> {
        let directory = tempfile::tempdir().unwrap();
        let connection = closed_store(directory.path());
        let (sequence, hash): (i64, Vec<u8>) = connection
            .query_row(
                "SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        connection
            .execute_batch("DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete")
            .unwrap();
        connection.execute_batch(damage).unwrap();
        connection.close().unwrap();
        let store = open(directory.path()).unwrap();
        let anchor = anchor.then_some((sequence as u64, hash.as_str()));
        let found = store.audit_verify_to(anchor).unwrap().broken;
        store.close().unwrap();
        found.map(|found| found.sequence)
    };
    assert_eq!(broken_at("", true), None);
    assert_eq!(
        broken_at("DELETE FROM audit WHERE sequence = 1", false),
        Some(1)
    );
    assert_eq!(
        broken_at("DELETE FROM audit WHERE sequence = 2", false),
        Some(2)
    );
    let last = "(SELECT max(sequence) FROM audit)";
    assert!(broken_at(&format!("DELETE FROM audit WHERE sequence = {last}"), false).is_some());
    let swap = "UPDATE audit SET sequence = -1 WHERE sequence = 1;
                UPDATE audit SET sequence = 1 WHERE sequence = 2;
                UPDATE audit SET sequence = 2 WHERE sequence = -1";
    assert_eq!(broken_at(swap, false), Some(1));
    // Cut off so well that the log itself doesn't show it: the anchor does.
    let cut = format!(
        "DELETE FROM audit WHERE sequence = {last};
         UPDATE meta SET value = (SELECT sequence || ' ' || lower(hex(hash)) FROM audit
             ORDER BY sequence DESC LIMIT 1) WHERE key = 'audit_head'"
    );
    assert_eq!(broken_at(&cut, false), None);
    assert!(broken_at(&cut, true).is_some());
    let all = "DELETE FROM audit; DELETE FROM meta WHERE key = 'audit_head'";
    assert_eq!(broken_at(all, false), None);
    assert_eq!(broken_at(all, true), Some(1));
}
