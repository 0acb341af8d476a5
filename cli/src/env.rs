//! The registry of environment variables: every one that kura reads, with what it does.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// One environment variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
}

/// Directory of the store.
pub const KURA_STORE: &str = "KURA_STORE";
/// Socket of the daemon.
pub const KURA_SOCKET: &str = "KURA_SOCKET";
/// Token of a principal.
pub const KURA_TOKEN: &str = "KURA_TOKEN";
/// File with the token of a principal.
pub const KURA_TOKEN_FILE: &str = "KURA_TOKEN_FILE";
/// Program of the daemon.
pub const KURA_COMPUTERD: &str = "KURA_COMPUTERD";
/// Run that `kura run` adds a step to; set for what it runs.
pub const KURA_RUN_ID: &str = "KURA_RUN_ID";
/// Step; set for what `kura run` runs.
pub const KURA_STEP: &str = "KURA_STEP";
/// Base of the default store.
pub const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// The user's home directory.
pub const HOME: &str = "HOME";
/// Where programs are looked for.
pub const PATH: &str = "PATH";
/// No colours.
pub const NO_COLOR: &str = "NO_COLOR";
/// Colours even without a terminal.
pub const CLICOLOR_FORCE: &str = "CLICOLOR_FORCE";
/// Kind of terminal.
pub const TERM: &str = "TERM";
/// The screen of the X window system.
pub const DISPLAY: &str = "DISPLAY";
/// The screen of Wayland.
pub const WAYLAND_DISPLAY: &str = "WAYLAND_DISPLAY";
/// No progress bars.
pub const NO_PROGRESS: &str = "NO_PROGRESS";

/// All variables, as `kura help environment` lists them.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: KURA_STORE,
        description: "directory of the store, unless --store is given",
    },
    Variable {
        name: KURA_SOCKET,
        description: "socket of a running daemon, unless --socket is given; for those who have no store",
    },
    Variable {
        name: KURA_TOKEN,
        description: "token of the principal to act as, at the agents' socket",
    },
    Variable {
        name: KURA_TOKEN_FILE,
        description: "file with the token of the principal to act as; KURA_TOKEN goes first",
    },
    Variable {
        name: KURA_COMPUTERD,
        description: "program to start as the daemon, instead of the `computerd` next to kura or in PATH",
    },
    Variable {
        name: KURA_RUN_ID,
        description: "run that `kura run` adds a step to; what has it in its environment belongs to the run",
    },
    Variable {
        name: KURA_STEP,
        description: "step of the run that what has it in its environment belongs to; set by `kura run`",
    },
    Variable {
        name: XDG_DATA_HOME,
        description: "the default store is `kura` in it; ~/.local/share if unset",
    },
    Variable {
        name: HOME,
        description: "home directory, for the default store",
    },
    Variable {
        name: PATH,
        description: "where `computerd` is looked for if it isn't next to kura",
    },
    Variable {
        name: NO_COLOR,
        description: "no colours if set and not empty",
    },
    Variable {
        name: CLICOLOR_FORCE,
        description: "colours even without a terminal if set and not 0",
    },
    Variable {
        name: TERM,
        description: "no colours and no progress bars if `dumb`",
    },
    Variable {
        name: DISPLAY,
        description: "with it, or WAYLAND_DISPLAY, `kura ui` opens a browser",
    },
    Variable {
        name: WAYLAND_DISPLAY,
        description: "with it, or DISPLAY, `kura ui` opens a browser",
    },
    Variable {
        name: NO_PROGRESS,
        description: "no progress bars if set and not empty",
    },
];

/// The environment of this run, read once.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// [`KURA_STORE`].
    pub store: Option<PathBuf>,
    /// [`KURA_SOCKET`].
    pub socket: Option<PathBuf>,
    /// [`KURA_TOKEN`].
    pub token: Option<OsString>,
    /// [`KURA_TOKEN_FILE`].
    pub token_file: Option<PathBuf>,
    /// [`KURA_COMPUTERD`].
    pub computerd: Option<PathBuf>,
    /// [`KURA_RUN_ID`].
    pub run_id: Option<String>,
    /// [`XDG_DATA_HOME`].
    pub data_home: Option<PathBuf>,
    /// [`HOME`].
    pub home: Option<PathBuf>,
    /// [`PATH`].
    pub path: Option<OsString>,
    /// Whether [`NO_COLOR`] forbids colours.
    pub no_color: bool,
    /// Whether [`CLICOLOR_FORCE`] demands colours.
    pub force_color: bool,
    /// Whether [`TERM`] is `dumb`.
    pub is_dumb_terminal: bool,
    /// Whether [`NO_PROGRESS`] forbids progress bars.
    pub no_progress: bool,
    /// Whether [`DISPLAY`] or [`WAYLAND_DISPLAY`] is set.
    pub has_screen: bool,
}

impl Environment {
    /// Reads the variables.
    pub fn read() -> Self {
        let filled = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            store: filled(KURA_STORE).map(PathBuf::from),
            socket: filled(KURA_SOCKET).map(PathBuf::from),
            token: filled(KURA_TOKEN),
            token_file: filled(KURA_TOKEN_FILE).map(PathBuf::from),
            computerd: filled(KURA_COMPUTERD).map(PathBuf::from),
            run_id: filled(KURA_RUN_ID).and_then(|run| run.into_string().ok()),
            data_home: filled(XDG_DATA_HOME).map(PathBuf::from),
            home: filled(HOME).map(PathBuf::from),
            path: filled(PATH),
            no_color: filled(NO_COLOR).is_some(),
            force_color: filled(CLICOLOR_FORCE).is_some_and(|value| value != "0"),
            is_dumb_terminal: filled(TERM).is_some_and(|value| value == "dumb"),
            no_progress: filled(NO_PROGRESS).is_some(),
            has_screen: filled(DISPLAY).is_some() || filled(WAYLAND_DISPLAY).is_some(),
        }
    }

    /// The store that is used without `--store`; `None` without a home directory.
    pub fn default_store(&self) -> Option<PathBuf> {
        if let Some(store) = &self.store {
            return Some(store.clone());
        }
        // The XDG base directory specification says that relative paths are to be ignored.
        let data_home = self.data_home.clone().filter(|path| path.is_absolute());
        let base = data_home.or_else(|| Some(self.home.as_ref()?.join(".local/share")))?;
        Some(base.join("kura"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_looked_for_in_the_stated_order() {
        let mut environment = Environment::default();
        assert_eq!(environment.default_store(), None);
        environment.home = Some("/home/u".into());
        let expect = |environment: &Environment, path: &str| {
            assert_eq!(environment.default_store(), Some(PathBuf::from(path)));
        };
        expect(&environment, "/home/u/.local/share/kura");
        environment.data_home = Some("relative".into());
        expect(&environment, "/home/u/.local/share/kura");
        environment.data_home = Some("/data".into());
        expect(&environment, "/data/kura");
        environment.store = Some("/srv/kura".into());
        expect(&environment, "/srv/kura");
    }
}
