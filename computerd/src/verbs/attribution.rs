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
use workspace_store::principal::mask_secrets;
use workspace_store::runs::{COMMAND_MAX_BYTES, NewRunStep, RunStep, kept_command};

use crate::access::Scope;
use crate::convert;
use crate::daemon::{clean_path, commit_request};
use crate::error::{Error, ErrorKind, Result};
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
    changes.retain(|change| scope.sees(&change.change.path));
    for change in &mut changes {
        mask(scope, change);
    }
    Ok(changes)
}

/// Of others than the one who asks only the principal is told.
fn mask(scope: &Scope, change: &mut AttributedChange) {
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

fn origin(scope: &Scope, mut origin: PathOrigin) -> Result<ChangeOrigin> {
    let commit = if scope.is_restricted() {
        mask(scope, &mut origin.change);
        scope.commit_info(origin.id, &origin.commit, Vec::new())?
    } else {
        convert::commit(origin.id, &origin.commit, Vec::new(), None)
    };
    Ok(ChangeOrigin {
        commit,
        path: origin.path.as_slice().into(),
        change: convert::variant_name(&origin.change.change.kind),
        actors: actors(&origin.commit, &origin.change)
            .iter()
            .map(|found| actor(found))
            .collect(),
    })
}

/// Who last changed a path, and its lines.
pub fn blame(call: &Call, query: BlameQuery) -> Result<BlameResult> {
    let scope = call.scope(None)?;
    let store = &scope.daemon.store;
    let start = scope.resolve(query.revision.as_deref().unwrap_or("HEAD"))?;
    let path = clean_path(query.path.as_bytes())?;
    scope.note_if_hidden(&path);
    let sees = |path: &[u8]| scope.sees(path);
    let newest = origin(&scope, store.blame_path(start, &path, &sees)?)?;
    let found = if query.lines {
        store.blame_lines(start, &path, &sees)?
    } else {
        Default::default()
    };
    let origins = found.origins.into_iter();
    Ok(BlameResult {
        newest,
        origins: origins
            .map(|found| origin(&scope, found))
            .collect::<Result<_>>()?,
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
    let scope = call.scope(request.principal.as_ref())?;
    scope.require_some_write("run")?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    let run = match request.run {
        Some(run) => run,
        None => make_run_id()?,
    };
    let command = kept_command(request.command);
    // What others left uncommitted is not this command's.
    let branch = daemon.branch_name(workspace, request.branch.as_ref())?;
    daemon.commit_by_policy(workspace, &branch)?;
    let source = call.source();
    let step = daemon.store.begin_run_step(
        workspace.id,
        NewRunStep {
            run: run.clone(),
            step: request.step,
            principal: principal.clone(),
            command: command.clone(),
            source: source.to_text(),
        },
    )?;
    let details = serde_json::json!({"step": step, "command": command});
    daemon.audit(
        principal,
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
    let scope = call.scope(request.principal.as_ref())?;
    scope.require_some_write("run")?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    if scope.is_restricted() {
        let is_own = |step: &RunStep| step.step == request.step && step.principal == *principal;
        let steps = daemon
            .store
            .run_steps(workspace.id, Some(&request.run), 0)?;
        if !steps.iter().any(is_own) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "end step {} of {}: it was never begun",
                    request.step, request.run
                ),
            )
            .with_hint("`kura runs NAME` lists them"));
        }
    }
    daemon
        .store
        .end_run_step(workspace.id, &request.run, request.step, request.exit_code)?;
    let details = serde_json::json!({"step": request.step, "exit_code": request.exit_code});
    daemon.audit(
        principal,
        "api",
        "run.end",
        Some(workspace.id),
        &request.run,
        details,
    );
    let branch = daemon.branch_name(workspace, request.branch.as_ref())?;
    // Not a named commit: a command that changed nothing leaves none.
    let mut message = mask_secrets(&request.message);
    message.truncate(message.floor_char_boundary(COMMAND_MAX_BYTES));
    let mut commit = commit_request(principal, CommitKind::Snapshot, &message);
    commit.run = Some(request.run.clone());
    commit.step = Some(request.step);
    let _access = daemon.write_access(workspace, &branch, principal)?;
    let mut head = daemon.clean_head(workspace.id, &branch, commit)?;
    // One that took in hidden changes only doesn't exist.
    head.is_new &= scope.exists(head.commit)?;
    let mut ended = RunEnded {
        run: request.run,
        step: request.step,
        exit_code: request.exit_code,
        commit: scope.shown(head.commit)?.to_hex(),
        is_new: head.is_new,
        changes: Default::default(),
        operation: None,
    };
    if head.is_new {
        ended.changes = convert::change_counts(&scope.seen(head.commit)?.changes);
        ended.operation = daemon.operation_of(workspace, head.commit)?;
    }
    Ok(ended)
}

/// Steps of runs, newest first; last those that nobody began with `kura run`. To whom anything is
/// hidden, others' steps are told as far as they changed what can be seen, without their commands.
pub fn runs(call: &Call, query: RunQuery) -> Result<RunList> {
    let scope = call.scope(None)?;
    let (store, workspace) = (&scope.daemon.store, scope.workspace.id);
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let run = query.run.as_deref();
    let read_limit = if scope.is_restricted() { 0 } else { limit };
    let known = store.run_steps(workspace, run, read_limit)?;
    let known = known.into_iter().map(|step| RunStepInfo {
        run: step.run,
        step: Some(step.step),
        principal: step.principal,
        command: step.command,
        started: Some(convert::time(step.started)),
        ended: step.ended.map(convert::time),
        exit_code: step.exit_code,
        ..RunStepInfo::default()
    });
    let unknown = store.unknown_run_steps(workspace, run)?;
    let unknown = unknown
        .into_iter()
        .map(|(run, step, principal)| RunStepInfo {
            run,
            step,
            principal,
            ..RunStepInfo::default()
        });
    let mut steps = Vec::new();
    for mut step in known.chain(unknown) {
        if steps.len() >= limit {
            break;
        }
        count_changes(&scope, &mut step)?;
        if scope.is_restricted() && step.principal != scope.principal {
            if step.path_count == 0 {
                continue;
            }
            step.command.clear();
        }
        steps.push(step);
    }
    Ok(RunList { steps })
}

/// Adds what a step changed, as far as it can be seen.
fn count_changes(scope: &Scope, step: &mut RunStepInfo) -> Result<()> {
    let store = &scope.daemon.store;
    let filter = ActorFilter {
        principal: None,
        run: Some(step.run.clone()),
        step: step.step,
    };
    for id in store.commits_with(scope.workspace.id, &filter)? {
        let commit = store.commit(id)?;
        let count = store
            .attributed_changes(id)?
            .iter()
            .filter(|change| scope.sees(&change.change.path) && filter.has_change(&commit, change))
            .count();
        if count > 0 || !scope.is_restricted() {
            step.path_count += count as u64;
            step.commits.push(id.to_hex());
        }
    }
    Ok(())
}
