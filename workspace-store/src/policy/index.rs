//! Finds the components that match a name among many, without trying each.

use std::collections::HashMap;

use super::pattern::{Component, Token};

/// Where a rule goes on when its component at `position` has matched: at `position` + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position {
    /// Number of the rule.
    pub(super) rule: u32,
    /// The component that the next name must match.
    pub(super) component: u32,
}

/// Components of rules, by what a name must look like to match.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    exact: HashMap<Vec<u8>, Vec<Position>>,
    /// Forms that end with fixed bytes, by these.
    by_end: HashMap<Vec<u8>, Vec<(Component, Position)>>,
    end_lengths: Vec<usize>,
    /// Other forms that begin with fixed bytes.
    by_beginning: HashMap<Vec<u8>, Vec<(Component, Position)>>,
    beginning_lengths: Vec<usize>,
    /// The rest is tried one by one.
    others: Vec<(Component, Position)>,
}

impl NameIndex {
    /// An index of these components; depths are no names and must not be among them.
    pub(super) fn new<'a>(components: impl Iterator<Item = (&'a Component, Position)>) -> Self {
        let mut index = Self::default();
        for (component, position) in components {
            match component {
                Component::Exact(name) => {
                    index.exact.entry(name.clone()).or_default().push(position);
                }
                Component::Glob(tokens) => {
                    let end = fixed(tokens.iter().rev())
                        .into_iter()
                        .rev()
                        .collect::<Vec<u8>>();
                    let beginning = fixed(tokens.iter());
                    let entry = (component.clone(), position);
                    if !end.is_empty() {
                        index.by_end.entry(end).or_default().push(entry);
                    } else if !beginning.is_empty() {
                        index.by_beginning.entry(beginning).or_default().push(entry);
                    } else {
                        index.others.push(entry);
                    }
                }
                Component::AnyDepth => {}
            }
        }
        index.end_lengths = lengths(&index.by_end);
        index.beginning_lengths = lengths(&index.by_beginning);
        index
    }

    /// Adds the positions whose component matches `name`.
    pub(super) fn find(&self, name: &[u8], found: &mut Vec<Position>) {
        if !self.exact.is_empty()
            && let Some(positions) = self.exact.get(name)
        {
            found.extend_from_slice(positions);
        }
        let mut try_all = |entries: &[(Component, Position)]| {
            for (component, position) in entries {
                if component.matches(name) {
                    found.push(*position);
                }
            }
        };
        for length in self
            .end_lengths
            .iter()
            .filter(|length| **length <= name.len())
        {
            if let Some(entries) = self.by_end.get(&name[name.len() - length..]) {
                try_all(entries);
            }
        }
        for length in self
            .beginning_lengths
            .iter()
            .filter(|length| **length <= name.len())
        {
            if let Some(entries) = self.by_beginning.get(&name[..*length]) {
                try_all(entries);
            }
        }
        try_all(&self.others);
    }
}

fn fixed<'a>(tokens: impl Iterator<Item = &'a Token>) -> Vec<u8> {
    tokens
        .map_while(|token| match token {
            Token::Byte(byte) => Some(*byte),
            Token::One | Token::Many => None,
        })
        .collect()
}

fn lengths(entries: &HashMap<Vec<u8>, Vec<(Component, Position)>>) -> Vec<usize> {
    let mut lengths: Vec<usize> = entries.keys().map(Vec::len).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}
