//! The secret that workers show to the service.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use subtle::ConstantTimeEq;

/// A bearer token. It is never printed.
#[derive(Clone)]
pub struct Token(String);

/// Shortest token that is accepted.
const SHORTEST: usize = 16;

/// A token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Too easy to guess, or not fit for a header.
    #[error("{0}: a token is one line of at least 16 printable ASCII characters without spaces")]
    Unfit(String),
    /// A file could not be read or written.
    #[error("token file {path}: {error}")]
    File { path: String, error: io::Error },
    /// The system gave no randomness.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(String),
}

impl Token {
    /// A token from the environment or a command line; `origin` says where from, for the error.
    ///
    /// # Errors
    /// [`TokenError::Unfit`].
    pub fn new(text: &str, origin: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() >= SHORTEST && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Unfit(origin.to_owned()))
        }
    }

    /// Reads a token file.
    ///
    /// # Errors
    /// If it cannot be read or holds no fit token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let name = path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|error| TokenError::File { path: name.clone(), error })?;
        Self::new(&text, &format!("token file {name}"))
    }

    /// A fresh token of 256 random bits.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate() -> Result<Self, TokenError> {
        fresh_secret().map(Self)
    }

    /// Writes the token to a new file that only its owner can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut f| {
            writeln!(f, "{}", self.0)?;
            f.sync_all()
        });
        written.map_err(|error| TokenError::File { path: path.display().to_string(), error })
    }

    /// Whether a request's `Authorization` header shows this token. Takes the same time for every wrong one of the
    /// same length.
    #[must_use]
    pub fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let Some(shown) = authorization.and_then(|h| h.strip_prefix(b"Bearer ")) else { return false };
        shown.ct_eq(self.0.as_bytes()).into()
    }

    /// What signatures are made with.
    pub(crate) fn secret(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The value of the `Authorization` header, which says the token.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

/// 256 random bits as text.
///
/// # Errors
/// If the system has no randomness.
pub fn fresh_secret() -> Result<String, TokenError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| TokenError::NoRandomness(e.to_string()))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_token_itself_is_admitted() {
        let token = Token::new("0123456789abcdef\n", "test").expect("fit");
        assert!(token.admits(Some(b"Bearer 0123456789abcdef")));
        for wrong in ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "0123456789abcdef", "Bearer ", ""]
        {
            assert!(!token.admits(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!token.admits(None));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn weak_tokens_are_refused() {
        for weak in ["", "short", "has a space in the middle", "ümläut-ümläut-ümläut"] {
            assert!(Token::new(weak, "test").is_err(), "{weak}");
        }
    }

    #[test]
    fn a_token_file_is_private_and_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let token = Token::generate().expect("random");
        token.write(&path).expect("writes");
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::read(&path).expect("reads").0, token.0);
        assert!(token.write(&path).is_err());
    }
}
