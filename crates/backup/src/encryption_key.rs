//! The key of encrypted backups.
//!
//! A key has 32 bytes; its file has them as 64 hexadecimal digits. Each object is encrypted by AES-256-GCM with a key
//! of its own, which HKDF-SHA-256 derives from the key and the object's random salt, so that no nonce is used twice.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};

/// A key.
pub struct EncryptionKey {
    bytes: [u8; 32],
}

/// A text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 64 hexadecimal digits, such as 'openssl rand -hex 32' prints")]
pub struct BadKey;

/// The bytes that encryption adds to each piece.
pub(crate) const TAG: usize = 16;

impl EncryptionKey {
    /// Reads a key, with white space around it or not.
    ///
    /// # Errors
    /// Returns an error if the text is no key.
    pub fn parse(text: &str) -> Result<EncryptionKey, BadKey> {
        let digits = text.trim().as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(BadKey);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(BadKey);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(EncryptionKey { bytes })
    }

    /// Returns a text by which the key is recognised, and from which it cannot be found.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.bytes);
        let tag = hmac::sign(&key, b"kumiki backup fingerprint");
        let bytes = tag.as_ref()[..8].iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the key of an object.
    pub(crate) fn of_object(&self, salt: &[u8]) -> ObjectKey {
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.bytes);
        let info: [&[u8]; 1] = [b"kumiki backup object"];
        let derived = key.expand(&info, &AES_256_GCM);
        let derived = derived.expect("a key is shorter than the longest output");
        ObjectKey(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

impl fmt::Debug for EncryptionKey {
    /// Formats its fingerprint alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({})", self.fingerprint())
    }
}

/// The key of an object, for its pieces.
pub(crate) struct ObjectKey(LessSafeKey);

impl ObjectKey {
    /// Encrypts a piece in place and adds its tag. A number and `is_last` are used once.
    pub(crate) fn seal(&self, number: u64, is_last: bool, bound: &[u8], piece: &mut Vec<u8>) {
        let sealed =
            self.0
                .seal_in_place_append_tag(nonce(number, is_last), Aad::from(bound), piece);
        sealed.expect("a piece is shorter than the longest input");
    }

    /// Decrypts a piece in place. Returns its bytes; `None` if it is not the one that was sealed.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        is_last: bool,
        bound: &[u8],
        piece: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let opened = self
            .0
            .open_in_place(nonce(number, is_last), Aad::from(bound), piece);
        opened.ok().map(|bytes| &*bytes)
    }
}

fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce[8] = u8::from(is_last);
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_64_digits() {
        let text = "00ff".repeat(16);
        let key = EncryptionKey::parse(&format!("{text}\n")).unwrap();
        assert_eq!((key.bytes[0], key.bytes[1]), (0, 255));
        let other = EncryptionKey::parse(&"00fe".repeat(16)).unwrap();
        assert_ne!(key.fingerprint(), other.fingerprint());
        assert!(!format!("{key:?}").contains("00ff00ff"));
        let long = format!("{text}0");
        let bad = format!("{}x", &text[1..]);
        for text in ["", &text[1..], &*long, &*bad] {
            assert!(EncryptionKey::parse(text).is_err(), "{text}");
        }
    }
}
