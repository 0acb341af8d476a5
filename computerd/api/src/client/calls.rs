//! One function for each route.

use super::{Client, ContentStream, EventStream, Result};
use crate::v1::{self, route};

impl Client {
    /// Versions of the running daemon.
    pub async fn version(&self) -> Result<v1::VersionInfo> {
        self.get(route::VERSION).await
    }

    /// State of the daemon.
    pub async fn daemon_status(&self) -> Result<v1::DaemonStatus> {
        self.get(route::DAEMON).await
    }

    /// Ends the daemon: it commits, unmounts and closes the store.
    pub async fn stop(&self, request: &v1::StopRequest) -> Result<v1::StopResult> {
        self.post(route::DAEMON_STOP, request).await
    }

    /// All workspaces.
    pub async fn workspaces(&self) -> Result<v1::WorkspaceList> {
        self.get(route::WORKSPACES).await
    }

    /// Makes a workspace.
    pub async fn create_workspace(
        &self,
        request: &v1::CreateWorkspace,
    ) -> Result<EventStream<v1::WorkspaceCreated>> {
        self.stream(route::WORKSPACES, request).await
    }

    /// State of a workspace.
    pub async fn workspace_status(&self, workspace: &str) -> Result<v1::WorkspaceStatus> {
        self.get(&route::workspace(route::WORKSPACE, workspace))
            .await
    }

    /// Commits uncommitted changes.
    pub async fn commit(
        &self,
        workspace: &str,
        request: &v1::CommitBody,
    ) -> Result<v1::CommitResult> {
        self.post(&route::workspace(route::COMMITS, workspace), request)
            .await
    }

    /// A part of the history.
    pub async fn log(&self, workspace: &str, query: &v1::LogQuery) -> Result<v1::LogPage> {
        self.post(&route::workspace(route::LOG, workspace), query)
            .await
    }

    /// One commit with its changes.
    pub async fn show(&self, workspace: &str, query: &v1::ShowQuery) -> Result<v1::ShowResult> {
        self.post(&route::workspace(route::SHOW, workspace), query)
            .await
    }

    /// Who last changed a path.
    pub async fn blame(&self, workspace: &str, query: &v1::BlameQuery) -> Result<v1::BlameResult> {
        self.post(&route::workspace(route::BLAME, workspace), query)
            .await
    }

    /// Runs of a workspace.
    pub async fn runs(&self, workspace: &str, query: &v1::RunQuery) -> Result<v1::RunList> {
        self.post(&route::workspace(route::RUNS, workspace), query)
            .await
    }

    /// Announces that a command begins.
    pub async fn begin_run(&self, workspace: &str, request: &v1::RunBegin) -> Result<v1::RunBegun> {
        self.post(&route::workspace(route::RUN_BEGIN, workspace), request)
            .await
    }

    /// Announces that a command has ended; what it left is committed.
    pub async fn end_run(&self, workspace: &str, request: &v1::RunEnd) -> Result<v1::RunEnded> {
        self.post(&route::workspace(route::RUN_END, workspace), request)
            .await
    }

    /// Difference between two states.
    pub async fn diff(&self, workspace: &str, query: &v1::DiffQuery) -> Result<v1::DiffResult> {
        self.post(&route::workspace(route::DIFF, workspace), query)
            .await
    }

    /// Entries of a directory.
    pub async fn list(&self, workspace: &str, query: &v1::PathQuery) -> Result<v1::Listing> {
        self.post(&route::workspace(route::LIST, workspace), query)
            .await
    }

    /// Bytes of a file.
    pub async fn content(&self, workspace: &str, query: &v1::PathQuery) -> Result<ContentStream> {
        let path = route::workspace(route::CONTENT, workspace);
        let response = self
            .send(hyper::Method::POST, &path, super::to_json(query)?)
            .await?;
        Ok(ContentStream {
            body: response.into_body(),
        })
    }

    /// Writes a state out.
    pub async fn export(
        &self,
        workspace: &str,
        request: &v1::ExportRequest,
    ) -> Result<EventStream<v1::ExportResult>> {
        self.stream(&route::workspace(route::EXPORT, workspace), request)
            .await
    }

    /// Brings content in.
    pub async fn import(
        &self,
        workspace: &str,
        request: &v1::ImportRequest,
    ) -> Result<EventStream<v1::ImportResult>> {
        self.stream(&route::workspace(route::IMPORT, workspace), request)
            .await
    }

    /// Brings paths back.
    pub async fn restore(
        &self,
        workspace: &str,
        request: &v1::RestoreRequest,
    ) -> Result<v1::RevertResult> {
        self.post(&route::workspace(route::RESTORE, workspace), request)
            .await
    }

    /// Sets a branch back.
    pub async fn rollback(
        &self,
        workspace: &str,
        request: &v1::RollbackRequest,
    ) -> Result<v1::RevertResult> {
        self.post(&route::workspace(route::ROLLBACK, workspace), request)
            .await
    }

    /// Brings another history in.
    pub async fn merge(
        &self,
        workspace: &str,
        request: &v1::MergeRequest,
    ) -> Result<v1::RevertResult> {
        self.post(&route::workspace(route::MERGE, workspace), request)
            .await
    }

    /// Conflicts of a state.
    pub async fn conflicts(
        &self,
        workspace: &str,
        query: &v1::ConflictQuery,
    ) -> Result<v1::ConflictList> {
        self.post(&route::workspace(route::CONFLICTS, workspace), query)
            .await
    }

    /// Takes paths out of the conflicts.
    pub async fn resolve(
        &self,
        workspace: &str,
        request: &v1::ResolveRequest,
    ) -> Result<v1::RevertResult> {
        self.post(&route::workspace(route::RESOLVE, workspace), request)
            .await
    }

    /// Removes content from all versions.
    pub async fn purge(
        &self,
        workspace: &str,
        request: &v1::PurgeRequest,
    ) -> Result<v1::PurgeResult> {
        self.post(&route::workspace(route::PURGE, workspace), request)
            .await
    }

    /// Takes an operation back.
    pub async fn undo(
        &self,
        workspace: &str,
        request: &v1::UndoRequest,
    ) -> Result<v1::RevertResult> {
        self.post(&route::workspace(route::UNDO, workspace), request)
            .await
    }

    /// Operations of a workspace.
    pub async fn operations(
        &self,
        workspace: &str,
        query: &v1::OperationQuery,
    ) -> Result<v1::OperationList> {
        self.post(&route::workspace(route::OPERATIONS, workspace), query)
            .await
    }

    /// Makes a workspace that begins at a state of this one.
    pub async fn fork(&self, workspace: &str, request: &v1::ForkRequest) -> Result<v1::ForkResult> {
        self.post(&route::workspace(route::FORK, workspace), request)
            .await
    }

    /// Passes a workspace on.
    pub async fn handoff(
        &self,
        workspace: &str,
        request: &v1::HandoffRequest,
    ) -> Result<v1::HandoffResult> {
        self.post(&route::workspace(route::HANDOFF, workspace), request)
            .await
    }

    /// Branches of a workspace.
    pub async fn branches(&self, workspace: &str) -> Result<v1::BranchList> {
        self.get(&route::workspace(route::BRANCHES, workspace))
            .await
    }

    /// Makes a branch.
    pub async fn create_branch(
        &self,
        workspace: &str,
        request: &v1::CreateReference,
    ) -> Result<v1::ReferenceResult> {
        self.post(&route::workspace(route::BRANCHES, workspace), request)
            .await
    }

    /// Removes a branch.
    pub async fn delete_branch(&self, workspace: &str, name: &str) -> Result<v1::ReferenceResult> {
        self.delete(&route::workspace_name(route::BRANCH, workspace, name))
            .await
    }

    /// Tags of a workspace.
    pub async fn tags(&self, workspace: &str) -> Result<v1::TagList> {
        self.get(&route::workspace(route::TAGS, workspace)).await
    }

    /// Makes a tag.
    pub async fn create_tag(
        &self,
        workspace: &str,
        request: &v1::CreateReference,
    ) -> Result<v1::ReferenceResult> {
        self.post(&route::workspace(route::TAGS, workspace), request)
            .await
    }

    /// Removes a tag.
    pub async fn delete_tag(&self, workspace: &str, name: &str) -> Result<v1::ReferenceResult> {
        self.delete(&route::workspace_name(route::TAG, workspace, name))
            .await
    }

    /// Settings of a workspace, or of the store.
    pub async fn config(&self, workspace: Option<&str>) -> Result<v1::ConfigList> {
        self.get(&config_route(workspace)).await
    }

    /// Changes a setting of a workspace.
    pub async fn set_config(
        &self,
        workspace: &str,
        change: &v1::ConfigChange,
    ) -> Result<v1::ConfigChanged> {
        self.post(&config_route(Some(workspace)), change).await
    }

    /// All principals.
    pub async fn principals(&self) -> Result<v1::PrincipalList> {
        self.get(route::PRINCIPALS).await
    }

    /// Makes a principal known.
    pub async fn add_principal(
        &self,
        request: &v1::CreatePrincipal,
    ) -> Result<v1::PrincipalDetails> {
        self.post(route::PRINCIPALS, request).await
    }

    /// Disables a principal, or lets it in again.
    pub async fn set_principal_state(
        &self,
        request: &v1::PrincipalState,
    ) -> Result<v1::PrincipalDetails> {
        self.post(route::PRINCIPAL_STATE, request).await
    }

    /// Makes a token.
    pub async fn create_token(&self, request: &v1::CreateToken) -> Result<v1::TokenCreated> {
        self.post(route::TOKENS, request).await
    }

    /// Tokens.
    pub async fn tokens(&self, query: &v1::TokenQuery) -> Result<v1::TokenList> {
        self.post(route::TOKENS_LIST, query).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<v1::TokenRevoked> {
        self.delete(&route::named(route::TOKEN, id)).await
    }

    /// All groups.
    pub async fn groups(&self) -> Result<v1::GroupList> {
        self.get(route::GROUPS).await
    }

    /// Changes who is in a group.
    pub async fn change_group(&self, change: &v1::GroupChange) -> Result<v1::GroupList> {
        self.post(route::GROUPS, change).await
    }

    /// Grants of a workspace.
    pub async fn grants(&self, workspace: &str, query: &v1::GrantQuery) -> Result<v1::GrantList> {
        self.post(&route::workspace(route::GRANTS, workspace), query)
            .await
    }

    /// Gives, changes or revokes a grant.
    pub async fn change_grant(
        &self,
        workspace: &str,
        change: &v1::GrantChange,
    ) -> Result<v1::GrantChanged> {
        self.post(&route::workspace(route::GRANT, workspace), change)
            .await
    }

    /// All mounts.
    pub async fn mounts(&self) -> Result<v1::MountList> {
        self.get(route::MOUNTS).await
    }

    /// Mounts a workspace.
    pub async fn mount(&self, request: &v1::MountRequest) -> Result<v1::MountResult> {
        self.post(route::MOUNTS, request).await
    }

    /// Ends a mount.
    pub async fn unmount(&self, request: &v1::UnmountRequest) -> Result<v1::UnmountResult> {
        self.post(route::UNMOUNT, request).await
    }

    /// Audit entries.
    pub async fn audit(&self, query: &v1::AuditQuery) -> Result<v1::AuditList> {
        self.post(route::AUDIT, query).await
    }

    /// The newest entry of the audit log.
    pub async fn audit_head(&self, request: &v1::AuditHeadRequest) -> Result<v1::AuditHead> {
        self.post(route::AUDIT_HEAD, request).await
    }

    /// Checks the whole audit chain.
    pub async fn verify_audit(
        &self,
        request: &v1::AuditVerifyRequest,
    ) -> Result<v1::AuditVerification> {
        self.post(route::AUDIT_VERIFY, request).await
    }

    /// Serves the page until the stream is dropped.
    pub async fn open_ui(&self, request: &v1::UiRequest) -> Result<EventStream<v1::UiOpened>> {
        self.stream(route::UI, request).await
    }

    /// State of the volume driver.
    pub async fn volume_plugin(&self) -> Result<v1::VolumePluginStatus> {
        self.get(route::VOLUME_PLUGIN).await
    }

    /// Serves the volume driver.
    pub async fn start_volume_plugin(
        &self,
        request: &v1::VolumePluginRequest,
    ) -> Result<v1::VolumePluginStatus> {
        self.post(route::VOLUME_PLUGIN, request).await
    }

    /// Ends the volume driver.
    pub async fn stop_volume_plugin(&self) -> Result<v1::VolumePluginStatus> {
        self.delete(route::VOLUME_PLUGIN).await
    }
}

fn config_route(workspace: Option<&str>) -> String {
    match workspace {
        Some(workspace) => route::workspace(route::WORKSPACE_CONFIG, workspace),
        None => route::CONFIG.to_owned(),
    }
}
