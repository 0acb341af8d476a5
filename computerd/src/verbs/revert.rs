//! Rollback, restore and undo: older states come back as new commits [G-4].

use std::cell::RefCell;
use std::collections::HashMap;

use computerd_api::v1::{Plan, RestoreRequest, RevertResult, RollbackRequest, UndoRequest};
use workspace_store::CommitId;
use workspace_store::conflict::{Conflict, ConflictChange, ConflictSet};
use workspace_store::diff::{DiffEntry, DiffOptions, diff_roots};
use workspace_store::object::{CommitKind, Inode, Node, Root};
use workspace_store::operation::{OperationKind, OperationRecord};
use workspace_store::path::display_path;
use workspace_store::policy::Access;
use workspace_store::restore::{removal_edit, revert_edit};
use workspace_store::source::{Lineage, NextVersion};

use super::config;
use super::diff::empty_root;
use super::history::shown_operation;
use super::take_out::take_out;
use crate::access::{Scope, with_paths_of};
use crate::convert;
use crate::daemon::{Daemon, clean_path, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// Conflicts that an error names.
const SHOWN_CONFLICTS: usize = 10;

/// Begins the message of a commit that takes operations back; the number follows.
const UNDO_MESSAGE: &str = "undo operation ";

/// How to compute the wanted state from the tree that is there now.
pub(super) type Wanted<'a> = &'a dyn Fn(&Root) -> Result<NextVersion>;

/// What is to be done to a branch.
pub(super) struct Change<'a> {
    pub(super) scope: &'a Scope,
    pub(super) branch: String,
    pub(super) kind: CommitKind,
    pub(super) message: String,
    pub(super) target: Option<CommitId>,
    pub(super) is_dry_run: bool,
}

impl Change<'_> {
    /// Does it, or says what would be done.
    pub(super) fn run(&self, wanted: Wanted<'_>) -> Result<RevertResult> {
        if self.is_dry_run {
            return self.plan_only(wanted);
        }
        let Scope {
            daemon,
            workspace,
            principal,
            ..
        } = self.scope;
        let _access = daemon.write_access(workspace, &self.branch, principal)?;
        let request = commit_request(principal, self.kind, &self.message);
        let last = RefCell::new(Lineage::default());
        let permitted = |now: &Root| {
            let next = self.permitted(now, wanted(now)?)?;
            *last.borrow_mut() = next.lineage.clone();
            Ok(next)
        };
        let outcome = daemon.change_branch(workspace.id, &self.branch, &permitted, &request)?;
        let operation = match outcome.commit {
            Some(commit) => daemon.operation_of(workspace, commit)?,
            None => None,
        };
        Ok(RevertResult {
            plan: self.plan(
                outcome.before,
                &outcome.before_root,
                &NextVersion {
                    root: outcome.root,
                    lineage: last.into_inner(),
                },
                0,
            )?,
            commit: outcome.commit.map(|commit| commit.to_hex()),
            rescue: match outcome.rescue {
                Some(commit) if self.scope.exists(commit)? => Some(commit.to_hex()),
                _ => None,
            },
            operation,
        })
    }

    fn plan_only(&self, wanted: Wanted<'_>) -> Result<RevertResult> {
        let Scope {
            daemon,
            workspace,
            principal,
            ..
        } = self.scope;
        config::check_lease(daemon, workspace, &self.branch, principal)?;
        let live = daemon.live_state(workspace, &self.branch)?;
        let commit = daemon.store.branch(workspace.id, &self.branch)?;
        let committed = daemon.store.commit(commit)?.root.clone();
        let view = self.scope.view();
        let uncommitted = diff_roots(
            &view,
            &view.root(&committed),
            &view.root(&live.root),
            &DiffOptions::default(),
        )?;
        let next = self.permitted(&live.root, wanted(&live.root)?)?;
        let uncommitted_count = uncommitted.len() as u64;
        Ok(RevertResult {
            plan: self.plan(commit, &live.root, &next, uncommitted_count)?,
            commit: None,
            rescue: None,
            operation: None,
        })
    }

    fn plan(
        &self,
        head: CommitId,
        now: &Root,
        next: &NextVersion,
        uncommitted_count: u64,
    ) -> Result<Plan> {
        let options = DiffOptions {
            renames: true,
            ..DiffOptions::default()
        };
        let view = self.scope.view();
        let entries = diff_roots(&view, &view.root(now), &view.root(&next.root), &options)?;
        let conflicts = self.new_conflicts(head, &next.lineage)?;
        let (daemon, workspace) = (&self.scope.daemon, &self.scope.workspace);
        let shown = &entries[..entries.len().min(Plan::MAX_CHANGES)];
        let mounts = daemon.mounts.list().into_iter().filter(|mount| {
            mount.workspace == workspace.name
                && mount.branch.as_deref() == Some(&self.branch)
                && (!self.scope.is_restricted() || mount.principal == self.scope.principal)
        });
        Ok(Plan {
            summary: format!(
                "{} on branch {} of {}: {}",
                self.message,
                self.branch,
                workspace.name,
                count_changes(&entries)
            ),
            branch: self.branch.clone(),
            head: self.scope.shown(head)?.to_hex(),
            target: self.target.map(|commit| commit.to_hex()),
            uncommitted_count,
            changes: shown.iter().map(convert::diff_entry).collect(),
            change_count: entries.len() as u64,
            conflict_count: conflicts.len() as u64,
            conflicts: conflicts
                .iter()
                .take(Plan::MAX_CHANGES)
                .map(|conflict| self.scope.conflict_info(conflict))
                .collect::<Result<_>>()?,
            is_recorded: !next.lineage.is_plain(),
            references: Vec::new(),
            mounts: mounts.map(|mount| mount.mountpoint).collect(),
        })
    }

    /// What of a wanted state may be: purged content doesn't come back, and hidden paths stay as
    /// they are.
    fn permitted(&self, now: &Root, wanted: NextVersion) -> Result<NextVersion> {
        let scope = self.scope;
        let (root, _) = without_purged(&scope.daemon, Some(now), wanted.root)?;
        let mut next = NextVersion {
            root: scope.permitted(now, root)?,
            lineage: wanted.lineage,
        };
        if scope.is_restricted()
            && let ConflictChange::Set(set) = &mut next.lineage.conflicts
        {
            let head = scope
                .daemon
                .store
                .branch(scope.workspace.id, &self.branch)?;
            set.retain(|conflict| scope.sees_conflict(conflict));
            for hidden in scope.daemon.store.conflicts(head)?.entries() {
                if !scope.sees_conflict(hidden) {
                    set.insert(hidden.clone());
                }
            }
        }
        Ok(next)
    }

    /// Conflicts that the branch doesn't have yet.
    fn new_conflicts(&self, head: CommitId, lineage: &Lineage) -> Result<Vec<Conflict>> {
        let ConflictChange::Set(set) = &lineage.conflicts else {
            return Ok(Vec::new());
        };
        let known = self.scope.daemon.store.conflicts(head)?;
        Ok(set
            .entries()
            .iter()
            .filter(|conflict| !known.entries().contains(conflict))
            .filter(|conflict| self.scope.sees_conflict(conflict))
            .cloned()
            .collect())
    }
}

/// A tree without the files that `now`, if there is one, doesn't have and whose content was purged,
/// and the paths of these.
pub(super) fn without_purged(
    daemon: &Daemon,
    now: Option<&Root>,
    wanted: Root,
) -> Result<(Root, Vec<Vec<u8>>)> {
    if !daemon.store.has_purged()? {
        return Ok((wanted, Vec::new()));
    }
    let now = match now {
        Some(now) => now.clone(),
        None => empty_root(daemon, &wanted)?,
    };
    let mut purged = Vec::new();
    for entry in diff_roots(&daemon.store, &now, &wanted, &DiffOptions::default())? {
        if let Some(Inode {
            node: Node::Regular { blob, .. },
            ..
        }) = entry.new
            && daemon.store.is_purged(blob)?
        {
            purged.push(entry.path);
        }
    }
    if purged.is_empty() {
        return Ok((wanted, purged));
    }
    let edit = removal_edit(&daemon.store, &wanted, &purged)?;
    Ok((daemon.store.build_root(&wanted, edit, &|_| {})?, purged))
}

/// A tree as it was in a commit, with the conflicts that it had.
fn as_in_commit(daemon: &Daemon, branch: CommitId, id: CommitId) -> Result<NextVersion> {
    let head = daemon.store.commit(branch)?;
    let commit = daemon.store.commit(id)?;
    let mut next = NextVersion::from(commit.root.clone());
    if head.conflicts != commit.conflicts {
        next.lineage.conflicts = ConflictChange::Set(daemon.store.conflicts(id)?);
    }
    Ok(next)
}

fn count_changes(entries: &[DiffEntry]) -> String {
    match entries.len() {
        0 => "nothing changes".to_owned(),
        1 => "1 path changes".to_owned(),
        count => format!("{count} paths change"),
    }
}

pub(super) fn short(commit: CommitId) -> String {
    commit.to_hex()[..12].to_owned()
}

pub(super) fn clean_paths(paths: &[computerd_api::v1::PathText]) -> Result<Vec<Vec<u8>>> {
    paths
        .iter()
        .map(|path| clean_path(path.as_bytes()))
        .collect()
}

/// Sets a branch back to an older state, as a whole or by path.
pub fn rollback(call: &Call, body: RollbackRequest) -> Result<RevertResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    scope.require_some_write("roll back")?;
    let branch = daemon.branch_name(&scope.workspace, body.branch.as_ref())?;
    let Some(revision) = &body.revision else {
        return take_out(&scope, branch, body);
    };
    if body.run.is_some() || body.by.is_some() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "roll back to a state, or take out the changes of a run or principal; not both",
        ));
    }
    let target = scope.resolve(revision)?;
    let target_root = daemon.store.commit(target)?.root.clone();
    let paths = clean_paths(&body.paths)?;
    for path in &paths {
        scope.require_write(path)?;
    }
    let is_whole = paths.is_empty() || paths.iter().any(Vec::is_empty);
    let change = Change {
        scope: &scope,
        branch,
        kind: CommitKind::Rollback,
        message: if is_whole {
            format!("roll back to {}", short(target))
        } else {
            let shown: Vec<String> = paths.iter().map(|path| display_path(path)).collect();
            format!("roll back {} to {}", shown.join(", "), short(target))
        },
        target: Some(target),
        is_dry_run: body.dry_run,
    };
    change.run(&|now| {
        if is_whole {
            let head = daemon.store.branch(scope.workspace.id, &change.branch)?;
            return as_in_commit(daemon, head, target);
        }
        Ok(with_paths_of(&daemon.store, now, &target_root, &paths)?.into())
    })
}

/// Brings paths back from an older state.
pub fn restore(call: &Call, body: RestoreRequest) -> Result<RevertResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    let branch = daemon.branch_name(&scope.workspace, body.branch.as_ref())?;
    if body.paths.is_empty() {
        return Err(
            Error::new(ErrorKind::InvalidInput, "no path to restore was named")
                .with_hint("name paths, or set back everything with `kura rollback`"),
        );
    }
    let paths = clean_paths(&body.paths)?;
    for path in &paths {
        scope.require_write(path)?;
    }
    let from = scope.resolve(&body.from)?;
    let from_root = daemon.store.commit(from)?.root.clone();
    let shown: Vec<String> = paths.iter().map(|path| display_path(path)).collect();
    let change = Change {
        scope: &scope,
        branch,
        kind: CommitKind::Restore,
        message: format!("restore {} from {}", shown.join(", "), short(from)),
        target: Some(from),
        is_dry_run: body.dry_run,
    };
    change.run(&|now| Ok(with_paths_of(&daemon.store, now, &from_root, &paths)?.into()))
}

/// Which operations take back which.
#[derive(Debug, Default)]
pub struct Undone {
    undoes: HashMap<u64, u64>,
}

impl Undone {
    /// The operation that this one takes back.
    pub fn undoes(&self, operation: u64) -> Option<u64> {
        self.undoes.get(&operation).copied()
    }

    /// The newest operation that took this one back, unless that was taken back itself.
    pub fn undone_by(&self, operation: u64) -> Option<u64> {
        self.undoes
            .iter()
            .filter(|(_, undone)| **undone == operation)
            .map(|(undo, _)| *undo)
            .filter(|undo| self.undone_by(*undo).is_none())
            .max()
    }
}

/// Finds out which operations take back which.
pub fn undone_operations(daemon: &Daemon, records: &[OperationRecord]) -> Result<Undone> {
    let mut undone = Undone::default();
    for record in records {
        if let Some(undoes) = record.undoes {
            undone.undoes.insert(record.id, undoes);
        } else if record.kind == OperationKind::Commit
            && let Some(after) = record.after.as_deref().and_then(|id| id.parse().ok())
        {
            let commit = daemon.store.commit(after)?;
            let number = commit.message.strip_prefix(UNDO_MESSAGE);
            if let (CommitKind::Undo, Some(Ok(number))) = (commit.kind, number.map(str::parse)) {
                undone.undoes.insert(record.id, number);
            }
        }
    }
    Ok(undone)
}

/// Takes an operation back by a new one.
pub fn undo(call: &Call, body: UndoRequest) -> Result<RevertResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    scope.require_some_write("undo")?;
    let record = find_operation(&scope, body.operation)?;
    match record.kind {
        OperationKind::Commit => undo_commit(&scope, &record, body.dry_run),
        OperationKind::CreateWorkspace | OperationKind::ForkWorkspace => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "operation {} made the workspace and can't be undone",
                record.id
            ),
        )
        .with_hint("undo one of the later operations; `kura operations` lists them")),
        _ => {
            scope.require_everywhere(Access::Write, &format!("undo operation {}", record.id))?;
            undo_reference(daemon, &scope, &record, body.dry_run)
        }
    }
}

/// The operation with this number, else the last one that isn't taken back; of a principal that
/// doesn't see everything, its own last one.
fn find_operation(scope: &Scope, number: Option<u64>) -> Result<OperationRecord> {
    let (daemon, workspace) = (&scope.daemon, &scope.workspace);
    if let Some(number) = number {
        let record = daemon.store.operation(workspace.id, number)?;
        return match shown_operation(scope, &record)? {
            Some(_) => Ok(record),
            None => Err(Error::new(
                ErrorKind::NotFound,
                format!("the workspace has no operation {number}"),
            )
            .with_hint("list its operations with `kura operations NAME`")),
        };
    }
    let records = daemon.store.operations(workspace.id, 0)?;
    let undone = undone_operations(daemon, &records)?;
    for record in records {
        let is_taken_back =
            undone.undoes(record.id).is_some() || undone.undone_by(record.id).is_some();
        let is_meant = !scope.is_restricted()
            || (record.author == scope.principal && shown_operation(scope, &record)?.is_some());
        if is_meant && !is_taken_back && !is_only_a_name(daemon, &record)? {
            return Ok(record);
        }
    }
    Err(Error::new(
        ErrorKind::NotFound,
        format!("{} has no operation to undo", workspace.name),
    ))
}

/// Whether an operation made a commit that is only a name for what was there.
fn is_only_a_name(daemon: &Daemon, record: &OperationRecord) -> Result<bool> {
    let after = record.after.as_deref().and_then(|id| id.parse().ok());
    match (record.kind, after) {
        (OperationKind::Commit, Some(after)) => daemon.is_only_a_name(after),
        _ => Ok(false),
    }
}

fn undo_commit(scope: &Scope, record: &OperationRecord, is_dry_run: bool) -> Result<RevertResult> {
    let (daemon, workspace) = (&scope.daemon, &scope.workspace);
    let commit_in = |text: &Option<String>| -> Result<CommitId> {
        text.as_deref()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    format!("operation {} has no state before it", record.id),
                )
            })
    };
    let before = commit_in(&record.before)?;
    let after = commit_in(&record.after)?;
    let before_root = daemon.store.commit(before)?.root.clone();
    let after_root = daemon.store.commit(after)?.root.clone();
    daemon.store.branch(workspace.id, &record.target)?;
    let change = Change {
        scope,
        branch: record.target.clone(),
        kind: CommitKind::Undo,
        message: format!("{UNDO_MESSAGE}{}", record.id),
        target: Some(before),
        is_dry_run,
    };
    change.run(&|now| {
        let head = daemon.store.branch(workspace.id, &change.branch)?;
        let conflicts = ConflictSet::merge(
            &daemon.store.conflicts(after)?,
            &daemon.store.conflicts(head)?,
            &daemon.store.conflicts(before)?,
        );
        let with_conflicts = |root| -> Result<NextVersion> {
            let mut next = NextVersion::from(root);
            if conflicts != daemon.store.conflicts(head)? {
                next.lineage.conflicts = ConflictChange::Set(conflicts.clone());
            }
            Ok(next)
        };
        if *now == after_root {
            return with_conflicts(before_root.clone());
        }
        // What can't be seen neither stands in the way nor is taken back.
        let view = scope.view();
        let plan = revert_edit(
            &view,
            &view.root(&before_root),
            &view.root(&after_root),
            &view.root(now),
        )?;
        if plan.conflicts.is_empty() && !scope.is_restricted() {
            return with_conflicts(daemon.store.build_root(now, plan.edit, &|_| {})?);
        }
        if plan.conflicts.is_empty() {
            let paths: Vec<Vec<u8>> = plan
                .entries
                .into_iter()
                .map(|entry| entry.path)
                .filter(|path| !path.is_empty())
                .collect();
            if paths.is_empty() {
                return with_conflicts(now.clone());
            }
            let root = with_paths_of(&daemon.store, now, &before_root, &paths)?;
            return with_conflicts(root);
        }
        let shown: Vec<String> = plan
            .conflicts
            .iter()
            .take(SHOWN_CONFLICTS)
            .map(|conflict| format!("{} ({})", display_path(&conflict.path), conflict.reason))
            .collect();
        let more = plan.conflicts.len() - shown.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "undo operation {}: what it changed was changed again since: {}{more}",
                record.id,
                shown.join(", ")
            ),
        )
        .with_hint(
            "undo the later operations first, or bring single paths back with `kura restore`",
        ))
    })
}

fn undo_reference(
    daemon: &Daemon,
    scope: &Scope,
    record: &OperationRecord,
    is_dry_run: bool,
) -> Result<RevertResult> {
    let (workspace, principal) = (&scope.workspace, scope.principal.as_str());
    let info = convert::operation(record, None);
    let is_of_branch = matches!(
        record.kind,
        OperationKind::CreateBranch | OperationKind::DeleteBranch
    );
    let _access = is_of_branch
        .then(|| daemon.write_access(workspace, &record.target, principal))
        .transpose()?;
    // A branch or tag may have such a name, too.
    let leased_branch = (record.kind == OperationKind::SetSetting)
        .then(|| record.target.strip_prefix(config::LEASE_PREFIX))
        .flatten();
    let _giving = leased_branch.map(|_| daemon.leases.write());
    if record.kind == OperationKind::CreateBranch
        && daemon
            .mounts
            .filesystem(workspace.id, &record.target)
            .is_some()
    {
        return Err(Error::new(
            ErrorKind::Busy,
            format!(
                "undo operation {}: branch {} is mounted",
                record.id, record.target
            ),
        )
        .with_hint("end its mounts first; `kura ls-mounts` lists them"));
    }
    let state = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let head = daemon
        .store
        .branch(workspace.id, &workspace.default_branch)?;
    let mut result = RevertResult {
        plan: Plan {
            summary: format!("undo operation {} ({})", record.id, info.description),
            branch: workspace.default_branch.clone(),
            head: head.to_hex(),
            target: None,
            uncommitted_count: 0,
            changes: Vec::new(),
            change_count: 0,
            conflicts: Vec::new(),
            conflict_count: 0,
            is_recorded: true,
            references: vec![format!(
                "{}: {} -> {}",
                record.target,
                state(&record.after),
                state(&record.before)
            )],
            mounts: Vec::new(),
        },
        commit: None,
        rescue: None,
        operation: None,
    };
    if !is_dry_run {
        let operation = daemon
            .store
            .undo_ref_operation(workspace.id, record.id, principal)?;
        daemon.mounts.apply_settings(daemon, workspace.id)?;
        if record.kind == OperationKind::SetGrant {
            daemon.policies_changed();
        }
        if let Some(branch) = leased_branch {
            config::apply_lease(daemon, workspace, branch)?;
        }
        result.operation = Some(daemon.operation_reference(&workspace.name, operation));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undone_undo_makes_the_first_operation_count_again() {
        let mut undone = Undone::default();
        undone.undoes.insert(5, 4);
        assert_eq!(undone.undone_by(4), Some(5));
        undone.undoes.insert(6, 5);
        assert_eq!(undone.undone_by(4), None);
        assert_eq!(undone.undone_by(5), Some(6));
        undone.undoes.insert(7, 6);
        assert_eq!(undone.undone_by(4), Some(5));
    }
}
