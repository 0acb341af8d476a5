//! What a switch tells those who watch the tree (inotify, fanotify).
//!
//! The kernel makes such events only from calls that programs make; so a session has calls made
//! for what a switch did ([`KernelSession::announce`]). Here is worked out which: only those that
//! somebody watches, in the order in which a program would make them.
//!
//! [`KernelSession::announce`]: super::request::KernelSession::announce

use std::collections::HashSet;
use std::sync::Arc;

use workspace_store::object::{Attributes, Name, TreeEntry};
use workspace_store::policy::Access;

use super::filesystem::{Filesystem, Seer};
use super::inode::{Kind, ROOT};
use super::request::{Event, Happening, Notification, Watched};
use super::state::State;
use super::switch::SwitchPlan;
use super::view::View;

/// The sessions in whose mounts something is watched, and what.
#[derive(Default)]
pub(super) struct Watchers {
    sessions: Vec<Seer>,
    watched: Watched,
}

/// The events of a switch.
#[derive(Debug, Default)]
pub(crate) struct SwitchEvents {
    /// Names that are taken away, those in a directory before the directory. They are announced
    /// while the kernel still has the old inodes at these names.
    removals: Vec<Event>,
    /// New names and attributes, announced when the kernel has forgotten what was before.
    additions: Vec<Event>,
    /// Names that the kernel must not forget before the removals were announced.
    removed: HashSet<(u64, Name)>,
}

impl Filesystem {
    /// Looks for those who watch. Takes milliseconds, so it is done before a switch takes the
    /// state's lock; who starts to watch afterwards misses the events.
    pub(super) fn find_watchers(&self) -> Watchers {
        let mut watchers = Watchers::default();
        for (session, view) in self.session_views() {
            let watched = session.watched();
            if watched.is_nothing() {
                continue;
            }
            watchers.watched.everything |= watched.everything;
            watchers.watched.inodes.extend(watched.inodes);
            watchers.sessions.push((session, view));
        }
        watchers
    }

    /// Brings watched directories into the table, as a resumed kernel knows some that this daemon
    /// has not loaded.
    pub(super) fn load_watched(&self, state: &mut State, watchers: &Watchers) {
        if !state.is_resumed {
            return;
        }
        for number in &watchers.watched.inodes {
            // Those that are gone, or no directories, need nothing.
            if state.find_inode(*number, &self.known).is_ok() {
                let _ = state.load_directory(*number);
            }
        }
    }

    /// Tells all sessions what a switch did. Waits for the events, for a limited time.
    pub(super) fn tell_sessions(
        &self,
        notifications: Vec<Notification>,
        events: &SwitchEvents,
        watchers: &Watchers,
    ) {
        let (late, early): (Vec<_>, Vec<_>) =
            notifications
                .into_iter()
                .partition(|notification| match notification {
                    Notification::Entry { parent, name }
                    | Notification::Delete { parent, name, .. } => {
                        !events.removed.is_empty()
                            && events.removed.contains(&(*parent, name.clone()))
                    }
                    Notification::Inode { .. } => false,
                });
        let announce = |events: &[Event]| {
            for (session, view) in &watchers.sessions {
                let seen: Vec<Event> = events
                    .iter()
                    .filter(|event| sees(view, event))
                    .cloned()
                    .collect();
                if !seen.is_empty() {
                    session.announce(&seen);
                }
            }
        };
        self.notify_sessions(&early);
        announce(&events.removals);
        self.notify_sessions(&late);
        announce(&events.additions);
    }
}

impl Watched {
    /// Whether nobody watches anything.
    pub fn is_nothing(&self) -> bool {
        !self.everything && self.inodes.is_empty()
    }

    fn has(&self, number: u64) -> bool {
        self.everything || self.inodes.contains(&number)
    }
}

/// A name that goes, on the way through a tree that goes.
struct Removal<'a> {
    parent: u64,
    directory: &'a [u8],
    name: &'a Name,
    number: u64,
    replaced_by: Option<u64>,
}

impl State {
    /// What carrying the plan out means to the watchers.
    pub(super) fn plan_events(&self, plan: &SwitchPlan, watchers: &Watchers) -> SwitchEvents {
        let mut events = SwitchEvents::default();
        let watched = &watchers.watched;
        if watched.is_nothing() {
            return events;
        }
        for change in plan.names() {
            let Some(directory) = self.path_of(change.directory) else {
                continue;
            };
            let new = change.new.as_ref();
            if let Some(number) = change.old {
                let removal = Removal {
                    parent: change.directory,
                    directory: &directory,
                    name: &change.name,
                    number,
                    replaced_by: new.map(|new| new.number),
                };
                if self.add_removal(&removal, watched, &mut events.removals) {
                    let place = (change.directory, change.name.clone());
                    events.removed.insert(place);
                }
            }
            if let Some(new) = new
                && watched.has(change.directory)
                && let Some(mode) = self.mode_of(plan, new.number, &new.entry)
            {
                events.additions.push(Event {
                    directory,
                    parent: change.directory,
                    name: change.name.clone(),
                    happening: Happening::Created {
                        child: new.number,
                        mode,
                    },
                });
            }
        }
        for (number, attributes) in plan.attributes() {
            let parent = self.parent_of(*number).unwrap_or(ROOT);
            if (watched.has(*number) || watched.has(parent))
                && self.is_more_than_time(*number, attributes)
                && let Some(directory) = self.path_of(*number)
            {
                events.additions.push(Event {
                    directory,
                    parent: *number,
                    name: Name::default(),
                    happening: Happening::Attributes {
                        mode: attributes.mode,
                    },
                });
            }
        }
        events
    }

    /// Adds what is watched of a tree that goes, leaves first; false if nothing is.
    fn add_removal(&self, removal: &Removal<'_>, watched: &Watched, out: &mut Vec<Event>) -> bool {
        let Ok(inode) = self.inode(removal.number) else {
            return false;
        };
        let mut is_wanted = watched.has(removal.parent) || watched.has(removal.number);
        if let Some(names) = inode.directory().and_then(|found| found.names.as_ref()) {
            let directory = join(removal.directory, removal.name);
            for child in names.iter() {
                let child = Removal {
                    parent: removal.number,
                    directory: &directory,
                    name: &child.name,
                    number: child.number,
                    replaced_by: None,
                };
                is_wanted |= self.add_removal(&child, watched, out);
            }
        }
        if is_wanted {
            out.push(Event {
                directory: removal.directory.to_vec(),
                parent: removal.parent,
                name: removal.name.clone(),
                happening: Happening::Removed {
                    child: removal.number,
                    file_type: inode.kind.file_type(),
                    replaced_by: removal.replaced_by,
                },
            });
        }
        is_wanted
    }

    /// Type and permissions of what a name will stand for.
    fn mode_of(&self, plan: &SwitchPlan, number: u64, entry: &TreeEntry) -> Option<u32> {
        let stored = match entry {
            TreeEntry::Inline(stored) => stored,
            TreeEntry::Link(link) => match plan.new_link(*link) {
                Some(stored) => stored,
                None => {
                    let inode = self.inode(number).ok()?;
                    return Some(inode.kind.file_type() | inode.mode);
                }
            },
        };
        let file_type = Kind::from_stored(&stored.node).file_type();
        Some(file_type | stored.attributes.mode)
    }

    /// Whether other attributes differ than the time that names have changed.
    fn is_more_than_time(&self, number: u64, attributes: &Attributes) -> bool {
        self.inode(number).is_ok_and(|inode| {
            let mtime = attributes.mtime;
            let current = inode.stored_attributes();
            Attributes { mtime, ..current } != *attributes
        })
    }

    /// Path of a directory from the root, without a slash at its start.
    pub(super) fn path_of(&self, number: u64) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut number = number;
        while number != ROOT {
            let Some((parent, position)) =
                self.inode(number).ok()?.places.as_slice().first().copied()
            else {
                names.push(self.last_paths.get(&number)?);
                break;
            };
            names.push(self.names(parent).ok()?.at(position)?.name.as_ref());
            number = parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }
}

/// Whether what an event is about is visible in a view, if there is one.
fn sees(view: &Option<Arc<View>>, event: &Event) -> bool {
    view.as_ref().is_none_or(|view| {
        view.is_unrestricted()
            || view.access_of_path(&join(&event.directory, &event.name)) > Access::Hidden
    })
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        name.to_vec()
    } else {
        [directory, name].join(&b'/')
    }
}
