//! What ends a verb, and the exit code it ends with.

use std::io;

use computerd_api::v1::{ErrorBody, ErrorKind};

/// Exit code of a wrong command line.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a verb that was done and left conflicts.
pub const EXIT_CONFLICTS: u8 = 8;
/// What a shell reports after an interrupt by the user (128 + SIGINT).
pub const EXIT_INTERRUPTED: u8 = 130;

/// How a verb ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It did what it was asked for.
    Success,
    /// `diff --exit-code` found a difference.
    Differs,
    /// It was done, and there are conflicts to be resolved.
    Conflicts,
    /// A command that was run ended with this code.
    Command(u8),
}

impl ExitStatus {
    /// The code for the shell.
    pub fn exit_code(self) -> u8 {
        match self {
            ExitStatus::Success => 0,
            ExitStatus::Differs => 1,
            ExitStatus::Conflicts => EXIT_CONFLICTS,
            ExitStatus::Command(code) => code,
        }
    }
}

/// Why a verb failed.
#[derive(Debug)]
pub enum CommandError {
    /// The daemon, or an operation on this side, failed.
    Failed(ErrorBody),
    /// The command line can't be done as it stands.
    Usage {
        /// What is wrong.
        message: String,
        /// What to do instead.
        hint: String,
    },
    /// The user said no.
    Declined,
    /// Nobody reads the output any more.
    BrokenPipe,
}

/// Result of a verb.
pub type Result<T, E = CommandError> = std::result::Result<T, E>;

impl CommandError {
    /// An error of `kind`; `message` says what was tried, on what.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::Failed(ErrorBody::new(kind, message))
    }

    /// An error of `kind` with what to do next.
    pub fn with_hint(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Failed(ErrorBody::new(kind, message).with_hint(hint))
    }

    /// A wrong command line.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// An error of the operating system met while doing `what`.
    pub fn io(what: impl std::fmt::Display, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        let mut body = ErrorBody::new(kind, format!("{what}: {error}"));
        if kind == ErrorKind::NotFound {
            body = body.with_hint("check the path; its directory must exist");
        }
        Self::Failed(body)
    }

    /// An error while writing the output.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::io("write the output", error)
    }

    /// The code for the shell.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::Failed(body) => body.kind.exit_code(),
            CommandError::Usage { .. } => EXIT_USAGE,
            CommandError::Declined => 1,
            CommandError::BrokenPipe => 0,
        }
    }
}

impl From<ErrorBody> for CommandError {
    fn from(body: ErrorBody) -> Self {
        Self::Failed(body)
    }
}

/// What to do next after an error of this kind that doesn't say it itself.
pub fn general_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => {
            "check the name; `kura list` shows the workspaces, `kura log NAME` the commits, \
             `kura ls NAME` the files"
        }
        ErrorKind::AlreadyExists => "choose another name, or remove what is there",
        ErrorKind::Conflict => {
            "somebody else changed the same thing; look at `kura log NAME` and try again"
        }
        ErrorKind::PermissionDenied => "check who owns it, or run kura as its owner",
        ErrorKind::Unauthenticated => {
            "ask the store's owner for a token: `kura principal token create NAME`"
        }
        ErrorKind::InvalidInput => "`kura help VERB` shows how it is used",
        ErrorKind::Unsupported => "`kura help VERB` shows what there is instead",
        ErrorKind::ReadOnly => "mount a branch, or use `kura mount NAME@REV DIR --branch NEW`",
        ErrorKind::NoSpace => "free some space and try again; nothing was lost",
        ErrorKind::Busy => "try again in a moment",
        ErrorKind::Unavailable => "`kura daemon status` and `kura daemon logs` say more",
        ErrorKind::Corrupt => "stop writing to this store and compare it with a backup",
        ErrorKind::Incompatible => "use the version of kura that made it; see `kura version`",
        ErrorKind::Io => "`kura daemon logs` may say more",
        _ => "please report it, with the end of `kura daemon logs`",
    }
}

/// The kind of error with which a program ended that uses our exit codes.
pub fn kind_of_exit_code(code: i32) -> ErrorKind {
    match code {
        3 => ErrorKind::Conflict,
        4 => ErrorKind::NotFound,
        5 => ErrorKind::PermissionDenied,
        7 => ErrorKind::Incompatible,
        70 => ErrorKind::Internal,
        _ => ErrorKind::Unavailable,
    }
}

/// The meanings of the exit codes, as `kura help exit-codes` prints them.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (
        0,
        "it worked (also when the reader of the output went away)",
    ),
    (
        1,
        "it failed; or `diff --exit-code` found a difference; or you said no",
    ),
    (
        2,
        "the command line is wrong, or needs --yes without a terminal",
    ),
    (3, "conflict: somebody else changed the same thing"),
    (4, "not found: workspace, revision, path, mount, operation"),
    (5, "permission denied, or no good token"),
    (
        6,
        "busy or unavailable: try again; `kura daemon logs` says more",
    ),
    (7, "stored bytes are corrupt, or of an incompatible version"),
    (
        EXIT_CONFLICTS,
        "it was done, and left conflicts to be resolved: `kura conflicts NAME`",
    ),
    (70, "a defect of kura; please report it"),
    (130, "interrupted"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_documented_exit_code() {
        for kind in ErrorKind::ALL {
            let code = CommandError::new(*kind, "x").exit_code();
            assert_ne!(code, 0, "{kind:?}");
            assert_ne!(code, EXIT_USAGE, "{kind:?}");
            assert!(
                EXIT_CODES.iter().any(|(listed, _)| *listed == code),
                "{kind:?} ends with {code}, which is not documented"
            );
        }
    }

    #[test]
    fn the_kind_of_an_exit_code_has_that_exit_code() {
        for code in [3, 4, 5, 6, 7, 70_u8] {
            assert_eq!(kind_of_exit_code(code.into()).exit_code(), code);
        }
    }

    #[test]
    fn every_documented_exit_code_is_used() {
        let mut used: Vec<u8> = ErrorKind::ALL.iter().map(|kind| kind.exit_code()).collect();
        used.extend([0, EXIT_USAGE, EXIT_CONFLICTS, EXIT_INTERRUPTED]);
        for (code, meaning) in EXIT_CODES {
            assert!(used.contains(code), "{code} ({meaning}) is never used");
        }
    }

    #[test]
    fn the_table_of_the_interface_is_kept() {
        for (kind, code) in [
            (ErrorKind::Conflict, 3),
            (ErrorKind::NotFound, 4),
            (ErrorKind::PermissionDenied, 5),
            (ErrorKind::Busy, 6),
            (ErrorKind::Unavailable, 6),
            (ErrorKind::Corrupt, 7),
            (ErrorKind::Incompatible, 7),
            (ErrorKind::Internal, 70),
            (ErrorKind::InvalidInput, 1),
        ] {
            assert_eq!(kind.exit_code(), code, "{kind:?}");
        }
        assert_eq!(CommandError::usage("", "").exit_code(), 2);
        assert_eq!(CommandError::BrokenPipe.exit_code(), 0);
        assert_eq!(ExitStatus::Differs.exit_code(), 1);
    }
}
