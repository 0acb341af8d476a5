//! `diff`.

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::DiffFormatArgs;
use super::target::{StateTarget, path_parser, state_parser};

/// Arguments of `kura diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura diff demo                       # the newest commit against the live state
  kura diff demo HEAD~3                # an older state against the live state
  kura diff demo HEAD~3 HEAD --stat
  kura diff demo -- src/ README.md     # only these paths
  kura diff demo --exit-code -q        # only say by the exit code whether something differs")]
pub struct DiffArgs {
    /// Workspace; NAME@REV is the same as NAME REV
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
    /// Old state [default: the newest commit]
    #[arg(value_name = "A")]
    pub from: Option<String>,
    /// New state [default: the live state with what is uncommitted]
    #[arg(value_name = "B")]
    pub to: Option<String>,
    /// How to print it.
    #[command(flatten)]
    pub format: DiffFormatArgs,
    /// Exit with 1 if something differs
    #[arg(long)]
    pub exit_code: bool,
    /// Only these paths and what is below them
    #[arg(last = true, value_name = "PATH", value_parser = path_parser())]
    pub paths: Vec<PathText>,
}
