//! Sources as operators see them: a real Redis server, and the built binary that reads from it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use leftfold_testbed::redis::Server;
use serde_json::{Value, json};

use self::served::{Daemon, change, initialized, leftfold, said};

const PATIENCE: Duration = Duration::from_mins(1);
const OPENED: &str = "2026-01-01T10:00:00Z";

/// Adds entries to the stream `orders`.
fn publish(server: &Server, contents: &[Value]) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for content in contents {
        let mut command = String::from("*5\r\n");
        for part in ["XADD", "orders", "*", "data", &content.to_string()] {
            write!(command, "${}\r\n{part}\r\n", part.len()).unwrap();
        }
        stream.write_all(command.as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with('$'), "{answer}");
        answers.read_line(&mut answer).unwrap();
    }
}

/// Returns the event of a cart at a revision: it is opened, then items are added.
fn event(cart: &str, revision: u64) -> Value {
    let (kind, data) = match revision {
        1 => ("cart-opened", json!({ "client": "ann" })),
        _ => ("item-added", json!({ "product": "shoes", "quantity": revision })),
    };
    json!({
        "specversion": "1.0", "id": format!("{cart}-{revision}"), "source": "test", "subject": cart, "type": kind, "data": data,
        "sequence": revision.to_string(), "time": OPENED,
    })
}

/// Returns the cart after this many events.
fn cart(revision: u64) -> Value {
    let items: u64 = (2..=revision).sum();
    json!({ "client": "ann", "items": items, "opened": OPENED })
}

/// Creates a directory whose file has a source and these lines.
fn reading(url: &str, more: &str) -> tempfile::TempDir {
    let directory = initialized();
    let source = format!(
        "[[source]]\nname = \"the orders\"\ntype = \"redis\"\nurl = \"{url}\"\nstream = \"orders\"\n{more}\n"
    );
    change(directory.path(), "[[projection]]", &format!("{source}\n[[projection]]"));
    directory
}

/// Waits until a path returns the expected value.
#[track_caller]
fn until(daemon: &Daemon, path: &str, what: &str, is: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    loop {
        let answer = daemon.send("GET", path, &[], "");
        let found = answer.as_ref().and_then(|(_, body)| serde_json::from_str(body).ok());
        if found.is_some_and(|found| is(&found)) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn until_cart(daemon: &Daemon, id: &str, revision: u64) {
    let path = format!("/collections/carts/documents/{id}");
    until(daemon, &path, "the cart is as it should be", |found| *found == cart(revision));
}

fn server() -> (tokio::runtime::Runtime, Server) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start()).unwrap();
    (runtime, server)
}

fn checked(directory: &Path) -> (Option<i32>, String) {
    let output = leftfold(directory, &["check"]);
    (output.status.code(), said(&output))
}

#[test]
fn what_a_broker_brings_becomes_documents_however_either_dies() {
    let (runtime, server) = server();
    let directory = reading(&server.url(), "");
    let (status, said) = checked(directory.path());
    assert!(status == Some(0) && said.contains("1 source can be read"), "{said}");
    // In the wrong order, with a duplicate and a message that is not an event.
    publish(&server, &[event("a", 3), event("a", 2), json!("nothing"), event("a", 1), event("a", 2)]);
    let daemon = Daemon::start(directory.path());
    until_cart(&daemon, "a", 3);
    until(&daemon, "/rejected", "it is kept", |found| {
        let text = found.to_string();
        text.contains("the orders") && text.contains("expected a JSON object")
    });
    daemon.signal("-KILL");
    drop(daemon);
    publish(&server, &[event("b", 1), event("a", 4)]);
    let daemon = Daemon::start(directory.path());
    until_cart(&daemon, "b", 1);
    runtime.block_on(server.kill()).unwrap();
    let (status, said) = checked(directory.path());
    assert!(status == Some(3) && said.contains("source the orders: "), "{said}");
    runtime.block_on(server.restart()).unwrap();
    publish(&server, &[event("b", 2), event("b", 1)]);
    until_cart(&daemon, "b", 2);
    until_cart(&daemon, "a", 4);
}

#[test]
fn what_never_came_is_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}/events", listener.local_addr().unwrap());
    // It has the lost events, for authorized clients.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 4_096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
            let is_right = request.starts_with("get /events?stream=a&after=1&through=2 ")
                && request.contains("authorization: bearer 4711");
            let (status, body) =
                if is_right { (200, json!([event("a", 2)]).to_string()) } else { (404, String::new()) };
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/cloudevents-batch+json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let (_runtime, server) = server();
    let resupply =
        format!("\n[resupply]\nurl = \"{origin}\"\nauthorization = \"Bearer 4711\"\nafter = \"100ms\"\n");
    let directory = reading(&server.url(), &resupply);
    let daemon = Daemon::start(directory.path());
    publish(&server, &[event("a", 1), event("a", 3)]);
    until_cart(&daemon, "a", 3);
}

#[test]
fn what_init_shows_can_be_said() {
    let (_runtime, server) = server();
    let directory = initialized();
    let file = directory.path().join("leftfold.toml");
    let mut text = std::fs::read_to_string(&file).unwrap();
    for table in ["[[source]]", "[resupply]", "[[reaction]]"] {
        let (before, shown) = text.split_once(&format!("# {table}\n")).unwrap();
        let (shown, after) = shown.split_once("\n\n").unwrap_or((shown, ""));
        let shown: Vec<_> = shown.lines().map(|line| line.strip_prefix("# ").unwrap()).collect();
        text = format!("{before}{table}\n{}\n\n{after}", shown.join("\n"));
    }
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let text = text.replace("${HOOK_SECRET}", secret).replace("${ORDERS_TOKEN}", "4711");
    std::fs::write(file, text.replace("redis://localhost", &server.url())).unwrap();
    let (status, said) = checked(directory.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("1 reaction") && said.contains("1 source can be read"), "{said}");
}

#[test]
fn mistakes_are_named() {
    let url = "redis://127.0.0.1:1";
    for (from, to, expected) in [
        (
            "stream = \"orders\"",
            "queue = \"orders\"",
            "source the orders: a source of type redis needs `stream`",
        ),
        ("stream = \"orders\"", "stream = \"orders\"\nqueue = \"orders\"", "has no key `queue`"),
        ("type = \"redis\"", "type = \"rdis\"", "rdis"),
        (url, "http://ann:hidden@localhost", "source the orders: "),
        ("batch = 1", "[resupply]\nurl = \"here\"", "resupply: "),
        #[cfg(not(feature = "kafka"))]
        (
            "type = \"redis\"\nurl = \"redis://127.0.0.1:1\"\nstream = \"orders\"",
            "type = \"kafka\"\nurl = \"localhost:1\"\ntopics = [\"orders\"]",
            "build it again with --features kafka",
        ),
    ] {
        let directory = reading(url, "batch = 1");
        change(directory.path(), from, to);
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{to}: {said}");
            assert!(said.contains(expected) && !said.contains("hidden"), "{to}: {said}");
        }
    }
}
