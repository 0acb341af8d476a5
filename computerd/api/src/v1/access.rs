//! Principals, tokens, groups and grants.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{OperationReference, PathText};

/// What a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A human.
    Person,
    /// A program that acts by itself.
    #[default]
    Agent,
    /// Another system.
    Service,
}

/// Asks to make a principal known.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CreatePrincipal {
    /// Name, never used again for another one.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub kind: PrincipalKind,
}

/// Asks to disable a principal, or to let it in again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct PrincipalState {
    /// Name.
    pub name: String,
    /// Whether it may do nothing from now on.
    pub is_disabled: bool,
}

/// A principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrincipalDetails {
    /// Name.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
    /// When it was made known.
    pub created: String,
    /// Since when it may do nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
    /// Groups that it is in.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// All principals.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct PrincipalList {
    /// By name.
    pub principals: Vec<PrincipalDetails>,
}

/// Asks for a token.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CreateToken {
    /// Whose.
    pub principal: String,
    /// When it ends by itself, RFC 3339; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// A new token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// Its id, which is no secret.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// What is to be shown; it can't be asked for again.
    pub secret: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl std::fmt::Debug for TokenCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCreated")
            .field("id", &self.id)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Asks for tokens.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct TokenQuery {
    /// Only those of this principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenDetails {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// When it was made.
    pub created: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// About when it was used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<String>,
    /// Whether it is good now.
    pub is_good: bool,
}

/// Tokens.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// By principal and time.
    pub tokens: Vec<TokenDetails>,
}

/// A token that was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenRevoked {
    /// Its id.
    pub id: String,
    /// Whose it was.
    pub principal: String,
}

/// Asks to change who is in a group.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct GroupChange {
    /// The group; made when the first principal is put into it.
    pub name: String,
    /// Put into it.
    #[serde(default)]
    pub add: Vec<String>,
    /// Taken out of it.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupDetails {
    /// Name, without `@`.
    pub name: String,
    /// Who is in it.
    pub members: Vec<String>,
}

/// All groups.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct GroupList {
    /// By name.
    pub groups: Vec<GroupDetails>,
}

/// What may be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessLevel {
    /// It does not exist.
    Hidden,
    /// It can be listed and read.
    Read,
    /// It can be changed.
    Write,
}

impl AccessLevel {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            AccessLevel::Hidden => "hidden",
            AccessLevel::Read => "read",
            AccessLevel::Write => "write",
        }
    }
}

/// Asks to give, change or revoke a grant.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GrantChange {
    /// A principal, or `@` and a group.
    pub subject: String,
    /// Which paths.
    pub pattern: String,
    /// What may be done; revoked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessLevel>,
    /// Until when, RFC 3339; until it is revoked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantDetails {
    /// A principal, or `@` and a group.
    pub subject: String,
    /// Which paths.
    pub pattern: String,
    /// What may be done.
    pub access: AccessLevel,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether that time has passed.
    #[serde(default)]
    pub is_over: bool,
}

/// A changed grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantChanged {
    /// The grant as it is now; absent if it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantDetails>,
    /// The operation.
    pub operation: OperationReference,
}

/// Asks for grants.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct GrantQuery {
    /// Only those that concern this principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Also what decides about this path, for that principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathText>,
}

/// Grants.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct GrantList {
    /// By subject and pattern.
    pub grants: Vec<GrantDetails>,
    /// About the path that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<GrantDecision>,
}

/// What decides about a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantDecision {
    /// The path.
    pub path: PathText,
    /// What may be done with it.
    pub access: AccessLevel,
    /// Whether it can be walked through to something visible below, though it is hidden.
    pub is_passage: bool,
    /// The grants that decide; empty if none speaks of the path.
    pub decided_by: Vec<GrantDetails>,
}
