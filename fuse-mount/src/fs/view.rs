//! What a session's principal may do with which inode.
//!
//! Access is that of an inode's names: a file with several has the least access that one of them
//! gives, so no link leads around a rule. Places of directories are remembered until a directory
//! moves; those of files follow from them with one step. A file that has lost its last name keeps
//! the access of that name.
//!
//! Locking: a view is used under the state's lock only, and its own lock is taken within.

use std::sync::Arc;

use parking_lot::Mutex;
use workspace_store::object::Timestamp;
use workspace_store::policy::{Access, Place, Policy};

use super::inode::ROOT;
use super::request::{Errno, FileAttributes};
use super::state::{NumberMap, State};

/// Places of directories remembered.
const PLACES_MAX: usize = 1 << 16;

/// Something that a policy refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Path from the root, as far as it is known.
    pub path: Vec<u8>,
    /// What was asked for.
    pub action: &'static str,
    /// Whether the path does not exist for the principal.
    pub is_hidden: bool,
    /// Who asked.
    pub uid: u32,
    /// Process that asked, 0 if unknown.
    pub pid: u32,
}

/// Told of denials; must return at once.
pub type OnDenial = Arc<dyn Fn(Denial) + Send + Sync>;

/// One session's view of the tree.
pub(crate) struct View {
    inner: Mutex<Inner>,
    on_denial: Option<OnDenial>,
}

struct Inner {
    policy: Policy,
    places: NumberMap<Place>,
    /// [`State::moves`] that `places` belongs to.
    moves: u64,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    pub(crate) fn new(policy: Policy, on_denial: Option<OnDenial>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                policy,
                places: NumberMap::default(),
                moves: 0,
            }),
            on_denial,
        }
    }

    /// Takes another policy, and returns the one before.
    pub(crate) fn replace(&self, policy: Policy) -> Policy {
        let mut inner = self.inner.lock();
        inner.places.clear();
        std::mem::replace(&mut inner.policy, policy)
    }

    /// Whether it is this policy that holds, rule by rule.
    pub(crate) fn has(&self, policy: &Policy) -> bool {
        let inner = self.inner.lock();
        inner.policy.is_unrestricted() == policy.is_unrestricted()
            && inner.policy.default_access() == policy.default_access()
            && inner.policy.rules() == policy.rules()
    }

    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.inner.lock().policy.next_expiry()
    }

    pub(crate) fn is_unrestricted(&self) -> bool {
        self.inner.lock().policy.is_unrestricted()
    }

    pub(crate) fn deny(&self, denial: impl FnOnce() -> Denial) {
        if let Some(on_denial) = &self.on_denial {
            on_denial(denial());
        }
    }

    /// What may be done with a path.
    pub(crate) fn access_of_path(&self, path: &[u8]) -> Access {
        self.inner.lock().policy.access(path)
    }

    /// The place of a directory.
    pub(crate) fn directory(&self, state: &State, number: u64) -> Result<Place, Errno> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.moves != state.moves || inner.places.len() > PLACES_MAX {
            inner.places.clear();
            inner.moves = state.moves;
        }
        let mut way = Vec::new();
        let mut next = number;
        let mut place = loop {
            if next == ROOT {
                break inner.policy.root();
            }
            if let Some(place) = inner.places.get(&next) {
                break place.clone();
            }
            let Some((parent, position)) = state.inode(next)?.places.as_slice().first().copied()
            else {
                // Removed, and still in use.
                let path = state.last_paths.get(&next);
                break inner.policy.place(path.ok_or(Errno(libc::ENOENT))?);
            };
            way.push((next, parent, position));
            next = parent;
        };
        while let Some((number, parent, position)) = way.pop() {
            let found = state.names(parent)?.at(position);
            let found = found.ok_or(Errno(libc::EIO))?;
            place = inner.policy.step(&place, &found.name);
            inner.places.insert(number, place.clone());
        }
        Ok(place)
    }

    /// The place of a name in a directory.
    pub(crate) fn name(&self, state: &State, parent: u64, name: &[u8]) -> Result<Place, Errno> {
        let place = self.directory(state, parent)?;
        Ok(self.step(&place, name))
    }

    pub(crate) fn step(&self, place: &Place, name: &[u8]) -> Place {
        self.inner.lock().policy.step(place, name)
    }

    /// What may be done with an inode.
    pub(crate) fn access(&self, state: &mut State, number: u64) -> Result<Access, Errno> {
        let inode = state.inode(number)?;
        if inode.is_directory() {
            let place = self.directory(state, number)?;
            // The root is there for everybody.
            let is_seen = place.is_visible_directory() || number == ROOT;
            return Ok(match place.access() {
                Access::Hidden if is_seen => Access::Read,
                access => access,
            });
        }
        let is_known = inode.places.as_slice().len() >= inode.link_count as usize;
        if inode.link_count == 0 {
            let path = state.last_paths.get(&number);
            return Ok(path.map_or(Access::Hidden, |path| self.access_of_path(path)));
        }
        if !is_known {
            state.load_everything()?;
        }
        let mut access = Access::Write;
        for (parent, position) in state.inode(number)?.places.as_slice() {
            let directory = self.directory(state, *parent)?;
            let place = if directory.is_uniform() {
                directory
            } else {
                let found = state.names(*parent)?.at(*position);
                self.step(&directory, &found.ok_or(Errno(libc::EIO))?.name)
            };
            access = access.min(place.access());
        }
        Ok(access)
    }

    /// Whether an inode is a directory that is only walked through: hidden, with something visible
    /// below.
    pub(crate) fn is_passage(&self, state: &State, number: u64) -> bool {
        state.inode(number).is_ok_and(|inode| inode.is_directory())
            && self
                .directory(state, number)
                .is_ok_and(|place| place.access() == Access::Hidden)
    }

    /// Takes out of attributes what tells of hidden names.
    pub(crate) fn cover(&self, state: &State, attributes: &mut FileAttributes) {
        if attributes.mode & libc::S_IFMT != libc::S_IFDIR {
            return;
        }
        let Ok(place) = self.directory(state, attributes.inode) else {
            return;
        };
        if !place.is_uniform() {
            // As on file systems that don't count subdirectories.
            attributes.link_count = 1;
        }
        if place.access() == Access::Hidden {
            // Only the way to something visible: it can be walked, and is all that is known of it.
            *attributes = FileAttributes {
                inode: attributes.inode,
                size: attributes.size,
                blocks: attributes.blocks,
                mode: libc::S_IFDIR | 0o555,
                link_count: attributes.link_count,
                ..FileAttributes::default()
            };
        }
    }
}

impl State {
    /// Loads all directories, for files with names in some that nobody has looked at yet.
    pub(crate) fn load_everything(&mut self) -> Result<(), Errno> {
        let mut wanted = vec![ROOT];
        while let Some(number) = wanted.pop() {
            self.load_directory(number)?;
            for found in self.names(number)?.iter() {
                let inode = self.inode(found.number)?;
                if inode.is_directory() {
                    wanted.push(found.number);
                }
            }
        }
        Ok(())
    }

    /// Path of a name in a directory, from the root.
    pub(crate) fn path_in(&self, parent: u64, name: &[u8]) -> Vec<u8> {
        let mut path = self.path_of(parent).unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Path of an inode by its first name.
    pub(crate) fn path_of_inode(&self, number: u64) -> Vec<u8> {
        if let Some(path) = self.last_paths.get(&number) {
            return path.to_vec();
        }
        let place = self
            .inode(number)
            .ok()
            .and_then(|inode| inode.places.as_slice().first().copied());
        let Some((parent, position)) = place else {
            return Vec::new();
        };
        let found = self.names(parent).ok().and_then(|names| names.at(position));
        found.map_or_else(Vec::new, |found| self.path_in(parent, &found.name))
    }
}
