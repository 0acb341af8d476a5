//! Trees against a sorted map.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::object::codec::{decode_node, encode_node, tree_id};
use crate::object::{Attributes, Inode, Node};

/// Nodes in memory, encoded and decoded as in the database.
#[derive(Default)]
struct Memory {
    nodes: HashMap<TreeId, Arc<StoredNode>>,
    written: usize,
}

impl NodeReader for Memory {
    fn node(&self, id: TreeId) -> Result<Arc<StoredNode>> {
        Ok(Arc::clone(
            self.nodes.get(&id).expect("the node was written"),
        ))
    }
}

impl NodeWriter for Memory {
    fn put(&mut self, node: StoredNode) -> Result<TreeId> {
        let encoded = encode_node(&node);
        let id = tree_id(&encoded);
        self.written += 1;
        self.nodes.insert(id, Arc::new(decode_node(&encoded)?));
        Ok(id)
    }
}

fn entry(name: &[u8], rdev: u64) -> Entry<TreeEntry> {
    let node = Node::CharDevice { rdev };
    (
        name.into(),
        TreeEntry::Inline(Inode {
            attributes: Attributes::default(),
            node,
        }),
    )
}

fn name_of(number: u32) -> Name {
    format!("name {number}").into_bytes().into()
}

fn build_all(memory: &mut Memory, model: &BTreeMap<Name, u64>) -> TreeId {
    let entries = model
        .iter()
        .map(|(name, rdev)| entry(name, *rdev))
        .collect();
    build::<Entry<TreeEntry>>(memory, entries).unwrap()
}

fn check_differences(
    memory: &Memory,
    old: (TreeId, &BTreeMap<Name, u64>),
    new: (TreeId, &BTreeMap<Name, u64>),
) {
    let found = differences::<Entry<TreeEntry>>(memory, Some(old.0), Some(new.0)).unwrap();
    let mut expected = Vec::new();
    let names: std::collections::BTreeSet<&Name> = old.1.keys().chain(new.1.keys()).collect();
    for name in names {
        let (before, after) = (old.1.get(name), new.1.get(name));
        if before != after {
            expected.push((
                before.map(|rdev| entry(name, *rdev)),
                after.map(|rdev| entry(name, *rdev)),
            ));
        }
    }
    assert_eq!(found, expected);
}

/// Applies each round of changes to the tree and to the model, which must agree afterwards.
fn run(rounds: Vec<Vec<(u32, Option<u64>)>>) {
    let mut memory = Memory::default();
    let mut model: BTreeMap<Name, u64> = BTreeMap::new();
    let mut tree = build_all(&mut memory, &model);
    for round in rounds {
        let before = (tree, model.clone());
        let mut edits: BTreeMap<Name, Option<Entry<TreeEntry>>> = BTreeMap::new();
        for (number, rdev) in round {
            let name = name_of(number);
            match rdev {
                Some(rdev) => model.insert(name.clone(), rdev),
                None => model.remove(&name),
            };
            edits.insert(name.clone(), rdev.map(|rdev| entry(&name, rdev)));
        }
        tree = edit(&mut memory, tree, edits.into_iter().collect()).unwrap();
        let scratch = build_all(&mut memory, &model);
        assert_eq!(
            tree, scratch,
            "an edited tree must be the tree built from its entries"
        );
        check_differences(&memory, (before.0, &before.1), (tree, &model));
        check_differences(&memory, (tree, &model), (before.0, &before.1));
    }
    let all = all::<Entry<TreeEntry>>(&memory, tree).unwrap();
    let expected: Vec<_> = model
        .iter()
        .map(|(name, rdev)| entry(name, *rdev))
        .collect();
    assert_eq!(all, expected);
    for number in 0..100 {
        let name = name_of(number);
        let found = lookup_entry(&memory, tree, &name).unwrap();
        assert_eq!(found, model.get(&name).map(|rdev| entry(&name, *rdev).1));
    }
}

fn change(range: u32) -> impl Strategy<Value = (u32, Option<u64>)> {
    (0..range, proptest::option::weighted(0.6, 0_u64..3))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn edits_give_the_tree_that_its_entries_give(
        first in proptest::collection::vec(change(2000), 0..3000),
        rounds in proptest::collection::vec(proptest::collection::vec(change(2000), 0..60), 1..8),
    ) {
        let mut all = vec![first];
        all.extend(rounds);
        run(all);
    }

    #[test]
    fn trees_shrink_and_grow_across_the_node_limit(
        rounds in proptest::collection::vec(proptest::collection::vec(change(330), 0..200), 1..20),
    ) {
        run(rounds);
    }
}

#[test]
fn trees_of_three_levels_edit_shrink_and_vanish() {
    let fill = (0..45_000).map(|number| (number, Some(0))).collect();
    let some = (0..45_000)
        .step_by(997)
        .map(|number| (number, Some(1)))
        .collect();
    let fewer = (10_000..45_000).map(|number| (number, None)).collect();
    let few = (200..10_000).map(|number| (number, None)).collect();
    let none = (0..200).map(|number| (number, None)).collect();
    let again = (0..300).map(|number| (number, Some(2))).collect();
    run(vec![fill, some, fewer, few, none, again]);
}

#[test]
fn removing_boundaries_joins_nodes_and_adding_them_splits() {
    let mut memory = Memory::default();
    let names: Vec<u32> = (0..3000).collect();
    let boundaries: Vec<u32> = names
        .iter()
        .copied()
        .filter(|number| is_boundary(&name_of(*number), 0))
        .collect();
    assert!(boundaries.len() > 5);
    let fill = names.iter().map(|number| (*number, Some(0))).collect();
    let mut rounds: Vec<Vec<(u32, Option<u64>)>> = vec![fill];
    for number in &boundaries {
        rounds.push(vec![(*number, None)]);
    }
    for number in boundaries.iter().rev() {
        rounds.push(vec![(*number, Some(0))]);
    }
    rounds.push(boundaries.iter().map(|number| (*number, None)).collect());
    run(rounds);
    let root = build_all(
        &mut memory,
        &names.iter().map(|n| (name_of(*n), 0)).collect(),
    );
    assert!(matches!(
        memory.node(root).unwrap().as_ref(),
        StoredNode::Inner(_)
    ));
}

#[test]
fn one_edit_of_a_large_tree_writes_one_node_a_level() {
    let mut memory = Memory::default();
    let model = (0..100_000).map(|number| (name_of(number), 0)).collect();
    let tree = build_all(&mut memory, &model);
    memory.written = 0;
    let name = name_of(54_321);
    edit(
        &mut memory,
        tree,
        vec![(name.clone(), Some(entry(&name, 9)))],
    )
    .unwrap();
    assert!(memory.written <= 4, "{} nodes", memory.written);
}
