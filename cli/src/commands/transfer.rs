//! `export`, `import`.

use computerd_api::v1::{ExportRequest, ImportRequest, Place};

use super::consent;
use super::short_id;
use super::workspace::source_place;
use crate::args::transfer::{ExportArgs, ImportArgs};
use crate::context::{Context, absolute_text};
use crate::error::{CommandError, Result};
use crate::output::diff::format_counts;
use crate::output::progress::ProgressDisplay;
use crate::output::sanitize::sanitize;
use crate::output::table::format_bytes;

/// Writes a state out.
pub async fn export(context: &Context<'_>, arguments: ExportArgs) -> Result<()> {
    let printer = context.printer;
    let target = match (arguments.directory, arguments.tar) {
        (Some(directory), _) => Place::Directory {
            path: absolute_text(&directory)?,
        },
        (None, Some(tar)) => Place::Tar {
            path: absolute_text(&tar)?,
        },
        (None, None) => {
            return Err(CommandError::usage(
                "no target is given",
                "give a directory, or --tar FILE",
            ));
        }
    };
    let request = ExportRequest {
        revision: arguments.target.revision,
        path: arguments.target.path,
        target,
        overwrite: arguments.overwrite,
    };
    let client = context.client().await?;
    let mut display = ProgressDisplay::new(printer);
    let stream = client.export(&arguments.target.name, &request).await?;
    let outcome = stream.finish(|progress| display.update(progress)).await;
    display.finish();
    let exported = outcome?;
    for warning in &exported.warnings {
        printer.warn(sanitize(warning.as_bytes()));
    }
    if printer.is_json() {
        return printer.json("export", &exported);
    }
    printer.note(format!(
        "exported {}: {} entries, {}",
        short_id(&exported.commit),
        exported.entry_count,
        format_bytes(exported.bytes)
    ));
    Ok(())
}

/// Brings content in, after consent.
pub async fn import(context: &Context<'_>, arguments: ImportArgs) -> Result<()> {
    let printer = context.printer;
    let source = source_place(&arguments.source)?;
    let client = context.client().await?;
    if !arguments.yes {
        let status = client.workspace_status(&arguments.name).await?;
        consent::ask_about(
            context,
            &import_plan(&arguments, &status.workspace.head),
            "Import?",
        )?;
    }
    let request = ImportRequest {
        source,
        branch: arguments.branch,
        replace: arguments.replace,
        path: arguments.to.unwrap_or_default(),
        message: arguments.message,
        author: arguments.principal.principal,
    };
    let mut display = ProgressDisplay::new(printer);
    let stream = client.import(&arguments.name, &request).await?;
    let outcome = stream.finish(|progress| display.update(progress)).await;
    display.finish();
    let imported = outcome?;
    for warning in &imported.warnings {
        printer.warn(sanitize(warning.as_bytes()));
    }
    if printer.is_json() {
        return printer.json("import", &imported);
    }
    printer.line(&imported.commit)?;
    printer.note(format!(
        "read {} entries, {}: {}",
        imported.entry_count,
        format_bytes(imported.bytes),
        format_counts(&imported.changes)
    ));
    printer.operation(imported.operation.as_ref());
    Ok(())
}

fn import_plan(arguments: &ImportArgs, head: &str) -> String {
    let place = match &arguments.to {
        Some(path) if !path.as_bytes().is_empty() => sanitize(path.as_bytes()),
        _ => "the root".to_owned(),
    };
    let rest = if arguments.replace {
        "everything else there is removed"
    } else {
        "files of the same name are replaced, the rest stays"
    };
    format!(
        "import {} into {place} of {} (now at {}); {rest}\n  what is uncommitted is committed first\n",
        sanitize(arguments.source.as_os_str().as_encoded_bytes()),
        arguments.name,
        short_id(head),
    )
}
