//! Everything that a directory tree holds, to compare two trees byte by byte and attribute by
//! attribute.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;
use walkdir::WalkDir;

/// One entry with all that a faithful copy must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `char`, `block`.
    pub kind: &'static str,
    /// The twelve permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Time of the last modification, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Length of a regular file.
    pub size_bytes: u64,
    /// Device number of a device.
    pub device: u64,
    /// BLAKE3 of a file's content, or the target of a symbolic link.
    pub content: String,
    /// Extended attributes, ACLs among them.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in byte order, that names the same file; itself if it is the only one.
    pub first_name: PathBuf,
}

/// Entries by their path relative to the top; the top itself is the empty path.
pub type Manifest = BTreeMap<PathBuf, Entry>;

/// Reads a whole tree.
///
/// # Panics
/// If something in it can't be read.
pub fn manifest(top: &Path) -> Manifest {
    let mut entries = Manifest::new();
    let mut first_names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut paths: Vec<PathBuf> = WalkDir::new(top)
        .into_iter()
        .map(|entry| entry.expect("a readable tree").into_path())
        .collect();
    paths.sort();
    for path in paths {
        let relative = path
            .strip_prefix(top)
            .expect("walked from the top")
            .to_path_buf();
        let mut entry = read_entry(&path);
        entry.first_name = relative.clone();
        let metadata = fs::symlink_metadata(&path).expect("an entry that was just read");
        if metadata.nlink() > 1 && !metadata.is_dir() {
            entry.first_name = first_names
                .entry((metadata.dev(), metadata.ino()))
                .or_insert_with(|| relative.clone())
                .clone();
        }
        entries.insert(relative, entry);
    }
    entries
}

/// Fails the test with the first differences between two trees.
#[track_caller]
pub fn assert_same_tree(expected: &Manifest, actual: &Manifest) {
    let mut differences = Vec::new();
    for (path, entry) in expected {
        match actual.get(path) {
            None => differences.push(format!("{path:?} is missing")),
            Some(other) if other != entry => {
                differences.push(format!("{path:?} is {other:?}, was {entry:?}"));
            }
            Some(_) => {}
        }
    }
    for path in actual.keys().filter(|path| !expected.contains_key(*path)) {
        differences.push(format!("{path:?} should not be there"));
    }
    let count = differences.len();
    differences.truncate(8);
    assert!(
        differences.is_empty(),
        "{count} differences, the first: {differences:#?}"
    );
}

fn read_entry(path: &Path) -> Entry {
    let metadata = fs::symlink_metadata(path)
        .unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
    let file_type = metadata.file_type();
    let kind = if file_type.is_file() {
        "file"
    } else if file_type.is_dir() {
        "directory"
    } else if file_type.is_symlink() {
        "symlink"
    } else if file_type.is_fifo() {
        "fifo"
    } else if file_type.is_socket() {
        "socket"
    } else if file_type.is_char_device() {
        "char"
    } else {
        "block"
    };
    let content = match kind {
        "file" => hash_file(path),
        "symlink" => format!("{:?}", fs::read_link(path).expect("a readable link")),
        _ => String::new(),
    };
    Entry {
        kind,
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        size_bytes: if kind == "file" { metadata.len() } else { 0 },
        device: if matches!(kind, "char" | "block") {
            metadata.rdev()
        } else {
            0
        },
        content,
        xattrs: read_xattrs(path),
        first_name: PathBuf::new(),
    }
}

fn hash_file(path: &Path) -> String {
    let mut file =
        fs::File::open(path).unwrap_or_else(|error| panic!("opening {}: {error}", path.display()));
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file
            .read(&mut buffer)
            .unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
        if count == 0 {
            return hasher.finalize().to_hex().to_string();
        }
        hasher.update(&buffer[..count]);
    }
}

fn read_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    const MAX_XATTR_BYTES: usize = 64 << 10;
    let c_path = CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
    let mut names = vec![0u8; MAX_XATTR_BYTES];
    // SAFETY: path and buffer are valid for the call, and the buffer's length is passed.
    let length =
        unsafe { libc::llistxattr(c_path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let Ok(length) = usize::try_from(length) else {
        return BTreeMap::new();
    };
    let mut attributes = BTreeMap::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let c_name = CString::new(name).expect("split at NUL");
        let mut value = vec![0u8; MAX_XATTR_BYTES];
        // SAFETY: both strings and the buffer are valid for the call, and its length is passed.
        let length = unsafe {
            libc::lgetxattr(
                c_path.as_ptr(),
                c_name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        let length = usize::try_from(length).unwrap_or_else(|_| {
            panic!(
                "{:?} of {} is listed but can't be read",
                OsStr::from_bytes(name),
                path.display()
            )
        });
        value.truncate(length);
        attributes.insert(name.to_vec(), value);
    }
    attributes
}

/// The same without the time of the root directory, which its entries set.
pub fn without_root_times(mut tree: Manifest) -> Manifest {
    for (path, entry) in &mut tree {
        if path.as_os_str().is_empty() {
            entry.mtime_ns = 0;
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{make_odd_tree, shell_ok};

    #[test]
    fn a_faithful_copy_is_equal_and_every_change_is_seen() {
        let directory = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let source = directory.path().join("source");
        fs::create_dir(&source).unwrap();
        make_odd_tree(&source);
        shell_ok(directory.path(), "rsync -aHAXS --numeric-ids source/ copy/");
        let expected = manifest(&source);
        let copy = directory.path().join("copy");
        assert_same_tree(&expected, &manifest(&copy));
        let kinds: std::collections::BTreeSet<&str> =
            expected.values().map(|entry| entry.kind).collect();
        assert_eq!(kinds.len(), 7, "{kinds:?}");
        for change in [
            "chmod u-s setuid",
            "chown 1:1 owned",
            "touch -d '2020-01-01' zero-length",
            "setfattr -x user.comment plain/hello.txt",
            "setfacl -b plain/secret",
            "rm hard-one; cp -p plain/hello.txt hard-one",
            "rm pipe",
            "ln -sfn elsewhere dangling",
            "printf X | dd of=big-hard conv=notrunc status=none",
            "mkdir more",
        ] {
            let before = manifest(&copy);
            shell_ok(&copy, change);
            assert_ne!(before, manifest(&copy), "`{change}` is not seen");
        }
    }
}
