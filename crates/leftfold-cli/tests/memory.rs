//! Concurrent clients that request much and read nothing: the daemon stays within its memory budget
//! and serves others.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized};

/// The default budget.
const BUDGET_MIB: usize = 512;
const LISTS: usize = 450;
const STREAMS: usize = 250;
const BODIES: usize = 20;

/// Returns the daemon's peak memory, in mebibytes.
fn peak(daemon: &Daemon) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<usize>().unwrap() / 1_024
}

fn unread(daemon: &Daemon, requests: &str) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    stream
}

/// Returns a value from `/metrics`.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    let (status, text) = daemon.send("GET", "/metrics", &[], "").unwrap();
    assert_eq!(status, 200, "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Runs a well-behaved client: each of its requests succeeds, and within five seconds.
fn bystander(daemon: &Daemon, ends: &AtomicBool) -> usize {
    let mut done = 0;
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let cart = format!("/streams/cart-{done}");
        let event = json!({ "type": "cart-opened", "data": { "client": "ann" } }).to_string();
        let (status, body) = daemon.send("POST", &cart, &[JSON], &event).unwrap();
        assert_eq!(status, 201, "{body}");
        let token = serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned();
        let read = daemon.get(&format!("/collections/carts/documents/cart-{done}?at_least={token}"));
        assert_eq!(read["client"], "ann");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(daemon.send("GET", path, &[], "").unwrap().0, 200, "{path}");
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        done += 1;
    }
    done
}

#[test]
fn peak_memory_stays_within_the_budget() {
    let directory = initialized();
    let script = "export default { noted: (_, { data }) => ({ text: data.text }) };\n";
    std::fs::write(directory.path().join("projections/notes.js"), script).unwrap();
    change(directory.path(), "[server]", "[server]\nconnections_per_address = 1000");
    let file = directory.path().join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let notes = "[[projection]]\nname = \"notes\"\nscript = \"projections/notes.js\"\n";
    std::fs::write(&file, format!("{text}\n{notes}")).unwrap();
    let daemon = Daemon::start(directory.path());
    let mut token = String::new();
    for note in 0..40 {
        let event = json!({ "type": "noted", "data": { "text": "x".repeat(250_000) } }).to_string();
        let (status, body) =
            daemon.send("POST", &format!("/streams/note-{note:02}"), &[JSON], &event).unwrap();
        assert_eq!(status, 201, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().clone_into(&mut token);
    }
    daemon.get(&format!("/collections/notes/documents/note-39?at_least={token}&wait=60s"));
    let calm = peak(&daemon);

    let ends = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let bystander = scope.spawn(|| bystander(&daemon, &ends));
        let mut clients = Vec::new();
        let list =
            "GET /collections/notes/documents?limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20);
        let (head, chunks) = (
            "POST /streams/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            "1\r\n \r\n".repeat(50_000),
        );
        for _ in 0..BODIES {
            clients.push(unread(&daemon, &format!("{head}{chunks}")));
        }
        for number in 0..STREAMS {
            let path = ["/log", "/collections/notes/changes?after=0", "/streams/note-00"][number % 3];
            let accept = "host: localhost\r\naccept: text/event-stream";
            clients.push(unread(&daemon, &format!("GET {path} HTTP/1.1\r\n{accept}\r\n\r\n")));
        }
        for _ in 0..LISTS {
            clients.push(unread(&daemon, &list));
        }
        let begun = Instant::now();
        let refused = "leftfold_memory_refused_total{use=\"request\"}";
        // A client that reads nothing is disconnected after ten seconds; these read just enough.
        let mut read = vec![0; 64 << 10];
        for client in &clients {
            client.set_nonblocking(true).unwrap();
        }
        while metric(&daemon, refused) < 1.0 {
            assert!(begun.elapsed() < Duration::from_mins(2), "nothing was refused");
            for client in &mut clients {
                let _ = client.read(&mut read);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        assert!(metric(&daemon, "leftfold_memory_used_bytes{use=\"stream\"}") > 0.0);
        ends.store(true, Ordering::Relaxed);
        bystander.join().unwrap()
    });
    let peak = peak(&daemon);
    println!("{calm} MiB before, {peak} MiB at the peak; the bystander did {done} rounds");
    assert!(done > 0 && peak <= BUDGET_MIB, "{calm} MiB before, {peak} MiB at the peak");
}

/// Without fixed thresholds, glibc keeps most of the memory of large documents.
#[test]
#[cfg(target_env = "gnu")]
fn the_allocator_gives_large_blocks_back() {
    let directory = initialized();
    let daemon = Daemon::start(directory.path());
    let environment = std::fs::read(format!("/proc/{}/environ", daemon.process.id())).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.split('\0').any(|entry| entry == "MALLOC_MMAP_THRESHOLD_=262144"), "{environment}");
}
