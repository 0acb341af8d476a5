//! `ui`.

use clap::Args;

use super::target::name_parser;

/// Arguments of `kura ui`.
#[derive(Debug, Args)]
#[command(after_help = "\
The page is for this machine only (127.0.0.1), and for the one browser window that opens its address
first. It is served until Ctrl-C.

Examples:
  kura ui demo
  kura ui demo --no-open --port 8080     # prints the address only
  ssh -L 8080:127.0.0.1:8080 HOST kura ui demo --port 8080")]
pub struct UiArgs {
    /// Workspace that the page begins with [default: the first]
    #[arg(value_parser = name_parser())]
    pub name: Option<String>,
    /// Port on the loopback interface [default: any free one]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Don't open a browser
    #[arg(long)]
    pub no_open: bool,
}
