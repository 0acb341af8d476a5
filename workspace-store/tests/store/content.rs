//! What is put into a tree comes back as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::edit::{DirectoryEdit, EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Hole, Inode, LinkId, Name, Node, Timestamp, TreeEntry};
use workspace_store::reader::{ObjectReader, TreeNode};
use workspace_store::{ErrorKind, Store, TreeId};

use crate::fixture::*;

#[test]
fn files_of_every_size_come_back_and_survive_reopening() {
    let fixture = Fixture::new();
    let mut noise = vec![0; 3_000_000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let contents: Vec<Vec<u8>> = [0, 1, 100, 65_536, 65_537, 300_000, 3_000_000]
        .iter()
        .map(|length| noise[..*length].to_vec())
        .collect();
    let list: BTreeMap<Name, EntryEdit> = contents
        .iter()
        .enumerate()
        .map(|(index, content)| {
            (
                name(&format!("f{index}")),
                file(index as u64, content.clone()),
            )
        })
        .collect();
    fixture.apply(|root| SnapshotEdit::changing(root, list));
    let (head, root) = fixture.head();
    fixture.store.close().unwrap();
    let error = fixture.store.workspaces().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);

    let store = open(fixture.directory.path());
    assert_eq!(store.branch(fixture.workspace.id, "main").unwrap(), head);
    for (index, content) in contents.iter().enumerate() {
        assert!(
            &read_file(&store, &root, &[&format!("f{index}")]) == content,
            "{index}"
        );
    }
    let Some(TreeEntry::Inline(Inode {
        node: Node::Regular { blob, .. },
        ..
    })) = store.lookup(root.tree, b"f6").unwrap()
    else {
        panic!("f6 is a file");
    };
    for (offset, length) in [
        (0, 10),
        (65_530, 20),
        (1_234_567, 400_000),
        (2_999_990, 100),
    ] {
        let mut buffer = vec![0xff; length];
        let count = store.read_blob(blob, offset as u64, &mut buffer).unwrap();
        assert_eq!(count, length.min(3_000_000 - offset));
        assert!(buffer[..count] == noise[offset..offset + count]);
    }
    assert_eq!(store.read_blob(blob, 3_000_000, &mut [0; 8]).unwrap(), 0);
    assert_eq!(store.read_blob(blob, u64::MAX, &mut [0; 8]).unwrap(), 0);
}

#[test]
fn every_kind_of_inode_and_attribute_comes_back() {
    let fixture = Fixture::new();
    let mut with_xattrs = attributes(0o6755);
    with_xattrs.mtime = Timestamp {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    with_xattrs.xattrs = Arc::new(BTreeMap::from([
        (b"user.empty"[..].into(), b""[..].into()),
        (b"user.name"[..].into(), b"\0\xff"[..].into()),
    ]));
    let nodes = [
        Node::Symlink {
            target: b"../\xff/x"[..].into(),
        },
        Node::Fifo,
        Node::Socket,
        Node::CharDevice { rdev: 0x0501 },
        Node::BlockDevice { rdev: u64::MAX },
        Node::Directory {
            tree: fixture.head().1.tree,
        },
    ];
    struct Sparse;
    impl workspace_store::edit::Content for Sparse {
        fn size(&self) -> u64 {
            1_000_000
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = buffer
                .len()
                .min(1_000_000_usize.saturating_sub(offset as usize));
            buffer[..count].fill(0);
            Ok(count)
        }
        fn holes(&self) -> Vec<Hole> {
            vec![
                Hole {
                    offset: 0,
                    length: 4096,
                },
                Hole {
                    offset: 8192,
                    length: 991_808,
                },
            ]
        }
    }
    let mut list: BTreeMap<Name, EntryEdit> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let edit = InodeEdit {
            attributes: with_xattrs.clone(),
            node: NodeEdit::Stored(node.clone()),
        };
        list.insert(
            [b"\xfe-name", &[b'0' + index as u8][..]].concat().into(),
            EntryEdit::Put(edit),
        );
    }
    list.insert(
        name("sparse"),
        EntryEdit::Put(InodeEdit {
            attributes: attributes(0),
            node: NodeEdit::Content {
                key: 1,
                content: Arc::new(Sparse),
            },
        }),
    );
    fixture.apply(|root| SnapshotEdit {
        root_attributes: Some(with_xattrs.clone()),
        ..SnapshotEdit::changing(root, list)
    });
    fixture.store.close().unwrap();
    let store = open(fixture.directory.path());
    let head = store.branch(fixture.workspace.id, "main").unwrap();
    let root = store.commit(head).unwrap().root.clone();
    assert_eq!(root.attributes, with_xattrs);
    for (index, node) in nodes.into_iter().enumerate() {
        let name = [b"\xfe-name", &[b'0' + index as u8][..]].concat();
        let expected = Inode {
            attributes: with_xattrs.clone(),
            node,
        };
        assert_eq!(
            store.lookup(root.tree, &name).unwrap(),
            Some(TreeEntry::Inline(expected))
        );
    }
    let Some(TreeEntry::Inline(Inode {
        node: Node::Regular { holes, size, .. },
        ..
    })) = store.lookup(root.tree, b"sparse").unwrap()
    else {
        panic!("sparse is a file");
    };
    assert_eq!((holes.len(), size), (2, 1_000_000));
}

#[test]
fn keyed_contents_and_directories_are_answered() {
    let fixture = Fixture::new();
    let (head, root) = fixture.head();
    let inner = DirectoryEdit {
        key: Some(11),
        entries: entries([("f", file(12, "inner"))]),
        ..Default::default()
    };
    let outer = DirectoryEdit {
        key: Some(10),
        entries: entries([("inner", directory(inner))]),
        ..Default::default()
    };
    let mut edit = edit_of(&root, [("outer", directory(outer))]);
    edit.root.key = Some(9);
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
    let answers: BTreeMap<u64, Node> = done.contents.into_iter().collect();
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [9, 10, 11, 12]);
    assert_eq!(
        answers[&9],
        Node::Directory {
            tree: done.root.tree
        }
    );
    let Node::Directory { tree: outer } = answers[&10] else {
        panic!("10 is a directory")
    };
    let Node::Directory { tree: inner } = answers[&11] else {
        panic!("11 is a directory")
    };
    assert!(fixture.store.lookup(outer, b"inner").unwrap().is_some());
    let Some(TreeEntry::Inline(found)) = fixture.store.lookup(inner, b"f").unwrap() else {
        panic!("f is a file");
    };
    assert_eq!(found.node, answers[&12]);
}

#[test]
fn bad_edits_are_refused_and_change_nothing() {
    let fixture = Fixture::new();
    let (head, root) = fixture.head();
    let put = |node: Node, mode: u32| {
        EntryEdit::Put(InodeEdit {
            attributes: attributes(mode),
            node: NodeEdit::Stored(node),
        })
    };
    let missing_blob = Node::Regular {
        blob: workspace_store::BlobId([7; 32]),
        size: 3,
        holes: Arc::new([]),
    };
    let bad: Vec<(&str, EntryEdit)> = vec![
        ("", file(1, "x")),
        ("..", file(1, "x")),
        (".", file(1, "x")),
        ("a/b", file(1, "x")),
        ("nul\0", file(1, "x")),
        ("m", put(Node::Fifo, 0o10_000)),
        ("b", put(missing_blob, 0o644)),
        (
            "t",
            put(
                Node::Directory {
                    tree: TreeId([9; 32]),
                },
                0o755,
            ),
        ),
        (
            "s",
            put(
                Node::Symlink {
                    target: b""[..].into(),
                },
                0o777,
            ),
        ),
        ("l", EntryEdit::Link(LinkId(5))),
    ];
    for (text, entry) in bad {
        let edit = edit_of(&root, [(text, entry)]);
        let error = fixture
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
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}: {error}");
    }
    let edit = edit_of(&root, [(&"n".repeat(256), file(1, "x"))]);
    assert!(fixture.store.build_root(&root, edit, &|_| {}).is_err());
    assert_eq!(fixture.head().0, head);
    assert_eq!(fixture.store.check(&|_| {}).unwrap().problems, []);
}

#[test]
fn a_large_directory_is_split_and_one_edit_touches_few_nodes() {
    let fixture = Fixture::new();
    let list = (0..100_000)
        .map(|index| {
            let edit = InodeEdit {
                attributes: attributes(0o644),
                node: NodeEdit::Stored(Node::Fifo),
            };
            (name(&format!("entry-{index:06}")), EntryEdit::Put(edit))
        })
        .collect();
    let (_, root) = fixture.head();
    let edit = SnapshotEdit::changing(&root, list);
    let big = fixture.store.build_root(&root, edit, &|_| {}).unwrap();
    assert!(matches!(
        fixture.store.tree_node(big.tree).unwrap(),
        TreeNode::Inner(_)
    ));
    assert_eq!(fixture.store.directory_entries(big.tree), 100_000);
    assert!(
        fixture
            .store
            .lookup(big.tree, b"entry-077777")
            .unwrap()
            .is_some()
    );
    assert!(
        fixture
            .store
            .lookup(big.tree, b"entry-077777x")
            .unwrap()
            .is_none()
    );

    let nodes = |store: &Store| store.statistics(fixture.workspace.id).unwrap().tree_nodes;
    let before = nodes(&fixture.store);
    let changed = fixture
        .store
        .build_root(
            &big,
            edit_of(&big, [("entry-050000", EntryEdit::Remove)]),
            &|_| {},
        )
        .unwrap();
    assert!(
        nodes(&fixture.store) - before <= 4,
        "{} new nodes",
        nodes(&fixture.store) - before
    );
    assert_eq!(fixture.store.directory_entries(changed.tree), 99_999);
    let back = EntryEdit::Put(InodeEdit {
        attributes: attributes(0o644),
        node: NodeEdit::Stored(Node::Fifo),
    });
    let again = fixture
        .store
        .build_root(
            &changed,
            edit_of(&changed, [("entry-050000", back)]),
            &|_| {},
        )
        .unwrap();
    assert_eq!(again, big, "the same entries give the same id");
}

#[test]
fn a_path_as_long_as_linux_allows_is_stored_on_an_ordinary_stack() {
    let fixture = Fixture::new();
    let mut deepest = DirectoryEdit {
        entries: entries([("f", file(1, "deep"))]),
        ..Default::default()
    };
    for _ in 0..2048 {
        deepest = DirectoryEdit {
            entries: entries([("d", directory(deepest))]),
            ..Default::default()
        };
    }
    let commit = fixture.apply(|root| edit_of(root, [("d", directory(deepest))]));
    assert_eq!(fixture.changes(commit).len(), 2050);
}

#[test]
fn an_edit_without_entries_empties_the_root_or_keeps_it_as_it_says() {
    let fixture = Fixture::new();
    fixture.apply(|root| edit_of(root, [("f", file(1, "content"))]));
    let (_, root) = fixture.head();
    let kept = fixture
        .store
        .build_root(&root, SnapshotEdit::unchanged(&root), &|_| {})
        .unwrap();
    assert_eq!(kept, root);
    let replacing = SnapshotEdit::replacing(root.attributes.clone(), BTreeMap::new());
    let emptied = fixture.store.build_root(&root, replacing, &|_| {}).unwrap();
    let entries = ObjectReader::directory(&fixture.store, emptied.tree).unwrap();
    assert_eq!(entries, []);
    assert_eq!(emptied.attributes, root.attributes);
}
