//! The page to look at: one HTTP server on the loopback interface for each `kura ui`, which ends
//! with the connection that asked for it.
//!
//! It serves the files in [`assets`] to anybody who can reach the port, and the verbs that the
//! page needs ([`server::OPEN_TO_PAGE`]) to the browser that was let in ([`guard`]). The page acts
//! as the one who asked for it.

mod assets;
mod guard;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use computerd_api::v1::{UiOpened, UiRequest};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::server::{self, Call, Lasting, Peer};
use guard::Guard;

/// Longest body of a request: a list of paths.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Serves the page until what is given back with the answer is dropped.
///
/// # Errors
/// `NotFound` if there is no such workspace, `Busy` if the port is taken.
pub fn open(call: &Call, request: UiRequest) -> Result<Lasting<UiOpened>> {
    let daemon = &call.daemon;
    let scope = request
        .workspace
        .as_deref()
        .map(|name| call.scope_of(name, None))
        .transpose()?;
    let listener = listen(request.port.unwrap_or(0))?;
    let failed = |error| Error::io("serve the page", error);
    let port = listener.local_addr().map_err(failed)?.port();
    let guard = Arc::new(Guard::new(
        daemon.clone(),
        (call.caller.clone(), Peer::of_process(call.pid)),
        scope.as_ref().map(|scope| scope.workspace.name.clone()),
        port,
    )?);
    let url = guard.link();
    let (end, ended) = oneshot::channel::<()>();
    let listener = {
        let _runtime = daemon.runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(failed)?
    };
    let service = router(guard);
    daemon.runtime.spawn(async move {
        let ended = async {
            let _ = ended.await;
        };
        if let Err(error) = axum::serve(listener, service)
            .with_graceful_shutdown(ended)
            .await
        {
            tracing::error!(%error, port, "serve the page");
        }
        tracing::info!(port, "the page is not served any more");
    });
    let workspace = scope.as_ref().map(|scope| scope.workspace.id);
    let object = format!("127.0.0.1:{port}");
    let details = serde_json::json!({});
    daemon.audit(call.caller.name(), "api", "ui", workspace, &object, details);
    tracing::info!(port, "the page is served");
    Ok((UiOpened { url, port }, end))
}

fn listen(port: u16) -> Result<TcpListener> {
    let address = (Ipv4Addr::LOCALHOST, port);
    let listener = TcpListener::bind(address).map_err(|error| {
        let tried = format!("listen at 127.0.0.1:{port}");
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                Error::new(ErrorKind::Busy, format!("{tried}: the port is taken"))
                    .with_hint("leave --port away: any free one is taken then")
            }
            _ => Error::io(tried, error),
        }
    })?;
    listener
        .set_nonblocking(true)
        .map_err(|error| Error::io("serve the page", error))?;
    Ok(listener)
}

/// Everything that is served on the page's port.
fn router(guard: Arc<Guard>) -> Router {
    let verbs = server::verbs(guard.daemon.clone())
        .layer(from_fn_with_state(guard.clone(), guard::check_session));
    let session = get(guard::session).post(guard::enter);
    Router::new()
        .route(guard::SESSION, session)
        .with_state(guard.clone())
        .merge(assets::routes())
        .merge(verbs)
        .fallback(async |request: Request| -> Response { server::unknown_route(request).await })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(guard, guard::check_origin))
        .layer(from_fn(guard::protect))
}
