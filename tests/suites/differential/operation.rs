//! The operations of a sequence, and how sequences are made from a seed.

use nix::libc;

/// Names that operations use, so few that they meet; bytes that are not UTF-8 and the longest name
/// among them. No symbolic link leads out of the directory of a sequence: none has `..`.
pub const PATHS: [&[u8]; 17] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"d/a",
    b"d/b",
    b"d/e",
    b"d/e/a",
    b"d/e/b",
    b"d/e/g",
    b"d/e/g/a",
    b"h",
    b"h/a",
    b"h/i",
    b"h/i/a",
    b"d/\xff\xfe\n\x01 name",
    &[b'n'; 255],
];

/// What symbolic links point to.
pub const TARGETS: [&[u8]; 6] = [b"a", b"d", b"e/g", b".", b"missing", b"/missing/\xff"];

/// Names of extended attributes; the last two are access lists.
pub const XATTRS: [&str; 5] = [
    "user.one",
    "user.two",
    "trusted.three",
    "system.posix_acl_access",
    "system.posix_acl_default",
];

/// One step. Paths, targets and attributes are positions in the tables above; a slot holds one open
/// file. Everything is a number, so what `Debug` prints is Rust that makes it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Create {
        path: u8,
        mode: u32,
    },
    MakeDirectory {
        path: u8,
        mode: u32,
    },
    Symlink {
        path: u8,
        target: u8,
    },
    /// `kind` is a file type of `st_mode`.
    Node {
        path: u8,
        kind: u32,
        mode: u32,
    },
    Link {
        from: u8,
        to: u8,
    },
    Remove {
        path: u8,
    },
    RemoveDirectory {
        path: u8,
    },
    Rename {
        from: u8,
        to: u8,
        flags: u32,
    },
    Open {
        slot: u8,
        path: u8,
        flags: i32,
    },
    /// A file without a name, in this directory.
    Temporary {
        slot: u8,
        path: u8,
    },
    /// Gives an open file a (further) name.
    LinkOpen {
        slot: u8,
        path: u8,
    },
    Close {
        slot: u8,
    },
    Write {
        slot: u8,
        offset: u32,
        length: u32,
        fill: u8,
    },
    Read {
        slot: u8,
        offset: u32,
        length: u32,
    },
    MapWrite {
        slot: u8,
        offset: u32,
        length: u32,
        fill: u8,
    },
    Truncate {
        path: u8,
        size: u32,
    },
    TruncateOpen {
        slot: u8,
        size: u32,
    },
    Allocate {
        slot: u8,
        mode: i32,
        offset: u32,
        length: u32,
    },
    CopyRange {
        from: u8,
        to: u8,
        from_offset: u32,
        to_offset: u32,
        length: u32,
    },
    Seek {
        slot: u8,
        offset: u32,
        whence: i32,
    },
    Sync {
        slot: u8,
    },
    SetMode {
        path: u8,
        mode: u32,
    },
    SetOwner {
        path: u8,
        uid: u32,
        gid: u32,
    },
    SetTime {
        path: u8,
        seconds: u32,
        nanoseconds: u32,
    },
    SetXattr {
        path: u8,
        name: u8,
        length: u16,
        fill: u8,
        flags: i32,
    },
    RemoveXattr {
        path: u8,
        name: u8,
    },
    /// What follows is done by this user and group; 0 is root.
    Become {
        user: u32,
    },
    /// Compares everything that is there.
    Check,
    Commit,
    /// Closes all files, unmounts and mounts again.
    Remount,
    /// Kills the daemon's worker; its keeper starts another.
    KillWorker,
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    fn path(&mut self) -> u8 {
        self.below(PATHS.len() as u32) as u8
    }

    fn slot(&mut self) -> u8 {
        self.below(SLOTS as u32) as u8
    }

    /// A position or length: mostly small, often at the edge of a block or of what one buffer
    /// holds, now and then far away.
    fn bytes(&mut self) -> u32 {
        let near = self.below(3);
        match self.below(10) {
            0 => 0,
            1..=3 => self.below(9000),
            4..=5 => (4096 * self.below(40) + near).saturating_sub(1),
            6..=7 => (65_536 + near).saturating_sub(1),
            8 => self.below(300_000),
            _ => self.below(3_000_000),
        }
    }

    fn length(&mut self) -> u32 {
        match self.below(4) {
            0 => self.below(200_000),
            1 => 4096 * self.below(20),
            _ => self.below(9000),
        }
    }

    fn mode(&mut self) -> u32 {
        self.pick(&[
            0o644, 0o755, 0o600, 0o777, 0o4755, 0o2755, 0o2644, 0o1777, 0o6777, 0o000, 0o444,
            0o2770,
        ])
    }
}

/// Open files of a sequence.
pub const SLOTS: usize = 3;

/// How sequences are made.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    pub length: usize,
    /// Whether operations on the whole mount may be among them.
    pub whole_mount: bool,
}

/// The sequence of a seed.
pub fn generate(seed: u64, recipe: Recipe) -> Vec<Op> {
    let mut random = Random(seed);
    let mut ops = vec![
        Op::MakeDirectory {
            path: 3,
            mode: 0o777,
        },
        Op::MakeDirectory {
            path: 6,
            mode: 0o777,
        },
        Op::MakeDirectory {
            path: 11,
            mode: 0o2777,
        },
    ];
    open_slots(&mut random, &mut ops);
    // Each kill makes the keeper wait longer.
    let mut kills_left = 1;
    while ops.len() < recipe.length {
        let op = next(&mut random);
        match op {
            Op::KillWorker if kills_left == 0 => continue,
            Op::KillWorker => kills_left -= 1,
            _ => {}
        }
        if recipe.whole_mount || !matches!(op, Op::Commit | Op::Remount | Op::KillWorker) {
            ops.push(op);
            if op == Op::Remount {
                open_slots(&mut random, &mut ops);
            }
        }
    }
    ops
}

/// Opens a file in each slot, so that operations on open files find one.
fn open_slots(random: &mut Random, ops: &mut Vec<Op>) {
    ops.extend((0..SLOTS as u8).map(|slot| Op::Open {
        slot,
        path: random.path(),
        flags: libc::O_RDWR | libc::O_CREAT,
    }));
}

fn next(random: &mut Random) -> Op {
    let (path, slot) = (random.path(), random.slot());
    match random.below(109) {
        0..=7 => Op::Create {
            path,
            mode: random.mode(),
        },
        8..=11 => Op::MakeDirectory {
            path,
            mode: random.mode(),
        },
        12..=14 => {
            let target = random.below(TARGETS.len() as u32) as u8;
            Op::Symlink { path, target }
        }
        15..=16 => {
            let kind = random.pick(&[libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFREG]);
            Op::Node {
                path,
                kind,
                mode: random.mode(),
            }
        }
        17..=20 => Op::Link {
            from: path,
            to: random.path(),
        },
        21..=24 => Op::Remove { path },
        25..=26 => Op::RemoveDirectory { path },
        27..=34 => {
            // No whiteouts: ext4 changes a directory's time even when it refuses one.
            let flags = random.pick(&[
                0,
                0,
                0,
                libc::RENAME_NOREPLACE,
                libc::RENAME_EXCHANGE,
                libc::RENAME_EXCHANGE,
                libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE,
            ]);
            Op::Rename {
                from: path,
                to: random.path(),
                flags,
            }
        }
        35..=45 => {
            let flags = random.pick(&[
                libc::O_RDWR,
                libc::O_RDWR | libc::O_CREAT,
                libc::O_RDWR | libc::O_CREAT,
                libc::O_RDWR | libc::O_APPEND,
                libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT,
                libc::O_RDWR | libc::O_TRUNC,
                libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
                libc::O_RDONLY,
                libc::O_RDONLY | libc::O_NOFOLLOW,
                libc::O_RDONLY | libc::O_DIRECTORY,
                libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
            ]);
            Op::Open { slot, path, flags }
        }
        46..=47 => Op::Temporary { slot, path },
        48..=49 => Op::LinkOpen { slot, path },
        50..=51 => Op::Close { slot },
        52..=63 => Op::Write {
            slot,
            offset: random.bytes(),
            length: random.length(),
            fill: random.below(256) as u8,
        },
        64..=66 => Op::Read {
            slot,
            offset: random.bytes(),
            length: random.length(),
        },
        67..=69 => Op::MapWrite {
            slot,
            offset: random.bytes(),
            length: random.length(),
            fill: random.below(256) as u8,
        },
        70..=72 => Op::Truncate {
            path,
            size: random.bytes(),
        },
        73..=74 => Op::TruncateOpen {
            slot,
            size: random.bytes(),
        },
        75..=79 => {
            let mode = random.pick(&[
                0,
                libc::FALLOC_FL_KEEP_SIZE,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                libc::FALLOC_FL_ZERO_RANGE,
                libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            ]);
            Op::Allocate {
                slot,
                mode,
                offset: random.bytes(),
                length: random.length(),
            }
        }
        80..=83 => Op::CopyRange {
            from: slot,
            to: random.slot(),
            from_offset: random.bytes(),
            to_offset: random.bytes(),
            length: random.length(),
        },
        84..=86 => Op::Seek {
            slot,
            offset: random.bytes(),
            whence: random.pick(&[libc::SEEK_DATA, libc::SEEK_HOLE]),
        },
        87 => Op::Sync { slot },
        88..=89 => Op::SetMode {
            path,
            mode: random.mode(),
        },
        90..=91 => Op::SetOwner {
            path,
            // Not both left alone: the kernel does not tell the mount of such a call.
            uid: random.pick(&[0, 1234, 4321]),
            gid: random.pick(&[0, 1234, 4321, u32::MAX]),
        },
        92..=94 => Op::SetTime {
            path,
            seconds: random.below(1_000_000_000),
            nanoseconds: random.below(1_000_000_000),
        },
        95..=97 => Op::SetXattr {
            path,
            name: random.below(XATTRS.len() as u32) as u8,
            length: random.below(300) as u16,
            fill: random.below(256) as u8,
            flags: random.pick(&[0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]),
        },
        98 => Op::RemoveXattr {
            path,
            name: random.below(XATTRS.len() as u32) as u8,
        },
        99..=101 => Op::Become {
            user: random.pick(&[0, 0, 1234]),
        },
        102..=105 => Op::Check,
        106 => Op::Commit,
        107 => random.pick(&[Op::Commit, Op::Remount]),
        _ => random.pick(&[Op::Commit, Op::Remount, Op::KillWorker]),
    }
}
