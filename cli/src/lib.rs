//! kura, the command line of Kura workspaces: parses, asks the store's computerd, prints.
//!
//! It never opens the store's database.

pub mod args;
pub mod commands;
pub mod context;
pub mod docs;
pub mod env;
pub mod error;
pub mod launcher;
pub mod output;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::context::Context;
use crate::env::Environment;
use crate::error::{CommandError, Result};
use crate::output::printer::Printer;

/// Runs one command line; messages and results go to the standard streams.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe while help is printed is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(error::EXIT_USAGE));
        }
    };
    let environment = Environment::read();
    let printer = Printer::new(&cli.global, &environment);
    match run(cli, environment, &printer) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            printer.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli, environment: Environment, printer: &Printer) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::io("start the runtime", &error))?;
    let context = Context::new(&cli.global, environment, printer);
    // An interrupt ends the process by the signal's default action (a shell sees 130): what the
    // daemon works on is whole or not done at all, and nothing here needs to be put back.
    let status = runtime.block_on(commands::run(&context, cli.command))?;
    printer.flush()?;
    Ok(status.exit_code())
}
