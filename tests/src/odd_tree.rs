//! A tree with every kind of entry and attribute that a workspace must keep.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::libc;

use crate::process::shell_ok;

/// Fills an existing empty directory. Needs root (devices, owners).
///
/// # Panics
/// If something can't be made: the machine then can't run the test.
pub fn make_odd_tree(top: &Path) {
    shell_ok(
        top,
        r##"
umask 022
mkdir -p plain/deep/deeper empty 'name with spaces' node_modules/.bin
printf 'hello\n' >plain/hello.txt
printf 'secret\n' >plain/secret; chmod 0600 plain/secret
: >zero-length
head -c 700000 /dev/urandom >plain/deep/random.bin
seq 1 200000 >plain/deep/deeper/text-of-a-megabyte
printf '#!/bin/sh\necho hi\n' >plain/run.sh; chmod 0755 plain/run.sh
printf 'x' >setuid; chmod 4755 setuid
printf 'x' >setgid; chmod 2755 setgid
mkdir sticky; chmod 1777 sticky
mkdir group-directory; chown 0:1000 group-directory; chmod 2775 group-directory
printf 'owned\n' >owned; chown 1234:4321 owned
ln -s plain/hello.txt link-to-file
ln -s /nowhere/at/all dangling
ln -s "$(printf 'a%.0s' $(seq 1 800))" long-link
chown -h 77:78 dangling
ln plain/hello.txt hard-one; ln plain/hello.txt plain/deep/hard-two
ln plain/deep/random.bin big-hard
mkfifo pipe; chmod 0640 pipe
mknod null-device c 1 3; mknod loop-device b 7 0; chmod 0660 loop-device
truncate -s 64M sparse; printf middle | dd of=sparse bs=1 seek=33554432 conv=notrunc status=none
printf 'a' >'new
line'; printf 'b' >'back\slash'; printf 'c' >'star*?["'
printf 'd' >"$(printf 'caf\303\251')"; printf 'e' >.hidden
printf 'f' >"$(printf 'n%.0s' $(seq 1 255))"
setfattr -n user.comment -v 'a value' plain/hello.txt
setfattr -n user.binary -v 0x000102ff plain/secret
setfattr -n user.on-directory -v yes empty
setfattr -n trusted.root -v only plain/run.sh
setfacl -m u:1234:rw,g:4321:r plain/secret
setfacl -d -m u:1234:rwx group-directory
for number in $(seq 1 600); do printf '%s' "$number" >"node_modules/.bin/tool-$number"; done
"##,
    );
    std::fs::write(
        top.join(OsStr::from_bytes(b"not-utf8-\xff\xfe")),
        b"bytes in the name",
    )
    .expect("names are bytes");
    drop(UnixListener::bind(top.join("socket")).expect("a socket"));
    set_times(top);
}

/// Gives every entry a modification time of its own with nanoseconds, children first.
fn set_times(top: &Path) {
    use std::ffi::CString;
    let entries = walkdir::WalkDir::new(top)
        .contents_first(true)
        .sort_by_file_name();
    for (index, entry) in entries.into_iter().enumerate() {
        let path = entry.expect("a readable tree").into_path();
        let seconds = 1_000_000_000 + i64::try_from(index).expect("few entries") * 86_399;
        let time = libc::timespec {
            tv_sec: seconds,
            tv_nsec: 123_456_789 + i64::try_from(index).expect("few entries"),
        };
        let c_path = CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
        let times = [time, time];
        // SAFETY: the path and the two times are valid for the call.
        let result = unsafe {
            libc::utimensat(
                libc::AT_FDCWD,
                c_path.as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        };
        assert_eq!(result, 0, "setting the times of {}", path.display());
    }
}

/// Makes a few ordinary files, two directories and a link below `directory`.
pub fn make_small_project(directory: &Path) {
    shell_ok(
        directory,
        "mkdir -p src/deep docs; for n in 1 2 3 4 5; do seq 1 $((n * 100)) >src/file-$n; done
         echo one >src/deep/one; echo text >docs/text; ln -s ../src docs/link; chmod 750 src/file-1",
    );
}
