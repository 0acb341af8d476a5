//! A daemon is killed under load, again and again, while this process keeps its device; the
//! next one takes over, and the load sees no error. Needs root and `/dev/fuse`.
//!
//! This test program is also the daemon (started with `KURA_TEST_DAEMON`). Its filesystem is a
//! flat table in a shared file; changes are made so that a resent request can be repeated.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this is a test")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuse_mount::fs::request::{
    Caller, Changed, DirectoryEntry, Entry, Errno, Failure, FileAttributes, FilesystemStatistics,
    KernelSession, Mode, Request, Response,
};
use fuse_mount::fuse::{DeviceHolder, Environment, Handler, Session, SessionOptions, SessionState};
use memmap2::MmapMut;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use parking_lot::Mutex;

const SLOTS: usize = 512;
const SLOT_BYTES: usize = 16 * 1024;
const NAME_AT: usize = 16;
const DATA_AT: usize = 128;
const SOCKET: RawFd = 100;
const DEVICE: RawFd = 101;

/// Slot layout: u32 in use, u32 size, u32 mode, name at 16 (NUL-terminated), data at 128. The
/// inode is the slot's number plus 2.
struct Table {
    map: Mutex<MmapMut>,
    resent: AtomicU64,
    counts: File,
}

struct Slots<'a>(&'a mut [u8]);

impl Slots<'_> {
    fn slot(&mut self, index: usize) -> &mut [u8] {
        &mut self.0[index * SLOT_BYTES..(index + 1) * SLOT_BYTES]
    }

    fn word(&mut self, index: usize, word: usize) -> u32 {
        let bytes = &self.slot(index)[word * 4..word * 4 + 4];
        u32::from_le_bytes(bytes.try_into().unwrap())
    }

    fn set_word(&mut self, index: usize, word: usize, value: u32) {
        self.slot(index)[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn name(&mut self, index: usize) -> Vec<u8> {
        let name = &self.slot(index)[NAME_AT..DATA_AT];
        let end = name.iter().position(|byte| *byte == 0).unwrap();
        name[..end].to_vec()
    }

    fn set_name(&mut self, index: usize, name: &[u8]) {
        let slot = self.slot(index);
        slot[NAME_AT..DATA_AT].fill(0);
        slot[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
    }

    /// A slot with this name; `in_use` 1 is a name, 2 a file without one.
    fn find(&mut self, name: &[u8]) -> Option<usize> {
        (0..SLOTS).find(|index| self.word(*index, 0) == 1 && self.name(*index) == name)
    }

    fn attributes(&mut self, inode: u64) -> Result<FileAttributes, Failure> {
        if inode == 1 {
            return Ok(FileAttributes {
                inode: 1,
                mode: libc::S_IFDIR | 0o755,
                link_count: 2,
                ..FileAttributes::default()
            });
        }
        let index = inode as usize - 2;
        if self.word(index, 0) == 0 {
            return Err(Failure::Errno(Errno(libc::ENOENT)));
        }
        Ok(FileAttributes {
            inode,
            size: u64::from(self.word(index, 1)),
            mode: self.word(index, 2),
            link_count: u32::from(self.word(index, 0) == 1),
            ..FileAttributes::default()
        })
    }

    fn entry(&mut self, index: usize) -> Result<Response, Failure> {
        let inode = index as u64 + 2;
        Ok(Response::Entry(Entry {
            inode,
            generation: 0,
            attributes: self.attributes(inode)?,
        }))
    }
}

impl Handler for Table {
    fn handle(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        mode: Mode,
        _: &mut Changed,
    ) -> Result<Response, Failure> {
        let errno = |errno| Err(Failure::Errno(Errno(errno)));
        assert_eq!(caller.unique >> 63, 0);
        if caller.is_resent && mode == Mode::Inline {
            let count = self.resent.fetch_add(1, Ordering::Relaxed) + 1;
            let line = format!("{count} {request:.40?}\n");
            io::Write::write_all(&mut &self.counts, line.as_bytes()).unwrap();
        }
        // Half of the reads and writes take the way through the workers.
        if let Request::Read { offset, .. } | Request::Write { offset, .. } = request {
            if mode == Mode::Inline && offset % 8192 == 0 {
                return Err(Failure::WouldBlock);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut map = self.map.lock();
        let mut slots = Slots(&mut map);
        match *request {
            Request::Lookup { parent: 1, name } => match slots.find(name) {
                Some(index) => slots.entry(index),
                None => errno(libc::ENOENT),
            },
            Request::Forget { .. } => Ok(Response::Empty),
            Request::GetAttributes { inode } => Ok(Response::Attributes(slots.attributes(inode)?)),
            Request::SetAttributes { inode, changes } => {
                let index = inode as usize - 2;
                if let Some(size) = changes.size {
                    let old = slots.word(index, 1) as usize;
                    let new = size as usize;
                    if new < old {
                        slots.slot(index)[DATA_AT + new..DATA_AT + old].fill(0);
                    }
                    slots.set_word(index, 1, new as u32);
                }
                Ok(Response::Attributes(slots.attributes(inode)?))
            }
            Request::Create {
                name, mode, flags, ..
            } => {
                if let Some(index) = slots.find(name) {
                    if flags & libc::O_EXCL as u32 != 0 && !caller.is_resent {
                        return errno(libc::EEXIST);
                    }
                    return slots.entry(index);
                }
                let Some(index) = (0..SLOTS).find(|index| slots.word(*index, 0) == 0) else {
                    return errno(libc::ENOSPC);
                };
                slots.slot(index)[DATA_AT..].fill(0);
                slots.set_name(index, name);
                slots.set_word(index, 1, 0);
                slots.set_word(index, 2, libc::S_IFREG | mode & 0o777);
                slots.set_word(index, 0, 1);
                slots.entry(index)
            }
            Request::Unlink { name, .. } => match slots.find(name) {
                // Not used again: the kernel may still hold the inode.
                Some(index) => {
                    slots.set_word(index, 0, 2);
                    Ok(Response::Empty)
                }
                None if caller.is_resent => Ok(Response::Empty),
                None => errno(libc::ENOENT),
            },
            Request::Rename { name, new_name, .. } => {
                let Some(index) = slots.find(name) else {
                    return if caller.is_resent {
                        Ok(Response::Empty)
                    } else {
                        errno(libc::ENOENT)
                    };
                };
                if let Some(target) = slots.find(new_name) {
                    slots.set_word(target, 0, 2);
                }
                slots.set_name(index, new_name);
                Ok(Response::Empty)
            }
            Request::Read {
                inode,
                offset,
                size,
            } => {
                let index = inode as usize - 2;
                let length = slots.word(index, 1) as usize;
                let start = (offset as usize).min(length);
                let end = (start + size as usize).min(length);
                let data = &slots.slot(index)[DATA_AT + start..DATA_AT + end];
                Ok(Response::Data(data.to_vec()))
            }
            Request::Write {
                inode,
                offset,
                data,
                ..
            } => {
                let index = inode as usize - 2;
                let end = offset as usize + data.len();
                let Some(place) = slots
                    .slot(index)
                    .get_mut(DATA_AT + offset as usize..DATA_AT + end)
                else {
                    return errno(libc::EFBIG);
                };
                place.copy_from_slice(data);
                if slots.word(index, 1) < end as u32 {
                    slots.set_word(index, 1, end as u32);
                }
                Ok(Response::Count(data.len() as u64))
            }
            Request::ReadDirectory { cookie, size, .. } => {
                let mut entries = Vec::new();
                let most = size as usize / 256;
                for index in cookie as usize..SLOTS {
                    if slots.word(index, 0) == 1 && entries.len() < most {
                        entries.push(DirectoryEntry {
                            inode: index as u64 + 2,
                            cookie: index as u64 + 1,
                            file_type: libc::S_IFREG,
                            name: slots.name(index).into(),
                            entry: None,
                        });
                    }
                }
                Ok(Response::Directory(entries))
            }
            Request::GetXattr { .. } | Request::RemoveXattr { .. } => errno(libc::ENODATA),
            Request::Sync { .. } => Ok(Response::Empty),
            Request::StatFilesystem => {
                Ok(Response::StatFilesystem(FilesystemStatistics::default()))
            }
            _ => errno(libc::ENOSYS),
        }
    }

    fn attach(&self, _session: Arc<dyn KernelSession>) -> u64 {
        0
    }

    fn detach(&self, _id: u64) {}
}

/// Sends the device and the state to the process that keeps them.
struct ToParent;

impl DeviceHolder for ToParent {
    fn hold(&self, _id: &str, device: BorrowedFd<'_>, state: &SessionState) -> io::Result<()> {
        let text = serde_json::to_vec(state)?;
        let descriptors = [device.as_raw_fd()];
        sendmsg::<()>(
            SOCKET,
            &[IoSlice::new(&text)],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::empty(),
            None,
        )?;
        Ok(())
    }

    fn release(&self, _id: &str) {
        sendmsg::<()>(
            SOCKET,
            &[IoSlice::new(b"end")],
            &[],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }
}

/// Not a test: the body of the daemon.
#[test]
#[ignore = "the daemon of the other test"]
fn daemon_process() {
    let Some(directory) = std::env::var_os("KURA_TEST_DAEMON") else {
        return;
    };
    let directory = Path::new(&directory);
    let open = |name: &str| {
        let mut options = OpenOptions::new();
        let options = options.read(true).append(name == "resent").write(true);
        options.create(true).open(directory.join(name)).unwrap()
    };
    let file = open("table");
    file.set_len((SLOTS * SLOT_BYTES) as u64).unwrap();
    let table = Table {
        // SAFETY: nobody shortens the file while it is mapped.
        map: Mutex::new(unsafe { MmapMut::map_mut(&file) }.unwrap()),
        resent: AtomicU64::new(0),
        counts: open("resent"),
    };
    let environment = Environment {
        handler: Arc::new(table),
        holder: Some(Arc::new(ToParent)),
        flush_helper: None,
    };
    let session = match std::env::var("KURA_TEST_STATE") {
        Ok(state) => {
            // SAFETY: the keeper put the device there for this process.
            let device = unsafe { OwnedFd::from_raw_fd(DEVICE) };
            Session::resume(device, serde_json::from_str(&state).unwrap(), environment).unwrap()
        }
        Err(_) => {
            let options = SessionOptions {
                // Every name and attribute is asked for: more requests to be killed in.
                entry_timeout_milliseconds: 1,
                attribute_timeout_milliseconds: 1,
                ..SessionOptions::default()
            };
            Session::mount(&directory.join("mnt"), options, environment).unwrap()
        }
    };
    while !session.wait(Duration::from_secs(60)) {}
    std::process::exit(0);
}

/// Keeps the device, as the keeper of the real daemon does.
struct Keeper {
    socket: OwnedFd,
    device: Option<OwnedFd>,
    state: Option<String>,
    is_released: bool,
}

impl Keeper {
    fn spawn(directory: &Path, keeper: Option<&Keeper>, socket: &OwnedFd) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "daemon_process", "--ignored", "--nocapture"])
            .env("KURA_TEST_DAEMON", directory)
            .stdout(std::process::Stdio::null());
        let device = keeper
            .and_then(|keeper| keeper.device.as_ref())
            .map(|fd| fd.as_raw_fd());
        if let Some(state) = keeper.and_then(|keeper| keeper.state.as_ref()) {
            command.env("KURA_TEST_STATE", state);
        }
        let socket = socket.as_raw_fd();
        // SAFETY: dup2 is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                if libc::dup2(socket, SOCKET) < 0 {
                    return Err(io::Error::last_os_error());
                }
                if let Some(device) = device
                    && libc::dup2(device, DEVICE) < 0
                {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command.spawn().unwrap()
    }

    /// Takes one message of the daemon.
    fn receive(&mut self) {
        let mut text = vec![0; 64 * 1024];
        let mut parts = [IoSliceMut::new(&mut text)];
        let mut space = nix::cmsg_space!([RawFd; 1]);
        let message = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )
        .unwrap();
        let length = message.bytes;
        for control in message.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(descriptors) = control {
                // SAFETY: the kernel has just made the descriptor for this process.
                self.device = Some(unsafe { OwnedFd::from_raw_fd(descriptors[0]) });
            }
        }
        let text = String::from_utf8(text[..length].to_vec()).unwrap();
        if text == "end" {
            self.is_released = true;
        } else {
            self.state = Some(text);
        }
    }
}

/// Reads, writes, creates, renames and deletes; remembers what must be there.
fn load(mountpoint: &Path, worker: u64, stop: &AtomicBool) -> (u64, BTreeMap<String, Vec<u8>>) {
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let log_name = format!("log{worker}");
    let log = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mountpoint.join(&log_name))
        .unwrap();
    let mut content = Vec::new();
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let line = format!("{worker} {round}\n");
        if content.len() + line.len() > 12_000 {
            log.set_len(0).unwrap();
            content.clear();
        }
        log.write_all_at(line.as_bytes(), content.len() as u64)
            .unwrap();
        content.extend_from_slice(line.as_bytes());
        if round.is_multiple_of(5) {
            log.sync_all().unwrap();
        }
        let name = format!("w{worker}-{}", round % 7);
        let path = mountpoint.join(&name);
        if expected.remove(&name).is_some() {
            if round.is_multiple_of(2) {
                let other = format!("r{worker}");
                fs::rename(&path, mountpoint.join(&other)).unwrap();
                fs::remove_file(mountpoint.join(&other)).unwrap();
            } else {
                let data = format!("again {round}");
                fs::write(&path, &data).unwrap();
                assert_eq!(fs::read(&path).unwrap(), data.as_bytes());
                expected.insert(name, data.into_bytes());
            }
        } else if has_free_slots() {
            // O_EXCL: a repeated CREATE would show.
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap();
            let data = format!("new {round}").repeat(50);
            file.write_all_at(data.as_bytes(), 0).unwrap();
            expected.insert(name, data.into_bytes());
        }
        assert!(!mountpoint.join(format!("absent{worker}-{round}")).exists());
    }
    expected.insert(log_name, content);
    (round, expected)
}

/// Not a test: the body of the process that uses the mount. The keeper must not have files open
/// there: it could not start a daemon, because closing them asks the daemon.
#[test]
#[ignore = "the load of the other test"]
fn load_process() {
    let Some(directory) = std::env::var_os("KURA_TEST_LOAD") else {
        return;
    };
    let directory = Path::new(&directory);
    let mountpoint = directory.join("mnt");
    let stop = AtomicBool::new(false);
    let (rounds, expected) = std::thread::scope(|scope| {
        let loads: Vec<_> = (0..3)
            .map(|worker| {
                let (mountpoint, stop) = (&mountpoint, &stop);
                scope.spawn(move || load(mountpoint, worker, stop))
            })
            .collect();
        io::Read::read(&mut io::stdin(), &mut [0]).unwrap();
        stop.store(true, Ordering::Relaxed);
        let mut rounds = 0;
        let mut expected = BTreeMap::new();
        for load in loads {
            let (count, files) = load.join().unwrap();
            rounds += count;
            expected.extend(files);
        }
        (rounds, expected)
    });
    let text = serde_json::to_vec(&(rounds, expected)).unwrap();
    fs::write(directory.join("result"), text).unwrap();
}

/// Slots of deleted files are not used again; stop creating before they run out.
fn has_free_slots() -> bool {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    CREATED.fetch_add(1, Ordering::Relaxed) < SLOTS as u64 - 20
}

#[test]
fn killed_daemon_is_replaced_without_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    let mut keeper = Keeper {
        socket: ours,
        device: None,
        state: None,
        is_released: false,
    };
    let mut daemon = Keeper::spawn(directory.path(), None, &theirs);
    keeper.receive();
    let before: SessionState = serde_json::from_str(keeper.state.as_ref().unwrap()).unwrap();
    assert_eq!(before.negotiated, None, "held before mount(2)");
    keeper.receive();
    let state: SessionState = serde_json::from_str(keeper.state.as_ref().unwrap()).unwrap();
    assert!(
        state.negotiated.is_some(),
        "held again before INIT is answered"
    );

    let deadline = Instant::now() + Duration::from_secs(10);
    let name = fs::canonicalize(&mountpoint).unwrap();
    while fuse_mount::fuse::mount::find_mount(&name)
        .unwrap()
        .is_none()
    {
        assert!(Instant::now() < deadline, "mounted");
        std::thread::sleep(Duration::from_millis(5));
    }

    let result = directory.path().join("result");
    let mut load = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "load_process", "--ignored", "--nocapture"])
        .env("KURA_TEST_LOAD", directory.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for generation in 0..12_u64 {
        std::thread::sleep(Duration::from_millis(60 + generation * 7 % 50));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        daemon = Keeper::spawn(directory.path(), Some(&keeper), &theirs);
    }
    std::thread::sleep(Duration::from_millis(100));
    drop(load.stdin.take());
    assert!(load.wait().unwrap().success(), "the load saw an error");
    let (rounds, expected): (u64, BTreeMap<String, Vec<u8>>) =
        serde_json::from_slice(&fs::read(result).unwrap()).unwrap();
    assert!(rounds > 100, "only {rounds} rounds");

    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let mut found: Vec<String> = fs::read_dir(&mountpoint)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let names: Vec<_> = expected.keys().cloned().collect();
    assert_eq!(found, names);
    for (name, data) in &expected {
        assert!(&fs::read(mountpoint.join(name)).unwrap() == data, "{name}");
    }
    let resent = fs::read_to_string(directory.path().join("resent")).unwrap();
    assert!(
        !resent.is_empty(),
        "no request was ever resent: the kills hit nothing"
    );
    eprintln!(
        "{rounds} rounds, {} resent requests",
        resent.lines().count()
    );

    nix::mount::umount(&mountpoint).unwrap();
    while !keeper.is_released {
        keeper.receive();
    }
    assert!(daemon.wait().unwrap().success());
}
