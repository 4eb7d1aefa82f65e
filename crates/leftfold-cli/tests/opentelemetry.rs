//! Spans of requests, commits and reactions reach a collector, and contain no secret.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized, leftfold, said};

const HIDDEN: &str = "hidden";

/// Starts a collector that accepts everything. Returns its requests: the first line, and the body
/// as far as it is text.
fn collector() -> (u16, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let sender = sender.clone();
            thread::spawn(move || receive(connection.unwrap(), &sender));
        }
    });
    (port, received)
}

fn receive(mut connection: TcpStream, sender: &Sender<(String, String)>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        // The receiver may be gone.
        let _ = sender.send((first.trim_end().to_owned(), String::from_utf8_lossy(&body).into_owned()));
    }
}

#[test]
fn spans_are_exported_and_hold_no_secret() {
    let directory = initialized();
    let (port, received) = collector();
    let log =
        format!("[log]\nopentelemetry = \"http://127.0.0.1:{port}/\"\nservice_name = \"shop-one\"\n[server]");
    change(directory.path(), "[server]", &log);
    let made = leftfold(directory.path(), &["--json", "token", "new", "shop"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let (token, hash) = (made["secret"].as_str().unwrap(), made["token"]["sha256"].as_str().unwrap());
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook_port = hook.local_addr().unwrap().port();
    let config = format!(
        "[[token]]\nname = \"shop\"\nsha256 = \"{hash}\"\nscopes = [\"ingest\", \"read\"]\n\n\
         [[reaction]]\nname = \"told\"\non = \"carts\"\nurl = \"http://127.0.0.1:{hook_port}/hidden?key=hidden\"\n\
         secret = \"whsec_aGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVu\"\nallow = [\"127.0.0.0/8\"]\n\n[[projection]]"
    );
    change(directory.path(), "[[projection]]", &config);

    let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
    let command = command.current_dir(directory.path()).arg("serve").stderr(Stdio::piped());
    let (mut daemon, _output) = Daemon::run(command, "http");
    let bearer = format!("Bearer {token}");
    let authorized = ("authorization", bearer.as_str());
    let event = json!({ "type": "cart-opened", "data": { "client": "hidden" } }).to_string();
    let (status, body) = daemon.send("POST", "/streams/cart-1", &[JSON, authorized], &event).unwrap();
    assert_eq!(status, 201, "{body}");
    let read = serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned();
    let path = format!("/collections/carts/documents/cart-1?at_least={read}");
    assert_eq!(daemon.send("GET", &path, &[authorized], "").unwrap().0, 200);
    assert_eq!(daemon.send("GET", "/nothing/hidden?hidden=hidden", &[authorized], "").unwrap().0, 404);
    // The webhook is called and does not respond: its span shows the failure.
    drop(hook.accept().unwrap());
    daemon.signal("-TERM");
    assert!(daemon.process.wait().unwrap().success());
    let mut logged = String::new();
    daemon.process.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
    assert!(!logged.contains("request{") && !logged.contains("commit{"), "lines are as ever: {logged}");

    let exported: Vec<_> = received.try_iter().collect();
    assert!(!exported.is_empty() && exported.iter().all(|(first, _)| first == "POST /v1/traces HTTP/1.1"));
    let exported: String = exported.into_iter().map(|(_, body)| body).collect();
    for expected in [
        "service.name",
        "shop-one",
        "POST /streams/{stream}",
        "GET /collections/{collection}/documents/{id}",
        "http.response.status_code",
        "commit",
        "projection",
        "carts",
        "task",
        "told",
    ] {
        assert!(exported.contains(expected), "{expected} is missing: {exported}");
    }
    for secret in [HIDDEN, "aGlkZGVuaGlkZGVu", token, &token[..20]] {
        assert!(!exported.contains(secret), "{secret} is told: {exported}");
    }
}

#[test]
fn a_collector_that_is_not_there_hinders_nothing() {
    let directory = initialized();
    let log = "[log]\nopentelemetry = \"http://127.0.0.1:1\"\n[server]";
    change(directory.path(), "[server]", log);
    let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
    let command = command.current_dir(directory.path()).arg("serve").stderr(Stdio::piped());
    let (mut daemon, _output) = Daemon::run(command, "http");
    assert_eq!(daemon.send("GET", "/healthz", &[], "").unwrap().0, 200);
    thread::sleep(Duration::from_millis(10));
    daemon.signal("-TERM");
    assert!(daemon.process.wait().unwrap().success());
    let mut logged = String::new();
    daemon.process.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
    assert!(logged.contains("spans can't be exported"), "{logged}");
}

#[test]
fn a_url_that_can_not_be_one_is_refused_and_not_repeated() {
    for (url, expected) in [
        ("http://[hidden", "http://localhost:4318"),
        ("hidden", "http:// or https://"),
        ("ftp://hidden", "http:// or https://"),
        ("http://ann:hidden@localhost:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
    ] {
        let directory = initialized();
        change(directory.path(), "[server]", &format!("[log]\nopentelemetry = \"{url}\"\n[server]"));
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            let said = said(&output);
            assert!(said.contains("log.opentelemetry") && said.contains(expected), "{said}");
            assert!(!said.contains(HIDDEN), "{said}");
        }
    }
}
