//! Who changed what, from a mount's submissions to lists of changes, the log and blame.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::CommitId;
use workspace_store::actor::Actor;
use workspace_store::attribution::{Attribution, NameActors};
use workspace_store::commits::{ActorFilter, LogQuery};
use workspace_store::edit::SnapshotEdit;
use workspace_store::object::{CommitKind, Root};
use workspace_store::runs::NewRunStep;
use workspace_store::source::{CommitRequest, Submission, Submitted};

use crate::fixture::{Fixture, edit_of, file, name, open, request};

fn actor(principal: &str, run: Option<&str>, step: Option<u64>) -> Actor {
    Actor {
        run: run.map(str::to_owned),
        step,
        ..Actor::of_principal(principal)
    }
}

/// These actors, numbered from `first`, changed these names in the root.
fn attribution(first: u32, changes: &[(&str, &Actor)]) -> Attribution {
    let mut found = Attribution::default();
    for (number, (changed, actor)) in (first..).zip(changes) {
        found.actors.insert(number, Arc::new((*actor).clone()));
        let names = found.names.entry(Box::default()).or_default();
        names.entry(name(changed)).or_default().extend(&NameActors {
            actors: [number].into_iter().collect(),
            is_placed: true,
        });
    }
    found
}

struct Mount<'f> {
    fixture: &'f Fixture,
    base: Root,
    head: CommitId,
}

impl<'f> Mount<'f> {
    fn new(fixture: &'f Fixture) -> Self {
        let (head, base) = fixture.head();
        Self {
            fixture,
            base,
            head,
        }
    }

    fn submit(
        &mut self,
        edit: impl FnOnce(&Root) -> SnapshotEdit,
        attribution: Attribution,
        commit: Option<CommitRequest>,
        is_automatic: bool,
    ) -> Submitted {
        let workspace = self.fixture.workspace.id;
        let source = self.fixture.store.source(workspace, "main").unwrap();
        let done = source
            .submit(Submission {
                lineage: Default::default(),
                mountpoint: Some("/mnt/a".to_owned()),
                expected_head: self.head,
                edit: edit(&self.base),
                base: self.base.clone(),
                attribution,
                commit,
                is_automatic,
                first_journal_segment: 1,
                next_inode_number: 1 << 40,
                inode_records: BTreeMap::new(),
            })
            .unwrap();
        self.base = done.root.clone();
        self.head = done.commit;
        done
    }
}

fn automatic() -> CommitRequest {
    CommitRequest {
        kind: CommitKind::Snapshot,
        ..request("")
    }
}

fn who(fixture: &Fixture, commit: CommitId) -> Vec<(String, Vec<String>)> {
    let changes = fixture.store.attributed_changes(commit).unwrap();
    changes
        .into_iter()
        .map(|found| {
            let path = String::from_utf8(found.change.path.to_vec()).unwrap();
            let actors = found.actors.iter().map(|actor| actor.principal.clone());
            (path, actors.collect())
        })
        .collect()
}

#[test]
fn a_commit_has_the_actors_of_the_checkpoints_before_it_also_after_a_restart() {
    let fixture = Fixture::new();
    let mut mount = Mount::new(&fixture);
    let (ada, bob) = (actor("ada", None, None), actor("bob", None, None));
    mount.submit(
        |base| edit_of(base, [("a", file(1, "1")), ("both", file(2, "1"))]),
        attribution(1, &[("a", &ada), ("both", &ada)]),
        None,
        false,
    );
    // Another daemon counts its actors from the start.
    let done = mount.submit(
        |base| edit_of(base, [("b", file(3, "1")), ("both", file(4, "2"))]),
        attribution(1, &[("b", &bob), ("both", &bob)]),
        Some(request("")),
        false,
    );
    let expected = [
        ("a", vec!["ada"]),
        ("b", vec!["bob"]),
        ("both", vec!["ada", "bob"]),
    ];
    let expected: Vec<(String, Vec<String>)> = expected
        .map(|(path, actors)| {
            (
                path.to_owned(),
                actors.into_iter().map(str::to_owned).collect(),
            )
        })
        .to_vec();
    assert_eq!(who(&fixture, done.commit), expected);
    // What a commit took is not taken by the next one.
    let next = mount.submit(
        |base| edit_of(base, [("a", file(5, "2"))]),
        attribution(1, &[("a", &bob)]),
        Some(request("")),
        false,
    );
    assert_eq!(
        who(&fixture, next.commit),
        [("a".to_owned(), vec!["bob".to_owned()])]
    );
    fixture.store.close().unwrap();
    let store = open(fixture.directory.path());
    assert_eq!(store.attributed_changes(done.commit).unwrap().len(), 3);
}

#[test]
fn an_automatic_commit_carries_what_all_its_changes_have_in_common() {
    let fixture = Fixture::new();
    let mut mount = Mount::new(&fixture);
    let first = actor("ada", Some("r"), Some(1));
    let second = actor("ada", Some("r"), Some(2));
    let other = actor("bob", None, None);
    let mut number = 0;
    let mut commit = |actors: &[(&str, &Actor)], is_automatic| {
        number += 1;
        let content = number.to_string();
        let done = mount.submit(
            |base| {
                edit_of(
                    base,
                    [("x", file(1, content.clone())), ("y", file(2, content))],
                )
            },
            attribution(1, actors),
            Some(automatic()),
            is_automatic,
        );
        let commit = fixture.store.commit(done.commit).unwrap();
        (commit.author.clone(), commit.run.clone(), commit.step)
    };
    let run = Some("r".to_owned());
    assert_eq!(
        commit(&[("x", &first), ("y", &first)], true),
        ("ada".into(), run.clone(), Some(1))
    );
    assert_eq!(
        commit(&[("x", &first), ("y", &second)], true),
        ("ada".into(), run, None)
    );
    assert_eq!(
        commit(&[("x", &first), ("y", &other)], true),
        ("ada".into(), None, None)
    );
    assert_eq!(
        commit(&[("x", &other), ("y", &other)], true),
        ("bob".into(), None, None)
    );
    assert_eq!(commit(&[("x", &other)], true), ("ada".into(), None, None));
    assert_eq!(
        commit(&[("x", &other), ("y", &other)], false),
        ("ada".into(), None, None)
    );
}

#[test]
fn log_and_runs_find_commits_by_those_who_took_part() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace.id;
    let mut mount = Mount::new(&fixture);
    let in_run = actor("agent", Some("r"), Some(2));
    let other = actor("bob", None, None);
    let mixed = mount
        .submit(
            |base| edit_of(base, [("x", file(1, "1")), ("y", file(2, "1"))]),
            attribution(1, &[("x", &in_run), ("y", &other)]),
            Some(request("mixed")),
            false,
        )
        .commit;
    let named = CommitRequest {
        run: Some("by-hand".to_owned()),
        step: Some(1),
        ..request("named")
    };
    let named = mount
        .submit(
            |base| edit_of(base, [("z", file(3, "1"))]),
            Attribution::default(),
            Some(named),
            false,
        )
        .commit;
    let ids = |query: LogQuery| -> Vec<CommitId> {
        let entries = fixture.store.log(workspace, &query).unwrap();
        entries.into_iter().map(|entry| entry.id).collect()
    };
    let run = |run: &str, step| LogQuery {
        run: Some(run.to_owned()),
        step,
        ..LogQuery::default()
    };
    assert_eq!(ids(run("r", None)), [mixed]);
    assert_eq!(ids(run("r", Some(2))), [mixed]);
    assert_eq!(ids(run("r", Some(1))), []);
    assert_eq!(ids(run("by-hand", Some(1))), [named]);
    let by = |author: &str| LogQuery {
        author: Some(author.to_owned()),
        ..LogQuery::default()
    };
    assert_eq!(ids(by("bob")), [mixed]);
    assert_eq!(ids(by("nobody")), []);
    let filter = ActorFilter {
        run: Some("r".to_owned()),
        ..ActorFilter::default()
    };
    assert_eq!(
        fixture.store.commits_with(workspace, &filter).unwrap(),
        [mixed]
    );
    let commit = fixture.store.commit(mixed).unwrap();
    let meant: Vec<bool> = fixture
        .store
        .attributed_changes(mixed)
        .unwrap()
        .iter()
        .map(|change| filter.has_change(&commit, change))
        .collect();
    assert_eq!(meant, [true, false]);

    // Steps are numbered, those that nobody began are known by their changes.
    let new = |step| NewRunStep {
        run: "begun".to_owned(),
        step,
        principal: "ada".to_owned(),
        command: vec!["make".to_owned()],
        source: "api".to_owned(),
    };
    let begin = |step| fixture.store.begin_run_step(workspace, new(step));
    assert_eq!(begin(None).unwrap(), 1);
    assert_eq!(begin(Some(7)).unwrap(), 7);
    assert_eq!(begin(None).unwrap(), 8);
    assert!(begin(Some(7)).is_err());
    fixture
        .store
        .end_run_step(workspace, "begun", 7, Some(3))
        .unwrap();
    assert!(
        fixture
            .store
            .end_run_step(workspace, "begun", 9, None)
            .is_err()
    );
    let steps = fixture.store.run_steps(workspace, None, 0).unwrap();
    assert_eq!(
        steps.iter().map(|step| step.step).collect::<Vec<_>>(),
        [8, 7, 1]
    );
    assert_eq!(
        (steps[1].exit_code, steps[1].ended.is_some()),
        (Some(3), true)
    );
    assert!(steps[0].ended.is_none());
    let unknown = fixture.store.unknown_run_steps(workspace, None).unwrap();
    assert_eq!(unknown, [("r".to_owned(), Some(2), "agent".to_owned())]);
}

#[test]
fn lines_come_from_the_commits_that_wrote_them() {
    let fixture = Fixture::new();
    let first = fixture.apply(|base| edit_of(base, [("f", file(1, "a\nb\nc\n"))]));
    let second = fixture.apply(|base| edit_of(base, [("f", file(1, "a\nB\nc\n"))]));
    fixture.apply(|base| edit_of(base, [("other", file(1, "unrelated"))]));
    let third = fixture.apply(|base| edit_of(base, [("f", file(1, "new\na\nB\nc\nlast"))]));
    let (head, _) = fixture.head();
    let origins = |path: &[u8]| -> Vec<(String, CommitId)> {
        let found = fixture.store.blame_lines(head, path, &|_| true).unwrap();
        let lines = found.lines.iter();
        lines
            .map(|(line, origin)| {
                (
                    String::from_utf8(line.clone()).unwrap(),
                    found.origins[*origin].id,
                )
            })
            .collect()
    };
    let expected = [
        ("new\n", third),
        ("a\n", first),
        ("B\n", second),
        ("c\n", first),
        ("last", third),
    ];
    assert_eq!(
        origins(b"f"),
        expected.map(|(line, id)| (line.to_owned(), id))
    );
    let newest = fixture.store.blame_path(head, b"f", &|_| true).unwrap();
    assert_eq!(newest.id, third);
    assert!(
        fixture
            .store
            .blame_path(head, b"absent", &|_| true)
            .is_err()
    );
    assert!(
        fixture
            .store
            .blame_lines(head, b"absent", &|_| true)
            .is_err()
    );
    let binary = fixture.apply(|base| edit_of(base, [("f", file(1, "\0"))]));
    assert!(fixture.store.blame_lines(binary, b"f", &|_| true).is_err());
}

#[test]
fn thousands_of_commits_in_between_are_no_burden_for_blame() {
    let fixture = Fixture::new();
    let made = fixture.apply(|base| edit_of(base, [("old", file(1, "line\n"))]));
    let workspace = fixture.workspace.id;
    for number in 0..2_000 {
        let (head, root) = fixture.head();
        let edit = edit_of(&root, [("busy", file(1, number.to_string()))]);
        let store = &fixture.store;
        store
            .apply_edit(workspace, "main", head, &root, edit, request(""), &|_| {})
            .unwrap();
    }
    let (head, _) = fixture.head();
    let begin = std::time::Instant::now();
    assert_eq!(
        fixture
            .store
            .blame_path(head, b"old", &|_| true)
            .unwrap()
            .id,
        made
    );
    assert_eq!(
        fixture
            .store
            .blame_lines(head, b"old", &|_| true)
            .unwrap()
            .origins[0]
            .id,
        made
    );
    let taken = begin.elapsed();
    assert!(taken.as_millis() < 500, "{taken:?} for 2,000 commits");
}
