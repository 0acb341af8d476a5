//! `volume-plugin`: asks the daemon to serve Docker's volume driver, and stays with it.

use std::time::Duration;

use computerd_api::v1::{VolumePluginRequest, VolumePluginStatus};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::daemon::VolumePluginArgs;
use crate::context::{Context, StoreUse, absolute_text};
use crate::error::{CommandError, Result};
use crate::output::sanitize::sanitize;

/// How often we look whether the daemon still serves.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Serves the volume driver.
pub async fn serve(context: &Context<'_>, arguments: VolumePluginArgs) -> Result<()> {
    let printer = context.printer;
    if arguments.stop {
        let client = context.client_without_start()?;
        if !client.is_running().await? {
            printer.note("computerd isn't running, so nothing is served");
            return Ok(());
        }
        let status = client.stop_volume_plugin().await?;
        return report(context, &status);
    }
    let request = VolumePluginRequest {
        socket: arguments.socket.as_deref().map(absolute_text).transpose()?,
    };
    let client = context.client_for(StoreUse::CreateIfAbsent).await?;
    let status = client.start_volume_plugin(&request).await?;
    report(context, &status)?;
    if arguments.detach {
        return Ok(());
    }
    printer.flush()?;
    let stop_error = |error| CommandError::io("wait for signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(stop_error)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(stop_error)?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = tokio::time::sleep(WATCH_INTERVAL) => {
                let client = context.client_for(StoreUse::CreateIfAbsent).await?;
                if !client.volume_plugin().await?.is_serving {
                    printer.warn("the volume driver was not served any more; it is started again");
                    client.start_volume_plugin(&request).await?;
                }
            }
        }
    }
    client.stop_volume_plugin().await?;
    printer.note("the volume driver is not served any more");
    Ok(())
}

fn report(context: &Context<'_>, status: &VolumePluginStatus) -> Result<()> {
    let printer = context.printer;
    if printer.is_json() {
        return printer.json("volume_plugin", status);
    }
    match &status.socket {
        Some(socket) if status.is_serving => printer.note(format!(
            "serving the volume driver `kura` at {}",
            sanitize(socket.as_bytes())
        )),
        _ => printer.note("the volume driver is not served"),
    }
    Ok(())
}
