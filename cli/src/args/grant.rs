//! `grant`, `revoke`, `grants`.

use clap::{Args, ValueEnum};
use computerd_api::v1::PathText;

use super::target::{name_parser, path_parser};

/// What a grant gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AccessWord {
    /// The paths don't exist for it
    Hidden,
    /// It can list and read them
    Read,
    /// It can make, change and remove them
    Write,
}

/// Arguments of `kura grant`.
#[derive(Debug, Args)]
#[command(after_help = "\
A pattern without '/' matches at any depth, one with '/' begins at the root; '*' and '?' stay
within a name, '**' crosses directories; '/' is the whole workspace. A pattern covers everything
below what it names. Where several cover a path, one that lies within another overrules it; of
those that are left the most restrictive decides. What no grant covers is hidden.

Examples:
  kura grant demo builder / read
  kura grant demo builder 'src/**' write --until '2 hours'
  kura grant demo @team '*.key' hidden")]
pub struct GrantArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// A principal, or @ and a group
    #[arg(value_name = "PRINCIPAL|@GROUP")]
    pub subject: String,
    /// Which paths
    pub pattern: String,
    /// What may be done with them
    #[arg(value_name = "ACCESS")]
    pub access: AccessWord,
    /// Until when: a time, or how long from now [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// Arguments of `kura revoke`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura revoke demo builder 'src/**'
  kura revoke demo @team '*.key'")]
pub struct RevokeArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// A principal, or @ and a group
    #[arg(value_name = "PRINCIPAL|@GROUP")]
    pub subject: String,
    /// Which paths, as the grant says
    pub pattern: String,
}

/// Arguments of `kura grants`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura grants demo
  kura grants demo --of builder
  kura grants demo --of builder --path src/id.key")]
pub struct GrantsArgs {
    /// Workspace
    #[arg(value_parser = name_parser())]
    pub name: String,
    /// Only those that concern this principal: its own and its groups'
    #[arg(long, value_name = "PRINCIPAL")]
    pub of: Option<String>,
    /// Also say what that principal may do with this path, and which grant decides
    #[arg(long, value_name = "PATH", value_parser = path_parser())]
    pub path: Option<PathText>,
}
