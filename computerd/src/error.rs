//! The daemon's errors are the store's; here they become bodies of answers.

use computerd_api::v1::{ErrorBody, ErrorKind as WireKind};

pub use workspace_store::error::{ErrorKind, Result, StoreError as Error};

/// The kind on the wire.
pub fn wire_kind(kind: ErrorKind) -> WireKind {
    match kind {
        ErrorKind::NotFound => WireKind::NotFound,
        ErrorKind::AlreadyExists => WireKind::AlreadyExists,
        ErrorKind::Conflict => WireKind::Conflict,
        ErrorKind::PermissionDenied => WireKind::PermissionDenied,
        ErrorKind::Unauthenticated => WireKind::Unauthenticated,
        ErrorKind::InvalidInput => WireKind::InvalidInput,
        ErrorKind::Unsupported => WireKind::Unsupported,
        ErrorKind::ReadOnly => WireKind::ReadOnly,
        ErrorKind::NoSpace => WireKind::NoSpace,
        ErrorKind::Busy => WireKind::Busy,
        ErrorKind::Unavailable => WireKind::Unavailable,
        ErrorKind::Corrupt => WireKind::Corrupt,
        ErrorKind::Incompatible => WireKind::Incompatible,
        ErrorKind::Io => WireKind::Io,
        _ => WireKind::Internal,
    }
}

/// The body of an answer that reports `error`.
pub fn body(error: &Error) -> ErrorBody {
    ErrorBody {
        kind: wire_kind(error.kind()),
        message: error.message().to_owned(),
        hint: error.hint().map(str::to_owned),
    }
}

/// The exit code of a process that ends with `error`.
pub fn exit_code(error: &Error) -> i32 {
    i32::from(wire_kind(error.kind()).exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_same_name_on_the_wire() {
        let kinds = [
            ErrorKind::NotFound,
            ErrorKind::AlreadyExists,
            ErrorKind::Conflict,
            ErrorKind::PermissionDenied,
            ErrorKind::Unauthenticated,
            ErrorKind::InvalidInput,
            ErrorKind::Unsupported,
            ErrorKind::ReadOnly,
            ErrorKind::NoSpace,
            ErrorKind::Busy,
            ErrorKind::Unavailable,
            ErrorKind::Corrupt,
            ErrorKind::Incompatible,
            ErrorKind::Io,
            ErrorKind::Internal,
        ];
        for kind in kinds {
            let name = serde_json::to_value(kind).unwrap();
            assert_eq!(name, wire_kind(kind).name(), "{kind:?}");
        }
        assert_eq!(kinds.len(), WireKind::ALL.len());
    }
}
