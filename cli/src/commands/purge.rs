//! `purge`.

use computerd_api::v1::{PurgeRequest, PurgeResult};

use super::consent;
use crate::args::purge::PurgeArgs;
use crate::context::Context;
use crate::error::Result;
use crate::output::table::format_bytes;

/// Removes content from all versions.
pub async fn purge(context: &Context<'_>, arguments: PurgeArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let mut request = PurgeRequest {
        paths: arguments.paths,
        dry_run: true,
        principal: arguments.principal.principal,
    };
    if consent::needs_plan(&arguments.consent) {
        let planned = client.purge(&arguments.name, &request).await?;
        if arguments.consent.dry_run {
            if printer.is_json() {
                return printer.json("plan", &planned);
            }
            return printer.write(describe(&planned, "to be removed"));
        }
        let mut text = describe(&planned, "to be removed");
        text.push_str("  this can't be undone\n");
        consent::ask_about(context, &text, "Purge?")?;
    }
    request.dry_run = false;
    let done = client.purge(&arguments.name, &request).await?;
    if printer.is_json() {
        return printer.json("purge", &done);
    }
    printer.note(describe(&done, "removed").trim_end());
    Ok(())
}

fn describe(result: &PurgeResult, what: &str) -> String {
    let mut text = format!(
        "{} contents ({}) in {} commits {what}\n",
        result.content_count,
        format_bytes(result.content_bytes),
        result.commit_count
    );
    if result.shared_count > 0 {
        text.push_str(&format!(
            "  {} contents stay, because other paths have them, too\n",
            result.shared_count
        ));
    }
    text
}
