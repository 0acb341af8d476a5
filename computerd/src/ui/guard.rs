//! Who may talk to the page's port.
//!
//! Everybody on this machine can connect to it, and every web page can make a browser send
//! requests to it. So:
//! - The link has a token in its fragment, which no request carries by itself. The page posts it;
//!   it lets in one browser, once. That browser gets a cookie (`HttpOnly`, `SameSite=Strict`) and a
//!   key that the page shows in a header. A request to a verb needs both: cookies are sent to every
//!   port of a host, the key is known to this page only, and other pages can't set the header.
//! - `Host` must be this port of the loopback interface (against names that are made to point
//!   here), `Origin` and `Sec-Fetch-Site`, where they are sent, must be this page; a POST must
//!   send `Origin`.
//! - No answer may be kept, framed or read by another page; nothing but the page's own files runs.
//!
//! Refusals are denials in the audit log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use workspace_store::id::{random_bytes, to_hex};

use crate::access::{self, Caller};
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::server::{self, Peer};

/// Where the page is let in, and where it asks whether it is.
pub const SESSION: &str = "/session";

/// Header with the page's key.
const KEY_HEADER: &str = "x-kura-page";

/// What a browser may do with an answer.
const PROTECTION: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// 256 random bits in hexadecimal digits.
struct Secret(String);

impl Secret {
    fn new() -> Result<Self> {
        Ok(Self(to_hex(&random_bytes::<32>()?)))
    }

    /// Takes the same time for every guess: hashes are compared, and theirs in constant time.
    fn is(&self, shown: &str) -> bool {
        blake3::hash(shown.as_bytes()) == blake3::hash(self.0.as_bytes())
    }
}

/// The secrets of one page, and for whom it acts.
pub struct Guard {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    caller: Caller,
    /// The process that asked for the page.
    peer: Peer,
    workspace: Option<String>,
    port: u16,
    token: Secret,
    is_token_used: AtomicBool,
    cookie: Secret,
    key: Secret,
}

impl Guard {
    /// New secrets for the page at this port.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn new(
        daemon: Arc<Daemon>,
        (caller, peer): (Caller, Peer),
        workspace: Option<String>,
        port: u16,
    ) -> Result<Self> {
        Ok(Self {
            daemon,
            caller,
            peer,
            workspace,
            port,
            token: Secret::new()?,
            is_token_used: AtomicBool::new(false),
            cookie: Secret::new()?,
            key: Secret::new()?,
        })
    }

    /// The page's address with the token.
    pub fn link(&self) -> String {
        format!("http://127.0.0.1:{}/#token={}", self.port, self.token.0)
    }

    /// Of its own for each port, so that pages of several daemons don't log each other out.
    fn cookie_name(&self) -> String {
        format!("kura-page-{}", self.port)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .any(|(found, value)| found == name && self.cookie.is(value))
    }

    fn refuse(&self, status: ErrorKind, what: &str, hint: &str) -> Response {
        let workspace = self.workspace.as_ref();
        let workspace = workspace.and_then(|name| self.daemon.store.workspace(name).ok());
        access::record_denial(
            &self.daemon,
            "somebody",
            "ui",
            workspace.as_ref(),
            &format!("page: {what}"),
        );
        server::error_answer(&Error::new(status, format!("page: {what}")).with_hint(hint))
    }
}

/// What the page is told about itself.
#[derive(Serialize)]
struct Session {
    /// To be shown with every request; only when the page is let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    workspace: Option<String>,
    user: String,
    version: &'static str,
}

impl Session {
    fn of(guard: &Guard, key: Option<String>) -> Response {
        server::json(&Session {
            key,
            workspace: guard.workspace.clone(),
            user: guard.caller.name().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
        })
    }
}

#[derive(Deserialize)]
struct Entrance {
    token: String,
}

/// Exchanges the link's token for cookie and key.
pub async fn enter(State(guard): State<Arc<Guard>>, body: Bytes) -> Response {
    let token = match serde_json::from_slice::<Entrance>(&body) {
        Ok(entrance) => entrance.token,
        Err(_) => String::new(),
    };
    if !guard.token.is(&token) {
        return guard.refuse(
            ErrorKind::Unauthenticated,
            "the link has no token or a wrong one",
            "open the address that `kura ui` printed",
        );
    }
    if guard.is_token_used.swap(true, Ordering::Relaxed) {
        return guard.refuse(
            ErrorKind::Unauthenticated,
            "this link was opened before, and it lets in once",
            "run `kura ui` again for another browser or window",
        );
    }
    let cookie = format!(
        "{}={}; Path=/; HttpOnly; SameSite=Strict",
        guard.cookie_name(),
        guard.cookie.0
    );
    let session = Session::of(&guard, Some(guard.key.0.clone()));
    ([(header::SET_COOKIE, cookie)], session).into_response()
}

/// Tells a page that was loaded again what it begins with.
pub async fn session(State(guard): State<Arc<Guard>>, headers: HeaderMap) -> Response {
    match let_in(&guard, &headers) {
        Ok(()) => Session::of(&guard, None),
        Err(refusal) => *refusal,
    }
}

fn let_in(guard: &Guard, headers: &HeaderMap) -> std::result::Result<(), Box<Response>> {
    let key = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok());
    if guard.has_cookie(headers) && key.is_some_and(|key| guard.key.is(key)) {
        return Ok(());
    }
    Err(Box::new(guard.refuse(
        ErrorKind::Unauthenticated,
        "this browser window was not let in",
        "run `kura ui` and open the address that it prints",
    )))
}

/// Lets the verbs that the page needs to the page, as the one who asked for it.
pub async fn check_session(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(refusal) = let_in(&guard, request.headers()) {
        return *refusal;
    }
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned())
        .unwrap_or_default();
    let method = request.method().as_str();
    if !server::OPEN_TO_PAGE.contains(&(method, route.as_str())) {
        let what = format!("{method} {route} is not for the page");
        let hint = "use the command line";
        return guard.refuse(ErrorKind::PermissionDenied, &what, hint);
    }
    let extensions = request.extensions_mut();
    extensions.insert(guard.caller.clone());
    extensions.insert(ConnectInfo(guard.peer));
    next.run(request).await
}

/// Refuses what was not sent by the page itself, or by a person who opens it.
pub async fn check_origin(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    match fault_of_origin(&request, guard.port) {
        Some(fault) => guard.refuse(
            ErrorKind::PermissionDenied,
            fault,
            "open the address that `kura ui` printed, as it is",
        ),
        None => next.run(request).await,
    }
}

/// The value of a header that may be there once; empty if it is there more often.
fn one_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.to_str().unwrap_or_default()),
        (None, _) => None,
        _ => Some(""),
    }
}

fn fault_of_origin(request: &Request, port: u16) -> Option<&'static str> {
    const OTHER_PAGE: &str = "the request comes from another page";
    let header = |name| one_header(request.headers(), name);
    let host = header("host").unwrap_or_default();
    let is_ours = ["127.0.0.1", "localhost"]
        .iter()
        .any(|name| host == format!("{name}:{port}"));
    if !is_ours || request.uri().authority().is_some() {
        return Some("the request is for another host");
    }
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    match header("origin") {
        Some(origin) if origin != format!("http://{host}") => return Some(OTHER_PAGE),
        None if !is_read => return Some("the request doesn't say from which page it comes"),
        _ => {}
    }
    // Files may be asked for by a link on another page: a person who clicks it.
    let is_file = is_read && !request.uri().path().starts_with("/v1/");
    let site = header("sec-fetch-site");
    (!is_file && site.is_some_and(|site| site != "same-origin" && site != "none"))
        .then_some(OTHER_PAGE)
}

/// Says what a browser may do with an answer.
pub async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in PROTECTION {
        let value = HeaderValue::from_static(value);
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, value);
    }
    response
}
