//! Taking the content of paths out of all versions, for good.
//!
//! Directories and commits stay, with their ids: who reads the content is told that it was purged.
//! What is stored for other paths as well stays.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::audit::AuditRecord;
use crate::db::objects::Family;
use crate::db::{audit, purge, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, ChunkId, CommitId, TreeId, WorkspaceId};
use crate::lookup::{lookup_path, resolve_entry};
use crate::object::codec::{StoredNode, link_of_key};
use crate::object::{Inode, LinkId, Name, Node, Root, TreeEntry};
use crate::path::{display_path, is_at_or_below, split_path};
use crate::reader::ObjectReader;
use crate::store::{Store, now_ns};
use crate::trees::NodeReader;

/// A node of a directory, and the purged paths as seen from there.
type Place = (TreeId, Vec<Vec<Name>>);

/// Attempts to empty the database's log while others read.
const EMPTYING_ATTEMPTS: u32 = 50;

/// What a purge would remove.
#[derive(Debug, Clone, Default)]
pub struct PurgePlan {
    /// Contents that go, with their lengths.
    pub contents: Vec<(BlobId, u64)>,
    /// Commits that have the paths.
    pub commits: BTreeSet<CommitId>,
    /// Contents that stay, because other paths have them, too.
    pub shared: usize,
    /// Where the paths are still there: workspace and branch.
    pub present: Vec<(String, String)>,
    chunks: BTreeSet<ChunkId>,
}

impl Store {
    /// Finds the contents that `paths`, and what is below them, ever had in the history of a
    /// workspace and of all workspaces and branches that share commits with it.
    ///
    /// Cost: all versions of all directories of the store are read once.
    ///
    /// # Errors
    /// `InvalidInput` for no paths and for paths that can't be; errors of the database.
    pub fn plan_purge(&self, workspace: WorkspaceId, paths: &[Vec<u8>]) -> Result<PurgePlan> {
        let mut names = Vec::new();
        for path in paths {
            let path = split_path(path)?;
            if path.is_empty() {
                return Err(StoreError::new(
                    ErrorKind::InvalidInput,
                    "the root of a workspace can't be purged",
                )
                .with_hint("name the paths whose content is to go"));
            }
            names.push(path);
        }
        let mut found = Found {
            store: self,
            blobs: BTreeSet::new(),
            linked: BTreeSet::new(),
        };
        let mut plan = PurgePlan::default();
        let head = self.workspace_head(workspace)?;
        let mut families = Families::default();
        let mut roots = Vec::new();
        self.inner.each_object(Family::Commit, |id| {
            let id = CommitId(id);
            families.add(id, &self.commit(id)?.parents);
            roots.push(id);
            Ok(())
        })?;
        let mut places = HashSet::new();
        for id in roots {
            let commit = self.commit(id)?;
            let is_kin = families.are_kin(id, head);
            let paths = if is_kin { names.clone() } else { Vec::new() };
            // A link table has no paths: here they say that its commit is kin.
            places.extend(commit.root.links.map(|links| (links, paths.clone())));
            places.insert((commit.root.tree, paths));
            for path in names.iter().filter(|_| is_kin) {
                if found.collect(&commit.root, path)? {
                    plan.commits.insert(id);
                }
            }
        }
        for info in self.workspaces()? {
            for branch in self.branches(info.id)? {
                let root = self.commit(branch.commit)?.root.clone();
                for path in &names {
                    let is_there = lookup_path(self, &root, path)?.is_some();
                    if is_there && families.are_kin(branch.commit, head) {
                        plan.present.push((info.name.clone(), branch.name.clone()));
                    }
                }
            }
        }
        found.leave_shared(&mut plan, paths, places)?;
        Ok(plan)
    }

    /// Removes what a plan names, for good: neither the database nor its log has it afterwards.
    ///
    /// Durability: the content is gone when this returns. It can't be undone.
    ///
    /// # Errors
    /// `Busy` if readers keep the database's log from being emptied; then the content is removed,
    /// but its bytes may be in the log until the next purge.
    pub fn purge(
        &self,
        workspace: WorkspaceId,
        plan: &PurgePlan,
        paths: &[Vec<u8>],
        author: &str,
        source: &str,
    ) -> Result<()> {
        let (contents, chunks) = (plan.contents.clone(), plan.chunks.clone());
        let paths: Vec<String> = paths.iter().map(|path| display_path(path)).collect();
        let record = AuditRecord {
            principal: author.to_owned(),
            source: source.to_owned(),
            action: "purge".to_owned(),
            workspace: Some(workspace),
            object: paths.join(", "),
            outcome: "ok".to_owned(),
            details: serde_json::json!({
                "contents": contents.iter().map(|(blob, _)| blob.to_hex()).collect::<Vec<_>>(),
                "commits": plan.commits.len(),
            }),
        };
        self.inner
            .database
            .alone(|connection| purge::overwrite_deleted(connection, true))?;
        let removed = self.inner.database.write(move |connection| {
            let time_ns = now_ns();
            for chunk in &chunks {
                purge::remove_chunk(connection, *chunk)?;
            }
            for (blob, size) in &contents {
                purge::remove_blob(connection, *blob, *size, time_ns)?;
            }
            audit::append(connection, time_ns, &record)?;
            Ok(())
        });
        self.inner.blob_cache.clear();
        let rewritten = removed.and_then(|()| self.rewrite_database());
        self.inner
            .database
            .alone(|connection| purge::overwrite_deleted(connection, false))?;
        rewritten
    }

    fn rewrite_database(&self) -> Result<()> {
        self.inner.database.alone(purge::rewrite)?;
        for _ in 0..EMPTYING_ATTEMPTS {
            if self.inner.database.alone(purge::empty_log)? {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Err(StoreError::new(
            ErrorKind::Busy,
            "the content is removed, but its bytes may still be in the database's log, which is read",
        )
        .with_hint("purge the path again when the store is quiet"))
    }

    /// Whether content was purged.
    ///
    /// # Errors
    /// Of the database.
    pub fn is_purged(&self, blob: BlobId) -> Result<bool> {
        self.inner
            .database
            .read(|connection| Ok(purge::purged_ns(connection, blob)?.is_some()))
    }

    /// What who reads purged content is told; `None` for other content.
    ///
    /// # Errors
    /// Of the database.
    pub fn purged_error(&self, blob: BlobId) -> Result<Option<StoreError>> {
        self.inner.database.read(|connection| {
            let time_ns = purge::purged_ns(connection, blob)?;
            Ok(time_ns.map(|time_ns| crate::blobs::purged(blob, time_ns)))
        })
    }

    /// Whether anything was ever purged.
    ///
    /// # Errors
    /// Of the database.
    pub fn has_purged(&self) -> Result<bool> {
        self.inner.database.read(purge::has_any)
    }

    fn workspace_head(&self, workspace: WorkspaceId) -> Result<CommitId> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            let branch = refs::default_branch(connection, number)?;
            Ok(refs::require_branch(connection, number, &branch)?.commit)
        })
    }
}

/// Which commits share history.
#[derive(Debug, Default)]
struct Families {
    numbers: HashMap<CommitId, usize>,
    /// For each number a smaller one of the same family, or itself.
    elders: Vec<usize>,
}

impl Families {
    fn add(&mut self, commit: CommitId, parents: &[CommitId]) {
        let number = self.number(commit);
        for parent in parents {
            let parent = self.number(*parent);
            let (one, other) = (self.eldest(number), self.eldest(parent));
            self.elders[one.max(other)] = one.min(other);
        }
    }

    fn number(&mut self, commit: CommitId) -> usize {
        let next = self.elders.len();
        let number = *self.numbers.entry(commit).or_insert(next);
        if number == next {
            self.elders.push(next);
        }
        number
    }

    fn eldest(&self, mut number: usize) -> usize {
        while self.elders[number] != number {
            number = self.elders[number];
        }
        number
    }

    fn are_kin(&self, one: CommitId, other: CommitId) -> bool {
        match (self.numbers.get(&one), self.numbers.get(&other)) {
            (Some(one), Some(other)) => self.eldest(*one) == self.eldest(*other),
            _ => false,
        }
    }
}

/// What was found at the paths.
struct Found<'a> {
    store: &'a Store,
    blobs: BTreeSet<(BlobId, u64)>,
    /// Those of files with several names, by the file.
    linked: BTreeSet<(LinkId, BlobId)>,
}

impl Found<'_> {
    /// Collects what is at a path and below it; whether there is anything.
    fn collect(&mut self, root: &Root, names: &[Name]) -> Result<bool> {
        match lookup_path(self.store, root, names)? {
            Some(entry) => {
                self.entry(root, &entry)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn entry(&mut self, root: &Root, entry: &TreeEntry) -> Result<()> {
        let inode = resolve_entry(self.store, root.links, entry)?;
        match inode.node {
            Node::Regular { blob, size, .. } if size > 0 => {
                self.blobs.insert((blob, size));
                if let TreeEntry::Link(link) = entry {
                    self.linked.insert((*link, blob));
                }
            }
            Node::Directory { tree } => {
                for (_, entry) in ObjectReader::directory(self.store, tree)? {
                    self.entry(root, &entry)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes out what other paths have, too, in any version, and finds the chunks that go. `places`
    /// are the top nodes of all versions, each with the paths below it that are purged.
    fn leave_shared(
        self,
        plan: &mut PurgePlan,
        paths: &[Vec<u8>],
        places: HashSet<Place>,
    ) -> Result<()> {
        let wanted: BTreeSet<BlobId> = self.blobs.iter().map(|(blob, _)| *blob).collect();
        let mut shared = BTreeSet::new();
        // Files with several names that have one outside of the paths.
        let mut linked_elsewhere = BTreeSet::new();
        // Contents elsewhere: they may be the chunks of what is wanted.
        let mut others = BTreeSet::new();
        let inner = &self.store.inner;
        let mut waiting: Vec<Place> = places.iter().cloned().collect();
        let mut seen = places;
        while let Some((id, purged)) = waiting.pop() {
            let mut meet = |blob: BlobId, is_ours: bool| {
                if !wanted.contains(&blob) {
                    others.insert(ChunkId(blob.0));
                } else if !is_ours {
                    shared.insert(blob);
                }
            };
            let mut below: Vec<Place> = Vec::new();
            match inner.node(id)?.as_ref() {
                StoredNode::Leaf(entries) => {
                    for (name, entry) in entries {
                        let rests: Vec<Vec<Name>> = purged
                            .iter()
                            .filter(|path| path.first() == Some(name))
                            .map(|path| path[1..].to_vec())
                            .collect();
                        if rests.iter().any(Vec::is_empty) {
                            continue;
                        }
                        match entry {
                            TreeEntry::Inline(Inode {
                                node: Node::Regular { blob, .. },
                                ..
                            }) => meet(*blob, false),
                            TreeEntry::Inline(Inode {
                                node: Node::Directory { tree },
                                ..
                            }) => below.push((*tree, rests)),
                            TreeEntry::Link(link) => {
                                linked_elsewhere.insert(*link);
                            }
                            _ => {}
                        }
                    }
                }
                StoredNode::LinkLeaf(entries) => {
                    for (key, linked) in entries {
                        if let Node::Regular { blob, .. } = linked.inode.node {
                            let link = link_of_key(key);
                            let is_ours =
                                link.is_some_and(|link| self.linked.contains(&(link, blob)));
                            meet(blob, is_ours && !purged.is_empty());
                        }
                    }
                }
                StoredNode::Inner(children) => {
                    below.extend(children.iter().map(|child| (child.node, purged.clone())));
                }
            }
            waiting.extend(below.into_iter().filter(|place| seen.insert(place.clone())));
        }
        for (link, blob) in &self.linked {
            if linked_elsewhere.contains(link) {
                shared.insert(*blob);
            }
        }
        for commit in &plan.commits {
            for conflict in self.store.conflicts(*commit)?.entries() {
                let is_ours = paths
                    .iter()
                    .any(|path| is_at_or_below(&conflict.path, path));
                for side in [&conflict.base, &conflict.ours, &conflict.theirs] {
                    if let Some(Inode {
                        node: Node::Regular { blob, .. },
                        ..
                    }) = side
                        && wanted.contains(blob)
                        && !is_ours
                    {
                        shared.insert(*blob);
                    }
                }
            }
        }
        let mut kept = others;
        let mut gone = BTreeSet::new();
        inner.each_object(Family::Manifest, |id| {
            let blob = BlobId(id);
            if let Some(manifest) = inner.load_manifest(blob)? {
                let goes = wanted.contains(&blob) && !shared.contains(&blob);
                let chunks = if goes { &mut gone } else { &mut kept };
                chunks.extend(manifest.runs().iter().map(|run| run.chunk));
            }
            Ok(())
        })?;
        kept.extend(shared.iter().map(|blob| ChunkId(blob.0)));
        for (blob, size) in self.blobs {
            if shared.contains(&blob) {
                plan.shared += 1;
            } else if !self.store.is_purged(blob)? {
                gone.insert(ChunkId(blob.0));
                plan.contents.push((blob, size));
            }
        }
        plan.chunks = gone.difference(&kept).copied().collect();
        Ok(())
    }
}
