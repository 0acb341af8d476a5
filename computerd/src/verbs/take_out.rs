//! Selective rollback: the changes of certain commits are taken out, later ones of others stay.

use std::collections::{BTreeSet, HashSet};

use computerd_api::v1::{RevertResult, RollbackRequest};
use workspace_store::CommitId;
use workspace_store::commits::{ActorFilter, AttributedChange, LogQuery};
use workspace_store::conflict::{ConflictChange, ConflictSet};
use workspace_store::merge::{MergeLabels, MergeOptions, merge_roots};
use workspace_store::object::{Commit, CommitKind, Root, Timestamp};
use workspace_store::path::is_at_or_below;
use workspace_store::source::NextVersion;

use super::revert::{Change, clean_paths, short, undone_operations};
use crate::access::Scope;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};

/// A commit that is meant.
#[derive(Debug)]
struct Meant {
    id: CommitId,
    /// The state before it.
    before: CommitId,
    /// The changed paths that are meant; `None` if all are.
    paths: Option<BTreeSet<Vec<u8>>>,
}

/// Commits of one line of history, each the parent of the one before it, that are taken out as one
/// change.
#[derive(Debug)]
struct Stretch {
    newest: CommitId,
    oldest: CommitId,
    /// The state before the oldest.
    before: CommitId,
    /// As of [`Meant`].
    paths: Option<BTreeSet<Vec<u8>>>,
}

/// Takes the changes of a run or principal out of a branch, newest first.
pub(super) fn take_out(
    scope: &Scope,
    branch: String,
    body: RollbackRequest,
) -> Result<RevertResult> {
    let daemon = &scope.daemon;
    let workspace = &scope.workspace;
    let whose = match (&body.run, &body.by) {
        (None, None) => {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "neither a state to come back was named, nor a run or principal",
            )
            .with_hint("name a revision, or use --run or --by"));
        }
        (Some(run), None) => format!("run {run}"),
        (None, Some(by)) => format!("changes by {by}"),
        (Some(run), Some(by)) => format!("run {run} by {by}"),
    };
    let paths = clean_paths(&body.paths)?;
    let change = Change {
        scope,
        branch: branch.clone(),
        kind: CommitKind::Rollback,
        message: format!("take out {whose}"),
        target: None,
        is_dry_run: body.dry_run,
    };
    let time = Timestamp::now();
    change.run(&|now| {
        let head = daemon.store.branch(workspace.id, &branch)?;
        let commits = commits(scope, head, &body)?;
        if commits.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no commit of {branch} of {} has {whose}", workspace.name),
            )
            .with_hint(format!(
                "`kura log {}` shows authors and runs",
                workspace.name
            )));
        }
        let mut state = Taking {
            daemon,
            root: now.clone(),
            conflicts: daemon.store.conflicts(head)?,
            time,
            branch: &branch,
        };
        let had = state.conflicts.clone();
        for stretch in stretches(commits) {
            state.take(&stretch, &paths)?;
        }
        let mut next = NextVersion::from(state.root);
        if state.conflicts != had {
            next.lineage.conflicts = ConflictChange::Set(state.conflicts);
        }
        Ok(next)
    })
}

/// The commits that are meant, newest first: those that changed something themselves and are not
/// undone.
fn commits(scope: &Scope, head: CommitId, body: &RollbackRequest) -> Result<Vec<Meant>> {
    let (daemon, workspace) = (&*scope.daemon, &scope.workspace);
    let query = LogQuery {
        start: Some(head),
        path: None,
        run: body.run.clone(),
        step: None,
        author: body.by.clone(),
        limit: 0,
    };
    let mut commits = daemon.store.log(workspace.id, &query)?;
    let records = daemon.store.operations(workspace.id, 0)?;
    let undone = undone_operations(daemon, &records)?;
    let undone: HashSet<&str> = records
        .iter()
        .filter(|record| undone.undone_by(record.id).is_some())
        .filter_map(|record| record.after.as_deref())
        .collect();
    // What a merge brought in belongs to the commits that it joined. What a rescue keeps is work
    // of whoever had not committed yet: of whom, its changes say.
    commits.retain(|entry| {
        entry.commit.parents.len() == 1
            && entry.commit.kind != CommitKind::Undo
            && !undone.contains(entry.id.to_hex().as_str())
    });
    let has_processes = match &body.run {
        Some(run) => !daemon
            .store
            .run_steps(workspace.id, Some(run), 1)?
            .is_empty(),
        None => false,
    };
    let mut meant = Vec::new();
    for entry in &commits {
        let changes = daemon.store.attributed_changes(entry.id)?;
        let is_meant = |change: &AttributedChange| {
            // Nobody knows whose a rescued change without an author is.
            let is_known = entry.commit.kind != CommitKind::Rescue || !change.actors.is_empty();
            is_known
                && scope.sees(&change.change.path)
                && has_change(body, &entry.commit, change, has_processes)
        };
        let paths: BTreeSet<Vec<u8>> = changes
            .iter()
            .filter(|change| is_meant(change))
            .map(|change| change.change.path.to_vec())
            .collect();
        if !paths.is_empty() {
            meant.push(Meant {
                id: entry.id,
                before: entry.commit.parents[0],
                paths: (paths.len() < changes.len()).then_some(paths),
            });
        }
    }
    Ok(meant)
}

/// Whether a change of a commit is meant: by a principal if it took part, in a run if a process of
/// the run did. A commit that was given a run is in it with all changes that belong to no other;
/// not so for a run of `kura run`, whose processes are known.
fn has_change(
    body: &RollbackRequest,
    commit: &Commit,
    change: &AttributedChange,
    has_processes: bool,
) -> bool {
    let whole = ActorFilter {
        principal: body.by.clone(),
        run: body.run.clone(),
        step: None,
    };
    let by = ActorFilter {
        run: None,
        ..whole.clone()
    };
    let has_run = change.actors.iter().any(|actor| actor.run.is_some());
    if has_run || has_processes || body.run.is_none() {
        return whole.has_change(commit, change);
    }
    commit.run == body.run && by.has_change(commit, change)
}

fn stretches(commits: Vec<Meant>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for commit in commits {
        match stretches.last_mut() {
            Some(last)
                if last.before == commit.id && last.paths.is_none() && commit.paths.is_none() =>
            {
                last.oldest = commit.id;
                last.before = commit.before;
            }
            _ => stretches.push(Stretch {
                newest: commit.id,
                oldest: commit.id,
                before: commit.before,
                paths: commit.paths,
            }),
        }
    }
    stretches
}

struct Taking<'a> {
    daemon: &'a Daemon,
    root: Root,
    conflicts: ConflictSet,
    time: Timestamp,
    branch: &'a str,
}

impl Taking<'_> {
    /// Merges the state before a stretch into what is there, seen from the state after it.
    fn take(&mut self, stretch: &Stretch, paths: &[Vec<u8>]) -> Result<()> {
        let store = &self.daemon.store;
        let after = store.commit(stretch.newest)?.root.clone();
        let before = store.commit(stretch.before)?.root.clone();
        let is_wanted = |path: &[u8]| {
            let is_asked_for =
                paths.is_empty() || paths.iter().any(|wanted| is_at_or_below(path, wanted));
            let is_theirs = stretch.paths.as_ref();
            is_asked_for && is_theirs.is_none_or(|theirs| theirs.contains(path))
        };
        let is_filtered = !paths.is_empty() || stretch.paths.is_some();
        let options = MergeOptions {
            labels: MergeLabels {
                ours: self.branch.to_owned(),
                base: short(stretch.newest),
                theirs: format!("without {}", short(stretch.oldest)),
            },
            base_commit: stretch.newest,
            theirs_commit: stretch.before,
            time: self.time,
            filter: is_filtered.then_some(&is_wanted),
        };
        let plan = merge_roots(store, &after, &self.root, &before, &options)?;
        self.root = store.build_root(&self.root, plan.edit, &|_| {})?;
        self.conflicts = ConflictSet::merge(
            &store.conflicts(stretch.newest)?,
            &self.conflicts,
            &store.conflicts(stretch.before)?,
        );
        for conflict in plan.conflicts {
            self.conflicts.insert(conflict);
        }
        Ok(())
    }
}
