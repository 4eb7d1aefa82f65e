//! The daemon as a user meets it: the built binary in a directory of its own, driven over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized, leftfold, said};

#[test]
fn what_init_makes_works() {
    let directory = initialized();
    let again = leftfold(directory.path(), &["init"]);
    assert!(!again.status.success() && said(&again).contains("is there already"), "{}", said(&again));
    for (command, expected) in [("check", "answers"), ("test", "2 cases held, 0 failed")] {
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
    let token = serde_json::from_str::<Value>(&body).unwrap()["token"].as_str().unwrap().to_owned();
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
    let token = serde_json::from_str::<Value>(&body).unwrap()["token"].as_str().unwrap().to_owned();
    let path = format!("/collections/carts/documents/cart-1?at_least={token}");
    let (status, body) = daemon.send("GET", &path, &[], "").unwrap();
    assert!(status == 409 && body.contains("TypeError") && body.contains("projections/carts.js:7"), "{body}");
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

/// A page in a browser on the same machine can have its own name lead to the daemon. Without tokens, only the name tells it from others.
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

/// Several clients post the events of their carts, twice and out of order, while the daemon is killed again and again. Then each document is what
/// its events say.
#[test]
fn every_document_is_right_however_often_it_is_killed() {
    const CARTS: u64 = 12;
    const EVENTS: u64 = 20;
    const KILLS: usize = 6;
    let directory = initialized();
    let file = directory.path().to_owned();
    let event = |cart: u64, revision: u64| {
        let (kind, data) = match revision {
            1 => ("cart-opened", json!({ "client": format!("client-{cart}") })),
            _ => ("item-added", json!({ "product": "shoes", "quantity": cart + revision })),
        };
        json!({
            "specversion": "1.0", "id": format!("{cart}-{revision}"), "source": "test", "subject": format!("cart-{cart}"),
            "type": kind, "data": data, "sequence": revision.to_string(), "time": "2026-01-01T10:00:00Z",
        })
    };
    let mut expected = BTreeMap::new();
    for cart in 0..CARTS {
        let items: u64 = (2..=EVENTS).map(|revision| cart + revision).sum();
        let document =
            json!({ "client": format!("client-{cart}"), "items": items, "opened": "2026-01-01T10:00:00Z" });
        expected.insert(format!("cart-{cart}"), document);
    }
    let batch = [("content-type", "application/cloudevents-batch+json")];
    let mut left: Vec<Vec<Value>> = (0..CARTS)
        .flat_map(|cart| {
            // Each pair of events the wrong way round, and each twice.
            let pairs = (1..=EVENTS)
                .step_by(2)
                .map(move |revision| vec![event(cart, revision + 1), event(cart, revision)]);
            pairs.flat_map(|pair| [pair.clone(), pair])
        })
        .collect();
    for kill in 0..=KILLS {
        let mut daemon = Daemon::start(&file);
        let many = left.len() / (KILLS + 1 - kill);
        let mut posted = left.split_off(left.len() - many);
        std::thread::scope(|scope| {
            let clients: Vec<_> = posted
                .chunks_mut(many.div_ceil(3).max(1))
                .map(|chunk| {
                    let daemon = &daemon;
                    scope.spawn(move || {
                        let sent = |events: &Vec<Value>| {
                            let body = Value::from(events.clone()).to_string();
                            daemon
                                .send("POST", "/events", &batch, &body)
                                .is_some_and(|(status, _)| status == 200)
                        };
                        chunk.iter().filter(|events| !sent(events)).cloned().collect::<Vec<_>>()
                    })
                })
                .collect();
            // The last one stays.
            if kill < KILLS {
                daemon.signal("-KILL");
            }
            // What was not acknowledged is posted again.
            for client in clients {
                left.extend(client.join().unwrap());
            }
        });
        if kill == KILLS {
            for events in std::mem::take(&mut left) {
                let body = Value::from(events).to_string();
                assert_eq!(daemon.send("POST", "/events", &batch, &body).unwrap().0, 200);
            }
            let events = daemon.get("/log?limit=1000");
            let events = events["events"].as_array().unwrap();
            assert_eq!(events.len() as u64, CARTS * EVENTS);
            for (id, document) in &expected {
                let last = events.iter().rfind(|event| event["stream"] == id.as_str()).unwrap();
                let token = last["token"].as_str().unwrap();
                assert_eq!(
                    &daemon.get(&format!("/collections/carts/documents/{id}?at_least={token}&wait=60s")),
                    document
                );
            }
        }
        let _ = daemon.process.kill();
        let _ = daemon.process.wait();
    }
}
