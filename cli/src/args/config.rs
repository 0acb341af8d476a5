//! `config`.

use clap::{Args, Subcommand};

use super::shared::PrincipalArgs;
use super::target::name_parser;

/// Arguments of `kura config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura config list --origin
  kura config get commit.quiet-ms --workspace demo
  kura config set commit.quiet-ms 2000 --workspace demo")]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What `kura config` does.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List the settings
    List(ConfigListArgs),
    /// Print one setting
    Get(ConfigGetArgs),
    /// Change a setting
    Set(ConfigSetArgs),
    /// Set a setting back to its default
    Unset(ConfigUnsetArgs),
}

/// Where settings are looked at.
#[derive(Debug, Args)]
pub struct ConfigScopeArgs {
    /// Settings of this workspace [default: what all begin with]
    #[arg(short, long, value_name = "NAME", value_parser = name_parser())]
    pub workspace: Option<String>,
}

/// Arguments of `kura config list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura config list
  kura config list --origin --workspace demo")]
pub struct ConfigListArgs {
    /// Print where each value comes from and what it does
    #[arg(long)]
    pub origin: bool,
    /// Where.
    #[command(flatten)]
    pub scope: ConfigScopeArgs,
}

/// Arguments of `kura config get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura config get commit.quiet-ms
  kura config get commit.quiet-ms --workspace demo --json")]
pub struct ConfigGetArgs {
    /// Key
    pub key: String,
    /// Where.
    #[command(flatten)]
    pub scope: ConfigScopeArgs,
}

/// Arguments of `kura config set`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura config set commit.quiet-ms 2000 --workspace demo")]
pub struct ConfigSetArgs {
    /// Key
    pub key: String,
    /// Value
    pub value: String,
    /// The workspace whose setting it is
    #[arg(short, long, value_name = "NAME", value_parser = name_parser())]
    pub workspace: String,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}

/// Arguments of `kura config unset`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura config unset commit.quiet-ms --workspace demo")]
pub struct ConfigUnsetArgs {
    /// Key
    pub key: String,
    /// The workspace whose setting it is
    #[arg(short, long, value_name = "NAME", value_parser = name_parser())]
    pub workspace: String,
    /// Who does it.
    #[command(flatten)]
    pub principal: PrincipalArgs,
}
