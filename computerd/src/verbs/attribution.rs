//! Who changed what: blame, the processes of a commit, runs.

use std::collections::HashMap;
use std::sync::Arc;

use computerd_api::v1::{
    ActorInfo, AncestorInfo, BlameLine, BlameQuery, BlameResult, ChangeOrigin, PathChangeInfo,
    PathText, ProcessChanges, ProcessInfo, RunBegin, RunBegun, RunEnd, RunEnded, RunList, RunQuery,
    RunStepInfo,
};
use workspace_store::CommitId;
use workspace_store::actor::Actor;
use workspace_store::blame::PathOrigin;
use workspace_store::commits::{ActorFilter, AttributedChange};
use workspace_store::id::{random_bytes, to_hex};
use workspace_store::object::{Commit, CommitKind, Timestamp};
use workspace_store::path::is_at_or_below;
use workspace_store::policy::Access;
use workspace_store::runs::NewRunStep;
use workspace_store::workspace::WorkspaceInfo;

use crate::access::Scope;
use crate::convert;
use crate::daemon::{Daemon, clean_path, commit_request};
use crate::error::Result;
use crate::server::Call;

/// Steps of a list when the client doesn't say how many.
const DEFAULT_LIMIT: u32 = 50;

/// An actor for the wire.
pub fn actor(actor: &Actor) -> ActorInfo {
    ActorInfo {
        principal: actor.principal.clone(),
        process: actor.process.as_ref().map(|process| ProcessInfo {
            pid: process.pid,
            started: (process.started_ms > 0).then(|| {
                let nanoseconds = i128::from(process.started_ms) * 1_000_000;
                convert::time(Timestamp::from_nanoseconds(nanoseconds))
            }),
            name: process.name.clone(),
            command: process.command.clone(),
            ancestors: process
                .ancestors
                .iter()
                .map(|(pid, name)| AncestorInfo {
                    pid: *pid,
                    name: name.clone(),
                })
                .collect(),
        }),
        container: actor.container.clone(),
        run: actor.run.clone(),
        step: actor.step,
    }
}

/// Those who made a change; of one that came by another way than a mount all that the commit says.
fn actors(commit: &Commit, change: &AttributedChange) -> Vec<Arc<Actor>> {
    if change.actors.is_empty() {
        vec![Arc::new(Actor {
            principal: commit.author.clone(),
            run: commit.run.clone(),
            step: commit.step,
            ..Actor::default()
        })]
    } else {
        change.actors.clone()
    }
}

/// Changes of a commit by who made them; with `paths` only of those and what is below them.
pub fn by_process(
    commit: &Commit,
    changes: Vec<AttributedChange>,
    paths: &[PathText],
) -> Result<Vec<ProcessChanges>> {
    let wanted = paths
        .iter()
        .map(|path| clean_path(path.as_bytes()))
        .collect::<Result<Vec<_>>>()?;
    let is_wanted =
        |path: &[u8]| wanted.is_empty() || wanted.iter().any(|above| is_at_or_below(path, above));
    let mut positions: HashMap<Arc<Actor>, usize> = HashMap::new();
    let mut found: Vec<ProcessChanges> = Vec::new();
    for change in changes
        .iter()
        .filter(|change| is_wanted(&change.change.path))
    {
        for who in actors(commit, change) {
            let position = *positions.entry(Arc::clone(&who)).or_insert_with(|| {
                found.push(ProcessChanges {
                    actor: actor(&who),
                    paths: Vec::new(),
                });
                found.len() - 1
            });
            found[position].paths.push(PathChangeInfo {
                path: change.change.path.as_ref().into(),
                change: convert::variant_name(&change.change.kind),
            });
        }
    }
    Ok(found)
}

/// Changes of a commit that can be seen, with those who made them. A command line may name what is
/// hidden: of others than the one who asks, only the principal is told to whom anything is hidden.
pub fn visible_changes(scope: &Scope, id: CommitId) -> Result<Vec<AttributedChange>> {
    let mut changes = scope.daemon.store.attributed_changes(id)?;
    if !scope.is_restricted() {
        return Ok(changes);
    }
    changes.retain(|change| scope.policy.access(&change.change.path) > Access::Hidden);
    for change in &mut changes {
        let mut seen = Vec::new();
        for actor in std::mem::take(&mut change.actors) {
            let actor = match actor.principal == scope.principal {
                true => actor,
                false => Arc::new(Actor::of_principal(actor.principal.clone())),
            };
            if !seen.contains(&actor) {
                seen.push(actor);
            }
        }
        change.actors = seen;
    }
    Ok(changes)
}

fn origin(origin: &PathOrigin) -> ChangeOrigin {
    ChangeOrigin {
        commit: convert::commit(origin.id, &origin.commit, Vec::new(), None),
        path: origin.path.as_slice().into(),
        change: convert::variant_name(&origin.change.change.kind),
        actors: actors(&origin.commit, &origin.change)
            .iter()
            .map(|found| actor(found))
            .collect(),
    }
}

/// Who last changed a path, and its lines.
pub fn blame(call: &Call, query: BlameQuery) -> Result<BlameResult> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let start = match &query.revision {
        Some(revision) => daemon.store.resolve(workspace.id, revision)?,
        None => daemon
            .store
            .branch(workspace.id, &workspace.default_branch)?,
    };
    let path = clean_path(query.path.as_bytes())?;
    let newest = origin(&daemon.store.blame_path(start, &path)?);
    let found = if query.lines {
        daemon.store.blame_lines(start, &path)?
    } else {
        Default::default()
    };
    Ok(BlameResult {
        newest,
        origins: found.origins.iter().map(origin).collect(),
        lines: found
            .lines
            .into_iter()
            .map(|(line, origin)| BlameLine {
                text: line.strip_suffix(b"\n").unwrap_or(&line).into(),
                origin,
            })
            .collect(),
    })
}

/// A new id: sorted by time, with 48 random bits.
fn make_run_id() -> Result<String> {
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    Ok(format!("{time}-{}", to_hex(&random_bytes::<6>()?)))
}

/// A command begins.
pub fn begin_run(call: &Call, request: RunBegin) -> Result<RunBegun> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let principal = call.acts_as(request.principal.as_ref())?;
    let run = match request.run {
        Some(run) => run,
        None => make_run_id()?,
    };
    // What others left uncommitted is not this command's.
    let branch = daemon.branch_name(&workspace, request.branch.as_ref())?;
    daemon.commit_by_policy(&workspace, &branch)?;
    let source = call.source();
    let step = daemon.store.begin_run_step(
        workspace.id,
        NewRunStep {
            run: run.clone(),
            step: request.step,
            principal: principal.clone(),
            command: request.command.clone(),
            source: source.to_text(),
        },
    )?;
    let details = serde_json::json!({"step": step, "command": request.command});
    daemon.audit(
        &principal,
        "api",
        "run.begin",
        Some(workspace.id),
        &run,
        details,
    );
    Ok(RunBegun { run, step })
}

/// A command has ended: what it left is committed with its run and step.
pub fn end_run(call: &Call, request: RunEnd) -> Result<RunEnded> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let principal = call.acts_as(request.principal.as_ref())?;
    daemon
        .store
        .end_run_step(workspace.id, &request.run, request.step, request.exit_code)?;
    let details = serde_json::json!({"step": request.step, "exit_code": request.exit_code});
    daemon.audit(
        &principal,
        "api",
        "run.end",
        Some(workspace.id),
        &request.run,
        details,
    );
    let branch = daemon.branch_name(&workspace, request.branch.as_ref())?;
    // Not a named commit: a command that changed nothing leaves none.
    let mut commit = commit_request(&principal, CommitKind::Snapshot, &request.message);
    commit.run = Some(request.run.clone());
    commit.step = Some(request.step);
    let _access = daemon.write_access(&workspace, &branch, &principal)?;
    let head = daemon.clean_head(workspace.id, &branch, commit)?;
    let mut ended = RunEnded {
        run: request.run,
        step: request.step,
        exit_code: request.exit_code,
        commit: head.commit.to_hex(),
        is_new: head.is_new,
        changes: Default::default(),
        operation: None,
    };
    if head.is_new {
        ended.changes = convert::change_counts(&daemon.store.changes(head.commit)?);
        ended.operation = daemon.operation_of(&workspace, head.commit)?;
    }
    Ok(ended)
}

/// Steps of runs, newest first; last those that nobody began with `kura run`.
pub fn runs(call: &Call, query: RunQuery) -> Result<RunList> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let run = query.run.as_deref();
    let mut steps = Vec::new();
    for known in daemon.store.run_steps(workspace.id, run, limit)? {
        let mut step = RunStepInfo {
            run: known.run,
            step: Some(known.step),
            principal: known.principal,
            command: known.command,
            started: Some(convert::time(known.started)),
            ended: known.ended.map(convert::time),
            exit_code: known.exit_code,
            commits: Vec::new(),
            path_count: 0,
        };
        count_changes(daemon, &workspace, &mut step)?;
        steps.push(step);
    }
    for (run, number, principal) in daemon.store.unknown_run_steps(workspace.id, run)? {
        if steps.len() >= limit {
            break;
        }
        let mut step = RunStepInfo {
            run,
            step: number,
            principal,
            command: Vec::new(),
            started: None,
            ended: None,
            exit_code: None,
            commits: Vec::new(),
            path_count: 0,
        };
        count_changes(daemon, &workspace, &mut step)?;
        steps.push(step);
    }
    Ok(RunList { steps })
}

fn count_changes(daemon: &Daemon, workspace: &WorkspaceInfo, step: &mut RunStepInfo) -> Result<()> {
    let filter = ActorFilter {
        principal: None,
        run: Some(step.run.clone()),
        step: step.step,
    };
    for id in daemon.store.commits_with(workspace.id, &filter)? {
        let commit = daemon.store.commit(id)?;
        let changes = daemon.store.attributed_changes(id)?;
        let count = changes
            .iter()
            .filter(|change| filter.has_change(&commit, change))
            .count();
        step.path_count += count as u64;
        step.commits.push(id.to_hex());
    }
    Ok(())
}
