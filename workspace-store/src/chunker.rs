//! Cuts content into chunks at places that its bytes decide (FastCDC, version of 2020).
//!
//! Where it cuts is a detail of storage, not of identity; the golden test pins it all the same,
//! because moved cuts would store everything a second time. Memory is bounded by one buffer.

use fastcdc::v2020::FastCDC;

use crate::edit::Content;
use crate::error::{ErrorKind, Result, StoreError};
use crate::limits::{CHUNK_AVERAGE_BYTES, CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, WHOLE_FILE_MAX_BYTES};
use crate::object::Hole;

const BUFFER_BYTES: usize = 4 * CHUNK_MAX_BYTES;

/// Calls `take` with each chunk of `content` in order, and with whether the chunk is all zeros
/// and the same as the one before. `holes` are not read; `buffer` is working memory to be reused.
///
/// # Errors
/// `Io` if the content can't be read or ends before its size; errors of `take`.
pub(crate) fn for_each_chunk(
    content: &dyn Content,
    holes: &[Hole],
    buffer: &mut Vec<u8>,
    mut take: impl FnMut(&[u8], bool) -> Result<()>,
) -> Result<()> {
    let size = content.size();
    if size <= WHOLE_FILE_MAX_BYTES as u64 {
        buffer.resize(size as usize, 0);
        fill(content, holes, 0, buffer)?;
        return if buffer.is_empty() {
            Ok(())
        } else {
            take(buffer, false)
        };
    }
    let mut next_offset = 0_u64;
    let mut is_after_zeros = false;
    buffer.clear();
    loop {
        let kept = buffer.len();
        let wanted = (size - next_offset).min((BUFFER_BYTES - kept) as u64) as usize;
        buffer.resize(kept + wanted, 0);
        fill(content, holes, next_offset, &mut buffer[kept..])?;
        next_offset += wanted as u64;
        let is_last = next_offset == size;
        let cutter = FastCDC::new(
            buffer,
            CHUNK_MIN_BYTES,
            CHUNK_AVERAGE_BYTES,
            CHUNK_MAX_BYTES,
        );
        let mut start = 0;
        while start < buffer.len() && (is_last || buffer.len() - start >= CHUNK_MAX_BYTES) {
            let rest = &buffer[start..];
            // Zeros never offer a place to cut, so they need not be searched for one.
            let is_zeros = rest.len() >= CHUNK_MAX_BYTES && is_zero(&rest[..CHUNK_MAX_BYTES]);
            let end = if is_zeros {
                start + CHUNK_MAX_BYTES
            } else {
                cutter.cut(start, rest.len()).1
            };
            take(&buffer[start..end], is_zeros && is_after_zeros)?;
            is_after_zeros = is_zeros;
            start = end;
        }
        if is_last {
            return Ok(());
        }
        buffer.drain(..start);
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// Fills `buffer` from `offset`, holes without reading them.
fn fill(content: &dyn Content, holes: &[Hole], offset: u64, buffer: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let position = offset + done as u64;
        let next = holes.partition_point(|hole| hole.offset + hole.length <= position);
        let (is_hole, end) = match holes.get(next) {
            Some(hole) if hole.offset <= position => (true, hole.offset + hole.length),
            Some(hole) => (false, hole.offset),
            None => (false, u64::MAX),
        };
        let length = usize::try_from(end - position).unwrap_or(usize::MAX);
        let part_end = done + length.min(buffer.len() - done);
        let part = &mut buffer[done..part_end];
        if is_hole {
            part.fill(0);
        } else {
            read_part(content, position, part)?;
        }
        done = part_end;
    }
    Ok(())
}

fn read_part(content: &dyn Content, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let count = content
            .read_at(offset + done as u64, &mut buffer[done..])
            .map_err(|error| StoreError::io("cannot read new content", error))?;
        if count == 0 {
            return Err(StoreError::new(
                ErrorKind::Io,
                format!(
                    "new content ends at byte {} instead of {}",
                    offset + done as u64,
                    content.size()
                ),
            )
            .with_hint("the file was changed while it was read; try again"));
        }
        done += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new()
            .update(b"chunker")
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    }

    fn cuts(content: &Vec<u8>) -> Vec<usize> {
        let mut lengths = Vec::new();
        let mut joined = Vec::new();
        for_each_chunk(content, &[], &mut Vec::new(), |chunk, _| {
            lengths.push(chunk.len());
            joined.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        assert!(&joined == content, "chunks joined must be the content");
        lengths
    }

    #[test]
    fn files_up_to_the_whole_file_limit_are_one_chunk() {
        assert_eq!(cuts(&noise(0)), Vec::<usize>::new());
        assert_eq!(cuts(&noise(1)), [1]);
        assert_eq!(cuts(&noise(WHOLE_FILE_MAX_BYTES)), [WHOLE_FILE_MAX_BYTES]);
    }

    #[test]
    fn cut_points_are_those_that_were_pinned() {
        assert_eq!(cuts(&noise(600_000)), GOLDEN_NOISE);
        let zeros = cuts(&vec![0; 1_000_000]);
        assert_eq!(
            zeros,
            [CHUNK_MAX_BYTES, CHUNK_MAX_BYTES, CHUNK_MAX_BYTES, 213_568]
        );
    }

    const GOLDEN_NOISE: [usize; 9] = [
        55_221, 73_339, 161_575, 67_951, 51_056, 22_966, 96_531, 28_800, 42_561,
    ];

    #[test]
    fn streaming_cuts_as_one_buffer_would() {
        let content = noise(5_000_000);
        let whole: Vec<usize> = FastCDC::new(
            &content,
            CHUNK_MIN_BYTES,
            CHUNK_AVERAGE_BYTES,
            CHUNK_MAX_BYTES,
        )
        .map(|chunk| chunk.length)
        .collect();
        assert_eq!(cuts(&content), whole);
    }

    #[test]
    fn a_change_moves_only_the_cuts_near_it() {
        let before = cuts(&noise(3_000_000));
        let mut changed = noise(3_000_000);
        changed.insert(1_000_000, b'x');
        let after = cuts(&changed);
        let same_tail = before
            .iter()
            .rev()
            .zip(after.iter().rev())
            .take_while(|(a, b)| a == b)
            .count();
        assert!(
            same_tail > before.len() / 2,
            "{same_tail} of {}",
            before.len()
        );
    }

    struct Short;
    impl Content for Short {
        fn size(&self) -> u64 {
            10
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
            Ok(buffer.len().min(5_usize.saturating_sub(offset as usize)))
        }
    }

    #[test]
    fn content_that_ends_early_is_an_error() {
        let error = for_each_chunk(&Short, &[], &mut Vec::new(), |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }

    #[test]
    fn holes_are_not_read_and_runs_of_zeros_are_announced() {
        struct Sparse;
        impl Content for Sparse {
            fn size(&self) -> u64 {
                64 << 20
            }
            fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
                assert!(offset + buffer.len() as u64 <= 4096, "a hole was read");
                buffer.fill(7);
                Ok(buffer.len())
            }
        }
        let hole = Hole {
            offset: 4096,
            length: (64 << 20) - 4096,
        };
        let (mut joined, mut announced) = (Vec::new(), 0);
        for_each_chunk(&Sparse, &[hole], &mut Vec::new(), |chunk, is_like_last| {
            if is_like_last {
                announced += 1;
                assert!(joined.ends_with(chunk));
            }
            joined.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        let mut expected = vec![7; 4096];
        expected.resize(64 << 20, 0);
        assert!(joined == expected);
        assert!(announced > 250, "{announced}");
        let whole = cuts(&expected);
        assert!(
            whole[1..whole.len() - 1]
                .iter()
                .all(|size| *size == CHUNK_MAX_BYTES)
        );
    }
}
