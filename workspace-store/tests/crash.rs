//! A process killed in the middle of its work: what it reported is there, whole [G-2].
//!
//! The killed process is this test program started again with an environment variable.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use workspace_store::edit::{EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Attributes, CommitKind, Inode, Node, TreeEntry};
use workspace_store::reader::ObjectReader;
use workspace_store::source::{CommitRequest, Submission};
use workspace_store::{CommitId, ErrorKind, Store, StoreOptions};

const CHILD_DIRECTORY: &str = "STORE_CRASH_CHILD_DIRECTORY";
const FILES_PER_COMMIT: u64 = 20;

/// Content of a file that only its commit's message and its number decide.
fn content(message: &str, file: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1000 + (file as usize) * 9_000];
    let seed = format!("{message} {file}");
    blake3::Hasher::new()
        .update(seed.as_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Not a test of its own: the process that gets killed.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else {
        return;
    };
    let store = Store::open(&PathBuf::from(directory), StoreOptions::default()).unwrap();
    let workspace = match store.workspace("demo") {
        Ok(workspace) => workspace,
        Err(_) => store.create_workspace("demo", "ada").unwrap(),
    };
    let source = store.source(workspace.id, "main").unwrap();
    for round in 0_u64.. {
        let head = source.head().unwrap();
        let message = format!("{} {round}", std::process::id());
        let entries = (0..FILES_PER_COMMIT)
            .map(|file| {
                let edit = InodeEdit {
                    attributes: Attributes {
                        mode: 0o644,
                        ..Attributes::default()
                    },
                    node: NodeEdit::Content {
                        key: file,
                        content: Arc::new(content(&message, file)),
                    },
                };
                (format!("f{file}").into_bytes().into(), EntryEdit::Put(edit))
            })
            .collect();
        let submission = Submission {
            attribution: Default::default(),
            mountpoint: None,
            expected_head: head.commit,
            base: head.root.clone(),
            edit: SnapshotEdit::changing(&head.root, entries),
            commit: Some(CommitRequest {
                author: "ada".to_owned(),
                kind: CommitKind::Snapshot,
                message,
                run: None,
                step: Some(round),
            }),
            lineage: Default::default(),
            is_automatic: false,
            first_journal_segment: round,
            next_inode_number: round,
            inode_records: BTreeMap::new(),
        };
        let done = source.submit(submission).unwrap();
        println!("\ncommitted {}", done.commit);
    }
}

fn verify_commit(store: &Store, id: CommitId) {
    let commit = store.commit(id).unwrap();
    assert_eq!(store.changes(id).unwrap().len() as u64, FILES_PER_COMMIT);
    for file in 0..FILES_PER_COMMIT {
        let entry = store
            .lookup(commit.root.tree, format!("f{file}").as_bytes())
            .unwrap();
        let Some(TreeEntry::Inline(Inode {
            node: Node::Regular { blob, size, .. },
            ..
        })) = entry
        else {
            panic!("f{file} is missing from {id}");
        };
        let bytes = store.read_whole_blob(blob, size, 1 << 20).unwrap();
        assert!(bytes == content(&commit.message, file), "f{file} of {id}");
    }
}

fn run_and_kill(directory: &Path, after: Duration) -> Vec<CommitId> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| {
                line.strip_prefix("committed ")
                    .and_then(|id| id.parse().ok())
            })
            .collect()
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn g2_reported_commits_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut reported = Vec::new();
    for round in 0_u64..8 {
        // Different moments, so that the kill meets different stages of a commit.
        reported.extend(run_and_kill(
            directory.path(),
            Duration::from_millis(150 + 37 * round),
        ));
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let Ok(workspace) = store.workspace("demo") else {
            assert!(reported.is_empty(), "a reported commit needs its workspace");
            continue;
        };
        let log = store.log(workspace.id, &Default::default()).unwrap();
        let ids: Vec<CommitId> = log.iter().map(|entry| entry.id).collect();
        for id in &reported {
            assert!(ids.contains(id), "{id} was reported and is gone");
        }
        // Also what was committed but not yet reported is whole.
        for id in ids.iter().take(ids.len() - 1) {
            verify_commit(&store, *id);
        }
        assert_eq!(store.check(&|_| {}).unwrap().problems, []);
        let overlay = store
            .source(workspace.id, "main")
            .unwrap()
            .overlay()
            .unwrap();
        let head = store.commit(ids[0]).unwrap();
        assert_eq!(overlay.map(|state| state.next_inode_number), head.step);
        store.close().unwrap();
    }
    assert!(
        reported.len() > 20,
        "only {} commits in all rounds",
        reported.len()
    );
}

#[test]
fn a_second_opener_is_told_who_is_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let first = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let error = Store::open(directory.path(), StoreOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("kura daemon"))
    );
    first.close().unwrap();
    Store::open(directory.path(), StoreOptions::default()).unwrap();
}
