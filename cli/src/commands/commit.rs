//! `commit`.

use computerd_api::v1::CommitBody;

use crate::args::commit::CommitArgs;
use crate::context::Context;
use crate::error::Result;
use crate::output::diff::format_counts;

/// Commits uncommitted changes; stdout is the commit's id.
pub async fn commit(context: &Context<'_>, arguments: CommitArgs) -> Result<()> {
    let printer = context.printer;
    let request = CommitBody {
        branch: arguments.branch,
        message: arguments.message,
        author: arguments.principal.principal,
        run: arguments.run,
        step: arguments.step,
    };
    let client = context.client().await?;
    let result = client.commit(&arguments.name, &request).await?;
    if printer.is_json() {
        return printer.json("commit", &result);
    }
    printer.line(&result.commit)?;
    if result.is_new && result.changes.total() == 0 {
        printer.note(format!(
            "all changes are in the automatic commit before it on {}; this one carries what you said",
            result.branch
        ));
    } else if result.is_new {
        printer.note(format!(
            "{} on {}",
            format_counts(&result.changes),
            result.branch
        ));
    } else {
        printer.note(format!("nothing to commit on {}", result.branch));
    }
    printer.operation(result.operation.as_ref());
    Ok(())
}
