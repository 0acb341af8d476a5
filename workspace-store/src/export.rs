//! Bringing stored trees out again: into a real directory or a tar archive.

mod directory;
mod tar;

pub use directory::export_directory;
pub use tar::export_tar;

use std::io;

use crate::error::{ErrorKind, Result, StoreError};
use crate::id::BlobId;
use crate::object::Hole;
use crate::path::display_path;
use crate::reader::ObjectReader;

/// Warnings kept word by word; further ones are only counted.
const WARNING_LIMIT: usize = 1000;
/// Bytes read from the store at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// What an export wrote.
#[derive(Debug, Clone, Default)]
pub struct Export {
    /// Names written, the root not counted.
    pub entry_count: u64,
    /// Bytes of all regular files, each counted once.
    pub byte_count: u64,
    /// What could not be taken along, in words; at most 1,000.
    pub warnings: Vec<String>,
    /// Number of all warnings.
    pub warning_count: u64,
}

impl Export {
    fn warn(&mut self, warning: String) {
        self.warning_count += 1;
        if self.warnings.len() < WARNING_LIMIT {
            self.warnings.push(warning);
        }
    }
}

/// Parts of a file that are no holes, as (offset, length), in ascending order.
fn data_ranges(size: u64, holes: &[Hole]) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut offset = 0;
    for hole in holes {
        if hole.offset > offset {
            ranges.push((offset, hole.offset - offset));
        }
        offset = hole.offset.saturating_add(hole.length);
    }
    if offset < size {
        ranges.push((offset, size - offset));
    }
    ranges
}

/// Hands a range of a blob to `sink` piece by piece.
fn copy_range(
    reader: &dyn ObjectReader,
    blob: BlobId,
    path: &[u8],
    (offset, length): (u64, u64),
    buffer: &mut [u8],
    mut sink: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<()> {
    let mut done = 0;
    while done < length {
        let wanted = (length - done).min(buffer.len() as u64) as usize;
        let count = reader.read_blob(blob, offset + done, &mut buffer[..wanted])?;
        if count == 0 {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!(
                    "exporting '{}': its stored content {blob} is too short",
                    display_path(path)
                ),
            )
            .with_hint("run 'kura fsck'"));
        }
        sink(offset + done, &buffer[..count])
            .map_err(|error| StoreError::io(format!("writing '{}'", display_path(path)), error))?;
        done += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
