//! Docker's volume driver.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PathText;

/// Asks to serve Docker's volume plugin protocol.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct VolumePluginRequest {
    /// Socket; `/run/docker/plugins/kura.sock` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathText>,
}

/// State of the volume driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumePluginStatus {
    /// Whether it is served.
    pub is_serving: bool,
    /// Socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathText>,
    /// Volumes in use by containers.
    pub volume_count: u64,
}
