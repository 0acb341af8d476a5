//! `daemon`, `volume-plugin`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `kura daemon`.
#[derive(Debug, Args)]
#[command(after_help = "\
The daemon starts by itself when a verb needs it.

Examples:
  kura daemon status
  kura daemon logs -n 50
  kura daemon stop")]
pub struct DaemonArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DaemonCommand,
}

/// What `kura daemon` does.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// Start it, if it isn't running
    Start(DaemonStartArgs),
    /// Commit, unmount and end it
    Stop(DaemonStopArgs),
    /// Show its processes, mounts, leases and queue
    Status(DaemonStatusArgs),
    /// Print the end of its log
    Logs(DaemonLogsArgs),
}

/// Arguments of `kura daemon start`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura daemon start
  kura --store /srv/kura daemon start")]
pub struct DaemonStartArgs {}

/// Arguments of `kura daemon stop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura daemon stop
  kura daemon stop --force")]
pub struct DaemonStopArgs {
    /// Detach mounts that are in use instead of refusing
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `kura daemon status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura daemon status             # exit code 6 if it isn't running
  kura daemon status --json")]
pub struct DaemonStatusArgs {}

/// Arguments of `kura daemon logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kura daemon logs
  kura daemon logs -n 20 --follow")]
pub struct DaemonLogsArgs {
    /// How many lines
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100)]
    pub lines: usize,
    /// Go on printing what comes
    #[arg(short, long)]
    pub follow: bool,
    /// Print the path of the log instead
    #[arg(long, conflicts_with_all = ["follow", "lines"])]
    pub path: bool,
}

/// Arguments of `kura volume-plugin`.
#[derive(Debug, Args)]
#[command(after_help = "\
Serves until interrupted; with --detach the daemon serves on.

Examples:
  kura volume-plugin --detach
  docker run --volume-driver kura -v demo:/workspace debian ls /workspace
  kura volume-plugin --stop")]
pub struct VolumePluginArgs {
    /// Socket [default: /run/docker/plugins/kura.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Return when it is served
    #[arg(short, long)]
    pub detach: bool,
    /// Stop serving
    #[arg(long, conflicts_with_all = ["detach", "socket"])]
    pub stop: bool,
}
