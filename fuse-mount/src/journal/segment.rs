//! Files of the journal: preallocated, memory-mapped, of one size, each with a number that only
//! grows.
//!
//! A segment is written by the journal alone, under the filesystem's lock, and only ever beyond
//! what was written before; so bytes that a reader knows of don't change. It lives as long as
//! something refers to it (`Arc`): the journal until the next checkpoint, extents of files until
//! their content is in the store. A retired segment's file goes back to the pool when the last
//! reference is gone, which also keeps its disk blocks allocated.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::MmapMut;
use parking_lot::Mutex;

/// Size of a segment file in bytes. Holds many records of the largest kind (1 MiB of data).
pub(crate) const SEGMENT_BYTES: u64 = 32 << 20;
/// Bytes before the first record.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
/// Free files kept for reuse.
const FREE_FILES_MAX: usize = 5;
/// Files among them that only changes which give space back may take, so that a full disk can be
/// emptied.
const RESERVED_FILES: usize = 1;
/// Space that is left to the store on the same disk: what is deleted comes free by a commit.
const HEADROOM_BYTES: u64 = 96 << 20;

const MAGIC: &[u8; 8] = b"KURAJRNL";
const VERSION: u32 = 1;

/// Hands out segment files and takes them back.
#[derive(Debug)]
pub(crate) struct SegmentPool {
    directory: PathBuf,
    free: Mutex<Vec<PathBuf>>,
    free_counter: AtomicU64,
    is_directory_dirty: AtomicBool,
}

impl SegmentPool {
    /// The pool of a directory. Returns the numbers of segments found there, in ascending order.
    pub(crate) fn open(directory: &Path) -> io::Result<(Arc<Self>, Vec<u64>)> {
        let mut numbers = Vec::new();
        let mut free = Vec::new();
        let mut counter = 0;
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if let Some(number) = name
                .strip_prefix("segment-")
                .and_then(|text| text.parse().ok())
            {
                numbers.push(number);
            } else if let Some(number) = name.strip_prefix("free-") {
                counter = counter.max(number.parse().unwrap_or(0));
                free.push(path);
            }
        }
        numbers.sort_unstable();
        let pool = Self {
            directory: directory.to_owned(),
            free: Mutex::new(free),
            free_counter: AtomicU64::new(counter),
            // A killed process may have made or renamed files without a sync.
            is_directory_dirty: AtomicBool::new(true),
        };
        Ok((Arc::new(pool), numbers))
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.directory.join(format!("segment-{number}"))
    }

    /// A new, empty segment. With `takes_last_space` it may take the reserve.
    ///
    /// # Errors
    /// `ENOSPC` when the disk can't hold it; then nothing has been made.
    pub(crate) fn create(
        self: &Arc<Self>,
        number: u64,
        takes_last_space: bool,
    ) -> io::Result<Arc<Segment>> {
        let path = self.path_of(number);
        let reused = {
            let mut free = self.free.lock();
            if free.len() > RESERVED_FILES || takes_last_space {
                free.pop()
            } else {
                None
            }
        };
        if reused.is_none() && !takes_last_space {
            self.check_headroom()?;
        }
        if let Some(free) = &reused {
            std::fs::rename(free, &path)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(reused.is_none())
            .open(&path)?;
        // A file for reuse is shorter when the process was killed before it had allocated it.
        if file.metadata()?.len() != SEGMENT_BYTES
            && let Err(error) = allocate(&file)
        {
            // An unallocated file must not stay behind: it would be taken for a segment.
            std::fs::remove_file(&path)?;
            return Err(error);
        }
        self.is_directory_dirty.store(true, Ordering::Release);
        file.write_all_at(&header(number), 0)?;
        Segment::map(self, number, path, file)
    }

    /// Fails with `ENOSPC` where a new segment would take the space that is kept back.
    pub(crate) fn check_room(&self) -> io::Result<()> {
        if self.free.lock().len() > RESERVED_FILES {
            return Ok(());
        }
        self.check_headroom()
    }

    fn check_headroom(&self) -> io::Result<()> {
        let found = nix::sys::statvfs::statvfs(&self.directory)?;
        let available_bytes = found.blocks_available() * found.fragment_size();
        if available_bytes < SEGMENT_BYTES + HEADROOM_BYTES {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    /// Makes the reserve, if it isn't there and the disk has room.
    pub(crate) fn fill_reserve(&self) -> io::Result<()> {
        if !self.free.lock().is_empty() {
            return Ok(());
        }
        let number = self.free_counter.fetch_add(1, Ordering::Relaxed) + 1;
        let path = self.directory.join(format!("free-{number}"));
        let file = File::create(&path)?;
        if let Err(error) = allocate(&file) {
            std::fs::remove_file(&path)?;
            return Err(error);
        }
        self.free.lock().push(path);
        Ok(())
    }

    /// An existing segment, for replay.
    pub(crate) fn open_segment(self: &Arc<Self>, number: u64) -> io::Result<Option<Arc<Segment>>> {
        let path = self.path_of(number);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut found = [0; SEGMENT_HEADER_BYTES as usize];
        if file.metadata()?.len() != SEGMENT_BYTES
            || file.read_exact_at(&mut found, 0).is_err()
            || found != header(number)
        {
            return Ok(None);
        }
        Segment::map(self, number, path, file).map(Some)
    }

    /// Removes a segment that holds nothing that is needed.
    pub(crate) fn discard(&self, number: u64) {
        self.recycle(&self.path_of(number));
    }

    /// Makes the names of new segments durable.
    pub(crate) fn sync_directory(&self) -> io::Result<()> {
        if self.is_directory_dirty.swap(false, Ordering::AcqRel) {
            let result = File::open(&self.directory).and_then(|directory| directory.sync_all());
            if result.is_err() {
                self.is_directory_dirty.store(true, Ordering::Release);
            }
            return result;
        }
        Ok(())
    }

    fn recycle(&self, path: &Path) {
        let mut free = self.free.lock();
        if free.len() < FREE_FILES_MAX {
            let number = self.free_counter.fetch_add(1, Ordering::Relaxed) + 1;
            let target = self.directory.join(format!("free-{number}"));
            if std::fs::rename(path, &target).is_ok() {
                free.push(target);
                return;
            }
        }
        // A file that stays is ignored at the next start: its number is below the first one.
        drop(std::fs::remove_file(path));
    }

    /// Removes unused files, with what was in them, and makes the reserve anew.
    pub(crate) fn scrub(&self) -> io::Result<()> {
        self.trim();
        self.is_directory_dirty.store(true, Ordering::Release);
        self.fill_reserve()?;
        self.sync_directory()
    }

    /// Gives the disk space of unused files back.
    pub(crate) fn trim(&self) {
        for path in self.free.lock().drain(..) {
            drop(std::fs::remove_file(path));
        }
    }
}

fn header(number: u64) -> [u8; SEGMENT_HEADER_BYTES as usize] {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn allocate(file: &File) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor that is open for its duration.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, SEGMENT_BYTES as libc::off_t) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
        return file.set_len(SEGMENT_BYTES);
    }
    Err(error)
}

/// One segment file.
pub(crate) struct Segment {
    pool: Arc<SegmentPool>,
    number: u64,
    path: PathBuf,
    file: File,
    map: Mutex<MmapMut>,
    is_retired: AtomicBool,
}

impl Segment {
    fn map(
        pool: &Arc<SegmentPool>,
        number: u64,
        path: PathBuf,
        file: File,
    ) -> io::Result<Arc<Self>> {
        // SAFETY: the file lies in the overlay's own locked directory, is fully allocated, and
        // nobody truncates it while it is mapped.
        let map = unsafe { MmapMut::map_mut(&file)? };
        Ok(Arc::new(Self {
            pool: Arc::clone(pool),
            number,
            path,
            file,
            map: Mutex::new(map),
            is_retired: AtomicBool::new(false),
        }))
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Writes through the mapping: in the page cache when this returns, so it survives the process.
    pub(crate) fn write(&self, position: u64, bytes: &[u8]) {
        let start = position as usize;
        self.map.lock()[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes many bytes by a system call, which is cheaper than faulting every page in.
    pub(crate) fn write_large(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    /// Overwrites everything from `position` on, which may be left from an earlier use of the file.
    pub(crate) fn scrub_from(&self, position: u64) -> io::Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let mut position = position;
        while position < SEGMENT_BYTES {
            let count = ZEROS.len().min((SEGMENT_BYTES - position) as usize);
            self.write_large(position, &ZEROS[..count])?;
            position += count as u64;
        }
        self.sync()
    }

    /// Reads bytes that were written before.
    pub(crate) fn read(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, position)
    }

    /// Runs `use_bytes` on the whole mapped file, for replay.
    pub(crate) fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(&self.map.lock())
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The journal no longer needs it: its file is reused when nobody refers to it.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.is_retired.load(Ordering::Acquire) {
            self.pool.recycle(&self.path);
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({})", self.number)
    }
}
