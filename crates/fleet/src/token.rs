//! The secret shared by the coordinator and its workers.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use subtle::ConstantTimeEq;

/// A secret token. `Debug` does not print it.
#[derive(Clone)]
pub struct AuthToken(String);

/// Minimum length of a token.
const MIN_LENGTH: usize = 16;

/// Why a token is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The text is too short, or not valid in a header.
    #[error("{0}: a token is one line of at least 16 printable ASCII characters without spaces")]
    Unfit(String),
    /// A file could not be read or written.
    #[error("token file {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The error.
        error: io::Error,
    },
    /// The system has no random bytes.
    #[error("the system has no random bytes: {0}")]
    NoRandomness(String),
}

impl AuthToken {
    /// Creates a token from text. `origin` names its source in the error.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid token.
    pub fn new(text: &str, origin: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() >= MIN_LENGTH && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Unfit(origin.to_owned()))
        }
    }

    /// Reads a token file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or does not contain a valid token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let name = path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|error| TokenError::File { path: name.clone(), error })?;
        Self::new(&text, &format!("token file {name}"))
    }

    /// Generates a token of 256 random bits.
    ///
    /// # Errors
    /// Returns an error if the system has no random bytes.
    pub fn generate() -> Result<Self, TokenError> {
        fresh_secret().map(Self)
    }

    /// Writes the token to a new file that only its owner can read.
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut f| {
            writeln!(f, "{}", self.0)?;
            f.sync_all()
        });
        written.map_err(|error| TokenError::File { path: path.display().to_string(), error })
    }

    /// Returns true if an `authorization` header contains this token. Takes the same time for all wrong tokens of the
    /// same length.
    #[must_use]
    pub fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let Some(shown) = authorization.and_then(|h| h.strip_prefix(b"Bearer ")) else { return false };
        shown.ct_eq(self.0.as_bytes()).into()
    }

    /// Returns the key for signatures.
    pub(crate) fn secret(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the value of an `authorization` header that presents this token.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

/// Returns 256 random bits in hexadecimal.
///
/// # Errors
/// Returns an error if the system has no random bytes.
pub fn fresh_secret() -> Result<String, TokenError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| TokenError::NoRandomness(e.to_string()))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_right_token_is_admitted() {
        let token = AuthToken::new("0123456789abcdef\n", "test").expect("fit");
        assert!(token.admits(Some(b"Bearer 0123456789abcdef")));
        for wrong in ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "0123456789abcdef", "Bearer ", ""]
        {
            assert!(!token.admits(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!token.admits(None));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn weak_tokens_are_rejected() {
        for weak in ["", "short", "has a space in the middle", "ümläut-ümläut-ümläut"] {
            assert!(AuthToken::new(weak, "test").is_err(), "{weak}");
        }
    }

    #[test]
    fn a_token_file_is_private_and_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let token = AuthToken::generate().expect("random");
        token.write(&path).expect("writes");
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(AuthToken::read(&path).expect("reads").0, token.0);
        assert!(token.write(&path).is_err());
    }
}
