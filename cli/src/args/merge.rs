//! `merge`, `conflicts`, `resolve`.

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::PrincipalArgs;
use super::target::{StateTarget, name_parser, path_parser, state_parser};

/// Arguments of `kura merge`.
#[derive(Debug, Args)]
#[command(after_help = "\
What SOURCE changed since it parted from the branch comes into it, by one commit with both as
parents. SOURCE is a branch, tag or commit of the workspace, or another workspace that was forked
from it (or it from that), as OTHER or OTHER@REV.

Texts are merged by lines where the changes are apart. What can't be joined is a conflict: text
gets markers that show both sides, of other files the second stands beside the first. The merge is
made all the same (exit code 8); `kura conflicts` lists what is open, `kura resolve` ends it, and
`kura undo` takes the merge back.

Examples:
  kura merge demo agent-1
  kura merge demo demo-fork --dry-run
  kura merge demo demo-fork@HEAD~1 -m 'the parser of the second agent'")]
pub struct MergeArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// What to bring in
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Message of the commit
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Branch that it comes into [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Show what would be done, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura conflicts`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura conflicts demo
  kura conflicts demo@HEAD~1 --json")]
pub struct ConflictsArgs {
    /// Workspace, or a state of it
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
}

/// Arguments of `kura resolve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without an option what is at the path now counts; a text that still has markers is refused. What
the merge put beside the path goes away, unless it was changed.

Examples:
  kura resolve demo src/parser.rs
  kura resolve demo assets/logo.png --theirs
  kura resolve demo . --ours --dry-run      # all that is open")]
pub struct ResolveArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Paths of conflicts; a directory means all below it
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,
    /// Take what was there before the merge
    #[arg(long, conflicts_with_all = ["theirs", "base"])]
    pub ours: bool,
    /// Take what was brought in
    #[arg(long, conflicts_with = "base")]
    pub theirs: bool,
    /// Take what both sides came from
    #[arg(long)]
    pub base: bool,
    /// Branch [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Show what would be done, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}
