//! Commits, refs, operations and what they record.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::audit::AuditQuery;
use workspace_store::commits::{ChangeKind, LogQuery};
use workspace_store::edit::{DirectoryEdit, EntryEdit, InodeEdit, LinkEdit, NodeEdit};
use workspace_store::object::{CommitKind, Inode, LinkId, Node, Root, Timestamp, TreeEntry};
use workspace_store::operation::OperationKind;
use workspace_store::reader::ObjectReader;
use workspace_store::source::{CommitRequest, InodeRecord, Submission};
use workspace_store::{CommitId, ErrorKind, TreeId};

use crate::fixture::*;

#[test]
fn a_new_workspace_has_an_empty_first_commit() {
    let fixture = Fixture::new();
    assert_eq!(fixture.workspace.default_branch, "main");
    let (head, root) = fixture.head();
    assert_eq!(head, fixture.workspace.head);
    assert_eq!(fixture.store.commit(head).unwrap().kind, CommitKind::Init);
    assert_eq!(root.attributes.mode, 0o755);
    assert_eq!(fixture.store.directory_entries(root.tree), 0);
    assert_eq!(
        fixture.store.workspaces().unwrap(),
        std::slice::from_ref(&fixture.workspace)
    );
    let error = fixture.store.create_workspace("demo", "ada").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    for bad in ["", "a/b", "a b", "-x", "@", "x:y", &"n".repeat(101)] {
        let error = fixture.store.create_workspace(bad, "ada").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        assert!(error.hint().is_some());
    }
    assert_eq!(
        fixture.store.workspace("other").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn changes_are_listed_by_path_and_kind() {
    let fixture = Fixture::new();
    let first = fixture.apply(|root| {
        let sub = DirectoryEdit {
            entries: entries([("a", file(1, "a")), ("b", file(2, "b"))]),
            ..Default::default()
        };
        edit_of(
            root,
            [
                ("dir", directory(sub)),
                ("top", file(3, "top")),
                ("odd", file(4, "x")),
            ],
        )
    });
    use ChangeKind::{Added, Deleted, Metadata, Modified, TypeChanged};
    let expected = [
        ("dir", Added),
        ("dir/a", Added),
        ("dir/b", Added),
        ("odd", Added),
        ("top", Added),
    ];
    assert_eq!(
        fixture.changes(first),
        expected.map(|(path, kind)| (path.to_owned(), kind))
    );

    let second = fixture.apply(|root| {
        let Some(TreeEntry::Inline(Inode {
            node: Node::Directory { tree },
            ..
        })) = fixture.store.lookup(root.tree, b"dir").unwrap()
        else {
            panic!("dir is a directory");
        };
        let Some(TreeEntry::Inline(top)) = fixture.store.lookup(root.tree, b"top").unwrap() else {
            panic!("top is a file");
        };
        let sub = DirectoryEdit {
            base: Some(tree),
            entries: entries([("a", file(1, "changed")), ("b", EntryEdit::Remove)]),
            ..Default::default()
        };
        let chmod = EntryEdit::Put(InodeEdit {
            attributes: attributes(0o600),
            node: NodeEdit::Stored(top.node),
        });
        let link = EntryEdit::Put(InodeEdit {
            attributes: attributes(0o777),
            node: NodeEdit::Stored(Node::Symlink {
                target: b"top"[..].into(),
            }),
        });
        edit_of(
            root,
            [("dir", directory(sub)), ("top", chmod), ("odd", link)],
        )
    });
    let expected = [
        ("dir/a", Modified),
        ("dir/b", Deleted),
        ("odd", TypeChanged),
        ("top", Metadata),
    ];
    assert_eq!(
        fixture.changes(second),
        expected.map(|(path, kind)| (path.to_owned(), kind))
    );

    let third = fixture.apply(|root| edit_of(root, [("dir", EntryEdit::Remove)]));
    let expected = [("dir", Deleted), ("dir/a", Deleted)];
    assert_eq!(
        fixture.changes(third),
        expected.map(|(path, kind)| (path.to_owned(), kind))
    );

    let log = |path: &str| -> Vec<CommitId> {
        let query = LogQuery {
            path: Some(path.into()),
            ..LogQuery::default()
        };
        let log = fixture.store.log(fixture.workspace.id, &query).unwrap();
        log.into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(log("dir/b"), [second, first]);
    assert_eq!(log("dir"), [third, second, first]);
    assert_eq!(log("/top/"), [second, first]);
    assert_eq!(log("nothing"), []);
    assert_eq!(log("").len(), 4);
}

#[test]
fn an_edit_that_changes_nothing_makes_no_commit() {
    let fixture = Fixture::new();
    let first = fixture.apply(|root| edit_of(root, [("a", file(1, "same"))]));
    let again = fixture.apply(|root| edit_of(root, [("a", file(1, "same"))]));
    assert_eq!(first, again);
    let gone = fixture.apply(|root| edit_of(root, [("no such name", EntryEdit::Remove)]));
    assert_eq!(first, gone);
    let log = fixture
        .store
        .log(fixture.workspace.id, &LogQuery::default())
        .unwrap();
    assert_eq!(log.len(), 2);
}

#[test]
fn a_lost_race_is_a_conflict_and_leaves_the_winner() {
    let fixture = Fixture::new();
    let (head, root) = fixture.head();
    let apply = |content: &str| {
        let edit = edit_of(&root, [("a", file(1, content))]);
        fixture.store.apply_edit(
            fixture.workspace.id,
            "main",
            head,
            &root,
            edit,
            request(""),
            &|_| {},
        )
    };
    let winner = apply("first").unwrap();
    let error = apply("second").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains(&winner.commit.to_hex()), "{error}");
    assert_eq!(fixture.head().0, winner.commit);
    assert_eq!(
        read_file(&fixture.store, &fixture.head().1, &["a"]),
        b"first"
    );

    // Of many at once exactly one wins each round.
    let (head, root) = fixture.head();
    let wins = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|index| {
                let (store, root) = (fixture.store.clone(), root.clone());
                let workspace = fixture.workspace.id;
                scope.spawn(move || {
                    let edit = edit_of(&root, [("a", file(1, format!("racer {index}")))]);
                    store.apply_edit(workspace, "main", head, &root, edit, request(""), &|_| {})
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|r| r.is_ok())
            .count()
    });
    assert_eq!(wins, 1);
}

#[test]
fn files_with_several_names_change_at_all_of_them() {
    let fixture = Fixture::new();
    let link = |content: &str, count: u32| {
        Some(LinkEdit {
            link_count: count,
            inode: InodeEdit {
                attributes: attributes(0o644),
                node: NodeEdit::Content {
                    key: 99,
                    content: Arc::new(content.as_bytes().to_vec()),
                },
            },
        })
    };
    let first = fixture.apply(|root| {
        let sub = DirectoryEdit {
            entries: entries([("two", EntryEdit::Link(LinkId(7)))]),
            ..Default::default()
        };
        let mut edit = edit_of(
            root,
            [
                ("one", EntryEdit::Link(LinkId(7))),
                ("d", directory(sub)),
                ("z", file(1, "z")),
            ],
        );
        edit.links.insert(LinkId(7), link("shared", 2));
        edit
    });
    assert_eq!(fixture.changes(first).len(), 4);
    let second = fixture.apply(|root| {
        let mut edit = edit_of(root, []);
        edit.links.insert(LinkId(7), link("changed", 2));
        edit
    });
    let both = [
        ("d/two".to_owned(), ChangeKind::Modified),
        ("one".to_owned(), ChangeKind::Modified),
    ];
    assert_eq!(fixture.changes(second), both);
    assert_eq!(
        read_file(&fixture.store, &fixture.head().1, &["d", "two"]),
        b"changed"
    );

    // The directory moves: remembered places are stale, the names are found all the same.
    let moved = fixture.apply(|root| {
        let Some(TreeEntry::Inline(sub)) = fixture.store.lookup(root.tree, b"d").unwrap() else {
            panic!("d is a directory");
        };
        let put = EntryEdit::Put(InodeEdit {
            attributes: sub.attributes,
            node: NodeEdit::Stored(sub.node),
        });
        edit_of(root, [("d", EntryEdit::Remove), ("e", put)])
    });
    assert_eq!(fixture.changes(moved).len(), 4);
    let third = fixture.apply(|root| {
        let mut edit = edit_of(root, []);
        edit.links.insert(LinkId(7), link("again", 2));
        edit
    });
    let both = [
        ("e/two".to_owned(), ChangeKind::Modified),
        ("one".to_owned(), ChangeKind::Modified),
    ];
    assert_eq!(fixture.changes(third), both);

    // Back to one name, inline: the table is empty, and nothing but the lost name changed.
    let last = fixture.apply(|root| {
        let linked = fixture
            .store
            .link(root.links.unwrap(), LinkId(7))
            .unwrap()
            .unwrap();
        let inline = EntryEdit::Put(InodeEdit {
            attributes: linked.inode.attributes,
            node: NodeEdit::Stored(linked.inode.node),
        });
        let mut edit = edit_of(root, [("e", EntryEdit::Remove), ("one", inline)]);
        edit.links.insert(LinkId(7), None);
        edit
    });
    let gone = [
        ("e".to_owned(), ChangeKind::Deleted),
        ("e/two".to_owned(), ChangeKind::Deleted),
    ];
    assert_eq!(fixture.changes(last), gone);
    assert_eq!(fixture.head().1.links, None);
}

#[test]
fn a_mount_submits_and_finds_its_overlay_again() {
    let fixture = Fixture::new();
    let source = fixture.store.source(fixture.workspace.id, "main").unwrap();
    assert_eq!(source.overlay().unwrap(), None);
    let head = source.head().unwrap();
    let record = |number: u64| {
        Some(InodeRecord {
            number,
            ctime: Timestamp {
                seconds: 9,
                nanoseconds: number as u32,
            },
        })
    };
    let submission =
        |base: &Root, head: CommitId, commit: Option<CommitRequest>, edit| Submission {
            attribution: Default::default(),
            mountpoint: None,
            expected_head: head,
            base: base.clone(),
            edit,
            commit,
            lineage: Default::default(),
            is_automatic: false,
            first_journal_segment: 3,
            next_inode_number: 1 << 40,
            inode_records: BTreeMap::from([
                ((1, name("a")), record(77)),
                ((1, name("b")), record(78)),
                ((77, name("c")), record(79)),
            ]),
        };
    // A checkpoint leaves the branch alone.
    let edit = edit_of(&head.root, [("a", file(1, "checkpoint"))]);
    let done = source
        .submit(submission(&head.root, head.commit, None, edit))
        .unwrap();
    assert!(!done.is_new);
    assert_eq!(done.commit, head.commit);
    let state = source.overlay().unwrap().unwrap();
    assert_eq!((&state.base, state.head), (&done.root, head.commit));
    assert_eq!(
        (state.first_journal_segment, state.next_inode_number),
        (3, 1 << 40)
    );
    assert_eq!(source.head().unwrap().commit, head.commit);

    // A commit over the checkpoint: what changed is told against the branch.
    let edit = edit_of(&done.root, [("b", file(2, "commit"))]);
    let next = source
        .submit(submission(
            &done.root,
            head.commit,
            Some(request("c")),
            edit,
        ))
        .unwrap();
    assert!(next.is_new);
    assert_eq!(fixture.changes(next.commit).len(), 2);
    assert_eq!(source.head().unwrap().commit, next.commit);
    let records = source.inode_records(1).unwrap();
    assert_eq!(
        records,
        [
            (name("a"), record(77).unwrap()),
            (name("b"), record(78).unwrap())
        ]
    );
    assert_eq!(source.inode_location(79).unwrap(), Some((77, name("c"))));
    assert_eq!(source.inode_location(80).unwrap(), None);

    // Nothing changed, but rows go away and the state moves on.
    let mut last = submission(
        &next.root,
        next.commit,
        Some(request("d")),
        edit_of(&next.root, []),
    );
    last.first_journal_segment = 9;
    last.inode_records = BTreeMap::from([((1, name("a")), None)]);
    let done = source.submit(last).unwrap();
    assert!(!done.is_new);
    assert_eq!(source.overlay().unwrap().unwrap().first_journal_segment, 9);
    assert_eq!(source.inode_records(1).unwrap().len(), 1);
    let stale = submission(&next.root, head.commit, None, edit_of(&next.root, []));
    assert_eq!(
        source.submit(stale).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert_eq!(source.overlay().unwrap().unwrap().first_journal_segment, 9);
}

#[test]
fn revisions_resolve_and_only_within_their_workspace() {
    let fixture = Fixture::new();
    let (init, _) = fixture.head();
    let first = fixture.apply(|root| edit_of(root, [("a", file(1, "1"))]));
    let second = fixture.apply(|root| edit_of(root, [("a", file(1, "2"))]));
    let id = fixture.workspace.id;
    let resolve = |text: &str| fixture.store.resolve(id, text);
    fixture
        .store
        .create_branch(id, "work/x", first, "ada")
        .unwrap();
    fixture.store.create_tag(id, "v1", first, "ada").unwrap();
    assert_eq!(resolve("HEAD").unwrap(), second);
    assert_eq!(resolve("main").unwrap(), second);
    assert_eq!(resolve("HEAD~1").unwrap(), first);
    assert_eq!(resolve("main~2").unwrap(), init);
    assert_eq!(resolve("HEAD~1~1").unwrap(), init);
    assert_eq!(resolve("work/x").unwrap(), first);
    assert_eq!(resolve("v1~").unwrap(), init);
    assert_eq!(resolve(&second.to_hex()).unwrap(), second);
    assert_eq!(resolve(&second.to_hex()[..12]).unwrap(), second);
    assert_eq!(
        resolve(&second.to_hex()[..12].to_uppercase()).unwrap(),
        second
    );
    assert_eq!(resolve("@{now}").unwrap(), second);
    assert_eq!(resolve("main@{0 seconds ago}~1").unwrap(), first);
    for (text, kind) in [
        ("nothing", ErrorKind::NotFound),
        ("abc", ErrorKind::NotFound),
        ("HEAD~3", ErrorKind::NotFound),
        ("@{2 hours ago}", ErrorKind::NotFound),
        ("@{long ago}", ErrorKind::InvalidInput),
        ("", ErrorKind::InvalidInput),
        ("~1", ErrorKind::InvalidInput),
        ("HEAD~x", ErrorKind::InvalidInput),
        ("HEAD~99999999999999999999", ErrorKind::InvalidInput),
        ("HEAD@x", ErrorKind::InvalidInput),
    ] {
        assert_eq!(resolve(text).unwrap_err().kind(), kind, "{text}");
    }

    let other = fixture.store.create_workspace("other", "eve").unwrap();
    for text in [second.to_hex(), second.to_hex()[..10].to_owned()] {
        let error = fixture.store.resolve(other.id, &text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    let error = fixture
        .store
        .create_branch(other.id, "steal", second, "eve")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);

    let fork = fixture
        .store
        .fork_workspace(id, first, "fork", "ada", |_| true)
        .unwrap();
    assert_eq!(fork.head, first);
    assert_eq!(
        fixture.store.resolve(fork.id, &first.to_hex()).unwrap(),
        first
    );
    assert_eq!(fixture.store.resolve(fork.id, "HEAD~1").unwrap(), init);
    let error = fixture
        .store
        .resolve(fork.id, &second.to_hex())
        .unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::NotFound,
        "later commits of the origin aren't shared"
    );
    let log = fixture.store.log(fork.id, &LogQuery::default()).unwrap();
    assert_eq!(
        log.iter().map(|entry| entry.id).collect::<Vec<_>>(),
        [first, init]
    );
}

#[test]
fn an_ambiguous_prefix_lists_its_candidates() {
    let fixture = Fixture::new();
    // Enough commits that two share four digits, by the birthday bound.
    let mut prefixes: BTreeMap<String, Vec<CommitId>> = BTreeMap::new();
    let (mut head, mut root) = fixture.head();
    for index in 0..2000 {
        let edit = edit_of(&root, [("a", file(1, format!("{index}")))]);
        let done = fixture
            .store
            .apply_edit(
                fixture.workspace.id,
                "main",
                head,
                &root,
                edit,
                request(""),
                &|_| {},
            )
            .unwrap();
        (head, root) = (done.commit, done.root);
        let same = prefixes.entry(head.to_hex()[..4].to_owned()).or_default();
        same.push(head);
        if same.len() == 2 {
            break;
        }
    }
    let (prefix, same) = prefixes.iter().find(|(_, same)| same.len() == 2).unwrap();
    let error = fixture
        .store
        .resolve(fixture.workspace.id, prefix)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    for id in same {
        assert!(error.message().contains(&id.to_hex()[..16]), "{error}");
    }
}

#[test]
fn refs_and_settings_are_operations_that_can_be_undone() {
    let fixture = Fixture::new();
    let id = fixture.workspace.id;
    let (head, _) = fixture.head();
    let store = &fixture.store;
    let made = store.create_branch(id, "work", head, "ada").unwrap();
    let record = store.operation(id, made).unwrap();
    assert_eq!(record.kind, OperationKind::CreateBranch);
    assert_eq!((record.target.as_str(), record.before), ("work", None));
    assert_eq!(record.after, Some(head.to_hex()));

    let undone = store.undo_ref_operation(id, made, "bob").unwrap();
    assert!(store.branch(id, "work").is_err());
    assert_eq!(store.operation(id, undone).unwrap().undoes, Some(made));
    let redone = store.undo_ref_operation(id, undone, "bob").unwrap();
    assert_eq!(store.branch(id, "work").unwrap(), head);
    assert_eq!(store.operation(id, redone).unwrap().undoes, Some(undone));
    // Undoing the first once more works on the same state; a second time there is nothing left.
    store.undo_ref_operation(id, made, "bob").unwrap();
    assert_eq!(
        store
            .undo_ref_operation(id, made, "bob")
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );

    let first = store
        .set_setting(id, "commit.auto", Some("true"), "ada")
        .unwrap();
    let second = store
        .set_setting(id, "commit.auto", Some("false"), "ada")
        .unwrap();
    let error = store.undo_ref_operation(id, first, "ada").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    store.undo_ref_operation(id, second, "ada").unwrap();
    assert_eq!(store.settings(id).unwrap()["commit.auto"], "true");
    store.undo_ref_operation(id, first, "ada").unwrap();
    assert!(store.settings(id).unwrap().is_empty());

    let tag = store.create_tag(id, "v1", head, "ada").unwrap();
    assert_eq!(
        store.create_tag(id, "v1", head, "ada").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    store.undo_ref_operation(id, tag, "ada").unwrap();
    assert!(store.tags(id).unwrap().is_empty());
    assert_eq!(
        store.delete_tag(id, "v1", "ada").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        store.delete_branch(id, "main", "ada").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    for bad in [
        "",
        "HEAD",
        "a b",
        "a@b",
        "x~1",
        "a:b",
        "/a",
        "a/",
        "a..b",
        &"0".repeat(64),
    ] {
        let error = store.create_branch(id, bad, head, "ada").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
    }

    let commit = fixture.apply(|root| edit_of(root, [("a", file(1, "1"))]));
    let newest = store.operations(id, 1).unwrap().remove(0);
    assert_eq!(newest.kind, OperationKind::Commit);
    assert_eq!(
        (newest.before, newest.after),
        (Some(head.to_hex()), Some(commit.to_hex()))
    );
    let error = store.undo_ref_operation(id, newest.id, "ada").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let all = store.operations(id, 0).unwrap();
    assert!(all.windows(2).all(|pair| pair[0].id > pair[1].id));
    assert_eq!(all.last().unwrap().kind, OperationKind::CreateWorkspace);

    // Every one of them is in the audit log, none of what failed.
    let audit = store
        .audit(&AuditQuery {
            workspace: Some(id),
            ..Default::default()
        })
        .unwrap();
    assert_eq!(audit.len(), all.len());
    assert_eq!(store.audit_verify().unwrap().broken, None);
}

#[test]
fn a_root_can_be_set_back_as_a_new_commit() {
    let fixture = Fixture::new();
    let first = fixture.apply(|root| edit_of(root, [("a", file(1, "1"))]));
    let second = fixture.apply(|root| edit_of(root, [("a", file(1, "2")), ("b", file(2, "b"))]));
    let root = fixture.store.commit(first).unwrap().root.clone();
    let set = |root: Root, expected| {
        fixture.store.set_branch_root(
            fixture.workspace.id,
            "main",
            expected,
            root,
            request("back"),
        )
    };
    let back = set(root.clone(), second).unwrap();
    assert_ne!(back, first);
    assert_eq!(fixture.store.commit(back).unwrap().root, root);
    assert_eq!(fixture.store.commit(back).unwrap().parents, [second]);
    assert_eq!(fixture.changes(back).len(), 2);
    assert_eq!(set(root.clone(), back).unwrap(), back);
    assert_eq!(
        set(root.clone(), second).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    let unknown = Root {
        tree: TreeId([1; 32]),
        ..root
    };
    assert_eq!(
        set(unknown, back).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}
