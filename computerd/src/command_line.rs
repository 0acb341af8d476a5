//! The command line of `computerd`.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::error::{self, Error, Result};
use crate::keeper::{self, WorkerCommand};
use crate::logging;
use crate::store_directory::StoreDirectory;

/// The daemon of a Kura store: serves its database, mounts and Docker volumes.
#[derive(Debug, Parser)]
#[command(name = "computerd", version)]
struct Arguments {
    /// Directory of the store [default: $KURA_STORE, else kura in the user's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    store: Option<PathBuf>,

    /// Log to stderr as well
    #[arg(long, global = true)]
    foreground: bool,

    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The process that the keeper starts and starts again
    #[command(hide = true)]
    Worker,
    /// Flushes mounts of the worker that started it
    #[command(hide = true)]
    FlushHelper,
    /// Prints the OpenAPI document of the control API
    #[command(hide = true)]
    Openapi,
}

/// Runs the program; returns its exit code.
pub fn run() -> i32 {
    let arguments = Arguments::parse();
    let outcome = match arguments.part {
        None => run_keeper(&arguments),
        Some(Part::Worker) => run_worker(&arguments),
        Some(Part::FlushHelper) => run_flush_helper(),
        Some(Part::Openapi) => print_openapi(),
    };
    outcome.unwrap_or_else(|error| {
        report(&error);
        error::exit_code(&error)
    })
}

#[expect(clippy::print_stderr, reason = "the program's last words")]
fn report(error: &Error) {
    tracing::error!(kind = ?error.kind(), hint = error.hint(), "{error}");
    eprintln!("computerd: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
}

fn run_keeper(arguments: &Arguments) -> Result<i32> {
    let store = StoreDirectory::choose(arguments.store.clone())?;
    store.create()?;
    logging::rotate(&store.log());
    logging::start(&store.log(), arguments.foreground);
    let lock = store.lock()?;
    let program =
        std::env::current_exe().map_err(|error| Error::io("find the program's own file", error))?;
    let mut worker_arguments: Vec<OsString> = vec!["worker".into(), "--store".into()];
    worker_arguments.push(store.path().into());
    if arguments.foreground {
        worker_arguments.push("--foreground".into());
    }
    let code = keeper::keep(WorkerCommand {
        program,
        arguments: worker_arguments,
        inherited: vec![lock.as_raw_fd()],
    })
    .map_err(|error| Error::io("keep a worker running", error))?;
    tracing::info!(code, "keeper ends");
    Ok(code)
}

fn run_worker(arguments: &Arguments) -> Result<i32> {
    let store = StoreDirectory::choose(arguments.store.clone())?;
    store.create()?;
    logging::start(&store.log(), arguments.foreground);
    crate::worker::run(&store, keeper_socket())
}

/// The socket that the keeper left for us; `None` when started by hand.
fn keeper_socket() -> Option<OwnedFd> {
    let number: RawFd = std::env::var(keeper::SOCKET_VARIABLE).ok()?.parse().ok()?;
    // SAFETY: fcntl on a number; no memory is touched.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: the number was checked to be open; the keeper opened it for us and nothing else in
    // this process has used it yet.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

fn run_flush_helper() -> Result<i32> {
    fuse_mount::fuse::serve_flush_helper(std::io::stdin(), std::io::stdout())
        .map_err(|error| Error::io("serve the flush helper", error))?;
    Ok(0)
}

#[expect(clippy::print_stdout, reason = "the document is what was asked for")]
fn print_openapi() -> Result<i32> {
    print!("{}", crate::server::openapi::document_text());
    Ok(0)
}
