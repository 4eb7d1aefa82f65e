//! Connections: their number, their time limits and their shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Stop;
use crate::gate::Gate;
use crate::meters::Peer;
use crate::problem::Problem;
use crate::room::{Busy, Room, Seat};
use crate::slow::{Hurried, Taken};
use crate::unreadable::Explained;

/// The maximum number of header lines, and the maximum size of all headers.
pub(crate) const HEADERS: usize = 100;
pub(crate) const HEADER_BYTES: usize = 32 << 10;

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

/// The options of a listener.
#[derive(Clone)]
pub struct Listen {
    /// The maximum number of connections. The default is 1,024. Beyond it, the server closes the
    /// connection that has been idle longest. If none is idle, new connections wait until one ends.
    pub connections: usize,
    /// The maximum number of connections per address. The default is 512. Beyond it, the server
    /// closes the address' own idle connections. If it has none, the new connection is refused.
    /// Behind a proxy all clients have one address.
    pub connections_per_address: usize,
    /// The timeout for a client to send a request, finish the TLS handshake, or read a response.
    /// The default is 10 seconds. A large body has longer.
    pub patience: Duration,
    /// The maximum number of requests per second and address. The default is 10,000.
    pub requests_per_second: NonZeroU32,
    /// Host names that requests may be addressed to, besides those of this machine. The default is
    /// any name. A local server without tokens must set this, because a web page can make its own
    /// name resolve to this machine.
    pub hosts: Option<Vec<String>>,
    /// The time that connections have to end when the server stops. The default is 10 seconds.
    pub grace: Duration,
    /// The certificate and the key, if connections are encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for Listen {
    fn default() -> Self {
        let (patience, grace) = (Duration::from_secs(10), Duration::from_secs(10));
        let requests_per_second = NonZeroU32::MIN.saturating_add(9_999);
        Self {
            connections: 1_024,
            connections_per_address: 512,
            patience,
            requests_per_second,
            hosts: None,
            grace,
            tls: None,
        }
    }
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connections, connections_per_address, patience, requests_per_second, hosts, grace, tls } =
            self;
        f.debug_struct("Listen")
            .field("connections", connections)
            .field("connections_per_address", connections_per_address)
            .field("patience", patience)
            .field("requests_per_second", requests_per_second)
            .field("hosts", hosts)
            .field("grace", grace)
            .field("tls", &tls.is_some())
            .finish()
    }
}

impl Listen {
    /// Serves the routes until `until` resolves. Then it accepts no more connections, finishes
    /// requests in progress within the grace period, and closes the rest.
    pub async fn serve(
        self,
        listener: TcpListener,
        routes: Router,
        stop: Stop,
        until: impl Future<Output = ()>,
    ) {
        Serving::new(self, routes, stop).run(listener, until).await;
    }
}

/// A server whose routes and options can be replaced while it runs.
pub struct Serving(watch::Sender<Arc<Now>>);

/// The current routes and options.
struct Now {
    listen: Listen,
    routes: Router,
    stop: Stop,
    gate: Gate,
    tls: Option<TlsAcceptor>,
}

impl Now {
    fn new(listen: Listen, routes: Router, stop: Stop) -> Arc<Self> {
        let (gate, tls) = (Gate::new(&listen), listen.tls.clone().map(TlsAcceptor::from));
        Arc::new(Self { listen, routes, stop, gate, tls })
    }
}

impl Serving {
    /// Creates a server that does not listen yet.
    pub fn new(listen: Listen, routes: Router, stop: Stop) -> Self {
        Self(watch::Sender::new(Now::new(listen, routes, stop)))
    }

    /// Replaces the routes for all further requests, including those on open connections. The old
    /// routes finish the requests in progress, but their event streams end. The connection limits
    /// and the grace period do not change.
    pub fn replace(&self, listen: Listen, routes: Router, stop: Stop) {
        self.0.send_replace(Now::new(listen, routes, stop)).stop.stop();
    }

    /// Serves until `until` resolves, as [`Listen::serve`] does.
    pub async fn run(&self, listener: TcpListener, until: impl Future<Output = ()>) {
        let Listen { connections, connections_per_address, grace, .. } = self.0.borrow().listen;
        let room = Room::new(connections, connections_per_address);
        let (ends, _) = watch::channel(false);
        let mut open = JoinSet::new();
        let mut until = std::pin::pin!(until);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &room) => accepted,
                () = &mut until => break,
            };
            let (seat, stream, peer) = accepted;
            let (ended, now) = (ends.subscribe(), self.0.borrow().clone());
            while open.try_join_next().is_some() {}
            let Some(seat) = seat else {
                let is_plain = now.tls.is_none();
                open.spawn(refuse(stream, peer, is_plain));
                continue;
            };
            let patience = now.listen.patience;
            let answers = Answers { served: self.0.subscribe(), peer, patience, seat: Arc::new(seat) };
            open.spawn(async move {
                let Some(tls) = &now.tls else { return answers.converse(stream, ended).await };
                let seat = Arc::clone(&answers.seat);
                let shaken = tokio::select! {
                    shaken = timeout(patience, tls.accept(stream)) => shaken,
                    () = seat.closed() => return,
                };
                match shaken {
                    Ok(Ok(stream)) => answers.converse(stream, ended).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                }
            });
        }
        drop(listener);
        self.0.borrow().stop.stop();
        ends.send_replace(true);
        let all = async { while open.join_next().await.is_some() {} };
        if timeout(grace, all).await.is_err() {
            tracing::warn!("connections were closed before they ended");
        }
    }
}

/// Returns the next connection once there is room for it, or without a seat if its address has too
/// many.
async fn accept(listener: &TcpListener, room: &Arc<Room>) -> (Option<Seat>, TcpStream, SocketAddr) {
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
async fn refuse(mut stream: TcpStream, peer: SocketAddr, is_plain: bool) {
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

/// Responds to the requests of one connection.
struct Answers {
    served: watch::Receiver<Arc<Now>>,
    peer: SocketAddr,
    patience: Duration,
    seat: Arc<Seat>,
}

impl Answers {
    /// Runs the connection until it ends or is told to.
    async fn converse(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut ended: watch::Receiver<bool>,
    ) {
        let (peer, patience, seat) = (self.peer, self.patience, Arc::clone(&self.seat));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(patience);
        http.max_headers(HEADERS).max_header_size(HEADER_BYTES).max_buf_size(64 << 10);
        let stream = TokioIo::new(Explained::new(Taken::new(stream, patience)));
        let connection = http.serve_connection(stream, service_fn(|request| self.answer(request)));
        let mut connection = std::pin::pin!(connection);
        let is_to_end = async {
            tokio::select! {
                _ = ended.wait_for(|ends| *ends) => {}
                () = seat.closed() => {}
            }
        };
        let done = tokio::select! {
            done = connection.as_mut() => done,
            // hyper would wait for the first request of a connection.
            () = is_to_end => if seat.is_idle() {
                Ok(())
            } else {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = done {
            tracing::debug!(%peer, %error, "connection ended early");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let busy = self.seat.busy();
        let mut answer = self.answered(request).await?;
        let headers = answer.headers_mut();
        headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        // The connection counts as busy until the response is written.
        Ok(answer.map(|body| Body::new(UnderWay { body, _busy: busy })))
    }

    async fn answered(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let now = self.served.borrow().clone();
        if let Err(problem) = now.gate.admits(self.peer.ip(), &request, Instant::now()) {
            return Ok(problem.into_response());
        }
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(Peer(self.peer.ip()));
        let (body, was_late) = Hurried::new(body, self.patience);
        let request = Request::from_parts(parts, Body::new(body));
        let answering = TowerToHyperService::new(now.routes.clone()).call(request);
        // After a panic only the request is in an unknown state: everything else is in the store.
        let mut answer = if let Ok(answer) = AssertUnwindSafe(answering).catch_unwind().await {
            answer?
        } else {
            tracing::error!("a request caused a panic");
            Problem::failed("this is a bug in the server; its log shows the place").into_response()
        };
        // The reader of the body only knows that reading failed, not why.
        if was_late.load(Ordering::Relaxed) {
            answer = Problem::too_slow("the body did not arrive in time; send it faster, or a smaller one")
                .into_response();
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer)
    }
}

/// The body of a response that is being written.
struct UnderWay {
    body: Body,
    _busy: Busy,
}

impl HttpBody for UnderWay {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
