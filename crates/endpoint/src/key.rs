//! The secret that an endpoint may ask for.

use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq;

use crate::error::EndpointError;

/// An API key. It is never printed.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// A key from the environment or a command line; `origin` says where from, for the error.
    ///
    /// # Errors
    /// [`EndpointError::Key`] unless it is one line of printable ASCII characters without spaces.
    pub fn new(text: &str, origin: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            let problem = "a key is one line of printable ASCII characters without spaces".to_owned();
            Err(EndpointError::Key { origin: origin.to_owned(), problem })
        }
    }

    /// Reads a file that holds the key and nothing else.
    ///
    /// # Errors
    /// [`EndpointError::Key`] if it cannot be read or holds no fit key.
    pub fn read(path: &Path) -> Result<Self, EndpointError> {
        let origin = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::new(&text, &origin),
            Err(e) => Err(EndpointError::Key { origin, problem: e.to_string() }),
        }
    }

    /// Whether whoever sent this `authorization` header has the key. Takes as long for every wrong one, so that nobody learns
    /// the key byte by byte.
    #[must_use]
    pub fn is_shown_by(&self, authorization: &[u8]) -> bool {
        self.header().as_bytes().ct_eq(authorization).into()
    }

    /// The value of the `authorization` header.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_key_is_one_line_and_is_not_printed() {
        let key = Key::new(" sk-secret\n", "SGS_ENDPOINT_KEY").unwrap();
        assert_eq!(key.header(), "Bearer sk-secret");
        assert!(key.is_shown_by(b"Bearer sk-secret"));
        let wrong: [&[u8]; 4] = [b"", b"sk-secret", b"Bearer sk-secre", b"Bearer sk-secret2"];
        assert!(wrong.iter().all(|shown| !key.is_shown_by(shown)));
        assert!(!format!("{key:?}").contains("secret"));
        for unfit in ["", "two words", "line\nline", "schlüssel"] {
            let error = Key::new(unfit, "SGS_ENDPOINT_KEY").unwrap_err().to_string();
            assert!(error.contains("SGS_ENDPOINT_KEY"), "{error}");
        }
        let error = Key::read(Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/key"), "{error}");
    }
}
