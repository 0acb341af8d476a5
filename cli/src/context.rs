//! What every verb has at hand: the store, the connection to its daemon, the printer, the clock.

use std::path::{Path, PathBuf};

use computerd_api::v1::{ErrorKind, PathText};
use computerd_api::{AGENTS_SOCKET_NAME, Client, SOCKET_NAME};
use jiff::Timestamp;

use crate::args::GlobalArgs;
use crate::env::Environment;
use crate::error::{CommandError, Result};
use crate::launcher;
use crate::output::diff::DiffStyle;
use crate::output::printer::Printer;

/// Name of the database in a store's directory; its presence means that there is a store.
const DATABASE_NAME: &str = "kura.db";

/// Whether a verb may begin a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreUse {
    /// The store must be there.
    Existing,
    /// The store is made if it isn't there.
    CreateIfAbsent,
}

/// What every verb has at hand.
#[derive(Debug)]
pub struct Context<'a> {
    /// The way to the terminal.
    pub printer: &'a Printer,
    /// The environment of this run.
    pub environment: Environment,
    store: Option<PathBuf>,
    socket: Option<PathBuf>,
}

impl<'a> Context<'a> {
    /// A context for one run.
    pub fn new(arguments: &GlobalArgs, environment: Environment, printer: &'a Printer) -> Self {
        let store = arguments
            .store
            .clone()
            .or_else(|| environment.default_store());
        Self {
            printer,
            socket: arguments
                .socket
                .clone()
                .or_else(|| environment.socket.clone()),
            environment,
            store,
        }
    }

    /// Absolute directory of the store.
    ///
    /// # Errors
    /// If no directory is given and there is no home directory.
    pub fn store(&self) -> Result<PathBuf> {
        let store = self.store.as_ref().ok_or_else(|| {
            CommandError::usage(
                "no store is given and there is no home directory",
                "use --store DIR or set KURA_STORE",
            )
        })?;
        absolute(store)
    }

    /// A client of the daemon, whether it runs or not. With a token it speaks to the agents'
    /// socket.
    ///
    /// # Errors
    /// If no store is given, or the token can't be read.
    pub fn client_without_start(&self) -> Result<Client> {
        let token = self.token()?;
        let socket = match (&self.socket, &token) {
            (Some(socket), _) => absolute(socket)?,
            (None, Some(_)) => self.store()?.join(AGENTS_SOCKET_NAME),
            (None, None) => self.store()?.join(SOCKET_NAME),
        };
        let client = Client::new(socket);
        Ok(match token {
            Some(token) => client.with_token(token),
            None => client,
        })
    }

    /// The token of the principal to act as. Never from the command line, which others can see.
    fn token(&self) -> Result<Option<String>> {
        let text = if let Some(token) = &self.environment.token {
            token.to_string_lossy().into_owned()
        } else if let Some(path) = &self.environment.token_file {
            std::fs::read_to_string(path).map_err(|error| {
                CommandError::io(format!("read the token in {}", path.display()), &error)
            })?
        } else {
            return Ok(None);
        };
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CommandError::with_hint(
                ErrorKind::InvalidInput,
                "the token is empty or has characters that no token has",
                "KURA_TOKEN holds a token, KURA_TOKEN_FILE names a file with one",
            ));
        }
        Ok(Some(token.to_owned()))
    }

    /// A client of the running daemon; starts it if needed. The store must exist.
    ///
    /// # Errors
    /// If there is no store, or the daemon doesn't start.
    pub async fn client(&self) -> Result<Client> {
        self.client_for(StoreUse::Existing).await
    }

    /// A client of the running daemon; starts it if needed.
    ///
    /// # Errors
    /// If there is no store and none may be made, or the daemon doesn't start.
    pub async fn client_for(&self, store_use: StoreUse) -> Result<Client> {
        let client = self.client_without_start()?;
        if client.is_running().await? {
            return Ok(client);
        }
        if self.socket.is_some() || self.token()?.is_some() {
            // Who comes by another way than the store can't start its daemon.
            return Err(CommandError::with_hint(
                ErrorKind::Unavailable,
                format!("no daemon answers at {}", client.socket().display()),
                "its owner starts it with `kura daemon start`; --socket PATH or KURA_SOCKET name \
                 another socket",
            ));
        }
        let store = self.store()?;
        if store_use == StoreUse::Existing && !store.join(DATABASE_NAME).exists() {
            return Err(CommandError::with_hint(
                ErrorKind::NotFound,
                format!("there is no store in {}", store.display()),
                "`kura init NAME` makes it with its first workspace; \
                 --store DIR or KURA_STORE choose another one",
            ));
        }
        launcher::start(&store, &client, &self.environment).await?;
        Ok(client)
    }

    /// How differences look on stdout.
    pub fn diff_style(&self) -> DiffStyle {
        DiffStyle {
            palette: self.printer.palette,
            is_terminal: std::io::IsTerminal::is_terminal(&std::io::stdout()),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// `path` from the root, as the daemon needs it; not resolved, because it may not exist.
///
/// # Errors
/// If the current directory is gone.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| CommandError::io(format!("find {}", path.display()), &error))
}

/// An absolute path for the wire.
///
/// # Errors
/// If the current directory is gone.
pub fn absolute_text(path: &Path) -> Result<PathText> {
    Ok(PathText::from(absolute(path)?.as_path()))
}

/// The one name of a mount point: links and `..` resolved, without looking at what is mounted
/// there, because a dead mount can't be looked at.
///
/// # Errors
/// If its directory does not exist.
pub fn mount_point(path: &Path) -> Result<PathBuf> {
    let failed = |error| CommandError::io(format!("find {}", path.display()), &error);
    let absolute = absolute(path)?;
    let is_link = std::fs::symlink_metadata(&absolute).is_ok_and(|found| found.is_symlink());
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if !is_link => {
            Ok(std::fs::canonicalize(parent).map_err(failed)?.join(name))
        }
        _ => std::fs::canonicalize(&absolute).map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_has_one_name() {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a/b", base.join("link")).unwrap();
        for (path, expected) in [
            ("a/b", "a/b"),
            ("a/b/", "a/b"),
            ("a/b/../new", "a/new"),
            ("a/b/..", "a"),
            ("link", "a/b"),
            ("link/new", "a/b/new"),
        ] {
            assert_eq!(mount_point(&base.join(path)).unwrap(), base.join(expected));
        }
        assert!(mount_point(&base.join("absent/new")).is_err());
    }
}
