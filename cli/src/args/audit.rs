//! `audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::target::name_parser;

/// Arguments of `kura audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura audit demo
  kura audit demo --by alice -n 20 --json
  kura audit demo --denied
  kura audit --verify                    # exit code 7 if the log was changed
  kura audit head --sign > head.txt      # keep that file elsewhere
  kura audit verify --head head.txt      # finds what was changed or cut off since")]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    /// Workspace [default: the whole store]
    #[arg(value_parser = name_parser())]
    pub name: Option<String>,
    /// Check that no entry was changed or removed
    #[arg(long, conflicts_with_all = ["by", "limit"])]
    pub verify: bool,
    /// Only entries of this principal
    #[arg(long, value_name = "PRINCIPAL")]
    pub by: Option<String>,
    /// Only what was refused
    #[arg(long, conflicts_with = "verify")]
    pub denied: bool,
    /// At most this many [default: 50]
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub limit: Option<u32>,
    /// What to do with the whole log.
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
}

/// Verbs for the whole audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Print number and hash of the newest entry, to be kept elsewhere
    Head(AuditHeadArgs),
    /// Check that no entry was changed, removed or moved
    Verify(AuditVerifyArgs),
}

/// Arguments of `kura audit head`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura audit head
  kura audit head --sign > head.txt")]
pub struct AuditHeadArgs {
    /// Sign it with the store's ed25519 key, which is made at the first use
    #[arg(long)]
    pub sign: bool,
}

/// Arguments of `kura audit verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura audit verify
  kura audit verify --head head.txt      # exit code 7 if the log doesn't lead to it")]
pub struct AuditVerifyArgs {
    /// A head that was printed earlier: the log must lead to it
    #[arg(long, value_name = "FILE")]
    pub head: Option<PathBuf>,
}
