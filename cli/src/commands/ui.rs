//! `ui`: asks the daemon to serve the page, and stays with it.

use std::process::{Command, Stdio};

use computerd_api::v1::{ErrorKind, Event, UiRequest};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ui::UiArgs;
use crate::context::Context;
use crate::error::{CommandError, Result};

/// Opens an address in the browser that the user prefers.
const OPENER: &str = "xdg-open";

/// Serves the page until interrupted. The daemon ends it with our connection, however we end.
pub async fn ui(context: &Context<'_>, arguments: UiArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let request = UiRequest {
        workspace: arguments.name,
        port: arguments.port,
    };
    let mut lines = client.open_ui(&request).await?;
    let opened = match lines.next().await? {
        Some(Event::Result { result }) => result,
        Some(Event::Error { error }) => return Err(error.into()),
        _ => return Err(ended()),
    };
    if printer.is_json() {
        printer.json("ui", &opened)?;
    } else {
        printer.line(&opened.url)?;
        printer.note("the address lets in one browser window; Ctrl-C ends the page");
    }
    printer.flush()?;
    if !arguments.no_open && !printer.is_json() && context.environment.has_screen {
        open_browser(context, &opened.url);
    }
    let failed = |error| CommandError::io("wait for signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = lines.next() => return Err(ended()),
    }
    printer.note("the page is not served any more");
    Ok(())
}

fn ended() -> CommandError {
    CommandError::with_hint(
        ErrorKind::Unavailable,
        "serve the page: the daemon has ended",
        "run `kura ui` again; `kura daemon logs` says why the daemon ended",
    )
}

/// Others on this machine may see the address among the opener's arguments for a moment; it lets
/// in only once.
fn open_browser(context: &Context<'_>, url: &str) {
    let started = Command::new(OPENER)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        context
            .printer
            .note(format!("there is no {OPENER}: open the address yourself"));
    }
}
