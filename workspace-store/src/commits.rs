//! Commits: reading them, walking history, and the paths that each changed.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
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

/// One path changed by a commit, with those who changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributedChange {
    /// Path and kind.
    pub change: PathChange,
    /// Who changed it, in the order in which they began; empty if it did not come through a mount:
    /// then it was the commit's author, in the commit's run.
    pub actors: Vec<Arc<Actor>>,
}

/// Which changes are meant: by whom, in which run and step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActorFilter {
    /// Principal.
    pub principal: Option<String>,
    /// Execution.
    pub run: Option<String>,
    /// Numbered part of it.
    pub step: Option<u64>,
}

impl ActorFilter {
    /// Whether everything is meant.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether one actor is meant.
    pub fn has(&self, actor: &Actor) -> bool {
        self.fits(&actor.principal, actor.run.as_deref(), actor.step)
    }

    /// Whether the description of a commit itself is meant.
    pub fn has_commit(&self, commit: &Commit) -> bool {
        self.fits(&commit.author, commit.run.as_deref(), commit.step)
    }

    /// Whether a change of a commit is meant: somebody who is meant took part in it.
    pub fn has_change(&self, commit: &Commit, change: &AttributedChange) -> bool {
        if change.actors.is_empty() {
            self.has_commit(commit)
        } else {
            change.actors.iter().any(|actor| self.has(actor))
        }
    }

    fn fits(&self, principal: &str, run: Option<&str>, step: Option<u64>) -> bool {
        self.principal.as_ref().is_none_or(|name| name == principal)
            && self
                .run
                .as_ref()
                .is_none_or(|name| Some(name.as_str()) == run)
            && self.step.is_none_or(|number| Some(number) == step)
    }
}

/// Which commits to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Where to start; `None` is the head of the default branch.
    pub start: Option<CommitId>,
    /// Only commits that changed this path or something below it.
    pub path: Option<Vec<u8>>,
    /// Only commits of this run, or with changes made in it.
    pub run: Option<String>,
    /// Only those of this step of the run.
    pub step: Option<u64>,
    /// Only commits of this author, or with changes by it.
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

    /// As [`Store::changes`], with those who made them.
    ///
    /// # Errors
    /// `NotFound` if it isn't stored.
    pub fn attributed_changes(&self, commit: CommitId) -> Result<Vec<AttributedChange>> {
        let packed = self.inner.database.read(|connection| {
            let row = history::require(connection, commit)?;
            history::read_changes(connection, row.number)
        })?;
        match packed {
            None => Ok(Vec::new()),
            Some(packed) => decode_attributed_changes(&packed.unpack(CHANGE_LIST_MAX_BYTES)?),
        }
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
            let filter = ActorFilter {
                principal: query.author.clone(),
                run: query.run.clone(),
                step: query.step,
            };
            let taking_part = (!filter.is_empty())
                .then(|| history::taking_part(connection, &filter))
                .transpose()?
                .unwrap_or_default();
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
                let is_wanted = filter.is_empty()
                    || filter.has_commit(&commit)
                    || taking_part.contains(&row.number);
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

/// Newest version of the encoding of a list of changes. Version 1 has no actors.
const CHANGES_VERSION: u8 = 2;

/// Encodes a list of changes: the actors, then each path as the length that it shares with the one
/// before, the rest, and the positions of its actors.
pub(crate) fn encode_changes(changes: &[AttributedChange]) -> Vec<u8> {
    let mut output = vec![CHANGES_VERSION];
    let mut positions: HashMap<&Actor, u64> = HashMap::new();
    let mut actors = Vec::new();
    for actor in changes.iter().flat_map(|change| &change.actors) {
        positions.entry(actor).or_insert_with(|| {
            actors.push(actor);
            actors.len() as u64 - 1
        });
    }
    write_number(&mut output, actors.len() as u64);
    for actor in actors {
        actor.encode(&mut output);
    }
    let mut last: &[u8] = &[];
    for AttributedChange { change, actors } in changes {
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
        write_number(&mut output, actors.len() as u64);
        for actor in actors {
            write_number(&mut output, positions[actor.as_ref()]);
        }
        last = &change.path;
    }
    output
}

/// Decodes the paths of a list of changes.
///
/// # Errors
/// `Corrupt` if it is malformed.
pub(crate) fn decode_changes(bytes: &[u8]) -> Result<Vec<PathChange>> {
    let changes = decode_attributed_changes(bytes)?;
    Ok(changes.into_iter().map(|change| change.change).collect())
}

/// Decodes a list of changes.
///
/// # Errors
/// `Corrupt` if it is malformed.
pub(crate) fn decode_attributed_changes(bytes: &[u8]) -> Result<Vec<AttributedChange>> {
    let (mut input, version) = Input::open_up_to(bytes, "list of changed paths", CHANGES_VERSION)?;
    let mut known = Vec::new();
    if version >= 2 {
        for _ in 0..input.count()? {
            known.push(Arc::new(Actor::decode(&mut input)?));
        }
    }
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
        let mut actors = Vec::new();
        if version >= 2 {
            for _ in 0..input.count()? {
                let position = usize::try_from(input.number()?).ok();
                let actor = position.and_then(|position| known.get(position)).cloned();
                actors.push(actor.ok_or_else(|| input.error("an actor that is not in it"))?);
            }
        }
        changes.push(AttributedChange {
            change: PathChange {
                path: last.as_slice().into(),
                kind,
            },
            actors,
        });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_changes_are_pinned_and_old_ones_are_still_read() {
        let old = [1, 0, 1, b'a', 0, 1, 2, b'/', b'b', 3];
        let paths = [
            (&b"a"[..], ChangeKind::Added),
            (b"a/b", ChangeKind::Deleted),
        ];
        let change =
            |(path, kind): (&[u8], ChangeKind), actors: Vec<Arc<Actor>>| AttributedChange {
                change: PathChange {
                    path: path.into(),
                    kind,
                },
                actors,
            };
        let without: Vec<_> = paths.map(|path| change(path, Vec::new())).to_vec();
        assert_eq!(decode_attributed_changes(&old).unwrap(), without);
        let ada = Arc::new(Actor::of_principal("ada"));
        let bob = Arc::new(Actor::of_principal("bob"));
        let with = vec![
            change(paths[0], vec![bob.clone()]),
            change(paths[1], vec![ada, bob]),
        ];
        let encoded = encode_changes(&with);
        assert_eq!(
            encoded,
            [
                2, 2, 3, b'b', b'o', b'b', 0, 3, b'a', b'd', b'a', 0, 0, 1, b'a', 0, 1, 0, 1, 2,
                b'/', b'b', 3, 2, 1, 0
            ]
        );
        assert_eq!(decode_attributed_changes(&encoded).unwrap(), with);
        assert!(decode_changes(&[3]).is_err());
        assert!(decode_changes(&encoded[..encoded.len() - 1]).is_err());
    }
}
