//! Tests of `restore`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::memory_store::{Flat, MemoryStore, Tree, random_tree};

fn apply(store: &MemoryStore, root: &Root, edit: SnapshotEdit) -> Root {
    if edit.root.base.is_none() {
        assert!(edit.root.entries.is_empty());
        return Root {
            attributes: edit.root_attributes.unwrap_or(root.attributes.clone()),
            ..root.clone()
        };
    }
    store.apply(root, edit).unwrap()
}

/// Paths with inodes, without the identities of links, which a restore may choose anew.
fn inodes(flat: &Flat) -> BTreeMap<Vec<u8>, Inode> {
    flat.iter()
        .map(|(path, (inode, _))| (path.clone(), inode.clone()))
        .collect()
}

fn place_of(directory: &[u8], inside: &[u8]) -> Vec<u8> {
    if inside.is_empty() {
        directory.to_vec()
    } else {
        join_path(directory, inside)
    }
}

fn inside_of<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    if directory.is_empty() || path == directory {
        return Some(&path[directory.len()..]);
    }
    path.strip_prefix(directory)?.strip_prefix(b"/")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn restored_paths_are_as_they_were_and_others_untouched(
        current in random_tree(), from in random_tree(), pick in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
    ) {
        let store = MemoryStore::default();
        let current = current.build(&store);
        let from = from.build(&store);
        let then = store.flatten(&from).unwrap();
        let now = store.flatten(&current).unwrap();
        let candidates: Vec<_> = then.keys().chain(now.keys()).filter(|p| !p.is_empty()).cloned().collect();
        prop_assume!(!candidates.is_empty());
        let paths = vec![pick.get(&candidates).clone(), second.get(&candidates).clone()];
        let plan = match restore_edit(&store, &current, &from, &paths) {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Conflict);
                return Ok(());
            }
        };
        let result = apply(&store, &current, plan.edit);
        let result = inodes(&store.flatten(&result).unwrap());
        let is_restored = |path: &[u8]| paths.iter().any(|p| is_at_or_below(path, p));
        let is_parent = |path: &[u8]| paths.iter().any(|p| is_at_or_below(p, path));
        for (path, inode) in &inodes(&then) {
            if is_restored(path) {
                prop_assert_eq!(result.get(path), Some(inode));
            }
        }
        for (path, inode) in &result {
            if is_restored(path) {
                prop_assert!(then.contains_key(path));
            } else if let Some((old, _)) = now.get(path) {
                prop_assert_eq!(old, inode);
            } else {
                prop_assert!(is_parent(path));
            }
        }
        for path in now.keys().filter(|path| !is_restored(path)) {
            prop_assert!(result.contains_key(path));
        }
    }

    #[test]
    fn a_grafted_tree_is_whole_and_leaves_the_rest_alone(
        current in random_tree(), tree in random_tree(), is_replacing in any::<bool>(),
        path in prop::sample::select(vec!["", "a", "b", "new", "new/deep"]),
    ) {
        let store = MemoryStore::default();
        let current = current.build(&store);
        let tree = tree.build(&store);
        let wanted = store.flatten(&tree).unwrap();
        let now = store.flatten(&current).unwrap();
        let path = path.as_bytes();
        let edit = match graft_edit(&store, &current, &tree, path, is_replacing) {
            Ok(edit) => edit,
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidInput);
                prop_assert!(!is_directory(now.get(path).map(|(inode, _)| inode)));
                return Ok(());
            }
        };
        let root = store.apply(&current, edit).unwrap();
        let result = store.flatten(&root).unwrap();
        let mut identities: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
        for (inside, (inode, link)) in &wanted {
            let place = place_of(path, inside);
            let (placed, placed_link) = &result[&place];
            if !inside.is_empty() || is_replacing {
                prop_assert_eq!(placed, inode);
            }
            if let Some(link) = link {
                identities.entry(*link).or_default().push(inside);
            }
            // A file doesn't become one with a file that was there.
            if let Some(link) = placed_link {
                for (old, (_, old_link)) in &now {
                    let is_kept = result.get(old).is_some_and(|(_, kept)| kept == old_link)
                        && !inside_of(path, old).is_some_and(|inside| wanted.contains_key(inside));
                    prop_assert!(*old_link != Some(*link) || !is_kept);
                }
            }
        }
        for names in identities.values().filter(|names| names.len() > 1) {
            let links: BTreeSet<_> =
                names.iter().map(|name| result[&place_of(path, name)].1).collect();
            prop_assert_eq!(links.len(), 1);
            prop_assert!(!links.contains(&None));
        }
        for (old, (inode, _)) in &now {
            match inside_of(path, old) {
                None if is_at_or_below(path, old) => {}
                None => prop_assert_eq!(&result[old].0, inode),
                Some(inside) if is_replacing => {
                    prop_assert_eq!(result.contains_key(old), wanted.contains_key(inside));
                }
                Some(_) => {}
            }
        }
        let mut counts: BTreeMap<_, u32> = BTreeMap::new();
        for link in result.values().filter_map(|(_, link)| *link) {
            *counts.entry(link).or_default() += 1;
        }
        let table: BTreeMap<_, u32> = match root.links {
            Some(links) => store.links(links).unwrap().into_iter()
                .map(|(id, linked)| (id, linked.link_count)).collect(),
            None => BTreeMap::new(),
        };
        prop_assert_eq!(table, counts);
    }

    #[test]
    fn a_reverted_change_gives_the_tree_before(before in random_tree(), after in random_tree()) {
        let store = MemoryStore::default();
        let before = before.build(&store);
        let after = after.build(&store);
        let plan = revert_edit(&store, &before, &after, &after).unwrap();
        prop_assert!(plan.conflicts.is_empty(), "{:?}", plan.conflicts);
        let result = apply(&store, &after, plan.edit);
        let forget_times = |mut all: BTreeMap<Vec<u8>, Inode>| {
            for inode in all.values_mut() {
                if is_directory(Some(inode)) {
                    inode.attributes.mtime = Default::default();
                }
            }
            all
        };
        prop_assert_eq!(
            forget_times(inodes(&store.flatten(&result).unwrap())),
            forget_times(inodes(&store.flatten(&before).unwrap()))
        );
    }
}

#[test]
fn a_revert_keeps_later_changes_and_names_conflicts() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    tree.file("kept", b"1");
    tree.file("edited", b"1");
    let before = tree.build(&store);
    tree.file("edited", b"2");
    tree.file("made/by", b"run");
    let after = tree.build(&store);
    tree.file("kept", b"later");
    let current = tree.build(&store);
    let plan = revert_edit(&store, &before, &after, &current).unwrap();
    assert_eq!(plan.conflicts, []);
    let result = store.flatten(&apply(&store, &current, plan.edit)).unwrap();
    let paths: Vec<_> = result
        .keys()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    assert_eq!(paths, ["", "edited", "kept"]);
    let mut expected = Tree::default();
    expected.file("kept", b"later");
    expected.file("edited", b"1");
    assert_eq!(result, store.flatten(&expected.build(&store)).unwrap());

    tree.file("edited", b"3");
    tree.file("made/since", b"x");
    let current = tree.build(&store);
    let plan = revert_edit(&store, &before, &after, &current).unwrap();
    let paths: Vec<_> = plan
        .conflicts
        .iter()
        .map(|conflict| &conflict.path[..])
        .collect();
    assert_eq!(paths, [&b"edited"[..], b"made/since"]);
    assert!(plan.edit.root.entries.is_empty());
    assert_eq!(plan.edit.root.base, Some(current.tree));
    let kept = restore_edit(&store, &current, &current, &[b"edited".to_vec()]).unwrap();
    assert_eq!(kept.edit.root.base, Some(current.tree));
}

#[test]
fn a_restored_name_of_a_linked_file_leaves_the_other_name_alone() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    tree.link("a", 3, b"old");
    tree.link("b", 3, b"old");
    let from = tree.build(&store);
    tree.link("a", 3, b"new");
    tree.link("b", 3, b"new");
    let current = tree.build(&store);
    let one = restore_edit(&store, &current, &from, &[b"a".to_vec()]).unwrap();
    let one = store.flatten(&apply(&store, &current, one.edit)).unwrap();
    assert_eq!(one[&b"a"[..]].0, store.flatten(&from).unwrap()[&b"a"[..]].0);
    assert_eq!(
        one[&b"b"[..]].0,
        store.flatten(&current).unwrap()[&b"b"[..]].0
    );
    assert_eq!(one[&b"a"[..]].1, None);
    let both = restore_edit(&store, &current, &from, &[b"a".to_vec(), b"b".to_vec()]).unwrap();
    assert_eq!(apply(&store, &current, both.edit), from);
}

#[test]
fn impossible_paths_are_rejected() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    tree.file("a", b"1");
    let root = tree.build(&store);
    for path in ["", "/a", "a/..", "a//b", "./a", "a\0b"] {
        let error = restore_edit(&store, &root, &root, &[path.into()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path:?}");
        assert!(error.hint().is_some());
    }
    let error = restore_edit(&store, &root, &root, &[b"missing".to_vec()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
