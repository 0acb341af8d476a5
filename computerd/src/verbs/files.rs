//! Reading files of a state without a mount.

use std::sync::Arc;

use computerd_api::v1::{ListedEntry, Listing, PathQuery, PathText};
use workspace_store::BlobId;
use workspace_store::lookup::{lookup_path, resolve_entry};
use workspace_store::object::{Inode, Node, Root, TreeEntry};
use workspace_store::path::{display_path, join_path, split_path};
use workspace_store::reader::ObjectReader;

use crate::access::Scope;
use crate::convert;
use crate::daemon::{Daemon, clean_path};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// Bytes of one piece of a streamed file.
const PIECE_BYTES: usize = 256 << 10;

/// Most entries of a recursive listing.
const MAX_ENTRIES: usize = 1_000_000;

fn find(scope: &Scope, view: &dyn ObjectReader, root: &Root, path: &[u8]) -> Result<TreeEntry> {
    lookup_path(view, root, &split_path(path)?)?.ok_or_else(|| {
        scope.note_if_hidden(path);
        Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no '{}' in that state of {}",
                display_path(path),
                scope.workspace.name
            ),
        )
        .with_hint("`kura ls` shows what there is; paths are relative to the workspace's root")
    })
}

fn listed(
    view: &dyn ObjectReader,
    root: &Root,
    name: &[u8],
    entry: &TreeEntry,
) -> Result<(ListedEntry, Inode)> {
    let (inode, link_count) = match (entry, root.links) {
        (TreeEntry::Link(id), Some(links)) => {
            let linked = view.link(links, *id)?;
            match linked {
                Some(linked) => (linked.inode, linked.link_count),
                None => (resolve_entry(view, root.links, entry)?, 1),
            }
        }
        _ => (resolve_entry(view, root.links, entry)?, 1),
    };
    let listed = ListedEntry {
        name: name.into(),
        state: convert::entry_state(&inode),
        link_count,
    };
    Ok((listed, inode))
}

/// Entries of a directory, or the single entry that the path names.
pub fn list(call: &Call, query: PathQuery) -> Result<Listing> {
    let scope = call.scope(None)?;
    let path = clean_path(query.path.as_bytes())?;
    let state = scope.state(query.revision.as_ref())?;
    let view = scope.view();
    let root = view.root(&state.root);
    let entry = find(&scope, &view, &root, &path)?;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let (single, inode) = listed(&view, &root, name, &entry)?;
    let mut entries = Vec::new();
    match inode.node {
        Node::Directory { tree } => {
            let mut pending = vec![(Vec::new(), tree)];
            while let Some((parent, tree)) = pending.pop() {
                let mut below = Vec::new();
                for (name, entry) in view.directory(tree)? {
                    let path = join_path(&parent, &name);
                    let (listed, inode) = listed(&view, &root, &path, &entry)?;
                    if let (Node::Directory { tree }, true) = (&inode.node, query.recursive) {
                        below.push((path, *tree));
                    }
                    entries.push(listed);
                }
                if entries.len() > MAX_ENTRIES {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("more than {MAX_ENTRIES} entries can't be listed at once"),
                    )
                    .with_hint("list a directory below, or export the state"));
                }
                pending.append(&mut below);
            }
            if query.recursive {
                entries.sort_by(|left, right| left.name.cmp(&right.name));
            }
        }
        _ => entries.push(single),
    }
    Ok(Listing {
        commit: state.commit.map(|commit| commit.to_hex()),
        entries,
    })
}

/// Reads a file piece by piece.
#[derive(Debug)]
pub struct ContentReader {
    daemon: Arc<Daemon>,
    blob: BlobId,
    offset: u64,
    size: u64,
}

impl ContentReader {
    /// Length of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes; empty at the end.
    ///
    /// # Errors
    /// Errors of the store; a file that ends too early is `UnexpectedEof`.
    pub fn next_piece(&mut self) -> std::io::Result<Vec<u8>> {
        let length = (self.size - self.offset).min(PIECE_BYTES as u64) as usize;
        let mut piece = vec![0; length];
        if length == 0 {
            return Ok(piece);
        }
        let count = self
            .daemon
            .store
            .read_blob(self.blob, self.offset, &mut piece)
            .map_err(|error| {
                tracing::error!(?error, "read content");
                std::io::Error::other(error)
            })?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        piece.truncate(count);
        self.offset += count as u64;
        Ok(piece)
    }
}

/// The content of a file.
pub fn content(call: &Call, query: PathQuery) -> Result<ContentReader> {
    let daemon = &call.daemon;
    let scope = call.scope(None)?;
    let path = clean_path(query.path.as_bytes())?;
    let state = scope.state(query.revision.as_ref())?;
    let view = scope.view();
    let root = view.root(&state.root);
    let entry = find(&scope, &view, &root, &path)?;
    let inode = resolve_entry(&view, root.links, &entry)?;
    match inode.node {
        Node::Regular { blob, size, .. } => {
            // Told before the answer begins.
            if let Some(error) = daemon.store.purged_error(blob)? {
                return Err(error);
            }
            Ok(ContentReader {
                daemon: daemon.clone(),
                blob,
                offset: 0,
                size,
            })
        }
        node => {
            let (what, hint) = match node {
                Node::Directory { .. } => ("a directory", "`kura ls` lists it".to_owned()),
                Node::Symlink { target } => {
                    let target = PathText::from(target.as_ref());
                    let hint = format!("it points to '{}'", target.to_display());
                    ("a symbolic link", hint)
                }
                _ => (
                    "a special file",
                    "only regular files have content".to_owned(),
                ),
            };
            Err(Error::new(
                ErrorKind::InvalidInput,
                format!("'{}' is {what}, not a file", display_path(&path)),
            )
            .with_hint(hint))
        }
    }
}
