//! The client of the control API: one connection to the unix socket for each request.
//!
//! Every error is an [`ErrorBody`]: what the daemon answered, or `Unavailable` if it could not be
//! reached or broke off. Must be used inside a tokio runtime.

mod calls;

use std::io::ErrorKind as IoErrorKind;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::v1::{ErrorBody, ErrorKind, Event, Progress, route};

/// Result of the client's functions.
pub type Result<T, E = ErrorBody> = std::result::Result<T, E>;

/// Longest line of a streamed answer: a guard against a peer that is not computerd.
const MAX_LINE_BYTES: usize = 64 << 20;

/// How long a daemon may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Speaks to the daemon of one store.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    token: Option<Token>,
}

/// The secret of a token, which no debug output shows.
#[derive(Clone)]
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Client {
    /// A client for the daemon that listens at `socket`. Nothing is connected yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            token: None,
        }
    }

    /// Shows this token with every request, as the agents' socket wants it.
    #[must_use]
    pub fn with_token(mut self, secret: impl Into<String>) -> Self {
        self.token = Some(Token(secret.into()));
        self
    }

    fn secret(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.0.as_str())
    }

    /// Where the daemon listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether a daemon answers now. One that was just killed still accepts connections for a
    /// moment.
    ///
    /// # Errors
    /// Whatever keeps us from finding out, such as a missing right to the socket.
    pub async fn is_running(&self) -> Result<bool> {
        let stream = match UnixStream::connect(&self.socket).await {
            Ok(stream) => stream,
            Err(error) if is_absent(&error) => return Ok(false),
            Err(error) => return Err(self.connect_error(&error)),
        };
        let answer = exchange(
            stream,
            Method::GET,
            route::VERSION,
            Bytes::new(),
            self.secret(),
        )
        .await;
        Ok(!matches!(answer, Err(error) if error.kind == ErrorKind::Unavailable))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.quick(Method::GET, path, Bytes::new()).await
    }

    async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.quick(Method::DELETE, path, Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.quick(Method::POST, path, to_json(body)?).await
    }

    async fn stream<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<EventStream<T>> {
        let response = self.send(Method::POST, path, to_json(body)?).await?;
        Ok(EventStream {
            content: ContentStream {
                body: response.into_body(),
            },
            buffer: Vec::new(),
            scanned_bytes: 0,
            result: PhantomData,
        })
    }

    async fn quick<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T> {
        let response = self.send(method, path, body).await?;
        let bytes = read_body(response.into_body()).await?;
        serde_json::from_slice(&bytes).map_err(|error| not_understood(path, &error))
    }

    /// Sends one request; an answer that is an error becomes one.
    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let connect = UnixStream::connect(&self.socket);
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.connect_error(&error)),
            Err(_) => {
                let limit = CONNECT_TIMEOUT.as_secs();
                return Err(self.unreachable(format!("no answer within {limit} s")));
            }
        };
        exchange(stream, method, path, body, self.secret()).await
    }

    fn connect_error(&self, error: &std::io::Error) -> ErrorBody {
        if error.kind() == IoErrorKind::PermissionDenied {
            let socket = self.socket.display();
            return ErrorBody::new(
                ErrorKind::PermissionDenied,
                format!("connect to computerd at {socket}: {error}"),
            )
            .with_hint("use a store of your own (--store DIR), or become its owner");
        }
        if error.kind() == IoErrorKind::InvalidInput {
            let socket = self.socket.display();
            return ErrorBody::new(
                ErrorKind::InvalidInput,
                format!("connect to computerd at {socket}: {error}"),
            )
            .with_hint("the path of a socket is limited to 107 bytes; use a shorter --store");
        }
        self.unreachable(error.to_string())
    }

    fn unreachable(&self, why: String) -> ErrorBody {
        let socket = self.socket.display();
        ErrorBody::new(
            ErrorKind::Unavailable,
            format!("connect to computerd at {socket}: {why}"),
        )
        .with_hint("`kura daemon start` starts it, `kura daemon logs` shows why it ended")
    }
}

/// Sends one request over a new connection; an answer that is an error becomes one.
async fn exchange(
    stream: UnixStream,
    method: Method,
    path: &str,
    body: Bytes,
    secret: Option<&str>,
) -> Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken_off(path, &error))?;
    tokio::spawn(async move {
        // What goes wrong here surfaces at the request or at its body.
        let _ = connection.await;
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "computerd")
        .header(header::CONTENT_TYPE, "application/json");
    let request = match secret {
        Some(secret) => request.header(header::AUTHORIZATION, format!("Bearer {secret}")),
        None => request,
    };
    let request = request.body(Full::new(body)).map_err(|error| {
        ErrorBody::new(
            ErrorKind::Internal,
            format!("build request {path}: {error}"),
        )
    })?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| broken_off(path, &error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = read_body(response.into_body()).await?;
    Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        ErrorBody::new(
            ErrorKind::Internal,
            format!("the daemon answered {path} with {status} {}", text.trim()),
        )
        .with_hint("kura and computerd may be of different versions; see `kura version`")
    }))
}

/// A streamed answer: progress, then the result.
#[derive(Debug)]
pub struct EventStream<T> {
    content: ContentStream,
    buffer: Vec<u8>,
    scanned_bytes: usize,
    result: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> EventStream<T> {
    /// Reads to the end; hands every progress to `on_progress`.
    ///
    /// # Errors
    /// What the daemon reports, or `Unavailable` if the stream breaks off before its end.
    pub async fn finish(mut self, mut on_progress: impl FnMut(&Progress)) -> Result<T> {
        loop {
            match self.next().await? {
                Some(Event::Progress(progress)) => on_progress(&progress),
                Some(Event::Result { result }) => return Ok(result),
                Some(Event::Error { error }) => return Err(error),
                None => {
                    return Err(ErrorBody::new(
                        ErrorKind::Unavailable,
                        "the daemon broke off before the work was done",
                    )
                    .with_hint("see `kura daemon logs`; it is safe to try again"));
                }
            }
        }
    }

    /// The next line; `None` after the last one.
    ///
    /// # Errors
    /// If the connection breaks, or a line is not understood.
    pub async fn next(&mut self) -> Result<Option<Event<T>>> {
        loop {
            let fresh = &self.buffer[self.scanned_bytes..];
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.scanned_bytes + at).collect();
                self.scanned_bytes = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return parse_line(&line).map(Some);
            }
            self.scanned_bytes = self.buffer.len();
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(ErrorBody::new(
                    ErrorKind::Internal,
                    "a line of the daemon's answer is too long",
                ));
            }
            match self.content.next().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.iter().all(u8::is_ascii_whitespace) => return Ok(None),
                None => {
                    self.scanned_bytes = 0;
                    return parse_line(&std::mem::take(&mut self.buffer)).map(Some);
                }
            }
        }
    }
}

/// Bytes of an answer, as they come.
#[derive(Debug)]
pub struct ContentStream {
    body: Incoming,
}

impl ContentStream {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks off.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| broken_off("the answer", &error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

async fn read_body(body: Incoming) -> Result<Bytes> {
    match body.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) => Err(broken_off("the answer", &error)),
    }
}

fn parse_line<T: DeserializeOwned>(line: &[u8]) -> Result<Event<T>> {
    serde_json::from_slice(line).map_err(|error| not_understood("a line", &error))
}

fn to_json(body: &impl Serialize) -> Result<Bytes> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|error| ErrorBody::new(ErrorKind::Internal, format!("encode request: {error}")))
}

fn not_understood(what: &str, error: &serde_json::Error) -> ErrorBody {
    ErrorBody::new(
        ErrorKind::Incompatible,
        format!("the daemon's answer to {what} is not understood: {error}"),
    )
    .with_hint("kura and computerd are of different versions; see `kura version`")
}

fn broken_off(what: &str, error: &hyper::Error) -> ErrorBody {
    ErrorBody::new(
        ErrorKind::Unavailable,
        format!("the connection to computerd broke off at {what}: {error}"),
    )
    .with_hint(
        "what was asked for may have been done: look at `kura operations NAME` before you repeat \
         it; `kura daemon logs` says why the daemon ended",
    )
}

/// Whether a connection failed because nothing listens.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        IoErrorKind::NotFound | IoErrorKind::ConnectionRefused | IoErrorKind::NotADirectory
    )
}
