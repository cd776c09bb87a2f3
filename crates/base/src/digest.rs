//! SHA-256 digests and hexadecimal text.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Returns the SHA-256 digest of bytes as 64 lower-case hexadecimal digits.
pub fn checksum_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
