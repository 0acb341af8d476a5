//! The helper's side of events: finds out what is watched, and makes the calls on a mount; and
//! the messages between daemon and helper.
//!
//! Calls on a mount are made by one thread, which may hang when the daemon does not answer; the
//! daemon kills the process then. Processes are looked into by threads of their own. No descriptor
//! stays open between two messages.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::unbounded;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use parking_lot::Mutex;

use crate::fs::request::{Event, Happening, Watched};

pub(super) const ANNOUNCE: u8 = b'E';
pub(super) const SCAN: u8 = b'W';
/// How many processes may hang until a scan is given up, and how long one may take.
const SCAN_THREADS: usize = 8;
const SCAN_PATIENCE: Duration = Duration::from_millis(50);
/// Size of a batch, well below the longest field of a message.
const BATCH_BYTES: usize = 32 * 1024;

const UNLINK: u8 = 1;
const REMOVE_DIRECTORY: u8 = 2;
const CREATE: u8 = 3;
const ATTRIBUTES: u8 = 4;

/// The events as messages. An event that does not fit into one is left out: its path is longer
/// than the kernel takes.
pub(super) fn batches(events: &[Event]) -> impl Iterator<Item = Vec<u8>> {
    let mut rest = events.iter().map(encode).peekable();
    std::iter::from_fn(move || {
        let mut batch = rest.next()?;
        if batch.len() > BATCH_BYTES {
            batch.clear();
        }
        while let Some(next) = rest.next_if(|next| batch.len() + next.len() <= BATCH_BYTES) {
            batch.extend(next);
        }
        Some(batch)
    })
}

fn encode(event: &Event) -> Vec<u8> {
    let (operation, mode) = match event.happening {
        Happening::Removed { file_type, .. } if file_type == libc::S_IFDIR => (REMOVE_DIRECTORY, 0),
        Happening::Removed { .. } => (UNLINK, 0),
        Happening::Created { mode, .. } => (CREATE, mode),
        Happening::Attributes { mode } => (ATTRIBUTES, mode),
    };
    let mut bytes = vec![operation];
    bytes.extend(mode.to_le_bytes());
    put(&mut bytes, &event.directory);
    put(&mut bytes, &event.name);
    bytes
}

/// The message for a batch, with the name by which the session knows the helper.
pub(super) fn announcement(hello: &[u8], batch: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    put(&mut message, hello);
    message.extend(batch);
    message
}

pub(super) fn scan_request((major, minor): (u32, u32)) -> Vec<u8> {
    [major.to_le_bytes(), minor.to_le_bytes()].concat()
}

/// Reads what [`SCAN`] has answered, and whether threads of the helper are stuck.
///
/// # Errors
/// It is none.
pub(super) fn scan_result(answer: &[u8]) -> io::Result<(Watched, bool)> {
    let ([everything, is_stuck], numbers) = answer
        .split_first_chunk()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))?;
    let watched = Watched {
        everything: *everything != 0,
        inodes: numbers
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks of eight")))
            .collect(),
    };
    Ok((watched, *is_stuck != 0))
}

/// Does an operation of this module; `None` if it is none.
pub(in crate::fuse) fn serve(operation: u8, mountpoint: &Path, message: &[u8]) -> Option<Vec<u8>> {
    let result = match operation {
        ANNOUNCE => announce(mountpoint, message).map(|()| Vec::new()),
        SCAN => scan(message),
        _ => return None,
    };
    let (errno, payload) = match result {
        Ok(payload) => (0, payload),
        Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
    };
    let mut answer = errno.to_le_bytes().to_vec();
    put(&mut answer, &payload);
    Some(answer)
}

fn put(message: &mut Vec<u8>, field: &[u8]) {
    message.extend((field.len() as u32).to_le_bytes());
    message.extend(field);
}

fn take<'a>(message: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let bad = || io::Error::from_raw_os_error(libc::EBADMSG);
    let (length, rest) = message.split_first_chunk::<4>().ok_or_else(bad)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (field, rest) = rest.split_at_checked(length).ok_or_else(bad)?;
    *message = rest;
    Ok(field)
}

/// Makes the calls of a batch. One that fails is left out: its name is gone again, or a program
/// was faster.
fn announce(mountpoint: &Path, mut message: &[u8]) -> io::Result<()> {
    // A daemon that takes the mount over finds this process by its name.
    fs::write("/proc/self/comm", process_name(mountpoint))?;
    let root: OwnedFd = nix::fcntl::open(
        mountpoint,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    // Only the session that waits for us has this name. Without it this is another mount, where
    // our calls would be carried out.
    fstatat(
        &root,
        OsStr::from_bytes(take(&mut message)?),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )?;
    let mut last: Option<(&[u8], OwnedFd)> = None;
    while !message.is_empty() {
        let operation = message[0];
        message = &message[1..];
        let Some((mode, rest)) = message.split_first_chunk::<4>() else {
            return Err(io::Error::from_raw_os_error(libc::EBADMSG));
        };
        message = rest;
        let mode = u32::from_le_bytes(*mode);
        let (directory, name) = (take(&mut message)?, take(&mut message)?);
        if last.as_ref().is_none_or(|(path, _)| *path != directory) {
            last = open_directory(&root, directory)
                .ok()
                .map(|open| (directory, open));
        }
        if let Some((_, directory)) = &last {
            drop(echo(operation, directory, OsStr::from_bytes(name), mode));
        }
    }
    Ok(())
}

/// Opens a directory of the mount, whatever is mounted on the way.
fn open_directory(root: &OwnedFd, path: &[u8]) -> nix::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_XDEV
                | ResolveFlag::RESOLVE_NO_SYMLINKS,
        );
    openat2(root, OsStr::from_bytes(path), how)
}

fn echo(operation: u8, directory: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<()> {
    match operation {
        UNLINK => unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?,
        REMOVE_DIRECTORY => unlinkat(directory, name, UnlinkatFlags::RemoveDir)?,
        CREATE => create(directory, name, mode)?,
        ATTRIBUTES => {
            // A descriptor made with O_PATH can be changed by no other way.
            let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EBADMSG)),
    }
    Ok(())
}

fn create(directory: &OwnedFd, name: &OsStr, mode: u32) -> nix::Result<()> {
    let permissions = Mode::from_bits_truncate(mode & 0o777);
    match mode & libc::S_IFMT {
        libc::S_IFDIR => mkdirat(directory, name, permissions),
        libc::S_IFLNK => symlinkat("-", directory, name),
        kind => {
            mknodat(
                directory,
                name,
                SFlag::from_bits_truncate(kind),
                permissions,
                0,
            )?;
            // Some wait until a file has been written. Not for programs: they can't be started
            // while somebody has them open for writing.
            if kind == libc::S_IFREG && mode & 0o111 == 0 {
                let flags = OFlag::O_WRONLY
                    | OFlag::O_NOFOLLOW
                    | OFlag::O_NONBLOCK
                    | OFlag::O_NOCTTY
                    | OFlag::O_CLOEXEC;
                drop(openat(directory, name, flags, Mode::empty())?);
            }
            Ok(())
        }
    }
}

/// Name of a process that makes calls on this mount, at most 15 bytes.
fn process_name(mountpoint: &Path) -> String {
    let hash = crc32fast::hash(mountpoint.as_os_str().as_bytes());
    format!("kura-ev-{:07x}", hash >> 4)
}

/// The processes that make calls on this mount, or did last.
pub(super) fn find_processes(mountpoint: &Path) -> Vec<u32> {
    let wanted = process_name(mountpoint);
    processes()
        .filter(|(_, path)| {
            fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == wanted)
        })
        .map(|(pid, _)| pid)
        .collect()
}

fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// Looks through all processes for descriptors that watch something on a device.
///
/// A process in the middle of execve(2) can't be looked into until that is done, which takes long
/// where its program comes from a file system that hangs. Other threads go on without it.
fn scan(message: &[u8]) -> io::Result<Vec<u8>> {
    let bad = || io::Error::from_raw_os_error(libc::EBADMSG);
    let (major, rest) = message.split_first_chunk::<4>().ok_or_else(bad)?;
    let (minor, _) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
    let device = (u32::from_le_bytes(*major), u32::from_le_bytes(*minor));
    let todo: Vec<PathBuf> = processes().map(|(_, path)| path).collect();
    let todo = Arc::new(Mutex::new(todo));
    let (sender, results) = unbounded();
    let mut watched = Watched::default();
    let mut thread_count = 0;
    let mut is_complete = false;
    while !is_complete && thread_count < SCAN_THREADS {
        thread_count += 1;
        let (todo, sender) = (Arc::clone(&todo), sender.clone());
        thread::Builder::new().spawn(move || {
            while let Some(process) = next(&todo) {
                let mut found = Watched::default();
                scan_process(&process, device, &mut found);
                // Fails when nobody waits for it any more.
                drop(sender.send(Some(found)));
            }
            drop(sender.send(None));
        })?;
        // Until nothing has come for a while: then the newest thread is stuck as well.
        while let Ok(found) = results.recv_timeout(SCAN_PATIENCE) {
            let Some(found) = found else {
                is_complete = true;
                break;
            };
            watched.everything |= found.everything;
            watched.inodes.extend(found.inodes);
        }
    }
    let is_stuck = thread_count > 1;
    let mut answer = vec![u8::from(watched.everything), u8::from(is_stuck)];
    answer.extend(watched.inodes.into_iter().flat_map(u64::to_le_bytes));
    Ok(answer)
}

fn next(todo: &Mutex<Vec<PathBuf>>) -> Option<PathBuf> {
    todo.lock().pop()
}

/// Adds what a process watches, as far as we may look into it.
fn scan_process(process: &Path, device: (u32, u32), watched: &mut Watched) {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return;
    };
    for descriptor in descriptors.flatten() {
        let Ok(target) = fs::read_link(descriptor.path()) else {
            continue;
        };
        let is_watcher = matches!(
            target.as_os_str().as_bytes(),
            b"anon_inode:inotify" | b"inotify" | b"anon_inode:[fanotify]"
        );
        if !is_watcher {
            continue;
        }
        let details = process.join("fdinfo").join(descriptor.file_name());
        if let Ok(text) = fs::read_to_string(details) {
            read_marks(&text, device, process, watched);
        }
    }
}

/// Reads the marks in `/proc/P/fdinfo/N` that are on the device.
fn read_marks(text: &str, device: (u32, u32), process: &Path, watched: &mut Watched) {
    let number = device.0 << 20 | device.1;
    for line in text.lines() {
        if !(line.starts_with("inotify ") || line.starts_with("fanotify ")) {
            continue;
        }
        let field = |name: &str| {
            line.split(' ')
                .find_map(|word| u64::from_str_radix(word.strip_prefix(name)?, 16).ok())
        };
        if let Some(mount) = field("mnt_id:") {
            watched.everything |= is_mount_of(process, mount, device);
        } else if field("sdev:") == Some(u64::from(number)) {
            match field("ino:") {
                Some(inode) => {
                    watched.inodes.insert(inode);
                }
                None => watched.everything = true,
            }
        }
    }
}

/// Whether a mount that a process sees shows the device.
fn is_mount_of(process: &Path, mount: u64, (major, minor): (u32, u32)) -> bool {
    let wanted = (mount.to_string(), format!("{major}:{minor}"));
    fs::read_to_string(process.join("mountinfo")).is_ok_and(|text| {
        text.lines().any(|line| {
            let mut words = line.split(' ');
            let (id, device) = (words.next(), words.nth(1));
            id == Some(wanted.0.as_str()) && device == Some(wanted.1.as_str())
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::HashSet;

    use super::*;

    fn event(directory: &str, name: &str) -> Event {
        Event {
            directory: directory.into(),
            parent: 1,
            name: name.as_bytes().into(),
            happening: Happening::Attributes { mode: 0o755 },
        }
    }

    #[test]
    fn batches_hold_every_event_once_and_fit_into_a_message() {
        let names: Vec<String> = (0..5000).map(|number| format!("name-{number}")).collect();
        let mut events: Vec<Event> = names.iter().map(|name| event("a/b", name)).collect();
        events.insert(7, event(&"x".repeat(BATCH_BYTES), "too long"));
        let mut found = Vec::new();
        for batch in batches(&events) {
            assert!(batch.len() <= BATCH_BYTES);
            let mut rest = &batch[..];
            while !rest.is_empty() {
                rest = &rest[5..];
                assert_eq!(take(&mut rest).unwrap(), b"a/b");
                found.push(String::from_utf8(take(&mut rest).unwrap().to_vec()).unwrap());
            }
        }
        assert_eq!(found, names);
    }

    #[test]
    fn marks_on_other_devices_are_not_ours() {
        let mut watched = Watched::default();
        let text = "pos:\t0\nflags:\t00\ninotify wd:2 ino:1f sdev:2a mask:3c6 ignored_mask:0 \
                    fhandle-bytes:c\ninotify wd:1 ino:99 sdev:2b mask:3c6 ignored_mask:0\n";
        read_marks(text, (0, 42), Path::new("/proc/self"), &mut watched);
        assert_eq!(watched.inodes, HashSet::from([0x1f]));
        assert!(!watched.everything);
        let text = "fanotify flags:0 event-flags:8002\nfanotify sdev:2a mflags:0 mask:1\n";
        read_marks(text, (0, 43), Path::new("/proc/self"), &mut watched);
        assert!(!watched.everything);
        read_marks(text, (0, 42), Path::new("/proc/self"), &mut watched);
        assert!(watched.everything);
    }
}
