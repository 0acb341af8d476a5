//! Bytes of a file inside a tar archive, also of a sparse one.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{TarReader, damaged};
use crate::edit::Content;
use crate::error::Result;
use crate::metadata::{Status, status};
use crate::object::Hole;

/// Bytes of a file inside the archive.
pub(super) struct TarContent {
    archive: Arc<File>,
    status: Status,
    size: u64,
    /// Data as (offset in the file, length, offset in the archive), ascending; the rest is zero.
    ranges: Vec<(u64, u64, u64)>,
    holes: Vec<Hole>,
}

impl TarContent {
    /// Data lies in the archive without its holes.
    pub fn with_ranges(
        reader: &TarReader,
        mut position: u64,
        stored_size: u64,
        size: u64,
        ranges: &[(u64, u64)],
    ) -> Result<Self> {
        let mut content = Self::empty(reader, size);
        let mut end = 0;
        let mut stored = 0_u64;
        for (offset, length) in ranges.iter().copied().filter(|(_, length)| *length > 0) {
            let range_end = offset.checked_add(length).filter(|end| *end <= size);
            stored = stored.saturating_add(length);
            let (true, Some(range_end), true) = (offset >= end, range_end, stored <= stored_size)
            else {
                return Err(damaged("a sparse map is not in order"));
            };
            content.push_hole(end, offset - end);
            content.ranges.push((offset, length, position));
            position += length;
            end = range_end;
        }
        content.push_hole(end, size - end);
        Ok(content)
    }

    /// Data lies in the archive in full.
    pub fn with_holes(
        reader: &TarReader,
        position: u64,
        size: u64,
        holes: Vec<Hole>,
    ) -> Result<Self> {
        let mut content = Self::empty(reader, size);
        let mut end = 0;
        for hole in holes {
            let hole_end = hole
                .offset
                .checked_add(hole.length)
                .filter(|end| *end <= size);
            let (true, Some(hole_end)) = (hole.offset >= end && hole.length > 0, hole_end) else {
                return Err(damaged("a list of holes is not in order"));
            };
            content.push_data(end, hole.offset, position);
            content.push_hole(hole.offset, hole.length);
            end = hole_end;
        }
        content.push_data(end, size, position);
        Ok(content)
    }

    fn empty(reader: &TarReader, size: u64) -> Self {
        Self {
            archive: Arc::clone(&reader.archive),
            status: reader.status,
            size,
            ranges: Vec::new(),
            holes: Vec::new(),
        }
    }

    fn push_data(&mut self, from: u64, to: u64, position: u64) {
        if to > from {
            self.ranges.push((from, to - from, position + from));
        }
    }

    fn push_hole(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.holes.push(Hole { offset, length });
        }
    }
}

impl Content for TarContent {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if offset >= self.size {
            return Ok(0);
        }
        let count = buffer.len().min((self.size - offset) as usize);
        let buffer = &mut buffer[..count];
        let end = offset + count as u64;
        buffer.fill(0);
        let first = self
            .ranges
            .partition_point(|(start, length, _)| start + length <= offset);
        for (start, length, position) in &self.ranges[first..] {
            if *start >= end {
                break;
            }
            let from = offset.max(*start);
            let to = end.min(start + length);
            let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            self.archive
                .read_exact_at(part, position + (from - start))?;
        }
        if end == self.size {
            let now = status(self.archive.as_fd())?;
            if (now.size, now.mtime) != (self.status.size, self.status.mtime) {
                return Err(io::Error::other(
                    "the tar archive changed while it was imported; try again",
                ));
            }
        }
        Ok(count)
    }

    fn holes(&self) -> Vec<Hole> {
        self.holes.clone()
    }
}
