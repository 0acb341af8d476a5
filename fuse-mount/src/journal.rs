//! The journal of an overlay: every change is in it, in the page cache, before it is answered.
//!
//! So a killed daemon loses nothing that it acknowledged [G-1]; `sync` makes it durable against
//! power loss [G-2]. Appending costs a copy into a mapped file, no system call. A record that does
//! not fit starts the next segment; a closed segment ends with an end mark, so that a replay after
//! power loss never goes on behind a gap. Checkpoints rotate to a new segment and, once the store
//! holds the state at that point, release those before it.
//!
//! Locking: the journal belongs to the filesystem's state and is only used under its lock; the
//! slow part of a sync runs outside, on the segments that [`Journal::unsynced`] names.

pub(crate) mod record;
pub(crate) mod segment;

use std::io;
use std::path::Path;
use std::sync::Arc;

use record::Record;
use segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentPool};

/// Length, checksum, segment number, request number.
const RECORD_HEADER_BYTES: u64 = 24;
/// Room for the end mark.
const END_BYTES: u64 = RECORD_HEADER_BYTES;
/// Length field of the end mark.
const END_LENGTH: u32 = u32::MAX;
/// Data from this size on is written by a system call instead of through the mapping.
const LARGE_DATA_BYTES: usize = 32 << 10;

/// Where an appended record's data is.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) segment: Arc<Segment>,
    pub(crate) position: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Journal {
    pool: Arc<SegmentPool>,
    /// Written now; made at the first record.
    active: Option<Arc<Segment>>,
    position: u64,
    /// The active segment was taken from the space that is kept back: no more data goes into it
    /// while space is short.
    is_last_space: bool,
    /// First segment of the newest cut, and `appended_bytes` when all was carried over into it.
    cut: Option<(u64, u64)>,
    /// Full segments that are still needed.
    closed: Vec<Arc<Segment>>,
    /// Closed segments whose bytes may not be on the disk yet.
    unsynced_closed: Vec<Arc<Segment>>,
    /// Segments that records of a cut refer to, with the cut's first segment: needed by a replay
    /// until the next cut is stored, also when the files have dropped what is in them.
    pinned: Vec<(u64, Arc<Segment>)>,
    next_number: u64,
    appended_bytes: u64,
    head: Vec<u8>,
}

/// What was not on the disk at one moment.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pool: Arc<SegmentPool>,
    closed: Vec<Arc<Segment>>,
    active: Option<Arc<Segment>>,
    /// [`Journal::appended_bytes`] at that moment.
    pub(crate) appended_bytes: u64,
}

impl Unsynced {
    /// Brings it to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.pool.sync_directory()?;
        self.closed
            .iter()
            .chain(&self.active)
            .try_for_each(|segment| segment.sync())
    }
}

/// Gets every record, with the kernel's number of its request and the place of its data.
pub(crate) type ReplayVisitor<'v> =
    dyn FnMut(u64, &Record<'_>, Option<Location>) -> io::Result<()> + 'v;

impl Journal {
    /// Opens the journal in `directory`, from segment `first` on; [`Journal::replay`] reads it.
    /// Segments before `first` are left for [`Journal::discard_before`].
    pub(crate) fn open(directory: &Path, first: u64) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let (pool, numbers) = SegmentPool::open(directory)?;
        let mut journal = Self {
            pool,
            active: None,
            position: 0,
            is_last_space: false,
            cut: None,
            closed: Vec::new(),
            unsynced_closed: Vec::new(),
            pinned: Vec::new(),
            next_number: numbers.last().map_or(first, |last| last + 1).max(first),
            appended_bytes: 0,
            head: Vec::new(),
        };
        let mut is_complete = true;
        for number in numbers.into_iter().filter(|number| *number >= first) {
            let segment = journal.pool.open_segment(number)?;
            let Some(segment) = segment.filter(|_| is_complete) else {
                // Written after a gap that a power loss tore, or never begun: it was not durable.
                tracing::warn!(number, "journal segment after a gap is dropped");
                journal.pool.discard(number);
                is_complete = false;
                continue;
            };
            let (end, has_end_mark) = segment.with_bytes(|bytes| scan(bytes, number));
            // A killed process may not have synced them.
            journal.appended_bytes += end;
            if !has_end_mark {
                // The newest segment of a daemon that was killed.
                is_complete = false;
                segment.write(end, &end_mark(number));
            }
            journal.unsynced_closed.push(Arc::clone(&segment));
            journal.closed.push(segment);
        }
        Ok(journal)
    }

    /// The segments to replay after opening.
    pub(crate) fn replayable(&self) -> Vec<Arc<Segment>> {
        self.closed.clone()
    }

    /// Hands every record of the segments on to `visit`, in order.
    pub(crate) fn replay(
        segments: &[Arc<Segment>],
        visit: &mut ReplayVisitor<'_>,
    ) -> io::Result<()> {
        for segment in segments {
            let bytes = segment.with_bytes(<[u8]>::to_vec);
            let mut position = SEGMENT_HEADER_BYTES;
            while let Found::Record { unique, payload } =
                read_record(&bytes, position, segment.number())
            {
                let payload_position = position + RECORD_HEADER_BYTES;
                let record = Record::decode(payload).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "journal segment {} has an unknown record at {position}",
                            segment.number()
                        ),
                    )
                })?;
                let end = payload_position + payload.len() as u64;
                let has_data = matches!(record, Record::Write { .. } | Record::Spill { .. });
                let location = has_data.then(|| Location {
                    segment: Arc::clone(segment),
                    position: end - record.data().len() as u64,
                });
                visit(unique, &record, location)?;
                position = align(end);
            }
        }
        Ok(())
    }

    /// Appends a record about the kernel's request `unique`.
    ///
    /// # Errors
    /// `ENOSPC` when the disk is full; then nothing was appended.
    pub(crate) fn append(&mut self, unique: u64, record: &Record<'_>) -> io::Result<Location> {
        self.append_with(unique, record, record.takes_last_space())
    }

    /// Appends a record that may take the reserve if the one that it is for may.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub(crate) fn append_with(
        &mut self,
        unique: u64,
        record: &Record<'_>,
        takes_last_space: bool,
    ) -> io::Result<Location> {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        head.resize(RECORD_HEADER_BYTES as usize, 0);
        record.encode_head(&mut head);
        let result = self.append_bytes(unique, &mut head, record.data(), takes_last_space);
        self.head = head;
        result
    }

    fn append_bytes(
        &mut self,
        unique: u64,
        head: &mut [u8],
        data: &[u8],
        takes_last_space: bool,
    ) -> io::Result<Location> {
        let total = (head.len() + data.len()) as u64;
        if SEGMENT_HEADER_BYTES + align(total) + END_BYTES > SEGMENT_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        if self.is_last_space && !takes_last_space && self.active.is_some() {
            self.pool.check_room()?;
            self.is_last_space = false;
        }
        let segment = match &self.active {
            Some(active) if self.position + align(total) + END_BYTES <= SEGMENT_BYTES => {
                Arc::clone(active)
            }
            _ => self.begin_segment(takes_last_space)?,
        };
        let position = self.position;
        let number = segment.number();
        head[8..16].copy_from_slice(&number.to_le_bytes());
        head[16..24].copy_from_slice(&unique.to_le_bytes());
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&head[8..]);
        checksum.update(data);
        let length = (total - RECORD_HEADER_BYTES) as u32;
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..8].copy_from_slice(&checksum.finalize().to_le_bytes());
        let data_position = position + head.len() as u64;
        if data.len() >= LARGE_DATA_BYTES {
            segment.write_large(data_position, data)?;
        } else if !data.is_empty() {
            segment.write(data_position, data);
        }
        segment.write(position, head);
        self.position = position + align(total);
        self.appended_bytes += align(total);
        Ok(Location {
            segment,
            position: data_position,
        })
    }

    fn begin_segment(&mut self, takes_last_space: bool) -> io::Result<Arc<Segment>> {
        let is_last_space = takes_last_space && self.pool.check_room().is_err();
        let segment = self.pool.create(self.next_number, takes_last_space)?;
        self.is_last_space = is_last_space;
        if let Err(error) = self.pool.fill_reserve() {
            tracing::warn!(%error, "no space for the journal's reserve");
        }
        self.close_active();
        self.next_number += 1;
        self.position = SEGMENT_HEADER_BYTES;
        self.active = Some(Arc::clone(&segment));
        Ok(segment)
    }

    fn close_active(&mut self) {
        if let Some(full) = self.active.take() {
            full.write(self.position, &end_mark(full.number()));
            self.unsynced_closed.push(Arc::clone(&full));
            self.closed.push(full);
        }
    }

    /// Ends the active segment; returns the number of the one that the next record starts.
    pub(crate) fn rotate(&mut self) -> u64 {
        self.close_active();
        self.next_number
    }

    /// Everything that a cut carries over is in the segments from `number` on.
    pub(crate) fn mark_cut(&mut self, number: u64) {
        self.cut = Some((number, self.appended_bytes));
    }

    /// The first segment of the newest cut, if nothing was appended since: a cut that the store
    /// refused is tried again without another segment, or a full disk could never be emptied.
    pub(crate) fn untouched_cut(&self) -> Option<u64> {
        let (number, appended_bytes) = self.cut?;
        (appended_bytes == self.appended_bytes).then_some(number)
    }

    /// Lets go of the segments before `number`: the store has what they say.
    pub(crate) fn release_before(&mut self, number: u64) {
        for segment in self
            .closed
            .extract_if(.., |segment| segment.number() < number)
        {
            segment.retire();
        }
        self.pinned.retain(|(cut, _)| *cut >= number);
        self.unsynced_closed
            .retain(|segment| segment.number() >= number);
    }

    /// Discards files before `number` that `is_needed` doesn't claim; once, after opening.
    pub(crate) fn discard_before(
        &self,
        directory: &Path,
        number: u64,
        is_needed: impl Fn(u64) -> bool,
    ) -> io::Result<()> {
        let (_, found) = SegmentPool::open(directory)?;
        for old in found
            .into_iter()
            .filter(|old| *old < number && !is_needed(*old))
            .filter(|old| {
                !self
                    .pinned
                    .iter()
                    .any(|(_, pinned)| pinned.number() == *old)
            })
        {
            self.pool.discard(old);
        }
        Ok(())
    }

    /// A segment that a record of the newest cut refers to, at a replay. Each is opened once only:
    /// its file goes with the last reference.
    pub(crate) fn open_old_segment(&mut self, number: u64) -> io::Result<Option<Arc<Segment>>> {
        let pinned = self.pinned.iter().map(|(_, segment)| segment);
        let mut known = pinned.chain(&self.closed);
        if let Some(segment) = known.find(|segment| segment.number() == number) {
            return Ok(Some(Arc::clone(segment)));
        }
        let segment = self.pool.open_segment(number)?;
        if let Some(segment) = &segment {
            segment.retire();
            self.pin(0, segment);
        }
        Ok(segment)
    }

    /// The segment that the newest record is in, or the next one will be.
    pub(crate) fn newest_number(&self) -> u64 {
        self.active
            .as_ref()
            .map_or(self.next_number, |segment| segment.number())
    }

    /// A record of the cut that begins with segment `cut` refers to `segment`.
    pub(crate) fn pin(&mut self, cut: u64, segment: &Arc<Segment>) {
        let is_pinned =
            |(other, pinned): &(u64, Arc<Segment>)| *other == cut && Arc::ptr_eq(pinned, segment);
        if !self.pinned.iter().any(is_pinned) {
            self.pinned.push((cut, Arc::clone(segment)));
        }
    }

    /// Whether no record is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_none() && self.closed.is_empty()
    }

    /// Bytes of the segments that a replay would read.
    pub(crate) fn bytes(&self) -> u64 {
        self.closed.len() as u64 * SEGMENT_BYTES
            + if self.active.is_some() {
                self.position
            } else {
                0
            }
    }

    /// Bytes found at opening and appended since: tells whether a sync covers a record.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// What to sync for everything appended so far.
    pub(crate) fn unsynced(&self) -> Unsynced {
        Unsynced {
            pool: Arc::clone(&self.pool),
            closed: self.unsynced_closed.clone(),
            active: self.active.clone(),
            appended_bytes: self.appended_bytes,
        }
    }

    /// `synced` is on the disk. Not so the segment that was active: it may have got more since,
    /// also if it is closed by now.
    pub(crate) fn mark_synced(&mut self, synced: &Unsynced) {
        self.unsynced_closed.retain(|segment| {
            !synced
                .closed
                .iter()
                .any(|closed| Arc::ptr_eq(closed, segment))
        });
    }

    /// Removes what is left of records that are not needed any more.
    pub(crate) fn scrub(&mut self) -> io::Result<()> {
        self.pool.scrub()?;
        match &self.active {
            Some(active) => active.scrub_from(self.position),
            None => Ok(()),
        }
    }

    /// Removes all files: nothing in them is needed.
    pub(crate) fn clear(&mut self) {
        self.close_active();
        self.release_before(u64::MAX);
        self.pool.trim();
    }
}

fn align(position: u64) -> u64 {
    position.next_multiple_of(8)
}

fn end_mark(segment: u64) -> [u8; END_BYTES as usize] {
    let mut bytes = [0; END_BYTES as usize];
    bytes[..4].copy_from_slice(&END_LENGTH.to_le_bytes());
    bytes[8..16].copy_from_slice(&segment.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// End of the records of a segment, and whether an end mark stands there.
fn scan(bytes: &[u8], segment: u64) -> (u64, bool) {
    let mut position = SEGMENT_HEADER_BYTES;
    loop {
        match read_record(bytes, position, segment) {
            Found::Record { payload, .. } => {
                position = align(position + RECORD_HEADER_BYTES + payload.len() as u64);
            }
            Found::End => return (position, true),
            Found::Nothing => return (position, false),
        }
    }
}

enum Found<'a> {
    Record { unique: u64, payload: &'a [u8] },
    End,
    Nothing,
}

fn read_record(bytes: &[u8], position: u64, segment: u64) -> Found<'_> {
    let Some(rest) = bytes.get(position as usize..) else {
        return Found::Nothing;
    };
    let Some((header, body)) = rest.split_at_checked(RECORD_HEADER_BYTES as usize) else {
        return Found::Nothing;
    };
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if long(8) != segment {
        return Found::Nothing;
    }
    let is_end = word(0) == END_LENGTH;
    let Some(payload) = body.get(..if is_end { 0 } else { word(0) as usize }) else {
        return Found::Nothing;
    };
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&header[8..]);
    checksum.update(payload);
    if checksum.finalize() != word(4) {
        return Found::Nothing;
    }
    if is_end {
        Found::End
    } else {
        Found::Record {
            unique: long(16),
            payload,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(name: &[u8]) -> Record<'_> {
        Record::Remove {
            parent: 1,
            name,
            time: Default::default(),
        }
    }

    fn replay(directory: &Path, first: u64) -> (Journal, Vec<(u64, Vec<u8>)>) {
        let mut seen = Vec::new();
        let journal = Journal::open(directory, first).unwrap();
        Journal::replay(&journal.replayable(), &mut |unique, record, location| {
            let bytes = match record {
                Record::Remove { name, .. } => name.to_vec(),
                Record::Write { data, .. } => {
                    let location = location.expect("a write has a location");
                    let mut found = vec![0; data.len()];
                    location.segment.read(location.position, &mut found)?;
                    assert_eq!(&found, data);
                    found
                }
                other => panic!("{other:?}"),
            };
            seen.push((unique, bytes));
            Ok(())
        })
        .unwrap();
        (journal, seen)
    }

    #[test]
    fn records_come_back_in_order_over_several_segments_and_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let data = vec![7; 1 << 20];
        let mut expected = Vec::new();
        for round in 0..3u64 {
            let (mut journal, seen) = replay(directory.path(), 1);
            assert_eq!(seen, expected);
            for number in 0..40u64 {
                let unique = round * 100 + number;
                if number % 2 == 0 {
                    let record = Record::Write {
                        number: 5,
                        offset: 0,
                        mode: 0,
                        time: None,
                        data: &data,
                    };
                    journal.append(unique, &record).unwrap();
                    expected.push((unique, data.clone()));
                } else {
                    let name = format!("n{unique}");
                    journal.append(unique, &removal(name.as_bytes())).unwrap();
                    expected.push((unique, name.into_bytes()));
                }
            }
        }
        assert_eq!(replay(directory.path(), 1).1, expected);
    }

    #[test]
    fn a_segment_that_a_killed_process_had_not_allocated_does_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(directory.path(), 1);
        journal.append(1, &removal(b"first")).unwrap();
        drop(journal);
        std::fs::write(directory.path().join("segment-2"), b"").unwrap();
        std::fs::write(directory.path().join("free-7"), b"").unwrap();
        let mut expected = vec![(1, b"first".to_vec())];
        for round in 2..5u64 {
            let (mut journal, seen) = replay(directory.path(), 1);
            assert_eq!(seen, expected);
            journal.append(round, &removal(b"more")).unwrap();
            expected.push((round, b"more".to_vec()));
        }
        assert_eq!(replay(directory.path(), 1).1, expected);
    }

    #[test]
    fn released_segments_are_reused_and_their_old_records_never_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(directory.path(), 1);
        for number in 0..100 {
            journal.append(number, &removal(b"old")).unwrap();
        }
        let first = journal.rotate();
        journal.append(200, &removal(b"new")).unwrap();
        journal.release_before(first);
        let next = journal.rotate();
        journal.append(201, &removal(b"newer")).unwrap();
        drop(journal);
        assert_eq!(
            replay(directory.path(), first).1,
            [(200, b"new".to_vec()), (201, b"newer".to_vec())]
        );
        assert_eq!(replay(directory.path(), next).1, [(201, b"newer".to_vec())]);
    }

    #[test]
    fn a_segment_that_is_closed_during_a_sync_is_synced_again() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(directory.path(), 1);
        journal.append(1, &removal(b"before")).unwrap();
        let syncing = journal.unsynced();
        journal.append(2, &removal(b"meanwhile")).unwrap();
        journal.rotate();
        syncing.sync().unwrap();
        journal.mark_synced(&syncing);
        let next = journal.unsynced();
        assert!(next.appended_bytes > syncing.appended_bytes);
        assert_eq!(next.closed.len(), 1, "the record `meanwhile` is in it");
        next.sync().unwrap();
        journal.mark_synced(&next);
        assert_eq!(journal.unsynced().closed.len(), 0);
    }

    #[test]
    fn what_is_found_at_opening_is_to_be_synced() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(directory.path(), 1);
        journal.append(1, &removal(b"not synced")).unwrap();
        drop(journal);
        let (journal, _) = replay(directory.path(), 1);
        assert!(journal.appended_bytes() > 0);
        assert_eq!(journal.unsynced().closed.len(), 1);
    }

    #[test]
    fn nothing_behind_a_torn_record_is_replayed() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(directory.path(), 1);
        let first = journal.append(1, &removal(b"a")).unwrap();
        let torn = journal.append(2, &removal(b"b")).unwrap();
        journal.append(3, &removal(b"c")).unwrap();
        journal.rotate();
        journal.append(4, &removal(b"d")).unwrap();
        assert_eq!(first.segment.number(), torn.segment.number());
        torn.segment.write(torn.position - 3, b"x");
        drop(journal);
        assert_eq!(replay(directory.path(), 1).1, [(1, b"a".to_vec())]);
    }
}
