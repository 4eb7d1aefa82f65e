//! Clients that are slow, take up connections, or send too many requests. They are disconnected;
//! others are served.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod wire;

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use leftfold_server::Listen;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::interval;

use self::wire::{Server, until_closed};

/// Returns a server with a short patience and few connections.
async fn impatient(connections: usize) -> Server {
    let listen = Listen { connections, patience: Duration::from_millis(200), ..Listen::default() };
    let much = get(|| async { vec![b'x'; 64 << 20] });
    Server::start(listen, Vec::new(), Router::new().route("/much", much)).await
}

#[tokio::test]
async fn headers_that_do_not_come_are_not_waited_for() {
    let server = impatient(1).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /log HTTP/1.1\r\nhost: local").await.unwrap();
    let answer = until_closed(&mut slow).await;
    assert!([0, 408].contains(&answer.status), "{answer:?}");
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn handshakes_that_are_not_made_are_not_waited_for() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some(leftfold_server::tls(&certificate, &key).unwrap());
    let listen = Listen { connections: 1, patience: Duration::from_millis(200), tls, ..Listen::default() };
    let server = Server::start(listen, Vec::new(), Router::new()).await;
    for _ in 0..3 {
        let answer = until_closed(&mut server.connect().await).await;
        assert_eq!(answer.status, 0, "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_is_not_waited_for() {
    let server = impatient(1).await;
    for path in ["/streams/a", "/events"] {
        let (mut read, mut write) = server.connect().await.into_split();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50000\r\n\r\n"
        );
        write.write_all(head.as_bytes()).await.unwrap();
        let sending = tokio::spawn(async move {
            let mut each = interval(Duration::from_millis(20));
            while write.write_all(b" ").await.is_ok() {
                each.tick().await;
            }
        });
        let answer = until_closed(&mut read).await;
        assert_eq!(answer.status, 408, "{answer:?}");
        assert!(answer.body.contains("urn:leftfold:problem:too-slow"), "{answer:?}");
        sending.await.unwrap();
    }
    assert_eq!(server.get("/streams/a").await.body, r#"{"events":[]}"#);
}

#[tokio::test]
async fn who_does_not_read_the_answer_is_cut_off() {
    let server = impatient(1).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /much HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    // There is room for one connection: this gets a response when the other is gone.
    assert_eq!(server.get("/healthz").await.status, 200);
    let answer = until_closed(&mut slow).await;
    assert!(answer.status == 200 && answer.body.len() < 64 << 20, "{}", answer.body.len());
}

#[tokio::test]
async fn connections_that_say_nothing_make_room() {
    let server = impatient(4).await;
    let mut idle = Vec::new();
    for number in 0..40 {
        let mut stream = server.connect().await;
        if number % 2 == 0 {
            // Connections with an earlier request are treated the same.
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        }
        idle.push(stream);
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    for mut stream in idle {
        until_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_back() {
    let listen = Listen { requests_per_second: NonZeroU32::new(2).unwrap(), ..Listen::default() };
    let server = Server::start(listen, Vec::new(), Router::new()).await;
    let mut often = server.connect().await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for _ in 0..50 {
        often.write_all(request).await.unwrap();
    }
    let (mut message, mut part) = (String::new(), [0; 4_096]);
    while !message.contains("urn:leftfold:problem:too-many-requests") {
        let read = often.read(&mut part).await.unwrap();
        assert!(read > 0, "{message}");
        message.push_str(&String::from_utf8_lossy(&part[..read]));
    }
    assert!(message.contains("HTTP/1.1 200") && message.contains("HTTP/1.1 429"), "{message}");
    assert!(message.contains("retry-after: 1"), "{message}");
}

/// Sends a request from another address of this machine.
async fn get_from(address: [u8; 4], server: &Server, path: &str) -> wire::Answer {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(&wire::get(path)).await.unwrap();
    until_closed(&mut stream).await
}

#[tokio::test]
async fn idle_connections_lock_nobody_out() {
    // Only making room helps: no client is disconnected for being slow.
    let patience = Duration::from_mins(10);
    let listen = Listen { connections: 100, connections_per_address: 100, patience, ..Listen::default() };
    let server = Server::start(listen, Vec::new(), Router::new()).await;
    let mut idle = Vec::new();
    for number in 0..120 {
        let mut stream = server.connect().await;
        if number % 2 == 0 {
            // An idle keep-alive connection, after a response.
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
        }
        idle.push(stream);
        if number % 10 == 0 {
            assert_eq!(server.get("/healthz").await.status, 200, "a bystander at the same address");
            assert_eq!(get_from([127, 0, 0, 2], &server, "/healthz").await.status, 200, "at another one");
        }
    }
    // The first ones made room.
    let mut rest = Vec::new();
    assert!(idle[0].read_to_end(&mut rest).await.is_ok());
}

#[tokio::test]
async fn an_address_has_only_its_share_of_connections() {
    let patience = Duration::from_mins(10);
    let listen = Listen { connections: 100, connections_per_address: 4, patience, ..Listen::default() };
    let server = Server::start(listen, Vec::new(), Router::new()).await;
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = server.connect().await;
        let head = "GET /log?after=end HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        busy.push(stream);
    }
    let refused = until_closed(&mut server.connect().await).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("urn:leftfold:problem:too-many-connections"), "{refused:?}");
    assert_eq!(get_from([127, 0, 0, 2], &server, "/healthz").await.status, 200, "a bystander");
    drop(busy);
    while server.get("/healthz").await.status != 200 {}
}
