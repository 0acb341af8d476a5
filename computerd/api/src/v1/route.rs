//! The routes: method, path, request and answer.
//!
//! Workspace names are one path segment, percent-encoded by [`workspace`]. Queries that carry
//! paths are POST with a JSON body, because paths are bytes.
//!
//! | constant | method and path | body | answer |
//! |---|---|---|---|
//! | [`VERSION`] | GET /v1/version | – | `VersionInfo` |
//! | [`OPENAPI`] | GET /v1/openapi.json | – | the OpenAPI document |
//! | [`DAEMON`] | GET /v1/daemon | – | `DaemonStatus` |
//! | [`DAEMON_STOP`] | POST /v1/daemon/stop | `StopRequest` | `StopResult` |
//! | [`WORKSPACES`] | GET /v1/workspaces | – | `WorkspaceList` |
//! | [`WORKSPACES`] | POST /v1/workspaces | `CreateWorkspace` | lines of `WorkspaceCreated` |
//! | [`WORKSPACE`] | GET /v1/workspaces/{workspace} | – | `WorkspaceStatus` |
//! | [`COMMITS`] | POST …/commits | `CommitBody` | `CommitResult` |
//! | [`LOG`] | POST …/log | `LogQuery` | `LogPage` |
//! | [`SHOW`] | POST …/show | `ShowQuery` | `ShowResult` |
//! | [`BLAME`] | POST …/blame | `BlameQuery` | `BlameResult` |
//! | [`RUNS`] | POST …/runs | `RunQuery` | `RunList` |
//! | [`RUN_BEGIN`] | POST …/runs/begin | `RunBegin` | `RunBegun` |
//! | [`RUN_END`] | POST …/runs/end | `RunEnd` | `RunEnded` |
//! | [`DIFF`] | POST …/diff | `DiffQuery` | `DiffResult` |
//! | [`LIST`] | POST …/list | `PathQuery` | `Listing` |
//! | [`CONTENT`] | POST …/content | `PathQuery` | the bytes (`application/octet-stream`) |
//! | [`EXPORT`] | POST …/export | `ExportRequest` | lines of `ExportResult` |
//! | [`IMPORT`] | POST …/import | `ImportRequest` | lines of `ImportResult` |
//! | [`RESTORE`] | POST …/restore | `RestoreRequest` | `RevertResult` |
//! | [`ROLLBACK`] | POST …/rollback | `RollbackRequest` | `RevertResult` |
//! | [`MERGE`] | POST …/merge | `MergeRequest` | `RevertResult` |
//! | [`CONFLICTS`] | POST …/conflicts | `ConflictQuery` | `ConflictList` |
//! | [`RESOLVE`] | POST …/resolve | `ResolveRequest` | `RevertResult` |
//! | [`PURGE`] | POST …/purge | `PurgeRequest` | `PurgeResult` |
//! | [`UNDO`] | POST …/undo | `UndoRequest` | `RevertResult` |
//! | [`OPERATIONS`] | POST …/operations | `OperationQuery` | `OperationList` |
//! | [`FORK`] | POST …/fork | `ForkRequest` | `ForkResult` |
//! | [`HANDOFF`] | POST …/handoff | `HandoffRequest` | `HandoffResult` |
//! | [`BRANCHES`] | GET …/branches | – | `BranchList` |
//! | [`BRANCHES`] | POST …/branches | `CreateReference` | `ReferenceResult` |
//! | [`BRANCH`] | DELETE …/branches/{name} | – | `ReferenceResult` |
//! | [`TAGS`] | GET …/tags | – | `TagList` |
//! | [`TAGS`] | POST …/tags | `CreateReference` | `ReferenceResult` |
//! | [`TAG`] | DELETE …/tags/{name} | – | `ReferenceResult` |
//! | [`WORKSPACE_CONFIG`] | GET …/config | – | `ConfigList` |
//! | [`WORKSPACE_CONFIG`] | POST …/config | `ConfigChange` | `ConfigChanged` |
//! | [`CONFIG`] | GET /v1/config | – | `ConfigList` |
//! | [`CONFIG`] | POST /v1/config | `ConfigChange` | `ConfigChanged` |
//! | [`PRINCIPALS`] | GET /v1/principals | – | `PrincipalList` |
//! | [`PRINCIPALS`] | POST /v1/principals | `CreatePrincipal` | `PrincipalDetails` |
//! | [`PRINCIPAL_STATE`] | POST /v1/principals/state | `PrincipalState` | `PrincipalDetails` |
//! | [`TOKENS`] | POST /v1/tokens | `CreateToken` | `TokenCreated` |
//! | [`TOKENS_LIST`] | POST /v1/tokens/list | `TokenQuery` | `TokenList` |
//! | [`TOKEN`] | DELETE /v1/tokens/{name} | – | `TokenRevoked` |
//! | [`GROUPS`] | GET /v1/groups | – | `GroupList` |
//! | [`GROUPS`] | POST /v1/groups | `GroupChange` | `GroupList` |
//! | [`GRANTS`] | POST …/grants/list | `GrantQuery` | `GrantList` |
//! | [`GRANT`] | POST …/grants | `GrantChange` | `GrantChanged` |
//! | [`MOUNTS`] | GET /v1/mounts | – | `MountList` |
//! | [`MOUNTS`] | POST /v1/mounts | `MountRequest` | `MountResult` |
//! | [`UNMOUNT`] | POST /v1/mounts/remove | `UnmountRequest` | `UnmountResult` |
//! | [`AUDIT`] | POST /v1/audit | `AuditQuery` | `AuditList` |
//! | [`AUDIT_HEAD`] | POST /v1/audit/head | `AuditHeadRequest` | `AuditHead` |
//! | [`AUDIT_VERIFY`] | POST /v1/audit/verify | `AuditVerifyRequest` | `AuditVerification` |
//! | [`UI`] | POST /v1/ui | `UiRequest` | `UiOpened`, for as long as the connection lasts |
//! | [`VOLUME_PLUGIN`] | GET /v1/volume-plugin | – | `VolumePluginStatus` |
//! | [`VOLUME_PLUGIN`] | POST /v1/volume-plugin | `VolumePluginRequest` | `VolumePluginStatus` |
//! | [`VOLUME_PLUGIN`] | DELETE /v1/volume-plugin | – | `VolumePluginStatus` |

/// Versions.
pub const VERSION: &str = "/v1/version";
/// The OpenAPI document.
pub const OPENAPI: &str = "/v1/openapi.json";
/// State of the daemon.
pub const DAEMON: &str = "/v1/daemon";
/// End the daemon.
pub const DAEMON_STOP: &str = "/v1/daemon/stop";
/// List and create workspaces.
pub const WORKSPACES: &str = "/v1/workspaces";
/// State of one workspace.
pub const WORKSPACE: &str = "/v1/workspaces/{workspace}";
/// Make a commit.
pub const COMMITS: &str = "/v1/workspaces/{workspace}/commits";
/// History.
pub const LOG: &str = "/v1/workspaces/{workspace}/log";
/// One commit.
pub const SHOW: &str = "/v1/workspaces/{workspace}/show";
/// Who last changed a path.
pub const BLAME: &str = "/v1/workspaces/{workspace}/blame";
/// Runs.
pub const RUNS: &str = "/v1/workspaces/{workspace}/runs";
/// A command begins.
pub const RUN_BEGIN: &str = "/v1/workspaces/{workspace}/runs/begin";
/// A command has ended.
pub const RUN_END: &str = "/v1/workspaces/{workspace}/runs/end";
/// Difference between two states.
pub const DIFF: &str = "/v1/workspaces/{workspace}/diff";
/// Entries of a directory.
pub const LIST: &str = "/v1/workspaces/{workspace}/list";
/// Bytes of a file.
pub const CONTENT: &str = "/v1/workspaces/{workspace}/content";
/// Write a state out.
pub const EXPORT: &str = "/v1/workspaces/{workspace}/export";
/// Bring content in.
pub const IMPORT: &str = "/v1/workspaces/{workspace}/import";
/// Bring paths back.
pub const RESTORE: &str = "/v1/workspaces/{workspace}/restore";
/// Set a branch back.
pub const ROLLBACK: &str = "/v1/workspaces/{workspace}/rollback";
/// Bring another history in.
pub const MERGE: &str = "/v1/workspaces/{workspace}/merge";
/// What could not be joined.
pub const CONFLICTS: &str = "/v1/workspaces/{workspace}/conflicts";
/// Take paths out of the conflicts.
pub const RESOLVE: &str = "/v1/workspaces/{workspace}/resolve";
/// Remove content from all versions.
pub const PURGE: &str = "/v1/workspaces/{workspace}/purge";
/// Take an operation back.
pub const UNDO: &str = "/v1/workspaces/{workspace}/undo";
/// List operations.
pub const OPERATIONS: &str = "/v1/workspaces/{workspace}/operations";
/// New workspace from a state.
pub const FORK: &str = "/v1/workspaces/{workspace}/fork";
/// Pass a workspace on.
pub const HANDOFF: &str = "/v1/workspaces/{workspace}/handoff";
/// List and create branches.
pub const BRANCHES: &str = "/v1/workspaces/{workspace}/branches";
/// Remove a branch.
pub const BRANCH: &str = "/v1/workspaces/{workspace}/branches/{name}";
/// List and create tags.
pub const TAGS: &str = "/v1/workspaces/{workspace}/tags";
/// Remove a tag.
pub const TAG: &str = "/v1/workspaces/{workspace}/tags/{name}";
/// Settings of a workspace.
pub const WORKSPACE_CONFIG: &str = "/v1/workspaces/{workspace}/config";
/// Settings of the store.
pub const CONFIG: &str = "/v1/config";
/// List and create principals.
pub const PRINCIPALS: &str = "/v1/principals";
/// Disable or enable a principal.
pub const PRINCIPAL_STATE: &str = "/v1/principals/state";
/// Make a token.
pub const TOKENS: &str = "/v1/tokens";
/// List tokens.
pub const TOKENS_LIST: &str = "/v1/tokens/list";
/// Revoke a token.
pub const TOKEN: &str = "/v1/tokens/{name}";
/// List and change groups.
pub const GROUPS: &str = "/v1/groups";
/// List and explain grants.
pub const GRANTS: &str = "/v1/workspaces/{workspace}/grants/list";
/// Give, change or revoke a grant.
pub const GRANT: &str = "/v1/workspaces/{workspace}/grants";
/// List and create mounts.
pub const MOUNTS: &str = "/v1/mounts";
/// End a mount.
pub const UNMOUNT: &str = "/v1/mounts/remove";
/// Audit entries.
pub const AUDIT: &str = "/v1/audit";
/// Newest audit entry.
pub const AUDIT_HEAD: &str = "/v1/audit/head";
/// Check the audit chain.
pub const AUDIT_VERIFY: &str = "/v1/audit/verify";
/// The page to look at.
pub const UI: &str = "/v1/ui";
/// State, start and end of the volume driver.
pub const VOLUME_PLUGIN: &str = "/v1/volume-plugin";

/// `route` with its `{workspace}` filled in.
pub fn workspace(route: &str, workspace: &str) -> String {
    route.replace("{workspace}", &encode_segment(workspace))
}

/// `route` with its `{workspace}` and `{name}` filled in.
pub fn workspace_name(route: &str, workspace: &str, name: &str) -> String {
    route
        .replace("{name}", &encode_segment(name))
        .replace("{workspace}", &encode_segment(workspace))
}

/// `route` with its `{name}` filled in.
pub fn named(route: &str, name: &str) -> String {
    route.replace("{name}", &encode_segment(name))
}

/// Percent-encodes everything but unreserved characters (RFC 3986 §2.3).
fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment() {
        assert_eq!(workspace(LOG, "demo"), "/v1/workspaces/demo/log");
        assert_eq!(
            workspace_name(BRANCH, "a b", "fix/ü{workspace}"),
            "/v1/workspaces/a%20b/branches/fix%2F%C3%BC%7Bworkspace%7D"
        );
    }
}
