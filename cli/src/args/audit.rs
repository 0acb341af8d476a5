//! `audit`.

use clap::Args;

use super::target::name_parser;

/// Arguments of `kura audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura audit demo
  kura audit demo --by alice -n 20 --json
  kura audit demo --denied
  kura audit --verify                    # exit code 7 if the log was changed")]
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
}
