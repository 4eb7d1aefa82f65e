//! Event streams that are cut after every message and resumed: no message is lost, and none is sent
//! twice.
//!
//! In an earlier version every message of a page had the id of the page's end. A client that was
//! cut off within a page never received the rest of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod wire;

use std::time::Duration;

use leftfold::fold::{self, DocumentIds};
use leftfold::{Event, Leftfold, Memory, Projection, Route};
use leftfold_server::{Listen, Service};
use serde_json::{Value, json};
use shopping_cart::{CartDetails, CartEvent};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use self::wire::{Server, post};

/// Counts each event in three documents: two of the stream's own, and one that all streams share.
struct Counted;

impl Projection for Counted {
    type Event = CartEvent;
    type Document = u32;

    fn name(&self) -> &'static str {
        "counted"
    }

    fn route(&self) -> Route<CartEvent> {
        Route::by(|event| {
            DocumentIds::many([
                format!("{}-z", event.stream),
                "shared".to_owned(),
                format!("{}-a", event.stream),
            ])
        })
    }

    fn fold(&self, count: Option<u32>, _: &Event<CartEvent>) -> Result<Option<u32>, fold::Error> {
        Ok(Some(count.unwrap_or_default() + 1))
    }
}

/// Returns a server whose log has three partitions, with eight carts.
async fn shop() -> Server {
    let app = Leftfold::on(Memory::new(3)).projection(CartDetails).projection(Counted);
    let (routes, stop) = Service::new(app.start().await.unwrap()).await.unwrap().router();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Listen::default().serve(listener, routes, stop, std::future::pending()));
    let server = Server { address, bearer: String::new() };
    for cart in 1..=8 {
        append(&server, &format!("cart-{cart}"), true).await;
    }
    server
}

/// Appends events, and waits until they are folded.
async fn append(server: &Server, stream: &str, is_new: bool) {
    let opened = json!({ "type": "shopping-cart-opened", "data": { "clientId": "ann" } });
    let shoes = json!({ "productId": "shoes", "name": "Shoes", "quantity": 1, "unitPrice": 4900 });
    let added = json!({ "type": "product-item-added", "data": shoes });
    let body = if is_new { vec![opened, added.clone(), added] } else { vec![added] };
    let body = Value::Array(body).to_string();
    let answer = server.send(&post(&format!("/streams/{stream}"), &body)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let token = serde_json::from_str::<Value>(&answer.body).unwrap()["bookmark"].as_str().unwrap().to_owned();
    for document in [format!("cart_details/documents/{stream}"), "counted/documents/shared".to_owned()] {
        let answer = server.get(&format!("/collections/{document}?at_least={token}&wait=60s")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Message {
    id: String,
    kind: String,
    data: String,
}

/// A client of an event stream.
struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(server: &Server, path: &str, last: Option<&str>) -> Self {
        let mut stream = server.connect().await;
        let last = last.map_or(String::new(), |last| format!("last-event-id: {last}\r\n"));
        // In HTTP/1.0 the body is not chunked.
        let head =
            format!("GET {path} HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut client = Self(BufReader::new(stream));
        assert!(client.line().await.contains(" 200 "));
        while !client.line().await.is_empty() {}
        client
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(Duration::from_mins(1), self.0.read_line(&mut line)).await;
        assert!(read.expect("nothing comes").unwrap() > 0, "the stream ended");
        line.trim_end().to_owned()
    }

    /// Returns the next message, including heartbeats.
    async fn any(&mut self) -> Message {
        let mut message = Message::default();
        loop {
            let line = self.line().await;
            match line.split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut message.kind),
                Some(("id", id)) => id.clone_into(&mut message.id),
                Some(("data", data)) => data.clone_into(&mut message.data),
                Some(("retry", _)) => {}
                None if line.is_empty() => return message,
                _ => panic!("{line}"),
            }
        }
    }

    async fn next(&mut self) -> Message {
        loop {
            let message = self.any().await;
            if message.kind != "leftfold-heartbeat" {
                return message;
            }
        }
    }
}

/// Reads messages on one connection, then again with one connection for each, and compares them.
async fn cut_after_every_message(path: &str, after: &str, count: usize) -> Vec<Message> {
    let server = shop().await;
    let from = if path.contains('?') { path.to_owned() } else { format!("{path}?after={after}") };
    let mut client = Client::connect(&server, &from, None).await;
    let mut whole = Vec::new();
    while whole.len() < count {
        whole.push(client.next().await);
    }
    let mut last: Option<String> = None;
    for expected in &whole {
        let message = Client::connect(&server, &from, last.as_deref()).await.next().await;
        assert_eq!(message, *expected, "after {last:?}");
        last = Some(message.id);
    }
    // No message is left: the next one is new.
    append(&server, "cart-8", false).await;
    let last = last.as_deref();
    let [new, again] = [client.next().await, Client::connect(&server, &from, last).await.next().await];
    assert_eq!(new, again);
    assert!(!whole.contains(&new), "{new:?}");
    whole
}

#[tokio::test]
async fn each_event_of_the_log_comes_once() {
    let whole = cut_after_every_message("/log", "0-0-0", 24).await;
    let ids: std::collections::BTreeSet<_> = whole.iter().map(|message| &message.data).collect();
    assert_eq!(ids.len(), 24);
}

#[tokio::test]
async fn each_event_of_a_stream_comes_once() {
    let whole = cut_after_every_message("/streams/cart-8", "0", 3).await;
    let revisions: Vec<_> = whole.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(revisions, ["1", "2", "3"]);
}

#[tokio::test]
async fn each_changed_document_comes_once() {
    let whole = cut_after_every_message("/collections/cart_details/changes", "0-0-0", 8).await;
    assert!(whole.iter().all(|message| message.kind == "changed"), "{whole:?}");
}

#[tokio::test]
async fn each_of_many_documents_of_one_event_comes_once() {
    let whole = cut_after_every_message("/collections/counted/changes", "0-0-0", 17).await;
    assert!(whole.iter().any(|message| message.id.contains('+')), "{whole:?}");
    let shared = whole.iter().find(|message| message.data.contains("shared")).unwrap();
    assert_eq!(shared.data, r#"{"id":"shared","document":24}"#);
}

#[tokio::test]
async fn a_client_that_is_cut_off_before_the_first_message_misses_none() {
    let server = shop().await;
    for (path, data) in [("/log?after=end", "cart-7"), ("/collections/cart_details/changes", "cart-7")] {
        let mut client = Client::connect(&server, path, None).await;
        let first = client.any().await;
        assert_eq!((first.kind.as_str(), first.data.as_str()), ("leftfold-heartbeat", "{}"));
        drop(client);
        append(&server, "cart-7", false).await;
        let message = Client::connect(&server, path, Some(&first.id)).await.next().await;
        assert!(message.data.contains(data), "{message:?}");
    }
}

#[tokio::test]
async fn places_that_no_message_named_are_refused() {
    let server = shop().await;
    for (path, last) in [
        ("/log", "1"),
        ("/log", "1-1-1+1"),
        ("/streams/cart-1", "1-1"),
        ("/collections/counted/changes", "1-1-x"),
        ("/collections/counted/changes", "1+1-1+1-1"),
    ] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\naccept: text/event-stream\r\nlast-event-id: {last}\r\n\r\n"
        );
        assert_eq!(server.send(request.as_bytes()).await.status, 400, "{path} {last}");
    }
}
