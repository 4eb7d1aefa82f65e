//! A server for posted events, and requests to it.

use std::net::SocketAddr;

use axum::Router;
use leftfold::{Memory, Policy, Sequencer};
use leftfold_sources::http::router;
use leftfold_sources::{Mapping, Message};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::common::soon;

pub(crate) const STRUCTURED: &str = "application/cloudevents+json";
pub(crate) const BATCH: &str = "application/cloudevents-batch+json";

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub(crate) async fn send(to: SocketAddr, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let headers =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    let exchanged = async {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(format!("{request}{headers}\r\n").as_bytes()).await.unwrap();
        // The server may respond early to a large body and close the connection.
        let _ = stream.write_all(body).await;
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        String::from_utf8(reply).unwrap()
    };
    let reply = soon("a reply", exchanged).await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a reply, not {reply:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() }
}

pub(crate) async fn post(to: SocketAddr, kind: &str, body: impl AsRef<[u8]>) -> Reply {
    send(to, "POST", &[("content-type", kind)], body.as_ref()).await
}

pub(crate) fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.content).into_owned()
}

pub(crate) fn batch(messages: &[Message]) -> String {
    format!("[{}]", messages.iter().map(text).collect::<Vec<_>>().join(","))
}

pub(crate) async fn on_memory() -> (SocketAddr, Memory) {
    let store = Memory::default();
    let router = router(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous);
    (serve(router).await, store)
}
