#!/usr/bin/env python3
"""Prints one line for each entry of a tree with every byte and attribute that a copy must have:
kind, mode, owner, time in ns, size, link group, extended attributes, SHA-256 or link target, path.
Usage: manifest.py DIRECTORY"""
import hashlib
import os
import stat
import sys

top = os.fsencode(sys.argv[1])
first = {}
paths = [top]
for directory, names, files in os.walk(top):
    paths += [os.path.join(directory, name) for name in names + files]
out = []
for path in sorted(set(paths)):
    s = os.lstat(path)
    name = os.path.relpath(path, top)
    kind = stat.S_IFMT(s.st_mode)
    content, size, device = "-", 0, 0
    if stat.S_ISREG(kind):
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
        content, size = digest.hexdigest(), s.st_size
    elif stat.S_ISLNK(kind):
        content = repr(os.readlink(path))
    elif stat.S_ISBLK(kind) or stat.S_ISCHR(kind):
        device = s.st_rdev
    group = name
    if s.st_nlink > 1 and not stat.S_ISDIR(kind):
        group = first.setdefault(s.st_ino, name)
    attributes = sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in os.listxattr(path, follow_symlinks=False))
    out.append("%o %d:%d %d %d %d %r %r %s %r" % (s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, size, device, group, attributes, content, name))
print("\n".join(out))
