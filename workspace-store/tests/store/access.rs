//! Principals, tokens, grants, and denials in the audit log.

use std::sync::Arc;

use workspace_store::audit::AuditQuery;
use workspace_store::denial::Denial;
use workspace_store::diff::{DiffOptions, diff_roots};
use workspace_store::grant::GrantState;
use workspace_store::import::import_directory;
use workspace_store::object::{Inode, Node, Root, Timestamp, TreeEntry};
use workspace_store::path::join_path;
use workspace_store::policy::{Access, Pattern, Policy, PolicyView, Rule};
use workspace_store::principal::PrincipalKind;
use workspace_store::progress::NoProgress;
use workspace_store::reader::ObjectReader;
use workspace_store::{ErrorKind, Store, StoreOptions, TreeId};

fn open(directory: &std::path::Path) -> Store {
    Store::open(directory, StoreOptions::default()).unwrap()
}

pub fn state(access: Access) -> Option<GrantState> {
    Some(GrantState {
        access,
        until: None,
    })
}

fn soon(milliseconds: i128) -> Timestamp {
    Timestamp::from_nanoseconds(Timestamp::now().as_nanoseconds() + milliseconds * 1_000_000)
}

#[test]
fn tokens_are_good_until_they_expire_are_revoked_or_their_principal_is_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store
        .add_principal("ada", PrincipalKind::Agent, "owner")
        .unwrap();
    let error = store.add_principal("ada", PrincipalKind::Person, "owner");
    assert_eq!(error.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let token = store.create_token("ada", None, "owner").unwrap();
    let other = store.create_token("ada", None, "owner").unwrap();
    let short = store.create_token("ada", Some(soon(300)), "owner").unwrap();
    assert_eq!(store.authenticate(&token.secret).unwrap(), "ada");
    assert_eq!(store.authenticate(&short.secret).unwrap(), "ada");

    let refused = |secret: &str| {
        let error = store.authenticate(secret).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        error.message().to_owned()
    };
    let unknown = refused("kura_00");
    assert_eq!(store.revoke_token(&token.id, "owner").unwrap(), "ada");
    assert_eq!(refused(&token.secret), unknown, "the reason is told");
    std::thread::sleep(std::time::Duration::from_millis(350));
    refused(&short.secret);
    store.set_principal_disabled("ada", true, "owner").unwrap();
    refused(&other.secret);
    store.set_principal_disabled("ada", false, "owner").unwrap();
    assert_eq!(store.authenticate(&other.secret).unwrap(), "ada");

    // Nothing in the database gives a secret back.
    store.close().unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        let digits = &other.secret.as_bytes()[5..];
        assert!(!bytes.windows(digits.len()).any(|part| part == digits));
    }
}

#[test]
fn grants_are_operations_that_can_be_undone_and_count_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let workspace = store.create_workspace("demo", "owner").unwrap().id;
    assert!(store.policy_of(workspace, "ada").unwrap().is_unrestricted());
    let missing = store.set_grant(workspace, "ada", "docs/**", state(Access::Read), "owner");
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    store
        .add_principal("ada", PrincipalKind::Agent, "owner")
        .unwrap();
    let access = |path: &str| {
        let policy = store.policy_of(workspace, "ada").unwrap();
        policy.access(path.as_bytes())
    };
    assert_eq!(access("docs/a"), Access::Hidden);
    let grant = |pattern: &str, access| {
        store
            .set_grant(workspace, "ada", pattern, state(access), "owner")
            .unwrap()
    };
    let first = grant("docs/**", Access::Read);
    assert_eq!(access("docs/a"), Access::Read);
    let second = grant("docs/**", Access::Write);
    assert_eq!(access("docs/a"), Access::Write);
    let early = store.undo_ref_operation(workspace, first, "owner");
    assert_eq!(early.unwrap_err().kind(), ErrorKind::Conflict);
    let undo = store
        .undo_ref_operation(workspace, second, "owner")
        .unwrap();
    assert_eq!(access("docs/a"), Access::Read);
    store.undo_ref_operation(workspace, undo, "owner").unwrap();
    assert_eq!(access("docs/a"), Access::Write);
    let revoked = store
        .set_grant(workspace, "ada", "docs/**", None, "owner")
        .unwrap();
    assert_eq!(access("docs/a"), Access::Hidden);
    store
        .undo_ref_operation(workspace, revoked, "owner")
        .unwrap();
    assert_eq!(access("docs/a"), Access::Write);

    // Groups, ends, disabling; another process sees the same.
    store
        .add_group_members("team", &["ada".to_owned()], "owner")
        .unwrap();
    let ends = Some(GrantState {
        access: Access::Read,
        until: Some(soon(300)),
    });
    store
        .set_grant(workspace, "@team", "src", ends, "owner")
        .unwrap();
    assert_eq!(access("src/x"), Access::Read);
    std::thread::sleep(std::time::Duration::from_millis(350));
    assert_eq!(access("src/x"), Access::Hidden);
    store
        .set_grant(workspace, "@team", "lib", state(Access::Read), "owner")
        .unwrap();
    assert_eq!(access("lib"), Access::Read);
    store
        .remove_group_members("team", &["ada".to_owned()], "owner")
        .unwrap();
    assert_eq!(access("lib"), Access::Hidden);
    let fork = store
        .fork_workspace(
            workspace,
            store.branch(workspace, "main").unwrap(),
            "copy",
            "owner",
            |_| true,
        )
        .unwrap();
    let forked = store.policy_of(fork.id, "ada").unwrap();
    assert_eq!(forked.access(b"docs/a"), Access::Write);
    assert_eq!(forked.access(b"other"), Access::Hidden);
    store.close().unwrap();
    let store = open(directory.path());
    let policy = store.policy_of(workspace, "ada").unwrap();
    assert_eq!(policy.access(b"docs/a"), Access::Write);
    store.set_principal_disabled("ada", true, "owner").unwrap();
    let policy = store.policy_of(workspace, "ada").unwrap();
    assert_eq!(policy.access(b"docs/a"), Access::Hidden);
}

#[test]
fn g10_denials_are_in_the_log_and_repetitions_are_one_entry() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let denial = |object: &str| Denial {
        principal: "ada".to_owned(),
        source: "mount".to_owned(),
        action: "open".to_owned(),
        workspace: None,
        object: object.to_owned(),
    };
    for _ in 0..1000 {
        store.record_denial(denial("secret")).unwrap();
    }
    store.record_denial(denial("other")).unwrap();
    store.flush_denials(true).unwrap();
    // Behind the queued entries.
    store
        .add_principal("ada", PrincipalKind::Agent, "owner")
        .unwrap();
    let entries = store.audit(&AuditQuery::default()).unwrap();
    let mut denied: Vec<(String, u64)> = entries
        .iter()
        .filter(|entry| entry.outcome == "denied")
        .map(|entry| {
            (
                entry.object.clone(),
                entry.details["count"].as_u64().unwrap(),
            )
        })
        .collect();
    denied.sort();
    let expected = [("other", 1), ("secret", 1), ("secret", 999)];
    assert_eq!(
        denied,
        expected.map(|(object, count)| (object.to_owned(), count))
    );
    assert_eq!(store.audit_verify().unwrap().broken, None);

    // However many different ones there are, the log doesn't grow with them.
    for number in 0..10_000 {
        store
            .record_denial(denial(&format!("path {number}")))
            .unwrap();
    }
    store.flush_denials(true).unwrap();
    store.set_principal_disabled("ada", true, "owner").unwrap();
    let entries = store.audit(&AuditQuery::default()).unwrap();
    assert!(entries.len() < 4200, "{}", entries.len());
    let count: u64 = entries
        .iter()
        .filter_map(|entry| entry.details["count"].as_u64())
        .sum();
    assert_eq!(count, 11_001);
}

/// Paths of a tree, through a reader.
fn paths(reader: &dyn ObjectReader, tree: TreeId, parent: &[u8], found: &mut Vec<String>) {
    for (name, entry) in reader.directory(tree).unwrap() {
        assert_eq!(reader.lookup(tree, &name).unwrap(), Some(entry.clone()));
        let path = join_path(parent, &name);
        if let TreeEntry::Inline(Inode {
            node: Node::Directory { tree },
            ..
        }) = entry
        {
            paths(reader, tree, &path, found);
        }
        found.push(String::from_utf8(path).unwrap());
    }
}

#[test]
fn g9_a_view_has_what_the_policy_shows_and_differs_where_that_differs() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let workspace = store.create_workspace("demo", "owner").unwrap();
    // More entries than one node holds, at two depths.
    let files = tempfile::tempdir().unwrap();
    let write = |path: &str, content: &str| {
        let path = files.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    for number in 0..600 {
        write(&format!("wide/file{number}"), "x");
        write(
            &format!("deep/a{}/b{}/c{number}", number % 3, number % 5),
            "y",
        );
    }
    let commit = |head| {
        let import = import_directory(files.path(), &NoProgress).unwrap();
        let base = store.commit(head).unwrap().root.clone();
        store
            .apply_edit(
                workspace.id,
                "main",
                head,
                &base,
                import.edit,
                crate::fixture::request("import"),
                &|_| {},
            )
            .unwrap()
            .commit
    };
    let first = commit(workspace.head);
    for number in [7, 70, 300, 407] {
        write(&format!("wide/file{number}"), "changed");
        write(
            &format!("deep/a{}/b{}/c{number}", number % 3, number % 5),
            "changed",
        );
    }
    std::fs::remove_file(files.path().join("wide/file8")).unwrap();
    std::fs::remove_file(files.path().join("wide/file17")).unwrap();
    let second = commit(first);

    let rule = |pattern: &str, access| Rule {
        pattern: Pattern::parse(pattern.as_bytes()).unwrap(),
        access,
        until: None,
        is_own: true,
    };
    for rules in [
        vec![],
        vec![rule("/", Access::Read)],
        vec![rule("/", Access::Read), rule("*7", Access::Hidden)],
        vec![rule("wide/*7", Access::Write)],
        vec![rule("deep/a1/**", Access::Read), rule("b2", Access::Hidden)],
        vec![
            rule("/", Access::Write),
            rule("deep", Access::Hidden),
            rule("deep/a0/b0/c0", Access::Read),
        ],
    ] {
        let policy = Arc::new(Policy::compile(rules, Access::Hidden, Timestamp::default()));
        let view = PolicyView::new(&store, policy.clone());
        let roots = [first, second].map(|id| store.commit(id).unwrap().root.clone());
        let views = [view.root(&roots[0]), view.root(&roots[1])];
        for (root, seen) in roots.iter().zip(&views) {
            let (mut all, mut found) = (Vec::new(), Vec::new());
            paths(&store, root.tree, b"", &mut all);
            paths(&view, seen.tree, b"", &mut found);
            all.retain(|path| {
                let place = policy.place(path.as_bytes());
                let is_directory = !path.contains("file") && !path.contains("/c");
                place.access() > Access::Hidden || (is_directory && place.is_passage())
            });
            assert_eq!(found, all);
        }
        let options = DiffOptions::default();
        let changed = |reader: &dyn ObjectReader, roots: &[Root; 2]| -> Vec<Vec<u8>> {
            let entries = diff_roots(reader, &roots[0], &roots[1], &options).unwrap();
            entries.into_iter().map(|entry| entry.path).collect()
        };
        let mut expected = changed(&store, &roots);
        expected.retain(|path| policy.access(path) > Access::Hidden);
        assert_eq!(changed(&view, &views), expected);
    }
}
