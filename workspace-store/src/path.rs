//! Byte paths relative to a tree's root: checked, split, shown and joined.

use std::fmt::Write as _;

use crate::error::{ErrorKind, Result, StoreError};
use crate::object::Name;

/// Longest name of one directory entry, in bytes.
pub const NAME_LIMIT_BYTES: usize = 255;

/// Splits a relative path into its names. The empty path is the root and has no names.
///
/// # Errors
/// `InvalidInput` for absolute paths, empty components, `.`, `..`, NUL and names over 255 bytes.
pub fn split_path(path: &[u8]) -> Result<Vec<Name>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let invalid = |why: &str| {
        StoreError::new(
            ErrorKind::InvalidInput,
            format!("path '{}' {why}", display_path(path)),
        )
        .with_hint("give a path relative to the workspace's root, such as 'src/main.rs'")
    };
    if path[0] == b'/' {
        return Err(invalid("is absolute"));
    }
    let mut names = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" => return Err(invalid("has an empty component")),
            b"." | b".." => return Err(invalid("has a component '.' or '..'")),
            _ if name.contains(&0) => return Err(invalid("contains a NUL byte")),
            _ if name.len() > NAME_LIMIT_BYTES => {
                return Err(invalid("has a name longer than 255 bytes"));
            }
            _ => names.push(name.into()),
        }
    }
    Ok(names)
}

/// The path of `name` in the directory `parent` (empty for the root).
pub fn join_path(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() {
        return name.to_vec();
    }
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// Whether `path` is `prefix` or lies below it, by whole components.
pub fn is_at_or_below(path: &[u8], prefix: &[u8]) -> bool {
    prefix.is_empty()
        || (path.starts_with(prefix) && (path.len() == prefix.len() || path[prefix.len()] == b'/'))
}

/// A path for messages: UTF-8 stays as it is, other bytes and control characters are escaped.
pub fn display_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}
