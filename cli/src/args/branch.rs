//! `branch`, `tag`.

use clap::{Args, Subcommand};

use super::shared::{ConsentArgs, PrincipalArgs};
use super::target::{StateTarget, name_parser, state_parser};

/// Arguments of `kura branch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura branch list demo
  kura branch create demo@HEAD~3 experiment
  kura branch delete demo experiment")]
pub struct BranchArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BranchCommand,
}

/// What `kura branch` does.
#[derive(Debug, Subcommand)]
pub enum BranchCommand {
    /// List the branches of a workspace
    List(ReferenceListArgs),
    /// Make a branch
    Create(ReferenceCreateArgs),
    /// Delete a branch; its commits stay, `kura undo` brings it back
    Delete(ReferenceDeleteArgs),
}

/// Arguments of `kura tag`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura tag list demo
  kura tag create demo v1
  kura tag create demo@HEAD~3 before-the-change
  kura tag delete demo v1")]
pub struct TagArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TagCommand,
}

/// What `kura tag` does.
#[derive(Debug, Subcommand)]
pub enum TagCommand {
    /// List the tags of a workspace
    List(ReferenceListArgs),
    /// Make a tag
    Create(ReferenceCreateArgs),
    /// Delete a tag; `kura undo` brings it back
    Delete(ReferenceDeleteArgs),
}

/// Arguments of the `list` verbs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura branch list demo
  kura tag list demo --json")]
pub struct ReferenceListArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
}

/// Arguments of the `create` verbs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura branch create demo experiment
  kura tag create demo@HEAD~3 v1")]
pub struct ReferenceCreateArgs {
    /// Workspace, at the commit to name [default: the default branch's newest]
    #[arg(value_name = "NAME[@REV]", value_parser = state_parser())]
    pub target: StateTarget,
    /// Name of the branch or tag
    #[arg(value_name = "NEW")]
    pub new_name: String,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of the `delete` verbs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura branch delete demo experiment --yes
  kura tag delete demo v1 --dry-run")]
pub struct ReferenceDeleteArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Name of the branch or tag
    #[arg(value_name = "REFERENCE")]
    pub reference: String,
    /// Consent.
    #[command(flatten)]
    pub consent: ConsentArgs,
}
