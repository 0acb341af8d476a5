//! The control API: HTTP/1 over two unix sockets.
//!
//! The control socket is for the store's owner and root, who are the administrator. Whoever
//! reaches the agents' socket acts as the principal of its bearer token and gets only the routes
//! in [`routes::OPEN_TO_PRINCIPALS`]. A third door is the page ([`crate::ui`]). Every refusal is a denial in the audit log.
//!
//! Verbs are plain functions ([`crate::verbs`]) that may block; each runs on a thread of its own
//! beside the async runtime. One table ([`routes`]) makes both the router and the OpenAPI
//! document, so that they can't differ.

pub mod openapi;
pub mod progress;
mod routes;

pub use routes::OPEN_TO_PAGE;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::serve::IncomingStream;
use computerd_api::v1::{ErrorBody, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;
use workspace_store::audit::{AuditSource, with_source};

use crate::access::{self, Caller, Scope};
use crate::daemon::Daemon;
use crate::error::{self, Error, ErrorKind, Result};
use openapi::Document;
use progress::ProgressLines;

/// Longest body of a request. Lists of paths are the longest that people send.
const MAX_BODY_BYTES: usize = 8 << 20;

/// How long a call waits for what is found out about who makes it.
const SOURCE_WAIT: Duration = Duration::from_millis(50);

/// Lines of a streamed answer that may wait for the client.
const QUEUED_LINES: usize = 64;

/// Who is connected.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// User id, as the kernel says.
    uid: Option<u32>,
    /// Process id.
    pid: Option<u32>,
}

impl Peer {
    /// A process of which no more is known, or needed.
    pub fn of_process(pid: Option<u32>) -> Self {
        Self { uid: None, pid }
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        let pid = credentials.as_ref().and_then(|found| found.pid());
        Self {
            uid: credentials.map(|credentials| credentials.uid()),
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
        }
    }
}

/// One request to a verb.
#[derive(Debug, Clone)]
pub struct Call {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// Who asks.
    pub caller: Caller,
    /// What is asked for: the end of the route.
    pub action: String,
    /// The workspace in the route; empty if there is none.
    pub workspace: String,
    /// The name in the route; empty if there is none.
    pub name: String,
    /// Process of who asks.
    pub pid: Option<u32>,
    /// The principal as which the verb acts, once it has found out.
    acting: Arc<OnceLock<String>>,
}

impl Call {
    /// From where the call comes.
    pub fn source(&self) -> AuditSource {
        let surface = "api";
        let Some(pid) = self.pid else {
            return AuditSource::of_surface(surface);
        };
        let deadline = Instant::now() + SOURCE_WAIT;
        let (found, _) = self.daemon.mounts.processes.ask(pid).wait_until(deadline);
        match found {
            Some(found) => AuditSource::of_actor(surface, &found.to_actor(self.caller.name())),
            None => AuditSource {
                pid: Some(pid),
                ..AuditSource::of_surface(surface)
            },
        }
    }

    /// The principal that acts: the one that the administrator names, else the caller.
    ///
    /// # Errors
    /// As [`Caller::acts_as`].
    pub fn acts_as(&self, named: Option<&String>) -> Result<String> {
        let principal = self.caller.acts_as(&self.daemon, named)?;
        // The log names who acted first.
        let _ = self.acting.set(principal.clone());
        Ok(principal)
    }

    /// What the one that acts may see and change of the workspace in the route.
    ///
    /// # Errors
    /// As [`Caller::acts_as`] and [`Scope::new`].
    pub fn scope(&self, named: Option<&String>) -> Result<Scope> {
        self.scope_of(&self.workspace, named)
    }

    /// The same for a workspace that the request names elsewhere.
    ///
    /// # Errors
    /// As [`Call::scope`].
    pub fn scope_of(&self, workspace: &str, named: Option<&String>) -> Result<Scope> {
        let principal = self.acts_as(named)?;
        Scope::new(
            &self.daemon,
            &self.caller,
            principal,
            workspace,
            self.action.clone(),
        )
    }

    /// Writes down a refusal.
    fn note(&self, error: &Error) {
        if error.kind() != ErrorKind::PermissionDenied {
            return;
        }
        let principal = self.acting.get().map_or(self.caller.name(), String::as_str);
        let workspace = self.daemon.store.workspace(&self.workspace).ok();
        access::record_denial(
            &self.daemon,
            principal,
            &self.action,
            workspace.as_ref(),
            error.message(),
        );
    }
}

/// The name of a local user, its number if it has none.
pub fn user_name(uid: u32) -> String {
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// The answer about something that was opened, and what ends it when it is dropped.
pub type Lasting<A> = (A, oneshot::Sender<()>);

type Answer = std::pin::Pin<Box<dyn Future<Output = Response> + Send>>;
type Parameters = Option<axum::extract::Path<HashMap<String, String>>>;

fn call(
    daemon: &Arc<Daemon>,
    (caller, peer): (Caller, Peer),
    route: &str,
    parameters: Parameters,
) -> Call {
    let mut parameters = parameters.map(|path| path.0).unwrap_or_default();
    Call {
        daemon: daemon.clone(),
        caller,
        action: action(route),
        workspace: parameters.remove("workspace").unwrap_or_default(),
        name: parameters.remove("name").unwrap_or_default(),
        pid: peer.pid,
        acting: Arc::default(),
    }
}

/// What a route is for, in a word or two: its last fixed parts.
fn action(route: &str) -> String {
    let route = route
        .trim_start_matches("/v1/")
        .trim_start_matches("workspaces/{workspace}/");
    let parts: Vec<&str> = route
        .split('/')
        .filter(|part| !part.starts_with('{'))
        .collect();
    parts.join(".")
}

fn parse<B: DeserializeOwned>(bytes: &Bytes) -> Result<B> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("the request's body is not understood: {error}"),
        )
        .with_hint("kura and computerd may be of different versions; see `kura version`")
    })
}

/// The answer for an error.
pub fn error_answer(error: &Error) -> Response {
    if error.kind() == ErrorKind::Internal || error.kind() == ErrorKind::Corrupt {
        tracing::error!(?error, "request failed");
    } else {
        tracing::debug!(?error, "request failed");
    }
    body_answer(&error::body(error))
}

fn body_answer(body: &ErrorBody) -> Response {
    let status =
        StatusCode::from_u16(body.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, json(body)).into_response()
}

/// The answer with a JSON body.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "encode an answer");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn answer<A: Serialize>(outcome: Result<A>) -> Response {
    match outcome {
        Ok(answer) => json(&answer),
        Err(error) => error_answer(&error),
    }
}

/// Lines of JSON, as they come.
fn json_lines(receiver: tokio::sync::mpsc::Receiver<Bytes>) -> Response {
    let lines = ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>);
    (
        [(header::CONTENT_TYPE, "application/jsonl")],
        Body::from_stream(lines),
    )
        .into_response()
}

/// Runs a verb with the body of its request, beside the runtime.
async fn run<B, A>(call: Call, bytes: &Bytes, verb: fn(&Call, B) -> Result<A>) -> Result<A>
where
    B: DeserializeOwned + Send + 'static,
    A: Send + 'static,
{
    let body = parse(bytes)?;
    blocking(move || noted(&call, |call| verb(call, body))).await
}

/// Runs a verb; what it does carries the call's source, and a refusal goes to the audit log.
fn noted<A>(call: &Call, verb: impl FnOnce(&Call) -> Result<A>) -> Result<A> {
    with_source(Some(call.source()), || {
        let outcome = verb(call);
        if let Err(error) = &outcome {
            call.note(error);
        }
        outcome
    })
}

/// Runs blocking work beside the runtime; a panic in it becomes an error.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::new(
            ErrorKind::Internal,
            "the daemon panicked while it worked on the request",
        )
        .with_hint("see `kura daemon logs`, and report it")),
    }
}

/// The routes with their documentation, as they are added.
struct Api {
    router: Router,
    daemon: Option<Arc<Daemon>>,
    document: Document,
}

impl Api {
    fn route(&mut self, path: &str, handler: MethodRouter) {
        self.router = std::mem::take(&mut self.router).route(path, handler);
    }

    /// A route that is only documented when there is no daemon.
    fn with_daemon(&mut self, add: impl FnOnce(&mut Self, Arc<Daemon>)) {
        if let Some(daemon) = self.daemon.clone() {
            add(self, daemon);
        }
    }

    fn get<A: Serialize + ToSchema + Send + 'static>(
        &mut self,
        path: &'static str,
        summary: &str,
        verb: fn(&Call) -> Result<A>,
    ) {
        self.document.quick::<(), A>("get", path, summary);
        self.with_daemon(|api, daemon| {
            api.route(path, axum::routing::get(bodyless(daemon, path, verb)));
        });
    }

    fn delete<A: Serialize + ToSchema + Send + 'static>(
        &mut self,
        path: &'static str,
        summary: &str,
        verb: fn(&Call) -> Result<A>,
    ) {
        self.document.quick::<(), A>("delete", path, summary);
        self.with_daemon(|api, daemon| {
            api.route(path, axum::routing::delete(bodyless(daemon, path, verb)));
        });
    }

    fn post<B, A>(&mut self, path: &'static str, summary: &str, verb: fn(&Call, B) -> Result<A>)
    where
        B: DeserializeOwned + ToSchema + Send + 'static,
        A: Serialize + ToSchema + Send + 'static,
    {
        self.document.quick::<B, A>("post", path, summary);
        self.with_daemon(|api, daemon| {
            let handler = move |ConnectInfo(peer): ConnectInfo<Peer>,
                                Extension(caller): Extension<Caller>,
                                parameters: Parameters,
                                bytes: Bytes| async move {
                let call = call(&daemon, (caller, peer), path, parameters);
                answer(run(call, &bytes, verb).await)
            };
            api.route(path, axum::routing::post(handler));
        });
    }

    /// Long work: answers with JSON lines.
    fn stream<B, A>(
        &mut self,
        path: &'static str,
        summary: &str,
        verb: fn(&Call, B, &ProgressLines) -> Result<A>,
    ) where
        B: DeserializeOwned + ToSchema + Send + 'static,
        A: Serialize + ToSchema + Send + 'static,
    {
        self.document.lines::<B, A>(path, summary);
        self.with_daemon(|api, daemon| {
            let handler = move |ConnectInfo(peer): ConnectInfo<Peer>,
                                Extension(caller): Extension<Caller>,
                                parameters: Parameters,
                                bytes: Bytes| async move {
                let call = call(&daemon, (caller, peer), path, parameters);
                let body = match parse(&bytes) {
                    Ok(body) => body,
                    Err(error) => return error_answer(&error),
                };
                let (sender, receiver) = tokio::sync::mpsc::channel(QUEUED_LINES);
                tokio::spawn(async move {
                    let lines = ProgressLines::new(sender.clone());
                    let work = move || noted(&call, |call| verb(call, body, &lines));
                    let event = match blocking(work).await {
                        Ok(result) => Event::Result { result },
                        Err(error) => {
                            tracing::info!(?error, "long work failed");
                            Event::Error {
                                error: error::body(&error),
                            }
                        }
                    };
                    let _ = sender.send(progress::line(&event)).await;
                });
                json_lines(receiver)
            };
            api.route(path, axum::routing::post(handler));
        });
    }

    /// Something that lasts for as long as the client stays: one line, then nothing until its end.
    fn lasting<B, A>(
        &mut self,
        path: &'static str,
        summary: &str,
        verb: fn(&Call, B) -> Result<Lasting<A>>,
    ) where
        B: DeserializeOwned + ToSchema + Send + 'static,
        A: Serialize + ToSchema + Send + 'static,
    {
        self.document.lines::<B, A>(path, summary);
        self.with_daemon(|api, daemon| {
            let handler = move |ConnectInfo(peer): ConnectInfo<Peer>,
                                Extension(caller): Extension<Caller>,
                                parameters: Parameters,
                                bytes: Bytes| async move {
                let call = call(&daemon, (caller, peer), path, parameters);
                let (answer, end) = match run(call, &bytes, verb).await {
                    Ok(opened) => opened,
                    Err(error) => return error_answer(&error),
                };
                let (sender, receiver) = tokio::sync::mpsc::channel(1);
                let mut stopped = daemon.stop.subscribe();
                tokio::spawn(async move {
                    let event = Event::Result { result: answer };
                    let _ = sender.send(progress::line(&event)).await;
                    tokio::select! {
                        () = sender.closed() => {}
                        _ = stopped.wait_for(Option::is_some) => {}
                    }
                    drop(end);
                });
                json_lines(receiver)
            };
            api.route(path, axum::routing::post(handler));
        });
    }

    /// Bytes of a file.
    fn bytes<B: DeserializeOwned + ToSchema + Send + 'static>(
        &mut self,
        path: &'static str,
        summary: &str,
        verb: fn(&Call, B) -> Result<crate::verbs::files::ContentReader>,
    ) {
        self.document.bytes::<B>(path, summary);
        self.with_daemon(|api, daemon| {
            let handler = move |ConnectInfo(peer): ConnectInfo<Peer>,
                                Extension(caller): Extension<Caller>,
                                parameters: Parameters,
                                bytes: Bytes| async move {
                let call = call(&daemon, (caller, peer), path, parameters);
                let mut reader = match run(call, &bytes, verb).await {
                    Ok(reader) => reader,
                    Err(error) => return error_answer(&error),
                };
                let size = reader.size();
                let (sender, receiver) = tokio::sync::mpsc::channel(4);
                tokio::task::spawn_blocking(move || {
                    loop {
                        let piece = reader.next_piece();
                        if matches!(&piece, Ok(bytes) if bytes.is_empty()) {
                            return;
                        }
                        let is_last = piece.is_err();
                        let piece = piece.map(Bytes::from);
                        if sender.blocking_send(piece).is_err() || is_last {
                            return;
                        }
                    }
                });
                (
                    [
                        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                        (header::CONTENT_LENGTH, size.to_string()),
                    ],
                    Body::from_stream(ReceiverStream::new(receiver)),
                )
                    .into_response()
            };
            api.route(path, axum::routing::post(handler));
        });
    }
}

/// Handler of a route whose requests have no body.
fn bodyless<A: Serialize + Send + 'static>(
    daemon: Arc<Daemon>,
    path: &'static str,
    verb: fn(&Call) -> Result<A>,
) -> impl Fn(ConnectInfo<Peer>, Extension<Caller>, Parameters) -> Answer + Clone + Send + Sync + 'static
{
    move |ConnectInfo(peer), Extension(caller), parameters| {
        let call = call(&daemon, (caller, peer), path, parameters);
        Box::pin(async move { answer(blocking(move || noted(&call, verb)).await) })
    }
}

/// The control socket: only root and the user as whom the daemon runs, as the administrator.
async fn check_peer(
    State(daemon): State<Arc<Daemon>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let owner = nix::unistd::geteuid().as_raw();
    match peer.uid {
        Some(uid) if uid == 0 || uid == owner => {
            let caller = Caller::Administrator(user_name(uid));
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        _ => {
            tracing::warn!(uid = peer.uid, "refused a connection to the control socket");
            access::record_denial(
                &daemon,
                &local_user(peer),
                "connect",
                None,
                "control socket",
            );
            error_answer(
                &Error::new(
                    ErrorKind::PermissionDenied,
                    "this store belongs to another user",
                )
                .with_hint(
                    "use a store of your own (--store DIR), become its owner, or ask for a token",
                ),
            )
        }
    }
}

/// The agents' socket: who has a token acts as its principal, on the routes that are open.
async fn check_token(
    State(daemon): State<Arc<Daemon>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let secret = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default()
        .to_owned();
    let asked = daemon.clone();
    let principal = match blocking(move || asked.store.authenticate(&secret)).await {
        Ok(principal) => principal,
        Err(error) => {
            if error.kind() == ErrorKind::Unauthenticated {
                let user = local_user(peer);
                access::record_denial(&daemon, &user, "authenticate", None, "agents' socket");
            }
            return error_answer(&error);
        }
    };
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned())
        .unwrap_or_default();
    let method = request.method().as_str();
    if !routes::OPEN_TO_PRINCIPALS.contains(&(method, route.as_str())) {
        let asked = request.uri().path().to_owned();
        let action = action(&route);
        access::record_denial(&daemon, &principal, &action, None, &asked);
        return error_answer(
            &Error::new(
                ErrorKind::PermissionDenied,
                format!("{method} {asked} as {principal}: only the store's owner may do that"),
            )
            .with_hint("ask the store's owner"),
        );
    }
    request
        .extensions_mut()
        .insert(Caller::Principal(principal));
    next.run(request).await
}

/// How the log names somebody who is no principal.
fn local_user(peer: Peer) -> String {
    match peer.uid {
        Some(uid) => format!("user {}", user_name(uid)),
        None => "somebody".to_owned(),
    }
}

/// The answer where there is no route.
pub async fn unknown_route(request: Request) -> Response {
    error_answer(
        &Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no route {} {}",
                request.method(),
                request.uri().path()
            ),
        )
        .with_hint("kura and computerd may be of different versions; see `kura version`"),
    )
}

/// Which socket is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The administrator's.
    Control,
    /// That of principals with tokens.
    Agents,
}

/// The routes of all verbs, for callers that are known by then.
pub fn verbs(daemon: Arc<Daemon>) -> Router {
    let mut api = Api {
        router: Router::new(),
        daemon: Some(daemon),
        document: Document::new(),
    };
    routes::add(&mut api);
    let text = api.document.finish();
    api.route(
        computerd_api::v1::route::OPENAPI,
        axum::routing::get(async move || {
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }),
    );
    api.router
}

/// Everything that is served at a socket.
pub fn router(daemon: Arc<Daemon>, door: Door) -> Router {
    let router = verbs(daemon.clone())
        .fallback(unknown_route)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    match door {
        Door::Control => router.layer(axum::middleware::from_fn_with_state(daemon, check_peer)),
        Door::Agents => router.layer(axum::middleware::from_fn_with_state(daemon, check_token)),
    }
}

/// Listens at `path`; replaces what a dead daemon left there.
///
/// The control socket is for the owner only. Anybody who can reach the agents' socket may connect
/// to it; its directory can be bound into a container and stays the same over restarts.
pub fn listen(path: &Path, door: Door) -> Result<UnixListener> {
    let failed = |error| Error::io(format!("listen at {}", path.display()), error);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Bound under another name and renamed, so that nobody connects before the mode is set.
    let temporary = path.with_extension("new");
    let _ = std::fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary).map_err(failed)?;
    let mode = match door {
        Door::Control => 0o600,
        Door::Agents => 0o666,
    };
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)?;
    Ok(listener)
}

/// Serves until `end` is ready and running requests are answered.
pub async fn serve(
    listener: UnixListener,
    daemon: Arc<Daemon>,
    door: Door,
    end: impl Future<Output = ()> + Send + 'static,
) {
    let service = router(daemon, door).into_make_service_with_connect_info::<Peer>();
    if let Err(error) = axum::serve(listener, service)
        .with_graceful_shutdown(end)
        .await
    {
        tracing::error!(%error, ?door, "serve a socket");
    }
}
