//! Memory is bounded: pages have a maximum size, and the server refuses requests that exceed the
//! budget.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod wire;

use std::time::Duration;

use leftfold::budget::{Budget, Use};
use leftfold::{Leftfold, Memory};
use leftfold_server::{Listen, Service};
use serde_json::{Value, json};
use shopping_cart::CartDetails;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use self::wire::{Server, post, post_as};

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

async fn shop(budget: &Budget) -> Server {
    let app = Leftfold::on(Memory::default()).projection(CartDetails);
    let service = Service::new(app.start().await.unwrap()).await.unwrap().budget(budget.clone());
    let (routes, stop) = service.router();
    // The system itself buffers little of an unread response.
    let listener = leftfold_server::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    // The server disconnects no client during the test.
    let listen = Listen { patience: PATIENCE, ..Listen::default() };
    tokio::spawn(listen.serve(listener, routes, stop, std::future::pending()));
    Server { address, bearer: String::new() }
}

/// Appends an event of `bytes` bytes to each of `count` carts, and waits until all are folded.
async fn large_carts(server: &Server, count: usize, bytes: usize) {
    let mut last = None;
    for cart in 0..count {
        let item =
            json!({ "productId": "shoes", "name": "x".repeat(bytes), "quantity": 1, "unitPrice": 4900 });
        let events = json!([
            { "type": "shopping-cart-opened", "data": { "clientId": "ann" } },
            { "type": "product-item-added", "data": item },
        ]);
        let answer = server.send(&post(&format!("/streams/cart-{cart:03}"), events.to_string())).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        last = serde_json::from_str::<Value>(&answer.body).unwrap()["bookmark"].as_str().map(str::to_owned);
    }
    if let Some(token) = last {
        let cart = count - 1;
        let path = format!("/collections/cart_details/documents/cart-{cart:03}?at_least={token}&wait=60s");
        assert_eq!(server.get(&path).await.status, 200);
    }
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let looked = timeout(PATIENCE, async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(looked.await.is_ok(), "not in time: {what}");
}

/// Sends a request, and does not read the response.
async fn unread(server: &Server, path: &str, accept: &str) -> TcpStream {
    let mut stream = server.connect().await;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n");
    // Repeat the request, so that a response has to wait even if the first ones fit into buffers.
    // An event stream has no end.
    let times = if accept == "text/event-stream" { 1 } else { 4 };
    stream.write_all(head.repeat(times).as_bytes()).await.unwrap();
    stream
}

/// Reads all pages of a list, and returns the number of items in each.
async fn pages(server: &Server, path: &str, items: &str) -> Vec<usize> {
    let (mut sizes, mut after) = (Vec::new(), String::new());
    loop {
        let answer = server.get(&format!("{path}?limit=1000{after}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.len() < 2 * MIB, "{path}: {} bytes", answer.body.len());
        let page: Value = serde_json::from_str(&answer.body).unwrap();
        sizes.push(page[items].as_array().unwrap().len());
        match (page["after"].as_str(), page["more"].as_bool()) {
            (Some(last), Some(true)) => after = format!("&after={last}"),
            _ => return sizes,
        }
    }
}

#[tokio::test]
async fn a_page_ends_at_a_number_of_bytes() {
    let server = shop(&Budget::unlimited()).await;
    large_carts(&server, 9, 300_000).await;
    assert_eq!(pages(&server, "/collections/cart_details/documents", "documents").await, [3, 3, 3]);
    assert!(pages(&server, "/log", "events").await.len() >= 3);
    // Conflicts: other events at a revision that exists.
    for number in 0..5 {
        let event = json!({
            "specversion": "1.0", "id": format!("other-{number}"), "source": "shop", "subject": "cart-000",
            "sequence": "1", "type": "shopping-cart-opened", "data": { "clientId": "y".repeat(300_000) },
        });
        let request = post_as("application/cloudevents+json", "/events", event.to_string());
        let answer = server.send(&request).await;
        assert!(answer.body.contains("conflict"), "{answer:?}");
    }
    assert_eq!(pages(&server, "/conflicts", "conflicts").await, [3, 2]);
    // Rejected messages, and parked documents with long reasons.
    for number in 0..5 {
        let lines = format!("{{no event {number} {}\n", "z".repeat(300_000));
        let answer = server.send(&post_as("application/x-ndjson", "/events", lines)).await;
        assert!(answer.body.contains("rejected"), "{answer:?}");
    }
    assert_eq!(pages(&server, "/rejected", "rejected").await, [3, 2]);
    for number in 0..20 {
        let event = json!({ "type": "shopping-cart-confirmed", "data": { "clientId": "ann", "total": 1 } });
        server.send(&post(&format!("/streams/never-opened-{number:02}"), event.to_string())).await;
    }
    let path = "/collections/cart_details/parked";
    let mut parked = 0;
    while parked < 20 {
        parked = pages(&server, path, "parked").await.iter().sum();
    }
    let first: Value = serde_json::from_str(&server.get(&format!("{path}?limit=9")).await.body).unwrap();
    assert_eq!((&first["more"], &first["after"]), (&json!(true), &json!("document:never-opened-08")));
    let rest = server.get(&format!("{path}?after=document:never-opened-08")).await;
    let rest: Value = serde_json::from_str(&rest.body).unwrap();
    assert_eq!((rest["parked"].as_array().unwrap().len(), &rest["more"]), (11, &json!(false)));
}

#[tokio::test]
async fn an_answer_is_charged_until_it_is_read() {
    let budget = Budget::new(12 * MIB);
    let server = shop(&budget).await;
    large_carts(&server, 4, 900_000).await;
    eventually("no request is left", || budget.used() == 0).await;
    let path = "/collections/cart_details/documents?after=cart-001";
    let mut clients = Vec::new();
    let refused = timeout(PATIENCE, async {
        loop {
            let (first, mut second) = (unread(&server, path, "*/*").await, server.connect().await);
            clients.push(first);
            let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            second.write_all(head.as_bytes()).await.unwrap();
            let mut status = [0; 12];
            second.read_exact(&mut status).await.unwrap();
            if &status == b"HTTP/1.1 503" {
                return wire::until_closed(&mut status.chain(second)).await;
            }
            clients.push(second);
        }
    });
    let refused = refused.await.expect("never refused");
    assert!(refused.body.contains("urn:leftfold:problem:out-of-memory"), "{refused:?}");
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    assert!(budget.used() <= 12 * MIB * 85 / 100 + 64 * 1024, "{budget:?}");
    // Small requests of other clients get a response, and so do the health endpoints.
    for path in ["/healthz", "/readyz", "/metrics", "/status", "/streams/none"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let small = json!({ "type": "shopping-cart-opened", "data": { "clientId": "bob" } }).to_string();
    assert_eq!(server.send(&post("/streams/cart-bob", small)).await.status, 201);
    let large = format!("{{\"type\":\"shopping-cart-opened\",\"data\":\"{}\"}}", "x".repeat(MIB));
    assert_eq!(server.send(&post("/streams/cart-bob", large)).await.status, 503);
    drop(clients);
    eventually("all memory is given back", || budget.used() == 0).await;
    assert_eq!(server.get(path).await.status, 200);
}

#[tokio::test]
async fn a_body_in_single_bytes_is_one_buffer() {
    let budget = Budget::new(64 * MIB);
    let server = shop(&budget).await;
    let mut stream = server.connect().await;
    let head = "POST /streams/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunks = b"1\r\n \r\n".repeat(1_000);
    for _ in 0..150 {
        stream.write_all(&chunks).await.unwrap();
    }
    // Three times the next power of two above 150,000 bytes.
    eventually("the body is read", || budget.used_by(Use::Request) == 3 * 256 * 1024).await;
    stream.write_all(b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n").await.unwrap();
    let mut status = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 400", "it is no event");
    drop(stream);
    eventually("all memory is given back", || budget.used() == 0).await;
}

#[tokio::test]
async fn unread_event_streams_are_cheap_and_bounded() {
    let budget = Budget::new(64 * MIB);
    let server = shop(&budget).await;
    large_carts(&server, 30, 100_000).await;
    let mut clients = Vec::new();
    for number in 0..100 {
        let path = ["/log", "/collections/cart_details/changes?after=0", "/streams/cart-000"][number % 3];
        clients.push(unread(&server, path, "text/event-stream").await);
    }
    eventually("all streams are open", || budget.used_by(Use::Stream) >= 100 * 160 * 1024).await;
    // Each has a page, a message and its buffers; none holds all of the log.
    let used = budget.used_by(Use::Stream);
    assert!(used <= 100 * 512 * 1024, "{used}");
    let mut others = Vec::new();
    let refused = timeout(PATIENCE, async {
        loop {
            let mut stream = unread(&server, "/log?after=end", "text/event-stream").await;
            let mut status = [0; 12];
            stream.read_exact(&mut status).await.unwrap();
            if &status == b"HTTP/1.1 503" {
                return;
            }
            others.push(stream);
        }
    });
    assert!(refused.await.is_ok(), "never refused");
    assert_eq!(server.get("/collections/cart_details/documents/cart-001").await.status, 200);
    drop((clients, others));
    eventually("all memory is given back", || budget.used() == 0).await;
}
