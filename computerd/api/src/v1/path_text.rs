//! Bytes that are nearly always text: paths, names, link targets, lines of a diff.
//!
//! On the wire a JSON string when the bytes are UTF-8, else `{"bytes_hex": "…"}`; both directions
//! are exact, so that no name of a workspace is out of reach.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// Bytes of a path or name: a JSON string if they are UTF-8, else `{"bytes_hex": "…"}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathText(pub Vec<u8>);

/// How [`PathText`] looks on the wire.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
enum Wire<'a> {
    /// Valid UTF-8.
    Text(Cow<'a, str>),
    /// Anything else.
    Bytes {
        /// Two hexadecimal digits for each byte.
        bytes_hex: String,
    },
}

impl PathText {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Text for people: bytes that are not UTF-8 become U+FFFD.
    pub fn to_display(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// The bytes as a path of this system.
    pub fn to_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.0))
    }
}

impl fmt::Debug for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl From<&str> for PathText {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for PathText {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&[u8]> for PathText {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<Vec<u8>> for PathText {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<OsString> for PathText {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

impl From<&OsStr> for PathText {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
        path.as_os_str().into()
    }
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = match std::str::from_utf8(&self.0) {
            Ok(text) => Wire::Text(Cow::Borrowed(text)),
            Err(_) => Wire::Bytes {
                bytes_hex: to_hex(&self.0),
            },
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Wire::deserialize(deserializer)? {
            Wire::Text(text) => Ok(Self(text.into_owned().into_bytes())),
            Wire::Bytes { bytes_hex } => from_hex(&bytes_hex)
                .map(Self)
                .ok_or_else(|| D::Error::custom("bytes_hex must be pairs of hexadecimal digits")),
        }
    }
}

impl utoipa::PartialSchema for PathText {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        Wire::schema()
    }
}

impl ToSchema for PathText {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("PathText")
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| {
            let pair = &text[at..at + 2];
            let digits = pair.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u8::from_str_radix(pair, 16).ok()).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf8_is_a_string_and_other_bytes_are_hex() {
        let text = PathText::from("dir/grün.txt");
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"dir/grün.txt\"");
        let bytes = PathText(vec![b'a', 0xff, b'\n']);
        let json = serde_json::to_string(&bytes).unwrap();
        assert_eq!(json, r#"{"bytes_hex":"61ff0a"}"#);
        for value in [text, bytes] {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<PathText>(&json).unwrap(), value);
        }
    }

    #[test]
    fn broken_hex_is_refused() {
        for json in [
            r#"{"bytes_hex":"6"}"#,
            r#"{"bytes_hex":"+1"}"#,
            r#"{"bytes_hex":"éé"}"#,
            "3",
        ] {
            assert!(serde_json::from_str::<PathText>(json).is_err(), "{json}");
        }
    }
}
