//! Digests.

use sgs_base::digest::{checksum_of, hex};

/// The digest of "abc" in FIPS 180-4.
#[test]
fn digests_are_those_of_the_standard() {
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(checksum_of(b"abc"), abc);
    assert_eq!(hex(&[0, 10, 255]), "000aff");
}
