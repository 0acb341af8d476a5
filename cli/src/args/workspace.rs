//! `init`, `list`, `status`, `fork`, `handoff`.

use std::path::PathBuf;

use clap::Args;

use super::shared::PrincipalArgs;
use super::target::{StateTarget, name_parser, state_parser};

/// Arguments of `kura init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura init demo
  kura init demo --from ./project
  kura init demo --from backup.tar -m 'from the backup of May'")]
pub struct InitArgs {
    /// Name of the workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Directory or tar file with the first content
    #[arg(long, value_name = "DIR|TAR")]
    pub from: Option<PathBuf>,
    /// Message of the first commit
    #[arg(short, long, value_name = "TEXT", requires = "from")]
    pub message: Option<String>,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura list
  kura list --json")]
pub struct ListArgs {}

/// Arguments of `kura status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura status demo
  kura status demo --json")]
pub struct StatusArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
}

/// Arguments of `kura fork`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura fork demo experiment
  kura fork demo@HEAD~3 experiment")]
pub struct ForkArgs {
    /// Workspace, at a revision
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub source: StateTarget,
    /// Name of the new workspace
    #[arg(value_name = "NEW", value_parser = name_parser())]
    pub new_name: String,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura handoff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura handoff demo --to reviewer -m 'tests pass, please review'
  kura mount demo@$(kura handoff demo --to reviewer -q) ./review --branch review")]
pub struct HandoffArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Principal that takes over
    #[arg(long, value_name = "PRINCIPAL")]
    pub to: String,
    /// Branch [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Message of the commit
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub message: String,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}
