//! The store's values as wire types.

use std::os::unix::ffi::OsStrExt;

use computerd_api::v1::{
    AuditEntryInfo, ChangeCounts, ChangeKind, ChangedAspect, CommitInfo, ConflictInfo, DiffEntry,
    EntryKind, EntryState, OperationInfo, PathText, ReferenceMove,
};
use jiff::Timestamp as Instant;
use workspace_store::CommitId;
use workspace_store::audit::{AuditEntry, AuditSource};
use workspace_store::commits::{ChangeKind as StoredChange, PathChange};
use workspace_store::conflict::Conflict;
use workspace_store::diff::{DiffEntry as StoredDiff, DiffKind};
use workspace_store::object::{Commit, CommitKind, Inode, Node, Timestamp};
use workspace_store::operation::{OperationKind, OperationRecord};

use crate::error::{Error, ErrorKind, Result};

/// RFC 3339 in UTC with nanoseconds.
pub fn time(timestamp: Timestamp) -> String {
    match Instant::new(
        timestamp.seconds,
        timestamp.nanoseconds.min(999_999_999) as i32,
    ) {
        Ok(instant) => format!("{instant:.9}"),
        // Files may carry times that no calendar knows.
        Err(_) => format!("@{}.{:09}", timestamp.seconds, timestamp.nanoseconds),
    }
}

/// Reads a time in RFC 3339.
///
/// # Errors
/// `InvalidInput`.
pub fn parse_time(text: &str) -> Result<Timestamp> {
    let instant: Instant = text.parse().map_err(|error| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("'{text}' is not a time: {error}"),
        )
        .with_hint("write times like 2026-12-31T18:00:00Z")
    })?;
    Ok(Timestamp::from_nanoseconds(instant.as_nanosecond()))
}

/// Name of a value of an enum, as it is written in JSON.
pub fn variant_name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "unknown".to_owned(),
    }
}

/// Name of a commit's kind.
pub fn commit_kind(kind: CommitKind) -> String {
    variant_name(&kind)
}

/// Name of an operation's kind.
pub fn operation_kind(kind: OperationKind) -> String {
    variant_name(&kind)
}

/// A commit.
pub fn commit(
    id: CommitId,
    commit: &Commit,
    references: Vec<String>,
    changes: Option<ChangeCounts>,
) -> CommitInfo {
    CommitInfo {
        id: id.to_hex(),
        parents: commit.parents.iter().map(CommitId::to_hex).collect(),
        tree: commit.root.tree.to_hex(),
        author: commit.author.clone(),
        kind: commit_kind(commit.kind),
        time: time(commit.time),
        message: commit.message.clone(),
        run: commit.run.clone(),
        step: commit.step,
        references,
        has_conflicts: commit.conflicts.is_some(),
        changes,
    }
}

/// Counts of a commit's changed paths. The root directory itself does not count.
pub fn change_counts(changes: &[PathChange]) -> ChangeCounts {
    let mut counts = ChangeCounts::default();
    for change in changes.iter().filter(|change| !change.path.is_empty()) {
        match change.kind {
            StoredChange::Added => counts.added += 1,
            StoredChange::Deleted => counts.deleted += 1,
            StoredChange::Modified | StoredChange::Metadata | StoredChange::TypeChanged => {
                counts.modified += 1;
            }
        }
    }
    counts
}

/// Counts of a difference.
pub fn diff_counts(entries: &[StoredDiff]) -> ChangeCounts {
    let mut counts = ChangeCounts::default();
    for entry in entries {
        match entry.kind {
            DiffKind::Added => counts.added += 1,
            DiffKind::Deleted => counts.deleted += 1,
            DiffKind::Renamed { .. } => counts.renamed += 1,
            DiffKind::Modified | DiffKind::TypeChanged | DiffKind::Metadata => {
                counts.modified += 1;
            }
        }
    }
    counts
}

/// A directory entry's state.
pub fn entry_state(inode: &Inode) -> EntryState {
    let mut state = EntryState {
        kind: EntryKind::File,
        mode: inode.attributes.mode,
        uid: inode.attributes.uid,
        gid: inode.attributes.gid,
        size_bytes: 0,
        mtime: time(inode.attributes.mtime),
        blob: None,
        symlink_target: None,
        rdev: None,
    };
    match &inode.node {
        Node::Regular { blob, size, .. } => {
            state.size_bytes = *size;
            state.blob = Some(blob.to_hex());
        }
        Node::Directory { .. } => state.kind = EntryKind::Directory,
        Node::Symlink { target } => {
            state.kind = EntryKind::Symlink;
            state.size_bytes = target.len() as u64;
            state.symlink_target = Some(target.as_ref().into());
        }
        Node::Fifo => state.kind = EntryKind::Fifo,
        Node::Socket => state.kind = EntryKind::Socket,
        Node::CharDevice { rdev } => {
            state.kind = EntryKind::CharDevice;
            state.rdev = Some(*rdev);
        }
        Node::BlockDevice { rdev } => {
            state.kind = EntryKind::BlockDevice;
            state.rdev = Some(*rdev);
        }
    }
    state
}

/// A changed path, without text.
pub fn diff_entry(entry: &StoredDiff) -> DiffEntry {
    let (change, old_path) = match &entry.kind {
        DiffKind::Added => (ChangeKind::Added, None),
        DiffKind::Deleted => (ChangeKind::Deleted, None),
        DiffKind::Renamed { from, .. } => {
            (ChangeKind::Renamed, Some(PathText::from(from.as_slice())))
        }
        DiffKind::Modified | DiffKind::TypeChanged | DiffKind::Metadata => {
            (ChangeKind::Modified, None)
        }
    };
    DiffEntry {
        change,
        path: entry.path.as_slice().into(),
        old_path,
        old: entry.old.as_ref().map(entry_state),
        new: entry.new.as_ref().map(entry_state),
        aspects: aspects(entry),
        is_binary: false,
        inserted_lines: None,
        deleted_lines: None,
        text: None,
    }
}

fn aspects(entry: &StoredDiff) -> Vec<ChangedAspect> {
    let (Some(old), Some(new)) = (&entry.old, &entry.new) else {
        return Vec::new();
    };
    let has_other_content = match (&old.node, &new.node) {
        (Node::Directory { .. }, Node::Directory { .. }) => false,
        (Node::Regular { blob: old, .. }, Node::Regular { blob: new, .. }) => old != new,
        (old, new) => old != new,
    };
    let is_other_kind = entry.kind == DiffKind::TypeChanged;
    let changes = entry.changes;
    [
        (is_other_kind, ChangedAspect::Kind),
        (
            changes.holes || (has_other_content && !is_other_kind),
            ChangedAspect::Content,
        ),
        (changes.mode, ChangedAspect::Mode),
        (changes.owner, ChangedAspect::Owner),
        (changes.mtime, ChangedAspect::Mtime),
        (changes.xattrs, ChangedAspect::Xattrs),
        (changes.links, ChangedAspect::Links),
    ]
    .into_iter()
    .filter_map(|(differs, aspect)| differs.then_some(aspect))
    .collect()
}

/// An operation. `undone_by` is known only from later ones.
pub fn operation(record: &OperationRecord, undone_by: Option<u64>) -> OperationInfo {
    let is_reference = !matches!(
        record.kind,
        OperationKind::SetSetting | OperationKind::SetGrant
    );
    let references = if is_reference {
        vec![ReferenceMove {
            name: record.target.clone(),
            from: record.before.clone(),
            to: record.after.clone(),
        }]
    } else {
        Vec::new()
    };
    OperationInfo {
        id: record.id,
        time: time(record.time),
        principal: record.author.clone(),
        kind: operation_kind(record.kind),
        description: describe(record),
        references,
        undoes: record.undoes,
        undone_by,
    }
}

fn describe(record: &OperationRecord) -> String {
    let short = |id: &Option<String>| {
        id.as_deref()
            .map_or("", |id| &id[..id.len().min(12)])
            .to_owned()
    };
    let detail = |key: &str| record.details.get(key).and_then(|value| value.as_str());
    let target = &record.target;
    match record.kind {
        OperationKind::CreateWorkspace => format!("create workspace {target}"),
        OperationKind::ForkWorkspace => format!("fork workspace {target}"),
        OperationKind::Commit => {
            let kind = detail("kind").unwrap_or("commit");
            let message = detail("message").unwrap_or_default();
            let separator = if message.is_empty() { "" } else { ": " };
            format!(
                "{kind} {} on {target}{separator}{message}",
                short(&record.after)
            )
        }
        OperationKind::CreateBranch => {
            format!("create branch {target} at {}", short(&record.after))
        }
        OperationKind::DeleteBranch => {
            format!("delete branch {target} at {}", short(&record.before))
        }
        OperationKind::CreateTag => format!("create tag {target} at {}", short(&record.after)),
        OperationKind::DeleteTag => format!("delete tag {target} at {}", short(&record.before)),
        OperationKind::SetGrant => {
            let subject = detail("subject").unwrap_or_default();
            let pattern = detail("pattern").unwrap_or_default();
            match &record.after {
                Some(state) => {
                    let access = state.split(' ').next().unwrap_or_default();
                    format!("grant {subject} {access} on {pattern}")
                }
                None => format!("revoke {subject}'s grant on {pattern}"),
            }
        }
        OperationKind::SetSetting => match &record.after {
            Some(value) => format!("set {target} to {value}"),
            None => format!("unset {target}"),
        },
    }
}

/// An audit entry; `workspace` is the workspace's name.
pub fn audit_entry(entry: &AuditEntry, workspace: Option<String>) -> AuditEntryInfo {
    let is_empty = entry.details.is_null()
        || entry
            .details
            .as_object()
            .is_some_and(serde_json::Map::is_empty);
    AuditEntryInfo {
        sequence: entry.sequence,
        time: time(entry.time),
        principal: entry.principal.clone(),
        source: serde_json::to_value(AuditSource::of_text(&entry.source)).unwrap_or_default(),
        workspace,
        action: entry.action.clone(),
        target: entry.object.clone(),
        outcome: entry.outcome.clone(),
        operation: entry
            .details
            .get("operation")
            .and_then(serde_json::Value::as_u64),
        detail: (!is_empty).then(|| entry.details.to_string()),
        hash: entry.hash.clone(),
    }
}

/// A conflict.
pub fn conflict(conflict: &Conflict) -> ConflictInfo {
    ConflictInfo {
        path: conflict.path.as_ref().into(),
        reason: variant_name(&conflict.reason),
        base: conflict.base.as_ref().map(entry_state),
        ours: conflict.ours.as_ref().map(entry_state),
        theirs: conflict.theirs.as_ref().map(entry_state),
        beside: conflict.beside.as_deref().map(PathText::from),
        base_commit: conflict.base_commit.to_hex(),
        theirs_commit: conflict.theirs_commit.to_hex(),
        theirs_label: conflict.theirs_label.clone(),
    }
}

/// Bytes of a path of this system.
pub fn path_text(path: &std::path::Path) -> PathText {
    path.as_os_str().as_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_and_even_impossible_ones_are_shown() {
        let timestamp = Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 5,
        };
        assert_eq!(time(timestamp), "2023-11-14T22:13:20.000000005Z");
        let before = Timestamp::from_nanoseconds(-1);
        assert_eq!(time(before), "1969-12-31T23:59:59.999999999Z");
        let far = Timestamp {
            seconds: i64::MAX,
            nanoseconds: 0,
        };
        assert_eq!(time(far), "@9223372036854775807.000000000");
    }
}
