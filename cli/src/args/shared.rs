//! Options that several verbs have in common.

use clap::Args;

/// Who does it.
#[derive(Debug, Clone, Default, Args)]
pub struct PrincipalArgs {
    /// Act as this principal [default: the local user]
    #[arg(long = "as", value_name = "PRINCIPAL")]
    pub principal: Option<String>,
}

/// Consent to a change that is planned first.
#[derive(Debug, Clone, Default, Args)]
pub struct ConsentArgs {
    /// Show what would be done, and do nothing
    #[arg(short = 'n', long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it without asking
    #[arg(short, long)]
    pub yes: bool,
}

/// How a difference is printed.
#[derive(Debug, Clone, Default, Args)]
pub struct DiffFormatArgs {
    /// Print counts of changed lines
    #[arg(long, conflicts_with = "name_status")]
    pub stat: bool,
    /// Print a letter (A, M, D, R) and the path of each change
    #[arg(long)]
    pub name_status: bool,
    /// End lines with NUL instead of a newline, for --name-status
    #[arg(short = 'z', requires = "name_status")]
    pub nul: bool,
    /// Lines of context
    #[arg(short = 'U', long = "context", value_name = "LINES")]
    pub context_lines: Option<u32>,
    /// Show a moved file as deleted and added
    #[arg(long)]
    pub no_renames: bool,
}
