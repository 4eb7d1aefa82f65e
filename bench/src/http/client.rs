//! Cheap HTTP clients: plain keep-alive sockets, one thread, prepared requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::report::Result;

/// The requests of all clients.
#[derive(Clone)]
pub(crate) struct Load {
    /// The requests of each client, one after the other.
    pub(crate) requests: Arc<Vec<Vec<Vec<u8>>>>,
    /// The number of times each client sends its requests.
    pub(crate) repeat: usize,
    /// A text that each response must contain, and its number of occurrences.
    pub(crate) expected: Option<(&'static str, usize)>,
}

/// Sends all requests and returns the time it took, not counting the connects.
pub(crate) async fn run(address: SocketAddr, load: Load) -> Result<Duration> {
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in 0..load.requests.len() {
                connections.push(Connection::open(address).await?);
            }
            let begun = Instant::now();
            let mut clients = JoinSet::new();
            for (client, connection) in connections.into_iter().enumerate() {
                clients.spawn(send_all(connection, load.clone(), client));
            }
            while let Some(done) = clients.join_next().await {
                done??;
            }
            Ok(begun.elapsed())
        })
    })
    .await?
}

async fn send_all(mut connection: Connection, load: Load, client: usize) -> Result<()> {
    for request in std::iter::repeat_n(&load.requests[client], load.repeat).flatten() {
        let answer = connection.send(request).await?;
        if let Some((text, times)) = load.expected
            && std::str::from_utf8(answer)?.matches(text).count() != times
        {
            return Err(format!("unexpected response: {}", String::from_utf8_lossy(answer)).into());
        }
    }
    Ok(())
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::with_capacity(64 << 10) })
    }

    /// Returns the body of the response, which must have status 200.
    async fn send(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.read.clear();
        let (begins, length) = loop {
            self.more().await?;
            if let Some(head) = head(&self.read)? {
                break head;
            }
        };
        while self.read.len() < begins + length {
            self.more().await?;
        }
        Ok(&self.read[begins..begins + length])
    }

    async fn more(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// Returns the start and the length of the body, or `None` if the head is incomplete.
fn head(read: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&read[..end])?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("the server rejected a request: {}", String::from_utf8_lossy(read)).into());
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then_some(value.trim())
    });
    Ok(Some((end + 4, length.ok_or("a response has no content-length")?.parse()?)))
}
