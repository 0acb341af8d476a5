//! Differences between two states.

use computerd_api::v1::{DiffOptions, DiffQuery, DiffResult, PathText};
use workspace_store::CommitId;
use workspace_store::diff::{
    DiffOptions as StoreDiffOptions, PatchOptions, diff_roots, render_patch, statistics,
};
use workspace_store::edit::SnapshotEdit;
use workspace_store::object::Root;

use crate::access::Scope;
use crate::convert;
use crate::daemon::{Daemon, State, clean_path};
use crate::error::Result;
use crate::server::Call;

/// One side of a difference.
#[derive(Debug, Clone)]
pub enum Side {
    /// An empty tree.
    Nothing,
    /// A state.
    State(State),
}

impl Side {
    /// The state of a commit.
    pub fn commit(daemon: &Daemon, id: CommitId) -> Result<Self> {
        let root = daemon.store.commit(id)?.root.clone();
        Ok(Side::State(State {
            root,
            commit: Some(id),
        }))
    }

    fn commit_hex(&self) -> Option<String> {
        match self {
            Side::Nothing => None,
            Side::State(state) => state.commit.map(|commit| commit.to_hex()),
        }
    }
}

/// The difference between two states of a workspace.
pub fn diff(call: &Call, query: DiffQuery) -> Result<DiffResult> {
    let scope = call.scope(None)?;
    let new = scope.state(query.to.as_ref())?;
    let old = match &query.from {
        Some(_) => scope.state(query.from.as_ref())?,
        None => scope.state(Some(&scope.workspace.default_branch))?,
    };
    difference(&scope, &Side::State(old), &Side::State(new), &query.options)
}

/// The visible difference between two sides, as much of it as `options` ask for.
pub fn difference(
    scope: &Scope,
    old: &Side,
    new: &Side,
    options: &DiffOptions,
) -> Result<DiffResult> {
    let paths = options
        .paths
        .iter()
        .map(|path| clean_path(path.as_bytes()))
        .collect::<Result<Vec<_>>>()?;
    for path in &paths {
        scope.note_if_hidden(path);
    }
    let daemon = &scope.daemon;
    let view = scope.view();
    let store_options = StoreDiffOptions {
        // The root among the paths means everything.
        paths: if paths.iter().any(Vec::is_empty) {
            Vec::new()
        } else {
            paths
        },
        times: false,
        renames: !options.no_renames,
    };
    let (old_root, new_root) = match (old, new) {
        (Side::State(old), Side::State(new)) => (old.root.clone(), new.root.clone()),
        (Side::Nothing, Side::State(new)) => {
            let empty = empty_root(daemon, &new.root)?;
            (empty, new.root.clone())
        }
        (Side::State(old), Side::Nothing) => {
            let empty = empty_root(daemon, &old.root)?;
            (old.root.clone(), empty)
        }
        (Side::Nothing, Side::Nothing) => return Ok(DiffResult::default()),
    };
    let (old_root, new_root) = (view.root(&old_root), view.root(&new_root));
    let entries = diff_roots(&view, &old_root, &new_root, &store_options)?;
    let counts = convert::diff_counts(&entries);
    let limit = options.limit.map_or(usize::MAX, |limit| limit as usize);
    let shown = &entries[..entries.len().min(limit)];
    let mut wire: Vec<_> = shown.iter().map(convert::diff_entry).collect();
    if options.text || options.line_counts {
        let patch_options = PatchOptions {
            context_lines: options
                .context_lines
                .map_or(PatchOptions::default().context_lines, |lines| {
                    lines as usize
                }),
            ..PatchOptions::default()
        };
        let counted = statistics(&view, shown, &patch_options)?;
        let mut counted = counted.into_iter().peekable();
        for (entry, wire) in shown.iter().zip(&mut wire) {
            if let Some(lines) = counted.next_if(|lines| lines.path == entry.path) {
                wire.is_binary = lines.is_binary;
                if !lines.is_binary {
                    wire.inserted_lines = Some(lines.insertions as u64);
                    wire.deleted_lines = Some(lines.deletions as u64);
                }
            }
            if options.text && !wire.is_binary {
                let mut patch = Vec::new();
                render_patch(
                    &view,
                    std::slice::from_ref(entry),
                    &patch_options,
                    &mut patch,
                )?;
                wire.text = hunks(&patch).map(PathText::from);
            }
        }
    }
    Ok(DiffResult {
        from: old.commit_hex(),
        to: new.commit_hex(),
        entries: wire,
        counts,
    })
}

/// The hunks of a patch of one file, without its headers.
fn hunks(patch: &[u8]) -> Option<&[u8]> {
    if patch.starts_with(b"@@ ") {
        return Some(patch);
    }
    patch
        .windows(4)
        .position(|window| window == b"\n@@ ")
        .map(|at| &patch[at + 1..])
}

/// A tree without entries and with the attributes of `root`.
pub(super) fn empty_root(daemon: &Daemon, root: &Root) -> Result<Root> {
    let edit = SnapshotEdit::replacing(root.attributes.clone(), Default::default());
    let base = Root {
        attributes: root.attributes.clone(),
        tree: root.tree,
        links: None,
    };
    daemon.store.build_root(&base, edit, &|_| {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_begin_at_the_first_one() {
        let patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+@@ b\n";
        assert_eq!(hunks(patch).unwrap(), b"@@ -1 +1 @@\n-a\n+@@ b\n");
        assert_eq!(hunks(b"diff --git a/x b/x\nBinary files differ\n"), None);
    }
}
