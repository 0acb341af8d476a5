//! Who asks, and what they get to see and change: the one place where verbs meet the policy.
//!
//! A verb that is about a workspace takes a [`Scope`] and reads through its view, in which hidden
//! paths don't exist; what it changes goes through [`Scope::permitted`]. For a principal without
//! limits all of it gives back what the store has.
//!
//! A commit that changed nothing but hidden paths doesn't exist either: the one before it, which
//! looks the same, stands for it ([`Scope::shown`]). So ids, steps back and heads tell nothing of
//! changes that can't be seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use computerd_api::v1::{CommitInfo, ConflictInfo};
use workspace_store::CommitId;
use workspace_store::commits::{ActorFilter, PathChange};
use workspace_store::conflict::Conflict;
use workspace_store::denial::Denial;
use workspace_store::diff::{DiffEntry, DiffKind, DiffOptions, diff_roots};
use workspace_store::object::{Commit, Inode, Node, Root};
use workspace_store::path::display_path;
use workspace_store::policy::{Access, Policy, PolicyView};
use workspace_store::restore::restore_edit;
use workspace_store::store::Store;
use workspace_store::workspace::WorkspaceInfo;

use crate::convert;
use crate::daemon::{Daemon, State};
use crate::error::{Error, ErrorKind, Result};
use crate::server::user_name;

/// Paths that an error names.
const SHOWN_PATHS: usize = 5;

/// Who is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The store's owner or root, over the control socket; the name of the local user.
    Administrator(String),
    /// The principal of a token, over the agents' socket.
    Principal(String),
}

impl Caller {
    /// The name under which the caller acts by itself.
    pub fn name(&self) -> &str {
        match self {
            Caller::Administrator(name) | Caller::Principal(name) => name,
        }
    }

    /// The principal that a request acts as: the one that the administrator names, else the
    /// caller itself.
    ///
    /// As soon as the store knows principals, the administrator can only name one of them (or
    /// itself): a name that was mistyped would have no rules and see everything.
    ///
    /// # Errors
    /// `NotFound` for an unknown principal; `PermissionDenied` for a disabled one, and for
    /// anybody but the administrator who names another.
    pub fn acts_as(&self, daemon: &Daemon, named: Option<&String>) -> Result<String> {
        let Some(named) = named.filter(|named| *named != self.name()) else {
            return Ok(self.name().to_owned());
        };
        if let Caller::Principal(name) = self {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                format!("act as {named}: the token is {name}'s"),
            )
            .with_hint("leave --as away"));
        }
        check_name(daemon, named, "act as")?;
        Ok(named.clone())
    }
}

/// Refuses a name that means nobody, once the store knows principals. `what` is tried with it.
///
/// # Errors
/// `NotFound` for an unknown principal, `PermissionDenied` for a disabled one.
pub fn check_name(daemon: &Daemon, name: &str, what: &str) -> Result<()> {
    match daemon.store.principal(name)? {
        Some(info) if info.disabled.is_some() => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!("{what} {name}: this principal is disabled"),
        )
        .with_hint(format!("`kura principal enable {name}` lets it in again"))),
        Some(_) => Ok(()),
        None if daemon.store.principals()?.is_empty() => Ok(()),
        None => Err(Error::new(
            ErrorKind::NotFound,
            format!("{what} {name}: there is no such principal"),
        )
        .with_hint(format!(
            "`kura principal list` shows them; make it with `kura principal add {name}`"
        ))),
    }
}

/// Whether this is a name of the administrator: the store's owner or root.
pub fn is_administrator(name: &str) -> bool {
    let owner = nix::unistd::geteuid().as_raw();
    [owner, 0].into_iter().any(|uid| user_name(uid) == name)
}

/// What can be seen of a commit.
#[derive(Debug)]
pub struct Seen {
    /// The paths that it changed.
    pub changes: Vec<PathChange>,
    /// Nothing of it is hidden.
    pub is_all: bool,
    /// There is such a commit at all.
    pub exists: bool,
}

/// What a request may see and change of one workspace.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// The workspace.
    pub workspace: WorkspaceInfo,
    /// Who acts.
    pub principal: String,
    /// What they may do.
    pub policy: Arc<Policy>,
    /// What they try, for the audit log.
    pub action: String,
}

impl Scope {
    /// The scope of a request to a workspace.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace, or nothing of it may be seen.
    pub fn new(
        daemon: &Arc<Daemon>,
        caller: &Caller,
        principal: String,
        workspace: &str,
        action: String,
    ) -> Result<Self> {
        let found = daemon.store.workspace(workspace);
        let workspace = match (found, caller) {
            (Ok(workspace), _) => workspace,
            (Err(error), Caller::Principal(_)) if error.kind() == ErrorKind::NotFound => {
                return Err(no_workspace(workspace));
            }
            (Err(error), _) => return Err(error),
        };
        let policy = policy(daemon, caller, &principal, &workspace)?;
        let scope = Self {
            daemon: daemon.clone(),
            workspace,
            principal,
            policy,
            action,
        };
        if !scope.policy.root().is_visible_directory() {
            scope.record_denial(&scope.workspace.name);
            return Err(no_workspace(&scope.workspace.name));
        }
        Ok(scope)
    }

    /// Whether anything may be hidden or read-only.
    pub fn is_restricted(&self) -> bool {
        !self.policy.is_unrestricted()
    }

    /// A reader of the store in which hidden paths don't exist.
    pub fn view(&self) -> PolicyView<'_> {
        PolicyView::new(&self.daemon.store, self.policy.clone())
    }

    /// Whether a path can be seen, if it is there.
    pub fn is_visible(&self, path: &[u8]) -> bool {
        self.policy.place(path).is_visible_directory()
    }

    /// Writes down that somebody asked for a hidden path; they are told that there is none.
    pub fn note_if_hidden(&self, path: &[u8]) {
        if !self.is_visible(path) {
            self.record_denial(&display_path(path));
        }
    }

    fn record_denial(&self, object: &str) {
        record_denial(
            &self.daemon,
            &self.principal,
            &self.action,
            Some(&self.workspace),
            object,
        );
    }

    /// Refuses what concerns the whole workspace to those whose access to all of it is less.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub fn require_everywhere(&self, access: Access, what: &str) -> Result<()> {
        let root = self.policy.root();
        if root.is_uniform() && root.access() >= access {
            return Ok(());
        }
        let word = access.as_str();
        Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "{what} as {}: it needs {word} access to the whole workspace {}",
                self.principal, self.workspace.name
            ),
        )
        .with_hint("`kura grants NAME` lists what was granted; the store's owner can change it"))
    }

    /// Refuses to change a workspace to those who may write nothing in it.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub fn require_some_write(&self, what: &str) -> Result<()> {
        let may_write = !self.is_restricted()
            || self
                .policy
                .rules()
                .iter()
                .any(|rule| rule.access == Access::Write);
        if may_write {
            return Ok(());
        }
        self.require_everywhere(Access::Write, what)
    }

    /// Whether what is at a path can be seen; of a hidden directory with something visible below it
    /// nothing is, though it can be walked through ([`Scope::is_visible`]).
    pub fn sees(&self, path: &[u8]) -> bool {
        self.policy.access(path) > Access::Hidden
    }

    /// What can be seen of a commit.
    pub fn seen(&self, id: CommitId) -> Result<Seen> {
        let store = &self.daemon.store;
        let mut changes = store.changes(id)?;
        if !self.is_restricted() {
            return Ok(Seen {
                changes,
                is_all: true,
                exists: true,
            });
        }
        let count = changes.len();
        changes.retain(|change| self.sees(&change.path));
        let mut is_all = changes.len() == count;
        let commit = store.commit(id)?;
        let Some(parent) = commit.parents.first() else {
            return Ok(Seen {
                changes,
                is_all,
                exists: true,
            });
        };
        let mut sees_conflicts = false;
        if store.commit(*parent)?.conflicts != commit.conflicts {
            let (old, new) = (store.conflicts(*parent)?, store.conflicts(id)?);
            for (one, other) in [(&old, &new), (&new, &old)] {
                for conflict in one.entries() {
                    if other.entries().contains(conflict) {
                        continue;
                    }
                    let sees = self.sees_conflict(conflict);
                    sees_conflicts |= sees;
                    is_all &= sees;
                }
            }
        }
        // One without changes is a name for a state, but a merge that brought nothing visible.
        let is_name = is_all && commit.parents.len() == 1;
        Ok(Seen {
            exists: !changes.is_empty() || sees_conflicts || is_name,
            changes,
            is_all,
        })
    }

    /// Whether a commit exists for the principal: not if all that it changed is hidden.
    pub fn exists(&self, commit: CommitId) -> Result<bool> {
        Ok(!self.is_restricted() || self.seen(commit)?.exists)
    }

    /// Whether the message of a commit is told to whom anything is hidden: if all that it may speak
    /// of can be seen. That of somebody else's run is its command, that of a merge names what was
    /// merged.
    pub fn tells_message(&self, commit: &Commit, seen: &Seen) -> bool {
        let is_plain = commit.run.is_none() && commit.parents.len() <= 1;
        seen.is_all && (is_plain || commit.author == self.principal)
    }

    /// Whether the run of a commit is told to whom anything is hidden: if it is the principal's own,
    /// or made something of what can be seen.
    pub fn tells_run(&self, id: CommitId, commit: &Commit) -> Result<bool> {
        if commit.run.is_none() || commit.author == self.principal {
            return Ok(true);
        }
        let filter = ActorFilter {
            principal: None,
            run: commit.run.clone(),
            step: None,
        };
        self.has_part(id, commit, &filter)
    }

    /// Whether somebody who is meant took part in what can be seen of a commit.
    pub fn has_part(&self, id: CommitId, commit: &Commit, filter: &ActorFilter) -> Result<bool> {
        let changes = self.daemon.store.attributed_changes(id)?;
        let mut seen = changes
            .iter()
            .filter(|change| self.sees(&change.change.path));
        Ok(seen.any(|change| filter.has_change(commit, change))
            || changes.is_empty() && filter.has_commit(commit))
    }

    /// The commit that stands for this one: itself, or the newest before it that exists for the
    /// principal and so has the same visible tree.
    pub fn shown(&self, commit: CommitId) -> Result<CommitId> {
        let mut shown = commit;
        while self.is_restricted() && !self.exists(shown)? {
            match self.daemon.store.commit(shown)?.parents.first() {
                Some(parent) => shown = *parent,
                None => break,
            }
        }
        Ok(shown)
    }

    /// The commit that a revision names, among those that exist for the principal.
    ///
    /// # Errors
    /// As [`workspace_store::Store::resolve`].
    pub fn resolve(&self, revision: &str) -> Result<CommitId> {
        let store = &self.daemon.store;
        if !self.is_restricted() {
            return store.resolve(self.workspace.id, revision);
        }
        let steps = revision
            .split_once('~')
            .filter(|(_, steps)| !steps.contains('@'))
            .map(|(base, steps)| {
                let count = |part: &str| match part {
                    "" => Some(1),
                    digits => digits.parse::<u64>().ok(),
                };
                let counts: Option<Vec<u64>> = steps.split('~').map(count).collect();
                (base, counts)
            });
        let Some((base, Some(counts))) = steps else {
            return self.shown(self.find(revision)?);
        };
        let base = if base.is_empty() { "HEAD" } else { base };
        let mut commit = self.shown(self.find(base)?)?;
        for _ in 0..counts.iter().copied().fold(0, u64::saturating_add) {
            let parents = &store.commit(commit)?.parents;
            let parent = parents.first().ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    format!("'{revision}' goes back too far"),
                )
                .with_hint("`kura log NAME` lists the commits")
            })?;
            commit = self.shown(*parent)?;
        }
        Ok(commit)
    }

    /// Any commit that a revision names.
    fn find(&self, revision: &str) -> Result<CommitId> {
        let found = self.daemon.store.resolve(self.workspace.id, revision);
        found.map_err(|error| match error.kind() {
            // It lists what the digits could mean.
            ErrorKind::Conflict => Error::new(
                ErrorKind::Conflict,
                format!("'{revision}' is the beginning of several commits"),
            )
            .with_hint("give more digits"),
            _ => error,
        })
    }

    /// The state that a revision names, as the store has it; without one the live state of the
    /// default branch. To be read through [`Scope::view`].
    pub fn state(&self, revision: Option<&String>) -> Result<State> {
        let mut state = match revision {
            Some(revision) => {
                let commit = self.resolve(revision)?;
                State {
                    root: self.daemon.store.commit(commit)?.root.clone(),
                    commit: Some(commit),
                }
            }
            None => self
                .daemon
                .live_state(&self.workspace, &self.workspace.default_branch)?,
        };
        if self.is_restricted() && revision.is_none() {
            // Whether anything is uncommitted is told only of what can be seen.
            let branch = &self.workspace.default_branch;
            let head = self.daemon.store.branch(self.workspace.id, branch)?;
            let view = self.view();
            let committed = view.root(&self.daemon.store.commit(head)?.root);
            state.commit = (view.root(&state.root).tree == committed.tree)
                .then(|| self.shown(head))
                .transpose()?;
        }
        Ok(state)
    }

    /// What a commit could not join, as far as it can be seen.
    pub fn conflicts(&self, commit: CommitId) -> Result<Vec<Conflict>> {
        let set = self.daemon.store.conflicts(commit)?;
        let sees = |conflict: &&Conflict| self.sees_conflict(conflict);
        Ok(set.entries().iter().filter(sees).cloned().collect())
    }

    /// Whether a conflict can be seen: its path, and what was put beside it.
    pub fn sees_conflict(&self, conflict: &Conflict) -> bool {
        self.sees(&conflict.path)
            && conflict
                .beside
                .as_deref()
                .is_none_or(|path| self.sees(path))
    }

    /// A conflict for people: others' histories are told as far as they can be seen.
    pub fn conflict_info(&self, conflict: &Conflict) -> Result<ConflictInfo> {
        let mut info = convert::conflict(conflict);
        if self.is_restricted() {
            info.base_commit = self.shown(conflict.base_commit)?.to_hex();
            info.theirs_commit = self.shown(conflict.theirs_commit)?.to_hex();
            info.theirs_label = "theirs".to_owned();
        }
        Ok(info)
    }

    /// A commit for people. A message is told only if all that it may speak of can be seen.
    pub fn commit_info(
        &self,
        id: CommitId,
        commit: &Commit,
        references: Vec<String>,
    ) -> Result<CommitInfo> {
        let seen = self.seen(id)?;
        let counts = convert::change_counts(&seen.changes);
        let mut info = convert::commit(id, commit, references, Some(counts));
        if self.is_restricted() {
            // The id of the tree is made of hidden things, too.
            info.tree = String::new();
            let mut parents = BTreeSet::new();
            info.parents.clear();
            for parent in &commit.parents {
                let parent = self.shown(*parent)?;
                if parents.insert(parent) {
                    info.parents.push(parent.to_hex());
                }
            }
            if !self.tells_message(commit, &seen) {
                info.message = String::new();
            }
            if !self.tells_run(id, commit)? {
                (info.run, info.step) = (None, None);
            }
            info.has_conflicts = !self.conflicts(id)?.is_empty();
        }
        Ok(info)
    }

    /// What becomes of `now` if the principal makes it `wanted`: hidden paths stay as they are.
    ///
    /// # Errors
    /// `PermissionDenied` if something changes that can be seen and not be written.
    pub fn permitted(&self, now: &Root, wanted: Root) -> Result<Root> {
        let store = &self.daemon.store;
        if !self.is_restricted() || *now == wanted {
            return Ok(wanted);
        }
        let options = DiffOptions {
            times: true,
            ..DiffOptions::default()
        };
        let entries = diff_roots(store, now, &wanted, &options)?;
        let paths = self.writable(&entries)?;
        if paths.is_empty() {
            return Ok(now.clone());
        }
        with_paths_of(store, now, &wanted, &paths)
    }

    /// The changed paths that may be written.
    ///
    /// # Errors
    /// As [`Scope::permitted`].
    fn writable(&self, entries: &[DiffEntry]) -> Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        let mut refused = Vec::new();
        for entry in entries {
            let place = self.policy.place(&entry.path);
            let is_directory = [&entry.old, &entry.new]
                .into_iter()
                .flatten()
                .any(is_directory);
            let only_time = entry.kind == DiffKind::Metadata && {
                let mut others = entry.changes;
                others.mtime = false;
                !others.any()
            };
            match place.access() {
                Access::Hidden => {}
                // Times of directories follow from what is in them.
                _ if is_directory && only_time => {}
                // Something else may be in it: its entries are taken one by one.
                Access::Write if is_directory && !place.is_uniform() => {
                    if entry.kind == DiffKind::TypeChanged {
                        refused.push(entry.path.as_slice());
                    }
                }
                Access::Write => paths.push(entry.path.clone()),
                Access::Read => refused.push(entry.path.as_slice()),
            }
        }
        if refused.is_empty() {
            return Ok(paths);
        }
        let shown: Vec<String> = refused
            .iter()
            .take(SHOWN_PATHS)
            .map(|path| format!("'{}'", display_path(path)))
            .collect();
        let more = match refused.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "change {}{more} of {} as {}: it may be read only",
                shown.join(", "),
                self.workspace.name,
                self.principal
            ),
        )
        .with_hint("name paths that may be written, or ask the store's owner for write access"))
    }

    /// Refuses to change a path that was named and may not be written.
    ///
    /// # Errors
    /// `NotFound` if it is hidden, `PermissionDenied` if it may be read only.
    pub fn require_write(&self, path: &[u8]) -> Result<()> {
        let place = self.policy.place(path);
        if place.access() == Access::Write || !place.is_uniform() {
            return Ok(());
        }
        if place.access() == Access::Hidden {
            self.record_denial(&display_path(path));
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("'{}' is in neither version", display_path(path)),
            )
            .with_hint("list the versions that have it with 'kura log NAME PATH'"));
        }
        Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "change '{}' of {} as {}: it may be read only",
                display_path(path),
                self.workspace.name,
                self.principal
            ),
        )
        .with_hint("ask the store's owner for write access"))
    }
}

/// A tree that is `now` but for some paths, which are as in `from`.
pub fn with_paths_of(store: &Store, now: &Root, from: &Root, paths: &[Vec<u8>]) -> Result<Root> {
    let plan = restore_edit(store, now, from, paths)?;
    store.build_root(now, plan.edit, &|_| {})
}

fn is_directory(inode: &Inode) -> bool {
    matches!(inode.node, Node::Directory { .. })
}

/// What a principal may do in a workspace; the administrator under its own name, anything.
///
/// # Errors
/// Errors of the store.
pub fn policy(
    daemon: &Daemon,
    caller: &Caller,
    principal: &str,
    workspace: &WorkspaceInfo,
) -> Result<Arc<Policy>> {
    match caller {
        Caller::Administrator(name) if name == principal => Ok(Arc::new(Policy::unrestricted())),
        _ => daemon.store.policy_of(workspace.id, principal),
    }
}

/// What is said of a workspace that isn't there, or of which nothing may be seen.
pub fn no_workspace(name: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no workspace '{name}'"),
    )
    .with_hint("list the workspaces with `kura list`")
}

/// Records a denial; a log that can't be written refuses nothing more than was refused.
pub fn record_denial(
    daemon: &Daemon,
    principal: &str,
    action: &str,
    workspace: Option<&WorkspaceInfo>,
    object: &str,
) {
    let denial = Denial {
        principal: principal.to_owned(),
        source: "api".to_owned(),
        action: action.to_owned(),
        workspace: workspace.map(|workspace| workspace.id),
        object: object.to_owned(),
    };
    if let Err(error) = daemon.store.record_denial(denial) {
        tracing::error!(?error, action, "record a denial");
    }
}
