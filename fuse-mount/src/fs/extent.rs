//! Extent map of a large file: which bytes come from where.
//!
//! Invariants: extents are not empty, don't overlap, and lie below the file's size; what no extent
//! covers is a hole. A map is shared (`Arc`) between the live file and a frozen snapshot of it, and
//! copied when the live one changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::BlobId;
use workspace_store::object::Hole;

use crate::journal::segment::Segment;

/// Holes are counted in blocks of this many bytes.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Where the bytes of an extent are.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// In a journal segment, from this position of its file on.
    Journal(Arc<Segment>, u64),
    /// In the store, from this position of the blob on.
    Blob(BlobId, u64),
    /// Allocated, reads as zero.
    Zero,
}

impl Source {
    fn advanced_by(&self, bytes: u64) -> Source {
        match self {
            Source::Journal(segment, position) => {
                Source::Journal(Arc::clone(segment), position + bytes)
            }
            Source::Blob(blob, position) => Source::Blob(*blob, position + bytes),
            Source::Zero => Source::Zero,
        }
    }

    /// Whether `next` goes on where this source ends after `length` bytes.
    fn continues_as(&self, length: u64, next: &Source) -> bool {
        match (self, next) {
            (Source::Blob(a, position), Source::Blob(b, next)) => {
                a == b && position + length == *next
            }
            (Source::Zero, Source::Zero) => true,
            _ => false,
        }
    }
}

/// A run of bytes with one source.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub(crate) length: u64,
    pub(crate) source: Source,
}

/// A piece of a read: data or, with no source, a hole.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) length: u64,
    pub(crate) source: Option<Source>,
}

/// All extents of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExtentMap {
    size: u64,
    extents: BTreeMap<u64, Extent>,
}

impl ExtentMap {
    /// The map of content that is in the store.
    pub(crate) fn from_blob(blob: BlobId, size: u64, holes: &[Hole]) -> Self {
        let mut map = Self {
            size,
            extents: BTreeMap::new(),
        };
        let mut position = 0;
        for hole in holes {
            if hole.offset > position {
                map.extents.insert(
                    position,
                    Extent {
                        length: hole.offset - position,
                        source: Source::Blob(blob, position),
                    },
                );
            }
            position = hole.offset + hole.length;
        }
        if position < size {
            map.extents.insert(
                position,
                Extent {
                    length: size - position,
                    source: Source::Blob(blob, position),
                },
            );
        }
        map
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are not holes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.extents.values().map(|extent| extent.length).sum()
    }

    /// Cuts extents at `position`, so that none crosses it.
    fn split_at(&mut self, position: u64) {
        if let Some((&start, extent)) = self.extents.range_mut(..position).next_back()
            && start + extent.length > position
        {
            let tail = Extent {
                length: start + extent.length - position,
                source: extent.source.advanced_by(position - start),
            };
            extent.length = position - start;
            self.extents.insert(position, tail);
        }
    }

    /// Makes a hole of the range; the size stays.
    pub(crate) fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        self.split_at(offset);
        self.split_at(end);
        let inside: Vec<u64> = self
            .extents
            .range(offset..end)
            .map(|(start, _)| *start)
            .collect();
        for start in inside {
            self.extents.remove(&start);
        }
    }

    /// Puts `length` bytes of `source` at `offset`, growing the file if needed.
    pub(crate) fn write(&mut self, offset: u64, length: u64, source: Source) {
        if length == 0 {
            return;
        }
        self.punch(offset, length);
        self.size = self.size.max(offset + length);
        if let Some((_, before)) =
            self.extents
                .range_mut(..offset)
                .next_back()
                .filter(|(start, before)| {
                    **start + before.length == offset
                        && before.source.continues_as(before.length, &source)
                })
        {
            before.length += length;
            return;
        }
        self.extents.insert(offset, Extent { length, source });
    }

    /// Allocates the holes of a range as zeros; what is there already stays.
    pub(crate) fn allocate(&mut self, offset: u64, length: u64) {
        let mut position = offset;
        let pieces = self.pieces(offset, length.min(self.size.saturating_sub(offset)));
        for piece in pieces {
            if piece.source.is_none() {
                self.write(position, piece.length, Source::Zero);
            }
            position += piece.length;
        }
    }

    /// Sets the size; what lies beyond goes away, new space is a hole.
    pub(crate) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.split_at(size);
            self.extents.split_off(&size);
        }
        self.size = size;
    }

    /// The pieces that make up a range, cut at the end of the file.
    pub(crate) fn pieces(&self, offset: u64, length: u64) -> Vec<Piece> {
        let end = offset.saturating_add(length).min(self.size);
        let mut pieces = Vec::new();
        let mut position = offset;
        let first = self
            .extents
            .range(..=offset)
            .next_back()
            .filter(|(start, extent)| **start + extent.length > offset)
            .map_or(offset, |(start, _)| *start);
        for (&start, extent) in self.extents.range(first..) {
            if position >= end || start >= end {
                break;
            }
            if start > position {
                pieces.push(Piece {
                    length: start - position,
                    source: None,
                });
                position = start;
            }
            let stop = (start + extent.length).min(end);
            pieces.push(Piece {
                length: stop - position,
                source: Some(extent.source.advanced_by(position - start)),
            });
            position = stop;
        }
        if position < end {
            pieces.push(Piece {
                length: end - position,
                source: None,
            });
        }
        pieces
    }

    /// Holes in ascending order, whole blocks only (the last one may end with the file).
    pub(crate) fn holes(&self) -> Vec<Hole> {
        let mut holes = Vec::new();
        let mut position = 0;
        let mut push = |start: u64, end: u64| {
            let start = start.next_multiple_of(BLOCK_BYTES);
            let end = if end == self.size {
                end
            } else {
                end - end % BLOCK_BYTES
            };
            if end > start {
                holes.push(Hole {
                    offset: start,
                    length: end - start,
                });
            }
        };
        for (&start, extent) in &self.extents {
            push(position, start);
            position = start + extent.length;
        }
        push(position, self.size);
        holes
    }

    /// Runs `use_segment` for each journal segment that the map refers to.
    pub(crate) fn for_each_segment(&self, mut use_segment: impl FnMut(&Arc<Segment>)) {
        for extent in self.extents.values() {
            if let Source::Journal(segment, _) = &extent.source {
                use_segment(segment);
            }
        }
    }

    /// All extents in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Extent)> {
        self.extents.iter().map(|(start, extent)| (*start, extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blob(number: u8) -> BlobId {
        BlobId([number; 32])
    }

    /// A model: for every byte its source and position there.
    fn flatten(map: &ExtentMap) -> Vec<Option<(u8, u64)>> {
        let mut bytes = Vec::new();
        for piece in map.pieces(0, map.size()) {
            for index in 0..piece.length {
                bytes.push(match &piece.source {
                    Some(Source::Blob(id, position)) => Some((id.0[0], position + index)),
                    Some(Source::Zero) => Some((255, 0)),
                    _ => None,
                });
            }
        }
        bytes
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, u64),
        Punch(u64, u64),
        Truncate(u64),
        Allocate(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..200u64, 1..60u64).prop_map(|(offset, length)| Step::Write(offset, length)),
            (0..200u64, 1..60u64).prop_map(|(offset, length)| Step::Punch(offset, length)),
            (0..250u64).prop_map(Step::Truncate),
            (0..200u64, 1..60u64).prop_map(|(offset, length)| Step::Allocate(offset, length)),
        ]
    }

    proptest! {
        #[test]
        fn extents_agree_with_a_byte_array(steps in prop::collection::vec(step(), 1..40)) {
            let mut map = ExtentMap::default();
            let mut model: Vec<Option<(u8, u64)>> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let number = (number % 250) as u8;
                match step {
                    Step::Write(offset, length) => {
                        map.write(offset, length, Source::Blob(blob(number), 1000));
                        let end = (offset + length) as usize;
                        if model.len() < end {
                            model.resize(end, None);
                        }
                        for index in 0..length {
                            model[(offset + index) as usize] = Some((number, 1000 + index));
                        }
                    }
                    Step::Punch(offset, length) => {
                        map.punch(offset, length);
                        for index in offset..(offset + length).min(model.len() as u64) {
                            model[index as usize] = None;
                        }
                    }
                    Step::Truncate(size) => {
                        map.truncate(size);
                        model.resize(size as usize, None);
                    }
                    Step::Allocate(offset, length) => {
                        map.allocate(offset, length);
                        for index in offset..(offset + length).min(model.len() as u64) {
                            let byte = &mut model[index as usize];
                            *byte = byte.or(Some((255, 0)));
                        }
                    }
                }
                prop_assert_eq!(flatten(&map), model.clone());
                prop_assert_eq!(
                    map.allocated_bytes(),
                    model.iter().filter(|byte| byte.is_some()).count() as u64
                );
            }
        }
    }
}
