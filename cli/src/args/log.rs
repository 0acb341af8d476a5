//! `log`, `show`.

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::DiffFormatArgs;
use super::target::{StateTarget, path_parser, state_parser};

/// Arguments of `kura log`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura log demo
  kura log demo src/parser.rs --oneline
  kura log demo@HEAD~10 --by alice -n 5
  kura log demo --ids | head -1")]
pub struct LogArgs {
    /// Workspace; the history begins at REV
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
    /// Only commits that touch these paths or something below them
    #[arg(value_name = "PATH", value_parser = path_parser())]
    pub paths: Vec<PathText>,
    /// Only commits of this run, or with changes made in it
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only those of this step of the run
    #[arg(long, value_name = "N", requires = "run")]
    pub step: Option<u64>,
    /// Only commits of this author, or with changes by it
    #[arg(long, value_name = "PRINCIPAL")]
    pub by: Option<String>,
    /// At most this many commits [default: all]
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub limit: Option<u32>,
    /// One line for each commit
    #[arg(long)]
    pub oneline: bool,
    /// Print full ids only
    #[arg(long, conflicts_with = "oneline")]
    pub ids: bool,
}

/// Arguments of `kura show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura show demo
  kura show demo@3f2a --stat
  kura show demo HEAD~2 --name-status")]
pub struct ShowArgs {
    /// Workspace, at the commit to show
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
    /// The commit to show, if not given as NAME@REV
    #[arg(value_name = "REV")]
    pub revision: Option<String>,
    /// How to print it.
    #[command(flatten)]
    pub format: DiffFormatArgs,
    /// Print the commit alone
    #[arg(long, conflicts_with_all = ["stat", "name_status"])]
    pub no_patch: bool,
    /// Only changes of these paths and what is below them
    #[arg(last = true, value_name = "PATH", value_parser = path_parser())]
    pub paths: Vec<PathText>,
}
