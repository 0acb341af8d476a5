//! Errors on the wire, and the one table that projects a kind to HTTP and to the exit code.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $status:literal, $exit:literal;)*) => {
        /// What went wrong, as far as a caller can react to it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),*];

            /// Name on the wire.
            pub fn name(self) -> &'static str {
                match self { $(ErrorKind::$kind => $name),* }
            }

            /// Status of the HTTP answer that carries it.
            pub fn http_status(self) -> u16 {
                match self { $(ErrorKind::$kind => $status),* }
            }

            /// Exit code of a program that ends with it.
            pub fn exit_code(self) -> u8 {
                match self { $(ErrorKind::$kind => $exit),* }
            }
        }
    };
}

error_kinds! {
    /// A workspace, branch, commit, path … does not exist.
    NotFound, "not_found", 404, 4;
    /// The name is taken.
    AlreadyExists, "already_exists", 409, 1;
    /// A compare-and-swap was lost, or two changes contradict each other.
    Conflict, "conflict", 409, 3;
    /// The principal may not do this.
    PermissionDenied, "permission_denied", 403, 5;
    /// Nobody is who the request says: no token, or none that is good.
    Unauthenticated, "unauthenticated", 401, 5;
    /// The request itself is wrong.
    InvalidInput, "invalid_input", 400, 1;
    /// Not offered for this kind of object, or not on this system.
    Unsupported, "unsupported", 501, 1;
    /// The target can't be changed.
    ReadOnly, "read_only", 403, 1;
    /// The disk or a quota is full.
    NoSpace, "no_space", 507, 1;
    /// In use now; try again.
    Busy, "busy", 503, 6;
    /// A needed part (daemon, device, container engine) isn't there.
    Unavailable, "unavailable", 503, 6;
    /// Stored bytes are not what they must be.
    Corrupt, "corrupt", 500, 7;
    /// Made by a newer or foreign version.
    Incompatible, "incompatible", 426, 7;
    /// The system refused an operation.
    Io, "io", 500, 1;
    /// A defect of the program.
    Internal, "internal", 500, 70;
}

/// Body of every answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What to branch on.
    pub kind: ErrorKind,
    /// What was tried, on what; lower case, no full stop.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ErrorBody {
    /// An error of `kind`; `message` says what was tried, on what.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorBody {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_document_has_the_table() {
        let document = include_str!("../../../../docs/protocol.md");
        let rows: Vec<&str> = document
            .lines()
            .skip_while(|line| !line.starts_with("| kind |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let table = ErrorKind::ALL.iter().map(|kind| {
            let (name, status) = (kind.name(), kind.http_status());
            format!("| `{name}` | {status} | {} |", kind.exit_code())
        });
        assert_eq!(rows, table.collect::<Vec<_>>());
    }

    #[test]
    fn the_name_of_a_kind_is_its_wire_form() {
        for kind in ErrorKind::ALL {
            let json = serde_json::to_string(kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
            assert!((400..600).contains(&kind.http_status()));
        }
    }
}
