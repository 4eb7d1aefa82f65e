//! Long polls and event streams end when the daemon stops, and when their token is revoked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::served::{Daemon, change, initialized, leftfold, said};

/// Half of the time that a daemon gives connections to end, and long polls to wait.
const AT_ONCE: Duration = Duration::from_secs(5);

fn request(daemon: &Daemon, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Opens waiting connections: a long poll, an event stream after its first message, and one without
/// a request.
fn waiting(daemon: &Daemon, authorization: &str) -> [TcpStream; 3] {
    let poll = request(daemon, "/log?after=end&wait=60s", authorization);
    let accept = format!("accept: text/event-stream\r\nconnection: close\r\n{authorization}");
    let follow = request(daemon, "/collections/carts/changes", &accept);
    let mut line = String::new();
    let mut lines = BufReader::new(follow.try_clone().unwrap());
    while !line.contains("leftfold-heartbeat") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    [poll, follow, TcpStream::connect(daemon.address).unwrap()]
}

#[test]
fn a_daemon_that_is_told_to_stop_waits_for_no_long_poll() {
    let directory = initialized();
    let mut daemon = Daemon::start(directory.path());
    let waiting = waiting(&daemon, "");
    let begun = Instant::now();
    daemon.signal("-TERM");
    assert!(daemon.process.wait().unwrap().success());
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    let mut poll = String::new();
    let [mut first, ..] = waiting;
    first.read_to_string(&mut poll).unwrap();
    // The daemon may not have begun to read it.
    let is_answered = poll.starts_with("HTTP/1.1 200") && poll.contains("\"events\":[]");
    assert!(is_answered || poll.is_empty(), "{poll}");
}

/// Other processes can take over at once, even if a client is slow. In an earlier version, leases
/// were held until the last client had its response.
#[test]
fn leases_are_given_up_while_a_slow_client_is_waited_for() {
    let directory = initialized();
    let mut daemon = Daemon::start(directory.path());
    let file = rusqlite::Connection::open(directory.path().join("leftfold.db")).unwrap();
    let owned = || {
        let count =
            "SELECT count(*) FROM leftfold_checkpoints WHERE projection = 'carts' AND owner IS NOT NULL";
        file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap() > 0
    };
    let until = |owned_then: bool| {
        let begun = Instant::now();
        while owned() != owned_then {
            assert!(begun.elapsed() < Duration::from_mins(1), "not in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(true);
    let body = r#"{"type": "cart-opened", "data": {"client": "ann"}}"#;
    let mut slow = TcpStream::connect(daemon.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = format!(
        "POST /streams/cart-1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        body.len()
    );
    slow.write_all(head.as_bytes()).unwrap();
    // From here on the daemon waits for the body.
    let mut go_on = [0; 25];
    slow.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    daemon.signal("-TERM");
    until(false);
    slow.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(daemon.process.wait().unwrap().success());
}

/// Creates a token, and adds it to the file. Returns the secret.
fn token(directory: &Path, name: &str) -> String {
    let made = leftfold(directory, &["token", "new", name, "--scope", "read", "--json"]);
    assert!(made.status.success(), "{}", said(&made));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let file = directory.join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let hash = made["token"]["sha256"].as_str().unwrap_or_else(|| panic!("{made}"));
    let entry = format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\nscopes = [\"read\"]\n");
    std::fs::write(file, format!("{text}\n{entry}")).unwrap();
    made["secret"].as_str().unwrap().to_owned()
}

#[test]
fn what_a_revoked_token_waits_for_ends() {
    let directory = initialized();
    let [bystander, revoked] = ["bystander", "revoked"].map(|name| token(directory.path(), name));
    let daemon = Daemon::start(directory.path());
    let authorization = |secret: &str| format!("authorization: Bearer {secret}\r\n");
    let [mut poll, mut follow, _idle] = waiting(&daemon, &authorization(&revoked));
    change(directory.path(), "name = \"revoked\"", "name = \"other\"");
    let file = directory.path().join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, after) = text.rsplit_once("sha256 = \"").unwrap();
    std::fs::write(&file, format!("{before}sha256 = \"{}{}", "0".repeat(64), &after[64..])).unwrap();
    let begun = Instant::now();
    daemon.signal("-HUP");
    follow.read_to_end(&mut Vec::new()).unwrap();
    let mut answer = [0; 12];
    poll.read_exact(&mut answer).unwrap();
    // The daemon may have begun to read it after the signal.
    assert!(&answer == b"HTTP/1.1 200" || &answer == b"HTTP/1.1 401", "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let status = |secret: &str| {
        let headers = ("authorization", &*format!("Bearer {secret}"));
        daemon.send("GET", "/status", &[headers], "").unwrap().0
    };
    assert_eq!((status(&revoked), status(&bystander)), (401, 200));
}

#[test]
fn a_server_without_protection_warns() {
    let directory = initialized();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
    command.current_dir(directory.path()).args(["serve", "--insecure"]).stderr(Stdio::piped());
    let (mut daemon, _output) = Daemon::run(&mut command, "http");
    let mut line = String::new();
    BufReader::new(daemon.process.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("WARN") && line.contains("--insecure"), "{line}");
}
