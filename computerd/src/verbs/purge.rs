//! Purge: the content of paths goes out of all versions, for good.

use computerd_api::v1::{PurgeRequest, PurgeResult};
use workspace_store::object::CommitKind;
use workspace_store::path::display_path;

use super::revert::clean_paths;
use crate::daemon::commit_request;
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// Branches that an error names.
const SHOWN_BRANCHES: usize = 5;

/// Removes the content that paths ever had from the store.
pub fn purge(call: &Call, body: PurgeRequest) -> Result<PurgeResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    let workspace = &scope.workspace;
    let paths = clean_paths(&body.paths)?;
    if paths.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "no path to purge was named",
        ));
    }
    let principal = scope.principal.clone();
    if !body.dry_run {
        // What journals have is in the store then, and nowhere else.
        let request = commit_request(&principal, CommitKind::Snapshot, "");
        for info in daemon.store.workspaces()? {
            for branch in daemon.store.branches(info.id)? {
                daemon.mounts.recover(daemon, info.id, &branch.name)?;
            }
        }
        let _still = daemon.mounts.hold_still();
        for (_, _, filesystem) in daemon.mounts.live() {
            filesystem.scrub(request.clone())?;
        }
    }
    let plan = daemon.store.plan_purge(workspace.id, &paths)?;
    if !plan.present.is_empty() {
        let shown: Vec<String> = plan
            .present
            .iter()
            .take(SHOWN_BRANCHES)
            .map(|(workspace, branch)| format!("{branch} of {workspace}"))
            .collect();
        let paths: Vec<String> = paths.iter().map(|path| display_path(path)).collect();
        return Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "purge {}: it is still there in the newest state of {}",
                paths.join(", "),
                shown.join(", ")
            ),
        )
        .with_hint("delete it there, commit, then purge it from the versions before"));
    }
    let result = PurgeResult {
        content_count: plan.contents.len() as u64,
        content_bytes: plan.contents.iter().map(|(_, size)| size).sum(),
        shared_count: plan.shared as u64,
        commit_count: plan.commits.len() as u64,
    };
    if !body.dry_run {
        daemon
            .store
            .purge(workspace.id, &plan, &paths, &principal, "api")?;
    }
    Ok(result)
}
