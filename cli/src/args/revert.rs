//! `restore`, `rollback`, `undo`, `operations`.

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::{ConsentArgs, PrincipalArgs};
use super::target::{name_parser, path_parser};

/// Arguments of `kura restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura restore demo src/parser.rs --from HEAD~1
  kura restore demo docs assets --from v1 --dry-run")]
pub struct RestoreArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Paths to bring back; a directory means everything below it
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,
    /// State that they come from
    #[arg(long, value_name = "REV")]
    pub from: String,
    /// Branch [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Consent.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura rollback`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is lost: what is uncommitted is committed first, and `kura undo` takes the rollback back.

With --run or --by no state comes back: the changes of those commits are taken out, newest first,
and later work of others stays. Where that stands on them there are conflicts, as after a merge
(exit code 8).

Examples:
  kura rollback demo HEAD~1
  kura rollback demo v1 --path src --dry-run
  kura rollback demo '@{2 hours ago}' --yes
  kura rollback demo --run nightly-7 --dry-run
  kura rollback demo --by agent-1 --path src")]
pub struct RollbackArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// State to come back
    #[arg(value_name = "REV", required_unless_present_any = ["run", "by"])]
    pub revision: Option<String>,
    /// Take out the changes of this run
    #[arg(long, value_name = "RUN", conflicts_with = "revision")]
    pub run: Option<String>,
    /// Take out the changes of this principal
    #[arg(long, value_name = "PRINCIPAL", conflicts_with = "revision")]
    pub by: Option<String>,
    /// Only this path and what is below it (can be repeated)
    #[arg(long = "path", value_name = "PATH", value_parser = path_parser())]
    pub paths: Vec<PathText>,
    /// Branch [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Consent.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura undo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a number it takes back the newest operation that is not taken back yet, so that
each further call goes one step further back. An undo is an operation too: by its number it
can be undone, which brings the undone change back.

Examples:
  kura undo demo               # one step back
  kura undo demo 12 --dry-run  # a certain one; `kura operations demo` lists them")]
pub struct UndoArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Number of the operation [default: the newest that is not taken back]
    #[arg(value_name = "OPERATION")]
    pub operation: Option<u64>,
    /// Consent.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura operations`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura operations demo
  kura operations demo -n 5 --json")]
pub struct OperationsArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// At most this many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub limit: u32,
}
