//! The store's key for heads of the audit log: an ed25519 key in a file that only its owner reads.

use std::fs::OpenOptions;
use std::io::{ErrorKind as IoErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use computerd_api::v1::AuditHead;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use workspace_store::id::{from_hex, random_bytes, to_hex};

use crate::error::{Error, ErrorKind, Result};

/// See the module's description.
pub struct AuditKey(SigningKey);

impl AuditKey {
    /// The key in a file; made with 256 random bits if there is none.
    ///
    /// # Errors
    /// `Corrupt` if the file holds no key, `Io` of the file.
    pub fn load_or_make(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("open the key {}", path.display()), error);
        let secret: [u8; 32];
        match std::fs::read_to_string(path) {
            Ok(text) => {
                secret = decode(text.trim()).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Corrupt,
                        format!("{} is not a key", path.display()),
                    )
                    .with_hint("bring it back from a backup; a new one is made if it is removed")
                })?;
            }
            Err(error) if error.kind() == IoErrorKind::NotFound => {
                secret = random_bytes()?;
                let write = || {
                    let mut options = OpenOptions::new();
                    let mut file = options
                        .write(true)
                        .create_new(true)
                        .mode(0o600)
                        .open(path)?;
                    file.write_all(format!("{}\n", to_hex(&secret)).as_bytes())?;
                    file.sync_all()
                };
                write().map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Self(SigningKey::from_bytes(&secret)))
    }

    /// Signs a head.
    pub fn sign(&self, head: &mut AuditHead) {
        let signature = self.0.sign(signed_text(head).as_bytes());
        head.public_key = Some(to_hex(self.0.verifying_key().as_bytes()));
        head.signature = Some(to_hex(&signature.to_bytes()));
    }
}

fn decode<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    from_hex(text)?.try_into().ok()
}

/// What a signature covers.
fn signed_text(head: &AuditHead) -> String {
    format!(
        "kura audit head 1\nsequence {}\nhash {}\ntime {}\n",
        head.sequence, head.hash, head.time
    )
}

/// Checks the signature of a head that has one, with the key that it names.
///
/// # Errors
/// `Corrupt` if it is wrong.
pub fn check_signature(head: &AuditHead) -> Result<()> {
    let (public_key, signature) = match (&head.public_key, &head.signature) {
        (None, None) => return Ok(()),
        (Some(key), Some(signature)) => (decode(key), decode(signature)),
        _ => (None, None),
    };
    let is_right =
        public_key
            .zip(signature)
            .is_some_and(|(key, signature): ([u8; 32], [u8; 64])| {
                VerifyingKey::from_bytes(&key).is_ok_and(|key| {
                    let signature = Signature::from_bytes(&signature);
                    key.verify_strict(signed_text(head).as_bytes(), &signature)
                        .is_ok()
                })
            });
    if is_right {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!(
            "the signature of the head of entry {} is wrong",
            head.sequence
        ),
    )
    .with_hint("the head itself was changed; use the one that was printed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_signed_head_can_not_be_changed_and_the_key_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.key");
        let mut head = AuditHead {
            sequence: 7,
            hash: "ab".repeat(32),
            time: "2026-01-01T00:00:00Z".to_owned(),
            ..AuditHead::default()
        };
        check_signature(&head).unwrap();
        AuditKey::load_or_make(&path).unwrap().sign(&mut head);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        check_signature(&head).unwrap();
        let mut again = head.clone();
        AuditKey::load_or_make(&path).unwrap().sign(&mut again);
        assert_eq!(again, head);
        for change in [
            |head: &mut AuditHead| head.sequence += 1,
            |head: &mut AuditHead| head.hash = "ac".repeat(32),
            |head: &mut AuditHead| head.time.push('0'),
            |head: &mut AuditHead| head.public_key = None,
            |head: &mut AuditHead| head.signature = Some("00".repeat(64)),
        ] {
            let mut changed = head.clone();
            change(&mut changed);
            assert!(check_signature(&changed).is_err(), "{changed:?}");
        }
        std::fs::write(&path, "short").unwrap();
        assert!(AuditKey::load_or_make(&path).is_err());
    }
}
