//! Taking the content of paths out of all versions, for good.
//!
//! Directories and commits stay, with their ids: who reads the content is told that it was purged.
//! What is stored for other paths as well stays.

use std::collections::BTreeSet;

use crate::audit::AuditRecord;
use crate::commits::path_hash;
use crate::db::objects::{self, Family};
use crate::db::{audit, history, purge, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, ChunkId, CommitId, TreeId, WorkspaceId};
use crate::object::codec::StoredNode;
use crate::object::{Inode, Node, Root, TreeEntry};
use crate::path::{display_path, is_at_or_below, split_path};
use crate::reader::{ObjectReader, TreeNode};
use crate::store::{Store, now_ns};
use crate::trees::NodeReader;

const PAGE_ROWS: i64 = 1024;
/// Attempts to empty the database's log while others read.
const REWRITE_ATTEMPTS: u32 = 50;

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
    /// Cost: all directories of the store are read once.
    ///
    /// # Errors
    /// `InvalidInput` for no paths and for paths that can't be; errors of the database.
    pub fn plan_purge(&self, workspace: WorkspaceId, paths: &[Vec<u8>]) -> Result<PurgePlan> {
        let mut found = Found {
            store: self,
            blobs: BTreeSet::new(),
            linked: BTreeSet::new(),
            nodes: BTreeSet::new(),
        };
        let mut plan = PurgePlan::default();
        let head = self.workspace_head(workspace)?;
        for path in paths {
            let names = split_path(path)?;
            if names.is_empty() {
                return Err(StoreError::new(
                    ErrorKind::InvalidInput,
                    "the root of a workspace can't be purged",
                )
                .with_hint("name the paths whose content is to go"));
            }
            for commit in self.commits_touching(path)? {
                if self.merge_base(head, commit)?.is_none() {
                    continue;
                }
                let commit_object = self.commit(commit)?;
                let ids = commit_object.parents.iter().copied().chain([commit]);
                for id in ids {
                    let root = self.commit(id)?.root.clone();
                    if found.collect(&root, path)? {
                        plan.commits.insert(id);
                    }
                }
            }
        }
        for info in self.workspaces()? {
            for branch in self.branches(info.id)? {
                let root = self.commit(branch.commit)?.root.clone();
                for path in paths {
                    let is_there = crate::lookup::lookup_path(self, &root, &split_path(path)?)?;
                    if is_there.is_some() && self.merge_base(head, branch.commit)?.is_some() {
                        plan.present.push((info.name.clone(), branch.name.clone()));
                    }
                }
            }
        }
        found.leave_shared(&mut plan, paths)?;
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
        for _ in 0..REWRITE_ATTEMPTS {
            if self.inner.database.alone(purge::rewrite)? {
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

    fn commits_touching(&self, path: &[u8]) -> Result<Vec<CommitId>> {
        self.inner.database.read(|connection| {
            let numbers = history::touching(connection, path_hash(path))?;
            numbers
                .into_iter()
                .map(|number| Ok(history::read_row(connection, number)?.0))
                .collect()
        })
    }
}

/// What was found at the paths.
struct Found<'a> {
    store: &'a Store,
    blobs: BTreeSet<(BlobId, u64)>,
    /// Those of files with several names.
    linked: BTreeSet<BlobId>,
    /// Nodes of directories that hold the paths.
    nodes: BTreeSet<TreeId>,
}

impl Found<'_> {
    /// Collects what is at a path and below it; whether there is anything.
    fn collect(&mut self, root: &Root, path: &[u8]) -> Result<bool> {
        let mut tree = root.tree;
        let names = split_path(path)?;
        for (depth, name) in names.iter().enumerate() {
            let Some((node, entry)) = self.leaf_of(tree, name)? else {
                return Ok(false);
            };
            if depth + 1 == names.len() {
                self.nodes.insert(node);
                self.entry(root, &entry)?;
                return Ok(true);
            }
            match entry {
                TreeEntry::Inline(Inode {
                    node: Node::Directory { tree: below },
                    ..
                }) => tree = below,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    fn leaf_of(&self, tree: TreeId, name: &[u8]) -> Result<Option<(TreeId, TreeEntry)>> {
        let mut node = tree;
        loop {
            match self.store.tree_node(node)? {
                TreeNode::Leaf(entries) => {
                    let found = entries
                        .into_iter()
                        .find(|(other, _)| other.as_ref() == name);
                    return Ok(found.map(|(_, entry)| (node, entry)));
                }
                TreeNode::Inner(children) => {
                    let index = children.partition_point(|child| child.last_name.as_ref() < name);
                    match children.get(index) {
                        Some(child) => node = child.node,
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    fn entry(&mut self, root: &Root, entry: &TreeEntry) -> Result<()> {
        let inode = crate::lookup::resolve_entry(self.store, root.links, entry)?;
        match inode.node {
            Node::Regular { size: 0, .. } => {}
            Node::Regular { blob, size, .. } => {
                self.blobs.insert((blob, size));
                if matches!(entry, TreeEntry::Link(_)) {
                    self.linked.insert(blob);
                }
            }
            Node::Directory { tree } => {
                let mut pending = vec![tree];
                while let Some(node) = pending.pop() {
                    if !self.nodes.insert(node) && root.links.is_none() {
                        continue;
                    }
                    match self.store.tree_node(node)? {
                        TreeNode::Leaf(entries) => {
                            for (_, entry) in entries {
                                self.entry(root, &entry)?;
                            }
                        }
                        TreeNode::Inner(children) => {
                            pending.extend(children.iter().map(|child| child.node));
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes out what other paths have, too, and finds the chunks that go.
    fn leave_shared(self, plan: &mut PurgePlan, paths: &[Vec<u8>]) -> Result<()> {
        let wanted: BTreeSet<BlobId> = self.blobs.iter().map(|(blob, _)| *blob).collect();
        let mut shared = BTreeSet::new();
        // Contents elsewhere: they may be the chunks of what is wanted.
        let mut others = BTreeSet::new();
        let inner = &self.store.inner;
        each(self.store, Family::TreeNode, |id| {
            let id = TreeId(id);
            let mut meet = |blob: BlobId, is_ours: bool| {
                if !wanted.contains(&blob) {
                    others.insert(ChunkId(blob.0));
                } else if !is_ours {
                    shared.insert(blob);
                }
            };
            match inner.node(id)?.as_ref() {
                StoredNode::Leaf(entries) => {
                    for (_, entry) in entries {
                        if let TreeEntry::Inline(inode) = entry
                            && let Node::Regular { blob, .. } = inode.node
                        {
                            meet(blob, self.nodes.contains(&id));
                        }
                    }
                }
                StoredNode::LinkLeaf(entries) => {
                    for (_, linked) in entries {
                        if let Node::Regular { blob, .. } = linked.inode.node {
                            meet(blob, self.linked.contains(&blob));
                        }
                    }
                }
                StoredNode::Inner(_) => {}
            }
            Ok(())
        })?;
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
        each(self.store, Family::Manifest, |id| {
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

fn each(
    store: &Store,
    family: Family,
    mut visit: impl FnMut([u8; 32]) -> Result<()>,
) -> Result<()> {
    let mut after = 0;
    loop {
        let page = store
            .inner
            .database
            .read(|connection| objects::page(connection, family, after, PAGE_ROWS))?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        after = *last;
        for (_, id) in page {
            visit(id)?;
        }
    }
}
