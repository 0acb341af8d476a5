//! Compression of stored objects: zstd, kept only where it saves space.
//!
//! Threads: the compressor is one per thread, because its working memory is costly to set up.

use std::borrow::Cow;
use std::cell::RefCell;

use crate::error::{ErrorKind, Result, StoreError};

const LEVEL: i32 = 1;
/// Below this nothing is gained.
const SMALLEST_BYTES: usize = 64;

/// How bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As they are.
    Plain,
    /// One zstd frame.
    Zstd,
}

impl Encoding {
    /// The number that stands for it in the database.
    pub(crate) fn number(self) -> i64 {
        match self {
            Encoding::Plain => 0,
            Encoding::Zstd => 1,
        }
    }

    /// The encoding that a number in the database stands for.
    pub(crate) fn from_number(number: i64) -> Result<Self> {
        match number {
            0 => Ok(Encoding::Plain),
            1 => Ok(Encoding::Zstd),
            _ => Err(StoreError::new(
                ErrorKind::Incompatible,
                format!("object is stored in the unknown encoding {number}"),
            )
            .with_hint("it was written by a newer version of kura; update this one")),
        }
    }
}

thread_local! {
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> =
        const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
        const { RefCell::new(None) };
}

/// Compresses `bytes` if that makes them smaller.
pub(crate) fn compress(bytes: &[u8]) -> Result<(Encoding, Cow<'_, [u8]>)> {
    if bytes.len() < SMALLEST_BYTES {
        return Ok((Encoding::Plain, Cow::Borrowed(bytes)));
    }
    let failed = |error| StoreError::io("cannot compress an object", error);
    let compressed = COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            None => slot.insert(zstd::bulk::Compressor::new(LEVEL).map_err(failed)?),
        };
        compressor.compress(bytes).map_err(failed)
    })?;
    if compressed.len() < bytes.len() {
        Ok((Encoding::Zstd, Cow::Owned(compressed)))
    } else {
        Ok((Encoding::Plain, Cow::Borrowed(bytes)))
    }
}

/// Gives back the `size` bytes that were stored.
///
/// # Errors
/// `Corrupt` if they can't be decoded or have another size; never allocates more than `size`.
pub(crate) fn decompress(encoding: Encoding, stored: Vec<u8>, size: usize) -> Result<Vec<u8>> {
    let bytes = match encoding {
        Encoding::Plain => stored,
        Encoding::Zstd => DECOMPRESSOR.with_borrow_mut(|slot| {
            let failed = |error: std::io::Error| {
                StoreError::new(ErrorKind::Corrupt, "stored object can't be decompressed")
                    .with_source(error)
            };
            let decompressor = match slot {
                Some(decompressor) => decompressor,
                None => slot.insert(zstd::bulk::Decompressor::new().map_err(failed)?),
            };
            decompressor.decompress(&stored, size).map_err(failed)
        })?,
    };
    if bytes.len() == size {
        Ok(bytes)
    } else {
        Err(StoreError::new(
            ErrorKind::Corrupt,
            format!("stored object has {} bytes instead of {size}", bytes.len()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_kept_only_if_smaller_and_round_trips() {
        let text = b"the same words again and again ".repeat(100);
        let (encoding, stored) = compress(&text).unwrap();
        assert_eq!(encoding, Encoding::Zstd);
        assert!(stored.len() < text.len() / 10);
        assert_eq!(
            decompress(encoding, stored.into_owned(), text.len()).unwrap(),
            text
        );

        let mut noise = vec![0; 4096];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let (encoding, stored) = compress(&noise).unwrap();
        assert_eq!(
            (encoding, stored.as_ref()),
            (Encoding::Plain, noise.as_slice())
        );
    }

    #[test]
    fn a_frame_that_grows_beyond_its_recorded_size_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
        let error = decompress(Encoding::Zstd, bomb, 4096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let error = decompress(Encoding::Plain, vec![0; 3], 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(decompress(Encoding::Zstd, b"not a frame".to_vec(), 100).is_err());
    }
}
