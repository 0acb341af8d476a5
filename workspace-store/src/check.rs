//! A check of the whole store: every object against its id, every reference against what it names,
//! the audit log against its chain.
//!
//! Reads only, and in pages, so that other work goes on meanwhile.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::commits::decode_changes;
use crate::db::objects::{self, Family};
use crate::db::{history, purge, refs};
use crate::error::Result;
use crate::id::{BlobId, ChunkId, CommitId, TreeId};
use crate::limits::CHANGE_LIST_MAX_BYTES;
use crate::object::codec::{StoredNode, link_of_key};
use crate::object::{Inode, LinkId, Node, Root, TreeEntry};
use crate::store::{Inner, Store};
use crate::trees::{self, Entry};

/// Objects between two calls of the progress function.
const PROGRESS_OBJECTS: u64 = 1024;

/// What a check of the whole store found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// Objects that were read and verified.
    pub objects: u64,
    /// What is wrong; empty if the store is sound.
    pub problems: Vec<CheckProblem>,
}

/// One thing wrong with the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckProblem {
    /// What it was found in.
    pub object: String,
    /// What is wrong.
    pub message: String,
}

impl Store {
    /// Checks the whole store; `progress` is called with the number of objects verified.
    ///
    /// # Errors
    /// Only if the check itself can't go on; what is wrong with the store is in the report.
    pub fn check(&self, progress: &dyn Fn(u64)) -> Result<CheckReport> {
        let mut check = Check {
            store: &self.inner,
            progress,
            report: CheckReport::default(),
            chunk_sizes: HashMap::new(),
            blob_sizes: HashMap::new(),
            nodes: HashSet::new(),
        };
        if let Some(problem) = self.inner.database.read(objects::integrity_problem)? {
            check.problem("database", &problem);
        }
        check.chunks()?;
        check.manifests()?;
        check.tree_nodes()?;
        check.commits()?;
        check.heads()?;
        match self.audit_verify() {
            Ok(verification) => {
                if let Some(found) = verification.broken {
                    check.problem(&format!("audit entry {}", found.sequence), &found.reason);
                }
            }
            Err(error) => check.problem("audit log", &error.to_string()),
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    store: &'a Inner,
    progress: &'a dyn Fn(u64),
    report: CheckReport,
    chunk_sizes: HashMap<ChunkId, u64>,
    blob_sizes: HashMap<BlobId, u64>,
    nodes: HashSet<TreeId>,
}

impl Check<'_> {
    fn problem(&mut self, object: &str, message: &str) {
        self.report.problems.push(CheckProblem {
            object: object.to_owned(),
            message: message.to_owned(),
        });
    }

    fn verified(&mut self) {
        self.report.objects += 1;
        if self.report.objects.is_multiple_of(PROGRESS_OBJECTS) {
            (self.progress)(self.report.objects);
        }
    }

    fn each(
        &mut self,
        family: Family,
        mut verify: impl FnMut(&mut Self, [u8; 32]) -> Result<()>,
    ) -> Result<()> {
        let store = self.store;
        store.each_object(family, |id| {
            verify(self, id)?;
            self.verified();
            Ok(())
        })
    }

    fn chunks(&mut self) -> Result<()> {
        self.each(Family::Chunk, |check, id| {
            let id = ChunkId(id);
            match check.store.read_verified_chunk(id) {
                Ok(Some(bytes)) => {
                    check.chunk_sizes.insert(id, bytes.len() as u64);
                }
                Ok(None) => check.problem(&format!("chunk {id}"), "it is missing"),
                Err(error) => check.problem(&format!("chunk {id}"), &error.to_string()),
            }
            Ok(())
        })
    }

    fn manifests(&mut self) -> Result<()> {
        self.each(Family::Manifest, |check, id| {
            let blob = BlobId(id);
            let what = format!("content {blob}");
            let manifest = match check.store.load_manifest(blob) {
                Ok(Some(manifest)) => manifest,
                Ok(None) => return Ok(()),
                Err(error) => {
                    check.problem(&what, &error.to_string());
                    return Ok(());
                }
            };
            let mut hasher = blake3::Hasher::new();
            for run in manifest.runs() {
                let chunk = run.chunk;
                if check.chunk_sizes.get(&chunk) != Some(&u64::from(run.size)) {
                    check.problem(&what, &format!("its chunk {chunk} is missing or damaged"));
                    return Ok(());
                }
                let Ok(Some(bytes)) = check.store.read_verified_chunk(chunk) else {
                    return Ok(());
                };
                for _ in 0..run.repetitions {
                    hasher.update(&bytes);
                }
            }
            if hasher.finalize().as_bytes() == blob.as_bytes() {
                check.blob_sizes.insert(blob, manifest.size());
            } else {
                check.problem(&what, "its chunks joined have another id");
            }
            Ok(())
        })
    }

    fn is_purged(&self, blob: BlobId) -> bool {
        let purged = self
            .store
            .database
            .read(|connection| purge::purged_ns(connection, blob));
        matches!(purged, Ok(Some(_)))
    }

    fn blob_is_sound(&self, blob: BlobId, size: u64) -> bool {
        let stored = self
            .chunk_sizes
            .get(&ChunkId(blob.0))
            .or_else(|| self.blob_sizes.get(&blob))
            .copied();
        if crate::blobs::is_empty_blob(blob) {
            size == 0
        } else {
            stored == Some(size) || self.is_purged(blob)
        }
    }

    fn tree_nodes(&mut self) -> Result<()> {
        let mut references: Vec<(TreeId, TreeId)> = Vec::new();
        self.each(Family::TreeNode, |check, id| {
            let id = TreeId(id);
            let what = format!("directory {id}");
            let node = match check.store.read_verified_node(id) {
                Ok(Some(node)) => node,
                Ok(None) => return Ok(()),
                Err(error) => {
                    check.problem(&what, &error.to_string());
                    return Ok(());
                }
            };
            check.nodes.insert(id);
            let mut inode = |check: &mut Self, name: &[u8], inode: &Inode| match &inode.node {
                Node::Regular { blob, size, .. } if !check.blob_is_sound(*blob, *size) => {
                    let name = name.escape_ascii();
                    check.problem(
                        &what,
                        &format!("the content of '{name}' is missing or damaged"),
                    );
                }
                Node::Directory { tree } => references.push((id, *tree)),
                _ => {}
            };
            match &node {
                StoredNode::Leaf(entries) => {
                    for (name, entry) in entries {
                        if let TreeEntry::Inline(found) = entry {
                            inode(check, name, found);
                        }
                    }
                }
                StoredNode::LinkLeaf(entries) => {
                    for (name, linked) in entries {
                        inode(check, name, &linked.inode);
                    }
                }
                StoredNode::Inner(children) => {
                    references.extend(children.iter().map(|child| (id, child.node)));
                }
            }
            Ok(())
        })?;
        for (from, to) in references {
            if !self.nodes.contains(&to) {
                self.problem(
                    &format!("directory {from}"),
                    &format!("{to} below it is missing"),
                );
            }
        }
        Ok(())
    }

    fn commits(&mut self) -> Result<()> {
        self.each(Family::Commit, |check, id| {
            let id = CommitId(id);
            let what = format!("commit {id}");
            let commit = match check.store.commit(id) {
                Ok(commit) => commit,
                Err(error) => {
                    check.problem(&what, &error.to_string());
                    return Ok(());
                }
            };
            if let Some(conflicts) = commit.conflicts
                && let Err(error) = check.store.conflict_set(conflicts)
            {
                check.problem(&what, &error.to_string());
            }
            for tree in [Some(commit.root.tree), commit.root.links]
                .into_iter()
                .flatten()
            {
                if !check.nodes.contains(&tree) {
                    check.problem(
                        &what,
                        &format!("its directory {tree} is missing or damaged"),
                    );
                }
            }
            let stored = check.store.database.read(|connection| {
                let row = history::require(connection, id)?;
                let parents = history::parents(connection, row.number)?;
                Ok((
                    parents.len(),
                    history::read_changes(connection, row.number)?,
                ))
            });
            match stored {
                Ok((parents, _)) if parents != commit.parents.len() => {
                    check.problem(&what, "a parent is missing");
                }
                Ok((_, None)) => check.problem(&what, "its list of changed paths is missing"),
                Ok((_, Some(packed))) => {
                    let changes = packed
                        .unpack(CHANGE_LIST_MAX_BYTES)
                        .and_then(|encoded| decode_changes(&encoded));
                    if let Err(error) = changes {
                        check.problem(&what, &error.to_string());
                    }
                }
                Err(error) => check.problem(&what, &error.to_string()),
            }
            Ok(())
        })
    }

    /// At every branch and tag: names of files with several names against the link table.
    fn heads(&mut self) -> Result<()> {
        let mut seen = HashSet::new();
        for (what, id) in self.store.database.read(refs::all_heads)? {
            let Ok(commit) = self.store.commit(id) else {
                continue;
            };
            if commit.root.links.is_some() && seen.insert(id) {
                match self.link_problem(&commit.root) {
                    Ok(None) => {}
                    Ok(Some(problem)) => self.problem(&what, &problem),
                    Err(error) => self.problem(&what, &error.to_string()),
                }
            }
        }
        Ok(())
    }

    fn link_problem(&self, root: &Root) -> Result<Option<String>> {
        let mut counts: HashMap<LinkId, u32> = HashMap::new();
        let mut waiting = vec![root.tree];
        while let Some(tree) = waiting.pop() {
            for (_, entry) in trees::all::<Entry<TreeEntry>>(self.store, tree)? {
                match entry {
                    TreeEntry::Link(id) => *counts.entry(id).or_default() += 1,
                    TreeEntry::Inline(Inode {
                        node: Node::Directory { tree },
                        ..
                    }) => {
                        waiting.push(tree);
                    }
                    TreeEntry::Inline(_) => {}
                }
            }
        }
        if let Some(links) = root.links {
            for (key, linked) in trees::all::<Entry<crate::object::LinkedInode>>(self.store, links)?
            {
                let names = link_of_key(&key)
                    .and_then(|id| counts.remove(&id))
                    .unwrap_or(0);
                if names != linked.link_count {
                    return Ok(Some(format!(
                        "a file with {} names in the link table has {names}",
                        linked.link_count
                    )));
                }
            }
        }
        Ok((!counts.is_empty()).then(|| "a name refers to a missing link".to_owned()))
    }
}
