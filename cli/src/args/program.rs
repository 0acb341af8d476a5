//! `completions`, `man`, `version`, `help`, `util`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

/// Arguments of `kura completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura completions bash > /etc/bash_completion.d/kura
  kura completions fish > ~/.config/fish/completions/kura.fish")]
pub struct CompletionsArgs {
    /// Shell
    pub shell: Shell,
}

/// Arguments of `kura man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura man /usr/local/share/man/man1
  kura man ./man && man ./man/kura-mount.1")]
pub struct ManArgs {
    /// Directory; made if absent
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `kura version`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura version
  kura version --json")]
pub struct VersionArgs {}

/// Arguments of `kura help`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura help mount
  kura help exit-codes")]
pub struct HelpArgs {
    /// Verb (and what it does), or a topic: exit-codes, environment, revisions
    #[arg(value_name = "VERB|TOPIC")]
    pub words: Vec<String>,
}

/// Arguments of `kura util`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura util reference > docs/cli.md")]
pub struct UtilArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: UtilCommand,
}

/// What `kura util` does.
#[derive(Debug, Subcommand)]
pub enum UtilCommand {
    /// Print docs/cli.md
    #[command(after_help = "Examples:\n  kura util reference > docs/cli.md")]
    Reference,
}
