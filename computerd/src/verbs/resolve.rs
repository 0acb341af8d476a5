//! Conflicts: list them, and take paths out of the list.

use computerd_api::v1::{ConflictList, ConflictQuery, ResolveRequest, ResolveSide, RevertResult};
use workspace_store::conflict::{Conflict, ConflictChange};
use workspace_store::merge::{Resolution, has_markers_left, resolution_edit};
use workspace_store::object::CommitKind;
use workspace_store::path::{display_path, is_at_or_below};
use workspace_store::policy::Access;
use workspace_store::source::NextVersion;

use super::revert::{Change, clean_paths};
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// The conflicts of a state.
pub fn conflicts(call: &Call, query: ConflictQuery) -> Result<ConflictList> {
    let scope = call.scope(None)?;
    let revision = query.revision.as_deref().unwrap_or("HEAD");
    let commit = scope.resolve(revision)?;
    let conflicts = scope.conflicts(commit)?;
    Ok(ConflictList {
        commit: commit.to_hex(),
        conflicts: conflicts
            .iter()
            .map(|conflict| scope.conflict_info(conflict))
            .collect::<Result<_>>()?,
    })
}

/// Takes paths out of a branch's conflicts, with what is there now or with one of the sides.
pub fn resolve(call: &Call, body: ResolveRequest) -> Result<RevertResult> {
    let daemon = &call.daemon;
    let scope = call.scope(body.principal.as_ref())?;
    scope.require_everywhere(Access::Write, "resolve")?;
    let workspace = &scope.workspace;
    let branch = daemon.branch_name(workspace, body.branch.as_ref())?;
    let paths = clean_paths(&body.paths)?;
    if paths.is_empty() {
        return Err(
            Error::new(ErrorKind::InvalidInput, "no path to resolve was named").with_hint(format!(
                "`kura conflicts {}` lists them; '.' means all",
                workspace.name
            )),
        );
    }
    let resolution = match body.side {
        None => Resolution::Present,
        Some(ResolveSide::Ours) => Resolution::Ours,
        Some(ResolveSide::Theirs) => Resolution::Theirs,
        Some(ResolveSide::Base) => Resolution::Base,
    };
    let shown: Vec<String> = paths
        .iter()
        .map(|path| match &path[..] {
            b"" => "all".to_owned(),
            path => display_path(path),
        })
        .collect();
    let change = Change {
        scope: &scope,
        branch: branch.clone(),
        kind: CommitKind::Manual,
        message: format!("resolve {}", shown.join(", ")),
        target: None,
        is_dry_run: body.dry_run,
    };
    change.run(&|now| {
        let head = daemon.store.branch(workspace.id, &branch)?;
        let mut set = daemon.store.conflicts(head)?;
        let is_meant = |conflict: &Conflict, path: &[u8]| is_at_or_below(&conflict.path, path);
        for path in &paths {
            let has_any = set
                .entries()
                .iter()
                .any(|conflict| is_meant(conflict, path));
            if !has_any {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("there is no conflict at '{}'", display_path(path)),
                )
                .with_hint(format!("`kura conflicts {}` lists them", workspace.name)));
            }
        }
        let mut root = now.clone();
        for conflict in set.entries() {
            if !paths.iter().any(|path| is_meant(conflict, path)) {
                continue;
            }
            if resolution == Resolution::Present
                && has_markers_left(&daemon.store, &root, conflict)?
            {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "'{}' still has the markers of the conflict",
                        display_path(&conflict.path)
                    ),
                )
                .with_hint("edit it, or take one side with --ours, --theirs or --base"));
            }
            let edit = resolution_edit(&daemon.store, &root, conflict, resolution)?;
            root = daemon.store.build_root(&root, edit, &|_| {})?;
        }
        set.retain(|conflict| !paths.iter().any(|path| is_meant(conflict, path)));
        let mut next = NextVersion::from(root);
        next.lineage.conflicts = ConflictChange::Set(set);
        Ok(next)
    })
}
