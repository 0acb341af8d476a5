//! Plan first, then ask, then do: the rule for everything that takes something away.

use computerd_api::v1::Plan;

use crate::args::shared::ConsentArgs;
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::plan;

/// Shows the plan on stderr and asks.
///
/// # Errors
/// `Declined` after a no; a usage error if nobody can be asked.
pub fn ask(context: &Context<'_>, plan: &Plan, question: &str) -> Result<()> {
    let palette = context.printer.error_palette();
    ask_about(context, &plan::render(plan, palette), question)
}

/// Shows `text` on stderr and asks.
///
/// # Errors
/// `Declined` after a no; a usage error if nobody can be asked.
pub fn ask_about(context: &Context<'_>, text: &str, question: &str) -> Result<()> {
    if !context.printer.is_json() {
        context.printer.message_bytes(text.as_bytes());
    }
    if !context.printer.can_ask() {
        return Err(CommandError::usage(
            "this needs your consent, and there is no terminal to ask on",
            "repeat it with --yes; what would be done stands above",
        ));
    }
    if context.printer.ask(question)? {
        Ok(())
    } else {
        Err(CommandError::Declined)
    }
}

/// Whether the plan has to be shown before anything is done.
pub fn needs_plan(consent: &ConsentArgs) -> bool {
    consent.dry_run || !consent.yes
}
