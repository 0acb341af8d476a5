//! Bringing file trees in from outside: from a directory or a tar archive, as one edit over an
//! empty snapshot whose contents are read only when the store asks for them.

pub(crate) mod assembly;
mod directory;
mod tar;

pub use directory::import_directory;
pub use tar::{TarOptions, import_tar};

use crate::edit::SnapshotEdit;

/// A tree read from outside.
#[derive(Debug)]
pub struct Import {
    /// The whole tree over an empty snapshot.
    pub edit: SnapshotEdit,
    /// Names, the root not counted.
    pub entry_count: u64,
    /// Bytes of all regular files, each counted once.
    pub byte_count: u64,
    /// What could not be taken over, in words.
    pub warnings: Vec<String>,
}
