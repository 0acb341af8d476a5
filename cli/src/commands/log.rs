//! `log`, `show`.

use computerd_api::v1::{CommitInfo, DiffOptions, LogPage, LogQuery, ShowQuery};

use super::blame::processes_text;
use super::diff::{options, print_diff};
use super::short_id;
use super::status::first_line;
use crate::args::log::{LogArgs, ShowArgs};
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::color::Role;
use crate::output::diff::format_counts;
use crate::output::sanitize::{sanitize, sanitize_text};
use crate::output::time::{absolute, relative};

/// Commits that are asked for at once.
const PAGE_LENGTH: u32 = 500;

/// Shows the history, page by page.
pub async fn log(context: &Context<'_>, arguments: LogArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let mut left = arguments.limit;
    let mut query = LogQuery {
        revision: arguments.target.revision,
        paths: arguments.paths,
        run: arguments.run,
        step: arguments.step,
        author: arguments.by,
        limit: None,
        after: None,
    };
    let mut all = LogPage::default();
    let mut is_first = true;
    loop {
        query.limit = Some(left.unwrap_or(PAGE_LENGTH).min(PAGE_LENGTH));
        let page = client.log(&arguments.target.name, &query).await?;
        let count = u32::try_from(page.commits.len()).unwrap_or(u32::MAX);
        left = left.map(|left| left.saturating_sub(count));
        query.after = page.commits.last().map(|commit| commit.id.clone());
        let is_last = !page.has_more || count == 0 || left == Some(0);
        if printer.is_json() {
            all.has_more = page.has_more;
            all.commits.extend(page.commits);
        } else {
            for commit in &page.commits {
                let text = if arguments.ids {
                    format!("{}\n", commit.id)
                } else if arguments.oneline {
                    one_line(context, commit)
                } else {
                    let separator = if is_first { "" } else { "\n" };
                    format!("{separator}{}", several_lines(context, commit))
                };
                printer.write(text)?;
                is_first = false;
            }
            printer.flush()?;
        }
        if is_last {
            break;
        }
    }
    if printer.is_json() {
        printer.json("log", &all)?;
    }
    Ok(())
}

/// Shows one commit with its changes.
pub async fn show(context: &Context<'_>, arguments: ShowArgs) -> Result<()> {
    let printer = context.printer;
    let revision = match (arguments.target.revision, arguments.revision) {
        (Some(_), Some(_)) => {
            return Err(CommandError::usage(
                "the commit is given twice",
                "write either NAME@REV or NAME REV",
            ));
        }
        (first, second) => first.or(second),
    };
    let options = if arguments.no_patch {
        DiffOptions {
            paths: arguments.paths,
            limit: Some(0),
            ..DiffOptions::default()
        }
    } else {
        options(&arguments.format, arguments.paths, true)
    };
    let client = context.client().await?;
    let query = ShowQuery { revision, options };
    let shown = client.show(&arguments.target.name, &query).await?;
    if printer.is_json() {
        return printer.json("show", &shown);
    }
    printer.write(several_lines(context, &shown.commit))?;
    if !arguments.format.name_status {
        printer.write(processes_text(context, &shown.processes))?;
    }
    if arguments.no_patch || shown.diff.entries.is_empty() {
        return Ok(());
    }
    printer.write("\n")?;
    print_diff(context, &shown.diff, &arguments.format)
}

fn one_line(context: &Context<'_>, commit: &CommitInfo) -> String {
    let printer = context.printer;
    let mut line = printer.paint(Role::Id, short_id(&commit.id));
    if !commit.references.is_empty() {
        let names = sanitize(commit.references.join(", ").as_bytes());
        line.push_str(&format!(" ({})", printer.paint(Role::Reference, &names)));
    }
    line.push_str(&format!(" {}", printer.paint(Role::Dim, &commit.kind)));
    if !commit.message.trim().is_empty() {
        line.push_str(&format!(" {}", first_line(&commit.message)));
    } else if let Some(changes) = &commit.changes {
        line.push_str(&format!(" {}", format_counts(changes)));
    }
    if commit.has_conflicts {
        line.push_str(" (conflicts)");
    }
    line.push('\n');
    line
}

fn several_lines(context: &Context<'_>, commit: &CommitInfo) -> String {
    let printer = context.printer;
    let mut text = printer.paint(Role::Id, &format!("commit {}", commit.id));
    if !commit.references.is_empty() {
        let names = sanitize(commit.references.join(", ").as_bytes());
        text.push_str(&format!(" ({})", printer.paint(Role::Reference, &names)));
    }
    text.push('\n');
    let mut field = |name: &str, value: &str| {
        text.push_str(&format!("{name:<9}{value}\n"));
    };
    field("Author:", &sanitize(commit.author.as_bytes()));
    field(
        "Date:",
        &format!(
            "{} ({})",
            absolute(&commit.time),
            relative(&commit.time, context.now())
        ),
    );
    field("Kind:", &commit.kind);
    if let Some(run) = &commit.run {
        let step = commit.step.map(|step| format!(" step {step}"));
        let run = sanitize(run.as_bytes());
        field("Run:", &format!("{run}{}", step.unwrap_or_default()));
    }
    if commit.parents.len() > 1 {
        let parents: Vec<&str> = commit.parents.iter().map(|id| short_id(id)).collect();
        field("Parents:", &parents.join(" "));
    }
    if commit.has_conflicts {
        field("Open:", "conflicts; `kura conflicts` lists them");
    }
    if let Some(changes) = &commit.changes {
        field("Changes:", &format_counts(changes));
    }
    if !commit.message.trim().is_empty() {
        text.push('\n');
        for line in sanitize_text(commit.message.as_bytes()).lines() {
            text.push_str(format!("    {line}").trim_end());
            text.push('\n');
        }
    }
    text
}
