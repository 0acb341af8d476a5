//! Version 1 of the control API.

pub mod access;
pub mod audit;
pub mod commit;
pub mod config;
pub mod daemon;
pub mod diff;
pub mod error;
pub mod event;
pub mod file;
pub mod mount;
pub mod operation;
pub mod path_text;
pub mod plan;
pub mod reference;
pub mod route;
pub mod ui;
pub mod volume;
pub mod workspace;

pub use access::*;
pub use audit::*;
pub use commit::*;
pub use config::*;
pub use daemon::*;
pub use diff::*;
pub use error::*;
pub use event::*;
pub use file::*;
pub use mount::*;
pub use operation::*;
pub use path_text::PathText;
pub use plan::*;
pub use reference::*;
pub use ui::*;
pub use volume::*;
pub use workspace::*;
