//! API keys of endpoints.

use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq;

use crate::error::EndpointError;

/// An API key. `Debug` does not print it.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Creates a key from text. `origin` names its source in the error.
    ///
    /// # Errors
    /// Returns an error unless the text is one line of printable ASCII characters without spaces.
    pub fn new(text: &str, origin: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            let problem = "a key is one line of printable ASCII characters without spaces".to_owned();
            Err(EndpointError::ApiKey { origin: origin.to_owned(), problem })
        }
    }

    /// Reads a file that contains the key.
    pub fn read(path: &Path) -> Result<Self, EndpointError> {
        let origin = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::new(&text, &origin),
            Err(e) => Err(EndpointError::ApiKey { origin, problem: e.to_string() }),
        }
    }

    /// Returns true if an `authorization` header contains the key. Compares in constant time, so that the duration does not
    /// reveal how much of a wrong key is right.
    #[must_use]
    pub fn matches(&self, authorization: &[u8]) -> bool {
        self.header().as_bytes().ct_eq(authorization).into()
    }

    /// Returns the value of the `authorization` header.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_line_and_is_not_printed() {
        let key = ApiKey::new(" sk-secret\n", "SGS_ENDPOINT_KEY").unwrap();
        assert_eq!(key.header(), "Bearer sk-secret");
        assert!(key.matches(b"Bearer sk-secret"));
        let wrong: [&[u8]; 4] = [b"", b"sk-secret", b"Bearer sk-secre", b"Bearer sk-secret2"];
        assert!(wrong.iter().all(|shown| !key.matches(shown)));
        assert!(!format!("{key:?}").contains("secret"));
        for unfit in ["", "two words", "line\nline", "schlüssel"] {
            let error = ApiKey::new(unfit, "SGS_ENDPOINT_KEY").unwrap_err().to_string();
            assert!(error.contains("SGS_ENDPOINT_KEY"), "{error}");
        }
        let error = ApiKey::read(Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/key"), "{error}");
    }
}
