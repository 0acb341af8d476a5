//! The program `kura`.

use std::process::ExitCode;

fn main() -> ExitCode {
    workspace_cli::main(std::env::args_os())
}
