//! Disconnects clients that send or read too slowly and only take up room.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The bytes per second that a body must deliver after the initial patience.
const PER_SECOND: u64 = 16 << 10;

/// A body with a deadline that moves with the bytes received.
pub(crate) struct TimedBody {
    body: Incoming,
    patience: Duration,
    received: u64,
    /// The start of reading, and the timer for the deadline.
    late: Option<(Instant, Pin<Box<Sleep>>)>,
    was_late: Arc<AtomicBool>,
}

impl TimedBody {
    /// Returns the body, and a flag that tells afterwards whether it was late.
    pub(crate) fn new(body: Incoming, patience: Duration) -> (Self, Arc<AtomicBool>) {
        let was_late = Arc::new(AtomicBool::new(false));
        (Self { body, patience, received: 0, late: None, was_late: Arc::clone(&was_late) }, was_late)
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            this.received += data.map_or(0, |data| data.len() as u64);
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        let patience = this.patience;
        let (since, late) = this.late.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(patience))));
        let until = *since + patience + Duration::from_secs(this.received / PER_SECOND);
        if late.deadline() != until {
            late.as_mut().reset(until);
        }
        ready!(late.as_mut().poll(context));
        this.was_late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the body arrives too slowly"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose client must read the data that is written to it.
pub(crate) struct TimedStream<T> {
    stream: T,
    patience: Duration,
    /// The timer, while data waits to be written.
    late: Option<Pin<Box<Sleep>>>,
}

impl<T> TimedStream<T> {
    pub(crate) fn new(stream: T, patience: Duration) -> Self {
        Self { stream, patience, late: None }
    }

    fn in_time<R>(&mut self, written: Poll<io::Result<R>>, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let until = Instant::now() + self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(until)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its response")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, from);
        self.in_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        self.in_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.in_time(ended, context)
    }
}
