//! POSIX access control lists, as far as the filesystem itself must keep them: inheritance of a
//! directory's default list, and agreement of a list with the permission bits. The kernel checks
//! access against them (FUSE_POSIX_ACL).
//!
//! Value format: `struct posix_acl_xattr_header` and entries of the kernel's uapi, version 2,
//! little-endian. Rules: acl(5), and POSIX 1003.1e draft 17, section 23.

use std::collections::BTreeMap;
use std::sync::Arc;

use workspace_store::object::Xattrs;

use super::request::Errno;

/// Name of the list that rules access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that new entries of a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

fn parse(value: &[u8]) -> Option<Vec<AclEntry>> {
    let (version, rest) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || rest.len() % 8 != 0 {
        return None;
    }
    let entries = rest.chunks_exact(8).map(|bytes| AclEntry {
        tag: u16::from_le_bytes([bytes[0], bytes[1]]),
        permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
        id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    });
    Some(entries.collect())
}

fn encode(entries: &[AclEntry]) -> Box<[u8]> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in entries {
        value.extend_from_slice(&entry.tag.to_le_bytes());
        value.extend_from_slice(&entry.permissions.to_le_bytes());
        value.extend_from_slice(&entry.id.to_le_bytes());
    }
    value.into()
}

/// Whether the list says no more than permission bits can.
fn is_minimal(entries: &[AclEntry]) -> bool {
    entries
        .iter()
        .all(|entry| matches!(entry.tag, USER_OWNER | GROUP_OWNER | OTHER))
}

/// The permission bits that a list stands for.
fn mode_of(entries: &[AclEntry], mode: u32) -> u32 {
    let has_mask = entries.iter().any(|entry| entry.tag == MASK);
    let mut bits = mode & !0o777;
    for entry in entries {
        let permissions = u32::from(entry.permissions & 7);
        match entry.tag {
            USER_OWNER => bits |= permissions << 6,
            MASK => bits |= permissions << 3,
            GROUP_OWNER if !has_mask => bits |= permissions << 3,
            OTHER => bits |= permissions,
            _ => {}
        }
    }
    bits
}

/// Sets the entries that stand for permission bits.
fn set_mode(entries: &mut [AclEntry], mode: u32, only_take_away: bool) {
    let has_mask = entries.iter().any(|entry| entry.tag == MASK);
    for entry in entries {
        let bits = match entry.tag {
            USER_OWNER => mode >> 6 & 7,
            MASK => mode >> 3 & 7,
            GROUP_OWNER if !has_mask => mode >> 3 & 7,
            OTHER => mode & 7,
            _ => continue,
        } as u16;
        entry.permissions = if only_take_away {
            entry.permissions & bits
        } else {
            bits
        };
    }
}

/// Permission bits and attributes of a new entry in a directory with these attributes.
pub(crate) fn inherit(
    directory: &Xattrs,
    mode: u32,
    umask: u32,
    is_directory: bool,
) -> (u32, Xattrs) {
    let Some(value) = directory.get(DEFAULT) else {
        return (mode & !(umask & 0o777), Xattrs::default());
    };
    let Some(mut entries) = parse(value) else {
        return (mode & !(umask & 0o777), Xattrs::default());
    };
    let mut xattrs: BTreeMap<Box<[u8]>, Box<[u8]>> = BTreeMap::new();
    if is_directory {
        xattrs.insert(DEFAULT.into(), value.clone());
    }
    set_mode(&mut entries, mode, true);
    let mode = mode_of(&entries, mode);
    if !is_minimal(&entries) {
        xattrs.insert(ACCESS.into(), encode(&entries));
    }
    (mode, Arc::new(xattrs))
}

/// What setting an access list does: the new permission bits, and whether a list is stored (a
/// minimal one isn't: the bits say it all).
pub(crate) fn set_access(value: &[u8], mode: u32) -> Result<(u32, bool), Errno> {
    let entries = parse(value).ok_or(Errno(libc::EINVAL))?;
    if entries.iter().any(|entry| {
        !matches!(
            entry.tag,
            USER_OWNER | USER | GROUP_OWNER | GROUP | MASK | OTHER
        )
    }) {
        return Err(Errno(libc::EINVAL));
    }
    Ok((mode_of(&entries, mode), !is_minimal(&entries)))
}

/// The access list after a change of the permission bits, if there is one.
pub(crate) fn after_mode_change(xattrs: &Xattrs, mode: u32) -> Option<Box<[u8]>> {
    let mut entries = parse(xattrs.get(ACCESS)?)?;
    set_mode(&mut entries, mode, false);
    Some(encode(&entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u16, permissions: u16, id: u32) -> AclEntry {
        AclEntry {
            tag,
            permissions,
            id,
        }
    }

    fn with_named_user() -> Vec<AclEntry> {
        vec![
            entry(USER_OWNER, 7, u32::MAX),
            entry(USER, 6, 1234),
            entry(GROUP_OWNER, 5, u32::MAX),
            entry(MASK, 7, u32::MAX),
            entry(OTHER, 0, u32::MAX),
        ]
    }

    fn directory_with(entries: &[AclEntry]) -> Xattrs {
        Arc::new(BTreeMap::from([(DEFAULT.into(), encode(entries))]))
    }

    #[test]
    fn without_a_default_list_the_umask_counts() {
        assert_eq!(inherit(&Xattrs::default(), 0o666, 0o022, false).0, 0o644);
    }

    #[test]
    fn with_a_default_list_the_umask_does_not_count_and_the_mask_is_the_group_bits() {
        let directory = directory_with(&with_named_user());
        let (mode, xattrs) = inherit(&directory, 0o640, 0o077, false);
        assert_eq!(mode, 0o640);
        let entries = parse(&xattrs[ACCESS]).unwrap();
        assert_eq!(entries[0].permissions, 6);
        assert_eq!(entries[3].permissions, 4);
        assert!(!xattrs.contains_key(DEFAULT));
        assert!(inherit(&directory, 0o750, 0, true).1.contains_key(DEFAULT));
    }

    #[test]
    fn a_minimal_list_becomes_permission_bits() {
        let minimal = encode(&[
            entry(USER_OWNER, 6, u32::MAX),
            entry(GROUP_OWNER, 4, u32::MAX),
            entry(OTHER, 0, u32::MAX),
        ]);
        assert_eq!(set_access(&minimal, 0o4777), Ok((0o4640, false)));
        assert_eq!(
            set_access(&encode(&with_named_user()), 0o600),
            Ok((0o770, true))
        );
        assert_eq!(set_access(b"garbage", 0o600), Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn chmod_changes_the_mask_of_a_list() {
        let xattrs: Xattrs = Arc::new(BTreeMap::from([(
            ACCESS.into(),
            encode(&with_named_user()),
        )]));
        let entries = parse(&after_mode_change(&xattrs, 0o741).unwrap()).unwrap();
        let permissions: Vec<u16> = entries.iter().map(|entry| entry.permissions).collect();
        assert_eq!(permissions, [7, 6, 5, 4, 1]);
    }
}
