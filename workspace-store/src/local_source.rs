//! A branch of the local database as a mount sees it.

use std::sync::Arc;

use crate::db::{Connection, overlay, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, TreeId, WorkspaceId};
use crate::object::{LinkId, LinkedInode, Name, TreeEntry};
use crate::reader::ObjectReader;
use crate::source::{Head, InodeRecord, OverlayState, Submission, Submitted, WorkspaceSource};
use crate::store::Store;
use crate::submit::Target;

impl Store {
    /// A branch as a mount sees it.
    ///
    /// # Errors
    /// `NotFound` if there is no such branch.
    pub fn source(&self, workspace: WorkspaceId, branch: &str) -> Result<Arc<dyn WorkspaceSource>> {
        let (workspace_number, branch_number) = self.inner.database.read(|connection| {
            let workspace = refs::workspace_number(connection, workspace)?;
            Ok((
                workspace,
                refs::require_branch(connection, workspace, branch)?.number,
            ))
        })?;
        Ok(Arc::new(LocalSource {
            store: self.clone(),
            target: Target {
                workspace,
                branch: branch.to_owned(),
                source: "mount",
            },
            workspace_number,
            branch_number,
        }))
    }
}

/// A branch of the local database.
#[derive(Debug)]
struct LocalSource {
    store: Store,
    target: Target,
    workspace_number: i64,
    branch_number: i64,
}

impl LocalSource {
    fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.store.inner.database.read(query)
    }
}

impl WorkspaceSource for LocalSource {
    fn head(&self) -> Result<Head> {
        let row = self.read(|connection| {
            refs::require_branch(connection, self.workspace_number, &self.target.branch)
        })?;
        if row.number != self.branch_number {
            return Err(StoreError::new(
                ErrorKind::NotFound,
                format!(
                    "the branch '{}' was deleted and made anew",
                    self.target.branch
                ),
            )
            .with_hint("unmount it and mount it again"));
        }
        let commit = self.store.inner.commit(row.commit)?;
        Ok(Head {
            commit: row.commit,
            root: commit.root.clone(),
        })
    }

    fn overlay(&self) -> Result<Option<OverlayState>> {
        self.read(|connection| overlay::read(connection, self.branch_number))
    }

    fn directory(&self, tree: TreeId) -> Result<Vec<(Name, TreeEntry)>> {
        ObjectReader::directory(&self.store, tree)
    }

    fn link(&self, links: TreeId, id: LinkId) -> Result<Option<LinkedInode>> {
        self.store.link(links, id)
    }

    fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.store.read_blob(blob, offset, buffer)
    }

    fn inode_records(&self, directory: u64) -> Result<Vec<(Name, InodeRecord)>> {
        self.read(|connection| overlay::inodes(connection, self.branch_number, directory))
    }

    fn inode_location(&self, number: u64) -> Result<Option<(u64, Name)>> {
        self.read(|connection| overlay::inode_location(connection, self.branch_number, number))
    }

    fn submit(&self, submission: Submission) -> Result<Submitted> {
        self.store.inner.submit(self.target.clone(), submission)
    }
}
