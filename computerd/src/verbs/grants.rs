//! Grants: who may do what with which paths of a workspace.

use computerd_api::v1::{
    AccessLevel, GrantChange, GrantChanged, GrantDecision, GrantDetails, GrantList, GrantQuery,
};
use workspace_store::grant::{GROUP_PREFIX, Grant, GrantState};
use workspace_store::object::Timestamp;
use workspace_store::policy::Access;

use crate::access::Caller;
use crate::convert;
use crate::daemon::clean_path;
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

fn level(access: Access) -> AccessLevel {
    match access {
        Access::Hidden => AccessLevel::Hidden,
        Access::Read => AccessLevel::Read,
        Access::Write => AccessLevel::Write,
    }
}

fn details(grant: &Grant) -> GrantDetails {
    let now = Timestamp::now();
    GrantDetails {
        subject: grant.subject.clone(),
        pattern: grant.pattern.clone(),
        access: level(grant.state.access),
        until: grant.state.until.map(convert::time),
        is_over: grant.state.until.is_some_and(|until| until <= now),
    }
}

/// Lists grants. A principal sees those that concern itself, so that it can know what it may do;
/// of what is hidden it sees nothing there either.
pub fn list(call: &Call, query: GrantQuery) -> Result<GrantList> {
    let scope = call.scope(None)?;
    let store = &call.daemon.store;
    let principal = match (&call.caller, query.principal) {
        (Caller::Principal(own), Some(other)) if other != *own => {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                format!("list the grants of {other} as {own}"),
            )
            .with_hint("leave --of away to see your own"));
        }
        (Caller::Principal(own), _) => Some(own.clone()),
        (Caller::Administrator(_), named) => named,
    };
    if let Some(name) = &principal
        && store.principal(name)?.is_none()
    {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no principal '{name}'"),
        )
        .with_hint("`kura principal list` shows them"));
    }
    let mut grants = store.grants(scope.workspace.id, principal.as_deref())?;
    let is_shown = |grant: &Grant| !scope.is_restricted() || grant.state.access > Access::Hidden;
    let decision = match query.path {
        None => None,
        Some(path) => {
            let principal = principal.as_deref().ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    "a path is decided about for somebody: no principal was named",
                )
                .with_hint("name one with --of PRINCIPAL")
            })?;
            let bytes = clean_path(path.as_bytes())?;
            let policy = store.policy_of(scope.workspace.id, principal)?;
            let place = policy.place(&bytes);
            let now = Timestamp::now();
            // The policy's rules are the grants that hold, in the same order.
            let held: Vec<&Grant> = grants
                .iter()
                .filter(|grant| grant.state.until.is_none_or(|until| until > now))
                .collect();
            let decided_by = policy
                .deciding_rules(&bytes)
                .into_iter()
                .filter_map(|rule| held.get(rule))
                .filter(|grant| is_shown(grant))
                .map(|grant| details(grant))
                .collect();
            Some(GrantDecision {
                path,
                access: level(place.access()),
                is_passage: place.is_passage(),
                decided_by,
            })
        }
    };
    grants.retain(is_shown);
    Ok(GrantList {
        grants: grants.iter().map(details).collect(),
        decision,
    })
}

/// Gives, changes or revokes a grant; mounts follow at once.
pub fn change(call: &Call, body: GrantChange) -> Result<GrantChanged> {
    let daemon = &call.daemon;
    let workspace = daemon.store.workspace(&call.workspace)?;
    let until = body.until.as_deref().map(convert::parse_time).transpose()?;
    if until.is_some() && body.access.is_none() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "a grant is revoked at once, not at a time",
        )
        .with_hint("give it an end with `kura grant … --until TIME`"));
    }
    let state = body.access.map(|access| GrantState {
        access: match access {
            AccessLevel::Hidden => Access::Hidden,
            AccessLevel::Read => Access::Read,
            AccessLevel::Write => Access::Write,
        },
        until,
    });
    if body.subject.trim_start_matches(GROUP_PREFIX).is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "nobody was named")
            .with_hint("name a principal, or a group as @GROUP"));
    }
    let operation = daemon.store.set_grant(
        workspace.id,
        &body.subject,
        &body.pattern,
        state,
        call.caller.name(),
    )?;
    daemon.policies_changed();
    Ok(GrantChanged {
        grant: state.map(|state| {
            details(&Grant {
                subject: body.subject,
                pattern: body.pattern,
                state,
            })
        }),
        operation: daemon.operation_reference(&workspace.name, operation),
    })
}
