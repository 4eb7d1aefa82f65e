//! Requests that are not valid HTTP. hyper responds to them with an empty body; this module adds
//! the reason.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::listen::{HEADER_BYTES, HEADERS};
use crate::problem::Problem;

/// The header that marks all responses that are not hyper's own.
pub(crate) const MARK: &str = "x-content-type-options";

/// A connection that adds a body to hyper's own responses.
pub(crate) struct ProblemStream<T> {
    stream: T,
    /// The response that replaces hyper's, and how much of it is written.
    instead: Option<(Vec<u8>, usize)>,
}

impl<T> ProblemStream<T> {
    pub(crate) fn new(stream: T) -> Self {
        Self { stream, instead: None }
    }
}

/// Returns the replacement for one of hyper's own responses.
fn instead_of(written: &[u8]) -> Option<Vec<u8>> {
    let head = str::from_utf8(written).ok()?.strip_suffix("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    if head.contains(MARK) || !head.contains("content-length: 0") {
        return None;
    }
    let (problem, reason) = match status {
        "400" => {
            let detail = "not an HTTP/1.1 request: the first line or a header can't be parsed";
            (Problem::invalid(detail), "Bad Request")
        }
        "431" => {
            let detail = format!("send at most {HEADERS} headers, of {HEADER_BYTES} bytes together");
            (Problem::headers_too_large(detail), "Request Header Fields Too Large")
        }
        _ => return None,
    };
    let body = problem.text();
    let length = body.len();
    Some(
        format!(
            "HTTP/1.1 {status} {reason}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
             connection: close\r\ncache-control: no-store\r\n{MARK}: nosniff\r\n\r\n{body}"
        )
        .into_bytes(),
    )
}

impl<T: AsyncWrite + Unpin> ProblemStream<T> {
    /// Writes the replacement, and reports to hyper that its own response was written.
    fn write_instead(&mut self, length: usize, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while let Some((text, written)) = &mut self.instead {
            *written += ready!(Pin::new(&mut self.stream).poll_write(context, &text[*written..]))?;
            if *written == text.len() {
                self.instead = None;
            }
        }
        Poll::Ready(Ok(length))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ProblemStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ProblemStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            self.instead = instead_of(from).map(|text| (text, 0));
        }
        if self.instead.is_some() {
            return self.write_instead(from.len(), context);
        }
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [one] = from {
            return self.poll_write(context, one);
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
