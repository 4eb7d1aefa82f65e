//! A server on a real socket, and raw bytes that are sent to it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use leftfold::{Leftfold, Memory};
use leftfold_server::{Listen, ServerLimits, Service, Token};
use serde_json::Value;
use shopping_cart::{CartDetails, ClientSummary};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The maximum size of a body.
pub(crate) const BODY: usize = 60_000;

/// The time after which a test fails.
const ENDLESS: Duration = Duration::from_mins(1);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The header for requests that read the server's data.
    pub(crate) bearer: String,
}

/// A response: the status, the headers and the body. The status is 0 if the connection was closed
/// without a response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    pub(crate) async fn start(listen: Listen, tokens: Vec<Token>, more: Router) -> Self {
        let app = Leftfold::on(Memory::default()).projection(CartDetails).projection(ClientSummary);
        let service = Service::new(app.start().await.unwrap()).await.unwrap();
        let (routes, stop) = service.tokens(tokens).limits(ServerLimits { body: BODY }).router();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listen.serve(listener, routes.merge(more), stop, std::future::pending()));
        Self { address, bearer: String::new() }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes, and reads until the server closes the connection.
    pub(crate) async fn send(&self, bytes: &[u8]) -> Answer {
        let (mut read, mut write) = self.connect().await.into_split();
        let bytes = bytes.to_owned();
        // The server may respond before everything is sent.
        let sending = tokio::spawn(async move {
            let _ = write.write_all(&bytes).await;
            write
        });
        let answer = until_closed(&mut read).await;
        drop(sending.await);
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let Self { bearer, .. } = self;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{bearer}\r\n");
        self.send(request.as_bytes()).await
    }

    /// Returns everything that a request could have written.
    pub(crate) async fn written(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for path in ["/log", "/held", "/conflicts", "/rejected", "/collections/cart_details/documents"] {
            let answer = self.get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            all.push(serde_json::from_str(&answer.body).unwrap());
        }
        all
    }
}

/// Reads to the end of a connection.
pub(crate) async fn until_closed(read: &mut (impl tokio::io::AsyncRead + Unpin)) -> Answer {
    let mut bytes = Vec::new();
    // After a reset, the bytes received before are still there.
    let _ = timeout(ENDLESS, read.read_to_end(&mut bytes)).await.expect("the connection is left open");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).map_or(0, |status| status.parse().unwrap());
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// Returns a request with these headers.
pub(crate) fn raw(first: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!("{first}\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body.as_ref()].concat()
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    raw(&format!("GET {path} HTTP/1.1"), "", "")
}

pub(crate) fn post_as(kind: &str, path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let headers = format!("content-type: {kind}\r\ncontent-length: {}\r\n", body.as_ref().len());
    raw(&format!("POST {path} HTTP/1.1"), &headers, body)
}

pub(crate) fn post(path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    post_as("application/json", path, body)
}
