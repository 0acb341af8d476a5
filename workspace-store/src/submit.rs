//! Making commits: one transaction moves the branch and records everything that belongs to it.
//!
//! Objects are in the database before; what a lost compare-and-swap leaves behind is unreferenced.
//! A commit that was reported is durable [G-2].

use std::collections::{BTreeMap, BTreeSet};

use crate::attribution::{Attribution, actors_of};
use crate::audit::AuditSource;
use crate::commits::{AttributedChange, encode_changes, path_hash};
use crate::conflict::ConflictChange;
use crate::db::history::Participant;
use crate::db::objects::Packed;
use crate::db::operations::NewOperation;
use crate::db::refs::BranchRow;
use crate::db::{self, Connection, history};
use crate::edit::SnapshotEdit;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, ConflictSetId, WorkspaceId};
use crate::limits::CHANGE_LIST_MAX_BYTES;
use crate::object::codec::{commit_id, conflict_set_id, encode_commit, encode_conflicts};
use crate::object::{Commit, CommitKind, Name, Root, Timestamp};
use crate::operation::{OperationKind, record};
use crate::snapshot::{Changes, ProgressFunction};
use crate::source::{CommitRequest, InodeRecord, NextVersion, OverlayState, Submission, Submitted};
use crate::store::{Inner, Store};

/// The branch that a commit is made on.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) workspace: WorkspaceId,
    pub(crate) branch: String,
    /// Through which surface the change comes.
    pub(crate) source: &'static str,
}

/// What a mount keeps beside the commit.
#[derive(Debug)]
pub(crate) struct OverlayUpdate {
    is_automatic: bool,
    attribution: Attribution,
    mountpoint: Option<String>,
    pub(crate) first_journal_segment: u64,
    pub(crate) next_inode_number: u64,
    pub(crate) inode_records: BTreeMap<(u64, Name), Option<InodeRecord>>,
}

impl Store {
    /// Stores an edit over `base` and commits the result to a branch.
    ///
    /// Durability: the commit is durable when this returns. If nothing differs from the branch's
    /// head, no commit is made.
    ///
    /// # Errors
    /// `Conflict` if the branch no longer names `expected_head`; then nothing has changed.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a different thing; a struct hides none"
    )]
    pub fn apply_edit(
        &self,
        workspace: WorkspaceId,
        branch: &str,
        expected_head: CommitId,
        base: &Root,
        edit: SnapshotEdit,
        request: CommitRequest,
        progress: ProgressFunction<'_>,
    ) -> Result<Submitted> {
        let target = Target {
            workspace,
            branch: branch.to_owned(),
            source: "api",
        };
        let stored = self.inner.store_edit(base, edit, progress)?;
        let (commit, is_new) = self.inner.commit_root(
            target,
            expected_head,
            stored.root.clone().into(),
            Some(request),
            None,
        )?;
        Ok(Submitted {
            commit,
            is_new,
            root: stored.root,
            contents: stored.contents,
        })
    }

    /// Commits a stored tree to a branch; gives back the commit, or the head if it says the same
    /// already.
    ///
    /// # Errors
    /// `Conflict` if the branch no longer names `expected_head`, `InvalidInput` if the tree isn't
    /// stored; then nothing has changed.
    pub fn set_branch_root(
        &self,
        workspace: WorkspaceId,
        branch: &str,
        expected_head: CommitId,
        next: impl Into<NextVersion>,
        request: CommitRequest,
    ) -> Result<CommitId> {
        let next = next.into();
        for tree in [Some(next.root.tree), next.root.links]
            .into_iter()
            .flatten()
        {
            if !self.inner.has_tree_node(tree)? {
                return Err(StoreError::new(
                    ErrorKind::InvalidInput,
                    format!("cannot commit: directory {tree} is not in the store"),
                ));
            }
        }
        let target = Target {
            workspace,
            branch: branch.to_owned(),
            source: "api",
        };
        let (commit, _) =
            self.inner
                .commit_root(target, expected_head, next, Some(request), None)?;
        Ok(commit)
    }
}

impl Inner {
    /// Stores what a mount hands over.
    pub(crate) fn submit(&self, target: Target, submission: Submission) -> Result<Submitted> {
        let stored = self.store_edit(&submission.base, submission.edit, &|_| {})?;
        let update = OverlayUpdate {
            is_automatic: submission.is_automatic,
            attribution: submission.attribution,
            mountpoint: submission.mountpoint,
            first_journal_segment: submission.first_journal_segment,
            next_inode_number: submission.next_inode_number,
            inode_records: submission.inode_records,
        };
        let (commit, is_new) = self.commit_root(
            target,
            submission.expected_head,
            NextVersion {
                root: stored.root.clone(),
                lineage: submission.lineage,
            },
            submission.commit,
            Some(update),
        )?;
        Ok(Submitted {
            commit,
            is_new,
            root: stored.root,
            contents: stored.contents,
        })
    }

    fn commit_root(
        &self,
        target: Target,
        expected_head: CommitId,
        next: NextVersion,
        request: Option<CommitRequest>,
        update: Option<OverlayUpdate>,
    ) -> Result<(CommitId, bool)> {
        let NextVersion { root, lineage } = next;
        let head = self.commit(expected_head)?;
        let conflicts = PreparedConflicts::new(&lineage.conflicts, head.conflicts)?;
        let says_more = lineage.merged.is_some() || conflicts.id != head.conflicts;
        let mut prepared = None;
        if let Some(mut request) = request
            && (head.root != root
                || says_more
                || (request.is_named() && head.kind == CommitKind::Snapshot))
        {
            let changes = self.changes_between(&head.root, &root)?;
            let changes = self.attribute(&target, changes, update.as_ref())?;
            let is_automatic = update.as_ref().is_some_and(|update| update.is_automatic);
            if is_automatic {
                changes.describe(&mut request);
            }
            if !is_automatic || !changes.paths.is_empty() {
                let parents = [Some(expected_head), lineage.merged];
                let parents = parents.into_iter().flatten().collect();
                let mut commit =
                    Prepared::new(parents, root.clone(), conflicts, request, &changes)?;
                commit.source.mount = update.as_ref().and_then(|update| update.mountpoint.clone());
                prepared = Some(commit);
            }
        }
        let commit = prepared
            .as_ref()
            .map_or(expected_head, |prepared| prepared.id);
        let is_new = prepared.is_some();
        self.database.write(move |connection| {
            let workspace = db::refs::workspace_number(connection, target.workspace)?;
            let branch = db::refs::require_branch(connection, workspace, &target.branch)?;
            check_head(&target, branch, expected_head)?;
            if let Some(prepared) = &prepared {
                prepared.write(connection, &target, workspace, branch)?;
                db::overlay::forget_attribution(connection, branch.number)?;
            }
            if let Some(update) = &update {
                let state = OverlayState {
                    base: root,
                    head: commit,
                    first_journal_segment: update.first_journal_segment,
                    next_inode_number: update.next_inode_number,
                };
                db::overlay::write(connection, branch.number, &state)?;
                db::overlay::write_inodes(connection, branch.number, &update.inode_records)?;
                if prepared.is_none() && !update.attribution.is_empty() {
                    let packed = Packed::of(&update.attribution.to_bytes())?;
                    db::overlay::add_attribution(connection, branch.number, &packed)?;
                }
            }
            Ok(())
        })?;
        Ok((commit, is_new))
    }

    /// Finds out who made the changes of a commit.
    fn attribute(
        &self,
        target: &Target,
        changes: Changes,
        update: Option<&OverlayUpdate>,
    ) -> Result<AttributedChanges> {
        let mut noted = Vec::new();
        if let Some(update) = update {
            let stored = self.database.read(|connection| {
                let workspace = db::refs::workspace_number(connection, target.workspace)?;
                let branch = db::refs::require_branch(connection, workspace, &target.branch)?;
                db::overlay::attribution(connection, branch.number)
            })?;
            for packed in stored {
                let bytes = packed.unpack(CHANGE_LIST_MAX_BYTES)?;
                noted.push(Attribution::from_bytes(&bytes)?);
            }
            noted.push(update.attribution.clone());
        }
        let paths = changes.paths.into_iter().map(|change| AttributedChange {
            actors: actors_of(
                &noted,
                &change.path,
                changes.links.get(&change.path).copied(),
            ),
            change,
        });
        Ok(AttributedChanges {
            paths: paths.collect(),
            link_names: changes.link_names,
        })
    }
}

/// What a commit changed, and who did.
#[derive(Debug, Default)]
pub(crate) struct AttributedChanges {
    paths: Vec<AttributedChange>,
    link_names: Vec<(u64, Box<[u8]>)>,
}

impl From<Changes> for AttributedChanges {
    fn from(changes: Changes) -> Self {
        let unattributed = |change| AttributedChange {
            change,
            actors: Vec::new(),
        };
        Self {
            paths: changes.paths.into_iter().map(unattributed).collect(),
            link_names: changes.link_names,
        }
    }
}

impl AttributedChanges {
    /// From where they came, as far as that is the same for all.
    fn source(&self) -> AuditSource {
        let mut actors = self.paths.iter().flat_map(|change| &change.actors);
        let Some(first) = actors.next() else {
            return AuditSource::of_surface("mount");
        };
        let mut common = AuditSource::of_actor("mount", first);
        let mut last = None;
        for actor in actors {
            if last == Some(actor) {
                continue;
            }
            last = Some(actor);
            let other = AuditSource::of_actor("mount", actor);
            if common.pid != other.pid || common.command != other.command {
                common.pid = None;
                common.command = Vec::new();
            }
            common.container = common
                .container
                .filter(|id| other.container.as_ref() == Some(id));
            common.step = common.step.filter(|step| other.step == Some(*step));
            common.run = common.run.filter(|run| other.run.as_ref() == Some(run));
        }
        common
    }

    /// Gives a commit that nobody asked for the principal, run and step that all changes have.
    fn describe(&self, request: &mut CommitRequest) {
        let mut actors = self.paths.iter().flat_map(|change| &change.actors);
        let is_complete = self.paths.iter().all(|change| !change.actors.is_empty());
        let Some(first) = actors.next().filter(|_| is_complete) else {
            return;
        };
        let (mut principal, mut run, mut step) =
            (Some(&first.principal), first.run.as_ref(), first.step);
        for actor in actors {
            principal = principal.filter(|name| **name == actor.principal);
            run = run.filter(|run| actor.run.as_ref() == Some(run));
            step = step.filter(|step| run.is_some() && actor.step == Some(*step));
        }
        if let Some(principal) = principal {
            request.author.clone_from(principal);
        }
        request.run = run.cloned();
        request.step = step.filter(|_| request.run.is_some());
    }
}

fn check_head(target: &Target, branch: BranchRow, expected: CommitId) -> Result<()> {
    if branch.commit == expected {
        return Ok(());
    }
    Err(StoreError::new(
        ErrorKind::Conflict,
        format!(
            "the branch '{}' moved meanwhile: it names {}, not {expected}",
            target.branch, branch.commit
        ),
    )
    .with_hint("look at the new head with `kura log`, then try again"))
}

/// A commit, encoded and with everything that is written along with it.
#[derive(Debug)]
struct Prepared {
    id: CommitId,
    encoded: Vec<u8>,
    commit: Commit,
    conflicts: PreparedConflicts,
    /// From where the changes of a mount came, as far as that is the same for all.
    source: AuditSource,
    changes: PreparedChanges,
}

impl Prepared {
    fn new(
        parents: Vec<CommitId>,
        root: Root,
        conflicts: PreparedConflicts,
        request: CommitRequest,
        changes: &AttributedChanges,
    ) -> Result<Self> {
        let commit = Commit {
            root,
            parents,
            author: request.author,
            kind: request.kind,
            time: Timestamp::now(),
            message: request.message,
            run: request.run,
            step: request.step,
            conflicts: conflicts.id,
        };
        let encoded = encode_commit(&commit);
        let id = commit_id(&encoded);
        Ok(Self {
            id,
            encoded,
            commit,
            conflicts,
            source: changes.source(),
            changes: PreparedChanges::new(changes)?,
        })
    }

    fn write(
        &self,
        connection: &Connection,
        target: &Target,
        workspace: i64,
        branch: BranchRow,
    ) -> Result<()> {
        let number = history::insert(
            connection,
            workspace,
            self.id,
            &self.encoded,
            &self.commit.parents,
        )?;
        self.changes.write(connection, number)?;
        for parent in &self.commit.parents[1..] {
            let parent = history::require(connection, *parent)?;
            history::make_visible(connection, workspace, parent)?;
        }
        if let (Some(id), Some(packed)) = (self.conflicts.id, &self.conflicts.packed) {
            db::conflicts::insert(connection, id, packed)?;
        }
        db::refs::move_branch(connection, branch.number, number)?;
        let time_ns = i64::try_from(self.commit.time.as_nanoseconds()).unwrap_or(i64::MAX);
        let source = match target.source {
            "mount" => self.source.to_text(),
            other => other.to_owned(),
        };
        record(
            connection,
            target.workspace,
            &source,
            &NewOperation {
                workspace,
                time_ns,
                author: &self.commit.author,
                kind: OperationKind::Commit,
                target: &target.branch,
                before: Some(branch.commit.to_hex()),
                after: Some(self.id.to_hex()),
                undoes: None,
                details: serde_json::json!({
                    "kind": self.commit.kind,
                    "message": self.commit.message,
                    "run": self.commit.run,
                    "step": self.commit.step,
                    "paths": self.changes.path_count,
                }),
            },
        )?;
        Ok(())
    }
}

/// The conflicts of a commit.
#[derive(Debug)]
struct PreparedConflicts {
    id: Option<ConflictSetId>,
    /// The set, if it may be new.
    packed: Option<Packed>,
}

impl PreparedConflicts {
    fn new(change: &ConflictChange, inherited: Option<ConflictSetId>) -> Result<Self> {
        let set = match change {
            ConflictChange::Keep => return Ok(Self::stored(inherited)),
            ConflictChange::Set(set) if set.is_empty() => return Ok(Self::stored(None)),
            ConflictChange::Set(set) => set,
        };
        let encoded = encode_conflicts(set);
        Ok(Self {
            id: Some(conflict_set_id(&encoded)),
            packed: Some(Packed::of(&encoded)?),
        })
    }

    fn stored(id: Option<ConflictSetId>) -> Self {
        Self { id, packed: None }
    }
}

/// The rows of the path index that a commit brings.
#[derive(Debug)]
struct PreparedChanges {
    path_count: usize,
    packed: Packed,
    path_hashes: Vec<i64>,
    link_names: Vec<(u64, Box<[u8]>)>,
    /// Changes with the actors that took part, one of each.
    actors: BTreeSet<Participant>,
}

impl PreparedChanges {
    fn new(changes: &AttributedChanges) -> Result<Self> {
        let encoded = encode_changes(&changes.paths);
        let mut hashes = BTreeSet::new();
        let mut actors = BTreeSet::new();
        for change in &changes.paths {
            let mut last = None;
            for actor in &change.actors {
                // Neighbours mostly have the same.
                if last != Some(actor) {
                    actors.insert(Participant::of(actor));
                    last = Some(actor);
                }
            }
            let mut path = change.change.path.as_ref();
            // Directories above it too, so that the history of a directory can be listed.
            while hashes.insert(path_hash(path)) && !path.is_empty() {
                let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                path = &path[..end];
            }
        }
        Ok(Self {
            path_count: changes.paths.len(),
            packed: Packed::of(&encoded)?,
            path_hashes: hashes.into_iter().collect(),
            link_names: changes.link_names.clone(),
            actors,
        })
    }

    fn write(&self, connection: &Connection, commit: i64) -> Result<()> {
        history::insert_changes(
            connection,
            commit,
            self.path_count,
            &self.packed,
            &self.path_hashes,
        )?;
        history::insert_participants(connection, commit, &self.actors)?;
        history::insert_link_names(connection, &self.link_names)
    }
}

/// Writes the path index of a commit.
pub(crate) fn record_changes(connection: &Connection, commit: i64, changes: Changes) -> Result<()> {
    PreparedChanges::new(&changes.into())?.write(connection, commit)
}
