//! `grant`, `revoke`, `grants`.

use computerd_api::v1::{AccessLevel, GrantChange, GrantDetails, GrantQuery};

use crate::args::grant::{AccessWord, GrantArgs, GrantsArgs, RevokeArgs};
use crate::context::Context;
use crate::error::Result;
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;
use crate::output::time;

fn text(text: &str) -> String {
    sanitize(text.as_bytes())
}

/// Gives or changes a grant.
pub async fn grant(context: &Context<'_>, arguments: GrantArgs) -> Result<()> {
    let now = context.now();
    let change = GrantChange {
        subject: arguments.subject,
        pattern: arguments.pattern,
        access: Some(match arguments.access {
            AccessWord::Hidden => AccessLevel::Hidden,
            AccessWord::Read => AccessLevel::Read,
            AccessWord::Write => AccessLevel::Write,
        }),
        until: arguments
            .until
            .map(|text| time::parse_end(&text, now))
            .transpose()?,
    };
    change_grant(context, &arguments.name, &change).await
}

/// Takes a grant back.
pub async fn revoke(context: &Context<'_>, arguments: RevokeArgs) -> Result<()> {
    let change = GrantChange {
        subject: arguments.subject,
        pattern: arguments.pattern,
        access: None,
        until: None,
    };
    change_grant(context, &arguments.name, &change).await
}

async fn change_grant(context: &Context<'_>, workspace: &str, change: &GrantChange) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let changed = client.change_grant(workspace, change).await?;
    if printer.is_json() {
        return printer.json("grant_changed", &changed);
    }
    printer.note(match &changed.grant {
        Some(grant) => sentence(grant),
        None => format!(
            "{} has no grant for {} any more",
            text(&change.subject),
            text(&change.pattern)
        ),
    });
    printer.operation(Some(&changed.operation));
    Ok(())
}

fn sentence(grant: &GrantDetails) -> String {
    let until = match &grant.until {
        Some(until) => format!(" until {}", time::absolute(until)),
        None => String::new(),
    };
    format!(
        "{}: {} {}{until}",
        text(&grant.subject),
        text(&grant.pattern),
        grant.access.name()
    )
}

/// Lists grants, and says which decides.
pub async fn grants(context: &Context<'_>, arguments: GrantsArgs) -> Result<()> {
    let printer = context.printer;
    let query = GrantQuery {
        principal: arguments.of,
        path: arguments.path,
    };
    let list = context
        .client()
        .await?
        .grants(&arguments.name, &query)
        .await?;
    if printer.is_json() {
        return printer.json("grants", &list);
    }
    if let Some(decision) = &list.decision {
        let passage = if decision.is_passage {
            ", but leads to what may be seen"
        } else {
            ""
        };
        printer.line(format!(
            "{}: {}{passage}",
            decision.path.to_display(),
            decision.access.name()
        ))?;
        if decision.decided_by.is_empty() {
            return printer.line("no grant speaks of it");
        }
        for grant in &decision.decided_by {
            printer.line(format!("decided by {}", sentence(grant)))?;
        }
        return Ok(());
    }
    let mut table = TextTable::new(&["WHO", "PATTERN", "ACCESS", "UNTIL"]);
    for grant in &list.grants {
        let until = match (&grant.until, grant.is_over) {
            (None, _) => String::new(),
            (Some(until), false) => time::absolute(until),
            (Some(until), true) => format!("{} (over)", time::absolute(until)),
        };
        table.row([
            text(&grant.subject),
            text(&grant.pattern),
            grant.access.name().to_owned(),
            until,
        ]);
    }
    printer.write(table.render())
}
