//! Who last changed a path, or each line of a text file.
//!
//! Follows the first parents of commits by the path index: cost O(history of the path), plus a
//! step over each commit in between. A path that came into being by a rename without other
//! changes is followed to where it was. In a merge, lines are followed to the parent that has
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use crate::commits::{AttributedChange, ChangeKind, path_hash};
use crate::db::history;
use crate::diff::{is_binary, split_lines};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, CommitId};
use crate::lookup;
use crate::object::{Commit, Node, Root};
use crate::path::is_at_or_below;
use crate::reader::ObjectReader;
use crate::store::Store;

/// Larger files have no lines.
const TEXT_MAX_BYTES: u64 = 16 << 20;
/// After this time a coarser comparison of two versions is good enough.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Which paths exist for who asks.
pub type Sees<'a> = &'a dyn Fn(&[u8]) -> bool;

/// A commit that changed a path.
#[derive(Debug, Clone)]
pub struct PathOrigin {
    /// Its id.
    pub id: CommitId,
    /// The commit.
    pub commit: Arc<Commit>,
    /// The path as it was called then.
    pub path: Vec<u8>,
    /// What changed, and who did it.
    pub change: AttributedChange,
}

/// Where the lines of a file come from.
#[derive(Debug, Clone, Default)]
pub struct LineOrigins {
    /// The commits that the lines name by their position here.
    pub origins: Vec<PathOrigin>,
    /// The lines in order, each with its line end, and the position of its origin.
    pub lines: Vec<(Vec<u8>, usize)>,
}

/// Lines that are still looked for: in a version of the file, the line in the newest one and here.
struct Wanted {
    commit: CommitId,
    path: Vec<u8>,
    blob: BlobId,
    lines: Vec<(usize, usize)>,
}

impl Store {
    /// The newest commit from `start` back that changed a path; if it is a directory, something
    /// below it. Changes of paths that `sees` refuses don't exist.
    ///
    /// # Errors
    /// `NotFound` if none has.
    pub fn blame_path(&self, start: CommitId, path: &[u8], sees: Sees<'_>) -> Result<PathOrigin> {
        self.last_change(start, path, sees)?.ok_or_else(|| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("no commit has changed '{}'", String::from_utf8_lossy(path)),
            )
            .with_hint("paths are relative to the workspace's root")
        })
    }

    /// The origin of each line of a text file at `start`. A file that came from a path that `sees`
    /// refuses is new.
    ///
    /// # Errors
    /// `NotFound` if there is no such file, `InvalidInput` if it isn't text.
    pub fn blame_lines(&self, start: CommitId, path: &[u8], sees: Sees<'_>) -> Result<LineOrigins> {
        let root = &self.commit(start)?.root;
        let shown = String::from_utf8_lossy(path).into_owned();
        let blob = match sees(path) {
            true => self.blob_at(root, path)?,
            false => None,
        };
        let blob = blob.ok_or_else(|| {
            StoreError::new(ErrorKind::NotFound, format!("there is no file '{shown}'"))
        })?;
        let content = self.text(blob)?.ok_or_else(|| {
            StoreError::new(
                ErrorKind::InvalidInput,
                format!("'{shown}' is not a text file of up to 16 MiB"),
            )
            .with_hint("without --lines, who changed the file as a whole is shown")
        })?;
        let newest = split_lines(&content);
        let mut found: Vec<Option<usize>> = vec![None; newest.len()];
        let mut origins: Vec<PathOrigin> = Vec::new();
        let mut positions: HashMap<(CommitId, Vec<u8>), usize> = HashMap::new();
        let mut waiting = vec![Wanted {
            commit: start,
            path: path.to_vec(),
            blob,
            lines: (0..newest.len()).map(|line| (line, line)).collect(),
        }];
        while let Some(wanted) = waiting.pop() {
            let Some(origin) = self.last_change(wanted.commit, &wanted.path, sees)? else {
                continue;
            };
            let mut left = wanted.lines;
            for (parent, earlier_path) in self.earlier_places(&origin, wanted.blob, sees)? {
                if left.is_empty() {
                    break;
                }
                let root = &self.commit(parent)?.root;
                let Some(blob) = self.blob_at(root, &earlier_path)? else {
                    continue;
                };
                let kept = self.lines_kept(blob, wanted.blob)?;
                let (older, own): (Vec<_>, Vec<_>) = left
                    .into_iter()
                    .partition(|(_, line)| kept.contains_key(line));
                left = own;
                if !older.is_empty() {
                    waiting.push(Wanted {
                        commit: parent,
                        path: earlier_path,
                        blob,
                        lines: older
                            .into_iter()
                            .map(|(first, line)| (first, kept[&line]))
                            .collect(),
                    });
                }
            }
            if !left.is_empty() {
                let key = (origin.id, origin.path.clone());
                let position = *positions.entry(key).or_insert_with(|| {
                    origins.push(origin);
                    origins.len() - 1
                });
                for (line, _) in left {
                    found[line] = Some(position);
                }
            }
        }
        let lines = newest.iter().zip(found);
        Ok(LineOrigins {
            lines: lines
                .filter_map(|(line, origin)| Some((line.to_vec(), origin?)))
                .collect(),
            origins,
        })
    }

    /// The first commit, from `start` back over first parents, that changed a path.
    fn last_change(
        &self,
        start: CommitId,
        path: &[u8],
        sees: Sees<'_>,
    ) -> Result<Option<PathOrigin>> {
        let mut next = Some(start);
        while let Some(start) = next {
            let Some(id) = self.last_touching(start, path)? else {
                break;
            };
            let commit = self.commit(id)?;
            let mut changes = self.attributed_changes(id)?;
            changes.retain(|change| sees(&change.change.path));
            let own = changes.iter().find(|change| *change.change.path == *path);
            let is_below = |change: &&AttributedChange| is_at_or_below(&change.change.path, path);
            if let Some(change) = own.or_else(|| changes.iter().find(is_below)) {
                return Ok(Some(PathOrigin {
                    id,
                    path: path.to_vec(),
                    change: change.clone(),
                    commit,
                }));
            }
            // Another path has the same hash, or nothing that changed is seen: go on behind it.
            next = commit.parents.first().copied();
        }
        Ok(None)
    }

    /// The same by the hash of the path alone.
    fn last_touching(&self, start: CommitId, path: &[u8]) -> Result<Option<CommitId>> {
        self.inner.database.read(|connection| {
            let touching = history::touching(connection, path_hash(path))?;
            let mut next = Some(history::require(connection, start)?.number);
            while let Some(row) = next {
                if touching.contains(&row) {
                    return history::read_row(connection, row).map(|(id, _)| Some(id));
                }
                next = history::first_parent(connection, row)?;
            }
            Ok(None)
        })
    }

    /// Where the content of a changed path was before: commits and paths.
    fn earlier_places(
        &self,
        origin: &PathOrigin,
        blob: BlobId,
        sees: Sees<'_>,
    ) -> Result<Vec<(CommitId, Vec<u8>)>> {
        let mut places = Vec::new();
        for (position, parent) in origin.commit.parents.iter().enumerate() {
            if position > 0 || origin.change.change.kind != ChangeKind::Added {
                places.push((*parent, origin.path.clone()));
                continue;
            }
            let root = &self.commit(*parent)?.root;
            let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
            let own_name = name(&origin.path);
            let mut gone: Vec<_> = self
                .changes(origin.id)?
                .into_iter()
                .filter(|change| change.kind == ChangeKind::Deleted && sees(&change.path))
                .collect();
            // Most renamed files keep their name in another directory.
            gone.sort_by_key(|change| name(&change.path) != own_name);
            for change in gone {
                if self.blob_at(root, &change.path)? == Some(blob) {
                    places.push((*parent, change.path.to_vec()));
                    break;
                }
            }
        }
        Ok(places)
    }

    /// The content of the regular file at a path.
    fn blob_at(&self, root: &Root, path: &[u8]) -> Result<Option<BlobId>> {
        let names = crate::path::split_path(path)?;
        let Some(entry) = lookup::lookup_path(self, root, &names)? else {
            return Ok(None);
        };
        Ok(
            match lookup::resolve_entry(self, root.links, &entry)?.node {
                Node::Regular { blob, .. } => Some(blob),
                _ => None,
            },
        )
    }

    /// Content that has lines.
    fn text(&self, blob: BlobId) -> Result<Option<Vec<u8>>> {
        let mut content = Vec::new();
        let mut part = vec![0; 256 << 10];
        loop {
            let count = self.read_blob(blob, content.len() as u64, &mut part)?;
            if count == 0 {
                break;
            }
            content.extend_from_slice(&part[..count]);
            if content.len() as u64 > TEXT_MAX_BYTES {
                return Ok(None);
            }
        }
        Ok((!is_binary(&content)).then_some(content))
    }

    /// Lines of `new` that are in `old`, with their place there.
    fn lines_kept(&self, old: BlobId, new: BlobId) -> Result<HashMap<usize, usize>> {
        let (Some(old), Some(new)) = (self.text(old)?, self.text(new)?) else {
            return Ok(HashMap::new());
        };
        let (old, new) = (split_lines(&old), split_lines(&new));
        let deadline = Some(Instant::now() + TIME_LIMIT);
        let mut kept = HashMap::new();
        for operation in capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline) {
            if let DiffOp::Equal {
                old_index,
                new_index,
                len,
            } = operation
            {
                kept.extend((0..len).map(|at| (new_index + at, old_index + at)));
            }
        }
        Ok(kept)
    }
}
