//! `export`, `import`.

use std::path::PathBuf;

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::PrincipalArgs;
use super::target::{PathTarget, name_parser, path_parser, path_target_parser};

/// Arguments of `kura export`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("target_place").required(true).args(["directory", "tar"]),
    after_help = "\
Examples:
  kura export demo ./copy
  kura export demo@v1:src ./old-src
  kura export demo@HEAD~1 --tar backup.tar")]
pub struct ExportArgs {
    /// State, or a path in it
    #[arg(value_name = "NAME[@REV][:PATH]", value_parser = path_target_parser())]
    pub target: PathTarget,
    /// Directory to write to, absent or empty
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Tar file to write
    #[arg(long, value_name = "FILE")]
    pub tar: Option<PathBuf>,
    /// Replace an existing tar file
    #[arg(long, requires = "tar")]
    pub overwrite: bool,
}

/// Arguments of `kura import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura import demo ./more --to vendor/more
  kura import demo release.tar --replace --yes -m 'release 2'")]
pub struct ImportArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Directory or tar file to bring in
    #[arg(value_name = "DIR|TAR")]
    pub source: PathBuf,
    /// Directory in the workspace to import into [default: the root]
    #[arg(long, value_name = "PATH", value_parser = path_parser())]
    pub to: Option<PathText>,
    /// Remove what is not in the source
    #[arg(long)]
    pub replace: bool,
    /// Branch [default: the workspace's default branch]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Message of the commit
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
    /// Do it without asking
    #[arg(short, long)]
    pub yes: bool,
}
