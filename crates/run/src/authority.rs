//! The certificates that are trusted instead of the public authorities', of endpoints and of coordinators.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The certificates (DER) in a PEM file that is named by `by`, a key or an argument.
///
/// # Errors
/// The file cannot be read or holds none, or this build has no TLS.
pub fn certificates(path: &Path, by: &str) -> Result<Vec<Vec<u8>>> {
    let read = || {
        let found = found(&std::fs::read(path)?)?;
        ensure!(!found.is_empty(), "there is no certificate in PEM form in it");
        Ok(found)
    };
    read().with_context(|| format!("the authority {} ({by})", path.display()))
}

#[cfg(feature = "tls")]
fn found(pem: &[u8]) -> Result<Vec<Vec<u8>>> {
    use ureq::tls::{PemItem, parse_pem};
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate.der().to_vec())),
        Ok(_) => None,
        Err(error) => Some(Err(anyhow::Error::from(error))),
    };
    parse_pem(pem).filter_map(certificate).collect()
}

#[cfg(not(feature = "tls"))]
fn found(_: &[u8]) -> Result<Vec<Vec<u8>>> {
    anyhow::bail!("this build has no TLS; build it with the feature `tls`")
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_of_certificates_is_read_and_any_other_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let told = || format!("{:#}", certificates(&path, "--authority").unwrap_err());
        assert!(
            told().starts_with(&format!("the authority {} (--authority): ", path.display())),
            "{}",
            told()
        );
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        std::fs::write(&path, &key).unwrap();
        assert!(told().ends_with("there is no certificate in PEM form in it"), "{}", told());
        std::fs::write(&path, &certificate[..certificate.len() / 2]).unwrap();
        assert!(told().contains("ca.pem (--authority): "), "{}", told());
        std::fs::write(&path, [key, certificate.clone(), certificate].concat()).unwrap();
        assert_eq!(certificates(&path, "--authority").unwrap(), vec![certified.cert.der().to_vec(); 2]);
    }
}
