//! Plans that set paths back: restoring paths from another tree, and taking one change out again.
//! Setting back a whole tree needs no plan: it is the other root.
//!
//! A plan is only computed here; nothing changes until the store applies its edit. Files with
//! several names stay consistent: link counts follow the names, and a name outside the restored
//! paths keeps its content even if a restored name belonged to the same file.

mod assemble;
mod graft;

use std::collections::{BTreeMap, BTreeSet};

pub use graft::graft_edit;

use assemble::{Action, Assemble, PlanNode};

use crate::diff::{DiffEntry, DiffKind, DiffOptions, MetadataChanges, diff_roots};
use crate::edit::SnapshotEdit;
use crate::error::{ErrorKind, Result, StoreError};
use crate::lookup::{lookup_path, resolve_entry};
use crate::object::{Attributes, Inode, Name, Node, Root, TreeEntry};
use crate::path::{display_path, is_at_or_below, join_path, split_path};
use crate::reader::ObjectReader;

/// What a restore would do.
#[derive(Debug, Clone)]
pub struct RestorePlan {
    /// The edit over the current tree; empty if everything is as wanted already.
    pub edit: SnapshotEdit,
    /// The same, entry by entry.
    pub entries: Vec<DiffEntry>,
}

/// What taking out a change would do.
#[derive(Debug, Clone)]
pub struct RevertPlan {
    /// The edit over the current tree; empty if there are conflicts.
    pub edit: SnapshotEdit,
    /// The same, entry by entry.
    pub entries: Vec<DiffEntry>,
    /// Paths that changed again since, which stand in the way.
    pub conflicts: Vec<RevertConflict>,
}

/// A path that changed again after the change to be taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertConflict {
    /// The path.
    pub path: Vec<u8>,
    /// What stands in the way.
    pub reason: String,
}

/// Plans to make `paths` in `current` what they are in `from`, deleting what isn't there.
///
/// Missing parent directories come back with their attributes in `from`.
///
/// # Errors
/// `InvalidInput` for no paths and for paths that can't be; `NotFound` for a path in neither
/// tree; `Conflict` if a parent of a path isn't a directory now.
pub fn restore_edit(
    reader: &dyn ObjectReader,
    current: &Root,
    from: &Root,
    paths: &[Vec<u8>],
) -> Result<RestorePlan> {
    let mut wanted: BTreeSet<&[u8]> = BTreeSet::new();
    for path in paths {
        if path.is_empty() {
            return Err(
                StoreError::new(ErrorKind::InvalidInput, "the path to restore is empty")
                    .with_hint("to set back the whole workspace, use 'kura rollback'"),
            );
        }
        wanted.insert(path);
    }
    if wanted.is_empty() {
        return Err(StoreError::new(
            ErrorKind::InvalidInput,
            "no path to restore was given",
        ));
    }
    let nested: Vec<&[u8]> = wanted
        .iter()
        .filter(|path| {
            wanted
                .iter()
                .any(|other| other != *path && is_at_or_below(path, other))
        })
        .copied()
        .collect();
    wanted.retain(|path| !nested.contains(path));

    let mut plan = PlanNode::default();
    let mut parents: BTreeMap<Vec<u8>, Inode> = BTreeMap::new();
    for path in &wanted {
        let names = split_path(path)?;
        let now = lookup_path(reader, current, &names)?;
        let then = lookup_path(reader, from, &names)?;
        match then {
            Some(entry) => {
                plan_parents(reader, current, from, &names, &mut plan, &mut parents)?;
                plan.insert(&names, Action::Take(entry));
            }
            None if now.is_some() => plan.insert(&names, Action::Remove),
            None => {
                return Err(StoreError::new(
                    ErrorKind::NotFound,
                    format!("'{}' is in neither version", display_path(path)),
                )
                .with_hint("list the versions that have it with 'kura log NAME PATH'"));
            }
        }
    }
    let options = DiffOptions {
        paths: wanted.iter().map(|path| path.to_vec()).collect(),
        times: true,
        renames: false,
    };
    let mut entries = diff_roots(reader, current, from, &options)?;
    if entries.is_empty() {
        return Ok(RestorePlan {
            edit: SnapshotEdit::unchanged(current),
            entries,
        });
    }
    entries.extend(parents.into_iter().map(|(path, inode)| DiffEntry {
        path,
        kind: DiffKind::Added,
        changes: MetadataChanges::default(),
        old: None,
        new: Some(inode),
        old_link: None,
        new_link: None,
    }));
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    let edit = Assemble::new(reader, current, from).run(&plan)?;
    Ok(RestorePlan { edit, entries })
}

/// Plans the directories above a path that are missing now.
fn plan_parents(
    reader: &dyn ObjectReader,
    current: &Root,
    from: &Root,
    names: &[Name],
    plan: &mut PlanNode,
    parents: &mut BTreeMap<Vec<u8>, Inode>,
) -> Result<()> {
    for depth in 1..names.len() {
        let parent = &names[..depth];
        let path = parent.join(&b'/');
        match lookup_path(reader, current, parent)? {
            Some(TreeEntry::Inline(Inode {
                node: Node::Directory { .. },
                ..
            })) => {}
            Some(_) => {
                let path = display_path(&path);
                return Err(StoreError::new(
                    ErrorKind::Conflict,
                    format!("'{path}' is not a directory now"),
                )
                .with_hint(format!("restore '{path}' itself, or move it away first")));
            }
            None => {
                let Some(entry) = lookup_path(reader, from, parent)? else {
                    continue;
                };
                let inode = resolve_entry(reader, from.links, &entry)?;
                plan.insert(parent, Action::Directory(inode.attributes.clone()));
                parents.insert(path, inode);
            }
        }
    }
    Ok(())
}

/// Plans that there is nothing at these paths, which are there now.
///
/// # Errors
/// `InvalidInput` for paths that can't be; errors of the reader.
pub fn removal_edit(
    reader: &dyn ObjectReader,
    current: &Root,
    paths: &[Vec<u8>],
) -> Result<SnapshotEdit> {
    let wishes = paths
        .iter()
        .map(|path| Ok((split_path(path)?, Wish::Nothing)))
        .collect::<Result<_>>()?;
    wish_edit(reader, current, wishes)
}

/// What shall stand at a path.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// Nothing.
    Nothing,
    /// This entry of the same tree, or one without other names.
    Entry(TreeEntry),
    /// The directory that is there, with these attributes.
    Directory(Attributes),
}

/// Plans that entries stand at paths; directories above them that are gone are made.
pub(crate) fn wish_edit(
    reader: &dyn ObjectReader,
    current: &Root,
    wishes: Vec<(Vec<Name>, Wish)>,
) -> Result<SnapshotEdit> {
    let mut plan = PlanNode::default();
    for (names, wish) in wishes {
        let action = match wish {
            Wish::Nothing => Action::Remove,
            Wish::Entry(entry) => {
                let above = &names[..names.len().saturating_sub(1)];
                graft::plan_directories(reader, current, above, &mut plan)?;
                Action::Take(entry)
            }
            Wish::Directory(attributes) => Action::Directory(attributes),
        };
        plan.insert(&names, action);
    }
    Assemble::new(reader, current, current).run(&plan)
}

/// Plans to take the changes from `before` to `after` out of `current`, entry by entry.
///
/// An entry that changed again since is a conflict; then no edit is made. An entry that is
/// already as it was before needs nothing. Modification times of directories don't count.
///
/// # Errors
/// Errors of the reader.
pub fn revert_edit(
    reader: &dyn ObjectReader,
    before: &Root,
    after: &Root,
    current: &Root,
) -> Result<RevertPlan> {
    let options = DiffOptions {
        times: true,
        ..DiffOptions::default()
    };
    let mut changes = diff_roots(reader, before, after, &options)?;
    changes.retain(|change| !is_touched_directory(change));
    let mut revert = Revert {
        reader,
        before,
        current,
        added: changes
            .iter()
            .filter(|change| change.new.is_some() && change.old.is_none())
            .map(|change| (change.path.clone(), change.new.clone()))
            .collect(),
        plan: PlanNode::default(),
        root_attributes: None,
        created: BTreeSet::new(),
        removed: Vec::new(),
        entries: Vec::new(),
        conflicts: Vec::new(),
    };
    for change in &changes {
        revert.change(change)?;
    }
    let mut plan = RevertPlan {
        edit: SnapshotEdit::unchanged(current),
        entries: revert.entries,
        conflicts: revert.conflicts,
    };
    if plan.conflicts.is_empty() && !plan.entries.is_empty() {
        plan.edit = Assemble::new(reader, current, before).run(&revert.plan)?;
        plan.edit.root_attributes = revert.root_attributes;
    }
    Ok(plan)
}

struct Revert<'a> {
    reader: &'a dyn ObjectReader,
    before: &'a Root,
    current: &'a Root,
    /// Paths that the change added, with what it put there.
    added: BTreeMap<Vec<u8>, Option<Inode>>,
    plan: PlanNode,
    root_attributes: Option<Attributes>,
    /// Directories that the plan makes.
    created: BTreeSet<Vec<u8>>,
    /// Directories that the plan removes or replaces with all that is in them.
    removed: Vec<Vec<u8>>,
    entries: Vec<DiffEntry>,
    conflicts: Vec<RevertConflict>,
}

impl Revert<'_> {
    fn conflict(&mut self, path: &[u8], reason: &str) {
        self.conflicts.push(RevertConflict {
            path: path.to_vec(),
            reason: reason.to_owned(),
        });
    }

    fn change(&mut self, change: &DiffEntry) -> Result<()> {
        let path = &change.path;
        if self
            .removed
            .iter()
            .any(|removed| path != removed && is_at_or_below(path, removed))
        {
            return Ok(());
        }
        let names = split_path(path)?;
        let now_entry = lookup_path(self.reader, self.current, &names)?;
        let now = match &now_entry {
            Some(entry) => Some(resolve_entry(self.reader, self.current.links, entry)?),
            None => None,
        };
        if is_same(now.as_ref(), change.old.as_ref()) && change.old_link == link_of(&now_entry) {
            return Ok(());
        }
        if !is_same(now.as_ref(), change.new.as_ref()) {
            let reason = match (&now, &change.new) {
                (None, _) => "it was deleted since",
                (Some(_), None) => "something was put there since",
                _ => "it changed again since",
            };
            self.conflict(path, reason);
            return Ok(());
        }
        let is_directory_now = is_directory(now.as_ref());
        match &change.old {
            None => {
                if is_directory_now && !self.holds_only_added(path, now.as_ref())? {
                    return Ok(());
                }
                if is_directory_now {
                    self.removed.push(path.clone());
                }
                self.plan.insert(&names, Action::Remove);
            }
            Some(old) if is_directory(Some(old)) => {
                if is_directory_now {
                    // What happened in it since set its time.
                    let mut attributes = old.attributes.clone();
                    if let Some(now) = &now {
                        attributes.mtime = now.attributes.mtime;
                    }
                    if names.is_empty() {
                        self.root_attributes = Some(attributes);
                    } else {
                        self.plan.insert(&names, Action::Directory(attributes));
                    }
                } else {
                    if !self.has_parent(&names)? {
                        return Ok(());
                    }
                    self.created.insert(path.clone());
                    self.plan
                        .insert(&names, Action::Directory(old.attributes.clone()));
                }
            }
            Some(_) => {
                if is_directory_now {
                    if !self.holds_only_added(path, now.as_ref())? {
                        return Ok(());
                    }
                    self.removed.push(path.clone());
                }
                if !self.has_parent(&names)? {
                    return Ok(());
                }
                let entry = crate::lookup::require_path(self.reader, self.before, &names)?;
                self.plan.insert(&names, Action::Take(entry));
            }
        }
        self.entries.push(inverse(change));
        Ok(())
    }

    fn has_parent(&mut self, names: &[Name]) -> Result<bool> {
        let parent = &names[..names.len() - 1];
        let path = parent.join(&b'/');
        if self.created.contains(&path) {
            return Ok(true);
        }
        let entry = lookup_path(self.reader, self.current, parent)?;
        let is_there = matches!(
            entry,
            Some(TreeEntry::Inline(Inode {
                node: Node::Directory { .. },
                ..
            }))
        );
        if !is_there {
            self.conflict(&names.join(&b'/'), "its directory is gone");
        }
        Ok(is_there)
    }

    /// Whether all that is in a directory now is what the change put there; lists the rest as
    /// conflicts.
    fn holds_only_added(&mut self, path: &[u8], now: Option<&Inode>) -> Result<bool> {
        let mut pending = Vec::new();
        if let Some(Inode {
            node: Node::Directory { tree },
            ..
        }) = now
        {
            pending.push((path.to_vec(), *tree));
        }
        let mut is_clean = true;
        while let Some((directory, tree)) = pending.pop() {
            for (name, entry) in self.reader.directory(tree)? {
                let path = join_path(&directory, &name);
                let inode = resolve_entry(self.reader, self.current.links, &entry)?;
                match self.added.get(&path) {
                    Some(added) if is_same(Some(&inode), added.as_ref()) => {
                        if let Node::Directory { tree } = inode.node {
                            pending.push((path, tree));
                        }
                    }
                    Some(_) => {
                        is_clean = false;
                        self.conflict(&path, "it changed again since");
                    }
                    None => {
                        is_clean = false;
                        self.conflict(&path, "it was added since");
                    }
                }
            }
        }
        Ok(is_clean)
    }
}

fn is_directory(inode: Option<&Inode>) -> bool {
    matches!(
        inode,
        Some(Inode {
            node: Node::Directory { .. },
            ..
        })
    )
}

fn link_of(entry: &Option<TreeEntry>) -> Option<crate::object::LinkId> {
    match entry {
        Some(TreeEntry::Link(id)) => Some(*id),
        _ => None,
    }
}

/// Equal as one entry: directories without their entries and time.
fn is_same(left: Option<&Inode>, right: Option<&Inode>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) if is_directory(Some(left)) && is_directory(Some(right)) => {
            let (left, right) = (&left.attributes, &right.attributes);
            (left.mode, left.uid, left.gid) == (right.mode, right.uid, right.gid)
                && left.xattrs == right.xattrs
        }
        _ => left == right,
    }
}

fn inverse(change: &DiffEntry) -> DiffEntry {
    DiffEntry {
        path: change.path.clone(),
        kind: match &change.kind {
            DiffKind::Added => DiffKind::Deleted,
            DiffKind::Deleted => DiffKind::Added,
            kind => kind.clone(),
        },
        changes: change.changes,
        old: change.new.clone(),
        new: change.old.clone(),
        old_link: change.new_link,
        new_link: change.old_link,
    }
}

#[cfg(test)]
mod tests;

/// Whether only the modification time of a directory differs, which entries of it do by themselves.
fn is_touched_directory(change: &DiffEntry) -> bool {
    let only_time = MetadataChanges {
        mtime: true,
        ..MetadataChanges::default()
    };
    change.kind == DiffKind::Metadata
        && change.changes == only_time
        && is_directory(change.new.as_ref())
}
