//! `branch`, `tag`.

use computerd_api::v1::{CreateReference, ErrorKind, ReferenceResult};

use super::{consent, short_id};
use crate::args::branch::{
    BranchArgs, BranchCommand, ReferenceCreateArgs, ReferenceDeleteArgs, ReferenceListArgs,
    TagArgs, TagCommand,
};
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;
use crate::output::time::relative;

/// Lists, makes and deletes branches.
pub async fn branch(context: &Context<'_>, arguments: BranchArgs) -> Result<()> {
    match arguments.command {
        BranchCommand::List(arguments) => list_branches(context, arguments).await,
        BranchCommand::Create(arguments) => {
            let (name, request) = create_request(arguments);
            let client = context.client().await?;
            let made = client.create_branch(&name, &request).await?;
            report(context, "branch_created", "branch", &made)
        }
        BranchCommand::Delete(arguments) => {
            let client = context.client().await?;
            let list = client.branches(&arguments.name).await?;
            let found = list.branches.iter().find(|b| b.name == arguments.reference);
            let commit = found.map(|branch| branch.commit.as_str());
            if !may_delete(context, &arguments, "branch", commit)? {
                return Ok(());
            }
            let gone = client
                .delete_branch(&arguments.name, &arguments.reference)
                .await?;
            report(context, "branch_deleted", "deleted branch", &gone)
        }
    }
}

/// Lists, makes and deletes tags.
pub async fn tag(context: &Context<'_>, arguments: TagArgs) -> Result<()> {
    match arguments.command {
        TagCommand::List(arguments) => list_tags(context, arguments).await,
        TagCommand::Create(arguments) => {
            let (name, request) = create_request(arguments);
            let client = context.client().await?;
            let made = client.create_tag(&name, &request).await?;
            report(context, "tag_created", "tag", &made)
        }
        TagCommand::Delete(arguments) => {
            let client = context.client().await?;
            let list = client.tags(&arguments.name).await?;
            let found = list.tags.iter().find(|tag| tag.name == arguments.reference);
            let commit = found.map(|tag| tag.commit.as_str());
            if !may_delete(context, &arguments, "tag", commit)? {
                return Ok(());
            }
            let gone = client
                .delete_tag(&arguments.name, &arguments.reference)
                .await?;
            report(context, "tag_deleted", "deleted tag", &gone)
        }
    }
}

async fn list_branches(context: &Context<'_>, arguments: ReferenceListArgs) -> Result<()> {
    let printer = context.printer;
    let list = context.client().await?.branches(&arguments.name).await?;
    if printer.is_json() {
        return printer.json("branches", &list);
    }
    let now = context.now();
    let mut table = TextTable::new(&["NAME", "COMMIT", "CHANGED", "STATE"]);
    for branch in &list.branches {
        let states = [
            (branch.is_default, "default"),
            (branch.is_mounted, "mounted"),
        ];
        let states: Vec<&str> = states.iter().filter(|s| s.0).map(|s| s.1).collect();
        table.row([
            sanitize(branch.name.as_bytes()),
            short_id(&branch.commit).to_owned(),
            relative(&branch.time, now),
            states.join(", "),
        ]);
    }
    printer.write(table.render())
}

async fn list_tags(context: &Context<'_>, arguments: ReferenceListArgs) -> Result<()> {
    let printer = context.printer;
    let list = context.client().await?.tags(&arguments.name).await?;
    if printer.is_json() {
        return printer.json("tags", &list);
    }
    if list.tags.is_empty() {
        printer.note("no tags");
        return Ok(());
    }
    let now = context.now();
    let mut table = TextTable::new(&["NAME", "COMMIT", "CHANGED"]);
    for tag in &list.tags {
        table.row([
            sanitize(tag.name.as_bytes()),
            short_id(&tag.commit).to_owned(),
            relative(&tag.time, now),
        ]);
    }
    printer.write(table.render())
}

fn create_request(arguments: ReferenceCreateArgs) -> (String, CreateReference) {
    let request = CreateReference {
        name: arguments.new_name,
        revision: arguments.target.revision,
        principal: arguments.principal.principal,
    };
    (arguments.target.name, request)
}

/// Shows what would go away; whether to go on.
fn may_delete(
    context: &Context<'_>,
    arguments: &ReferenceDeleteArgs,
    what: &str,
    commit: Option<&str>,
) -> Result<bool> {
    let printer = context.printer;
    let (workspace, name) = (&arguments.name, &arguments.reference);
    let Some(commit) = commit else {
        return Err(CommandError::with_hint(
            ErrorKind::NotFound,
            format!("{workspace} has no {what} {}", sanitize(name.as_bytes())),
            format!("`kura {what} list {workspace}` lists them"),
        ));
    };
    let plan = format!(
        "delete {what} {} of {workspace}, which names {}; the commit stays in the store\n",
        sanitize(name.as_bytes()),
        short_id(commit)
    );
    if arguments.consent.dry_run {
        if printer.is_json() {
            let plan = serde_json::json!({ "summary": plan.trim_end(), "target": commit });
            printer.json("plan", &plan)?;
        } else {
            printer.write(plan)?;
        }
        return Ok(false);
    }
    if !arguments.consent.yes {
        consent::ask_about(context, &plan, "Delete it?")?;
    }
    Ok(true)
}

fn report(context: &Context<'_>, kind: &str, what: &str, result: &ReferenceResult) -> Result<()> {
    let printer = context.printer;
    if printer.is_json() {
        return printer.json(kind, result);
    }
    printer.line(&result.commit)?;
    printer.note(format!(
        "{what} {} at {}",
        sanitize(result.name.as_bytes()),
        short_id(&result.commit)
    ));
    printer.operation(Some(&result.operation));
    Ok(())
}
