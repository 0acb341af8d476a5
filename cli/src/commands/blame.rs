//! `blame`, `runs`, and how those are shown who changed something.

use computerd_api::v1::{ActorInfo, BlameQuery, ChangeOrigin, ProcessChanges, RunQuery};

use super::short_id;
use crate::args::run::{BlameArgs, RunsArgs};
use crate::context::Context;
use crate::error::Result;
use crate::output::color::Role;
use crate::output::sanitize::{sanitize, sanitize_text};
use crate::output::table::TextTable;
use crate::output::time::{absolute, relative};

/// Paths of one process that `show` prints.
const SHOWN_PATHS: usize = 20;
/// Columns for the author of a line.
const AUTHOR_WIDTH: usize = 12;

/// The command of an actor.
pub fn command_text(actor: &ActorInfo) -> String {
    let Some(process) = &actor.process else {
        return "unknown command".to_owned();
    };
    let text = if !process.command.is_empty() {
        process.command.join(" ")
    } else if !process.name.is_empty() {
        process.name.clone()
    } else {
        return format!("unknown process {}", process.pid);
    };
    format!("{} (pid {})", sanitize(text.as_bytes()), process.pid)
}

/// Principal, run, step and container of an actor.
fn place_text(actor: &ActorInfo) -> String {
    let mut text = sanitize(actor.principal.as_bytes());
    if let Some(run) = &actor.run {
        text.push_str(&format!(", run {}", sanitize(run.as_bytes())));
    }
    if let Some(step) = actor.step {
        text.push_str(&format!(" step {step}"));
    }
    if let Some(container) = &actor.container {
        text.push_str(&format!(", container {}", short_id(container)));
    }
    text
}

fn ancestors_text(actor: &ActorInfo) -> Option<String> {
    let process = actor.process.as_ref()?;
    let names = process.ancestors.iter().map(|ancestor| {
        let name = sanitize(ancestor.name.as_bytes());
        format!("{name} ({})", ancestor.pid)
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names.join(" < "))
}

/// The changes of a commit by the processes that made them.
pub fn processes_text(context: &Context<'_>, processes: &[ProcessChanges]) -> String {
    let printer = context.printer;
    let mut text = String::new();
    for found in processes {
        let command = command_text(&found.actor);
        text.push_str(&format!("\n{}\n", printer.paint(Role::Reference, &command)));
        text.push_str(&format!("  by {}\n", place_text(&found.actor)));
        if let Some(ancestors) = ancestors_text(&found.actor) {
            text.push_str(&format!("  from {ancestors}\n"));
        }
        for change in found.paths.iter().take(SHOWN_PATHS) {
            let path = match change.path.as_bytes() {
                b"" => ".".to_owned(),
                bytes => sanitize(bytes),
            };
            text.push_str(&format!("  {:<12} {path}\n", change.change));
        }
        if found.paths.len() > SHOWN_PATHS {
            let more = found.paths.len() - SHOWN_PATHS;
            text.push_str(&format!("  … and {more} more (--json lists all)\n"));
        }
    }
    text
}

fn origin_text(context: &Context<'_>, origin: &ChangeOrigin) -> String {
    let printer = context.printer;
    let commit = &origin.commit;
    let mut text = printer.paint(Role::Id, &format!("commit {}", commit.id));
    text.push('\n');
    let mut field = |name: &str, value: &str| text.push_str(&format!("{name:<9}{value}\n"));
    field(
        "Date:",
        &format!(
            "{} ({})",
            absolute(&commit.time),
            relative(&commit.time, context.now())
        ),
    );
    field("Change:", &origin.change);
    for actor in &origin.actors {
        field("Command:", &command_text(actor));
        field("By:", &place_text(actor));
        if let Some(ancestors) = ancestors_text(actor) {
            field("From:", &ancestors);
        }
    }
    if !commit.message.trim().is_empty() {
        let message = sanitize_text(commit.message.as_bytes());
        field("Message:", message.lines().next().unwrap_or_default());
    }
    text
}

/// Shows who last changed a path, or each of its lines.
pub async fn blame(context: &Context<'_>, arguments: BlameArgs) -> Result<()> {
    let printer = context.printer;
    let query = BlameQuery {
        revision: arguments.target.revision,
        path: arguments.path,
        lines: arguments.lines,
    };
    let client = context.client().await?;
    let result = client.blame(&arguments.target.name, &query).await?;
    if printer.is_json() {
        return printer.json("blame", &result);
    }
    if !arguments.lines {
        return printer.write(origin_text(context, &result.newest));
    }
    let heads: Vec<String> = result
        .origins
        .iter()
        .map(|origin| {
            let actor = origin.actors.last();
            let principal = actor.map_or(&origin.commit.author, |actor| &actor.principal);
            let mut author: String = sanitize(principal.as_bytes())
                .chars()
                .take(AUTHOR_WIDTH)
                .collect();
            if let Some(step) = actor.and_then(|actor| actor.step) {
                author.push_str(&format!(" #{step}"));
            }
            let id = printer.paint(Role::Id, short_id(&origin.commit.id));
            format!("{id} {author:<16} {}", absolute(&origin.commit.time))
        })
        .collect();
    let width = result.lines.len().to_string().len();
    for (position, line) in result.lines.iter().enumerate() {
        let head = heads.get(line.origin).map_or("", String::as_str);
        let text = sanitize(line.text.as_bytes());
        printer.write(format!("{head} {:>width$}) {text}\n", position + 1))?;
    }
    Ok(())
}

/// Lists the runs of a workspace.
pub async fn runs(context: &Context<'_>, arguments: RunsArgs) -> Result<()> {
    let printer = context.printer;
    let query = RunQuery {
        run: arguments.run,
        limit: arguments.limit,
    };
    let client = context.client().await?;
    let list = client.runs(&arguments.name, &query).await?;
    if printer.is_json() {
        return printer.json("runs", &list);
    }
    let titles = [
        "STARTED",
        "RUN",
        "STEP",
        "PRINCIPAL",
        "EXIT",
        "COMMITS",
        "PATHS",
        "COMMAND",
    ];
    let mut table = TextTable::new(&titles).right(2).right(4).right(5).right(6);
    for step in &list.steps {
        let exit = match (&step.exit_code, &step.ended, &step.started) {
            (Some(code), ..) => code.to_string(),
            (None, None, Some(_)) => "runs".to_owned(),
            _ => "-".to_owned(),
        };
        table.row([
            step.started.as_deref().map_or("-".to_owned(), absolute),
            sanitize(step.run.as_bytes()),
            step.step.map_or("-".to_owned(), |step| step.to_string()),
            sanitize(step.principal.as_bytes()),
            exit,
            step.commits.len().to_string(),
            step.path_count.to_string(),
            sanitize(step.command.join(" ").as_bytes()),
        ]);
    }
    printer.write(table.render())
}
