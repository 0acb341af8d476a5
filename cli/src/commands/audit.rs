//! `audit`.

use computerd_api::v1::{AuditQuery, ErrorKind};

use crate::args::audit::AuditArgs;
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;
use crate::output::time::absolute;

/// How many entries are shown without `--limit`.
const DEFAULT_LIMIT: u32 = 50;

/// Shows or verifies the audit log.
pub async fn audit(context: &Context<'_>, arguments: AuditArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    if arguments.verify {
        return verify(context, &client).await;
    }
    let query = AuditQuery {
        workspace: arguments.name,
        principal: arguments.by,
        outcome: arguments.denied.then(|| "denied".to_owned()),
        limit: Some(arguments.limit.unwrap_or(DEFAULT_LIMIT)),
        before: None,
    };
    let list = client.audit(&query).await?;
    if printer.is_json() {
        return printer.json("audit", &list);
    }
    let titles = [
        "NUMBER",
        "TIME",
        "PRINCIPAL",
        "WORKSPACE",
        "ACTION",
        "TARGET",
        "OUTCOME",
    ];
    let mut table = TextTable::new(&titles).right(0);
    for entry in &list.entries {
        let workspace = entry.workspace.as_deref().unwrap_or("-");
        table.row([
            entry.sequence.to_string(),
            absolute(&entry.time),
            sanitize(entry.principal.as_bytes()),
            sanitize(workspace.as_bytes()),
            sanitize(entry.action.as_bytes()),
            sanitize(entry.target.as_bytes()),
            sanitize(entry.outcome.as_bytes()),
        ]);
    }
    printer.write(table.render())
}

async fn verify(context: &Context<'_>, client: &computerd_api::Client) -> Result<()> {
    let printer = context.printer;
    let verification = client.verify_audit().await?;
    if printer.is_json() {
        printer.json("audit_verification", &verification)?;
    }
    if verification.is_intact {
        printer.note(format!("{} entries, all intact", verification.entry_count));
        return Ok(());
    }
    printer.flush()?;
    let place = verification
        .first_bad_sequence
        .map_or_else(String::new, |number| format!(" at entry {number}"));
    let problem = verification
        .problem
        .as_deref()
        .unwrap_or("it doesn't follow");
    Err(CommandError::with_hint(
        ErrorKind::Corrupt,
        format!("the audit log is broken{place}: {problem}"),
        "entries were changed or removed outside of Kura; compare with a backup of the store",
    ))
}
