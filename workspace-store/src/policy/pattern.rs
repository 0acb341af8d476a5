//! Patterns of grants: parsed, matched against paths, and compared with each other.
//!
//! A pattern names paths and covers everything below what it names. Names are bytes. [`Pattern`]
//! keeps a normal form, so that two patterns of the same meaning compare equal where that can be
//! seen; [`Pattern::is_within`] is sound: if it says so, every path that the one covers is covered
//! by the other.

use crate::error::{ErrorKind, Result, StoreError};
use crate::path::{NAME_LIMIT_BYTES, display_path};

/// Longest pattern, in bytes.
pub const PATTERN_MAX_BYTES: usize = 4096;

/// Most components of a pattern.
pub const PATTERN_MAX_COMPONENTS: usize = 64;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    pub(super) components: Vec<Component>,
}

/// What a pattern says of one name of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Component {
    /// This name.
    Exact(Vec<u8>),
    /// Names of this form.
    Glob(Vec<Token>),
    /// Any number of names, also none. Never the last one, never twice in a row.
    AnyDepth,
}

/// A part of a name's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Token {
    /// This byte.
    Byte(u8),
    /// Any one byte.
    One,
    /// Any number of bytes.
    Many,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// `*` stands for any bytes of a name, `?` for one, `**` as a whole component for any number
    /// of directories, `\` takes the meaning from the character after it. Without a `/` the
    /// pattern matches at any depth; `/`, `**` and `/**` are the whole workspace.
    ///
    /// # Errors
    /// `InvalidInput` for what can't name a path, and for `[`, `!` at the beginning and `**` beside
    /// other characters, which mean something in other programs and nothing here.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let invalid = |why: &str| {
            StoreError::new(
                ErrorKind::InvalidInput,
                format!("'{}' is not a pattern: {why}", display_path(text)),
            )
            .with_hint("patterns look like 'docs/**', '*.key' or 'src/main.rs'; '/' is everything")
        };
        if text.is_empty() {
            return Err(invalid("it is empty"));
        }
        if text.len() > PATTERN_MAX_BYTES {
            return Err(invalid("it is longer than 4096 bytes"));
        }
        if text.contains(&0) {
            return Err(invalid("it contains a NUL byte"));
        }
        if text[0] == b'!' {
            return Err(invalid("a rule can't be turned around with '!'"));
        }
        let is_anchored = text.contains(&b'/');
        let inner = text.strip_prefix(b"/").unwrap_or(text);
        let mut components = Vec::new();
        if !is_anchored {
            components.push(Component::AnyDepth);
        }
        if inner.starts_with(b"/") {
            return Err(invalid("it has an empty component"));
        }
        let inner = inner.strip_suffix(b"/").unwrap_or(inner);
        if !inner.is_empty() {
            for part in inner.split(|byte| *byte == b'/') {
                match part {
                    b"" => return Err(invalid("it has an empty component")),
                    b"**" if components.last() == Some(&Component::AnyDepth) => {}
                    b"**" => components.push(Component::AnyDepth),
                    _ => components.push(parse_name(part).map_err(invalid)?),
                }
            }
        }
        if components.len() > PATTERN_MAX_COMPONENTS {
            return Err(invalid("it has more than 64 components"));
        }
        if components.last() == Some(&Component::AnyDepth) {
            // `docs/**` is everything in docs; what is below that is covered in any case.
            components.pop();
            if !components.is_empty() {
                components.push(Component::any_name());
            }
        }
        // `**/*` asks for one name at least, as `*` does.
        let tail = any_names_at_end(&components);
        let before = components.len() - tail;
        if tail > 0 && before > 0 && components[before - 1] == Component::AnyDepth {
            components.remove(before - 1);
        }
        Ok(Self { components })
    }

    /// Whether the pattern names the path or a directory above it.
    pub fn covers(&self, path: &[u8]) -> bool {
        // reached[i]: the first i components can stand for the names so far.
        let mut reached = vec![false; self.components.len() + 1];
        reached[0] = true;
        self.skip_depths(&mut reached);
        for name in names_of(path) {
            if reached[self.components.len()] {
                return true;
            }
            let mut next = vec![false; reached.len()];
            for (at, component) in self.components.iter().enumerate() {
                if reached[at] && component == &Component::AnyDepth {
                    next[at] = true;
                } else if reached[at] && component.matches(name) {
                    next[at + 1] = true;
                }
            }
            self.skip_depths(&mut next);
            reached = next;
        }
        reached[self.components.len()]
    }

    fn skip_depths(&self, reached: &mut [bool]) {
        for (at, component) in self.components.iter().enumerate() {
            if reached[at] && component == &Component::AnyDepth {
                reached[at + 1] = true;
            }
        }
    }

    /// Whether every path that this pattern covers is covered by `wider` too.
    pub fn is_within(&self, wider: &Self) -> bool {
        let (narrow, wide) = (&self.components, &wider.components);
        let wide_tail = any_names_at_end(wide);
        // reached[j]: the components of `wide` so far can stand for the first j of `narrow`.
        let mut reached = vec![false; narrow.len() + 1];
        reached[0] = true;
        for component in &wide[..wide.len() - wide_tail] {
            let mut next = vec![false; narrow.len() + 1];
            for at in 0..=narrow.len() {
                if component == &Component::AnyDepth {
                    next[at] = reached[at] || (at > 0 && next[at - 1]);
                } else if at > 0 {
                    next[at] = reached[at - 1] && component.includes(&narrow[at - 1]);
                }
            }
            reached = next;
        }
        // What is left of `wide` asks only for so many more names.
        (0..=narrow.len()).any(|at| {
            let names = narrow[at..]
                .iter()
                .filter(|component| **component != Component::AnyDepth)
                .count();
            reached[at] && names >= wide_tail
        })
    }
}

impl Component {
    fn any_name() -> Self {
        Component::Glob(vec![Token::Many])
    }

    fn is_any_name(&self) -> bool {
        matches!(self, Component::Glob(tokens) if tokens == &[Token::Many])
    }

    /// Whether the component can stand for this one name.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Component::Exact(exact) => exact == name,
            Component::Glob(tokens) => glob_matches(tokens, name),
            Component::AnyDepth => false,
        }
    }

    /// Whether every name that `narrow` stands for is one that this component stands for.
    fn includes(&self, narrow: &Self) -> bool {
        match (self, narrow) {
            (_, Component::AnyDepth) | (Component::AnyDepth, _) => false,
            (wide, Component::Exact(name)) => wide.matches(name),
            (Component::Exact(_), Component::Glob(_)) => false,
            (Component::Glob(wide), Component::Glob(narrow)) => glob_includes(wide, narrow),
        }
    }
}

/// The names of a path; none for the root.
pub(super) fn names_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

fn any_names_at_end(components: &[Component]) -> usize {
    components
        .iter()
        .rev()
        .take_while(|component| component.is_any_name())
        .count()
}

fn parse_name(part: &[u8]) -> Result<Component, &'static str> {
    let mut tokens = Vec::with_capacity(part.len());
    let mut bytes = part.iter().copied();
    while let Some(byte) = bytes.next() {
        tokens.push(match byte {
            b'\\' => Token::Byte(bytes.next().ok_or("it ends with '\\'")?),
            b'[' => return Err("there are no sets of characters; write '\\[' for the character"),
            b'*' if tokens.last() == Some(&Token::Many) => {
                return Err("'**' must be a whole component");
            }
            b'*' => Token::Many,
            b'?' => Token::One,
            byte => Token::Byte(byte),
        });
    }
    normalise(&mut tokens);
    let least = tokens.iter().filter(|token| **token != Token::Many).count();
    if least > NAME_LIMIT_BYTES {
        return Err("it has a name longer than 255 bytes");
    }
    if tokens.iter().any(|token| !matches!(token, Token::Byte(_))) {
        return Ok(Component::Glob(tokens));
    }
    let exact: Vec<u8> = tokens
        .into_iter()
        .filter_map(|token| match token {
            Token::Byte(byte) => Some(byte),
            _ => None,
        })
        .collect();
    match exact.as_slice() {
        b"." | b".." => Err("it has a component '.' or '..'"),
        _ => Ok(Component::Exact(exact)),
    }
}

/// Brings each run of wildcards into one order: `?` first, then one `*`.
fn normalise(tokens: &mut Vec<Token>) {
    let mut normal = Vec::with_capacity(tokens.len());
    let mut has_many = false;
    for token in tokens.drain(..) {
        match token {
            Token::Many => has_many = true,
            Token::One => normal.push(Token::One),
            Token::Byte(_) => {
                if std::mem::take(&mut has_many) {
                    normal.push(Token::Many);
                }
                normal.push(token);
            }
        }
    }
    if has_many {
        normal.push(Token::Many);
    }
    *tokens = normal;
}

fn glob_matches(tokens: &[Token], name: &[u8]) -> bool {
    // The usual walk with one place to come back to: the last `*`.
    let (mut token, mut byte) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while byte < name.len() {
        match tokens.get(token) {
            Some(Token::Byte(wanted)) if *wanted == name[byte] => {
                token += 1;
                byte += 1;
            }
            Some(Token::One) => {
                token += 1;
                byte += 1;
            }
            Some(Token::Many) => {
                retry = Some((token + 1, byte));
                token += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    token = after;
                    byte = from + 1;
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Many)
}

/// Whether `wide`, read over the tokens of `narrow`, can stand for all of them.
fn glob_includes(wide: &[Token], narrow: &[Token]) -> bool {
    let mut reached = vec![false; narrow.len() + 1];
    reached[0] = true;
    for token in wide {
        let mut next = vec![false; narrow.len() + 1];
        for at in 0..=narrow.len() {
            next[at] = match token {
                Token::Many => reached[at] || (at > 0 && next[at - 1]),
                Token::One => at > 0 && reached[at - 1] && narrow[at - 1] != Token::Many,
                Token::Byte(_) => at > 0 && reached[at - 1] && narrow[at - 1] == *token,
            };
        }
        reached = next;
    }
    reached[narrow.len()]
}
