//! `run`, `runs`, `blame`.

use std::ffi::OsString;

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::PrincipalArgs;
use super::target::{StateTarget, name_parser, path_parser, state_parser};

/// Arguments of `kura run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura run -- make test                           # in a mount: a run of its own
  kura run --run-id nightly --workspace demo -- ./agent
  export KURA_RUN_ID=fix-42; kura run -- ./step1; kura run -- ./step2   # two steps of one run

The exit code is the command's. Processes that are started otherwise belong to a run if
KURA_RUN_ID (and KURA_STEP) is in their environment, or `kura.run` (and `kura.step`) is a label of
their container.")]
pub struct RunArgs {
    /// Id of the run [default: $KURA_RUN_ID, else a new one]
    #[arg(long, value_name = "RUN")]
    pub run_id: Option<String>,
    /// Number of the step [default: the next one of the run]
    #[arg(long, value_name = "N")]
    pub step: Option<u64>,
    /// Workspace [default: the one that is mounted at the current directory]
    #[arg(short, long, value_parser = name_parser())]
    pub workspace: Option<String>,
    /// Branch to commit to [default: the mounted one, else the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
    /// Command with its arguments [default: $SHELL]
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// Arguments of `kura runs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura runs demo
  kura runs demo --run nightly --json")]
pub struct RunsArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Only steps of this run
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// At most this many steps [default: 50]
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub limit: Option<u32>,
}

/// Arguments of `kura blame`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura blame demo src/parser.rs
  kura blame demo@HEAD~3 src/parser.rs --lines")]
pub struct BlameArgs {
    /// Workspace; looks back from REV
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
    /// File or directory
    #[arg(value_name = "PATH", value_parser = path_parser())]
    pub path: PathText,
    /// Show for each line of a text file who wrote it
    #[arg(long)]
    pub lines: bool,
}
