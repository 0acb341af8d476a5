//! Changing and reading the content of a regular file.
//!
//! Small files are one buffer, larger or sparse ones a map of pieces (`extent`). Which of the two a
//! change leads to depends on the content alone, so that a replay comes to the same.

use std::io;
use std::sync::Arc;

use workspace_store::edit;
use workspace_store::object::Hole;
use workspace_store::source::WorkspaceSource;

use super::extent::{BLOCK_BYTES, ExtentMap, Piece, Source};
use super::inode::{Content, SMALL_FILE_BYTES};
use super::request::Errno;
use crate::journal::Location;
use crate::journal::record::RangeKind;

/// Whether a buffer of `length` bytes stays one when bytes from `start` to `end` are set: it is
/// small enough, and no whole block between its end and `start` becomes a hole.
pub(crate) fn fits_small(length: u64, start: u64, end: u64) -> bool {
    end <= SMALL_FILE_BYTES && start <= length.next_multiple_of(BLOCK_BYTES)
}

/// Turns small stored content into a buffer.
pub(crate) fn prepare(content: &mut Content, source: &dyn WorkspaceSource) -> Result<(), Errno> {
    if let Content::Stored { blob, size, holes } = content
        && *size <= SMALL_FILE_BYTES
        && holes.is_empty()
    {
        let mut bytes = vec![0; *size as usize];
        let count = source
            .read_blob(*blob, 0, &mut bytes)
            .map_err(|error| store_errno(&error))?;
        if count != bytes.len() {
            return Err(Errno(libc::EIO));
        }
        *content = Content::Small(Arc::new(bytes));
    }
    Ok(())
}

/// The map of content that is, or becomes, one of pieces.
fn as_extents(content: &mut Content) -> Result<&mut ExtentMap, Errno> {
    if !matches!(content, Content::Extents(_)) {
        let map = match &*content {
            Content::Small(bytes) if bytes.is_empty() => ExtentMap::default(),
            other => other.to_extents().ok_or(Errno(libc::EIO))?,
        };
        *content = Content::Extents(Arc::new(map));
    }
    match content {
        Content::Extents(map) => Ok(Arc::make_mut(map)),
        _ => Err(Errno(libc::EIO)),
    }
}

/// Writes `data`, which the journal holds at `location`.
pub(crate) fn write(
    content: &mut Content,
    source: &dyn WorkspaceSource,
    offset: u64,
    data: &[u8],
    location: Option<Location>,
) -> Result<(), Errno> {
    prepare(content, source)?;
    let end = offset + data.len() as u64;
    if let Content::Small(bytes) = content
        && fits_small(bytes.len() as u64, offset, end)
    {
        let bytes = Arc::make_mut(bytes);
        let (start, end) = (offset as usize, end as usize);
        if start == bytes.len() {
            bytes.extend_from_slice(data);
        } else {
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(data);
        }
        return Ok(());
    }
    let location = location.ok_or(Errno(libc::EIO))?;
    let place = Source::Journal(location.segment, location.position);
    as_extents(content)?.write(offset, data.len() as u64, place);
    Ok(())
}

/// Makes pieces of a buffer, whose bytes the journal holds at `location`.
pub(crate) fn spill(
    content: &mut Content,
    data: &[u8],
    location: Option<Location>,
) -> Result<(), Errno> {
    let location = location.ok_or(Errno(libc::EIO))?;
    let mut map = ExtentMap::default();
    map.write(
        0,
        data.len() as u64,
        Source::Journal(location.segment, location.position),
    );
    *content = Content::Extents(Arc::new(map));
    Ok(())
}

/// Sets the length.
pub(crate) fn truncate(
    content: &mut Content,
    source: &dyn WorkspaceSource,
    size: u64,
) -> Result<(), Errno> {
    if size == 0 {
        *content = Content::empty();
        return Ok(());
    }
    prepare(content, source)?;
    if let Content::Small(bytes) = content
        && fits_small(bytes.len() as u64, size, size)
    {
        Arc::make_mut(bytes).resize(size as usize, 0);
        return Ok(());
    }
    as_extents(content)?.truncate(size);
    Ok(())
}

/// Makes a range a hole, zero, or allocated; `size` is the length afterwards.
pub(crate) fn change_range(
    content: &mut Content,
    kind: RangeKind,
    offset: u64,
    length: u64,
    size: u64,
) -> Result<(), Errno> {
    let map = as_extents(content)?;
    if size > map.size() {
        map.truncate(size);
    }
    let length = length.min(size.saturating_sub(offset));
    match kind {
        RangeKind::Hole => map.punch(offset, length),
        RangeKind::Zero => map.write(offset, length, Source::Zero),
        RangeKind::Allocated => map.allocate(offset, length),
    }
    Ok(())
}

/// Puts pieces of another file at `offset`.
pub(crate) fn paste(content: &mut Content, pieces: Vec<Piece>, offset: u64) -> Result<(), Errno> {
    let map = as_extents(content)?;
    let mut position = offset;
    for piece in pieces {
        let end = position + piece.length;
        match piece.source {
            Some(source) => map.write(position, piece.length, source),
            None => {
                if map.size() < end {
                    map.truncate(end);
                }
                map.punch(position, piece.length);
            }
        }
        position = end;
    }
    Ok(())
}

/// Holes in whole blocks.
pub(crate) fn holes(content: &Content) -> Vec<Hole> {
    match content {
        Content::Stored { holes, .. } => holes.to_vec(),
        Content::Small(_) => Vec::new(),
        Content::Extents(map) => map.holes(),
    }
}

/// The next position with data, or in a hole, from `offset` on; the file's end counts as a hole.
pub(crate) fn seek(content: &Content, offset: u64, is_data: bool) -> Result<u64, Errno> {
    let size = content.size();
    if offset >= size {
        return Err(Errno(libc::ENXIO));
    }
    let holes = holes(content);
    let inside = holes
        .iter()
        .find(|hole| hole.offset <= offset && offset < hole.offset + hole.length);
    if is_data {
        let position = inside.map_or(offset, |hole| hole.offset + hole.length);
        if position >= size {
            Err(Errno(libc::ENXIO))
        } else {
            Ok(position)
        }
    } else if inside.is_some() {
        Ok(offset)
    } else {
        Ok(holes
            .iter()
            .find(|hole| hole.offset > offset)
            .map_or(size, |hole| hole.offset))
    }
}

/// Content at one moment: later changes of the file don't show in it.
pub(crate) struct Frozen {
    pub(crate) content: Content,
    pub(crate) source: Arc<dyn WorkspaceSource>,
}

impl Frozen {
    /// Reads from `offset`; a count below the buffer's length means the end was reached.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.content {
            Content::Stored { blob, .. } => self
                .source
                .read_blob(*blob, offset, buffer)
                .map_err(io::Error::other),
            Content::Small(bytes) => edit::Content::read_at(bytes.as_ref(), offset, buffer),
            Content::Extents(map) => {
                let mut done = 0;
                for piece in map.pieces(offset, buffer.len() as u64) {
                    let length = piece.length as usize;
                    let part = &mut buffer[done..done + length];
                    match piece.source {
                        None | Some(Source::Zero) => part.fill(0),
                        Some(Source::Journal(segment, position)) => segment.read(position, part)?,
                        Some(Source::Blob(blob, position)) => {
                            let count = self
                                .source
                                .read_blob(blob, position, part)
                                .map_err(io::Error::other)?;
                            if count != length {
                                return Err(io::Error::other("stored content is too short"));
                            }
                        }
                    }
                    done += length;
                }
                Ok(done)
            }
        }
    }
}

impl edit::Content for Frozen {
    fn size(&self) -> u64 {
        self.content.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(offset, buffer)
    }

    fn holes(&self) -> Vec<Hole> {
        holes(&self.content)
    }
}

/// The errno of an error of the store.
pub(crate) fn store_errno(error: &workspace_store::StoreError) -> Errno {
    use workspace_store::ErrorKind;
    let errno = match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::Conflict => libc::ESTALE,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::ReadOnly => libc::EROFS,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::Busy => libc::EAGAIN,
        _ => libc::EIO,
    };
    if errno == libc::EIO {
        tracing::error!(?error, "the store failed");
    }
    Errno(errno)
}
