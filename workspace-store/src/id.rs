//! Typed identifiers of stored objects: one newtype for each kind, 32 bytes of BLAKE3.
//!
//! Invariant: an id is only ever made from the bytes it names, or parsed from 64 hex digits.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use crate::error::{Result, StoreError};

/// The text given as an id is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an id of 64 hexadecimal digits")]
pub struct ParseIdError(pub String);

/// The text given as a workspace's id is not 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a workspace id of 32 hexadecimal digits")]
pub struct ParseWorkspaceIdError(pub String);

/// Random bytes that nobody can guess.
///
/// # Errors
/// `Io` if the system gives none.
pub fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| StoreError::io("cannot read random bytes from /dev/urandom", error))?;
    Ok(bytes)
}

/// Writes `bytes` as lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Reads hexadecimal digits; `None` if the text has an odd length or another character.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits?;
    (digits.len() % 2 == 0).then(|| {
        digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    })
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// The raw bytes.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// The id as 64 lower-case hexadecimal digits.
            pub fn to_hex(&self) -> String {
                to_hex(&self.0)
            }

            /// The id from exactly 32 bytes; `None` for another length.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), &self.to_hex()[..12])
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                from_hex(text)
                    .and_then(|bytes| Self::from_slice(&bytes))
                    .ok_or_else(|| ParseIdError(text.to_owned()))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.to_hex())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type! {
    /// BLAKE3 of all bytes of a file's content.
    BlobId
}
id_type! {
    /// Hash of an encoded set of conflicts.
    ConflictSetId
}
id_type! {
    /// BLAKE3 of one stored piece of content.
    ChunkId
}
id_type! {
    /// BLAKE3 of the canonical encoding of a directory (or of one node of a split one).
    TreeId
}
id_type! {
    /// BLAKE3 of the canonical encoding of a commit.
    CommitId
}

/// Identity of a workspace: 16 random bytes, kept when it is renamed or replicated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceId(pub [u8; 16]);

impl WorkspaceId {
    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id as 32 lower-case hexadecimal digits.
    pub fn to_hex(&self) -> String {
        to_hex(&self.0)
    }

    /// The id from exactly 16 bytes; `None` for another length.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkspaceId({})", self.to_hex())
    }
}

impl FromStr for WorkspaceId {
    type Err = ParseWorkspaceIdError;

    fn from_str(text: &str) -> Result<Self, ParseWorkspaceIdError> {
        from_hex(text)
            .and_then(|bytes| Self::from_slice(&bytes))
            .ok_or_else(|| ParseWorkspaceIdError(text.to_owned()))
    }
}

impl serde::Serialize for WorkspaceId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_hex())
    }
}

impl<'de> serde::Deserialize<'de> for WorkspaceId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_through_hex_and_reject_other_text() {
        let id = BlobId(*blake3::hash(b"kura").as_bytes());
        assert_eq!(id.to_hex().parse::<BlobId>(), Ok(id));
        assert!("abc".parse::<BlobId>().is_err());
        assert!("g".repeat(64).parse::<BlobId>().is_err());
    }
}
