//! Hostile clients: broken requests, endless bodies, connections that are never read from,
//! expensive queries.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::arena::{Arena, Phase};
use crate::dice::Dice;
use crate::http::{Client, JSON, connect};
use crate::scripts::{self, HOSTILE};

/// The address that hostile clients connect from.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(1);

/// The maximum numbers of connections that hostile clients hold at a time.
const IDLE: usize = 400;
const UNREAD: usize = 40;
/// The receive buffer of a connection that is never read from.
const BUFFER: usize = 4 << 10;

/// Appends events that trigger hostile scripts.
pub(crate) fn append(arena: &Arena, mut dice: Dice) {
    let mut client = Client::new(arena.address, SOURCE, TIMEOUT);
    while arena.phase() == Phase::Hostile {
        let (stream, events) = scripts::events(&mut dice);
        let answer = client.send("POST", &format!("/streams/{stream}"), &[JSON], &events.to_string());
        note(arena, "event", answer);
        thread::sleep(dice.between(Duration::from_millis(100), Duration::from_millis(400)));
    }
}

/// Sends hostile requests, one after the other.
pub(crate) fn speak(arena: &Arena, mut dice: Dice) {
    let mut client = Client::new(arena.address, SOURCE, TIMEOUT);
    while arena.phase() == Phase::Hostile {
        match dice.below(10) {
            0 | 1 => raw(arena, "malformed", &malformed(&mut dice), &mut dice),
            2 => raw(arena, "chunks of a byte", &chunks(&mut dice), &mut dice),
            3 => raw(arena, "huge headers", &huge_headers(&mut dice), &mut dice),
            4 => trickle(arena, &mut dice),
            5 | 6 => {
                let (path, kind, body) = invalid(&mut dice);
                note(arena, "invalid", client.send("POST", &path, &[("content-type", kind)], &body));
            }
            7 => {
                let (method, path) = operation(&mut dice);
                note(arena, "operation", client.send(method, &path, &[JSON], "{}"));
            }
            _ => {
                let path = dear(&mut dice);
                note(arena, "dear", client.get(&path));
            }
        }
        thread::sleep(dice.between(Duration::from_millis(30), Duration::from_millis(250)));
    }
}

/// Holds connections that are idle, or that request much and are never read from.
pub(crate) fn sit(arena: &Arena, mut dice: Dice) {
    let (mut idle, mut unread): (Vec<TcpStream>, Vec<(Instant, TcpStream)>) = (Vec::new(), Vec::new());
    while arena.phase() == Phase::Hostile {
        for _ in 0..10 {
            let Ok(mut stream) = connect(arena.address, SOURCE, CONNECT, None) else { break };
            // Some send one request first, as a keep-alive client does.
            if dice.below(2) == 0
                && stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").is_err()
            {
                break;
            }
            idle.push(stream);
        }
        if idle.len() > IDLE {
            let end = dice.below(IDLE);
            idle.drain(..end);
        }
        unread.retain(|(until, _)| Instant::now() < *until);
        if unread.len() < UNREAD
            && let Ok(mut stream) = connect(arena.address, SOURCE, CONNECT, Some(BUFFER))
            && stream.write_all(unread_request(&mut dice).as_bytes()).is_ok()
        {
            let until = Instant::now() + dice.between(Duration::from_secs(1), Duration::from_secs(10));
            unread.push((until, stream));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn note(arena: &Arena, kind: &'static str, answer: std::io::Result<crate::http::Answer>) {
    match answer {
        Ok(answer) => arena.answered(kind, answer.status, &answer.text()),
        Err(_) => arena.answered(kind, 0, ""),
    }
}

/// Sends bytes, and reads the start of the response or disconnects without reading.
fn raw(arena: &Arena, kind: &'static str, bytes: &[u8], dice: &mut Dice) {
    let Ok(mut stream) = connect(arena.address, SOURCE, CONNECT, None) else { return };
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    if dice.below(3) == 0 {
        return arena.answered(kind, 0, "");
    }
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut answer = [0; 1_024];
    let read = stream.read(&mut answer).unwrap_or(0);
    let text = String::from_utf8_lossy(&answer[..read]);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    arena.answered(kind, status, &text);
}

/// Sends a request very slowly and never completes it.
fn trickle(arena: &Arena, dice: &mut Dice) {
    let Ok(mut stream) = connect(arena.address, SOURCE, CONNECT, None) else { return };
    let request =
        "POST /streams/trickle HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000000\r\n\r\n[[[[[[[[[[[[";
    for byte in request.bytes().take(20 + dice.below(request.len())) {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    arena.answered("trickle", 0, "");
}

fn malformed(dice: &mut Dice) -> Vec<u8> {
    let fixed: [&[u8]; 11] = [
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /events HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        b"POST /streams/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /collections/%ff/documents/%00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ];
    if dice.below(3) > 0 {
        return dice.pick(&fixed).to_vec();
    }
    (0..=dice.below(4_000)).map(|_| u8::try_from(dice.below(256)).unwrap_or(0)).collect()
}

/// Returns a request whose body has one byte per chunk.
fn chunks(dice: &mut Dice) -> Vec<u8> {
    let mut bytes =
        b"POST /streams/chunks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..=dice.below(300_000) {
        bytes.extend(b"1\r\n \r\n");
    }
    if dice.below(2) == 0 {
        bytes.extend(b"0\r\n\r\n");
    }
    bytes
}

fn huge_headers(dice: &mut Dice) -> Vec<u8> {
    let mut text = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n".to_owned();
    if dice.below(2) == 0 {
        text.extend(["x: ", &"y".repeat(dice.below(2_000_000)), "\r\n"]);
    } else {
        text.extend((0..dice.below(2_000)).map(|number| format!("x-{number}: y\r\n")));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// Returns a path, a content type and a body that the daemon must reject.
fn invalid(dice: &mut Dice) -> (String, &'static str, String) {
    let event = |data: &str| format!("{{\"type\": \"looping\", \"data\": {data}}}");
    let cloud = |field: &str, value: Value| {
        let mut event = json!({
            "specversion": "1.0", "id": "1", "source": "soak", "subject": "s", "type": "t", "data": {}, "sequence": "1",
        });
        event[field] = value;
        event.to_string()
    };
    let bodies = [
        ("/streams/invalid", "application/json", event(r#""\ud83d""#)),
        ("/streams/invalid", "application/json", event("1e999")),
        ("/streams/invalid", "application/json", event("{\"a\": 1, \"a\": 2}")),
        ("/streams/invalid", "application/json", event(&"[".repeat(100_000))),
        (
            "/streams/invalid",
            "application/json",
            event(&format!("{}{}", "[".repeat(1_000), "]".repeat(1_000))),
        ),
        ("/streams/invalid", "text/plain", event("{}")),
        ("/streams/invalid?expected=-1", "application/json", event("{}")),
        ("/streams/invalid?expected=12345", "application/json", event("{}")),
        ("/events", "application/cloudevents+json", cloud("specversion", json!("9"))),
        ("/events", "application/cloudevents+json", cloud("subject", json!("x".repeat(100_000)))),
        ("/events", "application/cloudevents+json", cloud("sequence", json!("99999999999999999999"))),
        ("/events", "application/cloudevents+json", cloud("id", json!(7))),
        ("/events", "application/cloudevents-batch+json", "[{}, {}]".to_owned()),
        ("/events", "application/json", "null".to_owned()),
    ];
    let (path, kind, body) = dice.pick(&bodies);
    ((*path).to_owned(), kind, body.clone())
}

/// Returns a request that operators send. Some of them fold hostile events again.
fn operation(dice: &mut Dice) -> (&'static str, String) {
    let name = dice.pick(HOSTILE).name;
    let number = dice.below(40);
    match dice.below(6) {
        0 => ("POST", format!("/collections/{name}/parked/retry")),
        1 => ("POST", format!("/collections/{name}/documents/{name}-{number}/refold")),
        2 => ("GET", format!("/collections/{name}/parked?limit=1000")),
        3 => ("GET", format!("/collections/{name}/documents/{name}-{number}/absence")),
        4 => ("GET", "/metrics".to_owned()),
        _ => ("GET", "/status".to_owned()),
    }
}

/// Returns a path whose response is large or slow.
fn dear(dice: &mut Dice) -> String {
    let number = dice.below(3);
    let paths = [
        "/collections/huge/documents?limit=1000".to_owned(),
        "/collections/spreading/documents?limit=1000&filter=%7B%22n%22:%7B%22$gt%22:100000%7D%7D".to_owned(),
        "/collections/growing/documents?filter=%7B%22text%22:%7B%22$regex%22:%22(y%2B)%2B$%22%7D%7D"
            .to_owned(),
        format!("/collections/growing/documents/growing-{number}/explanation"),
        format!("/collections/huge/documents/huge-{number}/explanation"),
        format!("/collections/slow/documents/slow-{number}/explanation"),
        format!("/collections/slow/documents/slow-{number}?at={}", dice.below(500)),
        format!("/collections/growing/documents/growing-{number}?at=2026-06-01T00:00:00Z"),
        format!(
            "/collections/growing/documents/growing-{number}?at_least=0:999999999:1:growing-{number}&wait=2s"
        ),
        format!("/collections/carts/documents/none?at_least={}", "9".repeat(5_000)),
        "/log?limit=1000".to_owned(),
        "/streams/growing-1?limit=1000".to_owned(),
    ];
    dice.pick(&paths).clone()
}

/// Returns a request whose response the client does not read.
fn unread_request(dice: &mut Dice) -> String {
    let stream = "accept: text/event-stream\r\n";
    let (path, accept) = match dice.below(6) {
        0 => ("/collections/huge/documents?limit=1000", ""),
        1 => ("/collections/growing/documents/growing-1/explanation", ""),
        2 => ("/log?limit=1000", ""),
        3 => ("/collections/huge/changes", stream),
        4 => ("/collections/growing/changes", stream),
        _ => ("/log", stream),
    };
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{accept}\r\n")
}
