//! Principals: who there is, the tokens by which they prove it, and the groups they are in.
//!
//! They belong to the store, not to a workspace; each change is one transaction with its audit
//! entry. Of a token only the BLAKE3 hash of its 256 random bits is kept. A principal is never
//! removed, only disabled, so that a name means one principal in the whole log.

use serde::{Deserialize, Serialize};

use crate::audit::AuditRecord;
use crate::db::{Connection, audit, principals};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{random_bytes, to_hex};
use crate::object::Timestamp;
use crate::refs::check_ref_name;
use crate::store::{Store, now_ns};

/// Begins the secret of every token, so that people and scanners recognise one.
const SECRET_PREFIX: &str = "kura_";

/// Digits of a secret behind that.
const SECRET_DIGITS: usize = 64;

/// A text in which the secrets of tokens can't be read: command lines are kept for ever.
pub fn mask_secrets(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SECRET_PREFIX) {
        let (before, after) = rest.split_at(at + SECRET_PREFIX.len());
        masked.push_str(before);
        let count = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        rest = match count >= SECRET_DIGITS {
            true => {
                masked.push('…');
                &after[count..]
            }
            false => after,
        };
    }
    masked + rest
}

/// The use of a token is written down at most this often.
const TOKEN_USE_INTERVAL_NS: i64 = 60_000_000_000;

/// What a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A human.
    Person,
    /// A program that acts by itself.
    Agent,
    /// Another system.
    Service,
}

impl PrincipalKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            PrincipalKind::Person => "person",
            PrincipalKind::Agent => "agent",
            PrincipalKind::Service => "service",
        }
    }

    /// The kind that a word stands for.
    pub fn from_text(text: &str) -> Option<Self> {
        [
            PrincipalKind::Person,
            PrincipalKind::Agent,
            PrincipalKind::Service,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == text)
    }
}

/// A principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrincipalInfo {
    /// Name, unique in the store for ever.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
    /// When it was made known.
    pub created: Timestamp,
    /// Since when it may do nothing.
    pub disabled: Option<Timestamp>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Its id, which is no secret.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends by itself.
    pub expires: Option<Timestamp>,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
    /// About when it was used last.
    pub last_used: Option<Timestamp>,
}

/// A token that was just made. The secret is nowhere else.
#[derive(Clone)]
pub struct NewToken {
    /// Its id.
    pub id: String,
    /// What its principal shows.
    pub secret: String,
    /// When it ends by itself.
    pub expires: Option<Timestamp>,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A group of principals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Its name, without the `@` that grants write before it.
    pub name: String,
    /// Who is in it, by name.
    pub members: Vec<String>,
}

impl Store {
    /// All principals by name.
    pub fn principals(&self) -> Result<Vec<PrincipalInfo>> {
        self.inner.database.read(principals::list)
    }

    /// The principal of this name, if it is known.
    pub fn principal(&self, name: &str) -> Result<Option<PrincipalInfo>> {
        let found = self
            .inner
            .database
            .read(|connection| principals::find(connection, name))?;
        Ok(found.map(|(_, info)| info))
    }

    /// Makes a principal known.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name, `AlreadyExists` for a taken one.
    pub fn add_principal(&self, name: &str, kind: PrincipalKind, by: &str) -> Result<()> {
        check_ref_name("principal", name)?;
        let details = serde_json::json!({ "kind": kind });
        self.change_principals(
            "principal.add",
            name,
            by,
            details,
            move |connection, name| principals::insert(connection, name, kind, now_ns()),
        )
    }

    /// Disables a principal: its tokens and mounts may do nothing more. Or lets it in again.
    ///
    /// # Errors
    /// `NotFound` if it isn't known.
    pub fn set_principal_disabled(&self, name: &str, is_disabled: bool, by: &str) -> Result<()> {
        let action = if is_disabled {
            "principal.disable"
        } else {
            "principal.enable"
        };
        self.change_principals(
            action,
            name,
            by,
            serde_json::json!({}),
            move |connection, name| {
                let (number, _) = principals::require(connection, name)?;
                principals::set_disabled(connection, number, is_disabled.then(now_ns))
            },
        )
    }

    /// Makes a token for a principal. Its secret can't be asked for again.
    ///
    /// # Errors
    /// `NotFound` if the principal isn't known, `InvalidInput` if `expires` has passed.
    pub fn create_token(
        &self,
        principal: &str,
        expires: Option<Timestamp>,
        by: &str,
    ) -> Result<NewToken> {
        if expires.is_some_and(|expires| expires <= Timestamp::now()) {
            return Err(StoreError::new(
                ErrorKind::InvalidInput,
                format!("make a token for {principal}: its end has passed already"),
            ));
        }
        let random = random_bytes::<40>()?;
        let token = NewToken {
            id: to_hex(&random[..8]),
            secret: format!("{SECRET_PREFIX}{}", to_hex(&random[8..])),
            expires,
        };
        let hash = secret_hash(&token.secret);
        let id = token.id.clone();
        let expires_ns = expires.map(|at| i64::try_from(at.as_nanoseconds()).unwrap_or(i64::MAX));
        let details = serde_json::json!({ "token": id, "expires_ns": expires_ns });
        self.change_principals(
            "token.create",
            principal,
            by,
            details,
            move |connection, name| {
                let (number, _) = principals::require(connection, name)?;
                principals::insert_token(connection, &id, number, &hash, now_ns(), expires_ns)
            },
        )?;
        Ok(token)
    }

    /// Tokens of a principal, or of all of them.
    pub fn tokens(&self, principal: Option<&str>) -> Result<Vec<TokenInfo>> {
        self.inner
            .database
            .read(|connection| principals::tokens(connection, principal))
    }

    /// Ends a token at once; gives back whose it was.
    ///
    /// # Errors
    /// `NotFound` if there is none with this id.
    pub fn revoke_token(&self, id: &str, by: &str) -> Result<String> {
        let (id, by) = (id.to_owned(), by.to_owned());
        self.inner.database.write(move |connection| {
            let principal = principals::revoke_token(connection, &id, now_ns())?;
            let details = serde_json::json!({ "token": id });
            record(connection, "token.revoke", &principal, &by, details)?;
            Ok(principal)
        })
    }

    /// The principal whose token has this secret.
    ///
    /// # Errors
    /// `Unauthenticated`, with the same words for every reason.
    pub fn authenticate(&self, secret: &str) -> Result<String> {
        let hash = secret_hash(secret);
        let now = now_ns();
        let token = self
            .inner
            .database
            .read(|connection| principals::token_by_hash(connection, &hash))?
            .filter(|token| {
                !token.is_revoked
                    && !token.is_disabled
                    && token.expires_ns.is_none_or(|expires| now < expires)
            });
        let Some(token) = token else {
            return Err(StoreError::new(
                ErrorKind::Unauthenticated,
                "the token is not, or no longer, good for this store",
            )
            .with_hint("ask the store's owner for one: `kura principal token create NAME`"));
        };
        if token
            .last_used_ns
            .is_none_or(|last| now - last >= TOKEN_USE_INTERVAL_NS)
        {
            let id = token.id;
            // Nobody waits for it; a loss does no harm.
            let _queued = self
                .inner
                .database
                .write_later(move |connection| principals::touch_token(connection, &id, now))?;
        }
        Ok(token.principal)
    }

    /// All groups by name.
    pub fn groups(&self) -> Result<Vec<GroupInfo>> {
        self.inner.database.read(principals::groups)
    }

    /// Puts principals into a group; the first ones make it.
    ///
    /// # Errors
    /// `NotFound` for an unknown principal, `InvalidInput` for a bad name.
    pub fn add_group_members(&self, group: &str, members: &[String], by: &str) -> Result<()> {
        check_ref_name("group", group)?;
        self.change_members("group.add", group, members, by, principals::add_members)
    }

    /// Takes principals out of a group. The group stays, as rules may name it.
    ///
    /// # Errors
    /// `NotFound` for an unknown group or principal.
    pub fn remove_group_members(&self, group: &str, members: &[String], by: &str) -> Result<()> {
        let action = "group.remove";
        self.change_members(action, group, members, by, principals::remove_members)
    }

    fn change_members(
        &self,
        action: &'static str,
        group: &str,
        members: &[String],
        by: &str,
        change: fn(&Connection, &str, &[i64]) -> Result<()>,
    ) -> Result<()> {
        let details = serde_json::json!({ "members": members });
        let members = members.to_vec();
        self.change_principals(action, group, by, details, move |connection, group| {
            let numbers = members
                .iter()
                .map(|member| Ok(principals::require(connection, member)?.0))
                .collect::<Result<Vec<i64>>>()?;
            change(connection, group, &numbers)
        })
    }

    fn change_principals(
        &self,
        action: &'static str,
        object: &str,
        by: &str,
        details: serde_json::Value,
        change: impl FnOnce(&Connection, &str) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (object, by) = (object.to_owned(), by.to_owned());
        self.inner.database.write(move |connection| {
            change(connection, &object)?;
            record(connection, action, &object, &by, details)
        })?;
        self.inner.policies.changed();
        Ok(())
    }
}

fn secret_hash(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

fn record(
    connection: &Connection,
    action: &str,
    object: &str,
    by: &str,
    details: serde_json::Value,
) -> Result<()> {
    let record = AuditRecord {
        principal: by.to_owned(),
        source: "api".to_owned(),
        action: action.to_owned(),
        workspace: None,
        object: object.to_owned(),
        outcome: "ok".to_owned(),
        details,
    };
    audit::append(connection, now_ns(), &record)?;
    Ok(())
}
