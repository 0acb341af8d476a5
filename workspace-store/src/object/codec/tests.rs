//! Golden vectors, round trips and refusals of the canonical encodings.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::conflict::{Conflict, ConflictReason, ConflictSet};
use crate::id::to_hex;

fn attributes() -> impl Strategy<Value = Attributes> {
    let xattrs = proptest::collection::btree_map(
        proptest::collection::vec(1_u8.., 1..20).prop_map(Into::into),
        proptest::collection::vec(any::<u8>(), 0..50).prop_map(Into::into),
        0..4,
    );
    (
        0_u32..=0o7777,
        any::<u32>(),
        any::<u32>(),
        any::<i64>(),
        0_u32..1_000_000_000,
        xattrs,
    )
        .prop_map(
            |(mode, uid, gid, seconds, nanoseconds, xattrs)| Attributes {
                mode,
                uid,
                gid,
                mtime: Timestamp {
                    seconds,
                    nanoseconds,
                },
                xattrs: Arc::new(xattrs),
            },
        )
}

fn holes() -> impl Strategy<Value = (u64, Arc<[Hole]>)> {
    (
        proptest::collection::vec((1_u64..1000, 1_u64..1000), 0..4),
        0_u64..1000,
    )
        .prop_map(|(gaps, tail)| {
            let mut end = 0;
            let holes = gaps.into_iter().map(|(gap, length)| {
                let offset = end + gap;
                end = offset + length;
                Hole { offset, length }
            });
            let holes: Arc<[Hole]> = holes.collect();
            (end + tail, holes)
        })
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        (any::<[u8; 32]>(), holes()).prop_map(|(blob, (size, holes))| Node::Regular {
            blob: BlobId(blob),
            size,
            holes
        }),
        any::<[u8; 32]>().prop_map(|tree| Node::Directory { tree: TreeId(tree) }),
        proptest::collection::vec(1_u8.., 1..40).prop_map(|target| Node::Symlink {
            target: target.into()
        }),
        Just(Node::Fifo),
        Just(Node::Socket),
        any::<u64>().prop_map(|rdev| Node::CharDevice { rdev }),
        any::<u64>().prop_map(|rdev| Node::BlockDevice { rdev }),
    ]
}

fn inode() -> impl Strategy<Value = Inode> {
    (attributes(), node()).prop_map(|(attributes, node)| Inode { attributes, node })
}

fn any_name() -> impl Strategy<Value = Name> {
    proptest::collection::vec(any::<u8>(), 1..20)
        .prop_filter("names must be possible", |name| is_valid_name(name))
        .prop_map(Into::into)
}

fn stored_node() -> impl Strategy<Value = StoredNode> {
    let entry = prop_oneof![
        4 => inode().prop_map(TreeEntry::Inline),
        1 => any::<u64>().prop_map(|id| TreeEntry::Link(LinkId(id))),
    ];
    let linked = (1_u32.., inode())
        .prop_filter("no directories", |(_, inode)| {
            !matches!(inode.node, Node::Directory { .. })
        })
        .prop_map(|(link_count, inode)| LinkedInode { link_count, inode });
    let child = (1_u64..1 << 32, any::<[u8; 32]>());
    prop_oneof![
        proptest::collection::btree_map(any_name(), entry, 0..8)
            .prop_map(|entries| StoredNode::Leaf(entries.into_iter().collect())),
        proptest::collection::btree_map(any::<u64>(), linked, 0..5).prop_map(|entries| {
            let entries = entries
                .into_iter()
                .map(|(id, linked)| (link_key(LinkId(id)), linked));
            StoredNode::LinkLeaf(entries.collect())
        }),
        proptest::collection::btree_map(any_name(), child, 1..8).prop_map(|children| {
            let children = children
                .into_iter()
                .map(|(last_name, (entry_count, node))| TreeChild {
                    last_name,
                    entry_count,
                    node: TreeId(node),
                });
            StoredNode::Inner(children.collect())
        }),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    let root = (attributes(), any::<[u8; 32]>(), any::<Option<[u8; 32]>>()).prop_map(
        |(attributes, tree, links)| Root {
            attributes,
            tree: TreeId(tree),
            links: links.map(TreeId),
        },
    );
    let kinds = prop_oneof![
        Just(CommitKind::Init),
        Just(CommitKind::Snapshot),
        Just(CommitKind::Manual),
        Just(CommitKind::Import),
        Just(CommitKind::Rescue),
        Just(CommitKind::Rollback),
        Just(CommitKind::Restore),
        Just(CommitKind::Undo),
        Just(CommitKind::Handoff),
        Just(CommitKind::Merge),
    ];
    let parents = proptest::collection::vec(any::<[u8; 32]>().prop_map(CommitId), 0..3);
    let time = (any::<i64>(), 0_u32..1_000_000_000).prop_map(|(seconds, nanoseconds)| Timestamp {
        seconds,
        nanoseconds,
    });
    (
        root,
        parents,
        ".*",
        kinds,
        time,
        ".*",
        any::<Option<String>>(),
        (any::<Option<u64>>(), any::<Option<[u8; 32]>>()),
    )
        .prop_map(
            |(root, parents, author, kind, time, message, run, (step, conflicts))| Commit {
                root,
                parents,
                author,
                kind,
                time,
                message,
                run,
                step,
                conflicts: conflicts.map(ConflictSetId),
            },
        )
}

proptest! {
    #[test]
    fn nodes_round_trip(node in stored_node()) {
        prop_assert_eq!(decode_node(&encode_node(&node)).unwrap(), node);
    }

    #[test]
    fn commits_and_roots_round_trip(commit in commit()) {
        let root = commit.root.clone();
        prop_assert_eq!(decode_root(&encode_root(&root)).unwrap(), root);
        prop_assert_eq!(decode_commit(&encode_commit(&commit)).unwrap(), commit);
    }

    #[test]
    fn manifests_round_trip(chunks in proptest::collection::vec((any::<[u8; 32]>(), 1..=262_144_u32, 1..4), 0..9)) {
        let mut manifest = Manifest::default();
        for (id, size, repetitions) in chunks {
            for _ in 0..repetitions {
                manifest.push(ChunkId(id), size);
            }
        }
        prop_assert_eq!(decode_manifest(&encode_manifest(&manifest)).unwrap(), manifest);
    }

    #[test]
    fn any_bytes_are_refused_or_are_the_one_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        if let Ok(node) = decode_node(&bytes) {
            prop_assert_eq!(encode_node(&node), bytes.clone());
        }
        if let Ok(manifest) = decode_manifest(&bytes) {
            prop_assert_eq!(encode_manifest(&manifest), bytes.clone());
        }
        let _ = decode_commit(&bytes);
    }

    #[test]
    fn a_changed_byte_is_refused_or_is_another_value(
        node in stored_node(), at in any::<prop::sample::Index>(), flip in 1_u8..
    ) {
        let mut bytes = encode_node(&node);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = decode_node(&bytes) {
            prop_assert_ne!(&other, &node);
            prop_assert_eq!(encode_node(&other), bytes);
        }
    }

    #[test]
    fn a_cut_or_longer_encoding_is_refused(commit in commit(), at in any::<prop::sample::Index>()) {
        let mut bytes = encode_commit(&commit);
        prop_assert!(decode_commit(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(decode_commit(&bytes).is_err());
    }
}

fn golden_attributes() -> Attributes {
    Attributes {
        mode: 0o4755,
        uid: 1000,
        gid: 0,
        mtime: Timestamp {
            seconds: -2,
            nanoseconds: 300,
        },
        xattrs: Arc::new(BTreeMap::from([(
            b"user.a"[..].into(),
            b"\0\x01"[..].into(),
        )])),
    }
}

fn golden_leaf() -> StoredNode {
    let inode = |node| {
        TreeEntry::Inline(Inode {
            attributes: golden_attributes(),
            node,
        })
    };
    let plain = |node| {
        TreeEntry::Inline(Inode {
            attributes: Attributes::default(),
            node,
        })
    };
    StoredNode::Leaf(vec![
        (
            b"a"[..].into(),
            plain(Node::Directory {
                tree: TreeId([1; 32]),
            }),
        ),
        (
            b"b"[..].into(),
            plain(Node::Symlink {
                target: b"a/x"[..].into(),
            }),
        ),
        (b"c"[..].into(), plain(Node::Fifo)),
        (b"d"[..].into(), plain(Node::Socket)),
        (b"e"[..].into(), plain(Node::CharDevice { rdev: 0x103 })),
        (b"f"[..].into(), plain(Node::BlockDevice { rdev: 0 })),
        (
            b"g"[..].into(),
            TreeEntry::Link(LinkId(0x0102_0304_0506_0708)),
        ),
        (
            b"h\xff"[..].into(),
            inode(Node::Regular {
                blob: BlobId([2; 32]),
                size: 70_000,
                holes: Arc::new([Hole {
                    offset: 4096,
                    length: 8192,
                }]),
            }),
        ),
        (
            b"i"[..].into(),
            plain(Node::Regular {
                blob: BlobId([3; 32]),
                size: 0,
                holes: Arc::new([]),
            }),
        ),
    ])
}

#[test]
fn encodings_are_those_that_were_pinned() {
    let leaf = encode_node(&golden_leaf());
    let inner = encode_node(&StoredNode::Inner(vec![
        TreeChild {
            last_name: b"m"[..].into(),
            entry_count: 300,
            node: TreeId([4; 32]),
        },
        TreeChild {
            last_name: b"z"[..].into(),
            entry_count: 1,
            node: TreeId([5; 32]),
        },
    ]));
    let links = encode_node(&StoredNode::LinkLeaf(vec![(
        link_key(LinkId(258)),
        LinkedInode {
            link_count: 2,
            inode: Inode {
                attributes: golden_attributes(),
                node: Node::Fifo,
            },
        },
    )]));
    let mut manifest = Manifest::default();
    manifest.push(ChunkId([6; 32]), 1);
    for _ in 0..300 {
        manifest.push(ChunkId([7; 32]), 200);
    }
    let manifest = encode_manifest(&manifest);
    let mut commit = Commit {
        root: Root {
            attributes: golden_attributes(),
            tree: TreeId([8; 32]),
            links: Some(TreeId([9; 32])),
        },
        parents: vec![CommitId([10; 32])],
        author: "ada".to_owned(),
        kind: CommitKind::Handoff,
        time: Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 5,
        },
        message: "über".to_owned(),
        run: Some("r".to_owned()),
        step: Some(300),
        conflicts: None,
    };
    let plain = encode_commit(&commit);
    let side = |node| {
        Some(Inode {
            attributes: golden_attributes(),
            node,
        })
    };
    let conflicts = encode_conflicts(&ConflictSet::new([Conflict {
        path: b"a/b"[..].into(),
        reason: ConflictReason::Kind,
        base_commit: CommitId([12; 32]),
        theirs_commit: CommitId([13; 32]),
        theirs_label: "agent".to_owned(),
        base: None,
        ours: side(Node::Fifo),
        theirs: side(Node::Socket),
        beside: Some(b"a/c"[..].into()),
    }]));
    commit.conflicts = Some(conflict_set_id(&conflicts));
    let with_conflicts = encode_commit(&commit);
    let text = format!(
        "leaf {}\nleaf-id {}\ninner {}\nlinks {}\nmanifest {}\nmanifest-checksum {}\ncommit {}\n\
         commit-id {}\nconflicts {}\nconflicts-id {}\ncommit-with-conflicts {}\n",
        to_hex(&leaf),
        tree_id(&leaf),
        to_hex(&inner),
        to_hex(&links),
        to_hex(&manifest),
        to_hex(&manifest_checksum(BlobId([11; 32]), &manifest)),
        to_hex(&plain),
        commit_id(&plain),
        to_hex(&conflicts),
        conflict_set_id(&conflicts),
        to_hex(&with_conflicts),
    );
    assert_eq!(text, include_str!("../../../tests/golden/encodings.txt"));
}

#[test]
fn malformed_nodes_are_refused_with_their_reason() {
    let entry = |name: &[u8]| [&[name.len() as u8], name, &[4, 0, 0, 0, 0, 0]].concat();
    let leaf = |entries: &[Vec<u8>]| [&[1, 1, entries.len() as u8][..], &entries.concat()].concat();
    assert!(decode_node(&leaf(&[entry(b"a"), entry(b"b")])).is_ok());
    let cases: [(&str, Vec<u8>); 10] = [
        ("order", leaf(&[entry(b"b"), entry(b"a")])),
        ("order", leaf(&[entry(b"a"), entry(b"a")])),
        ("name", leaf(&[entry(b"..")])),
        ("name", leaf(&[entry(b"a/b")])),
        ("name", leaf(&[entry(b"")])),
        ("after its end", [leaf(&[entry(b"a")]), vec![0]].concat()),
        ("shortest", vec![1, 1, 0x80, 0]),
        ("range", [&[1, 1][..], &[0xff; 10]].concat()),
        ("more elements", vec![1, 1, 100]),
        ("unknown kind of node", vec![1, 9, 0]),
    ];
    let mut seen = BTreeSet::new();
    for (reason, bytes) in cases {
        let error = decode_node(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(reason), "{reason}: {error}");
        seen.insert(reason);
    }
    assert_eq!(
        decode_node(&[2, 1, 0]).unwrap_err().kind(),
        ErrorKind::Incompatible
    );
    assert!(decode_node(&[]).is_err());
    assert_eq!(seen.len(), 7);
}

#[test]
fn a_file_with_the_bytes_of_a_directory_has_another_id() {
    let encoded = encode_node(&golden_leaf());
    assert_ne!(
        blake3::hash(&encoded).as_bytes(),
        tree_id(&encoded).as_bytes()
    );
    assert_ne!(commit_id(&encoded).as_bytes(), tree_id(&encoded).as_bytes());
}

#[test]
fn places_in_a_manifest_are_found_in_runs_and_between_them() {
    let mut manifest = Manifest::default();
    manifest.push(ChunkId([1; 32]), 10);
    for _ in 0..3 {
        manifest.push(ChunkId([2; 32]), 100);
    }
    manifest.push(ChunkId([3; 32]), 5);
    assert_eq!(manifest.runs().len(), 3);
    assert_eq!(manifest.size(), 315);
    for (offset, chunk, start) in [
        (0, 1, 0),
        (9, 1, 0),
        (10, 2, 10),
        (109, 2, 10),
        (110, 2, 110),
        (309, 2, 210),
        (310, 3, 310),
        (314, 3, 310),
    ] {
        let (id, begin, _) = manifest.locate(offset).unwrap();
        assert_eq!((id, begin), (ChunkId([chunk; 32]), start), "{offset}");
    }
    assert_eq!(manifest.locate(315), None);
}
