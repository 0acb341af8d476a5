//! All rules of a policy as one automaton that reads a path name by name.
//!
//! A state knows the rules that cover the path so far and aren't overruled, and the components
//! that the next name may match. Rules that may begin at any depth wait everywhere; they share one
//! index. States are kept and found again by what they know, up to a limit; a state beyond it is
//! made each time. Threads: any; the table of states has a lock of its own, held for a look-up.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use super::index::{NameIndex, Position};
use super::pattern::Component;
use super::{Access, Rule};

const STATES_KEPT: usize = 16 * 1024;

/// Where a path stands in a [`Policy`](super::Policy); small, and clones share it.
#[derive(Clone)]
pub struct Place(Arc<State>);

struct State {
    access: Access,
    is_uniform: bool,
    is_passage: bool,
    /// Rules that cover the path and aren't overruled, ascending.
    left: Box<[u32]>,
    /// Components that the next name may match, ascending; without those that wait everywhere.
    waiting: Box<[Position]>,
    index: OnceLock<NameIndex>,
    /// The state after a name that matches nothing; `None` if it is this one.
    below: OnceLock<Option<Place>>,
}

/// What makes a state the same as another.
type Key = (Box<[Position]>, Box<[u32]>);

pub(super) struct Automaton {
    rules: Vec<Rule>,
    default: Access,
    /// Rules that begin with any depth.
    everywhere: Vec<u32>,
    everywhere_index: NameIndex,
    states: RwLock<HashMap<Key, Place>>,
    root: OnceLock<Place>,
}

impl Place {
    /// What may be done with the path itself.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// Whether everything below has the same access as this: then names needn't be followed.
    pub fn is_uniform(&self) -> bool {
        self.0.is_uniform
    }

    /// Whether a directory here is hidden itself, but something below it could be visible: it can
    /// be walked through and shows only what is visible.
    pub fn is_passage(&self) -> bool {
        self.0.is_passage
    }

    /// Tells different places of one policy apart while both are there.
    pub(super) fn identity(&self) -> u64 {
        Arc::as_ptr(&self.0) as u64
    }

    /// Whether a directory here exists for the principal.
    pub fn is_visible_directory(&self) -> bool {
        self.0.access > Access::Hidden || self.0.is_passage
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("access", &self.0.access)
            .field("is_uniform", &self.0.is_uniform)
            .field("is_passage", &self.0.is_passage)
            .finish_non_exhaustive()
    }
}

impl Automaton {
    pub(super) fn new(rules: Vec<Rule>, default: Access) -> Arc<Self> {
        let number = |at: usize| u32::try_from(at).expect("a policy has fewer than 2^32 rules");
        let everywhere: Vec<u32> = rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.pattern.components.first() == Some(&Component::AnyDepth))
            .map(|(at, _)| number(at))
            .collect();
        let everywhere_index = NameIndex::new(everywhere.iter().map(|rule| {
            let position = Position {
                rule: *rule,
                component: 1,
            };
            (&rules[*rule as usize].pattern.components[1], position)
        }));
        Arc::new(Self {
            rules,
            default,
            everywhere,
            everywhere_index,
            states: RwLock::new(HashMap::new()),
            root: OnceLock::new(),
        })
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(super) fn root(&self) -> Place {
        let root = self.root.get_or_init(|| {
            let (mut waiting, mut left) = (Vec::new(), Vec::new());
            for (at, rule) in self.rules.iter().enumerate() {
                if rule.pattern.components.first() != Some(&Component::AnyDepth) {
                    self.enter(at as u32, 0, &mut waiting, &mut left);
                }
            }
            self.state(waiting, left)
        });
        root.clone()
    }

    pub(super) fn step(&self, place: &Place, name: &[u8]) -> Place {
        let state = place.0.as_ref();
        if state.is_uniform {
            return place.clone();
        }
        let mut found = Vec::new();
        self.everywhere_index.find(name, &mut found);
        if !state.waiting.is_empty() {
            state
                .index
                .get_or_init(|| {
                    NameIndex::new(
                        state
                            .waiting
                            .iter()
                            .map(|position| (self.component(*position), *position)),
                    )
                })
                .find(name, &mut found);
        }
        if found.is_empty() {
            let below = state.below.get_or_init(|| {
                let waiting = self.staying(state);
                (waiting.as_slice() != state.waiting.as_ref())
                    .then(|| self.state(waiting, state.left.to_vec()))
            });
            return below.clone().unwrap_or_else(|| place.clone());
        }
        let mut waiting = self.staying(state);
        let mut left = state.left.to_vec();
        for position in found {
            self.enter(
                position.rule,
                position.component + 1,
                &mut waiting,
                &mut left,
            );
        }
        self.state(waiting, left)
    }

    fn component(&self, position: Position) -> &Component {
        &self.rules[position.rule as usize].pattern.components[position.component as usize]
    }

    /// What goes on waiting whatever the next name is.
    fn staying(&self, state: &State) -> Vec<Position> {
        let mut waiting = Vec::new();
        for position in state.waiting.iter() {
            if self.component(*position) == &Component::AnyDepth {
                self.enter(
                    position.rule,
                    position.component,
                    &mut waiting,
                    &mut Vec::new(),
                );
            }
        }
        waiting.sort_unstable();
        waiting.dedup();
        waiting
    }

    /// A rule has got as far as before its component `at`.
    fn enter(&self, rule: u32, at: u32, waiting: &mut Vec<Position>, left: &mut Vec<u32>) {
        let components = &self.rules[rule as usize].pattern.components;
        match components.get(at as usize) {
            None => self.cover(rule, left),
            Some(component) => {
                waiting.push(Position {
                    rule,
                    component: at,
                });
                // Any depth is also none.
                if component == &Component::AnyDepth {
                    self.enter(rule, at + 1, waiting, left);
                }
            }
        }
    }

    /// A rule covers the path from here on.
    fn cover(&self, rule: u32, left: &mut Vec<u32>) {
        let overrules =
            |one: u32, other: u32| self.rules[one as usize].overrules(&self.rules[other as usize]);
        if left.contains(&rule) || left.iter().any(|other| overrules(*other, rule)) {
            return;
        }
        left.retain(|other| !overrules(rule, *other));
        left.push(rule);
    }

    fn state(&self, mut waiting: Vec<Position>, mut left: Vec<u32>) -> Place {
        waiting.sort_unstable();
        waiting.dedup();
        left.sort_unstable();
        let key: Key = (waiting.into(), left.into());
        if let Some(place) = self.states.read().get(&key) {
            return place.clone();
        }
        let place = Place(Arc::new(self.make(&key)));
        let mut states = self.states.write();
        if states.len() < STATES_KEPT {
            states.insert(key, place.clone());
        }
        place
    }

    fn make(&self, (waiting, left): &Key) -> State {
        let rule = |number: u32| &self.rules[number as usize];
        let access = left.iter().map(|number| rule(*number).access).min();
        let access = access.unwrap_or(self.default);
        // A rule that is overruled here is overruled below as well.
        let can_matter = |number: u32| {
            !left.contains(&number)
                && !left
                    .iter()
                    .any(|other| rule(*other).overrules(rule(number)))
        };
        let waiting: Vec<Position> = waiting
            .iter()
            .copied()
            .filter(|position| can_matter(position.rule))
            .collect();
        let mut below: Vec<u32> = waiting.iter().map(|position| position.rule).collect();
        below.dedup();
        below.extend(&self.everywhere);
        below.retain(|number| rule(*number).access != access);
        let can_fall = below
            .iter()
            .any(|number| rule(*number).access < access && can_matter(*number));
        // It rises only where each rule that keeps it down is overruled.
        below.retain(|number| rule(*number).access > access);
        let can_rise = !below.is_empty()
            && left
                .iter()
                .filter(|number| rule(**number).access == access)
                .all(|keeper| {
                    below
                        .iter()
                        .any(|number| rule(*number).overrules(rule(*keeper)))
                });
        State {
            access,
            is_uniform: !can_fall && !can_rise,
            is_passage: access == Access::Hidden && can_rise,
            left: left.clone(),
            waiting: waiting.into(),
            index: OnceLock::new(),
            below: OnceLock::new(),
        }
    }
}
