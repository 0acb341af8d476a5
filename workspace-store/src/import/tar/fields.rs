//! Fields of tar headers and records of PAX, as plain values.

use std::collections::BTreeMap;

use tar::Header;

use super::{damaged, field, rejected};
use crate::error::{ErrorKind, Result, StoreError};
use crate::object::Timestamp;
use crate::path::NAME_LIMIT_BYTES;

/// PAX records by keyword.
pub(super) type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What extended headers say about the next entry.
#[derive(Default)]
pub(super) struct Extended {
    pub records: Records,
    /// `GNU.sparse.offset` and `GNU.sparse.numbytes` of the oldest sparse format, in order.
    pub sparse_pairs: Vec<u64>,
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub has_pax: bool,
}

pub(super) fn verify_checksum(header: &Header) -> Result<()> {
    let bytes = header.as_bytes();
    let sum: u32 = bytes[..148]
        .iter()
        .chain(&bytes[156..])
        .map(|byte| u32::from(*byte))
        .sum::<u32>()
        + 8 * 32;
    match field(header.cksum(), "checksum of a header") {
        Ok(stored) if stored == sum => Ok(()),
        _ => Err(StoreError::new(
            ErrorKind::InvalidInput,
            "this is not a tar archive, or it is damaged: a header has a wrong checksum",
        )
        .with_hint("nothing was imported; check the archive with 'tar -tvf'")),
    }
}

/// Names of an entry's path; none for the root.
pub(super) fn tar_names<'a>(path: &'a [u8], entry: &[u8]) -> Result<Vec<&'a [u8]>> {
    if path.first() == Some(&b'/') {
        return Err(rejected(entry, "has an absolute path"));
    }
    if path.contains(&0) {
        return Err(rejected(entry, "has a NUL byte in its path"));
    }
    let mut names = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(rejected(entry, "has '..' in its path")),
            _ if name.len() > NAME_LIMIT_BYTES => {
                return Err(rejected(entry, "has a name longer than 255 bytes"));
            }
            _ => names.push(name),
        }
    }
    Ok(names)
}

pub(super) fn parse_records(data: &[u8], extended: &mut Extended) -> Result<()> {
    let mut rest = data;
    while !rest.is_empty() && rest[0] != 0 {
        let space = rest.iter().position(|byte| *byte == b' ');
        let space = space.ok_or_else(|| damaged("a PAX record has no length"))?;
        let length = parse_number(&rest[..space])?;
        let record = usize::try_from(length)
            .ok()
            .filter(|length| *length > space + 1)
            .and_then(|length| rest.get(..length))
            .filter(|record| record.ends_with(b"\n"))
            .ok_or_else(|| damaged("a PAX record has a wrong length"))?;
        rest = &rest[record.len()..];
        let record = &record[space + 1..record.len() - 1];
        let equals = record.iter().position(|byte| *byte == b'=');
        let equals = equals.ok_or_else(|| damaged("a PAX record has no '='"))?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        if key == b"GNU.sparse.offset" || key == b"GNU.sparse.numbytes" {
            extended.sparse_pairs.push(parse_number(value)?);
        }
        if value.is_empty() && !key.starts_with(b"SCHILY.xattr.") {
            extended.records.remove(key);
        } else {
            extended.records.insert(key.to_vec(), value.to_vec());
        }
    }
    Ok(())
}

pub(super) fn parse_number(text: &[u8]) -> Result<u64> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| damaged("a number can't be read"))
}

pub(super) fn parse_numbers(text: &[u8], separator: u8) -> Result<Vec<u64>> {
    text.split(|byte| *byte == separator)
        .filter(|number| !number.is_empty())
        .map(parse_number)
        .collect()
}

pub(super) fn number(records: &Records, key: &[u8]) -> Result<Option<u64>> {
    records.get(key).map(|text| parse_number(text)).transpose()
}

pub(super) fn pairs(numbers: &[u64]) -> Vec<(u64, u64)> {
    numbers
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}

/// Decimal seconds with a fraction, perhaps negative.
pub(super) fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut nanoseconds: String = fraction.chars().take(9).collect();
    while nanoseconds.len() < 9 {
        nanoseconds.push('0');
    }
    let total = i128::from(seconds.parse::<u64>().ok()?) * 1_000_000_000
        + nanoseconds.parse::<i128>().ok()?;
    Some(Timestamp::from_nanoseconds(if is_negative {
        -total
    } else {
        total
    }))
}

/// GNU tar writes '=' and '%' in names of attributes as '%3D' and '%25'.
pub(super) fn decode_xattr_name(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%3D") {
            decoded.push(b'=');
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"%25") {
            decoded.push(b'%');
            rest = after;
        } else {
            decoded.push(*byte);
            rest = after;
        }
    }
    decoded
}

pub(super) fn device(header: &Header) -> Result<u64> {
    let major = field(header.device_major(), "device number")?.unwrap_or(0);
    let minor = field(header.device_minor(), "device number")?.unwrap_or(0);
    Ok(libc::makedev(major, minor))
}
