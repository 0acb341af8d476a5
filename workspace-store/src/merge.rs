//! Three-way merge of trees: what `theirs` changed since `base` goes into `ours`.
//!
//! Cost O(changed): two differences, then path by path, parents first. Nothing is lost: what can't
//! be joined by a rule stays as a [`Conflict`] that holds both sides, and what the mount shows for
//! it has both, too. A deleted file doesn't come back without a conflict, added ones are never
//! joined to one. Every rule treats the two sides alike; only which of two stays at the path of a
//! conflict depends on it.
//!
//! Taking a change out again is the merge from `after` with the tree `before` it.

mod assemble;
mod inode;
mod rename;
mod resolve;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use resolve::{Resolution, has_markers_left, resolution_edit};
pub use text::MergeLabels;

use assemble::{Link, Outcome};
use inode::{MergedInode, is_same_but_time, is_same_kind, merge_attributes, merge_inodes};

use crate::conflict::{Conflict, ConflictReason};
use crate::diff::{DiffOptions, diff_roots};
use crate::edit::SnapshotEdit;
use crate::error::Result;
use crate::id::CommitId;
use crate::limits::NAME_MAX_BYTES;
use crate::lookup::{lookup_path, resolve_entry};
use crate::object::{Inode, LinkId, Node, Root, Timestamp, TreeEntry};
use crate::path::{join_path, split_path};
use crate::reader::ObjectReader;

/// Which paths of a change are wanted.
pub type PathFilter<'a> = &'a dyn Fn(&[u8]) -> bool;

/// How a merge is made and what it is called.
#[derive(Clone)]
pub struct MergeOptions<'a> {
    /// Names of the sides, for markers in texts.
    pub labels: MergeLabels,
    /// Commit of the base.
    pub base_commit: CommitId,
    /// Commit that is brought in.
    pub theirs_commit: CommitId,
    /// Modification time of joined texts.
    pub time: Timestamp,
    /// Only changes of these paths are brought in; `None` for all.
    pub filter: Option<PathFilter<'a>>,
}

impl std::fmt::Debug for MergeOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergeOptions")
            .field("labels", &self.labels)
            .field("theirs_commit", &self.theirs_commit)
            .finish_non_exhaustive()
    }
}

/// What a merge comes to.
#[derive(Debug, Clone)]
pub struct MergePlan {
    /// The edit over `ours`.
    pub edit: SnapshotEdit,
    /// What could not be joined, by path.
    pub conflicts: Vec<Conflict>,
}

/// An inode at a path, and its identity if it has several names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    inode: Inode,
    link: Option<LinkId>,
}

impl Found {
    fn is_directory(&self) -> bool {
        matches!(self.inode.node, Node::Directory { .. })
    }

    fn entry(&self) -> TreeEntry {
        match self.link {
            Some(id) => TreeEntry::Link(id),
            None => TreeEntry::Inline(self.inode.clone()),
        }
    }
}

/// What one side did to a path.
#[derive(Debug, Clone)]
struct Change {
    old: Option<Found>,
    new: Option<Found>,
}

impl Change {
    /// There is something else there now: more than another time.
    fn matters(&self) -> bool {
        match (&self.old, &self.new) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(old), Some(new)) => !is_same_but_time(&old.inode, &new.inode),
        }
    }
}

type Changes = BTreeMap<Vec<u8>, Change>;

/// Merges what `theirs` changed since `base` into `ours`.
///
/// # Errors
/// Errors of the reader.
pub fn merge_roots(
    reader: &dyn ObjectReader,
    base: &Root,
    ours: &Root,
    theirs: &Root,
    options: &MergeOptions<'_>,
) -> Result<MergePlan> {
    let mut merge = Merge {
        reader,
        options,
        base,
        ours,
        theirs,
        our_changes: changes(reader, base, ours)?,
        their_changes: changes(reader, base, theirs)?,
        outcomes: BTreeMap::new(),
        conflicts: BTreeMap::new(),
        links: BTreeMap::new(),
        joined: BTreeSet::new(),
        settled: BTreeSet::new(),
        closed: BTreeSet::new(),
    };
    if let Some(filter) = options.filter {
        merge.their_changes.retain(|path, _| filter(path));
    }
    merge.merge_links()?;
    merge.follow_renames()?;
    let paths: Vec<Vec<u8>> = merge.their_changes.keys().cloned().collect();
    for path in paths {
        if !merge.settled.contains(&path) && !merge.is_closed(&path) {
            merge.path(&path)?;
        }
    }
    merge.keep_last_names()?;
    merge.keep_directories()?;
    merge.make_directories()?;
    let conflicts = std::mem::take(&mut merge.conflicts);
    Ok(MergePlan {
        edit: assemble::assemble(reader, ours, theirs, merge.outcomes, merge.links)?,
        conflicts: conflicts.into_values().collect(),
    })
}

fn changes(reader: &dyn ObjectReader, base: &Root, side: &Root) -> Result<Changes> {
    let options = DiffOptions {
        times: true,
        ..DiffOptions::default()
    };
    let entries = diff_roots(reader, base, side, &options)?;
    let found = |inode: Option<Inode>, link| inode.map(|inode| Found { inode, link });
    Ok(entries
        .into_iter()
        .map(|entry| {
            let change = Change {
                old: found(entry.old, entry.old_link),
                new: found(entry.new, entry.new_link),
            };
            (entry.path, change)
        })
        .collect())
}

struct Merge<'a> {
    reader: &'a dyn ObjectReader,
    options: &'a MergeOptions<'a>,
    base: &'a Root,
    ours: &'a Root,
    theirs: &'a Root,
    our_changes: Changes,
    their_changes: Changes,
    /// What becomes of paths of `ours`.
    outcomes: BTreeMap<Vec<u8>, Outcome>,
    conflicts: BTreeMap<Vec<u8>, Conflict>,
    /// Files with several names whose inode changes.
    links: BTreeMap<LinkId, MergedInode>,
    /// Paths of files for which both sides' content was looked at.
    joined: BTreeSet<Vec<u8>>,
    /// Paths that a rename has dealt with.
    settled: BTreeSet<Vec<u8>>,
    /// Paths that stay as they are in `ours`, with all below.
    closed: BTreeSet<Vec<u8>>,
}

/// The paths above `path`, the root first, without it.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let root = (!path.is_empty()).then_some(&b""[..]);
    let slashes = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(index, _)| &path[..index]);
    root.into_iter().chain(slashes)
}

/// The part of a map below a directory.
fn below<'m, V>(
    map: &'m BTreeMap<Vec<u8>, V>,
    path: &[u8],
) -> impl Iterator<Item = (&'m Vec<u8>, &'m V)> {
    let prefix = if path.is_empty() {
        Vec::new()
    } else {
        [path, b"/"].concat()
    };
    map.range(prefix.clone()..)
        .take_while(move |(path, _)| path.starts_with(&prefix))
        .filter(|(path, _)| !path.is_empty())
}

fn find(reader: &dyn ObjectReader, root: &Root, path: &[u8]) -> Result<Option<Found>> {
    let Some(entry) = lookup_path(reader, root, &split_path(path)?)? else {
        return Ok(None);
    };
    Ok(Some(Found {
        inode: resolve_entry(reader, root.links, &entry)?,
        link: match entry {
            TreeEntry::Link(id) => Some(id),
            TreeEntry::Inline(_) => None,
        },
    }))
}

impl Merge<'_> {
    /// What `ours` has at a path.
    fn ours_at(&self, path: &[u8]) -> Result<Option<Found>> {
        match self.our_changes.get(path) {
            Some(change) => Ok(change.new.clone()),
            None => find(self.reader, self.ours, path),
        }
    }

    fn theirs_at(&self, path: &[u8]) -> Result<Option<Found>> {
        find(self.reader, self.theirs, path)
    }

    fn is_closed(&self, path: &[u8]) -> bool {
        !self.closed.is_empty()
            && (self.closed.contains(path)
                || parents(path).any(|parent| self.closed.contains(parent)))
    }

    fn is_linked_in(&self, root: &Root, id: LinkId) -> Result<bool> {
        Ok(match root.links {
            Some(links) => self.reader.link(links, id)?.is_some(),
            None => false,
        })
    }

    /// Whether all three versions have this file with several names: then it is merged once for
    /// all of them.
    fn is_shared(&self, id: LinkId) -> Result<bool> {
        Ok(self.is_linked_in(self.base, id)?
            && self.is_linked_in(self.ours, id)?
            && self.is_linked_in(self.theirs, id)?)
    }

    fn is_same(&self, left: Option<&Found>, right: Option<&Found>) -> Result<bool> {
        Ok(match (left, right) {
            (Some(left), Some(right)) if left.is_directory() && right.is_directory() => {
                left.inode.attributes == right.inode.attributes
            }
            (Some(left), Some(right)) if left.link.is_some() && left.link == right.link => {
                let id = left.link.expect("it was just compared");
                left.inode == right.inode || self.is_shared(id)?
            }
            _ => left == right,
        })
    }

    fn conflict(
        &mut self,
        path: &[u8],
        reason: ConflictReason,
        sides: [Option<&Found>; 3],
        beside: Option<Vec<u8>>,
    ) {
        let [base, ours, theirs] = sides.map(|side| side.map(|found| found.inode.clone()));
        self.conflicts.insert(
            path.to_vec(),
            Conflict {
                path: path.into(),
                reason,
                base_commit: self.options.base_commit,
                theirs_commit: self.options.theirs_commit,
                theirs_label: self.options.labels.theirs.clone(),
                base,
                ours,
                theirs,
                beside: beside.map(Into::into),
            },
        );
    }

    /// Merges the inodes of files with several names, once for all names.
    fn merge_links(&mut self) -> Result<()> {
        let (Some(base), Some(theirs)) = (self.base.links, self.theirs.links) else {
            return Ok(());
        };
        if base == theirs {
            return Ok(());
        }
        let base: BTreeMap<_, _> = self.reader.links(base)?.into_iter().collect();
        for (id, theirs) in self.reader.links(theirs)? {
            let (Some(base), Some(our_links)) = (base.get(&id), self.ours.links) else {
                continue;
            };
            let Some(ours) = self.reader.link(our_links, id)? else {
                continue;
            };
            let (base, ours, theirs) = (&base.inode, &ours.inode, &theirs.inode);
            if theirs == base || theirs == ours {
                continue;
            }
            let mut names = self.their_changes.iter().filter(|(_, change)| {
                let is_name = |found: &Option<Found>| {
                    found.as_ref().is_some_and(|found| found.link == Some(id))
                };
                is_name(&change.new) || is_name(&change.old)
            });
            // None is wanted.
            let Some((first, _)) = names.next() else {
                continue;
            };
            let path = self.name_in_ours(id, first)?;
            let found = |inode: &Inode| Found {
                inode: inode.clone(),
                link: Some(id),
            };
            let sides = [found(base), found(ours), found(theirs)];
            let [base, ours, theirs] = &sides;
            if !is_same_kind(&ours.inode, &theirs.inode) || !is_same_kind(&base.inode, &ours.inode)
            {
                let beside = self.place_beside(&path, theirs)?;
                let sides = [Some(base), Some(ours), Some(theirs)];
                self.conflict(&path, ConflictReason::Kind, sides, Some(beside));
                continue;
            }
            let joined = merge_inodes(
                self.reader,
                Some(&base.inode),
                &ours.inode,
                &theirs.inode,
                self.options,
            )?;
            if let Some(reason) = joined.reason {
                let beside = match joined.is_apart {
                    true => Some(self.place_beside(&path, theirs)?),
                    false => None,
                };
                let sides = [Some(base), Some(ours), Some(theirs)];
                self.conflict(&path, reason, sides, beside);
            }
            let ours = &ours.inode;
            if joined.inode != MergedInode::from(ours.clone()) {
                self.links.insert(id, joined.inode);
            }
        }
        Ok(())
    }

    /// The first name that `ours` has for a file with several names.
    fn name_in_ours(&self, id: LinkId, known: &[u8]) -> Result<Vec<u8>> {
        let is_name = |found: Option<Found>| found.is_some_and(|found| found.link == Some(id));
        for path in self.their_changes.keys().chain(self.our_changes.keys()) {
            if is_name(self.ours_at(path)?) {
                return Ok(path.clone());
            }
        }
        Ok(known.to_vec())
    }

    /// Merges one path that `theirs` changed.
    fn path(&mut self, path: &[u8]) -> Result<()> {
        let change = self.their_changes[path].clone();
        let (base, theirs) = (change.old.as_ref(), change.new.as_ref());
        if change.matters() && self.is_blocked(path)? {
            return Ok(());
        }
        let ours = match self.our_changes.get(path) {
            Some(change) => change.new.clone(),
            None => change.old.clone(),
        };
        let ours = ours.as_ref();
        if self.is_same(base, theirs)? || self.is_same(ours, theirs)? {
            return Ok(());
        }
        if self.is_same(base, ours)? {
            return self.take(path, base, ours, theirs);
        }
        match (base, ours, theirs) {
            (Some(base), None, Some(theirs)) if !is_same_but_time(&base.inode, &theirs.inode) => {
                let sides = [Some(base), None, Some(theirs)];
                self.conflict(path, ConflictReason::Deleted, sides, None);
                self.put(path, theirs)?;
            }
            (Some(base), Some(ours), None) => {
                if is_same_but_time(&base.inode, &ours.inode) {
                    self.outcomes.insert(path.to_vec(), Outcome::Remove);
                } else {
                    let sides = [Some(base), Some(ours), None];
                    self.conflict(path, ConflictReason::Deleted, sides, None);
                }
            }
            (base, Some(ours), Some(theirs)) if is_same_kind(&ours.inode, &theirs.inode) => {
                self.join(path, base, ours, theirs)?;
            }
            (base, Some(ours), Some(theirs)) => {
                let is_touched = |side: &Found| {
                    base.is_some_and(|base| is_same_but_time(&base.inode, &side.inode))
                };
                if is_touched(theirs) {
                    // What is changed below it finds out by itself.
                } else if is_touched(ours) {
                    self.take(path, base, Some(ours), Some(theirs))?;
                } else {
                    self.keep_apart(path, base, ours, theirs)?;
                }
            }
            // Both sides deleted it, only one made it, or ours deleted what theirs left alone.
            _ => {}
        }
        Ok(())
    }

    /// Whether a directory above the path is no directory in `ours`; then all that `theirs` has
    /// there is put beside it.
    fn is_blocked(&mut self, path: &[u8]) -> Result<bool> {
        for parent in parents(path) {
            let Some(ours) = self.ours_at(parent)? else {
                return Ok(false);
            };
            let becomes_directory =
                matches!(self.outcomes.get(parent), Some(Outcome::Directory(_)));
            if !ours.is_directory() && !becomes_directory {
                if let Some(theirs) = self.theirs_at(parent)? {
                    let base = find(self.reader, self.base, parent)?;
                    let parent = parent.to_vec();
                    self.keep_apart(&parent, base.as_ref(), &ours, &theirs)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes what `theirs` has, where `ours` changed nothing.
    fn take(
        &mut self,
        path: &[u8],
        base: Option<&Found>,
        ours: Option<&Found>,
        theirs: Option<&Found>,
    ) -> Result<()> {
        let Some(theirs) = theirs else {
            self.outcomes.insert(path.to_vec(), Outcome::Remove);
            return Ok(());
        };
        let replaced = ours.filter(|ours| ours.is_directory() && !theirs.is_directory());
        if let Some(ours) = replaced {
            let has_changes = below(&self.our_changes, path)
                .any(|(path, change)| change.matters() && !self.settled.contains(path));
            if has_changes {
                return self.keep_apart(path, base, ours, theirs);
            }
        }
        self.put(path, theirs)
    }

    /// Puts an entry of `theirs` at its path, without what is below it.
    fn put(&mut self, path: &[u8], theirs: &Found) -> Result<()> {
        let outcome = if theirs.is_directory() {
            Outcome::Directory(theirs.inode.attributes.clone())
        } else {
            let link = self.their_link(theirs.link)?;
            let inode = match link {
                // Another name of a file that is merged by itself.
                Some(Link::Ours(id)) => self.merged_link(id)?,
                _ => None,
            };
            let inode = inode.unwrap_or_else(|| theirs.inode.clone().into());
            Outcome::File { inode, link }
        };
        self.outcomes.insert(path.to_vec(), outcome);
        Ok(())
    }

    fn their_link(&self, link: Option<LinkId>) -> Result<Option<Link>> {
        Ok(match link {
            Some(id) if self.is_shared(id)? => Some(Link::Ours(id)),
            Some(id) => Some(Link::Theirs(id)),
            None => None,
        })
    }

    /// What becomes of a file of `ours` with several names.
    fn merged_link(&self, id: LinkId) -> Result<Option<MergedInode>> {
        if let Some(merged) = self.links.get(&id) {
            return Ok(Some(merged.clone()));
        }
        Ok(match self.ours.links {
            Some(links) => self
                .reader
                .link(links, id)?
                .map(|linked| linked.inode.into()),
            None => None,
        })
    }

    /// The file that a joined entry belongs to: one that either side made of it. It doesn't become
    /// a name of a file that was there before and has other content.
    fn joined_link(
        &self,
        base: Option<LinkId>,
        ours: &Found,
        theirs: &Found,
        inode: &MergedInode,
    ) -> Result<Option<Link>> {
        let link = if ours.link != theirs.link && ours.link == base {
            self.their_link(theirs.link)?
        } else {
            ours.link.map(Link::Ours)
        };
        let (id, content) = match link {
            None => return Ok(None),
            Some(Link::Ours(id)) => (id, self.merged_link(id)?),
            Some(Link::Theirs(id)) => (id, Some(theirs.inode.clone().into())),
        };
        let is_old = self.is_linked_in(self.base, id)?;
        Ok(link.filter(|_| !is_old || content.as_ref() == Some(inode)))
    }

    /// Joins two entries of the same kind.
    fn join(
        &mut self,
        path: &[u8],
        base: Option<&Found>,
        ours: &Found,
        theirs: &Found,
    ) -> Result<()> {
        let kin = base.filter(|base| is_same_kind(&base.inode, &ours.inode));
        if ours.is_directory() {
            let (attributes, clashes) = merge_attributes(
                kin.map(|base| &base.inode.attributes),
                &ours.inode.attributes,
                &theirs.inode.attributes,
            );
            if clashes {
                let sides = [base, Some(ours), Some(theirs)];
                self.conflict(path, ConflictReason::Attributes, sides, None);
            }
            if attributes != ours.inode.attributes {
                self.outcomes
                    .insert(path.to_vec(), Outcome::Directory(attributes));
            }
            return Ok(());
        }
        self.joined.insert(path.to_vec());
        let joined = merge_inodes(
            self.reader,
            kin.map(|base| &base.inode),
            &ours.inode,
            &theirs.inode,
            self.options,
        )?;
        if let Some(reason) = joined.reason {
            let beside = match joined.is_apart {
                true => Some(self.place_beside(path, theirs)?),
                false => None,
            };
            self.conflict(path, reason, [base, Some(ours), Some(theirs)], beside);
        }
        let base_link = kin.and_then(|base| base.link);
        let link = self.joined_link(base_link, ours, theirs, &joined.inode)?;
        let is_as_ours = link == ours.link.map(Link::Ours)
            && joined.inode == MergedInode::from(ours.inode.clone());
        if !is_as_ours {
            let inode = joined.inode;
            self.outcomes
                .insert(path.to_vec(), Outcome::File { inode, link });
        }
        Ok(())
    }

    /// Two kinds of files: `ours` stays with all below it, `theirs` is put beside it.
    fn keep_apart(
        &mut self,
        path: &[u8],
        base: Option<&Found>,
        ours: &Found,
        theirs: &Found,
    ) -> Result<()> {
        let beside = self.place_beside(path, theirs)?;
        let sides = [base, Some(ours), Some(theirs)];
        self.conflict(path, ConflictReason::Kind, sides, Some(beside));
        self.closed.insert(path.to_vec());
        Ok(())
    }

    /// Puts what `theirs` has at a path, with all below it, at a free name beside it.
    fn place_beside(&mut self, path: &[u8], theirs: &Found) -> Result<Vec<u8>> {
        let target = self.free_name(path)?;
        let mut pending = vec![(target.clone(), theirs.inode.clone())];
        while let Some((path, inode)) = pending.pop() {
            if let Node::Directory { tree } = inode.node {
                for (name, entry) in self.reader.directory(tree)? {
                    let inode = resolve_entry(self.reader, self.theirs.links, &entry)?;
                    pending.push((join_path(&path, &name), inode));
                }
                self.outcomes
                    .insert(path, Outcome::Directory(inode.attributes));
            } else {
                let inode = inode.into();
                self.outcomes
                    .insert(path, Outcome::File { inode, link: None });
            }
        }
        Ok(target)
    }

    fn free_name(&self, path: &[u8]) -> Result<Vec<u8>> {
        let start = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let (directory, name) = path.split_at(start);
        for number in 1_u64.. {
            let commit = &self.options.theirs_commit.to_hex()[..8];
            let suffix = match number {
                1 => format!(".theirs-{commit}"),
                number => format!(".theirs-{commit}-{number}"),
            };
            let mut end = name.len().min(NAME_MAX_BYTES - suffix.len());
            // A character is not cut in two.
            while end < name.len() && end > 1 && name[end] & 0xc0 == 0x80 {
                end -= 1;
            }
            let candidate = [directory, &name[..end], suffix.as_bytes()].concat();
            let is_free = !self.outcomes.contains_key(&candidate)
                && self.ours_at(&candidate)?.is_none()
                && self.theirs_at(&candidate)?.is_none();
            if is_free {
                return Ok(candidate);
            }
        }
        unreachable!("there are more numbers than names")
    }

    /// A file with several names does not go away because each side took away other names of it, or
    /// one side all of them and the other one changed it.
    fn keep_last_names(&mut self) -> Result<()> {
        let (Some(base_links), Some(our_links)) = (self.base.links, self.ours.links) else {
            return Ok(());
        };
        let mut lost: BTreeMap<LinkId, Vec<Vec<u8>>> = BTreeMap::new();
        let mut staying = BTreeSet::new();
        for (path, outcome) in &self.outcomes {
            let stays = match outcome {
                Outcome::File {
                    link: Some(Link::Ours(id)),
                    ..
                } => Some(*id),
                _ => None,
            };
            staying.extend(stays);
            if let Some(id) = self.ours_at(path)?.and_then(|ours| ours.link)
                && stays != Some(id)
            {
                lost.entry(id).or_default().push(path.clone());
            }
        }
        for (id, paths) in lost {
            let (Some(base), Some(ours)) = (
                self.reader.link(base_links, id)?,
                self.reader.link(our_links, id)?,
            ) else {
                continue;
            };
            let differs = |inode: &MergedInode| inode.differs_but_for_time(&base.inode);
            let is_changed = self.links.get(&id).is_some_and(differs)
                || !is_same_but_time(&base.inode, &ours.inode);
            let has_names = (paths.len() as u64) < u64::from(ours.link_count);
            // A join at one of its names saw what `ours` did to it, but not what `theirs` did.
            let is_joined = !self.links.contains_key(&id)
                && paths.iter().any(|path| self.joined.contains(path));
            if has_names || is_joined || staying.contains(&id) {
                continue;
            }
            // `ours` has it, or it wouldn't be lost here.
            if is_changed || self.is_linked_in(self.theirs, id)? {
                self.keep_name(id, &paths, &base.inode, &ours.inode)?;
            }
        }
        Ok(())
    }

    /// Keeps one name of a file that would have none.
    fn keep_name(
        &mut self,
        id: LinkId,
        paths: &[Vec<u8>],
        base: &Inode,
        ours: &Inode,
    ) -> Result<()> {
        let found = |inode: &Inode| Found {
            inode: inode.clone(),
            link: Some(id),
        };
        let theirs = match self.theirs.links {
            Some(links) => self
                .reader
                .link(links, id)?
                .map(|linked| found(&linked.inode)),
            None => None,
        };
        let is_file = |path: &[u8]| matches!(self.outcomes.get(path), Some(Outcome::File { .. }));
        let free = paths
            .iter()
            .find(|path| {
                matches!(self.outcomes.get(*path), Some(Outcome::Remove))
                    && !parents(path).any(is_file)
            })
            .cloned();
        let (path, beside) = match free {
            Some(path) => {
                self.outcomes.remove(&path);
                (path, None)
            }
            None => {
                let path = paths[0].clone();
                let taken = parents(&path)
                    .find(|parent| is_file(parent))
                    .unwrap_or(&path);
                let beside = self.free_name(taken)?;
                let inode = self.merged_link(id)?.unwrap_or_else(|| ours.clone().into());
                self.outcomes
                    .insert(beside.clone(), Outcome::File { inode, link: None });
                (path, Some(beside))
            }
        };
        let (base, ours) = (found(base), found(ours));
        let sides = [Some(&base), Some(&ours), theirs.as_ref()];
        self.conflict(&path, ConflictReason::Deleted, sides, beside);
        let parents: Vec<Vec<u8>> = parents(&path).map(<[u8]>::to_vec).collect();
        for parent in parents {
            if matches!(self.outcomes.get(&parent), Some(Outcome::Remove)) {
                self.outcomes.remove(&parent);
            }
        }
        Ok(())
    }

    /// Directories that `theirs` deleted stay for what `ours` changed in them.
    fn keep_directories(&mut self) -> Result<()> {
        let mut kept = Vec::new();
        for (path, change) in &self.our_changes {
            let goes = matches!(self.outcomes.get(path), Some(Outcome::Remove));
            if !change.matters() || goes {
                continue;
            }
            let gone: Vec<Vec<u8>> = parents(path)
                .filter(|parent| matches!(self.outcomes.get(*parent), Some(Outcome::Remove)))
                .map(<[u8]>::to_vec)
                .collect();
            if !gone.is_empty() {
                kept.push((path.clone(), gone));
            }
        }
        let paths: BTreeMap<Vec<u8>, ()> =
            kept.iter().map(|(path, _)| (path.clone(), ())).collect();
        for (path, gone) in kept {
            for parent in gone {
                self.outcomes.remove(&parent);
            }
            let change = self.our_changes[&path].clone();
            let is_last = below(&paths, &path).next().is_none();
            if is_last && !self.conflicts.contains_key(&path) {
                let theirs = self.theirs_at(&path)?;
                let sides = [change.old.as_ref(), change.new.as_ref(), theirs.as_ref()];
                self.conflict(&path, ConflictReason::DirectoryDeleted, sides, None);
            }
        }
        Ok(())
    }

    /// Directories that `ours` lacks come for what is put into them.
    fn make_directories(&mut self) -> Result<()> {
        let placed: Vec<Vec<u8>> = self
            .outcomes
            .iter()
            .filter(|(_, outcome)| !matches!(outcome, Outcome::Remove))
            .map(|(path, _)| path.clone())
            .collect();
        let mut brought = BTreeMap::new();
        for path in placed {
            let mut was_deleted = false;
            let parents: Vec<Vec<u8>> = parents(&path).map(<[u8]>::to_vec).collect();
            for parent in parents {
                if matches!(self.outcomes.get(&parent), Some(Outcome::Remove)) {
                    self.outcomes.remove(&parent);
                }
                if self.outcomes.contains_key(&parent) || self.ours_at(&parent)?.is_some() {
                    was_deleted |= brought.get(&parent).copied().unwrap_or(false);
                    continue;
                }
                let Some(theirs) = self.theirs_at(&parent)? else {
                    continue;
                };
                let is_deleted = find(self.reader, self.base, &parent)?.is_some();
                was_deleted |= is_deleted;
                brought.insert(parent.clone(), is_deleted);
                self.outcomes
                    .insert(parent, Outcome::Directory(theirs.inode.attributes));
            }
            let is_last = !below(&self.outcomes, &path)
                .any(|(_, outcome)| !matches!(outcome, Outcome::Remove));
            if was_deleted && is_last && !self.conflicts.contains_key(&path) {
                let change = self.their_changes.get(&path).cloned();
                let (base, theirs) = change.map_or((None, None), |change| (change.old, change.new));
                let ours = self.ours_at(&path)?;
                let sides = [base.as_ref(), ours.as_ref(), theirs.as_ref()];
                self.conflict(&path, ConflictReason::DirectoryDeleted, sides, None);
            }
        }
        Ok(())
    }
}

/// The name that something had which a merge put beside it (`NAME.theirs-01234567`, with a number if
/// that was taken): who may not have the one may not have the other.
pub(crate) fn name_before_merge(name: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b".theirs-";
    let at = name.windows(MARK.len()).rposition(|part| part == MARK)?;
    let rest = &name[at + MARK.len()..];
    let (commit, number) = rest.split_at_checked(8)?;
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let is_suffix = number.is_empty() || number.strip_prefix(b"-").is_some_and(is_number);
    let is_ours = at > 0 && commit.iter().all(u8::is_ascii_hexdigit) && is_suffix;
    is_ours.then(|| &name[..at])
}

#[cfg(test)]
mod tests;
