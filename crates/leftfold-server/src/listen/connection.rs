//! One connection: its requests and responses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use super::serving::Snapshot;
use crate::meters::Peer;
use crate::problem::Problem;
use crate::room::{Busy, Seat};
use crate::slow::{TimedBody, TimedStream};
use crate::unreadable::ProblemStream;

/// The maximum number of header lines, and the maximum size of all headers.
pub(crate) const HEADERS: usize = 100;
pub(crate) const HEADER_BYTES: usize = 32 << 10;

/// A connection of a client.
pub(super) struct Connection {
    pub(super) served: watch::Receiver<Arc<Snapshot>>,
    pub(super) peer: SocketAddr,
    pub(super) patience: Duration,
    pub(super) seat: Arc<Seat>,
}

impl Connection {
    /// Responds to requests until the connection ends, or `ended` becomes true.
    pub(super) async fn run(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut ended: watch::Receiver<bool>,
    ) {
        let (peer, patience, seat) = (self.peer, self.patience, Arc::clone(&self.seat));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(patience);
        http.max_headers(HEADERS).max_header_size(HEADER_BYTES).max_buf_size(64 << 10);
        let stream = TokioIo::new(ProblemStream::new(TimedStream::new(stream, patience)));
        let connection = http.serve_connection(stream, service_fn(|request| self.answer(request)));
        let mut connection = std::pin::pin!(connection);
        let must_end = async {
            tokio::select! {
                _ = ended.wait_for(|ends| *ends) => {}
                () = seat.closed() => {}
            }
        };
        let done = tokio::select! {
            done = connection.as_mut() => done,
            // hyper would wait for the first request of a connection.
            () = must_end => if seat.is_idle() {
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
        Ok(answer.map(|body| Body::new(BusyBody { body, _busy: busy })))
    }

    async fn answered(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let served = self.served.borrow().clone();
        if let Err(problem) = served.gate.admits(self.peer.ip(), &request, Instant::now()) {
            return Ok(problem.into_response());
        }
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(Peer(self.peer.ip()));
        let (body, was_late) = TimedBody::new(body, self.patience);
        let request = Request::from_parts(parts, Body::new(body));
        let answering = TowerToHyperService::new(served.routes.clone()).call(request);
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
struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl HttpBody for BusyBody {
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
