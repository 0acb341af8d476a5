//! Content: storing it in chunks and reading it back.
//!
//! A blob of one chunk is that chunk, because both ids are the hash of the same bytes; only a
//! larger one has a chunk list. Threads: content of many files is hashed and compressed on several
//! threads, each handing its chunks to the database in groups; a full queue holds them up, so
//! memory stays bounded. Every chunk that is read is verified against its id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::background::{Background, run_for};
use crate::chunker::for_each_chunk;
use crate::compress::compress;
use crate::db::objects::{self, NewObject, Packed};
use crate::db::purge;
use crate::db::writer::Pending;
use crate::edit::Content;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, ChunkId};
use crate::limits::{
    CHUNK_CACHE_BYTES, CHUNK_MAX_BYTES, DISK_HEADROOM_BYTES, MANIFEST_CACHE_BYTES,
    OBJECT_BATCH_BYTES, OBJECT_BATCH_COUNT,
};
use crate::object::Node;
use crate::object::codec::{
    Manifest, are_valid_holes, decode_manifest, encode_manifest, manifest_checksum,
};
use crate::snapshot::{ProgressFunction, SnapshotProgress};
use crate::store::Inner;

/// Groups of objects that one producer may have on their way to the database.
const BATCHES_IN_FLIGHT: usize = 2;

/// Chunks and chunk lists that were read lately.
#[derive(Debug)]
pub(crate) struct BlobCache {
    chunks: Cache<ChunkId, Arc<Vec<u8>>, ChunkWeight>,
    manifests: Cache<BlobId, Arc<Manifest>, ManifestWeight>,
}

impl BlobCache {
    /// Empty caches.
    pub(crate) fn new() -> Self {
        Self {
            chunks: Cache::with_weighter(4096, CHUNK_CACHE_BYTES, ChunkWeight),
            manifests: Cache::with_weighter(256, MANIFEST_CACHE_BYTES, ManifestWeight),
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.chunks.clear();
        self.manifests.clear();
    }
}

#[derive(Debug, Clone)]
struct ChunkWeight;

impl Weighter<ChunkId, Arc<Vec<u8>>> for ChunkWeight {
    fn weight(&self, _: &ChunkId, chunk: &Arc<Vec<u8>>) -> u64 {
        chunk.len() as u64 + 128
    }
}

#[derive(Debug, Clone)]
struct ManifestWeight;

impl Weighter<BlobId, Arc<Manifest>> for ManifestWeight {
    fn weight(&self, _: &BlobId, manifest: &Arc<Manifest>) -> u64 {
        manifest.runs().len() as u64 * 64 + 128
    }
}

/// Objects on their way to the database, in groups.
#[derive(Debug)]
pub(crate) struct ObjectSink<'s> {
    store: &'s Inner,
    batch: Vec<NewObject>,
    batch_bytes: usize,
    in_flight: std::collections::VecDeque<Pending<()>>,
}

impl<'s> ObjectSink<'s> {
    /// A sink into `store`.
    pub(crate) fn new(store: &'s Inner) -> Self {
        Self {
            store,
            batch: Vec::new(),
            batch_bytes: 0,
            in_flight: Default::default(),
        }
    }

    /// Adds an object; waits while too much is on its way.
    pub(crate) fn push(&mut self, object: NewObject) -> Result<()> {
        self.batch_bytes += object.weight_bytes();
        self.batch.push(object);
        if self.batch_bytes >= OBJECT_BATCH_BYTES || self.batch.len() >= OBJECT_BATCH_COUNT {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        while self.in_flight.len() >= BATCHES_IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            oldest.wait()?;
        }
        self.store.check_disk_space(self.batch_bytes as u64)?;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let chunks = Arc::clone(&self.store.chunk_store);
        let pending = self
            .store
            .database
            .write_later(move |connection| objects::insert(connection, chunks.as_ref(), &batch))?;
        self.in_flight.push_back(pending);
        Ok(())
    }

    /// Waits until everything is in the database (durable with the next durable transaction).
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.send()?;
        while let Some(oldest) = self.in_flight.pop_front() {
            oldest.wait()?;
        }
        Ok(())
    }
}

/// How far the threads are, together.
struct Progress<'p> {
    report: ProgressFunction<'p>,
    files_total: u64,
    bytes_total: u64,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
}

impl Progress<'_> {
    fn add(&self, files: u64, bytes: u64) {
        let files_done = self.files_done.fetch_add(files, Ordering::Relaxed) + files;
        let bytes_done = self.bytes_done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.report)(SnapshotProgress {
            files_done,
            files_total: self.files_total,
            bytes_done,
            bytes_total: self.bytes_total,
        });
    }
}

impl Inner {
    /// Refuses a group of objects that would fill the disk to the brim. It is written twice, into
    /// the log and the database.
    fn check_disk_space(&self, group_bytes: u64) -> Result<()> {
        let found = nix::sys::statvfs::statvfs(&self.directory).map_err(|errno| {
            StoreError::io(
                "look for space for new objects",
                std::io::Error::from(errno),
            )
        })?;
        let available_bytes = found.blocks_available() * found.fragment_size();
        // Small groups are the directories of a commit that may only delete.
        let is_small = group_bytes < 1 << 20;
        if !is_small && available_bytes < DISK_HEADROOM_BYTES + 2 * group_bytes {
            return Err(StoreError::new(
                ErrorKind::NoSpace,
                format!("store new objects: {available_bytes} bytes are free on the store's disk"),
            )
            .with_hint("free space on the disk that holds the store, then try again"));
        }
        Ok(())
    }

    /// Stores contents; gives back what each became by its key.
    ///
    /// # Errors
    /// The first error of any of them; then nothing refers to what was stored so far.
    pub(crate) fn put_blobs(
        &self,
        contents: &[(u64, Arc<dyn Content>)],
        report: ProgressFunction<'_>,
    ) -> Result<HashMap<u64, Node>> {
        let bytes_total = contents.iter().map(|(_, content)| content.size()).sum();
        let progress = Progress {
            report,
            files_total: contents.len() as u64,
            bytes_total,
            files_done: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
        };
        let next = AtomicUsize::new(0);
        let has_failed = AtomicBool::new(false);
        let work = || -> Result<Vec<(u64, Node)>> {
            let mut stored = Vec::new();
            let mut sink = ObjectSink::new(self);
            let mut buffer = Vec::new();
            while !has_failed.load(Ordering::Relaxed)
                && let Some((key, content)) = contents.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let node = self.put_blob(content.as_ref(), &mut sink, &mut buffer, &progress);
                if node.is_err() {
                    has_failed.store(true, Ordering::Relaxed);
                }
                stored.push((*key, node?));
            }
            sink.flush()
                .inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            Ok(stored)
        };
        // A thread for a little work costs more than it brings.
        let threads = match bytes_total {
            0..1_000_000 => 1,
            _ => self.threads.min(contents.len()),
        };
        if threads <= 1 {
            return Ok(work()?.into_iter().collect());
        }
        let background = Background::current();
        let help = || run_for(background.as_ref(), work);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(help)).collect();
            let mut stored: HashMap<u64, Node> = work()?.into_iter().collect();
            for other in others {
                let more = other.join().unwrap_or_else(|_| {
                    Err(StoreError::new(
                        ErrorKind::Internal,
                        "a storing thread panicked",
                    ))
                });
                stored.extend(more?);
            }
            Ok(stored)
        })
    }

    fn put_blob(
        &self,
        content: &dyn Content,
        sink: &mut ObjectSink<'_>,
        buffer: &mut Vec<u8>,
        progress: &Progress<'_>,
    ) -> Result<Node> {
        let size = content.size();
        let holes = content.holes();
        if !are_valid_holes(&holes, size) {
            return Err(StoreError::new(
                ErrorKind::InvalidInput,
                "new content has impossible holes",
            ));
        }
        let mut whole = blake3::Hasher::new();
        let mut manifest = Manifest::default();
        let mut last: Option<ChunkId> = None;
        for_each_chunk(content, &holes, buffer, |bytes, is_like_last| {
            if bytes.len() as u64 != size {
                whole.update(bytes);
            }
            let id = match last {
                Some(last) if is_like_last => last,
                _ => ChunkId(*blake3::hash(bytes).as_bytes()),
            };
            manifest.push(id, bytes.len() as u32);
            if last.replace(id) != Some(id) && !self.has_chunk(id)? {
                let (encoding, stored) = compress(bytes)?;
                let packed = Packed {
                    encoding,
                    size: bytes.len(),
                    stored: stored.into_owned(),
                };
                sink.push(NewObject::Chunk { id, packed })?;
            }
            progress.add(0, bytes.len() as u64);
            Ok(())
        })?;
        let blob = match manifest.runs() {
            [only] if only.repetitions == 1 => BlobId(only.chunk.0),
            runs => {
                let blob = BlobId(*whole.finalize().as_bytes());
                if !runs.is_empty() {
                    let encoded = encode_manifest(&manifest);
                    let checksum = manifest_checksum(blob, &encoded);
                    sink.push(NewObject::Manifest {
                        blob,
                        size,
                        encoded,
                        checksum,
                    })?;
                }
                blob
            }
        };
        progress.add(1, 0);
        Ok(Node::Regular {
            blob,
            size,
            holes: holes.into(),
        })
    }

    fn has_chunk(&self, id: ChunkId) -> Result<bool> {
        Ok(self
            .database
            .read(|connection| objects::chunk_size(connection, id))?
            .is_some())
    }

    /// Length of a stored blob; `None` if it isn't stored.
    pub(crate) fn blob_size(&self, blob: BlobId) -> Result<Option<u64>> {
        if is_empty_blob(blob) {
            return Ok(Some(0));
        }
        self.database.read(|connection| {
            Ok(match objects::chunk_size(connection, ChunkId(blob.0))? {
                Some(size) => Some(size),
                None => objects::manifest_size(connection, blob)?,
            })
        })
    }

    /// Reads content from `offset`; a count below the buffer's length means the end was reached.
    pub(crate) fn read_blob(&self, blob: BlobId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if is_empty_blob(blob) || buffer.is_empty() {
            return Ok(0);
        }
        if let Some(chunk) = self.blob_cache.chunks.get(&ChunkId(blob.0)) {
            return Ok(copy_from(&chunk, offset, buffer));
        }
        let manifest = match self.blob_cache.manifests.get(&blob) {
            Some(manifest) => manifest,
            None => {
                if let Some(chunk) = self.load_chunk(ChunkId(blob.0))? {
                    return Ok(copy_from(&chunk, offset, buffer));
                }
                let manifest = self.load_manifest(blob)?;
                if manifest.is_none()
                    && let Some(time_ns) = self
                        .database
                        .read(|connection| purge::purged_ns(connection, blob))?
                {
                    return Err(purged(blob, time_ns));
                }
                let manifest = manifest.ok_or_else(|| {
                    StoreError::new(ErrorKind::Corrupt, format!("content {blob} is missing"))
                        .with_hint("run `kura fsck`")
                })?;
                let manifest = Arc::new(manifest);
                self.blob_cache
                    .manifests
                    .insert(blob, Arc::clone(&manifest));
                manifest
            }
        };
        let mut done = 0;
        while done < buffer.len()
            && let position = offset.saturating_add(done as u64)
            && let Some((id, start, size)) = manifest.locate(position)
        {
            let chunk = self.chunk(id)?;
            if chunk.len() != size as usize {
                return Err(StoreError::new(
                    ErrorKind::Corrupt,
                    format!("the chunk list of content {blob} is wrong"),
                )
                .with_hint("run `kura fsck`"));
            }
            done += copy_from(&chunk, position - start, &mut buffer[done..]);
        }
        Ok(done)
    }

    /// A chunk that must be stored, through the cache.
    pub(crate) fn chunk(&self, id: ChunkId) -> Result<Arc<Vec<u8>>> {
        match self.blob_cache.chunks.get(&id) {
            Some(chunk) => Ok(chunk),
            None => self.load_chunk(id)?.ok_or_else(|| {
                StoreError::new(ErrorKind::Corrupt, format!("chunk {id} is missing"))
                    .with_hint("run `kura fsck`")
            }),
        }
    }

    /// Reads and verifies a chunk and puts it into the cache.
    fn load_chunk(&self, id: ChunkId) -> Result<Option<Arc<Vec<u8>>>> {
        let Some(bytes) = self.read_verified_chunk(id)? else {
            return Ok(None);
        };
        let chunk = Arc::new(bytes);
        self.blob_cache.chunks.insert(id, Arc::clone(&chunk));
        Ok(Some(chunk))
    }

    /// Reads and verifies a chunk from the database.
    pub(crate) fn read_verified_chunk(&self, id: ChunkId) -> Result<Option<Vec<u8>>> {
        let packed = self
            .database
            .read(|connection| objects::read_chunk(connection, self.chunk_store.as_ref(), id))?;
        let Some(packed) = packed else {
            return Ok(None);
        };
        let bytes = packed.unpack(CHUNK_MAX_BYTES)?;
        if blake3::hash(&bytes).as_bytes() != id.as_bytes() {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!("chunk {id} has other bytes than its id says"),
            )
            .with_hint("run `kura fsck`"));
        }
        Ok(Some(bytes))
    }

    /// Reads and verifies a chunk list.
    pub(crate) fn load_manifest(&self, blob: BlobId) -> Result<Option<Manifest>> {
        let stored = self
            .database
            .read(|connection| objects::read_manifest(connection, blob))?;
        let Some((encoded, checksum)) = stored else {
            return Ok(None);
        };
        if manifest_checksum(blob, &encoded) != checksum {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!("the chunk list of content {blob} is damaged"),
            )
            .with_hint("run `kura fsck`"));
        }
        decode_manifest(&encoded).map(Some)
    }
}

/// What who reads purged content is told.
pub(crate) fn purged(blob: BlobId, time_ns: i64) -> StoreError {
    let seconds = time_ns / 1_000_000_000;
    StoreError::new(
        ErrorKind::NotFound,
        format!("content {blob} was purged (at {seconds} seconds since 1970)"),
    )
    .with_hint("`kura audit` says by whom; it is gone for good")
}

/// Whether this is the id of no bytes at all, which need no storage.
pub(crate) fn is_empty_blob(blob: BlobId) -> bool {
    blob == empty_blob()
}

/// The id of no bytes at all.
pub(crate) fn empty_blob() -> BlobId {
    BlobId(*blake3::hash(&[]).as_bytes())
}

fn copy_from(bytes: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let count = buffer.len().min(bytes.len() - start);
    buffer[..count].copy_from_slice(&bytes[start..start + count]);
    count
}
