//! The policy engine: what one principal may do with which path of one workspace.
//!
//! Rules give [`Access`] to the paths that a [`Pattern`] covers. Of the rules that cover a path,
//! one is overruled by another whose pattern lies within its own, and by the principal's own rule
//! with the same pattern as a group's; of the rules that are left the most restrictive decides.
//! Without any rule the default decides. So a rule widens access only where it says more exactly
//! than the rule that it widens (`docs/security.md` has examples).
//!
//! A [`Policy`] never changes and is shared; a change of grants makes a new one. Walking goes
//! from a [`Place`] to the next by one name and costs about the same with one rule or a thousand.
//! Places of one policy mean nothing to another.

mod automaton;
mod index;
pub mod pattern;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use pattern::Pattern;

use crate::merge::name_before_merge;
use crate::object::Timestamp;
use automaton::Automaton;
pub use automaton::Place;
pub use view::PolicyView;

/// What a principal may do with a path; each includes those before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The path does not exist for the principal.
    #[default]
    Hidden,
    /// It can be listed and read.
    Read,
    /// It can be made, changed and removed.
    Write,
}

impl Access {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Hidden => "hidden",
            Access::Read => "read",
            Access::Write => "write",
        }
    }

    /// The access that a word stands for.
    pub fn from_text(text: &str) -> Option<Self> {
        [Access::Hidden, Access::Read, Access::Write]
            .into_iter()
            .find(|access| access.as_str() == text)
    }
}

/// One rule about the paths that a pattern covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which paths.
    pub pattern: Pattern,
    /// What may be done with them.
    pub access: Access,
    /// Until when the rule holds; `None`: until it is revoked.
    pub until: Option<Timestamp>,
    /// Given to the principal by name, not to a group that it is in.
    pub is_own: bool,
}

impl Rule {
    /// Whether this rule decides against `other` where both cover a path.
    pub fn overrules(&self, other: &Self) -> bool {
        self.pattern.is_within(&other.pattern)
            && (!other.pattern.is_within(&self.pattern) || (self.is_own && !other.is_own))
    }
}

/// What one principal may do in one workspace.
#[derive(Clone)]
pub struct Policy {
    automaton: Arc<Automaton>,
    default: Access,
    is_unrestricted: bool,
    next_expiry: Option<Timestamp>,
}

impl Policy {
    /// Everything is allowed: the administrator's policy.
    pub fn unrestricted() -> Self {
        Self {
            automaton: Automaton::new(Vec::new(), Access::Write),
            default: Access::Write,
            is_unrestricted: true,
            next_expiry: None,
        }
    }

    /// The policy of `rules` that hold at `now`; `default` decides where no rule speaks.
    pub fn compile(rules: Vec<Rule>, default: Access, now: Timestamp) -> Self {
        let rules: Vec<Rule> = rules
            .into_iter()
            .filter(|rule| rule.until.is_none_or(|until| until > now))
            .collect();
        let next_expiry = rules.iter().filter_map(|rule| rule.until).min();
        Self {
            automaton: Automaton::new(rules, default),
            default,
            is_unrestricted: false,
            next_expiry,
        }
    }

    /// Whether this is the administrator's policy, which needs no checks at all.
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// What decides where no rule speaks.
    pub fn default_access(&self) -> Access {
        self.default
    }

    /// The rules that hold, in the order they were given.
    pub fn rules(&self) -> &[Rule] {
        self.automaton.rules()
    }

    /// When the first rule ends by itself: then the policy must be compiled anew.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.next_expiry
    }

    /// The place of the workspace's root.
    pub fn root(&self) -> Place {
        self.automaton.root()
    }

    /// The place of `name` in the directory at `place`, which must be one of this policy.
    ///
    /// What a merge puts beside a path ([`name_before_merge`]) is where that path is, if that
    /// gives less access.
    pub fn step(&self, place: &Place, name: &[u8]) -> Place {
        let own = self.automaton.step(place, name);
        let Some(original) = name_before_merge(name) else {
            return own;
        };
        // That may have been put beside something as well.
        let original = self.step(place, original);
        if original.access() <= own.access() {
            original
        } else {
            own
        }
    }

    /// The place of a path relative to the root (empty for the root).
    pub fn place(&self, path: &[u8]) -> Place {
        let mut place = self.root();
        for name in pattern::names_of(path) {
            if place.is_uniform() {
                break;
            }
            place = self.step(&place, name);
        }
        place
    }

    /// What may be done with a path relative to the root (empty for the root).
    pub fn access(&self, path: &[u8]) -> Access {
        self.place(path).access()
    }

    /// Indexes into [`Policy::rules`] of those that decide about a path: they are overruled by
    /// none, and give the access that holds. Empty if the default decides.
    pub fn deciding_rules(&self, path: &[u8]) -> Vec<usize> {
        let rules = self.rules();
        let covering: Vec<usize> = (0..rules.len())
            .filter(|rule| rules[*rule].pattern.covers(path))
            .collect();
        let mut left: Vec<usize> = covering
            .iter()
            .copied()
            .filter(|rule| {
                !covering
                    .iter()
                    .any(|other| rules[*other].overrules(&rules[*rule]))
            })
            .collect();
        let access = left.iter().map(|rule| rules[*rule].access).min();
        left.retain(|rule| Some(rules[*rule].access) == access);
        left
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("rules", &self.rules().len())
            .field("default", &self.default)
            .field("is_unrestricted", &self.is_unrestricted)
            .finish_non_exhaustive()
    }
}
