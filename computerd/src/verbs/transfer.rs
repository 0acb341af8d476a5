//! Bringing content in from directories and tar files, and writing it out.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use computerd_api::v1::{ExportRequest, ExportResult, ImportRequest, ImportResult, Place};
use workspace_store::edit::{DirectoryEdit, EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::export::{export_directory, export_tar};
use workspace_store::import::{Import, TarOptions, import_directory, import_tar};
use workspace_store::lookup::{lookup_path, resolve_entry};
use workspace_store::object::{Attributes, CommitKind, Node, Root};
use workspace_store::path::{display_path, split_path};
use workspace_store::snapshot::SnapshotProgress;

use crate::convert;
use crate::daemon::{Daemon, clean_path, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;
use crate::server::progress::ProgressLines;

/// Attempts to commit an import while others move the branch.
const ATTEMPTS: usize = 5;

fn absolute(path: &Path) -> Result<&Path> {
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("the path {} is not absolute", path.display()),
    )
    .with_hint("the daemon does not know the client's working directory"))
}

/// One line for people: where an import comes from.
pub fn describe(place: &Place) -> String {
    match place {
        Place::Directory { path } => format!("import directory {}", path.to_display()),
        Place::Tar { path } => format!("import tar {}", path.to_display()),
    }
}

/// Reads a tree from outside; contents are read when they are stored.
pub fn read(daemon: &Daemon, place: &Place, progress: &ProgressLines) -> Result<Import> {
    progress.phase("reading");
    match place {
        Place::Directory { path } => import_directory(absolute(&path.to_path())?, progress),
        Place::Tar { path } => {
            let path = path.to_path();
            let file = File::open(absolute(&path)?)
                .map_err(|error| Error::io(format!("open {}", path.display()), error))?;
            let options = TarOptions {
                spool_directory: daemon.directory.path().to_owned(),
            };
            import_tar(file, &options, progress)
        }
    }
}

/// Reports how far storing is.
pub fn store_progress(progress: &ProgressLines) -> impl Fn(SnapshotProgress) + Sync {
    move |done| {
        progress.update(|report| {
            report.entries_done = done.files_done;
            report.entries_total = Some(done.files_total);
            report.bytes_done = done.bytes_done;
            report.bytes_total = Some(done.bytes_total);
            report.path = None;
        });
    }
}

/// Brings content into an existing workspace.
pub fn import(call: &Call, body: ImportRequest, progress: &ProgressLines) -> Result<ImportResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let branch = daemon.branch_name(&workspace, body.branch.as_ref())?;
    let author = call.principal(body.author.as_ref());
    let path = clean_path(body.path.as_bytes())?;
    let import = read(daemon, &body.source, progress)?;
    let message = body
        .message
        .clone()
        .unwrap_or_else(|| describe(&body.source));
    let request = commit_request(&author, CommitKind::Import, &message);
    let before = commit_request(&author, CommitKind::Snapshot, "");
    let mut result = ImportResult {
        commit: String::new(),
        entry_count: import.entry_count,
        bytes: import.byte_count,
        changes: Default::default(),
        warnings: import.warnings,
        operation: None,
    };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let head = daemon.clean_head(workspace.id, &branch, before.clone())?;
        let edit = placed(daemon, &head.root, import.edit.clone(), &path, body.replace)?;
        progress.phase("storing");
        let built = daemon
            .store
            .build_snapshot(&head.root, edit, &store_progress(progress))?;
        if built.root == head.root {
            result.commit = head.commit.to_hex();
            return Ok(result);
        }
        match daemon.move_branch(
            workspace.id,
            &branch,
            head.commit,
            built.root,
            request.clone(),
        ) {
            Err(error) if error.kind() == ErrorKind::Conflict && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(commit) => {
                // In a mounted branch something may have been written meanwhile: then the import
                // is put on top of that once more.
                let parent = daemon.store.commit(commit)?.parents.first().copied();
                if let Some(parent) = parent.filter(|parent| *parent != head.commit)
                    && commit != head.commit
                {
                    let root = daemon.store.commit(parent)?.root.clone();
                    let edit = placed(daemon, &root, import.edit.clone(), &path, body.replace)?;
                    let built = daemon.store.build_root(&root, edit)?;
                    daemon.move_branch(workspace.id, &branch, commit, built, request.clone())?;
                }
                let commit = daemon.store.branch(workspace.id, &branch)?;
                result.commit = commit.to_hex();
                result.changes = convert::change_counts(&daemon.store.changes(commit)?);
                result.operation = daemon.operation_of(&workspace, commit)?;
                return Ok(result);
            }
        }
    }
}

/// The edit that puts an imported tree at `path` of `root`.
fn placed(
    daemon: &Daemon,
    root: &Root,
    import: SnapshotEdit,
    path: &[u8],
    is_replacing: bool,
) -> Result<SnapshotEdit> {
    let names = split_path(path)?;
    if names.is_empty() && is_replacing {
        return Ok(import);
    }
    if !import.links.is_empty() && root.links.is_some() {
        // The numbers of imported files with several names may be taken: in a combined tree they
        // get numbers of their own only when the whole tree is replaced.
        return Err(Error::new(
            ErrorKind::Unsupported,
            "import hard links beside hard links that the workspace already has",
        )
        .with_hint("import with --replace, or into a workspace of its own"));
    }
    // From the root down to the directory: what is there already.
    let mut trees = vec![(root.attributes.clone(), Some(root.tree))];
    for depth in 1..=names.len() {
        let found = lookup_path(&daemon.store, root, &names[..depth])?;
        let inode = found
            .map(|entry| resolve_entry(&daemon.store, root.links, &entry))
            .transpose()?;
        trees.push(match inode {
            Some(inode) => match inode.node {
                Node::Directory { tree } => (inode.attributes, Some(tree)),
                _ => {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!(
                            "import into '{}': it is not a directory",
                            display_path(path)
                        ),
                    ));
                }
            },
            None => (
                Attributes {
                    mode: 0o755,
                    ..root.attributes.clone()
                },
                None,
            ),
        });
    }
    let (own_attributes, own_tree) = trees[names.len()].clone();
    let mut directory = on_top(
        daemon,
        import.root,
        own_tree.filter(|_| !is_replacing),
        root,
    )?;
    let mut attributes = if is_replacing || own_tree.is_none() {
        import.root_attributes.unwrap_or(own_attributes)
    } else {
        own_attributes
    };
    for (depth, name) in names.iter().enumerate().rev() {
        let inode = InodeEdit {
            attributes,
            node: NodeEdit::Directory(directory),
        };
        let (parent_attributes, tree) = trees[depth].clone();
        directory = DirectoryEdit {
            base: tree,
            entries: [(name.clone(), EntryEdit::Put(inode))].into(),
            ..Default::default()
        };
        attributes = parent_attributes;
    }
    Ok(SnapshotEdit {
        root_attributes: Some(attributes),
        root: directory,
        links: import.links,
    })
}

/// Imported entries on top of a directory; directories in both are joined.
fn on_top(
    daemon: &Daemon,
    import: DirectoryEdit,
    tree: Option<workspace_store::TreeId>,
    root: &Root,
) -> Result<DirectoryEdit> {
    use workspace_store::reader::ObjectReader;
    let Some(tree) = tree else { return Ok(import) };
    let mut joined = DirectoryEdit {
        base: Some(tree),
        ..Default::default()
    };
    for (name, mut entry) in import.entries {
        if let EntryEdit::Put(InodeEdit {
            node: NodeEdit::Directory(directory),
            ..
        }) = &mut entry
            && let Some(existing) = daemon.store.lookup(tree, &name)?
            && let Node::Directory { tree } =
                resolve_entry(&daemon.store, root.links, &existing)?.node
        {
            let imported = std::mem::take(directory);
            *directory = on_top(daemon, imported, Some(tree), root)?;
        }
        joined.entries.insert(name, entry);
    }
    Ok(joined)
}

/// Writes a state out to a directory or tar file.
pub fn export(call: &Call, body: ExportRequest, progress: &ProgressLines) -> Result<ExportResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let path = clean_path(body.path.as_bytes())?;
    let commit = super::references::target(daemon, &workspace, body.revision.as_ref(), &call.user)?;
    let root = daemon.store.commit(commit)?.root.clone();
    progress.phase("writing");
    let export = match &body.target {
        Place::Directory { path: target } => {
            let target = target.to_path();
            export_directory(&daemon.store, &root, &path, absolute(&target)?, progress)?
        }
        Place::Tar { path: target } => {
            let target = target.to_path();
            let (file, temporary) = create_beside(absolute(&target)?, body.overwrite)?;
            let mut output = BufWriter::with_capacity(1 << 20, file);
            let written =
                export_tar(&daemon.store, &root, &path, &mut output, progress).and_then(|export| {
                    let finish = || {
                        output.flush()?;
                        output.get_ref().sync_all()?;
                        std::fs::rename(&temporary, &target)
                    };
                    let mut finish = finish;
                    finish()
                        .map_err(|error| Error::io(format!("write {}", target.display()), error))?;
                    Ok(export)
                });
            if written.is_err() {
                let _ = std::fs::remove_file(&temporary);
            }
            written?
        }
    };
    Ok(ExportResult {
        commit: commit.to_hex(),
        entry_count: export.entry_count,
        bytes: export.byte_count,
        warnings: export.warnings,
    })
}

/// A new file that becomes `target` when it is whole.
fn create_beside(target: &Path, may_overwrite: bool) -> Result<(File, PathBuf)> {
    if !may_overwrite && target.symlink_metadata().is_ok() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("{} exists", target.display()),
        )
        .with_hint("choose another name, or replace it with --overwrite"));
    }
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    let temporary = target.with_file_name(name);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .map_err(|error| Error::io(format!("create {}", temporary.display()), error))?;
    Ok((file, temporary))
}
