//! Export into a real directory, with everything that the store keeps of an inode.
//!
//! The calling thread makes directories and special files; workers write the regular files.
//! Directories get their attributes last, deepest first, because writing into them changes their
//! times. Everything happens relative to open directories and without following links, so that
//! nothing outside the target can be touched.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::{BUFFER_BYTES, Export, copy_range, data_ranges};
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::TreeId;
use crate::lookup::{require_path, resolve_entry};
use crate::metadata::{c_string, check, open_at, open_directory_below, write_attributes_at};
use crate::object::{Attributes, Inode, LinkId, Name, Node, Root, TreeEntry};
use crate::path::{display_path, join_path, split_path};
use crate::progress::{Progress, check_cancelled};
use crate::reader::ObjectReader;

/// Threads that write regular files.
const WRITER_COUNT: usize = 4;
/// Files waiting for a writer; each may hold its directory open.
const QUEUE_LENGTH: usize = 64;

/// Writes the tree of `root`, or what is at `path` in it, to `target`.
///
/// A directory's entries are put into `target`, which must be empty or not exist; any other kind
/// becomes `target` itself, which then must not exist. What this user can't set (owners, device
/// nodes, attributes) is left out and listed as warnings. All is on the disk at return.
///
/// # Errors
/// `AlreadyExists` if the target isn't empty; `NotFound` if there is no such path. After any
/// later error an incomplete copy stays in the target and the message says so.
pub fn export_directory(
    reader: &dyn ObjectReader,
    root: &Root,
    path: &[u8],
    target: &Path,
    progress: &dyn Progress,
) -> Result<Export> {
    let names = split_path(path)?;
    let entry = require_path(reader, root, &names)?;
    let inode = resolve_entry(reader, root.links, &entry)?;
    let Node::Directory { tree } = inode.node else {
        return export_file(reader, path, &inode, target, progress);
    };
    let directory = open_target(target)?;
    let shared = Shared::new(reader, progress);
    let result = shared.run(root.links, path, &inode.attributes, tree, &directory);
    finish(shared, result, &directory, target)
}

fn export_file(
    reader: &dyn ObjectReader,
    path: &[u8],
    inode: &Inode,
    target: &Path,
    progress: &dyn Progress,
) -> Result<Export> {
    use std::os::unix::ffi::OsStrExt;
    let name = target.file_name().ok_or_else(|| {
        StoreError::new(
            ErrorKind::InvalidInput,
            format!("'{}' can't be the name of a file", target.display()),
        )
    })?;
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = open_directory(parent)?;
    let shared = Shared::new(reader, progress);
    let mut buffer = vec![0; BUFFER_BYTES];
    let result = shared.inode(directory.as_fd(), name.as_bytes(), path, inode, &mut buffer);
    finish(shared, result, &directory, target)
}

fn finish(
    shared: Shared<'_>,
    result: Result<()>,
    directory: &OwnedFd,
    target: &Path,
) -> Result<Export> {
    let result = result.and_then(|()| {
        // SAFETY: the descriptor is open.
        check(unsafe { libc::syncfs(directory.as_raw_fd()) })
            .map_err(|error| StoreError::io("bringing the export to the disk", error))?;
        Ok(())
    });
    match result {
        Ok(()) => Ok(shared.export.into_inner()),
        Err(error) => Err(StoreError::new(
            error.kind(),
            format!("{}; the export is incomplete", error.message()),
        )
        .with_hint(format!(
            "remove what was written to '{}' before trying again",
            target.display()
        ))
        .with_source(error)),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path)
        .map_err(|error| {
            StoreError::io(format!("opening the directory '{}'", path.display()), error)
        })?;
    Ok(file.into())
}

fn open_target(target: &Path) -> Result<OwnedFd> {
    match std::fs::DirBuilder::new().mode(0o700).create(target) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            let what = format!("creating the directory '{}'", target.display());
            return Err(StoreError::io(what, error));
        }
    }
    let directory = open_directory(target)?;
    let names = crate::metadata::read_names(directory.as_fd()).map_err(|error| {
        StoreError::io(
            format!("reading the directory '{}'", target.display()),
            error,
        )
    })?;
    if !names.is_empty() {
        return Err(StoreError::new(
            ErrorKind::AlreadyExists,
            format!("the directory '{}' is not empty", target.display()),
        )
        .with_hint("name an empty or new directory; an export never overwrites files"));
    }
    // Entries must not inherit ACLs; the directory's own attributes are set at the end.
    // SAFETY: the descriptor is open and the name ends with NUL. There may be nothing to remove.
    unsafe {
        libc::fremovexattr(directory.as_raw_fd(), c"system.posix_acl_default".as_ptr());
    }
    Ok(directory)
}

struct Job {
    directory: Arc<OwnedFd>,
    name: Name,
    path: Vec<u8>,
    inode: Inode,
}

struct Shared<'a> {
    reader: &'a dyn ObjectReader,
    progress: &'a dyn Progress,
    export: Mutex<Export>,
    error: Mutex<Option<StoreError>>,
    is_stopped: AtomicBool,
}

struct PendingDirectory {
    names: Vec<Name>,
    tree: TreeId,
}

impl<'a> Shared<'a> {
    fn new(reader: &'a dyn ObjectReader, progress: &'a dyn Progress) -> Self {
        Self {
            reader,
            progress,
            export: Mutex::new(Export::default()),
            error: Mutex::new(None),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn run(
        &self,
        links: Option<TreeId>,
        prefix: &[u8],
        attributes: &Attributes,
        tree: TreeId,
        target: &OwnedFd,
    ) -> Result<()> {
        let (sender, receiver) = bounded(QUEUE_LENGTH);
        let mut walk = Walk {
            shared: self,
            links,
            prefix,
            target,
            directories: vec![(Vec::new(), attributes.clone())],
            first_names: HashMap::new(),
            other_names: Vec::new(),
        };
        let walked = std::thread::scope(|scope| {
            for _ in 0..WRITER_COUNT {
                let receiver = receiver.clone();
                scope.spawn(move || self.write_files(&receiver));
            }
            drop(receiver);
            let walked = walk.walk(tree, &sender);
            drop(sender);
            walked
        });
        if let Some(error) = self.error.lock().take() {
            return Err(error);
        }
        walked?;
        walk.link_other_names()?;
        walk.set_directory_attributes()
    }

    fn write_files(&self, jobs: &Receiver<Job>) {
        let mut buffer = vec![0; BUFFER_BYTES];
        for job in jobs {
            if self.is_stopped.load(Ordering::Relaxed) {
                continue;
            }
            let directory = job.directory.as_fd();
            let written = self.inode(directory, &job.name, &job.path, &job.inode, &mut buffer);
            if let Err(error) = written {
                self.is_stopped.store(true, Ordering::Relaxed);
                self.error.lock().get_or_insert(error);
            }
        }
    }

    /// Makes one inode that is no directory, with all its attributes.
    fn inode(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
        buffer: &mut [u8],
    ) -> Result<()> {
        check_cancelled(self.progress, "the export")?;
        let fail = |error| StoreError::io(format!("creating '{}'", display_path(path)), error);
        let c_name = c_string(name).map_err(fail)?;
        let mut bytes = 0;
        let make_node = |mode: u32, rdev: u64| {
            // SAFETY: the descriptor is open and the name ends with NUL.
            check(unsafe {
                libc::mknodat(directory.as_raw_fd(), c_name.as_ptr(), mode | 0o600, rdev)
            })
        };
        match &inode.node {
            Node::Regular { blob, size, holes } => {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
                let file = File::from(open_at(directory, name, flags, 0o600).map_err(fail)?);
                for range in data_ranges(*size, holes) {
                    copy_range(self.reader, *blob, path, range, buffer, |offset, data| {
                        file.write_all_at(data, offset)
                    })?;
                }
                // A hole at the end has no data that would make the file long enough.
                if !holes.is_empty() {
                    file.set_len(*size).map_err(fail)?;
                }
                bytes = *size;
            }
            Node::Symlink { target } => {
                let target = c_string(target).map_err(fail)?;
                // SAFETY: the descriptor is open and both strings end with NUL.
                check(unsafe {
                    libc::symlinkat(target.as_ptr(), directory.as_raw_fd(), c_name.as_ptr())
                })
                .map_err(fail)?;
            }
            Node::Fifo => {
                make_node(libc::S_IFIFO, 0).map_err(fail)?;
            }
            Node::Socket => {
                make_node(libc::S_IFSOCK, 0).map_err(fail)?;
            }
            Node::CharDevice { rdev } | Node::BlockDevice { rdev } => {
                match make_node(inode.node.file_type_bits(), *rdev) {
                    Ok(_) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                        let path = display_path(path);
                        let warning = format!("device '{path}' was left out: {error}");
                        self.export.lock().warn(warning);
                        return Ok(());
                    }
                    Err(error) => return Err(fail(error)),
                }
            }
            Node::Directory { .. } => {
                return Err(StoreError::new(
                    ErrorKind::Internal,
                    format!("'{}' is a directory", display_path(path)),
                ));
            }
        }
        let is_symlink = matches!(inode.node, Node::Symlink { .. });
        self.set_attributes(directory, name, path, &inode.attributes, is_symlink)?;
        let mut export = self.export.lock();
        export.entry_count += 1;
        export.byte_count += bytes;
        drop(export);
        self.progress.entry(path, bytes);
        Ok(())
    }

    fn set_attributes(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        attributes: &Attributes,
        is_symlink: bool,
    ) -> Result<()> {
        let refused =
            write_attributes_at(directory, name, attributes, is_symlink).map_err(|error| {
                let path = display_path(path);
                StoreError::io(format!("setting the attributes of '{path}'"), error)
            })?;
        for (what, error) in refused {
            let warning = format!("{what} of '{}' not set: {error}", display_path(path));
            self.export.lock().warn(warning);
        }
        Ok(())
    }
}

struct Walk<'a> {
    shared: &'a Shared<'a>,
    links: Option<TreeId>,
    prefix: &'a [u8],
    target: &'a OwnedFd,
    directories: Vec<(Vec<Name>, Attributes)>,
    first_names: HashMap<LinkId, (Vec<Name>, Name)>,
    other_names: Vec<(LinkId, Vec<Name>, Name)>,
}

impl Walk<'_> {
    fn path(&self, names: &[Name]) -> Vec<u8> {
        if names.is_empty() {
            return self.prefix.to_vec();
        }
        join_path(self.prefix, &names.join(&b'/'))
    }

    fn open(&self, names: &[Name]) -> Result<OwnedFd> {
        open_directory_below(self.target.as_fd(), names).map_err(|error| {
            let path = display_path(&self.path(names));
            StoreError::io(format!("opening the exported directory '{path}'"), error)
        })
    }

    fn walk(&mut self, tree: TreeId, jobs: &Sender<Job>) -> Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut pending = vec![PendingDirectory {
            names: Vec::new(),
            tree,
        }];
        while let Some(PendingDirectory { names, tree }) = pending.pop() {
            let directory = Arc::new(self.open(&names)?);
            let directory_path = self.path(&names);
            for (name, entry) in self.shared.reader.directory(tree)? {
                if self.shared.is_stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let path = join_path(&directory_path, &name);
                if let TreeEntry::Link(id) = entry {
                    if self.first_names.contains_key(&id) {
                        self.other_names.push((id, names.clone(), name));
                        continue;
                    }
                    self.first_names.insert(id, (names.clone(), name.clone()));
                }
                let inode = resolve_entry(self.shared.reader, self.links, &entry)?;
                match inode.node {
                    Node::Directory { tree } => {
                        self.make_directory(directory.as_fd(), &name, &path)?;
                        let mut child_names = names.clone();
                        child_names.push(name);
                        self.directories
                            .push((child_names.clone(), inode.attributes));
                        pending.push(PendingDirectory {
                            names: child_names,
                            tree,
                        });
                    }
                    Node::Regular { .. } => {
                        let job = Job {
                            directory: Arc::clone(&directory),
                            name,
                            path,
                            inode,
                        };
                        // The writers take jobs until the sender is dropped.
                        if jobs.send(job).is_err() {
                            return Ok(());
                        }
                    }
                    _ => {
                        self.shared
                            .inode(directory.as_fd(), &name, &path, &inode, &mut buffer)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn make_directory(&self, parent: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<()> {
        check_cancelled(self.shared.progress, "the export")?;
        let fail = |error| {
            StoreError::io(
                format!("creating the directory '{}'", display_path(path)),
                error,
            )
        };
        let name = c_string(name).map_err(fail)?;
        // SAFETY: the descriptor is open and the name ends with NUL.
        check(unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o700) }).map_err(fail)?;
        self.shared.export.lock().entry_count += 1;
        self.shared.progress.entry(path, 0);
        Ok(())
    }

    fn link_other_names(&self) -> Result<()> {
        for (id, names, name) in &self.other_names {
            let path = join_path(&self.path(names), name);
            let (first_names, first_name) = &self.first_names[id];
            let from = self.open(first_names)?;
            let to = self.open(names)?;
            let fail = |error| StoreError::io(format!("linking '{}'", display_path(&path)), error);
            let first_name = c_string(first_name).map_err(fail)?;
            let name = c_string(name).map_err(fail)?;
            // SAFETY: both descriptors are open and both names end with NUL.
            let linked = check(unsafe {
                libc::linkat(
                    from.as_raw_fd(),
                    first_name.as_ptr(),
                    to.as_raw_fd(),
                    name.as_ptr(),
                    0,
                )
            });
            match linked {
                Ok(_) => {}
                // Its first name was a device that this user may not make.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    let path = display_path(&path);
                    let warning = format!("'{path}' was left out: its first name was left out");
                    self.shared.export.lock().warn(warning);
                    continue;
                }
                Err(error) => return Err(fail(error)),
            }
            self.shared.export.lock().entry_count += 1;
            self.shared.progress.entry(&path, 0);
        }
        Ok(())
    }

    fn set_directory_attributes(&self) -> Result<()> {
        // Parents were pushed before their children.
        for (names, attributes) in self.directories.iter().rev() {
            let directory = self.open(names)?;
            let path = self.path(names);
            self.shared
                .set_attributes(directory.as_fd(), b".", &path, attributes, false)?;
        }
        Ok(())
    }
}
