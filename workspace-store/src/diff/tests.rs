//! Tests of `diff`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;
use crate::edit::{EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use crate::memory_store::{MemoryStore, Tree, random_tree};
use crate::object::Root;

fn all() -> DiffOptions {
    DiffOptions {
        times: true,
        ..DiffOptions::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_diff_applied_to_the_old_tree_gives_the_new_one(
        old in random_tree(), new in random_tree(), renames in any::<bool>()
    ) {
        let store = MemoryStore::default();
        let old = old.build(&store);
        let new = new.build(&store);
        let options = DiffOptions { renames, ..all() };
        let entries = diff_roots(&store, &old, &new, &options).unwrap();
        let mut result = store.flatten(&old).unwrap();
        for entry in &entries {
            let from = match &entry.kind {
                DiffKind::Deleted => entry.path.clone(),
                DiffKind::Renamed { from, .. } => from.clone(),
                _ => continue,
            };
            let is_whole = matches!(entry.kind, DiffKind::Renamed { .. });
            let moved: Vec<_> = result.keys()
                .filter(|path| **path == from || (is_whole && crate::path::is_at_or_below(path, &from)))
                .cloned().collect();
            for path in moved {
                // What is in a moved directory moves along; its entries are put below.
                result.remove(&path);
            }
        }
        let expected = store.flatten(&new).unwrap();
        for entry in &entries {
            let Some(inode) = &entry.new else { continue };
            let mut inode = inode.clone();
            crate::memory_store::forget_tree(&mut inode);
            result.insert(entry.path.clone(), (inode, entry.new_link));
            if matches!(entry.kind, DiffKind::Renamed { .. }) {
                for (path, below) in &expected {
                    if crate::path::is_at_or_below(path, &entry.path) && *path != entry.path {
                        result.entry(path.clone()).or_insert_with(|| below.clone());
                    }
                }
            }
        }
        prop_assert_eq!(result, expected);
        let mut sorted = entries.clone();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        prop_assert_eq!(sorted, entries);
    }

    #[test]
    fn a_diff_with_itself_is_empty(tree in random_tree()) {
        let store = MemoryStore::default();
        let root = tree.build(&store);
        prop_assert!(diff_roots(&store, &root, &root, &all()).unwrap().is_empty());
    }
}

#[test]
fn one_change_in_a_large_directory_reads_few_nodes() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    for number in 0..20_000 {
        tree.file(&format!("big/{number:05}"), b"x");
    }
    let old = tree.build(&store);
    tree.file("big/10000", b"y");
    tree.file("big/10000a", b"z");
    let new = tree.build(&store);
    *store.node_reads.lock() = 0;
    let entries = diff_roots(&store, &old, &new, &DiffOptions::default()).unwrap();
    let paths: Vec<_> = entries
        .iter()
        .map(|e| (e.letter(), e.path.clone()))
        .collect();
    assert_eq!(
        paths,
        [('M', b"big/10000".to_vec()), ('A', b"big/10000a".to_vec())]
    );
    assert!(
        *store.node_reads.lock() < 60,
        "{} nodes",
        store.node_reads.lock()
    );
}

#[test]
fn a_changed_hard_linked_file_shows_at_each_name_even_where_directories_are_equal() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    tree.link("a/one", 7, b"old");
    tree.link("b/two", 7, b"old");
    tree.file("c", b"");
    let old = tree.build(&store);
    tree.link("a/one", 7, b"new");
    tree.link("b/two", 7, b"new");
    let new = tree.build(&store);
    assert_eq!(old.tree, new.tree);
    for (paths, expected) in [
        (vec![], vec![b"a/one".to_vec(), b"b/two".to_vec()]),
        (vec![b"b".to_vec()], vec![b"b/two".to_vec()]),
    ] {
        let options = DiffOptions {
            paths,
            ..DiffOptions::default()
        };
        let entries = diff_roots(&store, &old, &new, &options).unwrap();
        assert!(entries.iter().all(|entry| entry.kind == DiffKind::Modified));
        let found: Vec<_> = entries.into_iter().map(|entry| entry.path).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn moved_directories_and_similar_files_are_renames() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    let text: String = (0..40).map(|n| format!("line {n} of the file\n")).collect();
    tree.file("src/a", b"alpha");
    tree.file("src/deep/b", b"beta");
    tree.file("notes", text.as_bytes());
    let old = tree.build(&store);
    let mut tree = Tree::default();
    tree.file("lib/a", b"alpha");
    tree.file("lib/deep/b", b"beta");
    tree.file("text", format!("{text}one more\n").as_bytes());
    let new = tree.build(&store);
    let options = DiffOptions {
        renames: true,
        ..DiffOptions::default()
    };
    let entries = diff_roots(&store, &old, &new, &options).unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| match &entry.kind {
            DiffKind::Renamed { from, similarity } => {
                (from.clone(), entry.path.clone(), *similarity)
            }
            other => panic!("{other:?} at {:?}", entry.path),
        })
        .collect();
    assert_eq!(found[0], (b"src".to_vec(), b"lib".to_vec(), 100));
    assert_eq!(
        (&found[1].0[..], &found[1].1[..]),
        (&b"notes"[..], &b"text"[..])
    );
    assert!(found[1].2 > 90 && found[1].2 < 100);
    assert_eq!(found.len(), 2);
}

#[test]
fn names_are_quoted_as_git_does() {
    assert_eq!(quote_path(b"plain name"), b"plain name");
    assert_eq!(quote_path("é\n\"".as_bytes()), br#""\303\251\n\"""#);
}

fn run(directory: &std::path::Path, program: &str, arguments: &[&str], input: &[u8]) {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{program}: {}{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(input),
    );
}

fn exported(store: &MemoryStore, root: &Root) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    crate::export::export_directory(
        store,
        root,
        b"",
        directory.path(),
        &crate::progress::NoProgress,
    )
    .unwrap();
    directory
}

fn contents(directory: &std::path::Path) -> BTreeMap<Vec<u8>, (bool, Vec<u8>)> {
    let store = MemoryStore::default();
    let import = crate::import::import_directory(directory, &crate::progress::NoProgress).unwrap();
    let root = store.apply(&store.empty(), import.edit).unwrap();
    let mut all = BTreeMap::new();
    for (path, (inode, _)) in store.flatten(&root).unwrap() {
        let executable = inode.attributes.mode & 0o100 != 0;
        match inode.node {
            crate::object::Node::Regular { blob, size, .. } => {
                let content =
                    crate::reader::ObjectReader::read_whole_blob(&store, blob, size, 1 << 20);
                all.insert(path, (executable, content.unwrap()));
            }
            crate::object::Node::Symlink { target } => {
                all.insert(path, (false, target.to_vec()));
            }
            _ => {}
        }
    }
    all
}

#[test]
fn patches_apply_with_git_and_patch() {
    let store = MemoryStore::default();
    let many: String = (0..100).map(|n| format!("line {n}\n")).collect();
    let mut tree = Tree::default();
    tree.file("edited", many.as_bytes());
    tree.file("no newline", b"a\nb");
    tree.file("gets newline", b"a\nb");
    tree.file("carriage", b"a\rb\r\nc\n");
    tree.file("deleted dir/gone", b"bye\n");
    tree.file("odd \"name\"\t\u{e9}", b"1\n2\n3\n");
    tree.file("emptied", b"x\n");
    tree.file("moved from", many.replace("line 5", "row 5").as_bytes());
    tree.file("script", b"#!/bin/sh\n");
    let mut symlinks = tree.clone();
    symlinks.symlink("link", b"old target");
    symlinks.file("becomes link", b"text\n");
    let changed = |tree: &mut Tree| {
        tree.file(
            "edited",
            many.replace("line 50\n", "")
                .replace("line 9\n", "nine\n")
                .as_bytes(),
        );
        tree.file("no newline", b"a\nc");
        tree.file("gets newline", b"a\nb\n");
        tree.file("carriage", b"a\rB\r\nc\nd\n");
        tree.remove("deleted dir/gone");
        tree.remove("deleted dir");
        tree.file("odd \"name\"\t\u{e9}", b"1\n2\n3\n4\n");
        tree.file("emptied", b"");
        tree.remove("moved from");
        tree.file(
            "new/moved to",
            many.replace("line 5", "row 5")
                .replace("line 70", "70")
                .as_bytes(),
        );
        tree.file("new/file", b"fresh\n");
        tree.mode("script", 0o755);
    };
    for (program, with_links) in [("git", true), ("patch", false)] {
        let mut tree = if with_links {
            symlinks.clone()
        } else {
            tree.clone()
        };
        let old = tree.build(&store);
        changed(&mut tree);
        if with_links {
            tree.symlink("link", b"new target");
            tree.symlink("becomes link", b"elsewhere");
        }
        let new = tree.build(&store);
        let options = DiffOptions {
            renames: true,
            ..DiffOptions::default()
        };
        let entries = diff_roots(&store, &old, &new, &options).unwrap();
        let mut patch = Vec::new();
        render_patch(&store, &entries, &PatchOptions::default(), &mut patch).unwrap();
        let directory = exported(&store, &old);
        if program == "git" {
            run(directory.path(), "git", &["apply", "-"], &patch);
        } else {
            run(directory.path(), "patch", &["-p1", "--binary"], &patch);
        }
        let expected = exported(&store, &new);
        assert_eq!(
            contents(directory.path()),
            contents(expected.path()),
            "{program}"
        );
        let counts = statistics(&store, &entries, &PatchOptions::default()).unwrap();
        let edited = counts.iter().find(|one| one.path == b"edited").unwrap();
        assert_eq!((edited.insertions, edited.deletions), (1, 2));
    }
}

#[test]
fn binary_files_are_not_shown() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    tree.file("image", b"\0one");
    let old = tree.build(&store);
    tree.file("image", b"\0two");
    let new = tree.build(&store);
    let entries = diff_roots(&store, &old, &new, &DiffOptions::default()).unwrap();
    let mut patch = Vec::new();
    render_patch(&store, &entries, &PatchOptions::default(), &mut patch).unwrap();
    let patch = String::from_utf8(patch).unwrap();
    assert!(
        patch.ends_with("Binary files a/image and b/image differ\n"),
        "{patch}"
    );
}

#[test]
fn times_of_directories_alone_are_reported_only_when_asked_for() {
    let store = MemoryStore::default();
    let mut tree = Tree::default();
    tree.file("d/f", b"");
    let old = tree.build(&store);
    let directory = crate::reader::ObjectReader::lookup(&store, old.tree, b"d").unwrap();
    let Some(crate::object::TreeEntry::Inline(mut inode)) = directory else {
        panic!()
    };
    inode.attributes.mtime.seconds += 1;
    let edit = InodeEdit {
        attributes: inode.attributes,
        node: NodeEdit::Stored(inode.node),
    };
    let entries = [(Box::from(&b"d"[..]), EntryEdit::Put(edit))].into();
    let edit = SnapshotEdit::changing(&old, entries);
    let new = store.apply(&old, edit).unwrap();
    assert!(
        diff_roots(&store, &old, &new, &DiffOptions::default())
            .unwrap()
            .is_empty()
    );
    let entries = diff_roots(&store, &old, &new, &all()).unwrap();
    assert_eq!(entries.len(), 1);
    assert!(entries[0].changes.mtime && entries[0].kind == DiffKind::Metadata);
}
