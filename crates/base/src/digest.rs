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

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the digest of "abc" in FIPS 180-4.
    #[test]
    fn digests_are_those_of_the_standard() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum_of(b"abc"), abc);
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }
}
