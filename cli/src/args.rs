//! The command line as types: clap definitions only, so that help, completions, man pages and the
//! reference are made from them without running anything.

pub mod audit;
pub mod branch;
pub mod commit;
pub mod config;
pub mod daemon;
pub mod diff;
pub mod file;
pub mod grant;
pub mod log;
pub mod merge;
pub mod mount;
pub mod principal;
pub mod program;
pub mod purge;
pub mod revert;
pub mod run;
pub mod shared;
pub mod target;
pub mod transfer;
pub mod ui;
pub mod workspace;

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
Examples:
  kura init demo --from ./project     # a workspace with the content of a directory
  kura mount demo ./work              # an ordinary directory with a history behind it
  kura diff demo                      # what is not committed yet
  kura log demo                       # what happened
  kura rollback demo HEAD~1           # back to an older state, by a new commit

More: `kura help revisions`, `kura help exit-codes`, `kura help environment`";

/// Versioned workspaces for agents: ordinary directories with a history behind them
#[derive(Debug, Parser)]
#[command(
    name = "kura",
    version,
    styles = STYLES,
    disable_help_subcommand = true,
    propagate_version = false,
    max_term_width = 100,
    after_help = AFTER_HELP
)]
pub struct Cli {
    /// What every verb takes.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The verb.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every verb.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Directory of the store [default: $KURA_STORE, else $XDG_DATA_HOME/kura]
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,
    /// Socket of a running daemon, instead of the store's
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print results and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub color: ColorWhen,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a workspace, empty or from real files
    Init(workspace::InitArgs),
    /// List the workspaces of the store
    List(workspace::ListArgs),
    /// Show uncommitted changes, mounts, branches and sizes of a workspace
    Status(workspace::StatusArgs),
    /// Mount a workspace as a directory
    Mount(mount::MountArgs),
    /// End a mount; what is uncommitted is committed first
    Umount(mount::UmountArgs),
    /// List the mounts
    LsMounts(mount::LsMountsArgs),
    /// Commit the uncommitted changes and print the commit's id
    Commit(commit::CommitArgs),
    /// Show the history of a workspace or of paths
    Log(log::LogArgs),
    /// Show one commit and what it changed
    Show(log::ShowArgs),
    /// Show who last changed a path, or each of its lines
    Blame(run::BlameArgs),
    /// Run a command whose changes belong to a run, and commit what it left
    Run(run::RunArgs),
    /// List runs: what ran, for whom, and what it changed
    Runs(run::RunsArgs),
    /// Show what differs between two states
    Diff(diff::DiffArgs),
    /// List a directory of any state, without a mount
    Ls(file::LsArgs),
    /// Print a file of any state, without a mount
    Cat(file::CatArgs),
    /// Write a state to a directory or a tar file
    Export(transfer::ExportArgs),
    /// Bring a directory or a tar file into a workspace, as a new commit
    Import(transfer::ImportArgs),
    /// Bring paths back from an older state, by a new commit
    Restore(revert::RestoreArgs),
    /// Set a workspace back to an older state, by a new commit
    Rollback(revert::RollbackArgs),
    /// Take an operation back
    Undo(revert::UndoArgs),
    /// Bring what another branch or fork changed into a workspace
    Merge(merge::MergeArgs),
    /// List what a merge could not join
    Conflicts(merge::ConflictsArgs),
    /// End conflicts, with what is there now or with one of the sides
    Resolve(merge::ResolveArgs),
    /// Remove the content of paths from all versions, for good
    Purge(purge::PurgeArgs),
    /// List the operations of a workspace, newest first
    Operations(revert::OperationsArgs),
    /// Make a workspace that begins at a state of another one, without copying
    Fork(workspace::ForkArgs),
    /// List, make and delete branches
    Branch(branch::BranchArgs),
    /// List, make and delete tags
    Tag(branch::TagArgs),
    /// Pass a workspace on: commit, fence the writer, print the commit's id
    Handoff(workspace::HandoffArgs),
    /// Make, list and disable principals, and their tokens
    Principal(principal::PrincipalsArgs),
    /// List groups of principals, and change who is in them
    Group(principal::GroupArgs),
    /// Let a principal or group see or change paths of a workspace
    Grant(grant::GrantArgs),
    /// Take a grant back
    Revoke(grant::RevokeArgs),
    /// List the grants of a workspace, and which of them decides about a path
    Grants(grant::GrantsArgs),
    /// Show or verify the audit log
    Audit(audit::AuditArgs),
    /// Serve a page that shows the history of a workspace, until interrupted
    Ui(ui::UiArgs),
    /// Show and change settings
    Config(config::ConfigArgs),
    /// Start, stop and look at the store's daemon
    Daemon(daemon::DaemonArgs),
    /// Serve Docker's volume driver `kura`
    VolumePlugin(daemon::VolumePluginArgs),
    /// Print the completion script of a shell
    Completions(program::CompletionsArgs),
    /// Write the man pages into a directory
    Man(program::ManArgs),
    /// Print the versions of kura and of the running daemon
    Version(program::VersionArgs),
    /// Print the help of a verb or a topic (exit-codes, environment, revisions)
    Help(program::HelpArgs),
    /// Tools for the project itself
    #[command(hide = true)]
    Util(program::UtilArgs),
}
