//! Disks whose power can be cut.
//!
//! An ext4 image lies on an XFS image that shares blocks between copies. A copy of the ext4 image
//! is taken at once, while everything goes on: it holds what the disk had at that instant, nothing
//! of the page cache above it, as a machine finds it that lost its power then.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

use crate::process::{run, run_ok};

/// Sizes of the images; their files take only what is written.
const OUTER_SIZE: &str = "16G";
const INNER_SIZE: &str = "3G";

/// A mounted image; unmounted when it is dropped.
#[derive(Debug)]
pub struct MountedImage {
    path: PathBuf,
}

impl MountedImage {
    /// Mounts a disk image on a new directory.
    #[track_caller]
    fn new(image: &Path, path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("a mount point");
        let _ = run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(&path))
        .ok();
        Self { path }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MountedImage {
    fn drop(&mut self) {
        if umount2(&self.path, MntFlags::empty()).is_err() {
            let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        }
    }
}

/// A disk in use whose power can be cut, any number of times.
#[derive(Debug)]
pub struct CuttableDisk {
    inner: MountedImage,
    outer: MountedImage,
    cuts: Cell<usize>,
    // Last: the mounts lie in it.
    _directory: TempDir,
}

/// What a power cut left.
#[derive(Debug)]
pub struct DiskAfterCut {
    image: PathBuf,
    mountpoint: PathBuf,
}

impl CuttableDisk {
    /// A new, empty disk.
    ///
    /// Fails the test, with the command that helps, where the programs for it aren't installed.
    #[track_caller]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("kura-disk-")
            .tempdir_in("/var/tmp")
            .expect("a directory for the disk");
        for program in ["mkfs.xfs", "mkfs.ext4", "losetup"] {
            let is_there = ["/usr/sbin", "/sbin", "/usr/bin"]
                .iter()
                .any(|directory| Path::new(directory).join(program).exists());
            assert!(
                is_there,
                "{program} is not there; run tests/support/prepare.sh"
            );
        }
        let outer_image = directory.path().join("outer.img");
        make_image(
            &outer_image,
            OUTER_SIZE,
            "/usr/sbin/mkfs.xfs",
            &["-q", "-m", "reflink=1"],
        );
        let outer = MountedImage::new(&outer_image, directory.path().join("outer"));
        let inner_image = outer.path().join("disk.img");
        make_image(
            &inner_image,
            INNER_SIZE,
            "/usr/sbin/mkfs.ext4",
            &["-q", "-F", "-m", "0"],
        );
        let inner = MountedImage::new(&inner_image, directory.path().join("inner"));
        Self {
            inner,
            outer,
            cuts: Cell::new(0),
            _directory: directory,
        }
    }

    /// Where the disk is mounted.
    pub fn path(&self) -> &Path {
        self.inner.path()
    }

    /// What a power cut at this instant leaves; the disk itself goes on.
    #[track_caller]
    pub fn cut(&self) -> DiskAfterCut {
        let number = self.cuts.replace(self.cuts.get() + 1);
        let image = self.outer.path().join(format!("cut-{number}.img"));
        let _ = run(Command::new("cp")
            .arg("--reflink=always")
            .arg(self.outer.path().join("disk.img"))
            .arg(&image))
        .ok();
        let mountpoint = self
            .outer
            .path()
            .with_file_name(format!("after-cut-{number}"));
        DiskAfterCut { image, mountpoint }
    }
}

impl Default for CuttableDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl DiskAfterCut {
    /// The machine is on again: mounts what is left, which replays ext4's own journal.
    #[track_caller]
    pub fn power_on(&self) -> MountedImage {
        MountedImage::new(&self.image, self.mountpoint.clone())
    }
}

#[track_caller]
fn make_image(image: &Path, size: &str, program: &str, arguments: &[&str]) {
    run_ok("truncate", [Path::new("-s"), Path::new(size), image]);
    let _ = run(Command::new(program).args(arguments).arg(image)).ok();
}
