//! The store: opening, closing, and the parts that everything else shares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::audit::{AuditEntry, AuditQuery, AuditRecord, AuditVerification};
use crate::commits::{LogEntry, LogQuery, PathChange};
use crate::edit::SnapshotEdit;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, CommitId, TreeId, WorkspaceId};
use crate::object::{Commit, LinkId, LinkedInode, Root};
use crate::operation::{OperationId, OperationRecord};
use crate::reader::{ObjectReader, TreeNode};
use crate::refs::RefInfo;
use crate::snapshot::{BuiltSnapshot, ProgressFunction};
use crate::source::{CommitRequest, Submitted, WorkspaceSource};
use crate::workspace::{Statistics, WorkspaceInfo};

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

/// A store; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    directory: Arc<PathBuf>,
}

fn unavailable<T>(what: &str) -> Result<T> {
    Err(StoreError::new(
        ErrorKind::Unavailable,
        format!("{what} is not built yet"),
    ))
}

#[expect(
    unused_variables,
    missing_docs,
    clippy::too_many_arguments,
    reason = "signatures first"
)]
impl Store {
    /// Directory of the store.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn open(directory: &Path, options: StoreOptions) -> Result<Store> {
        unavailable("open")
    }

    pub fn close(&self) -> Result<()> {
        unavailable("close")
    }

    pub fn create_workspace(&self, name: &str, author: &str) -> Result<WorkspaceInfo> {
        unavailable("create_workspace")
    }

    pub fn workspaces(&self) -> Result<Vec<WorkspaceInfo>> {
        unavailable("workspaces")
    }

    pub fn workspace(&self, name: &str) -> Result<WorkspaceInfo> {
        unavailable("workspace")
    }

    pub fn workspace_by_id(&self, id: WorkspaceId) -> Result<WorkspaceInfo> {
        unavailable("workspace_by_id")
    }

    pub fn fork_workspace(
        &self,
        source: WorkspaceId,
        at: CommitId,
        new_name: &str,
        author: &str,
    ) -> Result<WorkspaceInfo> {
        unavailable("fork_workspace")
    }

    pub fn branches(&self, workspace: WorkspaceId) -> Result<Vec<RefInfo>> {
        unavailable("branches")
    }

    pub fn branch(&self, workspace: WorkspaceId, name: &str) -> Result<CommitId> {
        unavailable("branch")
    }

    pub fn create_branch(
        &self,
        workspace: WorkspaceId,
        name: &str,
        at: CommitId,
        author: &str,
    ) -> Result<OperationId> {
        unavailable("create_branch")
    }

    pub fn delete_branch(
        &self,
        workspace: WorkspaceId,
        name: &str,
        author: &str,
    ) -> Result<OperationId> {
        unavailable("delete_branch")
    }

    pub fn tags(&self, workspace: WorkspaceId) -> Result<Vec<RefInfo>> {
        unavailable("tags")
    }

    pub fn create_tag(
        &self,
        workspace: WorkspaceId,
        name: &str,
        at: CommitId,
        author: &str,
    ) -> Result<OperationId> {
        unavailable("create_tag")
    }

    pub fn delete_tag(
        &self,
        workspace: WorkspaceId,
        name: &str,
        author: &str,
    ) -> Result<OperationId> {
        unavailable("delete_tag")
    }

    pub fn resolve(&self, workspace: WorkspaceId, revision: &str) -> Result<CommitId> {
        unavailable("resolve")
    }

    pub fn commit(&self, id: CommitId) -> Result<Arc<Commit>> {
        unavailable("commit")
    }

    pub fn changes(&self, commit: CommitId) -> Result<Vec<PathChange>> {
        unavailable("changes")
    }

    pub fn log(&self, workspace: WorkspaceId, query: &LogQuery) -> Result<Vec<LogEntry>> {
        unavailable("log")
    }

    pub fn build_snapshot(
        &self,
        base: &Root,
        edit: SnapshotEdit,
        progress: ProgressFunction<'_>,
    ) -> Result<BuiltSnapshot> {
        unavailable("build_snapshot")
    }

    pub fn build_root(&self, base: &Root, edit: SnapshotEdit) -> Result<Root> {
        unavailable("build_root")
    }

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
        unavailable("apply_edit")
    }

    pub fn set_branch_root(
        &self,
        workspace: WorkspaceId,
        branch: &str,
        expected_head: CommitId,
        root: Root,
        request: CommitRequest,
    ) -> Result<CommitId> {
        unavailable("set_branch_root")
    }

    pub fn source(&self, workspace: WorkspaceId, branch: &str) -> Result<Arc<dyn WorkspaceSource>> {
        unavailable("source")
    }

    pub fn operations(&self, workspace: WorkspaceId, limit: usize) -> Result<Vec<OperationRecord>> {
        unavailable("operations")
    }

    pub fn operation(&self, workspace: WorkspaceId, id: OperationId) -> Result<OperationRecord> {
        unavailable("operation")
    }

    pub fn undo_ref_operation(
        &self,
        workspace: WorkspaceId,
        id: OperationId,
        author: &str,
    ) -> Result<OperationId> {
        unavailable("undo_ref_operation")
    }

    pub fn settings(&self, workspace: WorkspaceId) -> Result<BTreeMap<String, String>> {
        unavailable("settings")
    }

    pub fn set_setting(
        &self,
        workspace: WorkspaceId,
        key: &str,
        value: Option<&str>,
        author: &str,
    ) -> Result<OperationId> {
        unavailable("set_setting")
    }

    pub fn audit_append(&self, record: AuditRecord) -> Result<u64> {
        unavailable("audit_append")
    }

    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        unavailable("audit")
    }

    pub fn audit_verify(&self) -> Result<AuditVerification> {
        unavailable("audit_verify")
    }

    pub fn statistics(&self, workspace: WorkspaceId) -> Result<Statistics> {
        unavailable("statistics")
    }

    pub fn check(&self, progress: &dyn Fn(u64)) -> Result<CheckReport> {
        unavailable("check")
    }
}

impl ObjectReader for Store {
    fn tree_node(&self, _id: TreeId) -> Result<TreeNode> {
        unavailable("tree_node")
    }
    fn link(&self, _links: TreeId, _id: LinkId) -> Result<Option<LinkedInode>> {
        unavailable("link")
    }
    fn links(&self, _links: TreeId) -> Result<Vec<(LinkId, LinkedInode)>> {
        unavailable("links")
    }
    fn read_blob(&self, _blob: BlobId, _offset: u64, _buffer: &mut [u8]) -> Result<usize> {
        unavailable("read_blob")
    }
}
