//! Principals, their tokens and groups. For the administrator alone.

use computerd_api::v1::{
    CreatePrincipal, CreateToken, GroupChange, GroupDetails, GroupList, PrincipalDetails,
    PrincipalKind, PrincipalList, PrincipalState, TokenCreated, TokenDetails, TokenList,
    TokenQuery, TokenRevoked,
};
use workspace_store::object::Timestamp;
use workspace_store::principal::{GroupInfo, PrincipalInfo, PrincipalKind as StoredKind};

use crate::access::is_administrator;
use crate::convert;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

fn details(info: &PrincipalInfo, groups: &[GroupInfo]) -> PrincipalDetails {
    PrincipalDetails {
        name: info.name.clone(),
        kind: match info.kind {
            StoredKind::Person => PrincipalKind::Person,
            StoredKind::Agent => PrincipalKind::Agent,
            StoredKind::Service => PrincipalKind::Service,
        },
        created: convert::time(info.created),
        disabled: info.disabled.map(convert::time),
        groups: groups
            .iter()
            .filter(|group| group.members.contains(&info.name))
            .map(|group| group.name.clone())
            .collect(),
    }
}

/// All principals.
pub fn list(call: &Call) -> Result<PrincipalList> {
    let store = &call.daemon.store;
    let groups = store.groups()?;
    let principals = store.principals()?;
    Ok(PrincipalList {
        principals: principals
            .iter()
            .map(|info| details(info, &groups))
            .collect(),
    })
}

fn one(daemon: &Daemon, name: &str) -> Result<PrincipalDetails> {
    let found = daemon.store.principal(name)?;
    let info = found.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("there is no principal '{name}'"),
        )
        .with_hint("`kura principal list` shows them")
    })?;
    Ok(details(&info, &daemon.store.groups()?))
}

/// Makes a principal known.
pub fn add(call: &Call, body: CreatePrincipal) -> Result<PrincipalDetails> {
    if is_administrator(&body.name) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("'{}' is the administrator's own name", body.name),
        )
        .with_hint("the store's owner and root may do everything; choose another name"));
    }
    let kind = match body.kind {
        PrincipalKind::Person => StoredKind::Person,
        PrincipalKind::Agent => StoredKind::Agent,
        PrincipalKind::Service => StoredKind::Service,
    };
    let daemon = &call.daemon;
    daemon
        .store
        .add_principal(&body.name, kind, call.caller.name())?;
    daemon.policies_changed();
    one(daemon, &body.name)
}

/// Disables a principal, or lets it in again.
pub fn set_state(call: &Call, body: PrincipalState) -> Result<PrincipalDetails> {
    let daemon = &call.daemon;
    daemon
        .store
        .set_principal_disabled(&body.name, body.is_disabled, call.caller.name())?;
    daemon.policies_changed();
    one(daemon, &body.name)
}

/// Tokens, without their secrets.
pub fn tokens(call: &Call, query: TokenQuery) -> Result<TokenList> {
    let store = &call.daemon.store;
    if let Some(name) = &query.principal {
        one(&call.daemon, name)?;
    }
    let now = Timestamp::now();
    let disabled: Vec<String> = store
        .principals()?
        .into_iter()
        .filter(|info| info.disabled.is_some())
        .map(|info| info.name)
        .collect();
    let tokens = store.tokens(query.principal.as_deref())?;
    Ok(TokenList {
        tokens: tokens
            .into_iter()
            .map(|token| TokenDetails {
                is_good: token.revoked.is_none()
                    && token.expires.is_none_or(|expires| now < expires)
                    && !disabled.contains(&token.principal),
                id: token.id,
                principal: token.principal,
                created: convert::time(token.created),
                expires: token.expires.map(convert::time),
                revoked: token.revoked.map(convert::time),
                last_used: token.last_used.map(convert::time),
            })
            .collect(),
    })
}

/// Makes a token.
pub fn create_token(call: &Call, body: CreateToken) -> Result<TokenCreated> {
    let expires = body
        .expires
        .as_deref()
        .map(convert::parse_time)
        .transpose()?;
    let token = call
        .daemon
        .store
        .create_token(&body.principal, expires, call.caller.name())?;
    Ok(TokenCreated {
        id: token.id,
        principal: body.principal,
        secret: token.secret,
        expires: token.expires.map(convert::time),
    })
}

/// Revokes a token.
pub fn revoke_token(call: &Call) -> Result<TokenRevoked> {
    let principal = call
        .daemon
        .store
        .revoke_token(&call.name, call.caller.name())?;
    Ok(TokenRevoked {
        id: call.name.clone(),
        principal,
    })
}

/// All groups.
pub fn groups(call: &Call) -> Result<GroupList> {
    let groups = call.daemon.store.groups()?;
    Ok(GroupList {
        groups: groups
            .into_iter()
            .map(|group| GroupDetails {
                name: group.name,
                members: group.members,
            })
            .collect(),
    })
}

/// Changes who is in a group.
pub fn change_group(call: &Call, body: GroupChange) -> Result<GroupList> {
    let daemon = &call.daemon;
    let by = call.caller.name();
    if body.add.is_empty() && body.remove.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("change group {}: no principal was named", body.name),
        )
        .with_hint("name principals to put into it or to take out of it"));
    }
    if !body.add.is_empty() {
        daemon.store.add_group_members(&body.name, &body.add, by)?;
    }
    if !body.remove.is_empty() {
        daemon
            .store
            .remove_group_members(&body.name, &body.remove, by)?;
    }
    daemon.policies_changed();
    groups(call)
}
