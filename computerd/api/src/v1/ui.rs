//! The page to look at.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks to serve the page. It is served for as long as the client keeps the connection; the
/// answer is one [`Event`](super::Event) of [`UiOpened`], then nothing until the end.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct UiRequest {
    /// Workspace that the page begins with; the first one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// TCP port on the loopback interface; any free one if absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The page is served.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UiOpened {
    /// Address with the token, which lets in once.
    pub url: String,
    /// Port on the loopback interface.
    pub port: u16,
}

impl std::fmt::Debug for UiOpened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address is a secret.
        f.debug_struct("UiOpened")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
