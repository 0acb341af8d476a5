//! Settings of the store and of workspaces.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::OperationReference;

/// Settings with their origin.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ConfigList {
    /// The settings, by key.
    pub settings: Vec<ConfigSetting>,
}

/// Where the value of a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfigOrigin {
    /// Built in.
    Default,
    /// Set for the store.
    Store,
    /// Set for the workspace.
    Workspace,
    /// Set by an environment variable of the daemon.
    Environment,
    /// Set by a flag of the daemon.
    Flag,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigSetting {
    /// Key (`commit.quiet-ms`).
    pub key: String,
    /// Value as text.
    pub value: String,
    /// Where the value comes from.
    pub origin: ConfigOrigin,
    /// What it does, one line.
    #[serde(default)]
    pub description: String,
}

/// Asks to change a setting.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ConfigChange {
    /// Key.
    pub key: String,
    /// New value; back to what is underneath if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Principal that does it; the local user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A changed setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigChanged {
    /// The setting as it is now.
    pub setting: ConfigSetting,
    /// The operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationReference>,
}
