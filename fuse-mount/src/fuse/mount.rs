//! Mounting and unmounting: mount(2) where this process may, `fusermount3` where not, and clear
//! words where neither works.

use std::fs::{self, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::MsFlags;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};

use super::flush::unmount_here;
use super::options::SessionOptions;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const HELPER_SETTINGS: &str = "/etc/fuse.conf";

/// Why a mount was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// `/dev/fuse` is not there.
    #[error("there is no {DEVICE}")]
    NoDevice,
    /// Neither mount(2) nor the helper is allowed or present.
    #[error("mounting on {} is not permitted", .mountpoint.display())]
    NotPermitted {
        /// Where.
        mountpoint: PathBuf,
        /// What the last attempt said.
        #[source]
        source: io::Error,
    },
    /// `fusermount3` lets nobody but the user in here, and others are to be let in.
    #[error(
        "other users can't be let into the mount on {}: `user_allow_other` is not in {HELPER_SETTINGS}",
        .0.display()
    )]
    OthersNotPermitted(PathBuf),
    /// The mountpoint is not there.
    #[error("the mountpoint {} does not exist", .0.display())]
    Missing(PathBuf),
    /// The mountpoint is a file.
    #[error("the mountpoint {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The mountpoint has entries.
    #[error("the mountpoint {} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A workspace is already mounted there.
    #[error("{} is already a mount of {source_name}", .mountpoint.display())]
    AlreadyMounted {
        /// Where.
        mountpoint: PathBuf,
        /// Source of that mount.
        source_name: String,
    },
    /// A mount whose daemon died is in the way.
    #[error("{} is a dead mount: its daemon is gone", .0.display())]
    Dead(PathBuf),
    /// The path cannot be recorded.
    #[error("the mountpoint {} is not valid UTF-8", .0.display())]
    NotUnicode(PathBuf),
    /// The kernel did not answer, or disagreed.
    #[error("starting the connection of {}: {reason}", .mountpoint.display())]
    Handshake {
        /// Where.
        mountpoint: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// Anything else.
    #[error("{action} {}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
}

impl MountError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDevice => {
                "load the kernel module (`modprobe fuse`); in a container, start it with \
                 `--device /dev/fuse --cap-add SYS_ADMIN`"
                    .to_owned()
            }
            Self::NotPermitted { .. } => {
                "run as root, or install the package `fuse3` for its setuid `fusermount3` and let \
                 users open /dev/fuse (mode 666); in a container, start it with `--device \
                 /dev/fuse --cap-add SYS_ADMIN`"
                    .to_owned()
            }
            Self::OthersNotPermitted(_) => format!(
                "mount for yourself only, as root, or let root add the line `user_allow_other` to \
                 {HELPER_SETTINGS}"
            ),
            Self::Missing(path) => format!("create it: mkdir -p {}", path.display()),
            Self::NotADirectory(_) => "choose a directory".to_owned(),
            Self::NotEmpty(_) => {
                "choose an empty directory, or one that is not there yet".to_owned()
            }
            Self::AlreadyMounted { mountpoint, .. } => {
                format!("unmount it first: umount {}", mountpoint.display())
            }
            Self::Dead(path) => format!(
                "take it away with `umount -l {}`, or mount with --repair",
                path.display()
            ),
            Self::NotUnicode(_) => "choose another path".to_owned(),
            Self::Handshake { .. } | Self::Io { .. } => return None,
        };
        Some(hint)
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

/// One line of the list of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLine {
    /// Major and minor number of the filesystem's device.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Type, as `fuse.kura`.
    pub kind: String,
    /// Source, as `kura`.
    pub source: String,
}

/// The topmost mount at exactly this path, in this process's view.
///
/// # Errors
/// `/proc/self/mountinfo` cannot be read.
pub fn find_mount(mountpoint: &Path) -> io::Result<Option<MountLine>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount_line)
        .rfind(|line| line.mountpoint == mountpoint))
}

fn parse_mount_line(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let mountpoint = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |bytes: &[u8]| String::from_utf8_lossy(&unescape(bytes)).into_owned();
    Some(MountLine {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mountpoint: PathBuf::from(std::ffi::OsString::from_vec(mountpoint)),
        kind: text(fields.next()?),
        source: text(fields.next()?),
    })
}

/// The list of mounts writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| {
            digits.iter().try_fold(0_u32, |value, digit| {
                matches!(digit, b'0'..=b'7').then(|| value * 8 + u32::from(digit - b'0'))
            })
        });
        match (byte, digits.and_then(|value| u8::try_from(value).ok())) {
            (b'\\', Some(value)) => {
                plain.push(value);
                rest = &after[3..];
            }
            _ => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

/// Makes sure that a directory can be mounted on; returns its absolute path.
///
/// # Errors
/// It cannot, with the reason.
pub fn check_mountpoint(
    mountpoint: &Path,
    options: &SessionOptions,
) -> Result<PathBuf, MountError> {
    let absolute = resolve(mountpoint)?;
    if absolute.to_str().is_none() {
        return Err(MountError::NotUnicode(absolute));
    }
    if is_dead(&absolute) {
        if !options.repair {
            return Err(MountError::Dead(absolute));
        }
        take_away_dead_mount(&absolute)?;
    }
    let metadata = fs::metadata(&absolute);
    let metadata = metadata.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(absolute.clone()),
        _ => MountError::io("looking at the mountpoint", &absolute)(error),
    })?;
    if !metadata.is_dir() {
        return Err(MountError::NotADirectory(absolute));
    }
    let mounted = find_mount(&absolute)
        .map_err(MountError::io("reading the list of mounts for", &absolute))?;
    if let Some(line) = mounted
        && line.kind.starts_with("fuse")
        && line.source == options.source
    {
        return Err(MountError::AlreadyMounted {
            mountpoint: absolute,
            source_name: line.source,
        });
    }
    if !options.allow_non_empty {
        let mut entries =
            fs::read_dir(&absolute).map_err(MountError::io("listing the mountpoint", &absolute))?;
        if entries.next().is_some() {
            return Err(MountError::NotEmpty(absolute));
        }
    }
    Ok(absolute)
}

/// The absolute path without symbolic links. A dead mount cannot be looked into, so its own name
/// is taken as it is.
fn resolve(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let error = match fs::canonicalize(mountpoint) {
        Ok(absolute) => return Ok(absolute),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::NotFound {
        return Err(MountError::Missing(mountpoint.to_owned()));
    }
    let absolute = std::path::absolute(mountpoint)
        .map_err(MountError::io("resolving the mountpoint", mountpoint))?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let parent = fs::canonicalize(parent)
                .map_err(MountError::io("resolving the mountpoint", mountpoint))?;
            Ok(parent.join(name))
        }
        _ => Err(MountError::io("resolving the mountpoint", mountpoint)(
            error,
        )),
    }
}

/// Whether the directory is a mount without a daemon. Its attributes may still be cached, so the
/// filesystem is asked for its size, which always reaches the daemon.
fn is_dead(directory: &Path) -> bool {
    let is_fuse = |line: MountLine| line.kind.starts_with("fuse");
    let is_mount = find_mount(directory).is_ok_and(|found| found.is_some_and(is_fuse));
    is_mount && nix::sys::statvfs::statvfs(directory) == Err(nix::errno::Errno::ENOTCONN)
}

fn take_away_dead_mount(mountpoint: &Path) -> Result<(), MountError> {
    tracing::warn!(mountpoint = %mountpoint.display(), "taking a dead mount away");
    let result = match unmount_here(mountpoint, true) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            unmount_by_helper(mountpoint, true)
        }
        result => result,
    };
    result.map_err(MountError::io("taking away the dead mount", mountpoint))
}

/// Opens the device.
///
/// # Errors
/// It is not there, or this user may not open it.
pub fn open_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(DEVICE)?;
    Ok(device.into())
}

/// Mounts with mount(2).
///
/// # Errors
/// Those of mount(2).
pub fn mount_directly(
    device: &OwnedFd,
    mountpoint: &Path,
    options: &SessionOptions,
) -> io::Result<()> {
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, options.read_only);
    flags.set(
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        !options.allow_suid_and_devices,
    );
    let kind = match &options.subtype {
        Some(subtype) => format!("fuse.{subtype}"),
        None => "fuse".to_owned(),
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        nix::unistd::geteuid(),
        nix::unistd::getegid()
    );
    data.push_str(&common_options(options));
    nix::mount::mount(
        Some(options.source.as_str()),
        mountpoint,
        Some(kind.as_str()),
        flags,
        Some(data.as_str()),
    )
    .map_err(io::Error::from)
}

/// Shows what is mounted at `from` at `mountpoint` as well.
pub(super) fn bind(from: &Path, mountpoint: &Path, read_only: bool) -> io::Result<()> {
    let nothing: Option<&str> = None;
    nix::mount::mount(Some(from), mountpoint, nothing, MsFlags::MS_BIND, nothing)?;
    if !read_only {
        return Ok(());
    }
    // Only a second call makes one place of several read-only.
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let limited = nix::mount::mount(nothing, mountpoint, nothing, flags, nothing);
    if limited.is_err() {
        nix::mount::umount(mountpoint)?;
    }
    Ok(limited?)
}

fn common_options(options: &SessionOptions) -> String {
    let mut data = format!(",max_read={}", options.max_write_bytes);
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    data
}

/// Mounts with `fusermount3`, which is setuid root; returns the device it opened.
///
/// # Errors
/// The helper is missing or refuses.
pub fn mount_by_helper(mountpoint: &Path, options: &SessionOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let mut list = format!("fsname={}", options.source);
    if let Some(subtype) = &options.subtype {
        list.push_str(&format!(",subtype={subtype}"));
    }
    list.push_str(if options.read_only { ",ro" } else { ",rw" });
    list.push_str(&common_options(options));
    let theirs_raw = theirs.as_raw_fd();
    let mut command = Command::new(HELPER);
    command
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs_raw.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: fcntl is async-signal-safe, and the descriptor is open in the child.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(theirs_raw, libc::F_SETFD, 0) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = command.spawn()?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output()?;
    match received? {
        Some(device) => Ok(device),
        None => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

/// Whether the helper lets this user let others in.
pub(super) fn helper_permits_allow_other() -> bool {
    nix::unistd::getuid().is_root()
        || fs::read_to_string(HELPER_SETTINGS)
            .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(descriptor) = descriptors.first()
        {
            // SAFETY: the kernel has just made this descriptor for us.
            return Ok(Some(unsafe { OwnedFd::from_raw_fd(*descriptor) }));
        }
    }
    Ok(None)
}

/// Unmounts with `fusermount3`.
///
/// # Errors
/// The helper is missing or refuses.
pub(super) fn unmount_by_helper(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

/// Lifts the limit of 1 % of memory for dirty pages that FUSE mounts get, and raises the read
/// ahead to one request. Not being allowed to is no error.
pub(super) fn tune_backing_device(device: (u32, u32), read_ahead_bytes: u32) {
    let directory = PathBuf::from(format!("/sys/class/bdi/{}:{}", device.0, device.1));
    let kilobytes = (read_ahead_bytes / 1024).to_string();
    for (name, value) in [
        ("max_ratio", "100"),
        ("strict_limit", "0"),
        ("read_ahead_kb", &kilobytes),
    ] {
        if let Err(error) = fs::write(directory.join(name), value) {
            tracing::debug!(%error, name, "not tuned");
        }
    }
}

/// Ends the connection of the filesystem with this device number by force; all waiting requests
/// fail. Mounts the kernel's control filesystem at its usual place if it is not there.
///
/// # Errors
/// This process may not do that.
pub fn abort_connection(device: (u32, u32)) -> io::Result<()> {
    const CONTROL: &str = "/sys/fs/fuse/connections";
    let switch = format!("{CONTROL}/{}/abort", device.1);
    match fs::write(&switch, "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            nix::mount::mount(
                Some("fusectl"),
                CONTROL,
                Some("fusectl"),
                MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
                None::<&str>,
            )?;
            fs::write(&switch, "1")
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read_with_their_escapes() {
        let line = br"36 35 0:77 / /mnt/a\040b\134c rw,noatime shared:1 - fuse.kura kura\0401 rw";
        assert_eq!(
            parse_mount_line(line),
            Some(MountLine {
                device: (0, 77),
                mountpoint: PathBuf::from("/mnt/a b\\c"),
                kind: "fuse.kura".to_owned(),
                source: "kura 1".to_owned(),
            })
        );
        assert_eq!(parse_mount_line(b""), None);
        assert_eq!(unescape(br"a\9\04"), br"a\9\04");
    }

    #[test]
    fn unusable_mountpoints_are_refused_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let options = SessionOptions::default();
        let check = |name: &str| check_mountpoint(&directory.path().join(name), &options);

        let error = check("missing").unwrap_err();
        assert!(matches!(error, MountError::Missing(_)), "{error}");
        assert!(error.hint().unwrap().starts_with("create it: mkdir -p "));

        fs::write(directory.path().join("file"), "x").unwrap();
        assert!(matches!(check("file"), Err(MountError::NotADirectory(_))));
        assert!(matches!(check(""), Err(MountError::NotEmpty(_))));

        fs::create_dir(directory.path().join("empty")).unwrap();
        let found = check("empty").unwrap();
        assert_eq!(
            found,
            directory.path().canonicalize().unwrap().join("empty")
        );
        let over = SessionOptions {
            allow_non_empty: true,
            ..SessionOptions::default()
        };
        assert!(check_mountpoint(directory.path(), &over).is_ok());
    }
}
