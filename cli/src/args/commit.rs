//! `commit`.

use clap::Args;

use super::shared::PrincipalArgs;
use super::target::name_parser;

/// Arguments of `kura commit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura commit demo -m 'parser works'
  id=$(kura commit demo -m checkpoint -q)")]
pub struct CommitArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Message
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub message: String,
    /// Branch [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Execution that the changes belong to
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Numbered part of that execution
    #[arg(long, value_name = "STEP", requires = "run")]
    pub step: Option<u64>,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}
