//! What a mount is, as the keeper remembers it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use computerd_api::v1::PathText;
use fuse_mount::fuse::{DeviceHolder, SessionState};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use workspace_store::object::Timestamp;
use workspace_store::{CommitId, WorkspaceId};

use super::MountParameters;
use crate::keeper::link::KeeperLink;

/// Version of [`MountRecord`].
pub(super) const RECORD_VERSION: u32 = 1;

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// A branch, live.
    Branch(String),
    /// A commit, which never changes.
    Commit(CommitId),
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            View::Branch(branch) => f.write_str(branch),
            View::Commit(commit) => write!(f, "{commit}"),
        }
    }
}

/// A mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountRecord {
    /// [`RECORD_VERSION`].
    pub(super) version: u32,
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Its name when it was mounted.
    pub workspace: String,
    /// What is shown.
    pub view: View,
    /// Where.
    pub mountpoint: PathText,
    /// Principal of the session.
    pub principal: String,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Name of the profile.
    pub profile: String,
    /// Docker volume that it is for.
    pub volume: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Number of the first mount of the session that it shares; `None` if it is that one.
    #[serde(default)]
    pub(super) shares: Option<u64>,
    /// What the session needs to go on.
    pub session: SessionState,
}

impl MountRecord {
    /// Whether a request for a mount at the same place asks for just this.
    pub fn is_same(&self, parameters: &MountParameters) -> bool {
        self.shows_the_same(parameters)
            && self.read_only == parameters.read_only
            && self.volume == parameters.volume
    }

    /// Whether what is asked for can be another place of this mount: it is the same for the kernel.
    pub(super) fn can_be_shared(&self, parameters: &MountParameters, is_read_only: bool) -> bool {
        self.shows_the_same(parameters)
            && self.profile == parameters.profile
            && (!self.session.options.read_only || is_read_only)
            // fusermount3 makes no bind mounts.
            && !self.session.by_helper
    }

    /// The same files, as the same principal, to the same users.
    fn shows_the_same(&self, parameters: &MountParameters) -> bool {
        let options = &self.session.options;
        self.workspace_id == parameters.workspace.id
            && self.view == parameters.view
            && self.principal == parameters.principal
            && options.allow_other == parameters.allow_other
            && options.uid_map == parameters.uid_map
            && options.gid_map == parameters.gid_map
    }
}

/// Hands the device of one mount to the keeper.
pub(super) struct Holder {
    pub(super) link: Arc<KeeperLink>,
    pub(super) id: u64,
    pub(super) record: Mutex<MountRecord>,
}

impl DeviceHolder for Holder {
    fn hold(&self, _id: &str, device: BorrowedFd<'_>, state: &SessionState) -> std::io::Result<()> {
        let mut record = self.record.lock();
        record.session = state.clone();
        let state = serde_json::to_value(&*record)?;
        self.link.hold(self.id, state, device)
    }

    fn release(&self, _id: &str) {
        self.link.release(self.id);
    }
}
