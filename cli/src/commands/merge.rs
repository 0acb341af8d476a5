//! `merge`, `conflicts`, `resolve`.
//!
//! None of them takes anything away that a commit doesn't keep, so that they are done without
//! asking; each prints the command that takes it back.

use computerd_api::v1::{
    BranchConflicts, ConflictInfo, ConflictQuery, MergeRequest, ResolveRequest, ResolveSide,
};

use super::revert::{report, show_plan};
use super::short_id;
use crate::args::merge::{ConflictsArgs, MergeArgs, ResolveArgs};
use crate::context::Context;
use crate::error::{CommandError, ExitStatus, Result};
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;

/// How many conflicts one line names.
const NAMED_CONFLICTS: usize = 3;

/// Brings another history in.
pub async fn merge(context: &Context<'_>, arguments: MergeArgs) -> Result<ExitStatus> {
    let client = context.client().await?;
    let (from, revision) = match arguments.source.split_once('@') {
        Some((_, "")) => {
            return Err(CommandError::usage(
                format!("the revision after '@' is empty in '{}'", arguments.source),
                "write OTHER@REV, or OTHER alone",
            ));
        }
        Some((from, revision)) if !from.is_empty() => (from.to_owned(), Some(revision.to_owned())),
        _ => (arguments.source, None),
    };
    let request = MergeRequest {
        from,
        revision,
        branch: arguments.branch,
        message: arguments.message,
        dry_run: arguments.dry_run,
        principal: arguments.principal.principal,
    };
    let done = client.merge(&arguments.name, &request).await?;
    if arguments.dry_run {
        show_plan(context, &done.plan)?;
    } else {
        report(context, "merge", &arguments.name, &done)?;
    }
    Ok(status(done.plan.conflict_count))
}

/// How a verb ends that made conflicts, or none.
pub fn status(conflict_count: u64) -> ExitStatus {
    match conflict_count {
        0 => ExitStatus::Success,
        _ => ExitStatus::Conflicts,
    }
}

/// Lists what is open.
pub async fn conflicts(context: &Context<'_>, arguments: ConflictsArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let query = ConflictQuery {
        revision: arguments.target.revision,
    };
    let list = client.conflicts(&arguments.target.name, &query).await?;
    if printer.is_json() {
        return printer.json("conflicts", &list);
    }
    if list.conflicts.is_empty() {
        printer.note(format!("no conflicts in {}", short_id(&list.commit)));
        return Ok(());
    }
    let mut table = TextTable::new(&["REASON", "PATH", "FROM", "OTHER SIDE"]);
    for conflict in &list.conflicts {
        table.row([
            conflict.reason.clone(),
            sanitize(conflict.path.as_bytes()),
            sanitize(conflict.theirs_label.as_bytes()),
            other_side(conflict),
        ]);
    }
    printer.write(table.render())
}

/// Where the side is that is not at the path itself.
pub fn other_side(conflict: &ConflictInfo) -> String {
    match (&conflict.beside, &conflict.ours, &conflict.theirs) {
        (Some(path), _, _) => sanitize(path.as_bytes()),
        (None, None, _) => "deleted here".to_owned(),
        (None, _, None) => "deleted there".to_owned(),
        _ if matches!(conflict.reason.as_str(), "content" | "added") => {
            "in the file, between markers".to_owned()
        }
        _ => format!("in {}", short_id(&conflict.theirs_commit)),
    }
}

/// The conflicts of a branch in one line.
pub fn describe(branch: &BranchConflicts) -> String {
    let paths: Vec<String> = branch
        .conflicts
        .iter()
        .take(NAMED_CONFLICTS)
        .map(|conflict| sanitize(conflict.path.as_bytes()))
        .collect();
    let more = match branch.count - paths.len() as u64 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let paths = paths.join(", ");
    format!("{} on {}: {paths}{more}", branch.count, branch.branch)
}

/// Takes paths out of the conflicts.
pub async fn resolve(context: &Context<'_>, arguments: ResolveArgs) -> Result<()> {
    let client = context.client().await?;
    let side = if arguments.ours {
        Some(ResolveSide::Ours)
    } else if arguments.theirs {
        Some(ResolveSide::Theirs)
    } else if arguments.base {
        Some(ResolveSide::Base)
    } else {
        None
    };
    let request = ResolveRequest {
        paths: arguments.paths,
        side,
        branch: arguments.branch,
        dry_run: arguments.dry_run,
        principal: arguments.principal.principal,
    };
    let done = client.resolve(&arguments.name, &request).await?;
    if arguments.dry_run {
        return show_plan(context, &done.plan);
    }
    report(context, "resolve", &arguments.name, &done)
}
