//! JSON lines of long work.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ErrorBody, PathText};

/// One line of a streamed answer: any number of `progress`, then one `result` or `error`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event<T> {
    /// How far the work is; at most some tens each second.
    Progress(Progress),
    /// The end: it worked.
    Result {
        /// What the work gave.
        result: T,
    },
    /// The end: it failed, and nothing half done is left.
    Error {
        /// Why.
        error: ErrorBody,
    },
}

/// How far long work is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// What is being done, for people ("importing", "writing").
    pub phase: String,
    /// Files, directories and other entries done.
    pub entries_done: u64,
    /// How many there are, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries_total: Option<u64>,
    /// Bytes of content done.
    pub bytes_done: u64,
    /// How many there are, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// What is being worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathText>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ErrorKind;

    #[test]
    fn lines_carry_their_type() {
        let progress: Event<u32> = Event::Progress(Progress {
            phase: "importing".into(),
            entries_done: 2,
            ..Progress::default()
        });
        assert_eq!(
            serde_json::to_string(&progress).unwrap(),
            r#"{"type":"progress","phase":"importing","entries_done":2,"bytes_done":0}"#
        );
        let line = r#"{"type":"error","error":{"kind":"no_space","message":"m"}}"#;
        match serde_json::from_str::<Event<u32>>(line).unwrap() {
            Event::Error { error } => assert_eq!(error.kind, ErrorKind::NoSpace),
            other => panic!("{other:?}"),
        }
        let line = r#"{"type":"result","result":7}"#;
        assert!(matches!(
            serde_json::from_str::<Event<u32>>(line).unwrap(),
            Event::Result { result: 7 }
        ));
    }
}
