//! `restore`, `rollback`, `undo`, `operations`.

use computerd_api::v1::{
    OperationQuery, Plan, RestoreRequest, RevertResult, RollbackRequest, UndoRequest,
};

use super::merge::{other_side, status};
use super::{consent, short_id};
use crate::args::revert::{OperationsArgs, RestoreArgs, RollbackArgs, UndoArgs};
use crate::args::shared::ConsentArgs;
use crate::context::Context;
use crate::error::{ExitStatus, Result};
use crate::output::plan;
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;
use crate::output::time::relative;

/// Brings paths back.
pub async fn restore(context: &Context<'_>, arguments: RestoreArgs) -> Result<()> {
    let client = context.client().await?;
    let mut request = RestoreRequest {
        paths: arguments.paths,
        from: arguments.from,
        branch: arguments.branch,
        dry_run: true,
        principal: arguments.principal.principal,
    };
    if consent::needs_plan(&arguments.consent) {
        let planned = client.restore(&arguments.name, &request).await?;
        if !goes_on(context, &planned, &arguments.consent, "Restore?")? {
            return Ok(());
        }
    }
    request.dry_run = false;
    let done = client.restore(&arguments.name, &request).await?;
    report(context, "restore", &arguments.name, &done)
}

/// Sets a branch back, or takes changes out.
pub async fn rollback(context: &Context<'_>, arguments: RollbackArgs) -> Result<ExitStatus> {
    let client = context.client().await?;
    let mut request = RollbackRequest {
        revision: arguments.revision,
        run: arguments.run,
        by: arguments.by,
        branch: arguments.branch,
        paths: arguments.paths,
        dry_run: true,
        principal: arguments.principal.principal,
    };
    if consent::needs_plan(&arguments.consent) {
        let planned = client.rollback(&arguments.name, &request).await?;
        if !goes_on(context, &planned, &arguments.consent, "Roll back?")? {
            return Ok(status(planned.plan.conflict_count));
        }
    }
    request.dry_run = false;
    let done = client.rollback(&arguments.name, &request).await?;
    report(context, "rollback", &arguments.name, &done)?;
    Ok(status(done.plan.conflict_count))
}

/// Takes an operation back.
pub async fn undo(context: &Context<'_>, arguments: UndoArgs) -> Result<()> {
    let client = context.client().await?;
    let mut request = UndoRequest {
        operation: arguments.operation,
        dry_run: true,
        principal: arguments.principal.principal,
    };
    if consent::needs_plan(&arguments.consent) {
        let planned = client.undo(&arguments.name, &request).await?;
        if !goes_on(context, &planned, &arguments.consent, "Undo?")? {
            return Ok(());
        }
    }
    request.dry_run = false;
    let done = client.undo(&arguments.name, &request).await?;
    report(context, "undo", &arguments.name, &done)
}

/// Prints what would be done.
pub(super) fn show_plan(context: &Context<'_>, planned: &Plan) -> Result<()> {
    let printer = context.printer;
    if printer.is_json() {
        return printer.json("plan", planned);
    }
    printer.write(plan::render(planned, printer.palette))
}

/// Shows the plan; whether to go on after it.
fn goes_on(
    context: &Context<'_>,
    planned: &RevertResult,
    consent: &ConsentArgs,
    question: &str,
) -> Result<bool> {
    if consent.dry_run {
        show_plan(context, &planned.plan)?;
        return Ok(false);
    }
    // Without a change the daemon is asked all the same, so that the answer has one form.
    if !plan::is_empty(&planned.plan) {
        consent::ask(context, &planned.plan, question)?;
    }
    Ok(true)
}

/// Prints what was done; stdout is the id of the commit that the branch names now.
pub(super) fn report(
    context: &Context<'_>,
    kind: &str,
    workspace: &str,
    done: &RevertResult,
) -> Result<()> {
    let printer = context.printer;
    if printer.is_json() {
        return printer.json(kind, done);
    }
    match &done.commit {
        Some(commit) => {
            printer.line(commit)?;
            let count = done.plan.change_count;
            printer.note(format!(
                "{} now at {}; {count} path{} changed",
                done.plan.branch,
                short_id(commit),
                if count == 1 { "" } else { "s" }
            ));
        }
        None if done.operation.is_none() => printer.note("nothing differs, nothing was changed"),
        None => printer.note(sanitize(done.plan.summary.as_bytes())),
    }
    if let Some(rescue) = &done.rescue {
        printer.note(format!(
            "what was uncommitted is kept in {}",
            short_id(rescue)
        ));
    }
    let count = done.plan.conflict_count;
    if count > 0 {
        let s = if count == 1 { "" } else { "s" };
        printer.note(format!(
            "{count} conflict{s}; `kura conflicts {workspace}` lists all, `kura resolve` ends one:"
        ));
    }
    for conflict in done.plan.conflicts.iter().take(plan::MAX_LISTED) {
        let path = sanitize(conflict.path.as_bytes());
        let other = other_side(conflict);
        printer.note(format!("  {}: {path} ({other})", conflict.reason));
    }
    printer.operation(done.operation.as_ref());
    Ok(())
}

/// Lists the operations of a workspace.
pub async fn operations(context: &Context<'_>, arguments: OperationsArgs) -> Result<()> {
    let printer = context.printer;
    let query = OperationQuery {
        limit: Some(arguments.limit),
        before: None,
    };
    let client = context.client().await?;
    let list = client.operations(&arguments.name, &query).await?;
    if printer.is_json() {
        return printer.json("operations", &list);
    }
    let now = context.now();
    let titles = ["OPERATION", "WHEN", "BY", "KIND", "DESCRIPTION"];
    let mut table = TextTable::new(&titles).right(0);
    for operation in &list.operations {
        let mut description = sanitize(operation.description.as_bytes());
        if let Some(by) = operation.undone_by {
            description.push_str(&format!(" (undone by {by})"));
        }
        table.row([
            operation.id.to_string(),
            relative(&operation.time, now),
            sanitize(operation.principal.as_bytes()),
            operation.kind.clone(),
            description,
        ]);
    }
    printer.write(table.render())
}
