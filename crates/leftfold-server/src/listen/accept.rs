//! New connections: the socket, and the room for them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::problem::Problem;
use crate::room::{Room, Seat};

/// The send buffer per connection. It bounds what the system keeps for a client that does not read.
const SEND_BUFFER: u32 = 256 << 10;
/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens at an address. The system's send buffer of each connection is small, so clients that do
/// not read take little of its memory, too.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns the next connection once there is room for it, or without a seat if its address has too
/// many.
pub(super) async fn accept(
    listener: &TcpListener,
    room: &Arc<Room>,
) -> (Option<Seat>, TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Send responses at once instead of waiting for more data.
                let _ = stream.set_nodelay(true);
                return (room.admit(peer.ip()).await, stream, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Tells a client that its address has too many connections, unless that would block.
pub(super) async fn refuse(mut stream: TcpStream, peer: SocketAddr, is_plain: bool) {
    tracing::debug!(%peer, "connection refused: its address has too many");
    if is_plain {
        let body = Problem::crowded("close idle connections, or raise server.connections_per_address").text();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
             connection: close\r\nretry-after: 1\r\n\r\n{body}"
        );
        let _ = timeout(Duration::from_secs(1), stream.write_all(answer.as_bytes())).await;
    }
}
