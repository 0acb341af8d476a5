//! Rows of immutable objects: chunks, chunk lists of large blobs, directory nodes.
//!
//! Invariant: a stored object is never overwritten; storing it again changes nothing.

use std::fmt;

use rusqlite::{Connection, OptionalExtension};

use super::id_column;
use crate::compress::Encoding;
use crate::error::{ErrorKind, Result, StoreError};
use crate::id::{BlobId, ChunkId, TreeId};

/// An object ready to be stored.
#[derive(Debug)]
pub(crate) enum NewObject {
    /// A piece of content.
    Chunk {
        /// Its id.
        id: ChunkId,
        /// How it is stored, and its length before.
        packed: Packed,
    },
    /// The chunk list of a blob.
    Manifest {
        /// The blob.
        blob: BlobId,
        /// Length of the blob.
        size: u64,
        /// The encoded list.
        encoded: Vec<u8>,
        /// What binds the list to the blob.
        checksum: [u8; 32],
    },
    /// A directory node.
    TreeNode {
        /// Its id.
        id: TreeId,
        /// How it is stored, and its length before.
        packed: Packed,
    },
}

impl NewObject {
    /// About how many bytes it takes.
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            NewObject::Chunk { packed, .. } | NewObject::TreeNode { packed, .. } => {
                packed.stored.len()
            }
            NewObject::Manifest { encoded, .. } => encoded.len(),
        }
    }
}

/// Bytes as they are stored.
#[derive(Debug)]
pub(crate) struct Packed {
    /// How they are encoded.
    pub(crate) encoding: Encoding,
    /// Length when decoded.
    pub(crate) size: usize,
    /// The encoded bytes.
    pub(crate) stored: Vec<u8>,
}

impl Packed {
    /// Bytes as they are to be stored.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self> {
        let (encoding, stored) = crate::compress::compress(bytes)?;
        Ok(Self {
            encoding,
            size: bytes.len(),
            stored: stored.into_owned(),
        })
    }

    /// Takes it from three columns of a row: size, encoding, data.
    ///
    /// # Errors
    /// `Corrupt` for an encoding that there isn't.
    pub(crate) fn of_row((size, encoding, stored): (i64, i64, Vec<u8>)) -> Result<Self> {
        Ok(Self {
            encoding: Encoding::from_number(encoding)?,
            size: usize::try_from(size).unwrap_or(usize::MAX),
            stored,
        })
    }

    /// Decodes the bytes; a size above `max_bytes` is refused before memory is taken.
    pub(crate) fn unpack(self, max_bytes: usize) -> Result<Vec<u8>> {
        if self.size > max_bytes {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!(
                    "stored object claims {} bytes, at most {max_bytes} are possible",
                    self.size
                ),
            ));
        }
        crate::compress::decompress(self.encoding, self.stored, self.size)
    }
}

/// Where payloads of chunks are; a store of objects elsewhere can take the database's place.
pub(crate) trait ChunkStore: Send + Sync + fmt::Debug {
    /// Stores the payload of the chunk with this row number.
    fn insert(&self, connection: &Connection, number: i64, payload: &[u8]) -> Result<()>;

    /// Reads it back.
    fn read(&self, connection: &Connection, number: i64) -> Result<Option<Vec<u8>>>;
}

/// Payloads in the table `chunk_data`.
#[derive(Debug)]
pub(crate) struct DatabaseChunks;

impl ChunkStore for DatabaseChunks {
    fn insert(&self, connection: &Connection, number: i64, payload: &[u8]) -> Result<()> {
        connection
            .prepare_cached("INSERT INTO chunk_data (chunk, data) VALUES (?1, ?2)")?
            .execute((number, payload))?;
        Ok(())
    }

    fn read(&self, connection: &Connection, number: i64) -> Result<Option<Vec<u8>>> {
        Ok(connection
            .prepare_cached("SELECT data FROM chunk_data WHERE chunk = ?1")?
            .query_row([number], |row| row.get(0))
            .optional()?)
    }
}

/// Stores objects that aren't there yet.
pub(crate) fn insert(
    connection: &Connection,
    chunks: &dyn ChunkStore,
    objects: &[NewObject],
) -> Result<()> {
    for object in objects {
        match object {
            NewObject::Chunk { id, packed } => {
                let inserted = connection
                    .prepare_cached(
                        "INSERT INTO chunk (hash, size, stored_size, encoding)
                         VALUES (?1, ?2, ?3, ?4) ON CONFLICT (hash) DO NOTHING",
                    )?
                    .execute((
                        id.as_bytes(),
                        packed.size as i64,
                        packed.stored.len() as i64,
                        packed.encoding.number(),
                    ))?;
                if inserted == 1 {
                    chunks.insert(connection, connection.last_insert_rowid(), &packed.stored)?;
                }
            }
            NewObject::Manifest {
                blob,
                size,
                encoded,
                checksum,
            } => {
                connection
                    .prepare_cached(
                        "INSERT INTO manifest (hash, size, data, checksum)
                         VALUES (?1, ?2, ?3, ?4) ON CONFLICT (hash) DO NOTHING",
                    )?
                    .execute((blob.as_bytes(), *size as i64, encoded, checksum))?;
            }
            NewObject::TreeNode { id, packed } => {
                connection
                    .prepare_cached(
                        "INSERT INTO tree_node (hash, size, encoding, data)
                         VALUES (?1, ?2, ?3, ?4) ON CONFLICT (hash) DO NOTHING",
                    )?
                    .execute((
                        id.as_bytes(),
                        packed.size as i64,
                        packed.encoding.number(),
                        &packed.stored,
                    ))?;
            }
        }
    }
    Ok(())
}

/// Length of a stored chunk; `None` if it isn't stored.
pub(crate) fn chunk_size(connection: &Connection, id: ChunkId) -> Result<Option<u64>> {
    Ok(connection
        .prepare_cached("SELECT size FROM chunk WHERE hash = ?1")?
        .query_row([id.as_bytes()], |row| row.get::<_, i64>(0))
        .optional()?
        .map(|size| size as u64))
}

/// Length of a blob that has a chunk list; `None` if it has none.
pub(crate) fn manifest_size(connection: &Connection, blob: BlobId) -> Result<Option<u64>> {
    Ok(connection
        .prepare_cached("SELECT size FROM manifest WHERE hash = ?1")?
        .query_row([blob.as_bytes()], |row| row.get::<_, i64>(0))
        .optional()?
        .map(|size| size as u64))
}

/// A stored chunk.
pub(crate) fn read_chunk(
    connection: &Connection,
    chunks: &dyn ChunkStore,
    id: ChunkId,
) -> Result<Option<Packed>> {
    let row: Option<(i64, i64, i64)> = connection
        .prepare_cached("SELECT id, size, encoding FROM chunk WHERE hash = ?1")?
        .query_row([id.as_bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((number, size, encoding)) = row else {
        return Ok(None);
    };
    let stored = chunks.read(connection, number)?.ok_or_else(|| {
        StoreError::new(
            ErrorKind::Corrupt,
            format!("the payload of chunk {id} is missing"),
        )
    })?;
    Packed::of_row((size, encoding, stored)).map(Some)
}

/// A stored chunk list with its checksum.
pub(crate) fn read_manifest(
    connection: &Connection,
    blob: BlobId,
) -> Result<Option<(Vec<u8>, [u8; 32])>> {
    Ok(connection
        .prepare_cached("SELECT data, checksum FROM manifest WHERE hash = ?1")?
        .query_row([blob.as_bytes()], |row| {
            Ok((row.get(0)?, id_column(row, 1)?))
        })
        .optional()?)
}

/// Whether a directory node is stored.
pub(crate) fn has_tree_node(connection: &Connection, id: TreeId) -> Result<bool> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM tree_node WHERE hash = ?1")?
        .exists([id.as_bytes()])?)
}

/// A stored directory node.
pub(crate) fn read_tree_node(connection: &Connection, id: TreeId) -> Result<Option<Packed>> {
    let row: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached("SELECT size, encoding, data FROM tree_node WHERE hash = ?1")?
        .query_row([id.as_bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    row.map(Packed::of_row).transpose()
}

/// Which family of objects to list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Family {
    Chunk,
    Manifest,
    TreeNode,
    Commit,
}

/// Up to `limit` objects of a family with row numbers above `after`, in ascending order.
pub(crate) fn page(
    connection: &Connection,
    family: Family,
    after: i64,
    limit: i64,
) -> Result<Vec<(i64, [u8; 32])>> {
    let table = match family {
        Family::Chunk => "chunk",
        Family::Manifest => "manifest",
        Family::TreeNode => "tree_node",
        Family::Commit => "commit_object",
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, hash FROM {table} WHERE id > ?1 ORDER BY id LIMIT ?2"
    ))?;
    let rows = statement.query_map([after, limit], |row| Ok((row.get(0)?, id_column(row, 1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Number of chunks, their bytes before compression and as stored, number of directory nodes.
pub(crate) fn totals(connection: &Connection) -> Result<(u64, u64, u64, u64)> {
    let (chunks, bytes, stored): (i64, i64, i64) = connection.query_row(
        "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(stored_size), 0) FROM chunk",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let nodes: i64 =
        connection.query_row("SELECT count(*) FROM tree_node", [], |row| row.get(0))?;
    Ok((chunks as u64, bytes as u64, stored as u64, nodes as u64))
}

/// SQLite's own check of the file; `None` if it is sound.
pub(crate) fn integrity_problem(connection: &Connection) -> Result<Option<String>> {
    let answer: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((answer != "ok").then_some(answer))
}
