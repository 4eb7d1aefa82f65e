//! The daemon as a user sees it: the built binary in a directory of its own, called over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized, killed, leftfold, said};

#[test]
fn what_init_makes_works() {
    let directory = initialized();
    let again = leftfold(directory.path(), &["init"]);
    assert!(!again.status.success() && said(&again).contains("it exists already"), "{}", said(&again));
    for (command, expected) in [("check", "responds"), ("test", "2 cases passed, 0 failed")] {
        let output = leftfold(directory.path(), &[command]);
        assert!(output.status.success() && said(&output).contains(expected), "{}", said(&output));
    }
    let daemon = Daemon::start(directory.path());
    let events = json!([
        { "type": "cart-opened", "data": { "client": "ann" }, "time": "2026-01-01T10:00:00Z" },
        { "type": "item-added", "data": { "product": "shoes", "quantity": 2 } },
    ]);
    let (status, body) = daemon.send("POST", "/streams/cart-1", &[JSON], &events.to_string()).unwrap();
    assert_eq!(status, 201, "{body}");
    let token = serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned();
    let cart = daemon.get(&format!("/collections/carts/documents/cart-1?at_least={token}"));
    assert_eq!(cart, json!({ "client": "ann", "items": 2, "opened": "2026-01-01T10:00:00Z" }));
    assert_eq!(daemon.send("GET", "/healthz", &[], "").unwrap().0, 200);
}

#[test]
fn what_a_script_throws_is_told_with_its_place() {
    let directory = initialized();
    let daemon = Daemon::start(directory.path());
    let event = json!({ "type": "item-added", "data": { "quantity": 1 } }).to_string();
    let (_, body) = daemon.send("POST", "/streams/cart-1", &[JSON], &event).unwrap();
    let token = serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned();
    let path = format!("/collections/carts/documents/cart-1?at_least={token}");
    let (status, body) = daemon.send("GET", &path, &[], "").unwrap();
    assert!(status == 409 && body.contains("TypeError") && body.contains("projections/carts.js:7"), "{body}");
}

#[test]
fn logs_are_for_people_or_for_programs() {
    for (setting, is_json) in [("format = \"json\"", true), ("format = \"text\"", false)] {
        let directory = initialized();
        change(directory.path(), "[server]", &format!("[log]\n{setting}\n[server]"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
        let command = command.current_dir(directory.path()).arg("serve").stderr(Stdio::piped());
        let (mut daemon, _output) = Daemon::run(command, "http");
        let mut line = String::new();
        BufReader::new(daemon.process.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listening") && line.contains("leftfold.db"), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).is_ok(), is_json, "{line}");
    }
    let directory = initialized();
    change(directory.path(), "[server]", "[log]\nfilter = \"leftfold=loud\"\n[server]");
    let output = leftfold(directory.path(), &["serve"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("log.filter"), "{}", said(&output));
}

#[test]
fn a_collector_needs_a_program_that_was_built_for_it() {
    if cfg!(feature = "opentelemetry") {
        return;
    }
    let directory = initialized();
    change(directory.path(), "[server]", "[log]\nopentelemetry = \"http://localhost:4318\"\n[server]");
    for command in ["check", "serve"] {
        let output = leftfold(directory.path(), &[command]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let said = said(&output);
        assert!(said.contains("log.opentelemetry") && said.contains("--features opentelemetry"), "{said}");
    }
}

#[test]
fn mistakes_in_the_file_are_named() {
    for (from, to, expected) in [
        ("sqlite:leftfold.db", "${LEFTFOLD_TEST_NO_SUCH_VARIABLE}", "line 6"),
        ("name = \"carts\"", "nmae = \"carts\"", "nmae"),
        ("projections/carts.js", "projections/none.js", "projections/none.js"),
        ("127.0.0.1:0", "0.0.0.0:0", "server.tls"),
        ("[server]", "[server]\nrequests_per_second = 0", "requests_per_second"),
        ("[server]", "[server]\ntls = { certificate = \"no-such.pem\", key = \"key.pem\" }", "no-such.pem"),
    ] {
        let directory = initialized();
        change(directory.path(), from, to);
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains(expected), "{}", said(&output));
        }
    }
    let directory = initialized();
    std::fs::write(directory.path().join("projections/carts.js"), "export default {\n  a: (\n").unwrap();
    let output = leftfold(directory.path(), &["check"]);
    assert!(
        said(&output).contains("SyntaxError") && said(&output).contains("carts.js:"),
        "{}",
        said(&output)
    );
    std::fs::write(directory.path().join("projections/carts.js"), "export default { a: () => ({}) };")
        .unwrap();
    let output = leftfold(directory.path(), &["test"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("FAILED  carts: items are counted"), "{}", said(&output));
}

#[test]
fn only_those_with_a_token_are_let_in() {
    let directory = initialized();
    let made = leftfold(directory.path(), &["--json", "token", "new", "shop", "--scope", "ingest"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let (secret, hash) = (made["secret"].as_str().unwrap(), made["token"]["sha256"].as_str().unwrap());
    let token =
        format!("[[token]]\nname = \"shop\"\nsha256 = \"{hash}\"\nscopes = [\"ingest\"]\n\n[[projection]]");
    change(directory.path(), "[[projection]]", &token);
    let daemon = Daemon::start(directory.path());
    let event = json!({ "type": "cart-opened", "data": { "client": "ann" } }).to_string();
    let bearer = format!("Bearer {secret}");
    assert_eq!(daemon.send("POST", "/streams/a", &[JSON], &event).unwrap().0, 401);
    assert_eq!(
        daemon.send("POST", "/streams/a", &[JSON, ("authorization", &bearer)], &event).unwrap().0,
        201
    );
    assert_eq!(daemon.send("GET", "/log", &[("authorization", &bearer)], "").unwrap().0, 403);
}

/// A web page in a local browser can make its own name resolve to the daemon. Without tokens, only
/// the host name reveals it.
#[test]
fn without_tokens_only_its_own_names_are_answered() {
    let statuses = |directory: &Path| {
        let daemon = Daemon::start(directory);
        let port = daemon.address.port();
        ["localhost", "127.0.0.1", "shop.internal", "evil.example"].map(|host| {
            let mut stream = TcpStream::connect(daemon.address).unwrap();
            let request = format!("GET /log HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
        })
    };
    let directory = initialized();
    assert_eq!(statuses(directory.path()), [200, 200, 421, 421]);
    change(directory.path(), "[server]", "[server]\nhosts = [\"shop.internal\"]");
    assert_eq!(statuses(directory.path()), [200, 200, 200, 421]);
    change(directory.path(), "hosts = [\"shop.internal\"]", "");
    let hash = "0".repeat(64);
    let token = format!("[[token]]\nname = \"a\"\nsha256 = \"{hash}\"\nscopes = []\n\n[[projection]]");
    change(directory.path(), "[[projection]]", &token);
    assert_eq!(statuses(directory.path()), [401, 401, 401, 401]);

    let directory = initialized();
    let daemon = Daemon::start(directory.path());
    let event = json!({ "type": "cart-opened", "data": { "client": "ann" } }).to_string();
    let from =
        |origin| daemon.send("POST", "/streams/cart-1", &[JSON, ("origin", origin)], &event).unwrap().0;
    assert_eq!((from("https://evil.example"), from("http://localhost:3000")), (403, 201));
}

#[test]
fn it_stops_in_order_and_goes_on_where_it_was() {
    let directory = initialized();
    let mut daemon = Daemon::start(directory.path());
    let event = json!({ "type": "cart-opened", "data": { "client": "ann" } }).to_string();
    assert_eq!(daemon.send("POST", "/streams/cart-1", &[JSON], &event).unwrap().0, 201);
    daemon.signal("-TERM");
    assert!(daemon.process.wait().unwrap().success());
    let daemon = Daemon::start(directory.path());
    assert_eq!(daemon.get("/streams/cart-1")["events"][0]["data"]["client"], "ann");
}

#[test]
fn every_document_is_right_however_often_it_is_killed() {
    killed::every_document_is_right_however_often_it_is_killed("sqlite:leftfold.db");
}

#[test]
fn equal_ids_of_two_sources_are_two_events_if_the_file_says_so() {
    for (setting, expected) in [("", "conflict"), ("source_in_id = true", "appended")] {
        let directory = initialized();
        change(directory.path(), "[server]", &format!("[server]\n{setting}"));
        let daemon = Daemon::start(directory.path());
        let kind = ("content-type", "application/cloudevents+json");
        let post = |source: &str| {
            let event = json!({
                "specversion": "1.0", "id": "1", "source": source, "subject": format!("cart-{source}"), "sequence": 1,
                "type": "cart-opened", "data": { "client": "ann" },
            });
            daemon.send("POST", "/events", &[kind], &event.to_string()).unwrap()
        };
        assert_eq!(post("north").0, 200);
        let (_, body) = post("south");
        assert!(body.contains(expected), "{setting}: {body}");
    }
}
