//! Import of a real directory with everything that its inodes carry.
//!
//! No symbolic link below the given directory is followed. Few descriptors are open at a time:
//! the directory being read, and a small pool of files whose content the store is reading. A
//! file that changed between the walk and the reading of its content makes the import fail.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Import;
use super::assembly::{Assembly, DirectoryIndex};
use crate::edit::{Content, InodeEdit, NodeEdit};
use crate::error::{ErrorKind, Result, StoreError};
use crate::metadata::{
    self, Status, open_at, open_directory_below, read_holes, read_link_at, read_names,
    read_xattrs_at, status, status_at,
};
use crate::object::{Hole, Name, Node};
use crate::path::{display_path, join_path};
use crate::progress::{Progress, check_cancelled};

/// Deepest directory that is imported; as deep as the longest path that the kernel takes.
const DEPTH_LIMIT: usize = 2048;
/// Files held open at a time while the store reads their contents.
const OPEN_FILE_LIMIT: usize = 16;

/// Reads the tree below `directory`, metadata now and contents when the store asks for them.
///
/// # Errors
/// The path that can't be read, or that vanished meanwhile. Nothing is kept then.
pub fn import_directory(directory: &Path, progress: &dyn Progress) -> Result<Import> {
    let what = || format!("opening the directory '{}' to import", directory.display());
    let root = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(directory)
        .map_err(|error| StoreError::io(what(), error))?;
    let root: OwnedFd = root.into();
    let source = Arc::new(Source {
        root,
        display: directory.display().to_string(),
        open: Mutex::new(VecDeque::new()),
        // SAFETY: asking for the effective user has no side effects.
        is_privileged: unsafe { libc::geteuid() } == 0,
    });
    let mut walk = Walk {
        assembly: Assembly::new(source.root_attributes()?),
        inodes: HashMap::new(),
        source,
        progress,
    };
    let mut pending: Vec<(DirectoryIndex, Option<Arc<Location>>)> = vec![(0, None)];
    while let Some((index, location)) = pending.pop() {
        walk.directory(index, location.as_ref(), &mut pending)?;
    }
    Ok(walk.assembly.finish(Vec::new()))
}

/// Where a directory is: its names up to the root, shared with its siblings.
#[derive(Debug)]
struct Location {
    parent: Option<Arc<Location>>,
    name: Name,
}

fn names_of(location: Option<&Arc<Location>>) -> Vec<&[u8]> {
    let mut names = Vec::new();
    let mut at = location;
    while let Some(location) = at {
        names.push(location.name.as_ref());
        at = location.parent.as_ref();
    }
    names.reverse();
    names
}

/// The imported directory, shared by all contents.
#[derive(Debug)]
struct Source {
    root: OwnedFd,
    display: String,
    open: Mutex<VecDeque<(u64, Arc<File>)>>,
    is_privileged: bool,
}

impl Source {
    fn failed(&self, what: &str, path: &[u8], error: io::Error) -> StoreError {
        let hint = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ELOOP | libc::ENOTDIR) => {
                "the directory changed while it was read; stop what writes to it and try again"
            }
            Some(libc::EACCES | libc::EPERM) => "run as a user who may read it",
            _ => "nothing was imported",
        };
        StoreError::io(
            format!("{what} '{}/{}'", self.display, display_path(path)),
            error,
        )
        .with_hint(hint)
    }

    fn root_attributes(&self) -> Result<crate::object::Attributes> {
        let fail = |error| self.failed("reading attributes of", b"", error);
        let status = status(self.root.as_fd()).map_err(fail)?;
        let xattrs = read_xattrs_at(self.root.as_fd(), b".").map_err(fail)?;
        Ok(status.attributes(xattrs))
    }
}

struct Walk<'a> {
    assembly: Assembly,
    /// Files with several names, by filesystem and inode number.
    inodes: HashMap<(u64, u64), usize>,
    source: Arc<Source>,
    progress: &'a dyn Progress,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        index: DirectoryIndex,
        location: Option<&Arc<Location>>,
        pending: &mut Vec<(DirectoryIndex, Option<Arc<Location>>)>,
    ) -> Result<()> {
        let names = names_of(location);
        let directory_path = names.join(&b'/');
        let source = Arc::clone(&self.source);
        if names.len() > DEPTH_LIMIT {
            return Err(StoreError::new(
                ErrorKind::Unsupported,
                format!(
                    "importing '{}/{}': more than {DEPTH_LIMIT} directories deep",
                    source.display,
                    display_path(&directory_path)
                ),
            ));
        }
        let fail = |error| source.failed("reading the directory", &directory_path, error);
        let directory = open_directory_below(source.root.as_fd(), &names).map_err(fail)?;
        let mut children = read_names(directory.as_fd()).map_err(fail)?;
        children.sort_unstable();
        for name in children {
            check_cancelled(self.progress, "the import")?;
            let path = join_path(&directory_path, &name);
            let size = self
                .entry(index, &directory, location, &name, pending)
                .map_err(|error| source.failed("reading", &path, error))?;
            self.progress.entry(&path, size);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        parent: DirectoryIndex,
        directory: &OwnedFd,
        location: Option<&Arc<Location>>,
        name: &[u8],
        pending: &mut Vec<(DirectoryIndex, Option<Arc<Location>>)>,
    ) -> io::Result<u64> {
        let directory = directory.as_fd();
        let status = status_at(directory, name)?;
        let identity = (status.device, status.inode);
        if let Some(inode) = self.inodes.get(&identity) {
            self.assembly.add_name(parent, name.into(), *inode);
            return Ok(0);
        }
        let attributes = status.attributes(read_xattrs_at(directory, name)?);
        if status.is_directory() {
            let index = self.assembly.add_directory(parent, name.into(), attributes);
            let location = Location {
                parent: location.cloned(),
                name: name.into(),
            };
            pending.push((index, Some(Arc::new(location))));
            return Ok(0);
        }
        let mut size = 0;
        let node = match status.file_type() {
            libc::S_IFREG => {
                size = status.size;
                self.content(directory, location, name, status)?
            }
            libc::S_IFLNK => NodeEdit::Stored(Node::Symlink {
                target: read_link_at(directory, name)?,
            }),
            libc::S_IFIFO => NodeEdit::Stored(Node::Fifo),
            libc::S_IFSOCK => NodeEdit::Stored(Node::Socket),
            libc::S_IFCHR => NodeEdit::Stored(Node::CharDevice { rdev: status.rdev }),
            libc::S_IFBLK => NodeEdit::Stored(Node::BlockDevice { rdev: status.rdev }),
            _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        let inode = self
            .assembly
            .add_inode(parent, name.into(), InodeEdit { attributes, node });
        if status.link_count > 1 {
            self.inodes.insert(identity, inode);
        }
        Ok(size)
    }

    fn content(
        &mut self,
        directory: std::os::fd::BorrowedFd<'_>,
        location: Option<&Arc<Location>>,
        name: &[u8],
        status: Status,
    ) -> io::Result<NodeEdit> {
        let mut holes = Vec::new();
        let is_sparse = status.blocks.saturating_mul(512) < status.size;
        // Whether a file can be read is known before the store begins to write: a privileged
        // user can read everything, for others it is tried.
        if is_sparse || !self.source.is_privileged {
            let file = open_at(directory, name, libc::O_RDONLY, 0)?;
            if metadata::status(file.as_fd())? != status {
                return Err(changed());
            }
            if is_sparse {
                holes = read_holes(file.as_fd(), status.size)?;
            }
        }
        let key = self.assembly.next_key();
        Ok(NodeEdit::Content {
            key,
            content: Arc::new(FileContent {
                source: Arc::clone(&self.source),
                directory: location.cloned(),
                name: name.into(),
                key,
                expected: status,
                holes,
            }),
        })
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was imported; stop what writes to it and try again")
}

/// Bytes of a file below the imported directory, opened when they are read.
struct FileContent {
    source: Arc<Source>,
    directory: Option<Arc<Location>>,
    name: Name,
    key: u64,
    expected: Status,
    holes: Vec<Hole>,
}

impl FileContent {
    fn path(&self) -> Vec<u8> {
        join_path(&names_of(self.directory.as_ref()).join(&b'/'), &self.name)
    }

    fn open(&self) -> io::Result<Arc<File>> {
        let mut open = self.source.open.lock();
        if let Some((_, file)) = open.iter().find(|(key, _)| *key == self.key) {
            return Ok(Arc::clone(file));
        }
        let names = names_of(self.directory.as_ref());
        let directory = open_directory_below(self.source.root.as_fd(), &names)?;
        let file = open_at(directory.as_fd(), &self.name, libc::O_RDONLY, 0)?;
        self.verify(&file)?;
        let file = Arc::new(File::from(file));
        if open.len() >= OPEN_FILE_LIMIT {
            open.pop_front();
        }
        open.push_back((self.key, Arc::clone(&file)));
        Ok(file)
    }

    /// Fails if the file is no longer what the walk saw. The number of names and the change
    /// time may differ: another name may have come or gone.
    fn verify(&self, file: &impl AsFd) -> io::Result<()> {
        let now = status(file.as_fd())?;
        let expected = Status {
            link_count: now.link_count,
            blocks: now.blocks,
            ctime: if now.link_count == self.expected.link_count {
                self.expected.ctime
            } else {
                now.ctime
            },
            ..self.expected
        };
        if now == expected {
            return Ok(());
        }
        Err(changed())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.expected.size;
        if offset >= size || buffer.is_empty() {
            return Ok(0);
        }
        let file = self.open()?;
        let wanted = buffer.len().min((size - offset) as usize);
        file.read_exact_at(&mut buffer[..wanted], offset)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => changed(),
                _ => error,
            })?;
        if offset + wanted as u64 == size {
            self.source.open.lock().retain(|(key, _)| *key != self.key);
            self.verify(&*file)?;
        }
        Ok(wanted)
    }
}

impl Content for FileContent {
    fn size(&self) -> u64 {
        self.expected.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(offset, buffer).map_err(|error| {
            let path = display_path(&self.path());
            io::Error::new(
                error.kind(),
                format!("reading '{}/{path}': {error}", self.source.display),
            )
        })
    }

    fn holes(&self) -> Vec<Hole> {
        self.holes.clone()
    }
}
