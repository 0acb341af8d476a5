//! The store: opening, closing, and the parts that everything else shares.
//!
//! Threads: a [`Store`] can be used from any thread; clones share it. Changes run on the one
//! thread that owns the write connection, reads on the caller's. Objects are immutable, so that
//! caches never need to be told of a change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::blobs::BlobCache;
use crate::db::Database;
use crate::db::objects::{self, ChunkStore, DatabaseChunks, Family};
use crate::denial::DenialLog;
use crate::error::{ErrorKind, Result, StoreError};
use crate::grant::PolicyCache;
use crate::id::{BlobId, CommitId, TreeId, WorkspaceId};
use crate::limits::{TREE_NODE_CACHE_BYTES, TREE_NODE_MAX_BYTES};
use crate::object::codec::{StoredNode, decode_node, link_of_key, tree_id};
use crate::object::{Commit, LinkId, LinkedInode, Name, Timestamp, TreeEntry};
use crate::reader::{ObjectReader, TreeNode};
use crate::trees::{self, Entry, NodeReader};
use crate::workspace::Statistics;

const COMMITS_CACHED: usize = 1024;

/// How to open a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Make the directory and database if they aren't there.
    pub create: bool,
    /// Threads that hash and compress new content; 0 chooses by the number of processors.
    pub threads: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            create: true,
            threads: 0,
        }
    }
}

/// A store; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What all clones of a [`Store`] share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) directory: PathBuf,
    pub(crate) database: Database,
    pub(crate) chunk_store: Arc<dyn ChunkStore>,
    pub(crate) blob_cache: BlobCache,
    /// Only nodes that are in the database.
    pub(crate) node_cache: Cache<TreeId, Arc<StoredNode>, NodeWeight>,
    pub(crate) commit_cache: Cache<CommitId, Arc<Commit>>,
    pub(crate) threads: usize,
    pub(crate) policies: Arc<PolicyCache>,
    pub(crate) denials: DenialLog,
}

/// About how much memory a decoded node takes.
#[derive(Debug, Clone)]
pub(crate) struct NodeWeight;

impl Weighter<TreeId, Arc<StoredNode>> for NodeWeight {
    fn weight(&self, _: &TreeId, node: &Arc<StoredNode>) -> u64 {
        128 + match node.as_ref() {
            StoredNode::Leaf(entries) => entries.len() as u64 * 160,
            StoredNode::LinkLeaf(entries) => entries.len() as u64 * 160,
            StoredNode::Inner(children) => children.len() as u64 * 80,
        }
    }
}

impl Store {
    /// Opens the store in `directory`.
    ///
    /// Locking: one process at a time; the lock ends with the store or the process.
    ///
    /// # Errors
    /// `Busy` if another process has it open, `NotFound` if there is none and none is to be made,
    /// `Incompatible` or `Corrupt` if the database isn't one that this version can use.
    pub fn open(directory: &Path, options: StoreOptions) -> Result<Self> {
        let database = Database::open(directory, options.create)?;
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(2, |count| count.get().clamp(1, 8)),
            threads => threads,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                directory: directory.to_owned(),
                database,
                chunk_store: Arc::new(DatabaseChunks),
                blob_cache: BlobCache::new(),
                node_cache: Cache::with_weighter(4096, TREE_NODE_CACHE_BYTES, NodeWeight),
                commit_cache: Cache::new(COMMITS_CACHED),
                threads,
                policies: Arc::default(),
                denials: DenialLog::default(),
            }),
        })
    }

    /// Finishes what is queued, closes the database and gives up the lock; later calls fail with
    /// `Unavailable`.
    ///
    /// # Errors
    /// `Io` if the database can't be closed cleanly; nothing that was reported is lost by that.
    pub fn close(&self) -> Result<()> {
        if let Err(error) = self.flush_denials(true) {
            tracing::warn!(?error, "repeated denials were not recorded");
        }
        self.inner.database.close()
    }

    /// Directory of the store.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Sizes of a workspace and of the store around it.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn statistics(&self, workspace: WorkspaceId) -> Result<Statistics> {
        let database_bytes = self.inner.database.size_bytes();
        self.inner.database.read(|connection| {
            let number = crate::db::refs::workspace_number(connection, workspace)?;
            let (commits, branches, tags, operations) =
                crate::db::refs::counts(connection, number)?;
            let (chunks, chunk_bytes, stored_bytes, tree_nodes) = objects::totals(connection)?;
            Ok(Statistics {
                commits,
                branches,
                tags,
                operations,
                chunks,
                chunk_bytes,
                stored_bytes,
                tree_nodes,
                database_bytes,
            })
        })
    }
}

/// Objects that are listed at a time.
const PAGE_ROWS: i64 = 1024;

impl Inner {
    /// Visits the ids of all stored objects of a family.
    ///
    /// # Errors
    /// Of `visit` and the database.
    pub(crate) fn each_object(
        &self,
        family: Family,
        mut visit: impl FnMut([u8; 32]) -> Result<()>,
    ) -> Result<()> {
        let mut after = 0;
        loop {
            let page = self
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

    /// Reads and verifies a node from the database.
    pub(crate) fn read_verified_node(&self, id: TreeId) -> Result<Option<StoredNode>> {
        let packed = self
            .database
            .read(|connection| objects::read_tree_node(connection, id))?;
        let Some(packed) = packed else {
            return Ok(None);
        };
        let encoded = packed.unpack(TREE_NODE_MAX_BYTES)?;
        if tree_id(&encoded) != id {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!("directory {id} has other bytes than its id says"),
            )
            .with_hint("run `kura fsck`"));
        }
        decode_node(&encoded).map(Some)
    }

    /// Whether a node is stored.
    pub(crate) fn has_tree_node(&self, id: TreeId) -> Result<bool> {
        Ok(self.node_cache.peek(&id).is_some()
            || self
                .database
                .read(|connection| objects::has_tree_node(connection, id))?)
    }
}

impl NodeReader for Inner {
    fn node(&self, id: TreeId) -> Result<Arc<StoredNode>> {
        if let Some(node) = self.node_cache.get(&id) {
            return Ok(node);
        }
        let node = self.read_verified_node(id)?.ok_or_else(|| {
            StoreError::new(ErrorKind::Corrupt, format!("directory {id} is missing"))
                .with_hint("run `kura fsck`")
        })?;
        let node = Arc::new(node);
        self.node_cache.insert(id, Arc::clone(&node));
        Ok(node)
    }
}

impl ObjectReader for Store {
    fn tree_node(&self, id: TreeId) -> Result<TreeNode> {
        match self.inner.node(id)?.as_ref() {
            StoredNode::Leaf(entries) => Ok(TreeNode::Leaf(entries.clone())),
            StoredNode::Inner(children) => Ok(TreeNode::Inner(children.clone())),
            StoredNode::LinkLeaf(_) => Err(StoreError::new(
                ErrorKind::InvalidInput,
                format!("{id} is a link table, not a directory"),
            )),
        }
    }

    fn link(&self, links: TreeId, id: LinkId) -> Result<Option<LinkedInode>> {
        trees::lookup_link(self.inner.as_ref(), links, id)
    }

    fn links(&self, links: TreeId) -> Result<Vec<(LinkId, LinkedInode)>> {
        let entries = trees::all::<Entry<LinkedInode>>(self.inner.as_ref(), links)?;
        Ok(entries
            .into_iter()
            .filter_map(|(key, linked)| Some((link_of_key(&key)?, linked)))
            .collect())
    }

    fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.inner.read_blob(blob, offset, buffer)
    }

    fn directory(&self, tree: TreeId) -> Result<Vec<(Name, TreeEntry)>> {
        trees::all::<Entry<TreeEntry>>(self.inner.as_ref(), tree)
    }

    fn lookup(&self, tree: TreeId, name: &[u8]) -> Result<Option<TreeEntry>> {
        trees::lookup_entry(self.inner.as_ref(), tree, name)
    }
}

/// The system's clock now, in nanoseconds, as the database keeps times.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(Timestamp::now().as_nanoseconds()).unwrap_or(i64::MAX)
}
