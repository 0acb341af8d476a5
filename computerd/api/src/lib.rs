//! Wire types of computerd's control API, and (feature `client`) the client that speaks it.
//!
//! HTTP/1 with JSON bodies over the unix socket [`SOCKET_NAME`] in the store's directory; every
//! route begins with `/v1` (see [`v1::route`]). Quick answers are one JSON object. Long work
//! answers with JSON lines ([`v1::Event`]): any number of `progress`, then one `result` or
//! `error`. Errors of quick answers are an [`v1::ErrorBody`] with the status of its kind.
//!
//! Only additions are allowed within `v1`: readers ignore fields that they don't know.

#[cfg(feature = "client")]
pub mod client;
pub mod process;
pub mod v1;

#[cfg(feature = "client")]
pub use client::{Client, ContentStream, EventStream};

/// Name of the control socket in the store's directory.
pub const SOCKET_NAME: &str = "computerd.sock";

/// The socket for principals with tokens, relative to the store's directory. Its directory is
/// there for it alone, so that it can be bound into a container and follow restarts of the daemon.
pub const AGENTS_SOCKET_NAME: &str = "agents/agents.sock";

/// Name of the log file, relative to the store's directory.
pub const LOG_NAME: &str = "log/computerd.log";

/// Name of the file with the keeper's process id, in the store's directory; the daemon has it
/// locked.
pub const PID_NAME: &str = "computerd.pid";
