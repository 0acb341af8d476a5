//! Puts a whole tree into a directory of another one: what an import does.

use super::assemble::{Action, Assemble, PlanNode, directory_of};
use crate::edit::SnapshotEdit;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::lookup::lookup_path;
use crate::object::{Attributes, Inode, Name, Node, Root, TreeEntry};
use crate::path::{display_path, split_path};
use crate::reader::ObjectReader;

/// Permissions of directories that are made on the way to the place.
const MADE_DIRECTORY_MODE: u32 = 0o755;

/// Plans to put `tree` into the directory `path` of `current`, which is made if it is missing.
///
/// With `is_replacing` the directory holds nothing else then and has the attributes of `tree`'s
/// root. Else directories that are in both are joined; of other entries in both, those of `tree`
/// win, with their attributes. Files with several names stay such, on either side.
///
/// # Errors
/// `InvalidInput` if `path` leads through something that is no directory.
pub fn graft_edit(
    reader: &dyn ObjectReader,
    current: &Root,
    tree: &Root,
    path: &[u8],
    is_replacing: bool,
) -> Result<SnapshotEdit> {
    let names = split_path(path)?;
    let mut plan = PlanNode::default();
    let place = plan_directories(reader, current, &names, &mut plan)?;
    let mut graft = Graft { reader, plan };
    let mut root_attributes = None;
    match (is_replacing, names.is_empty()) {
        (true, true) => {
            graft.remove_others(current.tree)?;
            graft.join(&names, tree.tree, None)?;
            root_attributes = Some(tree.attributes.clone());
        }
        (true, false) => graft.plan.insert(
            &names,
            Action::Take(TreeEntry::Inline(Inode {
                attributes: tree.attributes.clone(),
                node: Node::Directory { tree: tree.tree },
            })),
        ),
        (false, _) => {
            if place.is_none() {
                let attributes = tree.attributes.clone();
                graft.plan.insert(&names, Action::Directory(attributes));
            }
            graft.join(&names, tree.tree, place)?;
        }
    }
    let mut edit = Assemble::new(reader, current, tree)
        .with_foreign_files()
        .run(&graft.plan)?;
    edit.root_attributes = root_attributes;
    Ok(edit)
}

/// Plans that a path and those on the way to it are directories; the tree of the last one, if it is
/// there.
///
/// # Errors
/// `InvalidInput` if something else is there.
pub(super) fn plan_directories(
    reader: &dyn ObjectReader,
    current: &Root,
    names: &[Name],
    plan: &mut PlanNode,
) -> Result<Option<TreeId>> {
    let mut place = Some(current.tree);
    for depth in 1..=names.len() {
        let above = &names[..depth];
        let found = lookup_path(reader, current, above)?;
        place = directory_of(found.as_ref()).map(|(tree, _)| tree);
        match found {
            None => {
                let attributes = Attributes {
                    mode: MADE_DIRECTORY_MODE,
                    ..current.attributes.clone()
                };
                plan.insert(above, Action::Directory(attributes));
            }
            Some(_) if place.is_some() => {}
            Some(_) => {
                return Err(StoreError::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "put something into '{}': '{}' is not a directory",
                        display_path(&names.join(&b'/')),
                        display_path(&above.join(&b'/'))
                    ),
                )
                .with_hint("choose another path, or move what is there away first"));
            }
        }
    }
    Ok(place)
}

struct Graft<'a> {
    reader: &'a dyn ObjectReader,
    plan: PlanNode,
}

impl Graft<'_> {
    /// Plans that nothing of the root directory stays.
    fn remove_others(&mut self, root: TreeId) -> Result<()> {
        for (name, _) in self.reader.directory(root)? {
            self.plan.insert(&[name], Action::Remove);
        }
        Ok(())
    }

    /// Plans the entries of one directory, and of those below that both sides have.
    fn join(&mut self, names: &[Name], tree: TreeId, place: Option<TreeId>) -> Result<()> {
        let mut pending = vec![(names.to_vec(), tree, place)];
        while let Some((names, tree, place)) = pending.pop() {
            for (name, entry) in self.reader.directory(tree)? {
                let existing = match place {
                    Some(place) => self.reader.lookup(place, &name)?,
                    None => None,
                };
                let mut path = names.clone();
                path.push(name);
                match (directory_of(Some(&entry)), directory_of(existing.as_ref())) {
                    (Some((tree, attributes)), Some((place, _))) => {
                        self.plan
                            .insert(&path, Action::Directory(attributes.clone()));
                        pending.push((path, tree, Some(place)));
                    }
                    _ => self.plan.insert(&path, Action::Take(entry)),
                }
            }
        }
        Ok(())
    }
}
