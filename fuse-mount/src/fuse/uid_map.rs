//! Translation of user and group ids between the host and the store, for mounts with
//! `--uid-map HOST:STORE:COUNT`.
//!
//! Ids without a partner become the overflow id, as in the kernel's user namespaces.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Stands for an id that has no partner ("nobody").
pub const OVERFLOW_ID: u32 = 65534;

/// `count` ids from `host` on the host are those from `store` in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// First id as the kernel sees it.
    pub host: u32,
    /// First id as it is stored.
    pub store: u32,
    /// Number of ids, at least 1.
    pub count: u32,
}

/// Why a range is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdMapError {
    /// Not three numbers.
    #[error("id range `{0}` is not HOST:STORE:COUNT (three numbers, for example 1000:0:1)")]
    Syntax(String),
    /// Nothing to map.
    #[error("id range `{0}` is empty: COUNT must be at least 1")]
    Empty(String),
    /// Ids end at 4294967294.
    #[error("id range `{0}` ends beyond the largest id, 4294967294")]
    TooLarge(String),
    /// An id would have two partners.
    #[error("id ranges {0} and {1} overlap on the {2} side")]
    Overlap(String, String, &'static str),
}

impl std::fmt::Display for IdRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.host, self.store, self.count)
    }
}

impl FromStr for IdRange {
    type Err = IdMapError;

    fn from_str(text: &str) -> Result<Self, IdMapError> {
        let syntax = || IdMapError::Syntax(text.to_owned());
        let mut numbers = text.split(':').map(|part| {
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                part.parse::<u32>().map_err(|_| syntax())
            } else {
                Err(syntax())
            }
        });
        let mut next = || numbers.next().unwrap_or_else(|| Err(syntax()));
        let range = Self {
            host: next()?,
            store: next()?,
            count: next()?,
        };
        if numbers.next().is_some() {
            return Err(syntax());
        }
        if range.count == 0 {
            return Err(IdMapError::Empty(text.to_owned()));
        }
        let ends_in_bounds = |first: u32| u64::from(first) + u64::from(range.count) <= 0xffff_ffff;
        if !ends_in_bounds(range.host) || !ends_in_bounds(range.store) {
            return Err(IdMapError::TooLarge(text.to_owned()));
        }
        Ok(range)
    }
}

/// A set of ranges; without any, every id is its own partner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IdMap {
    ranges: Vec<IdRange>,
}

impl IdMap {
    /// The map of these ranges.
    ///
    /// # Errors
    /// Two ranges share an id on one side.
    pub fn new(ranges: Vec<IdRange>) -> Result<Self, IdMapError> {
        let overlap = |a: u32, b: u32, a_count: u32, b_count: u32| {
            u64::from(a) < u64::from(b) + u64::from(b_count)
                && u64::from(b) < u64::from(a) + u64::from(a_count)
        };
        for (index, left) in ranges.iter().enumerate() {
            for right in &ranges[index + 1..] {
                let side = if overlap(left.host, right.host, left.count, right.count) {
                    "host"
                } else if overlap(left.store, right.store, left.count, right.count) {
                    "store"
                } else {
                    continue;
                };
                return Err(IdMapError::Overlap(
                    left.to_string(),
                    right.to_string(),
                    side,
                ));
            }
        }
        Ok(Self { ranges })
    }

    /// Whether every id is its own partner.
    pub fn is_identity(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The stored partner of an id that the kernel shows.
    pub fn to_store(&self, id: u32) -> u32 {
        self.find_store(id).unwrap_or(OVERFLOW_ID)
    }

    /// As [`IdMap::to_store`], but `None` without a partner.
    pub fn find_store(&self, id: u32) -> Option<u32> {
        if self.ranges.is_empty() {
            return Some(id);
        }
        self.ranges
            .iter()
            .find(|range| id >= range.host && id - range.host < range.count)
            .map(|range| range.store + (id - range.host))
    }

    /// The partner that the kernel is shown of a stored id.
    pub fn to_host(&self, id: u32) -> u32 {
        if self.ranges.is_empty() {
            return id;
        }
        self.ranges
            .iter()
            .find(|range| id >= range.store && id - range.store < range.count)
            .map_or(OVERFLOW_ID, |range| range.host + (id - range.store))
    }
}

impl FromStr for IdMap {
    type Err = IdMapError;

    /// Ranges separated by commas.
    fn from_str(text: &str) -> Result<Self, IdMapError> {
        let ranges = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Self::new(ranges)
    }
}

/// Direction of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the kernel to the store.
    ToStore,
    /// From the store to the kernel.
    ToHost,
}

/// Translates the ids in the value of a `system.posix_acl_*` attribute, in place. A value that
/// is no ACL is left alone.
pub fn translate_acl(value: &mut [u8], users: &IdMap, groups: &IdMap, direction: Direction) {
    const ACL_VERSION: u32 = 2;
    const ACL_USER: u16 = 0x02;
    const ACL_GROUP: u16 = 0x08;
    let Some((version, entries)) = value.split_first_chunk_mut::<4>() else {
        return;
    };
    if u32::from_le_bytes(*version) != ACL_VERSION || entries.len() % 8 != 0 {
        return;
    }
    for entry in entries.chunks_exact_mut(8) {
        let map = match u16::from_le_bytes([entry[0], entry[1]]) {
            ACL_USER => users,
            ACL_GROUP => groups,
            _ => continue,
        };
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let id = match direction {
            Direction::ToStore => map.to_store(id),
            Direction::ToHost => map.to_host(id),
        };
        entry[4..].copy_from_slice(&id.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_translate_both_ways_and_strangers_become_nobody() {
        let map: IdMap = "1000:0:1,2000:100:50".parse().unwrap();
        assert_eq!(map.to_store(1000), 0);
        assert_eq!(map.to_host(0), 1000);
        assert_eq!(map.to_store(2049), 149);
        assert_eq!(map.to_host(149), 2049);
        assert_eq!(map.to_store(2050), OVERFLOW_ID);
        assert_eq!(map.to_store(0), OVERFLOW_ID);
        assert_eq!(map.to_host(1000), OVERFLOW_ID);
        assert_eq!(map.find_store(0), None);
        let identity = IdMap::default();
        assert_eq!(identity.to_store(4_000_000_000), 4_000_000_000);
        assert_eq!(identity.to_host(0), 0);
    }

    #[test]
    fn bad_ranges_are_refused_with_the_text_that_is_wrong() {
        for text in [
            "", "1", "1:2", "1:2:3:4", "a:0:1", "-1:0:1", "1: 2:3", "+1:2:3",
        ] {
            assert_eq!(
                text.parse::<IdRange>(),
                Err(IdMapError::Syntax(text.to_owned()))
            );
        }
        assert_eq!(
            "1:2:0".parse::<IdRange>(),
            Err(IdMapError::Empty("1:2:0".to_owned()))
        );
        assert_eq!(
            "4294967295:0:1".parse::<IdRange>(),
            Err(IdMapError::TooLarge("4294967295:0:1".to_owned()))
        );
        assert!("4294967294:0:1".parse::<IdRange>().is_ok());
        assert!(matches!(
            "0:0:10,5:100:1".parse::<IdMap>(),
            Err(IdMapError::Overlap(_, _, "host"))
        ));
        assert!(matches!(
            "0:0:10,50:9:1".parse::<IdMap>(),
            Err(IdMapError::Overlap(_, _, "store"))
        ));
    }

    #[test]
    fn acl_entries_of_users_and_groups_are_translated() {
        let users: IdMap = "1000:5:1".parse().unwrap();
        let groups: IdMap = "2000:6:1".parse().unwrap();
        let acl = |user: u32, group: u32| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, id) in [(1_u16, u32::MAX), (2, user), (4, u32::MAX), (8, group)] {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(7_u16.to_le_bytes());
                bytes.extend(id.to_le_bytes());
            }
            bytes
        };
        let mut value = acl(1000, 2000);
        translate_acl(&mut value, &users, &groups, Direction::ToStore);
        assert_eq!(value, acl(5, 6));
        translate_acl(&mut value, &users, &groups, Direction::ToHost);
        assert_eq!(value, acl(1000, 2000));
    }

    proptest! {
        #[test]
        fn a_mapped_id_comes_back(host in 0_u32..100_000, store in 0_u32..100_000, count in 1_u32..1000, pick in 0_u32..1000) {
            let map = IdMap::new(vec![IdRange { host, store, count }]).unwrap();
            let id = host + pick % count;
            prop_assert_eq!(map.to_host(map.to_store(id)), id);
        }
    }
}
