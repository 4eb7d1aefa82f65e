//! A daemon that other machines can reach: with a certificate and tokens, or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use self::served::{Daemon, change, initialized, leftfold, said};

const TLS: &str = "[server]\ntls = { certificate = \"cert.pem\", key = \"key.pem\" }";

/// Creates a certificate for localhost and its key, beside the file.
fn certified(directory: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    change(directory, "[server]", TLS);
    made.cert.der().clone()
}

/// Adds a token to the file. Returns its secret.
fn with_token(directory: &Path) -> String {
    let made = leftfold(directory, &["--json", "token", "new", "shop"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let hash = made["token"]["sha256"].as_str().unwrap();
    let token =
        format!("[[token]]\nname = \"shop\"\nsha256 = \"{hash}\"\nscopes = [\"read\"]\n\n[[projection]]");
    change(directory, "[[projection]]", &token);
    made["secret"].as_str().unwrap().to_owned()
}

/// Returns the raw response to a client that trusts this certificate.
fn ask(daemon: &Daemon, trusted: CertificateDer<'static>, request: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let address = ("127.0.0.1", daemon.address.port());
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn other_machines_need_encryption_and_a_token() {
    let directory = initialized();
    let refused = |expected: &str| {
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains(expected), "{}", said(&output));
        }
    };
    change(directory.path(), "127.0.0.1:0", "0.0.0.0:0");
    refused("set a certificate in server.tls");
    drop(Daemon::start_with(directory.path(), "http", &["--insecure"]));
    let certificate = certified(directory.path());
    refused("leftfold token new");
    let secret = with_token(directory.path());
    let checked = leftfold(directory.path(), &["check"]);
    assert!(checked.status.success(), "{}", said(&checked));

    let daemon = Daemon::start_with(directory.path(), "https", &[]);
    let request = format!(
        "GET /log HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {secret}\r\n\r\n"
    );
    let answer = ask(&daemon, certificate.clone(), &request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let answer = ask(&daemon, certificate, &request.replace("Bearer lf", "Bearer fl")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let failed = ask(&daemon, other.cert.der().clone(), &request).unwrap_err();
    assert!(failed.to_string().contains("certificate"), "{failed}");
    assert!(daemon.send("GET", "/log", &[], "").is_none(), "it answers without encryption");
}

#[test]
fn a_connection_that_does_not_shake_hands_keeps_nobody_waiting() {
    let directory = initialized();
    let certificate = certified(directory.path());
    let daemon = Daemon::start_with(directory.path(), "https", &[]);
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = ask(&daemon, certificate, request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    drop(silent);
}

#[test]
fn a_certificate_that_can_not_be_used_is_named() {
    let directory = initialized();
    certified(directory.path());
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    for (key, expected) in [
        (Some(other.as_str()), "is it the key of this"),
        (Some("nothing"), "key.pem"),
        (None, "No such file"),
    ] {
        let file = directory.path().join("key.pem");
        match key {
            Some(key) => std::fs::write(file, key).unwrap(),
            None => std::fs::remove_file(file).unwrap(),
        }
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(
                said(&output).contains("server.tls") && said(&output).contains(expected),
                "{}",
                said(&output)
            );
        }
    }
}
