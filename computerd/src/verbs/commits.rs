//! Making a commit.

use computerd_api::v1::{CommitBody, CommitResult};
use workspace_store::object::CommitKind;
use workspace_store::runs::check_run;

use crate::convert;
use crate::daemon::commit_request;
use crate::error::Result;
use crate::server::Call;

/// Commits a branch's uncommitted changes.
pub fn commit(call: &Call, body: CommitBody) -> Result<CommitResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.author.as_ref())?;
    scope.require_some_write("commit")?;
    let (workspace, author) = (&scope.workspace, &scope.principal);
    if let Some(run) = &body.run {
        check_run(run, body.step)?;
    }
    let branch = daemon.branch_name(workspace, body.branch.as_ref())?;
    let mut request = commit_request(author, CommitKind::Manual, &body.message);
    request.run = body.run;
    request.step = body.step;
    let _access = daemon.write_access(workspace, &branch, author)?;
    let mut head = daemon.clean_head(workspace.id, &branch, request)?;
    // One that took in hidden changes only doesn't exist.
    head.is_new &= scope.exists(head.commit)?;
    let mut result = CommitResult {
        commit: scope.shown(head.commit)?.to_hex(),
        branch,
        is_new: head.is_new,
        changes: Default::default(),
        operation: None,
    };
    if head.is_new {
        result.changes = convert::change_counts(&scope.seen(head.commit)?.changes);
        if !daemon.is_only_a_name(head.commit)? {
            result.operation = daemon.operation_of(workspace, head.commit)?;
        }
    }
    Ok(result)
}
