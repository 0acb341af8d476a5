//! `diff`.

use computerd_api::v1::{DiffOptions, DiffQuery, DiffResult, ErrorBody, ErrorKind, PathText};

use crate::args::diff::DiffArgs;
use crate::args::shared::DiffFormatArgs;
use crate::context::Context;
use crate::error::{CommandError, ExitStatus, Result};

/// Shows what differs between two states.
pub async fn diff(context: &Context<'_>, arguments: DiffArgs) -> Result<ExitStatus> {
    let printer = context.printer;
    let (from, to) = match (arguments.target.revision, arguments.from, arguments.to) {
        (None, from, to) => (from, to),
        (Some(from), to, None) => (Some(from), to),
        (Some(_), _, Some(_)) => {
            return Err(CommandError::usage(
                "more than two states are given",
                "write NAME A B, or NAME@A B; paths come after `--`",
            ));
        }
    };
    let is_silent = printer.is_quiet() && arguments.exit_code && !printer.is_json();
    let mut options = options(&arguments.format, arguments.paths, !is_silent);
    if is_silent {
        options.limit = Some(1);
    }
    let query = DiffQuery { from, to, options };
    let client = context.client().await?;
    let outcome = client.diff(&arguments.target.name, &query).await;
    let diff = outcome.map_err(|error| with_path_hint(error, &query))?;
    if printer.is_json() {
        printer.json("diff", &diff)?;
    } else if !is_silent {
        print_diff(context, &diff, &arguments.format)?;
    }
    let differs = diff.counts.total() > 0 || !diff.entries.is_empty();
    Ok(if arguments.exit_code && differs {
        ExitStatus::Differs
    } else {
        ExitStatus::Success
    })
}

/// A word that was meant as a path is taken for a revision without `--`.
fn with_path_hint(mut error: ErrorBody, query: &DiffQuery) -> ErrorBody {
    let has_revision = query.from.is_some() || query.to.is_some();
    if has_revision && error.kind == ErrorKind::NotFound && query.options.paths.is_empty() {
        let hint = error
            .hint
            .map(|hint| format!("{hint}; "))
            .unwrap_or_default();
        error.hint = Some(format!(
            "{hint}paths come after `--`: kura diff NAME -- PATH"
        ));
    }
    error
}

/// What to ask the daemon for.
pub fn options(format: &DiffFormatArgs, paths: Vec<PathText>, has_text: bool) -> DiffOptions {
    DiffOptions {
        paths,
        text: has_text && !format.stat && !format.name_status,
        line_counts: has_text && format.stat,
        context_lines: format.context_lines,
        no_renames: format.no_renames,
        limit: None,
    }
}

/// Prints a difference as the flags say.
pub fn print_diff(context: &Context<'_>, diff: &DiffResult, format: &DiffFormatArgs) -> Result<()> {
    let style = context.diff_style();
    let text = if format.name_status {
        style.name_status(diff, if format.nul { 0 } else { b'\n' })
    } else if diff.entries.is_empty() {
        return Ok(());
    } else if format.stat {
        style.stat(diff)
    } else {
        style.unified(diff)
    };
    context.printer.write(text)
}
