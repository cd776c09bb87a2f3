//! The fingerprint of a server's public key, and clients that accept only that key.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring::default_provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, PeerIncompatible, SignatureScheme};

/// SHA-256 of a public key. Its text form, `sha256//BASE64`, is that of curl's `--pinnedpubkey`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

const PREFIX: &str = "sha256//";

impl Fingerprint {
    /// Returns the fingerprint of a certificate's public key.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let mut sum = [0; 32];
        sum.copy_from_slice(digest::digest(&digest::SHA256, &key).as_ref());
        Ok(Self(sum))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error of a text that is not a fingerprint.
#[derive(Debug, thiserror::Error)]
#[error("a fingerprint is {PREFIX} and 44 characters of base64")]
pub struct InvalidFingerprint;

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let text = text.strip_prefix(PREFIX).ok_or(InvalidFingerprint)?;
        let sum = BASE64_STANDARD.decode(text).map_err(|_| InvalidFingerprint)?;
        sum.try_into().map(Self).map_err(|_| InvalidFingerprint)
    }
}

/// Returns the configuration of a client that accepts only servers with this key.
#[allow(clippy::expect_used, reason = "depends on constants only")]
pub fn client_config(fingerprint: Fingerprint) -> Arc<ClientConfig> {
    let provider = provider();
    let verifier = PinnedKey { fingerprint, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("invariant: the provider has cipher suites of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.enable_sni = false;
    Arc::new(config)
}

/// Returns true if a connection failed because the server does not speak TLS, or its certificate is not trusted.
pub fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    let known = |e: &rustls::Error| {
        matches!(e, rustls::Error::InvalidCertificate(_) | rustls::Error::InvalidMessage(_))
    };
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let inner = inner.map(|inner| inner as &(dyn Error + 'static));
    let below = || inner.or_else(|| error.source());
    error.downcast_ref::<rustls::Error>().is_some_and(known) || below().is_some_and(is_untrusted)
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// Accepts a server by its public key. If the key is known, names, dates and issuers do not matter.
#[derive(Debug)]
struct PinnedKey {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of(end_entity)? == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
