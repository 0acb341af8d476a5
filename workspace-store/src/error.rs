//! The one error type of the store, and the kinds that all surfaces project from.
//!
//! Rules: a message says what was tried and on what, in lower case without a full stop; the hint
//! says what to do next. `ErrorKind` is the only thing that callers branch on: it maps to an errno
//! (fuse-mount), an HTTP status (computerd) and an exit code (cli). An I/O error of the database
//! is never downgraded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What went wrong, as far as a caller can react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A workspace, branch, commit, path … does not exist.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A compare-and-swap was lost, or two changes contradict each other.
    Conflict,
    /// The principal may not do this.
    PermissionDenied,
    /// Nobody is who the request says: no token, or none that is good.
    Unauthenticated,
    /// The request itself is wrong.
    InvalidInput,
    /// Not offered for this kind of object, or not on this system.
    Unsupported,
    /// The target can't be changed.
    ReadOnly,
    /// The disk or a quota is full.
    NoSpace,
    /// In use now; try again.
    Busy,
    /// A needed part (daemon, device, container engine) isn't there.
    Unavailable,
    /// Stored bytes are not what they must be.
    Corrupt,
    /// Made by a newer or foreign version.
    Incompatible,
    /// The system refused an operation.
    Io,
    /// A defect of the program.
    Internal,
}

/// An error of the store: kind, message, optional hint, optional cause.
pub struct StoreError {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result of the store's functions.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl StoreError {
    /// An error of `kind`; `message` says what was tried, on what.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of the operating system met while doing `what`.
    pub fn io(what: impl fmt::Display, error: std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
            Some(libc::ENOENT) => ErrorKind::NotFound,
            Some(libc::EACCES | libc::EPERM) => ErrorKind::PermissionDenied,
            Some(libc::EROFS) => ErrorKind::ReadOnly,
            Some(libc::EEXIST) => ErrorKind::AlreadyExists,
            _ => ErrorKind::Io,
        };
        let mut converted = Self::new(kind, format!("{what}: {error}"));
        if kind == ErrorKind::NotFound {
            converted = converted.with_hint("check the path; its directory must exist");
        }
        converted.with_source(error)
    }

    /// The kind to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What was tried, on what.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " (hint: {hint})")?;
        }
        if let Some(source) = &self.source {
            write!(f, "; caused by: {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
