//! `principal`, `group`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `kura principal`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal add builder --kind agent
  kura principal token create builder --expires '8 hours' --output builder.token
  kura principal disable builder")]
pub struct PrincipalsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PrincipalCommand,
}

/// What `kura principal` does.
#[derive(Debug, Subcommand)]
pub enum PrincipalCommand {
    /// Make a principal; without grants it sees nothing
    Add(PrincipalAddArgs),
    /// List the principals
    List(PrincipalListArgs),
    /// Let a principal do nothing any more; its tokens and mounts end at once
    Disable(PrincipalNameArgs),
    /// Let a disabled principal in again
    Enable(PrincipalNameArgs),
    /// Make, list and revoke tokens
    Token(TokenArgs),
}

/// What a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindOfPrincipal {
    /// A human
    Person,
    /// A program that acts by itself
    Agent,
    /// Another system
    Service,
}

/// Arguments of `kura principal add`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal add builder
  kura principal add ada --kind person")]
pub struct PrincipalAddArgs {
    /// Name, which is never used again for another one
    #[arg(value_name = "PRINCIPAL")]
    pub principal: String,
    /// What it is
    #[arg(long, value_name = "KIND", default_value = "agent")]
    pub kind: KindOfPrincipal,
}

/// Arguments of `kura principal list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal list
  kura principal list --json")]
pub struct PrincipalListArgs {}

/// Arguments of `kura principal disable` and `enable`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal disable builder
  kura principal enable builder")]
pub struct PrincipalNameArgs {
    /// Its name
    #[arg(value_name = "PRINCIPAL")]
    pub principal: String,
}

/// Arguments of `kura principal token`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal token create builder --output builder.token
  KURA_TOKEN_FILE=builder.token kura list
  kura principal token list builder
  kura principal token revoke 0123456789abcdef")]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What `kura principal token` does.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token; its secret is shown once
    Create(TokenCreateArgs),
    /// List tokens, without their secrets
    List(TokenListArgs),
    /// End a token at once
    Revoke(TokenRevokeArgs),
}

/// Arguments of `kura principal token create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal token create builder --output builder.token
  kura principal token create builder --expires '8 hours'
  kura principal token create builder --expires 2027-01-01T00:00:00Z")]
pub struct TokenCreateArgs {
    /// Whose
    #[arg(value_name = "PRINCIPAL")]
    pub principal: String,
    /// When it ends by itself: a time, or how long from now [default: never]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Write the secret to this new file, which only you can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `kura principal token list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal token list
  kura principal token list builder --json")]
pub struct TokenListArgs {
    /// Only those of this principal
    #[arg(value_name = "PRINCIPAL")]
    pub principal: Option<String>,
}

/// Arguments of `kura principal token revoke`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura principal token revoke 0123456789abcdef")]
pub struct TokenRevokeArgs {
    /// Id of the token, as `kura principal token list` shows it
    #[arg(value_name = "TOKEN-ID")]
    pub id: String,
}

/// Arguments of `kura group`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura group add team ada builder
  kura grant demo @team 'docs/**' write
  kura group remove team builder")]
pub struct GroupArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GroupCommand,
}

/// What `kura group` does.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List the groups and who is in them
    List(GroupListArgs),
    /// Put principals into a group, which is made if it isn't there
    Add(GroupMembersArgs),
    /// Take principals out of a group
    Remove(GroupMembersArgs),
}

/// Arguments of `kura group list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura group list
  kura group list --json")]
pub struct GroupListArgs {}

/// Arguments of `kura group add` and `remove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura group add team ada builder
  kura group remove team builder")]
pub struct GroupMembersArgs {
    /// The group
    pub group: String,
    /// Principals
    #[arg(value_name = "PRINCIPAL", required = true)]
    pub principals: Vec<String>,
}
