//! Workspaces: named file trees with a history of their own.

use serde::{Deserialize, Serialize};

use crate::compress::Encoding;
use crate::db::objects::{self, NewObject, Packed};
use crate::db::operations::NewOperation;
use crate::db::{self, history};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, WorkspaceId, random_bytes};
use crate::limits::REF_NAME_MAX_BYTES;
use crate::object::codec::{StoredNode, commit_id, encode_commit, encode_node, tree_id};
use crate::object::{Attributes, Commit, CommitKind, Root, Timestamp};
use crate::operation::{OperationKind, record};
use crate::store::{Store, now_ns};

/// Name of the branch that every workspace starts with.
pub const DEFAULT_BRANCH: &str = "main";

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceInfo {
    /// Identity, kept for ever.
    pub id: WorkspaceId,
    /// Name, unique in the store.
    pub name: String,
    /// The branch that the workspace's name alone stands for.
    pub default_branch: String,
    /// When it was made.
    pub created: Timestamp,
    /// The commit that the default branch names.
    pub head: CommitId,
}

/// Sizes of a workspace and of the store around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Commits of the workspace.
    pub commits: u64,
    /// Its branches.
    pub branches: u64,
    /// Its tags.
    pub tags: u64,
    /// Its operations.
    pub operations: u64,
    /// Chunks of the whole store.
    pub chunks: u64,
    /// Bytes of all chunks before compression.
    pub chunk_bytes: u64,
    /// Bytes of all chunks as stored.
    pub stored_bytes: u64,
    /// Directory nodes of the whole store.
    pub tree_nodes: u64,
    /// Size of the database file and its log.
    pub database_bytes: u64,
}

impl Store {
    /// Makes a workspace with an empty first commit.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name, `AlreadyExists` for a taken one.
    pub fn create_workspace(&self, name: &str, author: &str) -> Result<WorkspaceInfo> {
        check_workspace_name(name)?;
        let id = new_workspace_id()?;
        let time = Timestamp::now();
        let attributes = Attributes {
            mode: 0o755,
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            mtime: time,
            ..Attributes::default()
        };
        let empty = encode_node(&StoredNode::Leaf(Vec::new()));
        let root = Root {
            attributes,
            tree: tree_id(&empty),
            links: None,
        };
        let commit = Commit {
            root,
            parents: Vec::new(),
            author: author.to_owned(),
            kind: CommitKind::Init,
            time,
            message: String::new(),
            run: None,
            step: None,
            conflicts: None,
        };
        let encoded = encode_commit(&commit);
        let head = commit_id(&encoded);
        let (name, author) = (name.to_owned(), author.to_owned());
        let chunks = std::sync::Arc::clone(&self.inner.chunk_store);
        let node = NewObject::TreeNode {
            id: tree_id(&empty),
            packed: Packed {
                encoding: Encoding::Plain,
                size: empty.len(),
                stored: empty,
            },
        };
        self.inner.database.write(move |connection| {
            let created = now_ns();
            objects::insert(connection, chunks.as_ref(), &[node])?;
            let number =
                db::refs::insert_workspace(connection, id, &name, DEFAULT_BRANCH, created, None)?;
            let commit = history::insert(connection, number, head, &encoded, &[])?;
            crate::submit::record_changes(connection, commit, Default::default())?;
            db::refs::insert_branch(connection, number, DEFAULT_BRANCH, commit)?;
            record(
                connection,
                id,
                "api",
                &NewOperation {
                    workspace: number,
                    time_ns: created,
                    author: &author,
                    kind: OperationKind::CreateWorkspace,
                    target: DEFAULT_BRANCH,
                    before: None,
                    after: Some(head.to_hex()),
                    undoes: None,
                    details: serde_json::json!({ "name": name }),
                },
            )?;
            require(db::refs::workspace_by_id(connection, id)?)
        })
    }

    /// Makes a workspace that starts at a commit of another and shares its history, its grants and
    /// those of its settings that `keeps_setting` names. Costs the same whatever its size.
    ///
    /// # Errors
    /// `NotFound` if the source has no such commit; otherwise as [`Store::create_workspace`].
    pub fn fork_workspace(
        &self,
        source: WorkspaceId,
        at: CommitId,
        new_name: &str,
        author: &str,
        keeps_setting: fn(&str) -> bool,
    ) -> Result<WorkspaceInfo> {
        check_workspace_name(new_name)?;
        let id = new_workspace_id()?;
        let (name, author) = (new_name.to_owned(), author.to_owned());
        self.inner.database.write(move |connection| {
            let origin = db::refs::workspace_number(connection, source)?;
            let commit = history::require_visible(connection, origin, at)?;
            let created = now_ns();
            let number = db::refs::insert_workspace(
                connection,
                id,
                &name,
                DEFAULT_BRANCH,
                created,
                Some(commit.number),
            )?;
            db::refs::insert_branch(connection, number, DEFAULT_BRANCH, commit.number)?;
            let settings = db::refs::settings(connection, origin)?;
            for (key, value) in settings.iter().filter(|(key, _)| keeps_setting(key)) {
                db::refs::put_setting(connection, number, key, Some(value))?;
            }
            // What the original hides from somebody isn't shown by making a fork of it.
            db::grants::copy(connection, origin, number)?;
            record(
                connection,
                id,
                "api",
                &NewOperation {
                    workspace: number,
                    time_ns: created,
                    author: &author,
                    kind: OperationKind::ForkWorkspace,
                    target: DEFAULT_BRANCH,
                    before: None,
                    after: Some(at.to_hex()),
                    undoes: None,
                    details: serde_json::json!({ "name": name, "source": source }),
                },
            )?;
            require(db::refs::workspace_by_id(connection, id)?)
        })
    }

    /// All workspaces by name.
    pub fn workspaces(&self) -> Result<Vec<WorkspaceInfo>> {
        self.inner.database.read(db::refs::workspaces)
    }

    /// The workspace of this name.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn workspace(&self, name: &str) -> Result<WorkspaceInfo> {
        let found = self
            .inner
            .database
            .read(|connection| db::refs::workspace_by_name(connection, name))?;
        found.ok_or_else(|| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("there is no workspace '{name}'"),
            )
            .with_hint(format!("make it with `kura init {name}`"))
        })
    }

    /// The workspace with this id.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn workspace_by_id(&self, id: WorkspaceId) -> Result<WorkspaceInfo> {
        self.inner.database.read(|connection| {
            db::refs::workspace_number(connection, id)?;
            require(db::refs::workspace_by_id(connection, id)?)
        })
    }
}

fn require(found: Option<WorkspaceInfo>) -> Result<WorkspaceInfo> {
    found.ok_or_else(|| {
        StoreError::new(ErrorKind::Corrupt, "the workspace has no default branch")
            .with_hint("run `kura fsck`")
    })
}

fn new_workspace_id() -> Result<WorkspaceId> {
    Ok(WorkspaceId(random_bytes()?))
}

fn check_workspace_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > REF_NAME_MAX_BYTES {
        format!("it is longer than {REF_NAME_MAX_BYTES} bytes")
    } else if let Some(bad) = name.chars().find(|character| !is_good(*character)) {
        format!("it contains {bad:?}")
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "it doesn't begin with a letter or digit".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::new(
        ErrorKind::InvalidInput,
        format!("{name:?} can't be the name of a workspace: {reason}"),
    )
    .with_hint("use letters, digits, '.', '_' and '-', beginning with a letter or digit"))
}
