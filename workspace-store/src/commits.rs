//! Commits: reading them, walking history, and the paths that each changed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conflict::ConflictSet;
use crate::db::history::{self, Walk};
use crate::db::{conflicts, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{CommitId, ConflictSetId, WorkspaceId};
use crate::limits::CHANGE_LIST_MAX_BYTES;
use crate::object::Commit;
use crate::object::codec::{
    Input, commit_id, conflict_set_id, decode_commit, decode_conflicts, write_bytes, write_number,
};
use crate::store::{Inner, Store};

/// How a path changed in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// Its content changed (attributes perhaps too).
    Modified,
    /// Only attributes changed.
    Metadata,
    /// It is gone.
    Deleted,
    /// It is another kind of file now.
    TypeChanged,
}

/// One path changed by a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathChange {
    /// Path relative to the root, components joined by `/`; empty for the root itself.
    pub path: Box<[u8]>,
    /// How it changed.
    pub kind: ChangeKind,
}

/// Which commits to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Where to start; `None` is the head of the default branch.
    pub start: Option<CommitId>,
    /// Only commits that changed this path or something below it.
    pub path: Option<Vec<u8>>,
    /// Only commits of this run.
    pub run: Option<String>,
    /// Only commits of this author.
    pub author: Option<String>,
    /// At most so many; 0 means all.
    pub limit: usize,
}

/// A commit in a list.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Its id.
    pub id: CommitId,
    /// The commit.
    pub commit: Arc<Commit>,
}

impl Store {
    /// A commit.
    ///
    /// # Errors
    /// `NotFound` if it isn't stored.
    pub fn commit(&self, id: CommitId) -> Result<Arc<Commit>> {
        self.inner.commit(id)
    }

    /// Paths that a commit changed against its first parent, in ascending order.
    ///
    /// # Errors
    /// `NotFound` if it isn't stored.
    pub fn changes(&self, commit: CommitId) -> Result<Vec<PathChange>> {
        let packed = self.inner.database.read(|connection| {
            let row = history::require(connection, commit)?;
            history::read_changes(connection, row.number)
        })?;
        match packed {
            None => Ok(Vec::new()),
            Some(packed) => decode_changes(&packed.unpack(CHANGE_LIST_MAX_BYTES)?),
        }
    }

    /// What a commit could not join, or its ancestors, and what nobody has resolved since.
    ///
    /// # Errors
    /// `NotFound` if the commit isn't stored, `Corrupt` if its conflicts are not what its id says.
    pub fn conflicts(&self, commit: CommitId) -> Result<ConflictSet> {
        let Some(id) = self.inner.commit(commit)?.conflicts else {
            return Ok(ConflictSet::default());
        };
        self.inner.conflict_set(id)
    }

    /// Commits from a starting point backwards, newest first.
    ///
    /// # Errors
    /// `NotFound` if the workspace doesn't exist or has no such commit.
    pub fn log(&self, workspace: WorkspaceId, query: &LogQuery) -> Result<Vec<LogEntry>> {
        let limit = if query.limit == 0 {
            usize::MAX
        } else {
            query.limit
        };
        let path = query.path.as_deref().map(|path| {
            let start = path
                .iter()
                .position(|byte| *byte != b'/')
                .unwrap_or(path.len());
            let end = path
                .iter()
                .rposition(|byte| *byte != b'/')
                .map_or(start, |last| last + 1);
            &path[start..end]
        });
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            let start = match query.start {
                Some(start) => start,
                None => {
                    let branch = refs::default_branch(connection, number)?;
                    refs::require_branch(connection, number, &branch)?.commit
                }
            };
            let start = history::require_visible(connection, number, start)?;
            let touching = match path {
                Some(path) if !path.is_empty() => {
                    Some(history::touching(connection, path_hash(path))?)
                }
                _ => None,
            };
            let mut left = touching
                .as_ref()
                .map_or(usize::MAX, |touching| touching.len());
            let mut found = Vec::new();
            let mut walk = Walk::new(connection, start);
            while found.len() < limit
                && left > 0
                && let Some(row) = walk.next()?
            {
                if let Some(touching) = &touching {
                    if !touching.contains(&row.number) {
                        continue;
                    }
                    left -= 1;
                }
                let (id, encoded) = history::read_row(connection, row.number)?;
                let commit = self.inner.decode(id, &encoded)?;
                let is_wanted = query
                    .run
                    .as_ref()
                    .is_none_or(|run| commit.run.as_ref() == Some(run))
                    && query
                        .author
                        .as_ref()
                        .is_none_or(|author| commit.author == *author);
                if is_wanted {
                    found.push(LogEntry { id, commit });
                }
            }
            Ok(found)
        })
    }
}

impl Inner {
    /// A set of conflicts.
    pub(crate) fn conflict_set(&self, id: ConflictSetId) -> Result<ConflictSet> {
        let packed = self
            .database
            .read(|connection| conflicts::read(connection, id))?;
        let damaged = |what: &str| {
            StoreError::new(ErrorKind::Corrupt, format!("conflicts {id} {what}"))
                .with_hint("run `kura fsck`")
        };
        let encoded = packed
            .ok_or_else(|| damaged("are missing"))?
            .unpack(CHANGE_LIST_MAX_BYTES)?;
        if conflict_set_id(&encoded) != id {
            return Err(damaged("have other bytes than their id says"));
        }
        decode_conflicts(&encoded)
    }

    /// A commit, through the cache.
    pub(crate) fn commit(&self, id: CommitId) -> Result<Arc<Commit>> {
        if let Some(commit) = self.commit_cache.get(&id) {
            return Ok(commit);
        }
        let encoded = self
            .database
            .read(|connection| history::read(connection, id))?;
        let encoded = encoded.ok_or_else(|| {
            StoreError::new(ErrorKind::NotFound, format!("there is no commit {id}"))
        })?;
        self.decode(id, &encoded)
    }

    fn decode(&self, id: CommitId, encoded: &[u8]) -> Result<Arc<Commit>> {
        if commit_id(encoded) != id {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!("commit {id} has other bytes than its id says"),
            )
            .with_hint("run `kura fsck`"));
        }
        let commit = Arc::new(decode_commit(encoded)?);
        self.commit_cache.insert(id, Arc::clone(&commit));
        Ok(commit)
    }
}

/// What the path index keeps of a path.
pub(crate) fn path_hash(path: &[u8]) -> i64 {
    let hash = blake3::hash(path);
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    i64::from_be_bytes(*first)
}

/// Encodes a list of changes: each path as the length that it shares with the one before, and the
/// rest.
pub(crate) fn encode_changes(changes: &[PathChange]) -> Vec<u8> {
    let mut output = vec![1];
    let mut last: &[u8] = &[];
    for change in changes {
        let shared = last
            .iter()
            .zip(change.path.iter())
            .take_while(|(a, b)| a == b)
            .count();
        write_number(&mut output, shared as u64);
        write_bytes(&mut output, &change.path[shared..]);
        output.push(match change.kind {
            ChangeKind::Added => 0,
            ChangeKind::Modified => 1,
            ChangeKind::Metadata => 2,
            ChangeKind::Deleted => 3,
            ChangeKind::TypeChanged => 4,
        });
        last = &change.path;
    }
    output
}

/// Decodes a list of changes.
///
/// # Errors
/// `Corrupt` if it is malformed.
pub(crate) fn decode_changes(bytes: &[u8]) -> Result<Vec<PathChange>> {
    let mut input = Input::open(bytes, "list of changed paths")?;
    let mut changes = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while !input.is_empty() {
        let shared = input.number()?;
        if shared > last.len() as u64 {
            return Err(input.error("a path shares more than there is"));
        }
        last.truncate(shared as usize);
        last.extend_from_slice(input.bytes(usize::MAX)?);
        let kind = match input.byte()? {
            0 => ChangeKind::Added,
            1 => ChangeKind::Modified,
            2 => ChangeKind::Metadata,
            3 => ChangeKind::Deleted,
            4 => ChangeKind::TypeChanged,
            _ => return Err(input.error("unknown kind of change")),
        };
        changes.push(PathChange {
            path: last.as_slice().into(),
            kind,
        });
    }
    Ok(changes)
}
