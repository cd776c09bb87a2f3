//! The secret shared by the coordinator and its workers.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sgs_tls::Fingerprint;
use subtle::ConstantTimeEq;

/// A secret token, and the fingerprint of the key of the coordinator to which it may be sent. `Debug` does not print the
/// secret. As text, the fingerprint follows the secret after a line break or a space.
#[derive(Clone)]
pub struct AuthToken {
    secret: String,
    fingerprint: Option<Fingerprint>,
}

const MIN_LENGTH: usize = 16;
const TOKEN_VARIABLE: &str = "SGS_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "SGS_TOKEN_FILE";

/// Why a token is unusable, for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

fn file_error(path: &Path, error: &io::Error) -> TokenError {
    TokenError(format!("token file {}: {error}", path.display()))
}

impl AuthToken {
    /// Creates a token from text. `origin` names its source in the error.
    pub fn new(text: &str, origin: &str) -> Result<Self, TokenError> {
        let unfit = || {
            TokenError(format!(
                "{origin}: a token is at least {MIN_LENGTH} printable ASCII characters without spaces; after it, on a \
                 second line, only the fingerprint `sha256//…` of the coordinator's key may follow"
            ))
        };
        let mut words = text.split_ascii_whitespace();
        let secret = words.next().unwrap_or_default().to_owned();
        let fingerprint = words.next().map(str::parse).transpose().map_err(|_| unfit())?;
        let fits = secret.len() >= MIN_LENGTH && secret.bytes().all(|b| b.is_ascii_graphic());
        if fits && words.next().is_none() { Ok(Self { secret, fingerprint }) } else { Err(unfit()) }
    }

    /// Reads a token file.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = fs::read_to_string(path).map_err(|error| file_error(path, &error))?;
        Self::new(&text, &format!("token file {}", path.display()))
    }

    /// Reads the token of a file or, without one, of the environment: the token itself, or the name of its file.
    pub fn from_file_or_environment(file: Option<&Path>) -> Result<Option<Self>, TokenError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let (None, Some(text)) = (file, set(TOKEN_VARIABLE)) {
            return Self::new(&text.to_string_lossy(), TOKEN_VARIABLE).map(Some);
        }
        let file = file.map(Path::to_owned).or_else(|| set(TOKEN_FILE_VARIABLE).map(PathBuf::from));
        file.map(|path| Self::read(&path)).transpose()
    }

    /// Generates a token of 256 random bits.
    pub fn generate() -> Result<Self, TokenError> {
        Ok(Self { secret: fresh_secret()?, fingerprint: None })
    }

    /// Reads a token file, or generates the token and writes the file if there is none.
    pub fn read_or_generate(path: &Path) -> Result<Self, TokenError> {
        if !path.exists() {
            Self::generate()?.write(path)?;
        }
        Self::read(path)
    }

    /// Returns the same token for a coordinator with this key, or for one whose certificate an authority has signed.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: Option<Fingerprint>) -> Self {
        Self { fingerprint, ..self }
    }

    /// Writes the token to a file that only its owner can read. Replaces the file.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let temporary = path.with_extension("tmp");
        let write = || {
            match fs::remove_file(&temporary) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            writeln!(file, "{}", self.secret)?;
            if let Some(fingerprint) = self.fingerprint {
                writeln!(file, "{fingerprint}")?;
            }
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|error| file_error(path, &error))
    }

    /// Returns true if an `authorization` header contains this token. Takes the same time for all wrong tokens of the
    /// same length.
    #[must_use]
    pub fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let Some(shown) = authorization.and_then(|h| h.strip_prefix(b"Bearer ")) else { return false };
        shown.ct_eq(self.secret.as_bytes()).into()
    }

    /// Returns the secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns the fingerprint of the coordinator's key, if the token names one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Returns the value of an `authorization` header that presents this token.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.secret)
    }
}

/// Returns 256 random bits in hexadecimal.
pub fn fresh_secret() -> Result<String, TokenError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| TokenError(format!("the system has no random bytes: {e}")))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
