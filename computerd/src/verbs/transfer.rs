//! Bringing content in from directories and tar files, and writing it out.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use computerd_api::v1::{ExportRequest, ExportResult, ImportRequest, ImportResult, Place};
use workspace_store::export::{export_directory, export_tar};
use workspace_store::import::{Import, TarOptions, import_directory, import_tar};
use workspace_store::object::{CommitKind, Root};
use workspace_store::path::{display_path, is_at_or_below};
use workspace_store::restore::graft_edit;
use workspace_store::snapshot::SnapshotProgress;

use super::revert::without_purged;
use crate::convert;
use crate::daemon::{Daemon, clean_path, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;
use crate::server::progress::ProgressLines;

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
    let scope = call.scope(body.author.as_ref())?;
    let (workspace, author) = (&scope.workspace, &scope.principal);
    let branch = daemon.branch_name(workspace, body.branch.as_ref())?;
    let path = clean_path(body.path.as_bytes())?;
    let import = read(daemon, &body.source, progress)?;
    let message = body
        .message
        .clone()
        .unwrap_or_else(|| describe(&body.source));
    progress.phase("storing");
    let head = daemon.store.branch(workspace.id, &branch)?;
    let nothing = Root {
        links: None,
        ..daemon.store.commit(head)?.root.clone()
    };
    let imported = daemon
        .store
        .build_root(&nothing, import.edit, &store_progress(progress))?;
    let _access = daemon.write_access(workspace, &branch, author)?;
    let request = commit_request(author, CommitKind::Import, &message);
    let outcome = daemon.change_branch(
        workspace.id,
        &branch,
        &|now| {
            let edit = graft_edit(&daemon.store, now, &imported, &path, body.replace)?;
            let wanted = daemon.store.build_root(now, edit, &|_| {})?;
            Ok(scope.permitted(now, wanted)?.into())
        },
        &request,
    )?;
    let mut result = ImportResult {
        commit: outcome.commit.unwrap_or(outcome.before).to_hex(),
        entry_count: import.entry_count,
        bytes: import.byte_count,
        changes: Default::default(),
        warnings: import.warnings,
        operation: None,
    };
    if let Some(commit) = outcome.commit {
        result.changes = convert::change_counts(&scope.seen(commit)?.changes);
        result.operation = daemon.operation_of(workspace, commit)?;
    }
    Ok(result)
}

/// Writes a state out to a directory or tar file.
pub fn export(call: &Call, body: ExportRequest, progress: &ProgressLines) -> Result<ExportResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let path = clean_path(body.path.as_bytes())?;
    let commit = super::references::target(
        daemon,
        &workspace,
        body.revision.as_ref(),
        call.caller.name(),
    )?;
    let whole = daemon.store.commit(commit)?.root.clone();
    let (root, mut left_out) = without_purged(daemon, None, whole)?;
    if left_out.contains(&path) {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("export '{}': its content was purged", display_path(&path)),
        )
        .with_hint("`kura audit` says when, and by whom"));
    }
    left_out.retain(|purged| is_at_or_below(purged, &path));
    progress.phase("writing");
    let mut export = match &body.target {
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
    export.warnings.extend(left_out.iter().map(|path| {
        format!(
            "'{}' is left out: its content was purged",
            display_path(path)
        )
    }));
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
