//! Which paths a mount's changes touched, and who made them: kept by number of the actor until the
//! commit knows the paths that differ.
//!
//! A mount tells names and inodes that it changed; a commit finds paths that differ. They are the
//! same, except below a directory that moved as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::actor::Actor;
use crate::error::Result;
use crate::object::codec::{Input, write_bytes, write_number};
use crate::object::{LinkId, Name};

/// Version of the encoding.
const VERSION: u8 = 1;

/// Actors that one path keeps between two commits; of more the newest one replaces the last.
const ACTORS_PER_PATH: usize = 64;

/// Numbers of actors: mostly none or one. 0 stands for one that nobody knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActorSet(Members);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Members {
    #[default]
    None,
    One(u32),
    #[expect(clippy::box_collection, reason = "rare, and half as large this way")]
    Many(Box<Vec<u32>>),
}

impl ActorSet {
    /// Adds one.
    pub fn add(&mut self, number: u32) {
        match &mut self.0 {
            Members::None => self.0 = Members::One(number),
            Members::One(only) if *only == number => {}
            Members::One(only) => self.0 = Members::Many(Box::new(vec![*only, number])),
            Members::Many(all) if all.contains(&number) => {}
            Members::Many(all) if all.len() < ACTORS_PER_PATH => all.push(number),
            Members::Many(all) => {
                all.pop();
                all.push(number);
            }
        }
    }

    /// Adds all of another one.
    pub fn extend(&mut self, other: &ActorSet) {
        other.iter().for_each(|number| self.add(number));
    }

    /// The numbers, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let members = match &self.0 {
            Members::None => &[][..],
            Members::One(only) => std::slice::from_ref(only),
            Members::Many(all) => all.as_slice(),
        };
        members.iter().copied()
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.0 == Members::None
    }
}

impl FromIterator<u32> for ActorSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::default();
        numbers.into_iter().for_each(|number| set.add(number));
        set
    }
}

/// Who changed a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameActors {
    /// The actors.
    pub actors: ActorSet,
    /// The name itself came, went, or stands for something else; not only what it stands for
    /// changed.
    pub is_placed: bool,
}

impl NameActors {
    /// Adds what another one says.
    pub fn extend(&mut self, other: &NameActors) {
        self.actors.extend(&other.actors);
        self.is_placed |= other.is_placed;
    }
}

/// Who made the changes of a mount, by directory and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The actors, by their numbers.
    pub actors: BTreeMap<u32, Arc<Actor>>,
    /// By path of a directory (empty for the root) and name in it; the root itself has no name.
    pub names: BTreeMap<Box<[u8]>, BTreeMap<Name, NameActors>>,
    /// Files with several names.
    pub links: BTreeMap<LinkId, ActorSet>,
    /// Directories that moved with all that is in them: where they were, and are.
    pub moved: BTreeMap<Box<[u8]>, ActorSet>,
}

impl Attribution {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.links.is_empty() && self.moved.is_empty()
    }

    fn name(&self, path: &[u8]) -> Option<&NameActors> {
        let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        self.names.get(directory)?.get(name)
    }

    /// Its encoding.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut output = vec![VERSION];
        let write_set = |output: &mut Vec<u8>, set: &ActorSet| {
            write_number(output, set.iter().count() as u64);
            for number in set.iter() {
                write_number(output, u64::from(number));
            }
        };
        write_number(&mut output, self.actors.len() as u64);
        for (number, actor) in &self.actors {
            write_number(&mut output, u64::from(*number));
            actor.encode(&mut output);
        }
        write_number(&mut output, self.names.len() as u64);
        for (directory, names) in &self.names {
            write_bytes(&mut output, directory);
            write_number(&mut output, names.len() as u64);
            for (name, found) in names {
                write_bytes(&mut output, name);
                output.push(u8::from(found.is_placed));
                write_set(&mut output, &found.actors);
            }
        }
        write_number(&mut output, self.links.len() as u64);
        for (link, set) in &self.links {
            write_number(&mut output, link.0);
            write_set(&mut output, set);
        }
        write_number(&mut output, self.moved.len() as u64);
        for (directory, set) in &self.moved {
            write_bytes(&mut output, directory);
            write_set(&mut output, set);
        }
        output
    }

    /// Reads [`Attribution::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut input = Input::open(bytes, "list of who changed what")?;
        let read_set = |input: &mut Input<'_>| -> Result<ActorSet> {
            let count = input.count()?;
            (0..count).map(|_| input.number_u32()).collect()
        };
        let mut found = Self::default();
        for _ in 0..input.count()? {
            let number = input.number_u32()?;
            let actor = Actor::decode(&mut input)?;
            found.actors.insert(number, Arc::new(actor));
        }
        for _ in 0..input.count()? {
            let directory = input.bytes(usize::MAX)?.into();
            let mut names = BTreeMap::new();
            for _ in 0..input.count()? {
                let name = input.bytes(usize::MAX)?.into();
                let is_placed = input.byte()? != 0;
                let actors = read_set(&mut input)?;
                names.insert(name, NameActors { actors, is_placed });
            }
            found.names.insert(directory, names);
        }
        for _ in 0..input.count()? {
            let link = LinkId(input.number()?);
            found.links.insert(link, read_set(&mut input)?);
        }
        for _ in 0..input.count()? {
            let directory = input.bytes(usize::MAX)?.into();
            found.moved.insert(directory, read_set(&mut input)?);
        }
        input.finish()?;
        Ok(found)
    }
}

/// Who changed a path, by what was noted of a mount since the last commit, oldest first: those of
/// the path itself and of what moved with it; else those of the nearest directory above.
pub(crate) fn actors_of(
    noted: &[Attribution],
    path: &[u8],
    link: Option<LinkId>,
) -> Vec<Arc<Actor>> {
    let mut found = Vec::new();
    let mut is_placed = false;
    for attribution in noted {
        if let Some(name) = attribution.name(path) {
            is_placed |= name.is_placed;
            add(&mut found, attribution, &name.actors);
        }
        if let Some(set) = link.and_then(|link| attribution.links.get(&link)) {
            add(&mut found, attribution, set);
        }
    }
    if !is_placed {
        for above in ancestors(path) {
            for attribution in noted {
                if let Some(set) = attribution.moved.get(above) {
                    add(&mut found, attribution, set);
                }
            }
        }
    }
    let mut above = ancestors(path);
    while found.is_empty()
        && let Some(directory) = above.next()
    {
        for attribution in noted {
            if let Some(name) = attribution.name(directory) {
                add(&mut found, attribution, &name.actors);
            }
        }
    }
    found
}

/// The path itself and the directories above it, without the root.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = (!path.is_empty()).then_some(path);
    std::iter::successors(first, |path| {
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        Some(&path[..slash])
    })
}

fn add(found: &mut Vec<Arc<Actor>>, attribution: &Attribution, set: &ActorSet) {
    for actor in set
        .iter()
        .filter_map(|number| attribution.actors.get(&number))
    {
        if !found.contains(actor) {
            found.push(Arc::clone(actor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(names: &[(&[u8], &[u8], u32, bool)], moved: &[(&[u8], u32)]) -> Attribution {
        let mut attribution = Attribution::default();
        for number in 1..=5 {
            let actor = Actor::of_principal(number.to_string());
            attribution.actors.insert(number, Arc::new(actor));
        }
        for (directory, name, number, is_placed) in names {
            let names = attribution.names.entry((*directory).into()).or_default();
            names
                .entry((*name).into())
                .or_default()
                .extend(&NameActors {
                    actors: [*number].into_iter().collect(),
                    is_placed: *is_placed,
                });
        }
        for (directory, number) in moved {
            attribution
                .moved
                .entry((*directory).into())
                .or_default()
                .add(*number);
        }
        attribution
            .links
            .insert(LinkId(7), [5].into_iter().collect());
        attribution
    }

    #[test]
    fn a_path_has_its_own_actors_and_those_of_what_moved_with_it() {
        let first = noted(
            &[
                (b"", b"a", 1, true),
                (b"a/b", b"c", 2, false),
                (b"moved", b"new", 4, true),
                (b"moved", b"changed", 4, false),
            ],
            &[(b"moved", 1)],
        );
        let second = noted(&[(b"a/b", b"c", 3, false)], &[]);
        let noted = [first, second];
        let of = |path: &[u8]| -> Vec<String> {
            let actors = actors_of(&noted, path, None);
            actors.iter().map(|actor| actor.principal.clone()).collect()
        };
        assert_eq!(of(b"a/b/c"), ["2", "3"]);
        assert_eq!(of(b"a/b/other"), ["1"]);
        assert_eq!(of(b"moved/deep/old"), ["1"]);
        assert_eq!(of(b"moved/changed"), ["4", "1"]);
        assert_eq!(of(b"moved/new"), ["4"]);
        assert!(of(b"z").is_empty());
        assert!(of(b"").is_empty());
        let linked = actors_of(&noted, b"a/b/c", Some(LinkId(7)));
        assert_eq!(linked.len(), 3);
    }

    #[test]
    fn the_encoding_comes_back() {
        let attribution = noted(&[(b"a", b"b", 1, true), (b"", b"", 2, false)], &[(b"x", 3)]);
        let bytes = attribution.to_bytes();
        assert_eq!(Attribution::from_bytes(&bytes).unwrap(), attribution);
        for end in 0..bytes.len() {
            assert!(Attribution::from_bytes(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn a_set_keeps_so_many_and_the_newest() {
        let set: ActorSet = (0..1000).collect();
        assert_eq!(set.iter().count(), ACTORS_PER_PATH);
        assert_eq!(set.iter().last(), Some(999));
        assert_eq!(size_of::<ActorSet>(), 16);
    }
}
