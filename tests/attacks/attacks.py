#!/usr/bin/env python3
"""Tricks that get around rules about paths, run as root in a container.

  attacks.py build DIR              makes the tree that the tricks are about
  attacks.py run DIR string|none    runs all tricks, one line each: NAME TAB leak|held TAB DETAIL

With `string` every path that a trick names is first compared with the rules as a string, as a
wrapper around file tools would do; with `none` only the file system stands in the way. A trick
returns something true when it got what the rules forbid: hidden content, the existence of
something hidden, or a change of what is hidden or read-only.

Rules: `secrets` and `*.key` are hidden, `docs` is read-only, `live` becomes hidden on the way.
"""
import ctypes
import errno
import mmap
import os
import signal
import shutil
import stat
import struct
import sys
import time

SECRET = b"the secret is 4711\n"
GUIDE = b"read only guide\n"
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
MS_BIND, MS_MOVE = 4096, 8192
LIVE_FILES = 40


def build(top):
    for name in os.listdir(top):
        path = os.path.join(top, name)
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    for directory in ["secrets/deep", "docs/sub", "src", "pub", "mixed", "certs.key", "live/sub"]:
        os.makedirs(os.path.join(top, directory))
    files = {
        "secrets/token": SECRET, "secrets/deep/plan": SECRET, "secrets/linked": SECRET,
        "src/deploy.key": SECRET, "mixed/inner.key": SECRET, "mixed/open": b"open\n",
        "certs.key/inner": SECRET, "docs/guide": GUIDE, "docs/sub/page": GUIDE,
        "src/app": b"app\n", "live/file": SECRET, "live/sub/file": SECRET,
    }
    for name, content in files.items():
        with open(os.path.join(top, name), "wb") as file:
            file.write(content)
    for number in range(LIVE_FILES):
        with open(os.path.join(top, f"live/{number}"), "wb") as file:
            file.write(SECRET)
    os.symlink("token", os.path.join(top, "secrets/link"))
    os.setxattr(os.path.join(top, "secrets/token"), "user.secret", SECRET)
    os.link(os.path.join(top, "secrets/linked"), os.path.join(top, "src/linked"))
    os.link(os.path.join(top, "docs/guide"), os.path.join(top, "pub/guide-link"))
    os.symlink("../secrets/token", os.path.join(top, "src/way"))


class World:
    def __init__(self, top, rules):
        self.top, self.rules, self.revoked, self.number = top, rules, False, 0

    def check(self, path, writes=False):
        """The string rules."""
        if self.rules != "string":
            return path
        text = os.fsdecode(path)
        under = lambda name: text == f"{self.top}/{name}" or text.startswith(f"{self.top}/{name}/")
        if under("secrets") or text.endswith(".key") or (writes and under("docs")):
            raise PermissionError(errno.EACCES, "rule", text)
        if self.revoked and under("live"):
            raise PermissionError(errno.EACCES, "rule", text)
        return path

    def path(self, name):
        return f"{self.top}/{name}"

    def new(self):
        """A name of one's own in a directory that may be written."""
        self.number += 1
        return self.path(f"pub/{os.getpid()}-{self.number}")

    def open(self, path, flags=os.O_RDONLY, mode=0o644, dir_fd=None):
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) != 0
        return os.open(self.check(path, writes), flags, mode, dir_fd=dir_fd)

    def read(self, path, dir_fd=None):
        fd = self.open(path, dir_fd=dir_fd)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)

    def list(self, path):
        return os.listdir(self.check(path))

    def stat(self, path, **options):
        return os.stat(self.check(path), **options)

    def ruined(self, name="docs/guide", content=GUIDE):
        """Whether something read-only is not what it was (asked past the rules)."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read() != content
        except OSError:
            return True


def call(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def b(path):
    return os.fsencode(path)


def renameat2(old, new, flags):
    call(libc.renameat2(AT_FDCWD, b(old), AT_FDCWD, b(new), flags))


def mount(source, target, kind=None, flags=0, data=None):
    call(libc.mount(b(source), b(target), kind and b(kind), flags, data and b(data)))


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]


def handle_of(path, flags=0):
    handle, number = Handle(bytes=128), ctypes.c_int()
    call(libc.name_to_handle_at(AT_FDCWD, b(path), ctypes.byref(handle), ctypes.byref(number), flags))
    return handle


def open_handle(top, handle, flags=os.O_RDONLY):
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    return call(libc.open_by_handle_at(at, ctypes.byref(handle), flags))


TRICKS = []


def trick(function):
    TRICKS.append(function)
    return function


def code_of(function):
    try:
        function()
        return 0
    except OSError as error:
        return error.errno


# Ways to a hidden file: each gives a path or a descriptor that the strings don't match.

def way(name):
    def add(function):
        def read(w):
            found = function(w)
            data = os.read(found, 4096) if isinstance(found, int) else w.read(found)
            return SECRET in data
        read.__name__ = "read_" + name
        TRICKS.append(read)
        return function
    return add


way("dot_dot")(lambda w: w.path("src/../secrets/token"))
way("double_slash")(lambda w: f"{w.top}//secrets/token")
way("dot")(lambda w: w.path("./secrets/token"))
way("long_path")(lambda w: w.path("./" * 1500 + "secrets/token"))
way("up_and_down")(lambda w: w.path("src/../pub/../docs/.././secrets/deep/plan"))
way("directory_named_like_a_key")(lambda w: w.path("certs.key/inner"))
way("symlink_of_others")(lambda w: w.path("src/way"))
way("link_of_others")(lambda w: w.path("src/linked"))
way("proc_self_root")(lambda w: f"/proc/self/root{w.top}/secrets/token")
way("proc_1_root")(lambda w: f"/proc/1/root{w.top}/secrets/token")


@way("working_directory")
def _(w):
    os.chdir(w.top)
    return "secrets/token"


@way("fchdir")
def _(w):
    os.fchdir(w.open(w.top, os.O_RDONLY))
    return "secrets/deep/plan"


@way("proc_self_cwd")
def _(w):
    os.chdir(w.top)
    return "/proc/self/cwd/secrets/token"


@way("openat")
def _(w):
    return w.open("secrets/token", dir_fd=w.open(w.top))


@way("openat_of_a_path_descriptor")
def _(w):
    return w.open("token", dir_fd=os.open(w.path("./secrets"), os.O_PATH))


@way("symlink")
def _(w):
    name = w.new()
    os.symlink("../secrets/token", name)
    return name


@way("symlink_to_directory")
def _(w):
    name = w.new()
    os.symlink("../secrets", name)
    return name + "/token"


@way("absolute_symlink")
def _(w):
    name = w.new()
    os.symlink(w.path("secrets/token"), name)
    return name


@way("chain_of_symlinks")
def _(w):
    target = "../secrets/token"
    for _ in range(20):
        name = w.new()
        os.symlink(target, name)
        target = os.path.basename(name)
    return name


@way("symlink_outside")
def _(w):
    os.symlink(w.path("secrets/token"), f"/tmp/out-{os.getpid()}")
    return f"/tmp/out-{os.getpid()}"


@way("hard_link")
def _(w):
    name = w.new()
    os.link(w.check(w.path("./secrets/token")), name)
    return name


@way("hard_link_of_a_path_descriptor")
def _(w):
    fd, name = os.open(w.path("./secrets/token"), os.O_PATH), w.new()
    call(libc.linkat(fd, b"", AT_FDCWD, b(name), AT_EMPTY_PATH))
    return name


@way("rename_file")
def _(w):
    name = w.new()
    os.rename(w.path("./secrets/token"), name)
    return name


@way("rename_directory")
def _(w):
    name = w.new()
    os.rename(w.path("./secrets"), name)
    return name + "/token"


@way("rename_parent_of_hidden")
def _(w):
    name = w.new()
    os.rename(w.path("mixed"), name)
    os.chdir(name)
    found = [entry for entry in os.listdir(".") if entry.startswith("inner")]
    return os.open(found[0], os.O_RDONLY)


@way("rename_exchange")
def _(w):
    renameat2(w.path("src/app"), w.path("./secrets/token"), RENAME_EXCHANGE)
    return w.path("src/app")


@way("rename_whiteout")
def _(w):
    name = w.new()
    renameat2(w.path("./secrets/token"), name, RENAME_WHITEOUT)
    return name


@way("path_descriptor_and_proc")
def _(w):
    return f"/proc/self/fd/{os.open(w.path('./secrets/token'), os.O_PATH)}"


@way("handle")
def _(w):
    return open_handle(w.top, handle_of(w.path("./secrets/token")))


@way("handle_made_up")
def _(w):
    # Numbers of inodes are the same in every mount of a branch: somebody may know one.
    if w.rules == "string":
        return open_handle(w.top, handle_of(w.path("./secrets/token")))
    handle = handle_of(w.path("src/app"))
    raw = bytearray(ctypes.string_at(ctypes.addressof(handle) + 8, handle.bytes))
    struct.pack_into("=Q", raw, 0, int(os.environ["SECRET_INODE"]))
    if handle.bytes == 12:
        high, low = divmod(int(os.environ["SECRET_INODE"]), 1 << 32)
        struct.pack_into("=II", raw, 0, high, low)
    ctypes.memmove(ctypes.addressof(handle) + 8, bytes(raw), len(raw))
    return open_handle(w.top, handle)


def mounted(function):
    target = f"/tmp/m-{os.getpid()}"
    os.makedirs(target)
    function(target)
    return target


@way("bind_mount_of_directory")
def _(w):
    return mounted(lambda at: mount(w.path("./secrets"), at, flags=MS_BIND)) + "/token"


@way("bind_mount_of_everything")
def _(w):
    return mounted(lambda at: mount(w.top, at, flags=MS_BIND)) + "/secrets/token"


@way("moved_mount")
def _(w):
    first = mounted(lambda at: mount(w.top, at, flags=MS_BIND))
    call(libc.mount(b"none", b"/tmp", None, 1 << 18, None)) if os.path.ismount("/tmp") else None
    second = first + "-moved"
    os.makedirs(second)
    mount(first, second, flags=MS_MOVE)
    return second + "/secrets/token"


@way("overlay")
def _(w):
    return mounted(lambda at: mount(
        "overlay", at, "overlay", data=f"lowerdir={w.top}:/usr")) + "/secrets/token"


@way("chroot")
def _(w):
    os.chroot(w.top)
    return "/secrets/token"


@way("second_thread_working_directory")
def _(w):
    child = os.fork()
    if child == 0:
        os.chdir(w.path("./secrets"))
        time.sleep(30)
        os._exit(0)
    time.sleep(0.3)
    return f"/proc/{child}/cwd/token"


@way("mount_namespace")
def _(w):
    call(libc.unshare(0x20000))
    return mounted(lambda at: mount(w.top, at, flags=MS_BIND | 16384)) + "/secrets/token"


@way("parent_of_an_open_directory")
def _(w):
    return w.open("../secrets/token", dir_fd=w.open(w.path("src")))


# Content by other calls than read.

@trick
def content_by_copy_file_range(w):
    name = w.new()
    to = os.open(name, os.O_RDWR | os.O_CREAT)
    os.copy_file_range(os.open(w.path("./secrets/token"), os.O_RDONLY), to, 4096)
    return SECRET in os.pread(to, 4096, 0)


@trick
def content_by_sendfile(w):
    to = os.open(w.new(), os.O_RDWR | os.O_CREAT)
    os.sendfile(to, os.open(w.path("./secrets/token"), os.O_RDONLY), 0, 4096)
    return SECRET in os.pread(to, 4096, 0)


@trick
def content_by_splice(w):
    out, into = os.pipe()
    os.splice(os.open(w.path("./secrets/token"), os.O_RDONLY), into, 4096)
    return SECRET in os.read(out, 4096)


@trick
def content_by_map(w):
    fd = os.open(w.path("./secrets/token"), os.O_RDONLY)
    return SECRET in mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:]


@trick
def content_by_extended_attribute(w):
    return SECRET in os.getxattr(w.path("./secrets/token"), "user.secret")


@trick
def content_by_readlink(w):
    return os.readlink(w.path("./secrets/link")) == "token"


@trick
def content_by_exec(w):
    return SECRET in os.popen(f"cat {w.path('./secrets/token')} 2>/dev/null").read().encode()


# Existence of what is hidden.

def existence(name):
    def add(function):
        function.__name__ = "exists_by_" + name
        TRICKS.append(function)
        return function
    return add


existence("listing")(lambda w: "secrets" in os.listdir(w.top))
existence("listing_of_keys")(lambda w: "deploy.key" in os.listdir(w.path("src")))
existence("stat")(lambda w: w.stat(w.path("./secrets/token")).st_size == len(SECRET))
existence("lstat")(lambda w: w.stat(w.path("./secrets/link"), follow_symlinks=False))
existence("access")(lambda w: os.access(w.path("./secrets/token"), os.F_OK))
existence("list_of_attributes")(lambda w: os.listxattr(w.path("./secrets/token")))
existence("link_count_of_a_file")(lambda w: w.stat(w.path("src/linked")).st_nlink == 2)
existence("name_to_handle")(lambda w: handle_of(w.path("./secrets/token")).bytes > 0)
existence("mkdir")(lambda w: code_of(lambda: os.mkdir(w.path("./secrets"))) == errno.EEXIST)
existence("symlink")(lambda w: code_of(lambda: os.symlink("x", w.path("./secrets"))) == errno.EEXIST)
existence("mknod")(lambda w: code_of(lambda: os.mknod(w.path("./secrets"))) == errno.EEXIST)
existence("link")(
    lambda w: code_of(lambda: os.link(w.path("src/app"), w.path("./secrets"))) == errno.EEXIST)
existence("exclusive_create")(lambda w: code_of(
    lambda: os.open(w.path("./secrets"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)) == errno.EEXIST)
existence("rename_noreplace")(lambda w: code_of(lambda: renameat2(
    w.path("src/app"), w.path("./secrets"), RENAME_NOREPLACE)) == errno.EEXIST)
existence("rename_onto")(lambda w: code_of(
    lambda: os.rename(w.path("src/app"), w.path("./secrets"))) == errno.EISDIR)
existence("not_a_directory")(
    lambda w: code_of(lambda: os.stat(w.path("./secrets/token/x"))) == errno.ENOTDIR)
existence("removal_of_directory")(
    lambda w: code_of(lambda: os.rmdir(w.path("./secrets"))) == errno.ENOTEMPTY)
existence("chdir")(lambda w: os.chdir(w.path("./secrets")) is None)
existence("open_of_path")(lambda w: os.open(w.path("./secrets"), os.O_PATH) >= 0)
existence("chroot")(lambda w: os.chroot(w.path("./secrets")) is None)
existence("inotify")(lambda w: call(libc.inotify_add_watch(
    call(libc.inotify_init()), b(w.path("./secrets")), 0xfff)) >= 0)


@existence("link_count_of_a_directory")
def _(w):
    shown = [name for name in os.listdir(w.top)
             if name not in ("secrets", "certs.key") and os.path.isdir(w.path(name))]
    return os.stat(w.top).st_nlink > 2 + len(shown)


@existence("offsets_of_a_listing")
def _(w):
    # Begin in the middle of a listing, at every position that it names.
    fd, names = os.open(w.top, os.O_RDONLY | os.O_DIRECTORY), set()
    buffer = ctypes.create_string_buffer(4096)
    offsets, seen = [0], set()
    while offsets:
        offset = offsets.pop()
        if offset in seen:
            continue
        seen.add(offset)
        os.lseek(fd, offset, os.SEEK_SET)
        length = call(libc.syscall(217, fd, buffer, 100))
        at = 0
        while at < length:
            _, next_offset, size = struct.unpack_from("=QqH", buffer, at)
            names.add(buffer.raw[at + 19:at + size].split(b"\0")[0])
            offsets.append(next_offset)
            at += size
    return b"secrets" in names


@existence("statx")
def _(w):
    return call(libc.statx(AT_FDCWD, b(w.path("./secrets/token")), 0, 0xfff,
                           ctypes.create_string_buffer(256))) == 0


@existence("difference_of_errors")
def _(w):
    there = code_of(lambda: os.stat(w.path("./secrets/token")))
    missing = code_of(lambda: os.stat(w.path("./secrets/none")))
    return there != missing


# Changes of what is hidden.

def change_hidden(name):
    def add(function):
        def tried(w):
            function(w)
            return True
        tried.__name__ = "change_hidden_by_" + name
        TRICKS.append(tried)
        return function
    return add


change_hidden("create")(lambda w: os.open(w.path("./secrets/new"), os.O_CREAT | os.O_WRONLY))
change_hidden("mkdir")(lambda w: os.mkdir(w.path("./secrets/new")))
change_hidden("truncating_open")(lambda w: os.open(w.path("./secrets/token"), os.O_WRONLY | os.O_TRUNC))
change_hidden("truncate")(lambda w: os.truncate(w.path("./secrets/token"), 0))
change_hidden("unlink")(lambda w: os.unlink(w.path("./secrets/token")))
change_hidden("chmod")(lambda w: os.chmod(w.path("./secrets/token"), 0o777))
change_hidden("chown")(lambda w: os.chown(w.path("./secrets/token"), 1, 1))
change_hidden("utime")(lambda w: os.utime(w.path("./secrets/token"), (1, 1)))
change_hidden("setxattr")(lambda w: os.setxattr(w.path("./secrets/token"), "user.x", b"x"))
change_hidden("link_into")(lambda w: os.link(w.path("src/app"), w.path("./secrets/app")))
change_hidden("rename_into")(lambda w: os.rename(w.path("src/app"), w.path("./secrets/app")))
change_hidden("rename_over")(lambda w: os.rename(w.path("src/app"), w.path("./secrets/token")))


@change_hidden("temporary_file_and_link")
def _(w):
    fd = os.open(w.path("pub"), os.O_TMPFILE | os.O_RDWR)
    call(libc.linkat(AT_FDCWD, b(f"/proc/self/fd/{fd}"), AT_FDCWD, b(w.path("./secrets/new")),
                     AT_SYMLINK_FOLLOW))


# Changes of what is read-only.

def change(name):
    def add(function):
        def tried(w):
            function(w)
            return w.ruined()
        tried.__name__ = "change_by_" + name
        TRICKS.append(tried)
        return function
    return add


def overwrite(target):
    fd = target if isinstance(target, int) else os.open(target, os.O_WRONLY)
    os.write(fd, b"CHANGED")
    os.close(fd)


change("dot")(lambda w: overwrite(w.path("./docs/guide")))
change("dot_dot")(lambda w: overwrite(w.path("src/../docs/guide")))
change("append")(lambda w: os.write(os.open(w.path("./docs/guide"), os.O_WRONLY | os.O_APPEND), b"x"))
change("truncating_open")(lambda w: os.open(w.path("./docs/guide"), os.O_RDONLY | os.O_TRUNC))
change("truncate")(lambda w: os.truncate(w.path("./docs/guide"), 0))
change("unlink")(lambda w: os.unlink(w.path("./docs/guide")))
change("rename_away")(lambda w: os.rename(w.path("./docs"), w.new()))
change("rename_over")(lambda w: os.rename(w.path("src/app"), w.path("./docs/guide")))
change("link_of_others")(lambda w: overwrite(w.path("pub/guide-link")))
change("reopened_descriptor")(lambda w: overwrite(
    f"/proc/self/fd/{w.open(w.path('docs/guide'))}"))
change("path_descriptor")(lambda w: overwrite(
    f"/proc/self/fd/{os.open(w.path('docs/guide'), os.O_PATH)}"))
change("handle")(lambda w: overwrite(
    open_handle(w.top, handle_of(w.path("docs/guide")), os.O_WRONLY)))
change("bind_mount")(lambda w: overwrite(
    mounted(lambda at: mount(w.path("docs"), at, flags=MS_BIND)) + "/guide"))
change("exchange")(lambda w: renameat2(w.path("src/app"), w.path("./docs/guide"), RENAME_EXCHANGE))
change("exchange_of_directories")(lambda w: renameat2(w.path("src"), w.path("./docs"), RENAME_EXCHANGE))
change("whiteout")(lambda w: renameat2(w.path("./docs/guide"), w.new(), RENAME_WHITEOUT))


@change("hard_link")
def _(w):
    name = w.new()
    os.link(w.path("docs/guide"), name)
    overwrite(name)


@change("link_of_a_descriptor")
def _(w):
    fd, name = w.open(w.path("docs/guide")), w.new()
    call(libc.linkat(AT_FDCWD, b(f"/proc/self/fd/{fd}"), AT_FDCWD, b(name), AT_SYMLINK_FOLLOW))
    overwrite(name)


@change("symlink")
def _(w):
    name = w.new()
    os.symlink("../docs/guide", name)
    overwrite(name)


@change("map")
def _(w):
    fd = os.open(w.path("./docs/guide"), os.O_RDWR)
    memory = mmap.mmap(fd, 0)
    memory[0] = 0
    memory.flush()


@change("fallocate")
def _(w):
    fd = os.open(w.path("./docs/guide"), os.O_WRONLY)
    call(libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(8)))


@change("copy_file_range")
def _(w):
    os.copy_file_range(w.open(w.path("src/app")), os.open(w.path("./docs/guide"), os.O_WRONLY), 4)


@change("splice")
def _(w):
    out, into = os.pipe()
    os.write(into, b"CHANGED")
    os.splice(out, os.open(w.path("./docs/guide"), os.O_WRONLY), 7)


@change("sendfile")
def _(w):
    os.sendfile(os.open(w.path("./docs/guide"), os.O_WRONLY), w.open(w.path("src/app")), 0, 4)


@change("working_directory")
def _(w):
    os.chdir(w.path("docs"))
    overwrite("guide")


def change_attribute(name):
    def add(function):
        def tried(w):
            function(w)
            return True
        tried.__name__ = "change_attributes_by_" + name
        TRICKS.append(tried)
        return function
    return add


change_attribute("chmod")(lambda w: os.chmod(w.path("./docs/guide"), 0o777))
change_attribute("fchmod")(lambda w: os.fchmod(w.open(w.path("docs/guide")), 0o777))
change_attribute("chown")(lambda w: os.chown(w.path("./docs/guide"), 1, 1))
change_attribute("utime")(lambda w: os.utime(w.path("./docs/guide"), (1, 1)))
change_attribute("futimens")(lambda w: os.utime(w.open(w.path("docs/guide")), (1, 1)))
change_attribute("setxattr")(lambda w: os.setxattr(w.path("./docs/guide"), "user.x", b"x"))
change_attribute("fsetxattr")(lambda w: os.setxattr(w.open(w.path("docs/guide")), "user.x", b"x"))
change_attribute("mkdir_inside")(lambda w: os.mkdir(w.path("./docs/new")))
change_attribute("fifo_inside")(lambda w: os.mkfifo(w.path("./docs/new")))
change_attribute("symlink_inside")(lambda w: os.symlink("x", w.path("./docs/new")))
change_attribute("temporary_file_inside")(
    lambda w: os.open(w.path("./docs"), os.O_TMPFILE | os.O_RDWR))


# Things that were opened before a grant was revoked.

LIVE = []


def live(name):
    def add(function):
        function.__name__ = "revoked_" + name
        LIVE.append(function)
        return function
    return add


live("descriptor_is_read")(
    lambda w, fd: lambda: SECRET in os.pread(fd, 4096, 0))
live("descriptor_is_written")(
    lambda w, fd: lambda: os.pwrite(fd, b"X", 0) == 1)
live("descriptor_is_truncated")(lambda w, fd: lambda: os.ftruncate(fd, 0) is None)
live("descriptor_is_copied")(lambda w, fd: lambda: os.copy_file_range(
    fd, os.open(w.new(), os.O_RDWR | os.O_CREAT), 100, 0) > 0)
live("descriptor_is_opened_again")(
    lambda w, fd: lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDONLY) >= 0)
live("descriptor_is_asked")(lambda w, fd: lambda: os.fstat(fd).st_size > 0)
live("descriptor_gets_attributes")(lambda w, fd: lambda: os.fchmod(fd, 0o777) is None)
live("descriptor_is_linked")(lambda w, fd: lambda: call(libc.linkat(
    AT_FDCWD, b(f"/proc/self/fd/{fd}"), AT_FDCWD, b(w.new()), AT_SYMLINK_FOLLOW)) == 0)


@live("map_is_read")
def _(w, fd):
    memory = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    assert SECRET in memory[:]
    return lambda: SECRET in memory[:]


@live("directory_is_listed")
def _(w, fd):
    directory = os.open(w.path("live"), os.O_RDONLY)
    return lambda: "file" in os.listdir(directory)


@live("directory_is_walked")
def _(w, fd):
    directory = os.open(w.path("live/sub"), os.O_RDONLY)
    return lambda: os.open("file", os.O_RDONLY, dir_fd=directory) >= 0


@live("working_directory_is_used")
def _(w, fd):
    os.chdir(w.path("live/sub"))
    return lambda: SECRET in open("file", "rb").read()


@live("path_descriptor_is_opened")
def _(w, fd):
    path = os.open(w.path(w.mine), os.O_PATH)
    return lambda: os.open(f"/proc/self/fd/{path}", os.O_RDONLY) >= 0


@live("handle_is_opened")
def _(w, fd):
    handle = handle_of(w.path(w.mine))
    return lambda: open_handle(w.top, handle) >= 0


@live("bind_mount_is_used")
def _(w, fd):
    at = mounted(lambda at: mount(w.path("live"), at, flags=MS_BIND))
    return lambda: SECRET in open(at + w.mine[4:], "rb").read()


@live("path_in_another_spelling")
def _(w, fd):
    os.stat(w.path(w.mine))
    return lambda: os.stat(w.path("./" + w.mine)).st_size > 0


def in_child(function):
    """Runs in a process of its own; leak, held or the exception."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            result = "leak" if function() else "held\tnothing"
        except OSError as error:
            result = f"held\t{errno.errorcode.get(error.errno, error.errno)}"
        except Exception as error:
            result = f"error\t{type(error).__name__}: {error}"
        os.write(into, result.encode())
        os._exit(0)
    os.close(into)
    result = os.read(out, 4096).decode()
    os.close(out)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"held\t{name}" if name == "SIGBUS" else f"error\t{name}"
    return result or "error\tno result"


def run(top, rules):
    world = World(top, rules)
    # A mount that must not get out.
    call(libc.unshare(0x20000))
    call(libc.mount(b"none", b"/", None, 16384 | (1 << 18), None))
    for function in TRICKS:
        if rules == "string":
            build(top)
        print(f"{function.__name__}\t{in_child(lambda: function(world))}", flush=True)
    if rules == "string":
        build(top)
    waiting = []
    for number, function in enumerate(LIVE):
        world.mine = f"live/{number}"
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                act = function(world, os.open(world.path(world.mine), os.O_RDWR))
                os.write(told, b"r")
                while not os.path.exists("/control/revoked"):
                    time.sleep(0.02)
                world.revoked = True
                outcome = in_child(act)
            except Exception as error:
                os.write(told, b"r")
                outcome = f"error\t{type(error).__name__}: {error}"
            print(f"{function.__name__}\t{outcome}", flush=True)
            os._exit(0)
        os.read(ready, 1)
        waiting.append(child)
    open("/control/ready", "w").close()
    for child in waiting:
        os.waitpid(child, 0)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(sys.argv[2])
    else:
        run(sys.argv[2], sys.argv[3])
