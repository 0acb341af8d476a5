//! Grants: the rules of a workspace about who may do what with which paths, and the policies that
//! they make.
//!
//! A change of a grant is an operation of the workspace with its audit entry, and can be undone.
//! Policies are compiled when they are asked for and kept until a grant, group or principal
//! changes or a rule ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::db::operations::NewOperation;
use crate::db::{Connection, grants, principals, refs};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::WorkspaceId;
use crate::object::Timestamp;
use crate::operation::{OperationId, OperationKind, OperationRecord, record};
use crate::policy::{Access, Pattern, Policy, Rule};
use crate::refs::Change;
use crate::store::{Store, now_ns};

/// Stands before the name of a group where a principal could be named, too.
pub const GROUP_PREFIX: char = '@';

/// What a grant gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantState {
    /// What may be done.
    pub access: Access,
    /// Until when; `None`: until it is revoked.
    pub until: Option<Timestamp>,
}

/// One rule of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Name of a principal, or `@` and the name of a group.
    pub subject: String,
    /// Which paths, as it was written.
    pub pattern: String,
    /// What it gives.
    pub state: GrantState,
}

/// Compiled policies, and the number of changes that could make them wrong.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache {
    generation: AtomicU64,
    policies: Mutex<HashMap<(WorkspaceId, String), CachedPolicy>>,
}

#[derive(Debug)]
struct CachedPolicy {
    generation: u64,
    policy: Arc<Policy>,
}

impl PolicyCache {
    /// Something changed on which policies depend, and is in the database now: what is read from
    /// here on is the new state.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Store {
    /// Grants of a workspace, or those that concern one principal: its own and its groups'.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn grants(&self, workspace: WorkspaceId, principal: Option<&str>) -> Result<Vec<Grant>> {
        self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            grants::list(connection, number, principal)
        })
    }

    /// Sets a grant or, with `None`, revokes it.
    ///
    /// # Errors
    /// `InvalidInput` for a bad pattern or an end that has passed; `NotFound` for an unknown
    /// principal or group, and if there is no such grant to revoke.
    pub fn set_grant(
        &self,
        workspace: WorkspaceId,
        subject: &str,
        pattern: &str,
        state: Option<GrantState>,
        author: &str,
    ) -> Result<OperationId> {
        Pattern::parse(pattern.as_bytes())?;
        if let Some(until) = state.and_then(|state| state.until)
            && until <= Timestamp::now()
        {
            return Err(StoreError::new(
                ErrorKind::InvalidInput,
                format!("grant '{pattern}' to {subject}: its end has passed already"),
            )
            .with_hint("to end a grant now, use `kura revoke`"));
        }
        let (subject, pattern) = (subject.to_owned(), pattern.to_owned());
        let author = author.to_owned();
        let operation = self.inner.database.write(move |connection| {
            let number = refs::workspace_number(connection, workspace)?;
            match subject.strip_prefix(GROUP_PREFIX) {
                Some(group) => {
                    principals::require_group(connection, group)?;
                }
                None => {
                    principals::require(connection, &subject)?;
                }
            }
            let before = grants::find(connection, number, &subject, &pattern)?;
            if state.is_none() && before.is_none() {
                return Err(StoreError::new(
                    ErrorKind::NotFound,
                    format!("{subject} has no grant for '{pattern}' to revoke"),
                )
                .with_hint("`kura grants NAME` lists them"));
            }
            let target = format!("{subject} {pattern}");
            let change = Change {
                workspace,
                number,
                author: &author,
                target: &target,
                undoes: None,
            };
            put(connection, &change, &subject, &pattern, before, state)
        })?;
        self.inner.policies.changed();
        Ok(operation)
    }

    /// What a principal may do in a workspace.
    ///
    /// A principal that isn't known has no rules and no limits: only the administrator can act
    /// under such a name. A disabled one may do nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no such workspace.
    pub fn policy_of(&self, workspace: WorkspaceId, principal: &str) -> Result<Arc<Policy>> {
        let cache = &self.inner.policies;
        let now = Timestamp::now();
        // Before the rules are read: a change after it makes the result old at once.
        let generation = cache.generation.load(Ordering::Acquire);
        let key = (workspace, principal.to_owned());
        if let Some(cached) = cache.policies.lock().get(&key)
            && cached.generation == generation
            && cached.policy.next_expiry().is_none_or(|end| now < end)
        {
            return Ok(Arc::clone(&cached.policy));
        }
        let policy = Arc::new(self.inner.database.read(|connection| {
            let number = refs::workspace_number(connection, workspace)?;
            let Some((_, info)) = principals::find(connection, principal)? else {
                return Ok(Policy::unrestricted());
            };
            if info.disabled.is_some() {
                return Ok(Policy::compile(Vec::new(), Access::Hidden, now));
            }
            let rules = grants::list(connection, number, Some(principal))?
                .into_iter()
                .map(|grant| {
                    Ok(Rule {
                        pattern: Pattern::parse(grant.pattern.as_bytes())?,
                        access: grant.state.access,
                        until: grant.state.until,
                        is_own: !grant.subject.starts_with(GROUP_PREFIX),
                    })
                })
                .collect::<Result<Vec<Rule>>>()?;
            Ok(Policy::compile(rules, Access::Hidden, now))
        })?);
        let cached = CachedPolicy {
            generation,
            policy: Arc::clone(&policy),
        };
        cache.policies.lock().insert(key, cached);
        Ok(policy)
    }

    /// A number that grows whenever a grant, group or principal changes. A rule that ends by itself
    /// doesn't count: [`Policy::next_expiry`] says when.
    pub fn policy_generation(&self) -> u64 {
        self.inner.policies.generation.load(Ordering::Acquire)
    }
}

fn put(
    connection: &Connection,
    change: &Change<'_>,
    subject: &str,
    pattern: &str,
    before: Option<GrantState>,
    after: Option<GrantState>,
) -> Result<OperationId> {
    grants::put(connection, change.number, subject, pattern, after.as_ref())?;
    let text = |state: Option<GrantState>| state.map(|state| encode(&state));
    record(
        connection,
        change.workspace,
        "api",
        &NewOperation {
            workspace: change.number,
            time_ns: now_ns(),
            author: change.author,
            kind: OperationKind::SetGrant,
            target: change.target,
            before: text(before),
            after: text(after),
            undoes: change.undoes,
            details: serde_json::json!({ "subject": subject, "pattern": pattern }),
        },
    )
}

/// Brings a grant back to what it was before an operation.
///
/// # Errors
/// `Conflict` if it was changed again since.
pub(crate) fn undo(
    connection: &Connection,
    change: &Change<'_>,
    operation: &OperationRecord,
) -> Result<OperationId> {
    let detail = |key: &str| operation.details.get(key).and_then(|value| value.as_str());
    let (Some(subject), Some(pattern)) = (detail("subject"), detail("pattern")) else {
        return Err(StoreError::new(
            ErrorKind::Corrupt,
            format!(
                "operation {} doesn't say which grant it changed",
                operation.id
            ),
        ));
    };
    let state = |text: &Option<String>| text.as_deref().map(decode).transpose();
    let (before, after) = (state(&operation.before)?, state(&operation.after)?);
    let now = grants::find(connection, change.number, subject, pattern)?;
    if now != after {
        return Err(StoreError::new(
            ErrorKind::Conflict,
            format!("the grant of '{pattern}' to {subject} was changed again since"),
        )
        .with_hint("undo the later change first"));
    }
    put(connection, change, subject, pattern, now, before)
}

/// A state as operations keep it, and people read it.
fn encode(state: &GrantState) -> String {
    match state.until {
        None => state.access.as_str().to_owned(),
        Some(until) => format!("{} until {}", state.access.as_str(), until.as_nanoseconds()),
    }
}

fn decode(text: &str) -> Result<GrantState> {
    let (access, until) = match text.split_once(" until ") {
        Some((access, until)) => (access, Some(until.parse().ok())),
        None => (text, None),
    };
    match (Access::from_text(access), until) {
        (Some(access), None) => Ok(GrantState {
            access,
            until: None,
        }),
        (Some(access), Some(Some(nanoseconds))) => Ok(GrantState {
            access,
            until: Some(Timestamp::from_nanoseconds(nanoseconds)),
        }),
        _ => Err(StoreError::new(
            ErrorKind::Corrupt,
            format!("'{text}' is not what an operation says of a grant"),
        )),
    }
}
