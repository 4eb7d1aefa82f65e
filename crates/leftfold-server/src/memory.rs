//! The memory of responses: each is charged to the budget until its client has read it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use leftfold::budget::{Budget, Share, Use};

use crate::problem::Problem;

/// The size up to which requests and responses are counted but never refused, so that large ones
/// can't keep small ones out.
pub(crate) const UNREFUSED: usize = 16 << 10;
/// The charge for the buffers of a connection that writes a large response. The allocator's
/// overhead comes on top.
const BUFFERS: usize = 32 << 10;
/// The size of the part of a response that its connection takes at a time.
const PART: usize = 64 << 10;
/// Paths that always get a response, however much memory is in use.
const VITAL: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Charges the response to a request. One that exceeds the budget becomes a 503, unless the request
/// may have changed something.
pub(crate) async fn charged(State(budget): State<Budget>, request: Request, next: Next) -> Response {
    let is_refusable = request.method() == Method::GET && !VITAL.contains(&request.uri().path());
    let (parts, body) = next.run(request).await.into_parts();
    // An event stream has no length; it is charged separately.
    let Some(length) = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()) else {
        return Response::from_parts(parts, body);
    };
    let share = if is_refusable && length > UNREFUSED {
        match budget.try_take(Use::Request, length + length / 8 + BUFFERS) {
            Ok(share) => share,
            Err(exhausted) => return Problem::from(exhausted).into_response(),
        }
    } else {
        budget.take(Use::Request, length)
    };
    match body.collect().await {
        Ok(whole) => {
            Response::from_parts(parts, Body::new(Charged { bytes: whole.to_bytes(), _share: share }))
        }
        Err(error) => Problem::failed(format!("reading the response: {error}")).into_response(),
    }
}

/// A response that its connection takes in parts. The connection asks for the last part when the
/// others are written, so the share lives as long as the response takes memory.
struct Charged {
    bytes: Bytes,
    _share: Share,
}

impl HttpBody for Charged {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let part = self.bytes.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
