//! What the journal alone, over the base of its cut, brings back.

use fuse_mount::fs::request::{Request, Response};

use crate::harness::{Overlay, ROOT};

#[test]
fn g2_a_replay_needs_nothing_but_the_store_and_the_journal() {
    let overlay = Overlay::new();
    {
        let mounted = overlay.open(false);
        let directory = mounted.mkdir(ROOT, "directory");
        let inner = mounted.mkdir(directory, "inner");
        for name in ["written", "moved", "linked", "removed"] {
            mounted.create(inner, name, b"before");
        }
        mounted.commit();
        mounted.filesystem.close().unwrap();
    }
    // Numbers that follow from the names come from an import; those of this mount are in the map.
    let workspace = overlay.store.workspace("demo").unwrap();
    let root = overlay.store.commit(workspace.head).unwrap().root.clone();
    let fork = overlay.store.create_workspace("fork", "tester").unwrap();
    let base = overlay.store.commit(fork.head).unwrap().root.clone();
    let edit = workspace_store::edit::SnapshotEdit {
        root: workspace_store::edit::DirectoryEdit {
            base: Some(root.tree),
            ..Default::default()
        },
        ..workspace_store::edit::SnapshotEdit::unchanged(&base)
    };
    overlay
        .store
        .apply_edit(
            fork.id,
            "main",
            fork.head,
            &base,
            edit,
            crate::harness::manual(),
            &|_| {},
        )
        .unwrap();
    let fork = overlay.fork(fork.id);
    let open = || overlay.open_source(fork.clone(), "fork-overlay", false);
    let number_of =
        |mounted: &crate::harness::Mounted, path: &str| mounted.look_up(path).unwrap().inode;
    {
        let mounted = open();
        let written = number_of(&mounted, "directory/inner/written");
        let moved = number_of(&mounted, "directory/inner/moved");
        let inner = number_of(&mounted, "directory/inner");
        let directory = number_of(&mounted, "directory");
        mounted.write(written, 0, b"AFTER!");
        mounted.rename((directory, "inner"), (ROOT, "up"));
        mounted.rename((inner, "moved"), (ROOT, "away"));
        mounted.write(moved, 0, b"MOVED!");
        mounted.commit();
        // In the next epoch only the store's rows and new notes tell where they are.
        mounted.write(written, 6, b" twice");
        mounted.write(moved, 6, b" twice");
        let link = Request::Link {
            inode: number_of(&mounted, "up/linked"),
            new_parent: directory,
            new_name: b"link",
        };
        assert!(matches!(mounted.ask(&link), Ok(Response::Entry(_))));
        mounted.unlink(inner, "removed");
    }
    // A power loss may take the log of known inodes, which nobody syncs.
    std::fs::remove_dir_all(overlay.directory.path().join("fork-overlay/known")).unwrap();
    let mounted = open();
    assert_eq!(mounted.content("up/written"), b"AFTER! twice");
    assert_eq!(mounted.content("away"), b"MOVED! twice");
    assert_eq!(mounted.content("directory/link"), b"before");
    assert!(mounted.look_up("up/removed").is_err());
    mounted.commit();
}

#[test]
fn an_open_unlinked_link_or_device_survives_a_commit_and_a_kill() {
    let overlay = Overlay::new();
    let (link, device);
    {
        let mounted = overlay.open(false);
        link = mounted
            .entry(&Request::SymbolicLink {
                parent: ROOT,
                name: b"link",
                target: b"the target",
            })
            .inode;
        device = mounted
            .entry(&Request::MakeNode {
                parent: ROOT,
                name: b"device",
                mode: libc::S_IFCHR | 0o600,
                rdev: 0x103,
                umask: 0,
            })
            .inode;
        mounted.unlink(ROOT, "link");
        mounted.unlink(ROOT, "device");
        mounted.create(ROOT, "other", b"");
        mounted.commit();
    }
    let mounted = overlay.open(true);
    assert_eq!(
        mounted.ask(&Request::ReadLink { inode: link }),
        Ok(Response::Data(b"the target".to_vec()))
    );
    let Ok(Response::Attributes(attributes)) =
        mounted.ask(&Request::GetAttributes { inode: device })
    else {
        panic!("no attributes");
    };
    assert_eq!(attributes.rdev, 0x103);
}

#[test]
fn g12_commits_that_fail_again_and_again_take_no_more_space_of_the_journal() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    mounted.create(ROOT, "file", b"content");
    let files = || {
        std::fs::read_dir(overlay.directory.path().join("overlay/journal"))
            .unwrap()
            .count()
    };
    overlay.store.close().unwrap();
    let refused = || mounted.filesystem.commit(crate::harness::manual()).is_err();
    assert!(refused());
    let after_one = files();
    for _ in 0..5 {
        assert!(refused());
    }
    assert_eq!(files(), after_one);
    // What comes in between is kept, and so is what was carried over.
    mounted.create(ROOT, "later", b"more");
    assert!(refused());
    drop(mounted);
    let overlay = overlay.reopened();
    let mounted = overlay.open(false);
    assert_eq!(mounted.content("file"), b"content");
    assert_eq!(mounted.content("later"), b"more");
    mounted.commit();
}
