//! Large sparse files: their holes are neither read nor stored, and come back as zeros.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::edit::{Content, EntryEdit, InodeEdit, NodeEdit, SnapshotEdit};
use workspace_store::object::{Attributes, Hole, Node, TreeEntry};
use workspace_store::reader::ObjectReader;
use workspace_store::{Store, StoreOptions};

const SIZE: u64 = 3 << 30;
const DATA: u64 = 1_234_567;

/// Three gibibytes with data in one place.
struct Sparse;

impl Content for Sparse {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        let end = offset + buffer.len() as u64;
        assert!(
            offset >= DATA && end <= DATA + 4096,
            "a hole was read at {offset}"
        );
        buffer.fill(b'x');
        Ok(buffer.len())
    }

    fn holes(&self) -> Vec<Hole> {
        vec![
            Hole {
                offset: 0,
                length: DATA,
            },
            Hole {
                offset: DATA + 4096,
                length: SIZE - DATA - 4096,
            },
        ]
    }
}

#[test]
fn a_sparse_file_takes_the_space_of_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let workspace = store.create_workspace("demo", "ada").unwrap();
    let base = store.commit(workspace.head).unwrap().root.clone();
    let put = EntryEdit::Put(InodeEdit {
        attributes: Attributes {
            mode: 0o600,
            ..Attributes::default()
        },
        node: NodeEdit::Content {
            key: 1,
            content: Arc::new(Sparse),
        },
    });
    let edit = SnapshotEdit::changing(&base, BTreeMap::from([(b"disk.img"[..].into(), put)]));
    let root = store.build_root(&base, edit, &|_| {}).unwrap();
    let statistics = store.statistics(workspace.id).unwrap();
    assert!(statistics.chunk_bytes < 2 << 20, "{statistics:?}");
    assert!(statistics.database_bytes < 4 << 20, "{statistics:?}");

    let Some(TreeEntry::Inline(inode)) = store.lookup(root.tree, b"disk.img").unwrap() else {
        panic!("the file is missing");
    };
    let Node::Regular { blob, size, holes } = inode.node else {
        panic!("it is no file");
    };
    assert_eq!((size, &holes[..]), (SIZE, &Sparse.holes()[..]));
    let mut buffer = vec![1; 10_000];
    for (offset, count) in [
        (0, 10_000),
        (SIZE / 2 + 7, 10_000),
        (SIZE - 5, 5),
        (SIZE, 0),
    ] {
        buffer.fill(1);
        assert_eq!(store.read_blob(blob, offset, &mut buffer).unwrap(), count);
        assert!(buffer[..count].iter().all(|byte| *byte == 0), "at {offset}");
    }
    assert_eq!(
        store.read_blob(blob, DATA - 10, &mut buffer).unwrap(),
        10_000
    );
    assert!(buffer[..10].iter().all(|byte| *byte == 0));
    assert!(buffer[10..4106].iter().all(|byte| *byte == b'x'));
    assert!(buffer[4106..].iter().all(|byte| *byte == 0));
    assert_eq!(store.check(&|_| {}).unwrap().problems, []);
}
