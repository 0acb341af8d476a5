//! A commit as the source of a filesystem that never changes.

use workspace_store::error::{ErrorKind, Result, StoreError};
use workspace_store::object::{LinkId, LinkedInode, Name, TreeEntry};
use workspace_store::reader::ObjectReader;
use workspace_store::source::{
    Head, InodeRecord, OverlayState, Submission, Submitted, WorkspaceSource,
};
use workspace_store::{BlobId, CommitId, Store, TreeId};

/// See the module's description.
#[derive(Debug)]
pub(super) struct CommitSource {
    store: Store,
    commit: CommitId,
}

impl CommitSource {
    pub(super) fn new(store: Store, commit: CommitId) -> Self {
        Self { store, commit }
    }
}

impl WorkspaceSource for CommitSource {
    fn head(&self) -> Result<Head> {
        Ok(Head {
            commit: self.commit,
            root: self.store.commit(self.commit)?.root.clone(),
        })
    }

    fn overlay(&self) -> Result<Option<OverlayState>> {
        Ok(None)
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

    fn inode_records(&self, _directory: u64) -> Result<Vec<(Name, InodeRecord)>> {
        Ok(Vec::new())
    }

    fn inode_location(&self, _number: u64) -> Result<Option<(u64, Name)>> {
        Ok(None)
    }

    fn submit(&self, _submission: Submission) -> Result<Submitted> {
        Err(StoreError::new(
            ErrorKind::ReadOnly,
            format!("commit {} never changes", self.commit),
        ))
    }
}
