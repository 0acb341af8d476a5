//! A small filesystem in memory, to run the transport against a real kernel.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fuse_mount::fs::request::{
    Caller, Changed, DirectoryEntry, Entry, Errno, Failure, FileAttributes, FilesystemStatistics,
    KernelSession, Mode, Request, Response, SetAttributes, SetTime,
};
use fuse_mount::fuse::Handler;
use parking_lot::Mutex;
use workspace_store::object::Timestamp;

#[derive(Default, Clone)]
struct Node {
    attributes: FileAttributes,
    data: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    by_name: BTreeMap<Vec<u8>, (u64, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    parent: u64,
}

#[derive(Default)]
struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
}

/// The filesystem, and switches for tests.
#[derive(Default)]
pub struct Memory {
    tree: Mutex<Tree>,
    pub session: Mutex<Option<Arc<dyn KernelSession>>>,
    pub write_delay_milliseconds: AtomicU64,
    pub panic_on_lookup: AtomicBool,
    pub bytes_written: AtomicU64,
    pub blocked: AtomicU64,
    pub last_pid: AtomicU64,
}

fn errno(errno: i32) -> Failure {
    Failure::Errno(Errno(errno))
}

fn now() -> Timestamp {
    let elapsed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Timestamp::from_nanoseconds(elapsed.as_nanos() as i128)
}

impl Tree {
    fn node(&mut self, inode: u64) -> Result<&mut Node, Failure> {
        self.nodes.get_mut(&inode).ok_or(errno(libc::ENOENT))
    }

    fn child(&mut self, parent: u64, name: &[u8]) -> Result<u64, Failure> {
        let parent = self.node(parent)?;
        parent
            .by_name
            .get(name)
            .map(|found| found.0)
            .ok_or(errno(libc::ENOENT))
    }

    fn entry(&mut self, inode: u64) -> Result<Response, Failure> {
        Ok(Response::Entry(Entry {
            inode,
            generation: 0,
            attributes: self.node(inode)?.attributes,
        }))
    }

    fn make(&mut self, caller: &Caller, mode: u32) -> u64 {
        self.next += 1;
        let inode = self.next;
        let time = now();
        let attributes = FileAttributes {
            inode,
            mode,
            uid: caller.uid,
            gid: caller.gid,
            atime: time,
            mtime: time,
            ctime: time,
            ..FileAttributes::default()
        };
        let node = Node {
            attributes,
            ..Node::default()
        };
        self.nodes.insert(inode, node);
        inode
    }

    fn insert(&mut self, parent: u64, name: &[u8], inode: u64) -> Result<(), Failure> {
        self.next += 1;
        let cookie = self.next + 2;
        let directory = self.node(parent)?;
        if directory.by_name.contains_key(name) {
            return Err(errno(libc::EEXIST));
        }
        directory.by_name.insert(name.to_vec(), (inode, cookie));
        directory.by_cookie.insert(cookie, name.to_vec());
        directory.attributes.mtime = now();
        let node = self.node(inode)?;
        node.parent = parent;
        node.attributes.link_count += 1;
        Ok(())
    }

    fn remove(&mut self, parent: u64, name: &[u8]) -> Result<(), Failure> {
        let directory = self.node(parent)?;
        let (inode, cookie) = directory.by_name.remove(name).ok_or(errno(libc::ENOENT))?;
        directory.by_cookie.remove(&cookie);
        directory.attributes.mtime = now();
        self.node(inode)?.attributes.link_count -= 1;
        Ok(())
    }

    fn change(&mut self, inode: u64, changes: &SetAttributes) -> Result<Response, Failure> {
        let node = self.node(inode)?;
        let attributes = &mut node.attributes;
        if let Some(mode) = changes.mode {
            attributes.mode = attributes.mode & libc::S_IFMT | mode;
        }
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        let time = |change: Option<SetTime>, old| match change {
            None => old,
            Some(SetTime::Now) => now(),
            Some(SetTime::At(time)) => time,
        };
        attributes.atime = time(changes.atime, attributes.atime);
        attributes.mtime = time(changes.mtime, attributes.mtime);
        attributes.ctime = changes.ctime.unwrap_or_else(now);
        if let Some(size) = changes.size {
            node.data.resize(size as usize, 0);
            attributes.size = size;
        }
        Ok(Response::Attributes(*attributes))
    }

    fn list(
        &mut self,
        inode: u64,
        cookie: u64,
        size: u32,
        overhead: u32,
        plus: bool,
    ) -> Result<Response, Failure> {
        let directory = self.node(inode)?;
        let parent = directory.parent;
        let mut listed = vec![(1, b".".to_vec(), inode), (2, b"..".to_vec(), parent)];
        for (position, name) in directory.by_cookie.range(cookie + 1..) {
            listed.push((*position, name.clone(), directory.by_name[name].0));
            if listed.len() > size as usize / overhead as usize + 2 {
                break;
            }
        }
        let mut room = size as usize;
        let mut entries = Vec::new();
        for (position, name, child) in listed {
            if position <= cookie {
                continue;
            }
            let needed = (overhead as usize + name.len()).next_multiple_of(8);
            if needed > room {
                break;
            }
            room -= needed;
            let attributes = self.node(child)?.attributes;
            let entry = (plus && position > 2).then_some(Entry {
                inode: child,
                generation: 0,
                attributes,
            });
            entries.push(DirectoryEntry {
                inode: child,
                cookie: position,
                file_type: attributes.mode & libc::S_IFMT,
                name: name.into(),
                entry,
            });
        }
        Ok(Response::Directory(entries))
    }

    fn rename(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<Response, Failure> {
        let inode = self.child(from.0, from.1)?;
        let target = self.child(to.0, to.1).ok();
        if target == Some(inode) {
            return Ok(Response::Empty);
        }
        match (flags, target) {
            (0, None) | (libc::RENAME_NOREPLACE, None) => self.remove(from.0, from.1)?,
            (0, Some(_)) => {
                self.remove(to.0, to.1)?;
                self.remove(from.0, from.1)?;
            }
            (libc::RENAME_NOREPLACE, Some(_)) => return Err(errno(libc::EEXIST)),
            (libc::RENAME_EXCHANGE, Some(target)) => {
                self.remove(to.0, to.1)?;
                self.remove(from.0, from.1)?;
                self.insert(from.0, from.1, target)?;
            }
            _ => return Err(errno(libc::EINVAL)),
        }
        self.insert(to.0, to.1, inode)?;
        Ok(Response::Empty)
    }
}

impl Memory {
    pub fn new() -> Arc<Self> {
        let memory = Self::default();
        {
            let mut tree = memory.tree.lock();
            let root = Node {
                attributes: FileAttributes {
                    inode: 1,
                    mode: libc::S_IFDIR | 0o755,
                    link_count: 2,
                    mtime: now(),
                    ..FileAttributes::default()
                },
                parent: 1,
                ..Node::default()
            };
            tree.nodes.insert(1, root);
            tree.next = 1;
        }
        Arc::new(memory)
    }

    /// Changes a file behind the kernel's back; returns its inode.
    pub fn replace_content(&self, name: &[u8], data: &[u8]) -> u64 {
        let mut tree = self.tree.lock();
        let inode = tree.child(1, name).unwrap();
        let node = tree.node(inode).unwrap();
        node.data = data.to_vec();
        node.attributes.size = data.len() as u64;
        inode
    }

    /// Adds a file behind the kernel's back.
    pub fn plant(&self, name: &[u8]) {
        let caller = Caller {
            uid: 0,
            gid: 0,
            is_root: true,
            principal: 0,
            pid: 0,
            unique: 0,
            is_resent: false,
        };
        let mut tree = self.tree.lock();
        let inode = tree.make(&caller, libc::S_IFREG | 0o644);
        tree.insert(1, name, inode).unwrap();
    }

    /// Removes a file behind the kernel's back; returns its inode.
    pub fn uproot(&self, name: &[u8]) -> u64 {
        let mut tree = self.tree.lock();
        let inode = tree.child(1, name).unwrap();
        tree.remove(1, name).unwrap();
        inode
    }

    /// Raw value of an attribute, as stored.
    pub fn stored(&self, name: &[u8]) -> (FileAttributes, BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut tree = self.tree.lock();
        let inode = tree.child(1, name).unwrap();
        let node = tree.node(inode).unwrap();
        (node.attributes, node.xattrs.clone())
    }
}

impl Handler for Memory {
    fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        _: &mut Changed,
    ) -> Result<Response, Failure> {
        self.last_pid
            .store(u64::from(caller.pid), Ordering::Relaxed);
        let blocks = match request {
            Request::Sync { .. } => true,
            Request::Write { data, .. } => {
                data.len() > 128 * 1024 || self.write_delay_milliseconds.load(Ordering::Relaxed) > 0
            }
            Request::GetXattr { name, .. } => name.starts_with(b"user.slow"),
            _ => false,
        };
        if blocks && mode == Mode::Inline {
            return Err(Failure::WouldBlock);
        }
        if blocks {
            self.blocked.fetch_add(1, Ordering::Relaxed);
            let delay = self.write_delay_milliseconds.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(delay));
        }
        let mut tree = self.tree.lock();
        let tree = &mut *tree;
        match *request {
            Request::Lookup { parent, name } => {
                assert!(
                    !self.panic_on_lookup.load(Ordering::Relaxed),
                    "as asked for"
                );
                let inode = tree.child(parent, name)?;
                tree.entry(inode)
            }
            Request::Forget { .. } | Request::Release { .. } => Ok(Response::Empty),
            Request::GetAttributes { inode } => {
                Ok(Response::Attributes(tree.node(inode)?.attributes))
            }
            Request::SetAttributes { inode, ref changes } => tree.change(inode, changes),
            Request::ReadLink { inode } => Ok(Response::Data(tree.node(inode)?.data.clone())),
            Request::MakeNode {
                parent,
                name,
                mode,
                rdev,
                umask,
            } => {
                let inode = tree.make(caller, mode & !umask);
                tree.node(inode)?.attributes.rdev = rdev;
                tree.insert(parent, name, inode)?;
                tree.entry(inode)
            }
            Request::MakeDirectory {
                parent,
                name,
                mode,
                umask,
            } => {
                let inode = tree.make(caller, libc::S_IFDIR | mode & !umask);
                tree.node(inode)?.attributes.link_count = 1;
                tree.insert(parent, name, inode)?;
                tree.entry(inode)
            }
            Request::Unlink { parent, name } => {
                tree.remove(parent, name)?;
                Ok(Response::Empty)
            }
            Request::RemoveDirectory { parent, name } => {
                let inode = tree.child(parent, name)?;
                if !tree.node(inode)?.by_name.is_empty() {
                    return Err(errno(libc::ENOTEMPTY));
                }
                tree.remove(parent, name)?;
                Ok(Response::Empty)
            }
            Request::SymbolicLink {
                parent,
                name,
                target,
            } => {
                let inode = tree.make(caller, libc::S_IFLNK | 0o777);
                let node = tree.node(inode)?;
                node.data = target.to_vec();
                node.attributes.size = target.len() as u64;
                tree.insert(parent, name, inode)?;
                tree.entry(inode)
            }
            Request::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
            } => tree.rename((parent, name), (new_parent, new_name), flags),
            Request::Link {
                inode,
                new_parent,
                new_name,
            } => {
                tree.insert(new_parent, new_name, inode)?;
                tree.entry(inode)
            }
            Request::Open { .. } | Request::Sync { .. } | Request::SyncDirectory { .. } => {
                Ok(Response::Empty)
            }
            Request::SyncFilesystem => Ok(Response::Empty),
            Request::Read {
                inode,
                offset,
                size,
            } => {
                let data = &tree.node(inode)?.data;
                let start = (offset as usize).min(data.len());
                let end = (start + size as usize).min(data.len());
                Ok(Response::Data(data[start..end].to_vec()))
            }
            Request::Write {
                inode,
                offset,
                data,
                ..
            } => {
                let node = tree.node(inode)?;
                let end = offset as usize + data.len();
                if node.data.len() < end {
                    node.data.resize(end, 0);
                }
                node.data[offset as usize..end].copy_from_slice(data);
                node.attributes.size = node.data.len() as u64;
                self.bytes_written
                    .fetch_add(data.len() as u64, Ordering::Relaxed);
                Ok(Response::Count(data.len() as u64))
            }
            Request::StatFilesystem => Ok(Response::StatFilesystem(FilesystemStatistics {
                blocks: 1000,
                blocks_free: 500,
                blocks_available: 400,
                files: 100,
                files_free: 50,
                block_size: 4096,
                name_max_bytes: 255,
            })),
            Request::SetXattr {
                inode, name, value, ..
            } => {
                let node = tree.node(inode)?;
                node.xattrs.insert(name.to_vec(), value.to_vec());
                Ok(Response::Empty)
            }
            Request::GetXattr { inode, name, .. } => {
                let node = tree.node(inode)?;
                let value = node.xattrs.get(name).ok_or(errno(libc::ENODATA))?;
                Ok(Response::Data(value.clone()))
            }
            Request::ListXattr { inode, .. } => {
                let names = tree.node(inode)?.xattrs.keys();
                let list = names.flat_map(|name| name.iter().copied().chain([0]));
                Ok(Response::Data(list.collect()))
            }
            Request::RemoveXattr { inode, name } => {
                let removed = tree.node(inode)?.xattrs.remove(name);
                removed.map(|_| Response::Empty).ok_or(errno(libc::ENODATA))
            }
            Request::ReadDirectory {
                inode,
                cookie,
                size,
                overhead_bytes,
                plus,
            } => tree.list(inode, cookie, size, overhead_bytes, plus),
            Request::Create {
                parent,
                name,
                mode,
                umask,
                ..
            } => {
                let inode = tree.make(caller, libc::S_IFREG | mode & 0o7777 & !umask);
                tree.insert(parent, name, inode)?;
                tree.entry(inode)
            }
            Request::TemporaryFile { mode, umask, .. } => {
                let inode = tree.make(caller, libc::S_IFREG | mode & 0o7777 & !umask);
                tree.entry(inode)
            }
            Request::Allocate {
                inode,
                offset,
                length,
                mode,
            } => {
                let node = tree.node(inode)?;
                let end = (offset + length) as usize;
                if mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0 {
                    let end = end.min(node.data.len());
                    node.data[offset as usize..end].fill(0);
                } else if node.data.len() < end {
                    node.data.resize(end, 0);
                    node.attributes.size = end as u64;
                }
                Ok(Response::Empty)
            }
            Request::Seek {
                inode,
                offset,
                whence,
            } => {
                let size = tree.node(inode)?.data.len() as u64;
                if offset >= size {
                    return Err(errno(libc::ENXIO));
                }
                let is_data = whence == libc::SEEK_DATA as u32;
                Ok(Response::Offset(if is_data { offset } else { size }))
            }
            Request::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                length,
            } => {
                let data = tree.node(from)?.data.clone();
                let end = ((from_offset + length) as usize).min(data.len());
                let part = &data[(from_offset as usize).min(end)..end];
                let node = tree.node(to)?;
                let target = to_offset as usize;
                if node.data.len() < target + part.len() {
                    node.data.resize(target + part.len(), 0);
                }
                node.data[target..target + part.len()].copy_from_slice(part);
                node.attributes.size = node.data.len() as u64;
                Ok(Response::Count(part.len() as u64))
            }
        }
    }

    fn attach(&self, session: Arc<dyn KernelSession>) -> u64 {
        *self.session.lock() = Some(session);
        7
    }

    fn detach(&self, id: u64) {
        assert_eq!(id, 7);
        *self.session.lock() = None;
    }
}
