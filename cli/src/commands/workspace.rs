//! `init`, `list`, `fork`, `handoff`.

use std::path::Path;

use computerd_api::v1::{CreateWorkspace, ErrorKind, ForkRequest, HandoffRequest, Place};

use super::short_id;
use crate::args::workspace::{ForkArgs, HandoffArgs, InitArgs};
use crate::context::{Context, StoreUse, absolute_text};
use crate::error::{CommandError, Result};
use crate::output::color::Role;
use crate::output::progress::ProgressDisplay;
use crate::output::sanitize::sanitize;
use crate::output::table::{TextTable, format_bytes};
use crate::output::time::relative;

/// Makes a workspace.
pub async fn init(context: &Context<'_>, arguments: InitArgs) -> Result<()> {
    let printer = context.printer;
    let from = arguments.from.as_deref().map(source_place).transpose()?;
    let request = CreateWorkspace {
        name: arguments.name,
        from,
        message: arguments.message,
        author: arguments.principal.principal,
    };
    let client = context.client_for(StoreUse::CreateIfAbsent).await?;
    let mut display = ProgressDisplay::new(printer);
    let stream = client.create_workspace(&request).await?;
    let outcome = stream.finish(|progress| display.update(progress)).await;
    display.finish();
    let created = outcome?;
    for warning in &created.warnings {
        printer.warn(sanitize(warning.as_bytes()));
    }
    if printer.is_json() {
        return printer.json("workspace_created", &created);
    }
    printer.line(&created.commit)?;
    printer.note(format!(
        "workspace {} at {} ({} entries, {})",
        created.name,
        short_id(&created.commit),
        created.entry_count,
        format_bytes(created.bytes)
    ));
    Ok(())
}

/// Lists the workspaces.
pub async fn list(context: &Context<'_>) -> Result<()> {
    let printer = context.printer;
    let list = context.client().await?.workspaces().await?;
    if printer.is_json() {
        return printer.json("workspaces", &list);
    }
    if list.workspaces.is_empty() {
        printer.note("no workspaces; `kura init NAME` makes one");
        return Ok(());
    }
    let now = context.now();
    let mut table = TextTable::new(&["NAME", "BRANCH", "HEAD", "CHANGED", "MOUNTS"]).right(4);
    for workspace in &list.workspaces {
        table.row([
            sanitize(workspace.name.as_bytes()),
            sanitize(workspace.default_branch.as_bytes()),
            short_id(&workspace.head).to_owned(),
            relative(&workspace.head_time, now),
            workspace.mount_count.to_string(),
        ]);
    }
    printer.write(table.render())
}

/// Makes a workspace that begins at a state of another one.
pub async fn fork(context: &Context<'_>, arguments: ForkArgs) -> Result<()> {
    let printer = context.printer;
    let request = ForkRequest {
        name: arguments.new_name,
        revision: arguments.source.revision,
        principal: arguments.principal.principal,
    };
    let client = context.client().await?;
    let forked = client.fork(&arguments.source.name, &request).await?;
    if printer.is_json() {
        return printer.json("workspace_forked", &forked);
    }
    printer.line(&forked.commit)?;
    printer.note(format!(
        "workspace {} begins at {}",
        forked.name,
        short_id(&forked.commit)
    ));
    Ok(())
}

/// Passes a workspace on.
pub async fn handoff(context: &Context<'_>, arguments: HandoffArgs) -> Result<()> {
    let printer = context.printer;
    let request = HandoffRequest {
        to: arguments.to,
        branch: arguments.branch,
        message: arguments.message,
        principal: arguments.principal.principal,
    };
    let client = context.client().await?;
    let passed = client.handoff(&arguments.name, &request).await?;
    if printer.is_json() {
        return printer.json("handoff", &passed);
    }
    printer.line(&passed.commit)?;
    printer.note(format!(
        "{} of {} is passed to {} (fence {})",
        passed.branch, arguments.name, request.to, passed.fence
    ));
    for mount in &passed.fenced_mounts {
        printer.note(format!("read-only now: {}", sanitize(mount.as_bytes())));
    }
    let name = &arguments.name;
    let live = match &request.branch {
        Some(branch) => format!("{name}@{branch}"),
        None => name.clone(),
    };
    let as_holder = format!("kura mount {live} DIR --as {}", request.to);
    let elsewhere = format!(
        "kura mount {name}@{} DIR --branch NEW",
        short_id(&passed.commit)
    );
    let palette = printer.error_palette();
    printer.note(format!(
        "{} goes on with: {}",
        request.to,
        palette.paint(Role::Hint, &as_holder)
    ));
    printer.note(format!(
        "or from this commit on a branch of its own: {}",
        palette.paint(Role::Hint, &elsewhere)
    ));
    printer.operation(Some(&passed.operation));
    Ok(())
}

/// Where content is brought in from: a directory, or a tar file.
///
/// # Errors
/// If it is neither, or can't be looked at.
pub fn source_place(path: &Path) -> Result<Place> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| CommandError::io(format!("look at {}", path.display()), &error))?;
    let text = absolute_text(path)?;
    if metadata.is_dir() {
        Ok(Place::Directory { path: text })
    } else if metadata.is_file() {
        Ok(Place::Tar { path: text })
    } else {
        Err(CommandError::with_hint(
            ErrorKind::InvalidInput,
            format!("{} is neither a directory nor a file", path.display()),
            "give a directory, or a tar file (plain or zstd)",
        ))
    }
}
