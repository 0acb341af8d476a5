//! Puts a tree together from entries in any order and finds out which files have several names.
//!
//! Directories live in an arena in which children come after their parents, so that the nested
//! edit is built without recursion.

use std::collections::BTreeMap;

use super::Import;
use crate::edit::{DirectoryEdit, EntryEdit, InodeEdit, LinkEdit, NodeEdit, SnapshotEdit};
use crate::object::{Attributes, LinkId, Name};
use crate::path::join_path;

/// Index of a directory in the arena; 0 is the root.
pub(super) type DirectoryIndex = usize;
/// Index of a file that is no directory.
pub(super) type InodeIndex = usize;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Directory(DirectoryIndex),
    Inode(InodeIndex),
}

#[derive(Debug)]
struct Directory {
    attributes: Attributes,
    entries: BTreeMap<Name, Entry>,
    place: Option<(DirectoryIndex, Name)>,
}

#[derive(Debug)]
struct Inode {
    edit: InodeEdit,
    names: Vec<(DirectoryIndex, Name)>,
}

/// A tree that grows.
#[derive(Debug)]
pub(super) struct Assembly {
    directories: Vec<Directory>,
    inodes: Vec<Inode>,
    next_key: u64,
}

impl Assembly {
    pub fn new(root_attributes: Attributes) -> Self {
        Self {
            directories: vec![Directory {
                attributes: root_attributes,
                entries: BTreeMap::new(),
                place: None,
            }],
            inodes: Vec::new(),
            next_key: 0,
        }
    }

    /// A key for the next content.
    pub fn next_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    pub fn entry(&self, parent: DirectoryIndex, name: &[u8]) -> Option<Entry> {
        self.directories[parent].entries.get(name).copied()
    }

    pub fn is_empty(&self, directory: DirectoryIndex) -> bool {
        self.directories[directory].entries.is_empty()
    }

    pub fn set_attributes(&mut self, directory: DirectoryIndex, attributes: Attributes) {
        self.directories[directory].attributes = attributes;
    }

    pub fn add_directory(
        &mut self,
        parent: DirectoryIndex,
        name: Name,
        attributes: Attributes,
    ) -> DirectoryIndex {
        self.remove(parent, &name);
        let index = self.directories.len();
        self.directories[parent]
            .entries
            .insert(name.clone(), Entry::Directory(index));
        self.directories.push(Directory {
            attributes,
            entries: BTreeMap::new(),
            place: Some((parent, name)),
        });
        index
    }

    pub fn add_inode(&mut self, parent: DirectoryIndex, name: Name, edit: InodeEdit) -> InodeIndex {
        let index = self.inodes.len();
        self.inodes.push(Inode {
            edit,
            names: Vec::new(),
        });
        self.add_name(parent, name, index);
        index
    }

    pub fn add_name(&mut self, parent: DirectoryIndex, name: Name, inode: InodeIndex) {
        if self.entry(parent, &name) == Some(Entry::Inode(inode)) {
            return;
        }
        self.remove(parent, &name);
        self.directories[parent]
            .entries
            .insert(name.clone(), Entry::Inode(inode));
        self.inodes[inode].names.push((parent, name));
    }

    fn remove(&mut self, parent: DirectoryIndex, name: &[u8]) {
        if let Some(Entry::Inode(index)) = self.directories[parent].entries.remove(name) {
            self.inodes[index]
                .names
                .retain(|(other, other_name)| *other != parent || other_name.as_ref() != name);
        }
    }

    /// The path of a directory.
    pub fn path(&self, mut directory: DirectoryIndex) -> Vec<u8> {
        let mut names = Vec::new();
        while let Some((parent, name)) = &self.directories[directory].place {
            names.push(name.as_ref());
            directory = *parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The finished edit.
    pub fn finish(mut self, warnings: Vec<String>) -> Import {
        let mut links = BTreeMap::new();
        let mut link_ids = BTreeMap::new();
        let mut byte_count = 0;
        for index in 0..self.inodes.len() {
            let inode = &self.inodes[index];
            if let (NodeEdit::Content { content, .. }, false) =
                (&inode.edit.node, inode.names.is_empty())
            {
                byte_count += content.size();
            }
            if inode.names.len() < 2 {
                continue;
            }
            let first = inode
                .names
                .iter()
                .map(|(parent, name)| join_path(&self.path(*parent), name))
                .min()
                .expect("it has two names");
            let mut id = link_id_of_path(&first);
            while links.contains_key(&id) {
                id = LinkId((id.0 + 1) & (u64::MAX >> 1));
            }
            link_ids.insert(index, id);
            let inode = &self.inodes[index];
            links.insert(
                id,
                Some(LinkEdit {
                    link_count: u32::try_from(inode.names.len()).unwrap_or(u32::MAX),
                    inode: inode.edit.clone(),
                }),
            );
        }

        let mut entry_count = 0;
        let mut inodes: Vec<Option<InodeEdit>> = self
            .inodes
            .drain(..)
            .map(|inode| Some(inode.edit))
            .collect();
        let mut finished: Vec<Option<(Attributes, DirectoryEdit)>> = Vec::new();
        finished.resize_with(self.directories.len(), || None);
        // Children have greater indexes than their parents, so they are ready before them.
        while let Some(directory) = self.directories.pop() {
            let mut entries = BTreeMap::new();
            for (name, entry) in directory.entries {
                entry_count += 1;
                let edit = match entry {
                    Entry::Directory(child) => {
                        let (attributes, edit) =
                            finished[child].take().expect("children come after parents");
                        EntryEdit::Put(InodeEdit {
                            attributes,
                            node: NodeEdit::Directory(edit),
                        })
                    }
                    Entry::Inode(index) => match link_ids.get(&index) {
                        Some(id) => EntryEdit::Link(*id),
                        None => EntryEdit::Put(inodes[index].take().expect("it has only one name")),
                    },
                };
                entries.insert(name, edit);
            }
            let edit = DirectoryEdit {
                entries,
                ..DirectoryEdit::default()
            };
            finished[self.directories.len()] = Some((directory.attributes, edit));
        }
        let (root_attributes, root) = finished[0].take().expect("the root is always there");
        Import {
            edit: SnapshotEdit {
                root_attributes: Some(root_attributes),
                root,
                links,
            },
            entry_count,
            byte_count,
            warnings,
        }
    }
}

/// The id of a file with several names, from the first of them in byte order.
pub(crate) fn link_id_of_path(path: &[u8]) -> LinkId {
    let hash = blake3::hash(path);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    LinkId(u64::from_be_bytes(first) & (u64::MAX >> 1))
}
