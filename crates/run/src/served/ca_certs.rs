//! Reads the certificates to trust for endpoints and coordinators instead of those of the public authorities.

use crate::error::{Context, Result, RunError, ensure};
use std::path::Path;

/// Reads the certificates in a PEM file and returns them in DER form. `by` is the key or argument that names the file,
/// for errors.
pub fn certificates(path: &Path, by: &str) -> Result<Vec<Vec<u8>>> {
    let read = || {
        let found = found(&std::fs::read(path)?)?;
        ensure!(!found.is_empty(), "it contains no certificate in PEM format");
        Ok(found)
    };
    read().with_context(|| format!("the certificates of {} ({by})", path.display()))
}

fn found(pem: &[u8]) -> Result<Vec<Vec<u8>>> {
    use ureq::tls::{PemItem, parse_pem};
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate.der().to_vec())),
        Ok(_) => None,
        Err(error) => Some(Err(RunError::Other(Box::new(error)))),
    };
    parse_pem(pem).filter_map(certificate).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn certificates_are_read_and_errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let told = || format!("{:#}", certificates(&path, "--authority").unwrap_err());
        assert!(
            told().starts_with(&format!("the certificates of {} (--authority): ", path.display())),
            "{}",
            told()
        );
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        std::fs::write(&path, &key).unwrap();
        assert!(told().ends_with("it contains no certificate in PEM format"), "{}", told());
        std::fs::write(&path, &certificate[..certificate.len() / 2]).unwrap();
        assert!(told().contains("ca.pem (--authority): "), "{}", told());
        std::fs::write(&path, [key, certificate.clone(), certificate].concat()).unwrap();
        assert_eq!(certificates(&path, "--authority").unwrap(), vec![certified.cert.der().to_vec(); 2]);
    }
}
