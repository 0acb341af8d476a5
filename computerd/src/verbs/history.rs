//! Looking back: commits, operations, audit entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use computerd_api::v1::{
    AuditHead, AuditHeadRequest, AuditList, AuditQuery, AuditVerification, AuditVerifyRequest,
    LogPage, LogQuery, OperationList, OperationQuery, ShowQuery, ShowResult,
};
use workspace_store::CommitId;
use workspace_store::audit::AuditQuery as StoreAuditQuery;
use workspace_store::commits::{LogEntry, LogQuery as StoreLogQuery};
use workspace_store::id::WorkspaceId;

use super::attribution;
use super::diff::{self, Side};
use super::revert::undone_operations;
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
    let workspace = daemon.store.workspace(&call.workspace)?;
    let start = match &query.revision {
        Some(revision) => daemon.store.resolve(workspace.id, revision)?,
        None => daemon
            .store
            .branch(workspace.id, &workspace.default_branch)?,
    };
    let after = query
        .after
        .as_ref()
        .map(|after| daemon.store.resolve(workspace.id, after))
        .transpose()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let base = StoreLogQuery {
        start: Some(start),
        path: None,
        run: query.run.clone(),
        step: query.step,
        author: query.author.clone(),
        // With a place to go on from, how many come before it isn't known.
        limit: if after.is_some() || query.paths.len() > 1 {
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
    let references = references(daemon, workspace.id)?;
    let commits = entries
        .iter()
        .map(|entry| {
            let changes = convert::change_counts(&daemon.store.changes(entry.id)?);
            let names = references.get(&entry.id).cloned().unwrap_or_default();
            Ok(convert::commit(
                entry.id,
                &entry.commit,
                names,
                Some(changes),
            ))
        })
        .collect::<Result<_>>()?;
    Ok(LogPage { commits, has_more })
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
pub fn references(
    daemon: &Daemon,
    workspace: WorkspaceId,
) -> Result<HashMap<CommitId, Vec<String>>> {
    let mut names: HashMap<CommitId, Vec<String>> = HashMap::new();
    let branches = daemon.store.branches(workspace)?;
    for reference in branches.into_iter().chain(daemon.store.tags(workspace)?) {
        names
            .entry(reference.commit)
            .or_default()
            .push(reference.name);
    }
    Ok(names)
}

/// One commit with its changes.
pub fn show(call: &Call, query: ShowQuery) -> Result<ShowResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let id = match &query.revision {
        Some(revision) => daemon.store.resolve(workspace.id, revision)?,
        None => daemon
            .store
            .branch(workspace.id, &workspace.default_branch)?,
    };
    let commit = daemon.store.commit(id)?;
    let old = match commit.parents.first() {
        Some(parent) => Side::commit(daemon, *parent)?,
        None => Side::Nothing,
    };
    let diff = diff::difference(daemon, &old, &Side::commit(daemon, id)?, &query.options)?;
    let names = references(daemon, workspace.id)?
        .remove(&id)
        .unwrap_or_default();
    let counts = convert::change_counts(&daemon.store.changes(id)?);
    Ok(ShowResult {
        commit: convert::commit(id, &commit, names, Some(counts)),
        diff,
        processes: attribution::by_process(
            &commit,
            daemon.store.attributed_changes(id)?,
            &query.options.paths,
        )?,
    })
}

/// Operations, newest first.
pub fn operations(call: &Call, query: OperationQuery) -> Result<OperationList> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let records = daemon.store.operations(workspace.id, 0)?;
    let undone = undone_operations(daemon, &records)?;
    let before = query.before.unwrap_or(u64::MAX);
    let operations = records
        .iter()
        .filter(|record| record.id < before)
        .take(query.limit.unwrap_or(DEFAULT_LIMIT) as usize)
        .map(|record| {
            let mut info = convert::operation(record, undone.undone_by(record.id));
            info.undoes = info.undoes.or_else(|| undone.undoes(record.id));
            info
        })
        .collect();
    Ok(OperationList { operations })
}

/// Audit entries, newest first.
pub fn audit(call: &Call, query: AuditQuery) -> Result<AuditList> {
    let daemon = &call.daemon;
    let workspace = query
        .workspace
        .as_ref()
        .map(|name| daemon.store.workspace(name))
        .transpose()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let entries = daemon.store.audit(&StoreAuditQuery {
        workspace: workspace.map(|workspace| workspace.id),
        before: query.before,
        limit: if query.principal.is_some() { 0 } else { limit },
    })?;
    let names: BTreeMap<WorkspaceId, String> = daemon
        .store
        .workspaces()?
        .into_iter()
        .map(|workspace| (workspace.id, workspace.name))
        .collect();
    let entries = entries
        .iter()
        .filter(|entry| {
            query
                .principal
                .as_ref()
                .is_none_or(|name| *name == entry.principal)
        })
        .take(limit)
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
    let newest = store.audit(&StoreAuditQuery {
        limit: 1,
        ..StoreAuditQuery::default()
    })?;
    let (first_bad_sequence, problem) = match verification.broken {
        Some(broken) => (Some(broken.sequence), Some(broken.reason)),
        None => (None, None),
    };
    Ok(AuditVerification {
        is_intact: first_bad_sequence.is_none(),
        entry_count: verification.entries,
        head_hash: newest.into_iter().next().map(|entry| entry.hash),
        first_bad_sequence,
        problem,
    })
}
