//! The key pair and certificate of a server.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::pbkdf2;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::fingerprint::{Fingerprint, provider};

/// Rounds of PBKDF2. Anyone who can connect sees the public key and can test guesses of the secret, so each test must
/// be slow.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).unwrap();
/// Salt of the derivation. It separates the key from other uses of the secret.
const SALT: &[u8] = b"sgs: Ed25519 key of a TLS server, version 1";
/// PKCS #8 header of an Ed25519 private key (RFC 8410, §7). The 32 bytes of the key follow.
const PKCS8_HEADER: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// A key pair with a self-signed certificate. The same secret always gives the same key.
#[derive(Debug)]
pub struct Identity {
    fingerprint: Fingerprint,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// Derives the key from a secret.
    #[allow(clippy::expect_used, reason = "every 32 bytes are an Ed25519 key")]
    pub fn from_secret(secret: &str) -> Self {
        let mut seed = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, SALT, secret.as_bytes(), &mut seed);
        let key = PrivatePkcs8KeyDer::from([PKCS8_HEADER, &seed].concat());
        let pair = rcgen::KeyPair::try_from(&key).expect("invariant: an Ed25519 key");
        let certificate = rcgen::CertificateParams::default().self_signed(&pair);
        let certificate = certificate.expect("invariant: the certificate can be signed").der().clone();
        let fingerprint = Fingerprint::of(&certificate).expect("invariant: the certificate can be parsed");
        let server = server_config(vec![certificate], key.into()).expect("invariant: the key fits");
        Self { fingerprint, server }
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the configuration of a server that shows the certificate.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }
}

/// Paths of an operator's certificate chain and its private key, both in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, with the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The error of an invalid certificate or key file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct TlsFilesError {
    path: PathBuf,
    problem: String,
}

impl TlsFiles {
    /// Returns the configuration of a server that shows the certificate.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is invalid, or if the key does not belong to the certificate.
    pub fn server(&self) -> Result<Arc<ServerConfig>, TlsFilesError> {
        let wrong = |path: &Path, problem: String| TlsFilesError { path: path.to_owned(), problem };
        let pem = |path: &Path| fs::read(path).map_err(|e| wrong(path, e.to_string()));
        let chain = CertificateDer::pem_slice_iter(&pem(&self.certificate)?).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|e| wrong(&self.certificate, format!("not a PEM certificate: {e:?}")))?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&self.key)?);
        let key = key.map_err(|e| wrong(&self.key, format!("not a PEM private key: {e:?}")))?;
        server_config(chain, key)
            .map_err(|e| wrong(&self.certificate, format!("certificate and key do not match: {e}")))
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
