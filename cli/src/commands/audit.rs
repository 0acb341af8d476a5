//! `audit`.

use std::path::Path;

use computerd_api::v1::{AuditHead, AuditHeadRequest, AuditQuery, AuditVerifyRequest, ErrorKind};

use super::short_id;
use crate::args::audit::{AuditArgs, AuditCommand, AuditHeadArgs};
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
    match arguments.command {
        Some(AuditCommand::Head(arguments)) => return head(context, &client, &arguments).await,
        Some(AuditCommand::Verify(arguments)) => {
            let head = arguments.head.as_deref().map(read_head).transpose()?;
            return verify(context, &client, head).await;
        }
        None if arguments.verify => return verify(context, &client, None).await,
        None => {}
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
        "SOURCE",
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
            sanitize(source_text(&entry.source).as_bytes()),
            sanitize(workspace.as_bytes()),
            sanitize(entry.action.as_bytes()),
            sanitize(entry.target.as_bytes()),
            sanitize(entry.outcome.as_bytes()),
        ]);
    }
    printer.write(table.render())
}

/// An entry's source in a few words.
fn source_text(source: &serde_json::Value) -> String {
    let text = |key: &str| source.get(key).and_then(|value| value.as_str());
    let number = |key: &str| source.get(key).and_then(serde_json::Value::as_u64);
    let mut words = text("surface").unwrap_or("-").to_owned();
    if let Some(container) = text("container") {
        words.push_str(&format!(" in {}", short_id(container)));
    }
    if let Some(run) = text("run") {
        let step = number("step").map_or_else(String::new, |step| format!(":{step}"));
        words.push_str(&format!(" run {run}{step}"));
    } else if let Some(pid) = number("pid") {
        words.push_str(&format!(" pid {pid}"));
    }
    words
}

/// Prints the newest entry's number and hash.
async fn head(
    context: &Context<'_>,
    client: &computerd_api::Client,
    arguments: &AuditHeadArgs,
) -> Result<()> {
    let printer = context.printer;
    let request = AuditHeadRequest {
        sign: arguments.sign,
    };
    let head = client.audit_head(&request).await?;
    if printer.is_json() {
        return printer.json("audit_head", &head);
    }
    let mut text = format!(
        "sequence {}\nhash {}\ntime {}\n",
        head.sequence, head.hash, head.time
    );
    for (name, value) in [
        ("public-key", &head.public_key),
        ("signature", &head.signature),
    ] {
        if let Some(value) = value {
            text.push_str(&format!("{name} {value}\n"));
        }
    }
    printer.write(text)
}

/// Reads what [`head`] printed, as text or as JSON.
fn read_head(path: &Path) -> Result<AuditHead> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CommandError::io(format!("read {}", path.display()), &error))?;
    let head = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).ok()
    } else {
        parse_head(&text)
    };
    head.ok_or_else(|| {
        CommandError::usage(
            format!("{} is not the head of an audit log", path.display()),
            "it is what `kura audit head` printed",
        )
    })
}

fn parse_head(text: &str) -> Option<AuditHead> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (found, value) = line.trim().split_once(' ')?;
            (found == name).then(|| value.to_owned())
        })
    };
    Some(AuditHead {
        sequence: value("sequence")?.parse().ok()?,
        hash: value("hash")?,
        time: value("time")?,
        public_key: value("public-key"),
        signature: value("signature"),
    })
}

async fn verify(
    context: &Context<'_>,
    client: &computerd_api::Client,
    head: Option<AuditHead>,
) -> Result<()> {
    let printer = context.printer;
    let signer = head.as_ref().and_then(|head| head.public_key.clone());
    let request = AuditVerifyRequest { head };
    let verification = client.verify_audit(&request).await?;
    if printer.is_json() {
        printer.json("audit_verification", &verification)?;
    }
    if verification.is_intact {
        printer.note(format!("{} entries, all intact", verification.entry_count));
        if let Some(signer) = signer {
            printer.note(format!("the head was signed with the key {signer}"));
        }
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
