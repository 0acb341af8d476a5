//! Looking back: commits, operations, audit entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use computerd_api::v1::{
    AuditHead, AuditHeadRequest, AuditList, AuditQuery, AuditVerification, AuditVerifyRequest,
    LogPage, LogQuery, OperationList, OperationQuery, PathText, ShowQuery, ShowResult,
};
use workspace_store::CommitId;
use workspace_store::audit::AuditQuery as StoreAuditQuery;
use workspace_store::commits::{ActorFilter, LogEntry, LogQuery as StoreLogQuery, PathChange};
use workspace_store::id::WorkspaceId;
use workspace_store::operation::{OperationKind, OperationRecord};
use workspace_store::path::is_at_or_below;

use super::attribution;
use super::diff::{self, Side};
use super::revert::undone_operations;
use crate::access::{Caller, Scope};
use crate::audit_key;
use crate::convert;
use crate::daemon::{Daemon, clean_path};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// Entries of a list when the client doesn't say how many.
const DEFAULT_LIMIT: u32 = 200;

/// A part of the history, newest first.
pub fn log(call: &Call, query: LogQuery) -> Result<LogPage> {
    let daemon = &call.daemon;
    let scope = call.scope(None)?;
    let workspace = &scope.workspace;
    let start = match &query.revision {
        Some(revision) => scope.resolve(revision)?,
        None => daemon
            .store
            .branch(workspace.id, &workspace.default_branch)?,
    };
    let after = query
        .after
        .as_ref()
        .map(|after| scope.resolve(after))
        .transpose()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let base = StoreLogQuery {
        start: Some(start),
        path: None,
        run: query.run.clone(),
        step: query.step,
        author: query.author.clone(),
        // With a place to go on from, how many come before it isn't known; nor how many of the
        // first ones can be seen.
        limit: if after.is_some() || query.paths.len() > 1 || scope.is_restricted() {
            0
        } else {
            limit + 1
        },
    };
    let mut entries = match &query.paths[..] {
        [] => daemon.store.log(workspace.id, &base)?,
        paths => {
            let mut wanted = BTreeSet::new();
            let mut found = Vec::new();
            for path in paths {
                let path = clean_path(path.as_bytes())?;
                if !scope.is_visible(&path) {
                    scope.note_if_hidden(&path);
                    continue;
                }
                let query = StoreLogQuery {
                    path: (!path.is_empty()).then_some(path),
                    ..base.clone()
                };
                for entry in daemon.store.log(workspace.id, &query)? {
                    if wanted.insert(entry.id) {
                        found.push(entry);
                    }
                }
            }
            if paths.len() > 1 {
                found = in_history_order(daemon, workspace.id, &base, &wanted)?;
            }
            found
        }
    };
    if scope.is_restricted() {
        let filter = ActorFilter {
            principal: query.author.clone(),
            run: query.run.clone(),
            step: query.step,
        };
        entries = visible(&scope, entries, &query.paths, &filter)?;
    }
    if let (true, Some(path)) = (entries.is_empty(), query.paths.first())
        && query.run.is_none()
        && query.step.is_none()
        && query.author.is_none()
    {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "no commit of {} up to {} has changed '{}'",
                workspace.name,
                query.revision.as_deref().unwrap_or("HEAD"),
                path.to_display()
            ),
        )
        .with_hint(format!(
            "paths are relative to the workspace's root; a revision is written {0}@REV",
            workspace.name
        )));
    }
    if let Some(after) = after {
        let position = entries.iter().position(|entry| entry.id == after);
        entries.drain(..position.map_or(0, |position| position + 1));
    }
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let references = references(&scope)?;
    let commits = entries
        .iter()
        .map(|entry| {
            let names = references.get(&entry.id).cloned().unwrap_or_default();
            scope.commit_info(entry.id, &entry.commit, names)
        })
        .collect::<Result<_>>()?;
    Ok(LogPage { commits, has_more })
}

/// Those of the commits that exist for the principal: that changed something visible, at or below
/// one of the paths if there are any, by somebody who is meant.
fn visible(
    scope: &Scope,
    entries: Vec<LogEntry>,
    paths: &[PathText],
    filter: &ActorFilter,
) -> Result<Vec<LogEntry>> {
    let paths = paths
        .iter()
        .map(|path| clean_path(path.as_bytes()))
        .collect::<Result<Vec<_>>>()?;
    let mut visible = Vec::new();
    for entry in entries {
        let seen = scope.seen(entry.id)?;
        let is_wanted =
            |change: &PathChange| paths.iter().any(|path| is_at_or_below(&change.path, path));
        let exists = match paths.is_empty() {
            true => seen.exists,
            false => seen.changes.iter().any(is_wanted),
        };
        // Who is named as its author is told of every commit.
        let is_by = filter.run.is_none()
            && filter.step.is_none()
            && (filter.principal.as_ref()).is_none_or(|author| *author == entry.commit.author);
        if exists && (is_by || scope.has_part(entry.id, &entry.commit, filter)?) {
            visible.push(entry);
        }
    }
    Ok(visible)
}

/// The wanted commits in the order of the whole history.
fn in_history_order(
    daemon: &Daemon,
    workspace: WorkspaceId,
    base: &StoreLogQuery,
    wanted: &BTreeSet<CommitId>,
) -> Result<Vec<LogEntry>> {
    let mut entries = daemon.store.log(workspace, base)?;
    entries.retain(|entry| wanted.contains(&entry.id));
    Ok(entries)
}

/// Branches and tags by the commit that they name.
pub fn references(scope: &Scope) -> Result<HashMap<CommitId, Vec<String>>> {
    let (daemon, workspace) = (&scope.daemon, scope.workspace.id);
    let mut names: HashMap<CommitId, Vec<String>> = HashMap::new();
    let branches = daemon.store.branches(workspace)?;
    for reference in branches.into_iter().chain(daemon.store.tags(workspace)?) {
        names
            .entry(scope.shown(reference.commit)?)
            .or_default()
            .push(reference.name);
    }
    Ok(names)
}

/// One commit with its changes.
pub fn show(call: &Call, query: ShowQuery) -> Result<ShowResult> {
    let daemon = &call.daemon;
    let scope = call.scope(None)?;
    let workspace = &scope.workspace;
    let id = match &query.revision {
        Some(revision) => scope.resolve(revision)?,
        None => daemon
            .store
            .branch(workspace.id, &workspace.default_branch)?,
    };
    let id = scope.shown(id)?;
    let commit = daemon.store.commit(id)?;
    let old = match commit.parents.first() {
        Some(parent) => Side::commit(daemon, *parent)?,
        None => Side::Nothing,
    };
    let diff = diff::difference(&scope, &old, &Side::commit(daemon, id)?, &query.options)?;
    let names = references(&scope)?.remove(&id).unwrap_or_default();
    let mut diff = diff;
    if let (Some(_), Some(parent)) = (&diff.from, commit.parents.first()) {
        diff.from = Some(scope.shown(*parent)?.to_hex());
    }
    Ok(ShowResult {
        commit: scope.commit_info(id, &commit, names)?,
        diff,
        processes: attribution::by_process(
            &commit,
            attribution::visible_changes(&scope, id)?,
            &query.options.paths,
        )?,
    })
}

/// Operations, newest first.
pub fn operations(call: &Call, query: OperationQuery) -> Result<OperationList> {
    let daemon = &call.daemon;
    let scope = call.scope(None)?;
    let records = daemon.store.operations(scope.workspace.id, 0)?;
    let undone = undone_operations(daemon, &records)?;
    let before = query.before.unwrap_or(u64::MAX);
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let mut operations = Vec::new();
    for record in records.iter().filter(|record| record.id < before) {
        if operations.len() == limit {
            break;
        }
        let Some(shown) = shown_operation(&scope, record)? else {
            continue;
        };
        let mut info = convert::operation(&shown, undone.undone_by(record.id));
        info.undoes = info.undoes.or_else(|| undone.undoes(record.id));
        operations.push(info);
    }
    Ok(OperationList { operations })
}

/// An operation as the principal may see it; `None` if it doesn't exist for it. Settings and grants
/// are the administrator's matter.
pub fn shown_operation(scope: &Scope, record: &OperationRecord) -> Result<Option<OperationRecord>> {
    let mut shown = record.clone();
    if !scope.is_restricted() {
        return Ok(Some(shown));
    }
    if matches!(
        record.kind,
        OperationKind::SetSetting | OperationKind::SetGrant
    ) {
        return Ok(None);
    }
    for state in [&mut shown.before, &mut shown.after] {
        if let Some(commit) = state.as_deref().and_then(|id| id.parse().ok()) {
            *state = Some(scope.shown(commit)?.to_hex());
        }
    }
    let after = record.after.as_deref().and_then(|id| id.parse().ok());
    if let (OperationKind::Commit, Some(after)) = (record.kind, after) {
        let seen = scope.seen(after)?;
        if !seen.exists {
            return Ok(None);
        }
        let commit = scope.daemon.store.commit(after)?;
        if let Some(details) = shown.details.as_object_mut() {
            details.insert("paths".to_owned(), seen.changes.len().into());
            if !scope.tells_message(&commit, &seen) {
                details.remove("message");
            }
            if !scope.tells_run(after, &commit)? {
                details.remove("run");
                details.remove("step");
            }
        }
    }
    Ok(Some(shown))
}

/// Audit entries, newest first. A principal sees its own.
pub fn audit(call: &Call, query: AuditQuery) -> Result<AuditList> {
    let daemon = &call.daemon;
    let mut query = query;
    if let Caller::Principal(own) = &call.caller {
        if let Some(other) = query.principal.as_ref().filter(|other| *other != own) {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                format!("look at the audit entries of {other} as {own}"),
            )
            .with_hint("your own are shown without --by"));
        }
        query.principal = Some(own.clone());
    }
    let workspace = query
        .workspace
        .as_ref()
        .map(|name| call.scope_of(name, None).map(|scope| scope.workspace))
        .transpose()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let entries = daemon.store.audit(&StoreAuditQuery {
        workspace: workspace.map(|workspace| workspace.id),
        principal: query.principal,
        outcome: query.outcome,
        before: query.before,
        limit,
    })?;
    let names: BTreeMap<WorkspaceId, String> = daemon
        .store
        .workspaces()?
        .into_iter()
        .map(|workspace| (workspace.id, workspace.name))
        .collect();
    let entries = entries
        .iter()
        .map(|entry| {
            let name = entry.workspace.map(|id| {
                let name = names.get(&id).cloned();
                name.unwrap_or_else(|| id.to_string())
            });
            convert::audit_entry(entry, name)
        })
        .collect();
    Ok(AuditList { entries })
}

/// The newest entry of the audit log.
pub fn audit_head(call: &Call, request: AuditHeadRequest) -> Result<AuditHead> {
    let daemon = &call.daemon;
    let (sequence, hash) = daemon.store.audit_head()?;
    let mut head = AuditHead {
        sequence,
        hash,
        time: convert::time(workspace_store::object::Timestamp::now()),
        ..AuditHead::default()
    };
    if request.sign {
        audit_key::AuditKey::load_or_make(&daemon.directory.audit_key())?.sign(&mut head);
    }
    Ok(head)
}

/// Checks the whole audit chain, and that it leads to a head that was kept elsewhere.
pub fn verify_audit(call: &Call, request: AuditVerifyRequest) -> Result<AuditVerification> {
    let store = &call.daemon.store;
    let anchor = request.head.as_ref();
    if let Some(head) = anchor {
        audit_key::check_signature(head)?;
    }
    let verification =
        store.audit_verify_to(anchor.map(|head| (head.sequence, head.hash.as_str())))?;
    let (entry_count, head_hash) = store.audit_head()?;
    let (first_bad_sequence, problem) = match verification.broken {
        Some(broken) => (Some(broken.sequence), Some(broken.reason)),
        None => (None, None),
    };
    Ok(AuditVerification {
        is_intact: first_bad_sequence.is_none(),
        entry_count: verification.entries,
        head_hash: (entry_count > 0).then_some(head_hash),
        first_bad_sequence,
        problem,
    })
}
