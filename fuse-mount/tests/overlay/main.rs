//! The filesystem without a kernel, over a real store: what survives a kill, what a commit holds,
//! what a switch changes. Requests are made as the transport would make them.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use fuse_mount::fs::request::{Caller, Errno, Mode, Request, Response, SetAttributes};
use fuse_mount::fs::{CommitPolicy, Filesystem, FilesystemOptions};
use workspace_store::object::CommitKind;
use workspace_store::source::CommitRequest;

mod harness;
mod journal;
mod refusing;

use harness::{Mounted, Overlay, ROOT, manual, noise};
use refusing::{Meanwhile, Refusing, nice_value, wait_until};

#[test]
fn g1_acknowledged_changes_survive_a_kill() {
    let overlay = Overlay::new();
    let large = noise(3_500_000, 1);
    let (file, big, moved);
    {
        let mounted = overlay.open(false);
        let directory = mounted.mkdir(ROOT, "d");
        file = mounted.create(directory, "small", b"one");
        mounted.write(file, 3, b" two");
        big = mounted.create(ROOT, "big", &large);
        mounted.write(big, 1_000_000, b"changed in the middle");
        moved = mounted.create(ROOT, "old", b"moved");
        mounted.rename((ROOT, "old"), (directory, "new"));
        mounted.create(ROOT, "gone", b"x");
        mounted.unlink(ROOT, "gone");
    }
    let mut expected = large;
    expected[1_000_000..1_000_021].copy_from_slice(b"changed in the middle");
    for round in 0..3 {
        let mounted = overlay.open(false);
        assert_eq!(
            mounted.look_up("d/small").unwrap().inode,
            file,
            "round {round}"
        );
        assert_eq!(mounted.content("d/small"), b"one two");
        assert_eq!(mounted.content("d/new"), b"moved");
        assert_eq!(mounted.look_up("d/new").unwrap().inode, moved);
        assert_eq!(mounted.look_up("gone").unwrap_err(), Errno(libc::ENOENT));
        assert!(mounted.content("big") == expected, "round {round}");
        assert_eq!(mounted.look_up("big").unwrap().inode, big);
    }
}

#[test]
fn g7_committed_files_are_there_after_close_with_the_same_numbers() {
    let overlay = Overlay::new();
    let data = noise(300_000, 2);
    let mut numbers = Vec::new();
    {
        let mounted = overlay.open(false);
        let directory = mounted.mkdir(ROOT, "d");
        mounted.create(directory, "a", &data);
        let linked = mounted.create(ROOT, "first", b"linked");
        mounted.link(linked, directory, "second");
        for path in ["d", "d/a", "first", "d/second"] {
            numbers.push((path, mounted.look_up(path).unwrap().inode));
        }
        mounted.commit();
        mounted.rename((ROOT, "first"), (ROOT, "renamed"));
        mounted.filesystem.close().unwrap();
    }
    let mounted = overlay.open(false);
    numbers[2].0 = "renamed";
    for (path, number) in numbers {
        assert_eq!(mounted.look_up(path).unwrap().inode, number, "{path}");
    }
    assert_eq!(mounted.content("d/a"), data);
    let linked = mounted.look_up("renamed").unwrap();
    assert_eq!(linked.attributes.link_count, 2);
    mounted.write(linked.inode, 0, b"LINKED");
    assert_eq!(mounted.content("d/second"), b"LINKED");
    let before = mounted.filesystem.status().head;
    assert_ne!(mounted.commit(), before);
    mounted.filesystem.close().unwrap();
    assert_eq!(overlay.open(false).content("d/second"), b"LINKED");
}

#[test]
fn g5_a_commit_without_changes_makes_none_and_what_came_and_went_leaves_no_trace() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    mounted.create(ROOT, "kept", b"1");
    let commit = mounted.commit();
    assert_eq!(mounted.commit(), commit);
    assert!(!mounted.filesystem.status().is_dirty);
    mounted.content("kept");
    mounted.names(ROOT);
    assert_eq!(mounted.commit(), commit);
}

#[test]
fn a_named_commit_is_made_although_an_automatic_one_took_the_changes() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    mounted.create(ROOT, "kept", b"1");
    let commit = |kind, message: &str| {
        let request = CommitRequest {
            author: "tester".into(),
            kind,
            message: message.into(),
            run: None,
            step: None,
        };
        mounted.filesystem.commit(request).unwrap()
    };
    let automatic = commit(CommitKind::Snapshot, "");
    assert!(!commit(CommitKind::Manual, "").is_new);
    let named = commit(CommitKind::Manual, "what I did");
    assert!(named.is_new);
    assert_eq!(named.root, automatic.root);
    assert_eq!(commit(CommitKind::Manual, "again").commit, named.commit);
}

#[test]
fn a_resent_request_is_answered_and_not_repeated() {
    let overlay = Overlay::new();
    let (first, removal, created, copy, copy_caller);
    {
        let mounted = overlay.open(false);
        first = mounted.caller();
        let request = Request::Create {
            parent: ROOT,
            name: b"new",
            mode: 0o644,
            umask: 0,
            flags: libc::O_EXCL as u32,
        };
        created = match mounted
            .filesystem
            .handle(&first, &request, Mode::Inline)
            .unwrap()
        {
            Response::Entry(entry) => entry.inode,
            other => panic!("{other:?}"),
        };
        mounted.create(ROOT, "old", b"");
        mounted.commit();
        let from = mounted.create(ROOT, "from", b"source");
        let to = mounted.create(ROOT, "to", b"");
        copy = Request::CopyRange {
            from,
            from_offset: 2,
            to,
            to_offset: 0,
            length: 1 << 40,
        };
        copy_caller = mounted.caller();
        let copied = mounted.filesystem.handle(&copy_caller, &copy, Mode::Inline);
        assert_eq!(copied, Ok(Response::Count(4)));
        removal = mounted.caller();
        let request = Request::Unlink {
            parent: ROOT,
            name: b"old",
        };
        mounted
            .filesystem
            .handle(&removal, &request, Mode::Inline)
            .unwrap();
    }
    let mounted = overlay.open(true);
    let again = |caller: Caller, request: &Request<'_>| {
        let caller = Caller {
            is_resent: true,
            ..caller
        };
        mounted.filesystem.handle(&caller, request, Mode::Inline)
    };
    let request = Request::Create {
        parent: ROOT,
        name: b"new",
        mode: 0o644,
        umask: 0,
        flags: libc::O_EXCL as u32,
    };
    match again(first, &request).unwrap() {
        Response::Entry(entry) => assert_eq!(entry.inode, created),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        again(
            removal,
            &Request::Unlink {
                parent: ROOT,
                name: b"old"
            }
        ),
        Ok(Response::Empty)
    );
    assert_eq!(again(copy_caller, &copy), Ok(Response::Count(4)));
    assert_eq!(mounted.names(ROOT), ["from", "new", "to"]);
}

#[test]
fn an_open_unlinked_file_survives_commits_and_kills_of_a_resumed_mount() {
    let overlay = Overlay::new();
    let large = noise(500_000, 3);
    let (small, big, stored);
    {
        let mounted = overlay.open(false);
        stored = mounted.create(ROOT, "stored", &large);
        mounted.commit();
        small = mounted.create(ROOT, "small", b"small");
        big = mounted.create(ROOT, "big", &large);
        for name in ["small", "big", "stored"] {
            mounted.unlink(ROOT, name);
        }
        mounted.create(ROOT, "other", b"");
        mounted.commit();
        mounted.write(small, 5, b" more");
    }
    for _ in 0..2 {
        let mounted = overlay.open(true);
        assert_eq!(mounted.read(small), b"small more");
        assert!(mounted.read(big) == large);
        assert!(mounted.read(stored) == large);
        mounted.create(ROOT, "another", b"").to_string();
        mounted.commit();
        mounted.unlink(ROOT, "another");
    }
}

#[test]
fn a_resumed_mount_finds_stored_inodes_by_their_numbers() {
    let overlay = Overlay::new();
    {
        let mounted = overlay.open(false);
        let directory = mounted.mkdir(ROOT, "d");
        mounted.create(directory, "f", b"content");
        mounted.filesystem.close().unwrap();
    }
    // Another overlay directory: nothing but the store knows the files, as after an import.
    let fork = overlay.fork_workspace("other");
    let open = |is_resumed| overlay.open_source(fork.clone(), "other", is_resumed);
    let number = open(false).look_up("d/f").unwrap().inode;
    let mounted = open(true);
    assert_eq!(mounted.read(number), b"content");
    mounted.write(number, 0, b"C");
    drop(mounted);
    assert_eq!(open(true).read(number), b"Content");
}

#[test]
fn g4_a_switch_changes_only_what_differs_and_keeps_uncommitted_work() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    let directory = mounted.mkdir(ROOT, "d");
    let same = mounted.create(directory, "same", b"same");
    let edited = mounted.create(directory, "edited", b"before");
    let removed = mounted.create(ROOT, "removed", b"removed");
    let target = mounted.filesystem.commit(manual()).unwrap();
    mounted.write(edited, 0, b"AFTER!");
    mounted.unlink(ROOT, "removed");
    let extra = mounted.mkdir(ROOT, "extra");
    mounted.create(extra, "inside", b"uncommitted");
    let rollback = CommitRequest {
        kind: CommitKind::Rollback,
        ..manual()
    };
    let outcome = mounted
        .filesystem
        .switch(&|_| Ok(target.root.clone().into()), rollback)
        .unwrap();
    assert_eq!(outcome.root, target.root);
    assert_eq!(mounted.look_up("d").unwrap().inode, directory);
    assert_eq!(mounted.look_up("d/same").unwrap().inode, same);
    assert_ne!(mounted.look_up("d/edited").unwrap().inode, edited);
    assert_eq!(mounted.content("d/edited"), b"before");
    assert_eq!(mounted.read(edited), b"AFTER!");
    assert_ne!(mounted.look_up("removed").unwrap().inode, removed);
    assert_eq!(mounted.names(ROOT), ["d", "removed"]);
    // What was uncommitted is the parent of the rollback.
    let commit = overlay.store.commit(outcome.commit.unwrap()).unwrap();
    assert_eq!(commit.parents, [outcome.before]);
    assert_eq!(outcome.rescue, Some(outcome.before));
    let rescue = overlay.store.commit(outcome.before).unwrap();
    assert_eq!(rescue.kind, CommitKind::Rescue);
    assert_eq!(rescue.root, outcome.before_root);
    // Once more: nothing differs, so nothing is committed.
    let again = mounted
        .filesystem
        .switch(&|_| Ok(target.root.clone().into()), manual())
        .unwrap();
    assert_eq!((again.commit, again.rescue), (None, None));
    let back = CommitRequest {
        kind: CommitKind::Undo,
        ..manual()
    };
    mounted
        .filesystem
        .switch(&|_| Ok(rescue.root.clone().into()), back)
        .unwrap();
    assert_eq!(mounted.content("extra/inside"), b"uncommitted");
    assert_eq!(mounted.content("d/edited"), b"AFTER!");
    // The same after a kill and after a clean restart.
    let number = mounted.look_up("d/edited").unwrap().inode;
    drop(mounted);
    let mounted = overlay.open(false);
    assert_eq!(mounted.look_up("d/edited").unwrap().inode, number);
    assert_eq!(mounted.content("extra/inside"), b"uncommitted");
    mounted.filesystem.close().unwrap();
    assert_eq!(overlay.open(false).content("d/edited"), b"AFTER!");
}

#[test]
fn g1_an_open_file_that_a_switch_replaced_survives_a_kill() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    let file = mounted.create(ROOT, "file", b"first");
    let first = mounted.filesystem.commit(manual()).unwrap();
    mounted.write(file, 0, b"other");
    mounted.filesystem.commit(manual()).unwrap();
    let back = CommitRequest {
        kind: CommitKind::Rollback,
        ..manual()
    };
    mounted
        .filesystem
        .switch(&|_| Ok(first.root.clone().into()), back)
        .unwrap();
    // A program has it open still.
    mounted.write(file, 2, b"HE");
    drop(mounted);

    let mounted = overlay.open(true);
    assert_eq!(mounted.read(file), b"otHEr");
    assert_eq!(mounted.content("file"), b"first");
}

#[test]
fn g1_an_open_unlinked_file_keeps_its_content_through_commits_and_several_kills() {
    let overlay = Overlay::new();
    let mut expected = noise(98_100, 7);
    let mut mounted = overlay.open(false);
    let inode = mounted.create(ROOT, "log", &expected);
    mounted.commit();
    mounted
        .ask(&Request::Unlink {
            parent: ROOT,
            name: b"log",
        })
        .unwrap();
    // The kernel writes whole pages back, so a segment loses some of what it was needed for.
    let append = |mounted: &Mounted, expected: &mut Vec<u8>, more: &[u8]| {
        let page = expected.len() & !4095;
        expected.extend(more);
        mounted.write(inode, page as u64, &expected[page..]);
    };
    for round in 0..4 {
        for number in 0..2 {
            append(
                &mounted,
                &mut expected,
                &noise(1350, 100 + round * 10 + number),
            );
            mounted.create(ROOT, &format!("other-{round}-{number}"), b"x");
            mounted.commit();
        }
        append(&mounted, &mut expected, &noise(360, 200 + round));
        // Dropping it would give segments back that only the running daemon needs.
        std::mem::forget(mounted);
        mounted = overlay.open(true);
        assert!(mounted.read(inode) == expected, "after kill {round}");
        // And without a commit in between, when the file needs nothing of the older segments any
        // more, only of the store.
        let first_page = 98_100 & !4095;
        let rest = noise(expected.len() - first_page, 300 + round);
        expected.truncate(first_page);
        expected.extend(rest);
        mounted.write(inode, first_page as u64, &expected[first_page..]);
        std::mem::forget(mounted);
        mounted = overlay.open(true);
        assert!(mounted.read(inode) == expected, "after second kill {round}");
    }
}

#[test]
fn g4_a_switch_brings_hard_links_back_as_one_file() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    let directory = mounted.mkdir(ROOT, "d");
    let file = mounted.create(ROOT, "a", b"v1");
    mounted.link(file, directory, "b");
    let target = mounted.filesystem.commit(manual()).unwrap().root;
    mounted.write(file, 0, b"v2");
    mounted.commit();
    mounted
        .filesystem
        .switch(&|_| Ok(target.clone().into()), manual())
        .unwrap();
    let check = |mounted: &Mounted| {
        let (a, b) = (
            mounted.look_up("a").unwrap(),
            mounted.look_up("d/b").unwrap(),
        );
        assert_eq!(a.inode, b.inode);
        assert_eq!(a.attributes.link_count, 2);
        assert_eq!(mounted.content("d/b"), b"v1");
        a.inode
    };
    let number = check(&mounted);
    assert_ne!(number, file);
    mounted.unlink(ROOT, "a");
    mounted.unlink(directory, "b");
    mounted.commit();
    mounted
        .filesystem
        .switch(&|_| Ok(target.clone().into()), manual())
        .unwrap();
    let number = check(&mounted);
    mounted.filesystem.close().unwrap();
    assert_eq!(check(&overlay.open(false)), number);
}

#[test]
fn g4_a_switch_moves_a_file_back_that_once_had_a_second_name() {
    for is_other_directory in [false, true] {
        let overlay = Overlay::new();
        let mounted = overlay.open(false);
        let directory = mounted.mkdir(ROOT, "d");
        let file = mounted.create(ROOT, "second", b"content");
        mounted.link(file, ROOT, "f");
        mounted.unlink(ROOT, "second");
        let target = mounted.filesystem.commit(manual()).unwrap().root;
        let to = if is_other_directory { directory } else { ROOT };
        mounted.rename((ROOT, "f"), (to, "g"));
        mounted
            .filesystem
            .switch(&|_| Ok(target.clone().into()), manual())
            .unwrap();
        let check = |mounted: &Mounted| {
            assert_eq!(mounted.content("f"), b"content");
            assert_eq!(mounted.look_up("f").unwrap().attributes.link_count, 1);
            assert_eq!(mounted.names(ROOT), ["d", "f"]);
        };
        check(&mounted);
        mounted.commit();
        drop(mounted);
        check(&overlay.open(true));
    }
}

#[test]
fn sparse_files_keep_their_holes_through_commits() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    let file = mounted.create(ROOT, "sparse", b"head");
    let size = SetAttributes {
        size: Some(50 << 20),
        ..Default::default()
    };
    mounted
        .ask(&Request::SetAttributes {
            inode: file,
            changes: size,
        })
        .unwrap();
    mounted.write(file, 40 << 20, &noise(10_000, 4));
    let check = |mounted: &Mounted| {
        let entry = mounted.look_up("sparse").unwrap();
        assert_eq!(entry.attributes.size, 50 << 20);
        assert!(
            entry.attributes.blocks * 512 <= 32 << 10,
            "{}",
            entry.attributes.blocks
        );
        let seek = |offset, whence| {
            mounted.ask(&Request::Seek {
                inode: entry.inode,
                offset,
                whence: whence as u32,
            })
        };
        assert_eq!(seek(0, libc::SEEK_HOLE), Ok(Response::Offset(4096)));
        assert_eq!(seek(4096, libc::SEEK_DATA), Ok(Response::Offset(40 << 20)));
        assert_eq!(seek(45 << 20, libc::SEEK_DATA), Err(Errno(libc::ENXIO)));
    };
    check(&mounted);
    mounted.commit();
    check(&mounted);
    mounted.filesystem.close().unwrap();
    let mounted = overlay.open(false);
    check(&mounted);
    let entry = mounted.look_up("sparse").unwrap();
    mounted.write(entry.inode, 20 << 20, b"island");
    mounted.commit();
    let content = mounted.content("sparse");
    assert_eq!(&content[..4], b"head");
    assert_eq!(&content[20 << 20..(20 << 20) + 6], b"island");
    assert_eq!(content[40 << 20..(40 << 20) + 10_000], noise(10_000, 4));
}

#[test]
fn removing_entries_while_listing_skips_none() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    for number in 0..3000 {
        mounted.create(ROOT, &format!("file-{number}"), b"");
    }
    let mut cookie = 0;
    let mut seen = 0;
    loop {
        let request = Request::ReadDirectory {
            inode: ROOT,
            cookie,
            size: 4096,
            overhead_bytes: 24,
            plus: false,
        };
        let Response::Directory(entries) = mounted.ask(&request).unwrap() else {
            panic!()
        };
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in entries {
            if &*entry.name != b"." && &*entry.name != b".." {
                seen += 1;
                mounted.unlink(ROOT, std::str::from_utf8(&entry.name).unwrap());
            }
        }
    }
    assert_eq!(seen, 3000);
    assert!(mounted.names(ROOT).is_empty());
}

#[test]
fn a_very_deep_tree_is_committed_on_the_stack_that_commits_have() {
    let work = || {
        let overlay = Overlay::new();
        let mounted = overlay.open(false);
        let mut directory = ROOT;
        for _ in 0..3000 {
            directory = mounted.mkdir(directory, "d");
        }
        mounted.create(directory, "bottom", b"reached");
        let commit = mounted.commit();
        assert_eq!(mounted.commit(), commit);
        mounted.filesystem.close().unwrap();
        let mounted = overlay.open(false);
        assert_eq!(
            mounted.content(&format!("{}bottom", "d/".repeat(3000))),
            b"reached"
        );
    };
    let stack = fuse_mount::fs::COMMIT_STACK_BYTES;
    std::thread::Builder::new()
        .stack_size(stack)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn g2_what_a_checkpoint_stored_survives_the_loss_of_the_journal_behind_it() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    mounted.create(ROOT, "kept", b"stored, not committed");
    let head = mounted.filesystem.status().head;
    mounted.filesystem.live_root().unwrap();
    assert_eq!(mounted.filesystem.status().head, head);
    drop(mounted);
    // A power loss may take every record behind the checkpoint.
    for entry in std::fs::read_dir(overlay.directory.path().join("overlay/journal")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let mounted = overlay.open(false);
    assert_eq!(mounted.content("kept"), b"stored, not committed");
    assert_ne!(mounted.commit(), head);
}

#[test]
fn g4_a_switch_comes_to_an_end_while_files_change_without_a_pause() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    let file = mounted.create(ROOT, "file", b"before");
    let busy = mounted.create(ROOT, "busy", b"");
    let target = mounted.filesystem.commit(manual()).unwrap().root;
    mounted.write(file, 0, b"AFTER!");
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let filesystem = &mounted.filesystem;
        let is_done = &is_done;
        scope.spawn(move || {
            let mut unique = 1_000_000;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                let caller = Caller {
                    uid: 0,
                    gid: 0,
                    is_root: true,
                    principal: 0,
                    pid: 2,
                    unique,
                    is_resent: false,
                };
                let request = Request::Write {
                    inode: busy,
                    offset: 0,
                    data: &unique.to_le_bytes(),
                    kill_suid_gid: false,
                    from_cache: false,
                    appends: false,
                };
                filesystem
                    .handle(&caller, &request, Mode::MayBlock)
                    .unwrap();
                unique += 2;
            }
        });
        let results: Vec<_> = (0..5)
            .map(|_| {
                mounted
                    .filesystem
                    .switch(&|_| Ok(target.clone().into()), manual())
            })
            .collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    assert_eq!(mounted.content("file"), b"before");
}

#[test]
fn g1_a_small_file_in_pieces_that_was_written_during_a_commit_survives_a_kill() {
    type Change = fn(&Mounted, u64, u64);
    let changes: [(&str, Change); 4] = [
        ("write beyond", |mounted, file, _| {
            mounted.write(file, 61_440, b"far");
        }),
        ("zero a range", |mounted, file, _| {
            let request = Request::Allocate {
                inode: file,
                offset: 1000,
                length: 5000,
                mode: libc::FALLOC_FL_ZERO_RANGE as u32,
            };
            mounted.ask(&request).unwrap();
        }),
        ("make longer", |mounted, file, _| {
            mounted.set_size(file, 300_000);
        }),
        ("copy from it", |mounted, file, other| {
            let request = Request::CopyRange {
                from: file,
                from_offset: 0,
                to: other,
                to_offset: 70_000,
                length: 2_000,
            };
            mounted.ask(&request).unwrap();
        }),
    ];
    for (what, change) in changes {
        let overlay = Overlay::new();
        let source = Arc::new(Refusing::new(overlay.source()));
        let mounted = Arc::new(overlay.open_source(source.clone(), "overlay", false));
        let file = mounted.create(ROOT, "file", &noise(200_000, 1));
        let other = mounted.create(ROOT, "other", &noise(200_000, 2));
        // Large files stay in pieces when they become short; the version has one short blob.
        mounted.set_size(file, 2_223);
        let writer = Arc::clone(&mounted);
        let act = move || writer.write(file, 10, b"meanwhile");
        *source.meanwhile.lock().unwrap() = Some(Meanwhile(Box::new(act)));
        mounted.commit();
        change(&mounted, file, other);
        let expected = ["file", "other"].map(|name| mounted.content(name));
        drop(mounted);
        let again = overlay.open(true);
        let found = ["file", "other"].map(|name| again.content(name));
        assert!(found == expected, "{what}");
    }
}

#[test]
fn a_resumed_mount_lets_go_of_files_that_nobody_uses_any_more() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    let stored = mounted.create(ROOT, "stored", b"x");
    let forgotten = mounted.create(ROOT, "forgotten", b"x");
    mounted.commit();
    drop(mounted);
    let mounted = overlay.open(true);
    mounted.names(ROOT);
    let loaded = |mounted: &Mounted| mounted.filesystem.status().loaded_inodes;
    let before = loaded(&mounted);
    for number in 0..10 {
        let name = format!("temporary-{number}");
        let inode = mounted.create(ROOT, &name, b"y");
        mounted.unlink(ROOT, &name);
        mounted.ask(&Request::Forget { inode, count: 1 }).unwrap();
    }
    assert_eq!(loaded(&mounted), before);
    // The kernel knew it before: it may have it open until it says that it forgot it.
    mounted.unlink(ROOT, "stored");
    assert_eq!(mounted.read(stored), b"x");
    mounted
        .ask(&Request::Forget {
            inode: stored,
            count: 7,
        })
        .unwrap();
    assert_eq!(loaded(&mounted), before - 1);
    // Forgotten first, it goes with its name.
    let request = Request::Forget {
        inode: forgotten,
        count: 7,
    };
    mounted.ask(&request).unwrap();
    mounted.unlink(ROOT, "forgotten");
    assert_eq!(loaded(&mounted), before - 2);
}

#[test]
fn writing_into_a_file_without_a_name_does_not_grow_the_journal_for_ever() {
    let overlay = Overlay::new();
    let filesystem = Filesystem::open(
        overlay.source(),
        FilesystemOptions {
            directory: overlay.directory.path().join("overlay"),
            policy: CommitPolicy {
                enabled: true,
                quiet: Duration::from_millis(20),
                max_interval: Duration::from_millis(100),
            },
            author: "tester".into(),
            is_read_only: false,
            is_resumed: false,
            processes: Default::default(),
        },
    )
    .unwrap();
    let mounted = Mounted {
        filesystem,
        next_unique: 2.into(),
    };
    let inode = mounted
        .entry(&Request::TemporaryFile {
            parent: ROOT,
            mode: 0o600,
            umask: 0,
            flags: 0,
        })
        .inode;
    let block = noise(1 << 20, 5);
    for _ in 0..320 {
        mounted.write(inode, 0, &block);
    }
    wait_until("a short journal", || {
        mounted.filesystem.status().journal_bytes < 128 << 20
    });
    assert!(mounted.read(inode) == block);
    assert!(!mounted.filesystem.status().is_dirty);
    mounted.filesystem.close().unwrap();
}

#[test]
fn a_failing_automatic_commit_does_not_hold_up_others() {
    let overlay = Overlay::new();
    let source = Arc::new(Refusing::new(overlay.source()));
    let filesystem = Filesystem::open(
        source.clone(),
        FilesystemOptions {
            directory: overlay.directory.path().join("overlay"),
            policy: CommitPolicy {
                enabled: true,
                quiet: Duration::from_millis(5),
                max_interval: Duration::from_millis(5),
            },
            author: "tester".into(),
            is_read_only: false,
            is_resumed: false,
            processes: Default::default(),
        },
    )
    .unwrap();
    let mounted = Mounted {
        filesystem,
        next_unique: 2.into(),
    };
    source
        .refuses
        .store(true, std::sync::atomic::Ordering::Relaxed);
    mounted.create(ROOT, "file", b"content");
    // The pause after the third failure is two seconds.
    wait_until("three failures", || {
        source.failures.load(std::sync::atomic::Ordering::Relaxed) >= 3
    });
    source
        .refuses
        .store(false, std::sync::atomic::Ordering::Relaxed);
    let start = std::time::Instant::now();
    let before = overlay.store.workspace("demo").unwrap().head;
    assert_ne!(mounted.commit(), before);
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    mounted.filesystem.close().unwrap();
}

#[test]
fn g12_stored_files_are_found_when_there_is_no_space_for_the_log_of_numbers() {
    let overlay = Overlay::new();
    let mounted = overlay.open(false);
    mounted.create(ROOT, "file", b"content");
    mounted.filesystem.close().unwrap();
    drop(mounted);
    let fork = overlay.fork_workspace("other");
    let known = overlay.directory.path().join("other/known");
    std::fs::create_dir_all(&known).unwrap();
    let full = SmallDisk::mount(&known);
    let mounted = overlay.open_source(fork, "other", false);
    assert_eq!(mounted.content("file"), b"content");
    drop(mounted);
    drop(full);
}

/// A tmpfs of one page; needs root, as every mount does.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: &std::path::Path) -> Self {
        let (kind, options) = (Some("tmpfs"), Some("size=4096"));
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), path, kind, flags, options).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn an_automatic_commit_gives_way_until_somebody_waits_for_it() {
    use std::sync::atomic::Ordering::Relaxed;
    let normal = nice_value();
    let overlay = Overlay::new();
    let source = Arc::new(Refusing::new(overlay.source()));
    let mounted = overlay.open_source(source.clone(), "overlay", false);
    source.is_slow.store(true, Relaxed);
    mounted.filesystem.set_policy(CommitPolicy {
        enabled: true,
        quiet: Duration::ZERO,
        max_interval: Duration::ZERO,
    });
    mounted.create(ROOT, "file", b"content");
    wait_until("automatic commit", || {
        !source.nice.lock().unwrap().is_empty()
    });
    mounted.filesystem.set_policy(CommitPolicy {
        enabled: false,
        ..Default::default()
    });
    mounted.create(ROOT, "more", b"content");
    // Waits for the other one, which waits for its priority.
    assert!(mounted.filesystem.commit(manual()).unwrap().is_new);
    assert!(source.was_raised.load(Relaxed));
    let found = source.nice.lock().unwrap().clone();
    assert!(found[0] > normal, "the automatic one: {found:?}");
    assert_eq!(found[1..], [normal], "the one asked for");
    mounted.filesystem.close().unwrap();
}
