//! `purge`.

use clap::Args;
use computerd_api::v1::PathText;

use super::shared::{ConsentArgs, PrincipalArgs};
use super::target::{name_parser, path_parser};

/// Arguments of `kura purge`.
#[derive(Debug, Args)]
#[command(after_help = "\
For a secret that must not stay in the history. The content that the paths ever had goes out of
all versions of the workspace and of its branches, tags and forks, out of the database and the
journals. Commits stay as they are, with their ids; who reads the content is told that it was
purged. What other paths have as well stays. The paths must be deleted in all branches before.

It can't be undone, and a copy of the store or an export made before still has it.

Examples:
  kura purge demo .env --dry-run
  kura purge demo .env secrets --yes")]
pub struct PurgeArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Paths; a directory means everything below it
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,
    /// Consent.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}
