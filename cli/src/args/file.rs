//! `ls`, `cat`.

use clap::Args;

use super::target::{PathTarget, path_target_parser};

/// Arguments of `kura ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura ls demo
  kura ls -l demo@HEAD~1:src
  kura ls --recursive demo@v1")]
pub struct LsArgs {
    /// Directory or file in a state
    #[arg(value_name = "NAME[@REV][:PATH]", value_parser = path_target_parser())]
    pub target: PathTarget,
    /// Print mode, owner, size and time too
    #[arg(short, long)]
    pub long: bool,
    /// List everything below, by path
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// End names with NUL instead of a newline
    #[arg(short = 'z', conflicts_with = "long")]
    pub nul: bool,
}

/// Arguments of `kura cat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura cat demo:README.md
  kura cat demo@HEAD~1:src/main.rs > old.rs")]
pub struct CatArgs {
    /// File in a state
    #[arg(value_name = "NAME[@REV]:PATH", value_parser = path_target_parser())]
    pub target: PathTarget,
}
