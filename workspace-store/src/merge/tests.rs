//! Tests of `merge`: each rule by itself, then random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::memory_store::{Flat, MemoryStore, Tree, random_tree};

const TIME: Timestamp = Timestamp {
    seconds: 1_000_000,
    nanoseconds: 0,
};

fn options() -> MergeOptions<'static> {
    MergeOptions {
        labels: MergeLabels {
            ours: "main".into(),
            base: "old".into(),
            theirs: "agent".into(),
        },
        base_commit: CommitId([1; 32]),
        theirs_commit: CommitId([0xab; 32]),
        time: TIME,
        filter: None,
    }
}

struct Merged {
    store: MemoryStore,
    root: Root,
    conflicts: Vec<Conflict>,
}

impl Merged {
    fn flat(&self) -> Flat {
        self.store.flatten(&self.root).unwrap()
    }

    fn content(&self, path: &str) -> Option<Vec<u8>> {
        let flat = self.flat();
        let (inode, _) = flat.get(path.as_bytes())?;
        Some(content(&self.store, inode))
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.content(path).unwrap_or_else(|| panic!("no {path}"))).unwrap()
    }

    fn reasons(&self) -> Vec<(String, ConflictReason)> {
        self.conflicts
            .iter()
            .map(|conflict| {
                (
                    String::from_utf8(conflict.path.to_vec()).unwrap(),
                    conflict.reason,
                )
            })
            .collect()
    }
}

fn content(store: &MemoryStore, inode: &Inode) -> Vec<u8> {
    match &inode.node {
        Node::Regular { blob, size, .. } => store.read_whole_blob(*blob, *size, 1 << 20).unwrap(),
        Node::Symlink { target } => target.to_vec(),
        _ => Vec::new(),
    }
}

fn merge_in(store: &MemoryStore, base: &Root, ours: &Root, theirs: &Root) -> (Root, Vec<Conflict>) {
    let plan = merge_roots(store, base, ours, theirs, &options()).unwrap();
    (store.apply(ours, plan.edit).unwrap(), plan.conflicts)
}

fn merge_trees(base: &Tree, ours: &Tree, theirs: &Tree) -> Merged {
    let store = MemoryStore::default();
    let [base, ours, theirs] = [base, ours, theirs].map(|tree| tree.build(&store));
    let (root, conflicts) = merge_in(&store, &base, &ours, &theirs);
    Merged {
        store,
        root,
        conflicts,
    }
}

/// A base, and what each side does to it.
fn merge_of(
    base: &dyn Fn(&mut Tree),
    ours: &dyn Fn(&mut Tree),
    theirs: &dyn Fn(&mut Tree),
) -> Merged {
    let mut tree = Tree::default();
    base(&mut tree);
    let (mut our_tree, mut their_tree) = (tree.clone(), tree.clone());
    ours(&mut our_tree);
    theirs(&mut their_tree);
    merge_trees(&tree, &our_tree, &their_tree)
}

const BESIDE: &str = ".theirs-abababab";

#[test]
fn what_one_side_did_is_taken() {
    let merged = merge_of(
        &|tree| {
            tree.file("changed", b"1\n");
            tree.file("deleted", b"x");
            tree.file("ours", b"1\n");
        },
        &|tree| tree.file("ours", b"2\n"),
        &|tree| {
            tree.file("changed", b"2\n");
            tree.remove("deleted");
            tree.file("new/deep", b"n");
            tree.symlink("link", b"target");
        },
    );
    assert_eq!(merged.reasons(), []);
    assert_eq!(merged.text("changed"), "2\n");
    assert_eq!(merged.text("ours"), "2\n");
    assert_eq!(merged.text("new/deep"), "n");
    assert_eq!(merged.text("link"), "target");
    assert_eq!(merged.content("deleted"), None);
}

#[test]
fn texts_are_joined_only_where_they_are_apart() {
    let merged = merge_of(
        &|tree| {
            tree.file("apart", b"1\n2\n3\n4\n");
            tree.file("touching", b"1\n2\n");
        },
        &|tree| {
            tree.file("apart", b"ours\n2\n3\n4\n");
            tree.file("touching", b"ours\n2\n");
        },
        &|tree| {
            tree.file("apart", b"1\n2\n3\ntheirs\n");
            tree.file("touching", b"theirs\n2\n");
        },
    );
    assert_eq!(merged.text("apart"), "ours\n2\n3\ntheirs\n");
    assert_eq!(
        merged.reasons(),
        [("touching".into(), ConflictReason::Content)]
    );
    assert_eq!(
        merged.text("touching"),
        "<<<<<<< ours: main\nours\n||||||| base: old\n1\n=======\ntheirs\n>>>>>>> theirs: agent\n2\n"
    );
    assert_eq!(merged.flat()[&b"apart"[..]].0.attributes.mtime, TIME);
}

#[test]
fn what_is_not_text_stays_beside() {
    let merged = merge_of(
        &|tree| tree.file("binary", b"\0base"),
        &|tree| tree.file("binary", b"\0ours"),
        &|tree| tree.file("binary", b"\0theirs"),
    );
    assert_eq!(
        merged.reasons(),
        [("binary".into(), ConflictReason::Content)]
    );
    assert_eq!(merged.content("binary").unwrap(), b"\0ours");
    let beside = format!("binary{BESIDE}");
    assert_eq!(merged.content(&beside).unwrap(), b"\0theirs");
    assert_eq!(
        merged.conflicts[0].beside.as_deref(),
        Some(beside.as_bytes())
    );
}

#[test]
fn a_deleted_file_that_the_other_side_changed_is_a_conflict_on_either_side() {
    let base = |tree: &mut Tree| tree.file("file", b"1\n");
    let change = |tree: &mut Tree| tree.file("file", b"2\n");
    let delete = |tree: &mut Tree| tree.remove("file");
    for merged in [
        merge_of(&base, &change, &delete),
        merge_of(&base, &delete, &change),
    ] {
        assert_eq!(merged.reasons(), [("file".into(), ConflictReason::Deleted)]);
        assert_eq!(merged.text("file"), "2\n");
    }
}

#[test]
fn a_touched_file_that_the_other_side_deleted_is_deleted() {
    let base = |tree: &mut Tree| tree.file("file", b"1\n");
    let touch = |tree: &mut Tree| tree.change("file", |_| {});
    let delete = |tree: &mut Tree| tree.remove("file");
    for merged in [
        merge_of(&base, &touch, &delete),
        merge_of(&base, &delete, &touch),
    ] {
        assert_eq!(merged.reasons(), []);
        assert_eq!(merged.content("file"), None);
    }
}

#[test]
fn files_added_by_both_are_one_only_if_they_are_the_same() {
    let merged = merge_of(
        &|_| {},
        &|tree| {
            tree.file("same", b"x\n");
            tree.file("other", b"ours\n");
        },
        &|tree| {
            tree.file("same", b"x\n");
            tree.file("other", b"theirs\n");
        },
    );
    assert_eq!(merged.reasons(), [("other".into(), ConflictReason::Added)]);
    assert_eq!(
        merged.text("other"),
        "<<<<<<< ours: main\nours\n=======\ntheirs\n>>>>>>> theirs: agent\n"
    );
}

#[test]
fn attributes_are_joined_one_by_one() {
    let merged = merge_of(
        &|tree| {
            tree.file("content-and-mode", b"1\n");
            tree.file("modes", b"1\n");
        },
        &|tree| {
            tree.mode("content-and-mode", 0o755);
            tree.mode("modes", 0o600);
        },
        &|tree| {
            tree.file("content-and-mode", b"2\n");
            tree.mode("modes", 0o640);
        },
    );
    assert_eq!(
        merged.reasons(),
        [("modes".into(), ConflictReason::Attributes)]
    );
    let flat = merged.flat();
    assert_eq!(merged.text("content-and-mode"), "2\n");
    assert_eq!(flat[&b"content-and-mode"[..]].0.attributes.mode, 0o755);
    assert_eq!(flat[&b"modes"[..]].0.attributes.mode, 0o600);
    let theirs = merged.conflicts[0].theirs.as_ref().unwrap();
    assert_eq!(theirs.attributes.mode, 0o640);
}

#[test]
fn another_kind_of_file_stays_beside_with_all_below_it() {
    let merged = merge_of(
        &|tree| {
            tree.file("dir/a", b"1\n");
            tree.file("dir/b", b"1\n");
            tree.file("file", b"1\n");
        },
        &|tree| {
            tree.remove_all("dir");
            tree.file("dir", b"a file now\n");
            tree.file("file", b"2\n");
        },
        &|tree| {
            tree.file("dir/a", b"2\n");
            tree.remove("file");
            tree.file("file/x", b"x\n");
        },
    );
    assert_eq!(
        merged.reasons(),
        [
            ("dir".into(), ConflictReason::Kind),
            ("file".into(), ConflictReason::Kind)
        ]
    );
    assert_eq!(merged.text("dir"), "a file now\n");
    assert_eq!(merged.text(&format!("dir{BESIDE}/a")), "2\n");
    assert_eq!(merged.text("file"), "2\n");
    assert_eq!(merged.text(&format!("file{BESIDE}/x")), "x\n");
}

#[test]
fn a_directory_that_became_a_file_stays_for_what_the_other_side_did_in_it() {
    let merged = merge_of(
        &|tree| {
            tree.file("dir/a", b"1\n");
            tree.file("gone/a", b"1\n");
        },
        &|tree| tree.file("dir/new", b"n\n"),
        &|tree| {
            for path in ["dir", "gone"] {
                tree.remove_all(path);
                tree.file(path, b"a file now\n");
            }
        },
    );
    assert_eq!(merged.reasons(), [("dir".into(), ConflictReason::Kind)]);
    assert_eq!(merged.text("dir/new"), "n\n");
    assert_eq!(merged.text(&format!("dir{BESIDE}")), "a file now\n");
    assert_eq!(merged.text("gone"), "a file now\n");
}

#[test]
fn a_deleted_directory_stays_for_what_the_other_side_did_in_it() {
    let base = |tree: &mut Tree| {
        tree.file("dir/changed", b"1\n");
        tree.file("dir/same", b"1\n");
    };
    let delete = |tree: &mut Tree| tree.remove_all("dir");
    let work = |tree: &mut Tree| {
        tree.file("dir/changed", b"2\n");
        tree.file("dir/new/deep", b"n\n");
    };
    for merged in [
        merge_of(&base, &delete, &work),
        merge_of(&base, &work, &delete),
    ] {
        assert_eq!(
            merged.reasons(),
            [
                ("dir/changed".into(), ConflictReason::Deleted),
                ("dir/new/deep".into(), ConflictReason::DirectoryDeleted)
            ]
        );
        assert_eq!(merged.text("dir/changed"), "2\n");
        assert_eq!(merged.text("dir/new/deep"), "n\n");
        assert_eq!(merged.content("dir/same"), None);
    }
}

#[test]
fn an_edit_follows_an_exact_move_on_either_side() {
    let base = |tree: &mut Tree| tree.file("old", b"1\n2\n3\n");
    let rename = |tree: &mut Tree| tree.rename("old", "new/name");
    let edit = |tree: &mut Tree| tree.file("old", b"1\n2\nedited\n");
    for merged in [
        merge_of(&base, &rename, &edit),
        merge_of(&base, &edit, &rename),
    ] {
        assert_eq!(merged.reasons(), []);
        assert_eq!(merged.text("new/name"), "1\n2\nedited\n");
        assert_eq!(merged.content("old"), None);
    }
}

#[test]
fn all_names_of_a_file_see_what_either_side_wrote() {
    let base = |tree: &mut Tree| {
        tree.link("a", 1, b"1\n2\n3\n4\n");
        tree.link("b", 1, b"1\n2\n3\n4\n");
    };
    let merged = merge_of(
        &base,
        &|tree| {
            tree.link("ours", 1, b"ours\n2\n3\n4\n");
        },
        &|tree| {
            tree.link("theirs", 1, b"1\n2\n3\ntheirs\n");
            tree.remove("b");
        },
    );
    assert_eq!(merged.reasons(), []);
    let flat = merged.flat();
    for name in ["a", "ours", "theirs"] {
        assert_eq!(merged.text(name), "ours\n2\n3\ntheirs\n");
        assert_eq!(flat[name.as_bytes()].1, flat[&b"a"[..]].1);
    }
    assert!(!flat.contains_key(&b"b"[..]));
}

#[test]
fn a_changed_file_keeps_a_name_when_each_side_took_another_away() {
    let merged = merge_of(
        &|tree| {
            tree.link("a", 1, b"1\n");
            tree.link("b", 1, b"1\n");
        },
        &|tree| {
            tree.remove("a");
            tree.link("b", 1, b"2\n");
        },
        &|tree| tree.remove("b"),
    );
    assert_eq!(merged.reasons(), [("b".into(), ConflictReason::Deleted)]);
    assert_eq!(merged.text("b"), "2\n");
}

#[test]
fn a_file_that_both_sides_have_keeps_a_name_when_each_took_another_away() {
    let base = |tree: &mut Tree| {
        for name in ["a", "b"] {
            tree.link(name, 1, b"1\n");
        }
    };
    let merged = merge_of(&base, &|tree| tree.remove("a"), &|tree| tree.remove("b"));
    assert_eq!(merged.reasons(), [("b".into(), ConflictReason::Deleted)]);
    assert_eq!(merged.text("b"), "1\n");
    // A side that has taken all of them away wants it gone.
    let merged = merge_of(&base, &|tree| tree.remove("a"), &|tree| {
        tree.remove("a");
        tree.remove("b");
    });
    assert_eq!(merged.reasons(), []);
    assert_eq!((merged.content("a"), merged.content("b")), (None, None));
}

#[test]
fn files_that_got_the_same_number_on_both_sides_stay_two() {
    let merged = merge_of(
        &|_| {},
        &|tree| {
            tree.link("a", 7, b"ours");
            tree.link("b", 7, b"ours");
        },
        &|tree| {
            tree.link("c", 7, b"theirs");
            tree.link("d", 7, b"theirs");
        },
    );
    assert_eq!(merged.reasons(), []);
    assert_eq!(merged.text("a"), "ours");
    assert_eq!(merged.text("d"), "theirs");
    let flat = merged.flat();
    assert_eq!(flat[&b"c"[..]].1, flat[&b"d"[..]].1);
    assert_ne!(flat[&b"a"[..]].1, flat[&b"c"[..]].1);
}

#[test]
fn only_wanted_paths_are_brought_in() {
    let mut base = Tree::default();
    base.file("dir/a", b"1\n");
    base.file("b", b"1\n");
    let mut theirs = base.clone();
    theirs.file("dir/a", b"2\n");
    theirs.file("dir/new", b"n\n");
    theirs.file("b", b"2\n");
    let store = MemoryStore::default();
    let [base, theirs] = [base, theirs].map(|tree| tree.build(&store));
    let options = MergeOptions {
        filter: Some(&|path: &[u8]| path.starts_with(b"dir/")),
        ..options()
    };
    let plan = merge_roots(&store, &base, &base, &theirs, &options).unwrap();
    let root = store.apply(&base, plan.edit).unwrap();
    let merged = Merged {
        store,
        root,
        conflicts: plan.conflicts,
    };
    assert_eq!(merged.reasons(), []);
    assert_eq!(merged.text("dir/a"), "2\n");
    assert_eq!(merged.text("dir/new"), "n\n");
    assert_eq!(merged.text("b"), "1\n");
}

#[test]
fn long_names_beside_still_fit() {
    let name = "ü".repeat(127);
    let merged = merge_of(&|_| {}, &|tree| tree.file(&name, b"\0ours"), &|tree| {
        tree.file(&name, b"\0theirs")
    });
    let beside = merged.conflicts[0].beside.clone().unwrap();
    assert!(beside.len() <= 255);
    assert!(std::str::from_utf8(&beside).unwrap().ends_with(BESIDE));
}

/// One thing that a side does.
#[derive(Debug, Clone)]
enum Edit {
    Insert(prop::sample::Index, prop::sample::Index),
    Replace(prop::sample::Index, bool),
    Remove(prop::sample::Index),
    RemoveDirectory(prop::sample::Index),
    Rename(prop::sample::Index, String),
    Mode(prop::sample::Index, u32),
    File(String),
    Link(String, u64),
    Symlink(String),
    Touch(prop::sample::Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let index = any::<prop::sample::Index>;
    let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d.e"]), 1..4)
        .prop_map(|names| names.join("/"));
    let edit = prop_oneof![
        4 => (index(), index()).prop_map(|(path, line)| Edit::Insert(path, line)),
        2 => (index(), any::<bool>()).prop_map(|(path, binary)| Edit::Replace(path, binary)),
        2 => index().prop_map(Edit::Remove),
        1 => index().prop_map(Edit::RemoveDirectory),
        2 => (index(), path.clone()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => (index(), prop::sample::select(vec![0o600_u32, 0o755, 0o777]))
            .prop_map(|(path, mode)| Edit::Mode(path, mode)),
        2 => path.clone().prop_map(Edit::File),
        2 => (path.clone(), 0..5_u64).prop_map(|(path, id)| Edit::Link(path, id)),
        1 => path.prop_map(Edit::Symlink),
        1 => index().prop_map(Edit::Touch),
    ];
    prop::collection::vec(edit, 0..8)
}

static NEXT_TOKEN: AtomicU64 = AtomicU64::new(0);

/// A line that is nowhere else.
fn token() -> String {
    format!("<{}>\n", NEXT_TOKEN.fetch_add(1, Ordering::Relaxed))
}

fn do_edits(tree: &mut Tree, edits: &[Edit]) {
    for edit in edits {
        let paths = tree.paths();
        let at =
            |index: &prop::sample::Index| (!paths.is_empty()).then(|| index.get(&paths).clone());
        match edit {
            Edit::Insert(path, line) => {
                if let Some(path) = at(path) {
                    tree.change(&path, |content| {
                        let ends: Vec<usize> = std::iter::once(0)
                            .chain(
                                content
                                    .iter()
                                    .enumerate()
                                    .filter(|(_, b)| **b == b'\n')
                                    .map(|(i, _)| i + 1),
                            )
                            .collect();
                        let place = *line.get(&ends);
                        content.splice(place..place, token().into_bytes());
                    });
                }
            }
            Edit::Replace(path, is_binary) => {
                if let Some(path) = at(path) {
                    let zero = if *is_binary { "\0\n" } else { "" };
                    tree.change(&path, |content| {
                        *content = (zero.to_owned() + &token()).into_bytes()
                    });
                }
            }
            Edit::Remove(path) => at(path).into_iter().for_each(|path| tree.remove(&path)),
            Edit::RemoveDirectory(path) => {
                if let Some(path) = at(path) {
                    tree.remove_all(path.split('/').next().unwrap());
                }
            }
            Edit::Rename(from, to) => at(from).into_iter().for_each(|from| tree.rename(&from, to)),
            Edit::Mode(path, mode) => at(path)
                .into_iter()
                .for_each(|path| tree.mode(&path, *mode)),
            Edit::File(path) => tree.file(path, token().as_bytes()),
            // Whatever the file held before is in its other names.
            Edit::Link(path, id) => tree.link(path, *id, token().as_bytes()),
            Edit::Symlink(path) => tree.symlink(path, token().as_bytes()),
            Edit::Touch(path) => at(path)
                .into_iter()
                .for_each(|path| tree.change(&path, |_| {})),
        }
    }
}

/// Files with several lines, so that there is something to join.
fn with_lines(mut tree: Tree) -> Tree {
    for path in tree.paths() {
        tree.change(&path, |content| {
            if !content.is_empty() && !content.contains(&b'\n') {
                let text: String = content
                    .iter()
                    .map(|byte| format!("{byte}\nx\ny\n"))
                    .collect();
                *content = text.into_bytes();
            }
        });
    }
    tree
}

fn tokens(contents: impl IntoIterator<Item = Vec<u8>>) -> BTreeSet<String> {
    contents
        .into_iter()
        .flat_map(|content| {
            String::from_utf8_lossy(&content)
                .lines()
                .filter(|line| line.starts_with('<') && line.ends_with('>'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn contents(store: &MemoryStore, flat: &Flat) -> Vec<Vec<u8>> {
    flat.values()
        .map(|(inode, _)| content(store, inode))
        .collect()
}

fn plain(flat: &Flat) -> BTreeMap<Vec<u8>, Inode> {
    flat.iter()
        .map(|(path, (inode, _))| (path.clone(), inode.clone()))
        .collect()
}

/// Which paths are names of one file.
fn families(flat: &Flat) -> BTreeSet<Vec<Vec<u8>>> {
    let mut families: BTreeMap<LinkId, Vec<Vec<u8>>> = BTreeMap::new();
    for (path, (_, link)) in flat {
        if let Some(link) = link {
            families.entry(*link).or_default().push(path.clone());
        }
    }
    families
        .into_values()
        .filter(|names| names.len() > 1)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn g8_every_byte_of_either_side_is_in_the_result_or_in_a_conflict(
        base in random_tree(), ours in edits(), theirs in edits()
    ) {
        let base = with_lines(base);
        let (mut our_tree, mut their_tree) = (base.clone(), base.clone());
        do_edits(&mut our_tree, &ours);
        do_edits(&mut their_tree, &theirs);
        let store = MemoryStore::default();
        let [base, ours, theirs] = [&base, &our_tree, &their_tree].map(|tree| tree.build(&store));
        let [base_flat, our_flat, their_flat] = [&base, &ours, &theirs].map(|root| store.flatten(root).unwrap());
        let (root, conflicts) = merge_in(&store, &base, &ours, &theirs);
        let result = store.flatten(&root).unwrap();

        // Nothing is lost.
        let mut there = contents(&store, &result);
        for conflict in &conflicts {
            for side in [&conflict.ours, &conflict.theirs].into_iter().flatten() {
                there.push(content(&store, side));
            }
            if let Some(beside) = &conflict.beside {
                prop_assert!(result.contains_key(beside.as_ref()));
            }
        }
        let there = tokens(there);
        for side in [&our_flat, &their_flat] {
            for token in tokens(contents(&store, side)) {
                prop_assert!(there.contains(&token), "{token} is lost");
            }
        }

        // Nothing else is touched, nothing is resurrected.
        let is_moved = |path: &[u8]| our_flat.get(path).is_some_and(|(inode, _)| !base_flat.contains_key(path)
            && base_flat.iter().any(|(from, (old, _))| old.node == inode.node && !our_flat.contains_key(from)));
        let is_at_conflict = |path: &[u8]| conflicts.iter().any(|conflict| {
            conflict.path.as_ref() == path || conflict.beside.as_deref() == Some(path)
                || crate::path::is_at_or_below(path, &conflict.path)
                || crate::path::is_at_or_below(&conflict.path, path)
        });
        for (path, (inode, link)) in &our_flat {
            let is_linked = link.is_some() || base_flat.get(path).is_some_and(|(_, link)| link.is_some());
            if their_flat.get(path) == base_flat.get(path) && !is_linked && !is_moved(path) && !is_at_conflict(path) {
                prop_assert_eq!(result.get(path).map(|(inode, _)| inode), Some(inode), "{:?}", path.escape_ascii().to_string());
            }
        }
        for (path, (inode, link)) in &base_flat {
            let is_gone = |flat: &Flat| !flat.contains_key(path);
            let is_same = |flat: &Flat| flat.get(path) == Some(&(inode.clone(), *link));
            let is_directory = matches!(inode.node, Node::Directory { .. });
            let is_deleted = (is_gone(&our_flat) && is_same(&their_flat)) || (is_gone(&their_flat) && is_same(&our_flat));
            if is_deleted && !is_directory && !is_at_conflict(path) {
                prop_assert!(!result.contains_key(path), "{:?} came back", path.escape_ascii().to_string());
            }
        }

        // The sides may be swapped.
        let (swapped, swapped_conflicts) = merge_in(&store, &base, &theirs, &ours);
        let swapped = store.flatten(&swapped).unwrap();
        let paths = |conflicts: &[Conflict]| -> BTreeSet<_> { conflicts.iter().map(|c| c.path.clone()).collect() };
        let has_links = base.links.is_some() || ours.links.is_some() || theirs.links.is_some();
        if !has_links {
            prop_assert_eq!(paths(&conflicts), paths(&swapped_conflicts));
        }
        if conflicts.is_empty() && swapped_conflicts.is_empty() {
            prop_assert_eq!(plain(&result), plain(&swapped));
        }
        if !has_links {
            prop_assert_eq!(conflicts.is_empty(), swapped_conflicts.is_empty());
        }

        // Equal sides, and sides that did nothing.
        for (ours, theirs, want) in [(&ours, &ours, &our_flat), (&base, &theirs, &their_flat), (&ours, &base, &our_flat)] {
            let (root, conflicts) = merge_in(&store, &base, ours, theirs);
            prop_assert_eq!(conflicts, vec![]);
            let result = store.flatten(&root).unwrap();
            prop_assert_eq!(plain(&result), plain(want));
            prop_assert_eq!(families(&result), families(want));
        }
        // A change taken out right after it.
        let (root, conflicts) = merge_in(&store, &ours, &ours, &base);
        prop_assert_eq!(conflicts, vec![]);
        prop_assert_eq!(plain(&store.flatten(&root).unwrap()), plain(&base_flat));
    }
}
