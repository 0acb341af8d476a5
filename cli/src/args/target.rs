//! `NAME`, `NAME@REV`, `NAME@REV:PATH` and paths in a workspace.
//!
//! The name ends at the first `@` or `:`. The revision ends at the first `:` outside of braces,
//! so that `demo@@{10:30 yesterday}:file` works. Paths are bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use computerd_api::v1::PathText;

/// A workspace at a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTarget {
    /// Workspace.
    pub name: String,
    /// Revision; the default branch, live, if absent.
    pub revision: Option<String>,
}

/// A path in a state of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTarget {
    /// Workspace.
    pub name: String,
    /// Revision; the default branch, live, if absent.
    pub revision: Option<String>,
    /// Path; the root if empty.
    pub path: PathText,
    /// Whether a path was given.
    pub has_path: bool,
}

/// Parser of `NAME`.
pub fn name_parser() -> ValueParser {
    OsStringValueParser::new()
        .try_map(|text| parse_name(&into_text(text)?))
        .into()
}

/// Parser of `NAME[@REV]`.
pub fn state_parser() -> ValueParser {
    OsStringValueParser::new().try_map(parse_state).into()
}

/// Parser of `NAME[@REV][:PATH]`.
pub fn path_target_parser() -> ValueParser {
    OsStringValueParser::new().try_map(parse_path_target).into()
}

/// Parser of a path in a workspace.
pub fn path_parser() -> ValueParser {
    OsStringValueParser::new()
        .try_map(|text| parse_path(&text.into_vec()))
        .into()
}

fn parse_state(text: OsString) -> Result<StateTarget, String> {
    let target = parse_path_target(text)?;
    if target.has_path {
        return Err("a path can't be given here; write NAME or NAME@REV".to_owned());
    }
    Ok(StateTarget {
        name: target.name,
        revision: target.revision,
    })
}

fn parse_path_target(text: OsString) -> Result<PathTarget, String> {
    let bytes = text.into_vec();
    let name_end = bytes
        .iter()
        .position(|byte| matches!(byte, b'@' | b':'))
        .unwrap_or(bytes.len());
    let (name, rest) = bytes.split_at(name_end);
    let name = parse_name(&into_text(OsString::from_vec(name.to_vec()))?)?;
    let (revision, path) = match rest.split_first() {
        Some((b'@', rest)) => {
            let end = revision_end(rest)?;
            let revision = into_text(OsString::from_vec(rest[..end].to_vec()))?;
            if revision.is_empty() {
                return Err(format!(
                    "the revision after '@' is empty; write {name}@REV or {name} alone"
                ));
            }
            (Some(revision), rest[end..].strip_prefix(b":"))
        }
        Some((_, path)) => (None, Some(path)),
        None => (None, None),
    };
    Ok(PathTarget {
        name,
        revision,
        path: parse_path(path.unwrap_or_default())?,
        has_path: path.is_some(),
    })
}

/// Where the revision ends: at the first colon outside of braces.
fn revision_end(bytes: &[u8]) -> Result<usize, String> {
    let mut depth = 0_u32;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 => return Ok(at),
            _ => {}
        }
    }
    if depth > 0 {
        return Err("'{' without '}' in the revision".to_owned());
    }
    Ok(bytes.len())
}

fn parse_name(text: &str) -> Result<String, String> {
    let fault = if text.is_empty() {
        "is empty"
    } else if let Some(bad) = text
        .chars()
        .find(|c| c.is_control() || c.is_whitespace() || matches!(c, '/' | '@' | ':' | '\\'))
    {
        return Err(format!(
            "the workspace name '{}' contains {bad:?}",
            text.escape_debug()
        ));
    } else if text == "." || text == ".." {
        "is the name of a directory link"
    } else {
        return Ok(text.to_owned());
    };
    Err(format!("the workspace name '{text}' {fault}"))
}

/// A path in a workspace, relative to its root, without `.`, `..` and doubled slashes.
pub fn parse_path(bytes: &[u8]) -> Result<PathText, String> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in bytes.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                if parts.pop().is_none() {
                    return Err(format!(
                        "'{}' leads out of the workspace; paths begin at its root",
                        String::from_utf8_lossy(bytes)
                    ));
                }
            }
            part if part.contains(&0) => return Err("a path can't contain NUL".to_owned()),
            part => parts.push(part),
        }
    }
    Ok(PathText(parts.join(&b'/')))
}

fn into_text(text: OsString) -> Result<String, String> {
    text.into_string()
        .map_err(|text| format!("'{}' is not UTF-8", text.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<PathTarget, String> {
        parse_path_target(text.into())
    }

    fn parts(text: &str) -> (String, Option<String>, String) {
        let target = target(text).unwrap();
        let path = target.path.to_display().into_owned();
        (target.name, target.revision, path)
    }

    #[test]
    fn names_revisions_and_paths_are_told_apart() {
        let text = |text: &str| text.to_owned();
        assert_eq!(parts("demo"), (text("demo"), None, text("")));
        assert_eq!(parts("demo:a/b"), (text("demo"), None, text("a/b")));
        assert_eq!(
            parts("demo@HEAD~2"),
            (text("demo"), Some(text("HEAD~2")), text(""))
        );
        assert_eq!(
            parts("demo@main:/a//./b/../c:d@e"),
            (text("demo"), Some(text("main")), text("a/c:d@e"))
        );
        assert_eq!(
            parts("demo@@{2026-11-30 10:30}:x"),
            (text("demo"), Some(text("@{2026-11-30 10:30}")), text("x"))
        );
        assert_eq!(
            parts("demo@main@{2 hours ago}"),
            (text("demo"), Some(text("main@{2 hours ago}")), text(""))
        );
    }

    #[test]
    fn wrong_targets_say_why() {
        for (text, reason) in [
            ("", "is empty"),
            ("@main", "is empty"),
            ("demo@", "revision after '@' is empty"),
            ("demo@:x", "revision after '@' is empty"),
            ("a/b", "contains '/'"),
            ("a b", "contains ' '"),
            ("..", "directory link"),
            ("demo@@{yesterday", "'{' without '}'"),
            ("demo:../x", "leads out of the workspace"),
            ("demo:a/../../x", "leads out of the workspace"),
        ] {
            let error = target(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = parse_state("demo:x".into()).unwrap_err();
        assert!(error.contains("can't be given here"), "{error}");
    }

    #[test]
    fn paths_may_have_any_bytes() {
        let target = parse_path_target(OsString::from_vec(b"demo:a/\xff\n".to_vec())).unwrap();
        assert_eq!(target.path.as_bytes(), b"a/\xff\n");
    }
}
