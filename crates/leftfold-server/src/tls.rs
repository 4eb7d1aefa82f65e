//! The certificate and the key of a server.

use std::path::Path;
use std::sync::Arc;

use leftfold::{Error, Kind};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads a certificate, followed by its chain, and its key, both as PEM. Fails if they can't be
/// used to serve.
pub fn tls(certificate: &Path, key: &Path) -> leftfold::Result<Arc<ServerConfig>> {
    let failed = |what: &str, file: &Path, why: String| {
        Error::new(Kind::Invalid, format!("reading the {what} {}: {why}", file.display()))
    };
    let certificates = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let certificates: Vec<_> =
        certificates.map_err(|error| failed("certificate", certificate, shown(&error)))?;
    if certificates.is_empty() {
        return Err(failed("certificate", certificate, shown(&pem::Error::NoItemsFound)));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed("key", key, shown(&error)))?;
    let tried = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private));
    let mut config = tried.map_err(|error| {
        let both = format!("the certificate {} and the key {}", certificate.display(), key.display());
        Error::new(Kind::Invalid, format!("using {both}: {error}; is it the key of this certificate?"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Describes an error without the content of the file, which may be secret.
fn shown(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "expected PEM, -----BEGIN …, and found none".to_owned(),
        _ => "the PEM is invalid".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Reads files with this content as a certificate and a key. Returns the error's text.
    fn read(certificate: &str, key: &str) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| -> PathBuf {
            let file = directory.path().join(name);
            std::fs::write(&file, content).unwrap();
            file
        };
        tls(&file("cert.pem", certificate), &file("key.pem", key))
            .map(drop)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_can_not_be_served_is_refused_with_the_file_s_name_and_without_its_content() {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
        assert_eq!(read(&certificate, &key), Ok(()));
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let broken = key.replace("-----END", "-----FIN");
        for (certificate, key, expected) in [
            (certificate.as_str(), other.as_str(), "is it the key of this certificate?"),
            (&certificate, "nothing", "key.pem: expected PEM, -----BEGIN …, and found none"),
            (&certificate, &broken, "key.pem: the PEM is invalid"),
            (&certificate, &certificate, "key.pem: expected PEM, -----BEGIN …, and found none"),
            ("nothing", &key, "cert.pem: expected PEM, -----BEGIN …, and found none"),
            (&key, &key, "cert.pem: expected PEM, -----BEGIN …, and found none"),
        ] {
            let message = read(certificate, key).unwrap_err();
            assert!(message.contains(expected), "{message}");
            assert!(key.lines().nth(1).is_none_or(|secret| !message.contains(secret)), "{message}");
        }
        let message = tls(Path::new("no-such.pem"), Path::new("key.pem")).unwrap_err().to_string();
        assert!(message.contains("no-such.pem") && message.contains("No such file"), "{message}");
    }
}
