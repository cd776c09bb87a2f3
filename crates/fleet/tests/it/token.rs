//! Tokens and their files.

use sgs_fleet::AuthToken;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn only_the_right_token_is_admitted() {
    let token = AuthToken::new("0123456789abcdef\n", "test").expect("fit");
    assert!(token.admits(Some(b"Bearer 0123456789abcdef")));
    for wrong in ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "0123456789abcdef", "Bearer ", ""] {
        assert!(!token.admits(Some(wrong.as_bytes())), "{wrong}");
    }
    assert!(!token.admits(None));
    assert!(!format!("{token:?}").contains("0123"));
}

#[test]
fn weak_tokens_are_rejected() {
    let fingerprint = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let three = format!("0123456789abcdef {fingerprint} more");
    for weak in ["", "short", "has a space in the middle", "ümläut-ümläut-ümläut", &three] {
        assert!(AuthToken::new(weak, "test").is_err(), "{weak}");
    }
}

#[test]
fn a_token_file_is_private_and_read_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let token = AuthToken::read_or_generate(&path).expect("generates");
    assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(AuthToken::read_or_generate(&path).expect("reads").secret(), token.secret());
    let fingerprint = sgs_tls::Identity::from_secret("of this test").fingerprint();
    let named = token.clone().with_fingerprint(Some(fingerprint));
    // Write the file that an interrupted write leaves behind.
    fs::write(path.with_extension("tmp"), "half").expect("writes");
    named.write(&path).expect("replaces");
    assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
    let read = AuthToken::read(&path).expect("reads");
    assert_eq!(read.fingerprint(), Some(fingerprint));
    assert_eq!(read.secret(), token.secret());
}
