//! Branches, tags and settings of a workspace.

use serde::{Deserialize, Serialize};

use crate::id::CommitId;

/// A branch or tag and the commit that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefInfo {
    /// Its name.
    pub name: String,
    /// The commit it names.
    pub commit: CommitId,
}
