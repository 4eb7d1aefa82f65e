//! Following: one pending request to the change stream, and the place after each change.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use leftfold::react::{DocumentSource, FeedChanges};
use leftfold::{Backoff, Env as _, Result, System};
use tokio::time::{Instant, sleep, timeout_at};

use super::MongoFeed;
use super::place::Place;
use super::stream::{Change, Source, Stream, StreamError, request};
use crate::connection::{Base, with_timeout};
use crate::error::Failure;

/// The reason given when a feed has to start over after a switch.
const SWITCHED: &str = "a projection was switched to another generation";

pub(super) type Step =
    Pin<Box<dyn Future<Output = Result<(Stream, Option<RawDocumentBuf>), StreamError>> + Send>>;

impl MongoFeed {
    /// Follows documents from a place on, or from now on.
    pub(in crate::react) async fn open(
        base: &Arc<Base>,
        on: Vec<DocumentSource>,
        from: Option<String>,
    ) -> Result<Self> {
        let source = Arc::new(base.run("follow changes in", Source::of(base, on)).await?);
        let mut feed = Self {
            source,
            place: None,
            stream: None,
            pending: None,
            lost: None,
            failed: None,
            looked: Instant::now(),
            delays: delays(),
        };
        if let Some(from) = from {
            match serde_json::from_str::<Place>(&from) {
                // The first wait finds out whether the server still knows the place.
                Ok(place) if place.switches == feed.source.switches => feed.place = Some(place),
                Ok(_) => feed.lost = Some(SWITCHED.to_owned()),
                Err(error) => {
                    feed.lost = Some(format!("{from:?} is not a place in a change stream: {error}"));
                }
            }
            return Ok(feed);
        }
        let begin = async {
            let mut stream = feed.source.stream(None).await?;
            let mut first = None;
            // A stream that starts with a change gives no token for the place before it. That
            // change happened before the caller had this feed, so the place after it counts as now.
            if stream.resume_token().is_none() {
                first = stream.next_if_any().await?;
            }
            let Some(token) = stream.resume_token() else {
                return Err(Failure::damaged("the server did not report the start of its change stream"));
            };
            Ok((stream, feed.source.place(token, first.as_deref())))
        };
        let (stream, place) = base.run("follow changes in", begin).await?;
        Ok(Self { place: Some(place), stream: Some(stream), ..feed })
    }

    /// Returns the next change if there is one at once, or before `until`. `Some(None)` means that
    /// the server looked and found none.
    pub(super) async fn answer(
        &mut self,
        until: Option<Instant>,
    ) -> Option<Result<Option<RawDocumentBuf>, StreamError>> {
        if self.pending.is_none() {
            self.pending = Some(self.step());
        }
        let step = self.pending.as_mut()?;
        let done = match until {
            Some(until) => timeout_at(until, step).await.ok(),
            None => {
                poll_fn(|context| match step.as_mut().poll(context) {
                    Poll::Ready(done) => Poll::Ready(Some(done)),
                    Poll::Pending => Poll::Ready(None),
                })
                .await
            }
        };
        let done = done?;
        self.pending = None;
        Some(done.map(|(stream, change)| {
            if self.failed.take().is_some() {
                self.delays = delays();
            }
            if let Some(token) = stream.resume_token() {
                self.place = Some(self.source.place(token, change.as_deref()));
            }
            self.stream = Some(stream);
            change
        }))
    }

    /// Starts the next step: requests a change, or reopens the stream at its place.
    fn step(&mut self) -> Step {
        if let Some(stream) = self.stream.take() {
            return Box::pin(request(stream));
        }
        let (source, place) = (Arc::clone(&self.source), self.place.clone());
        let delay =
            if self.failed.is_some() { self.delays.next().unwrap_or_default() } else { Duration::ZERO };
        Box::pin(async move {
            sleep(delay).await;
            Ok((source.open(place).await?, None))
        })
    }

    /// Checks for a switch: the records of another generation are in another collection, and may
    /// differ.
    pub(super) async fn look(&mut self) {
        self.looked = Instant::now();
        match with_timeout(self.source.switches()).await {
            Ok(switches) if switches == self.source.switches => {}
            Ok(_) => self.lost = Some(SWITCHED.to_owned()),
            // The next check finds out.
            Err(failure) => tracing::debug!(?failure, "could not look for a switch to another generation"),
        }
    }

    /// Records the document of a change. A drop, a rename or an unreadable change loses the feed,
    /// because the changed documents are unknown.
    pub(super) fn note(&mut self, change: &RawDocument, changes: &mut FeedChanges) {
        match self.source.read(change) {
            Ok(Change::Document(on, id)) => {
                changes.documents.entry(on.clone()).or_default().insert(id);
            }
            Ok(Change::Nothing) => {}
            Ok(Change::Lost(why)) => self.lost = Some(why),
            Err(failure) => self.lost = Some(format!("a change can't be read: {failure:?}")),
        }
    }
}

/// Returns the delays before a failed stream is opened again.
fn delays() -> Box<dyn Iterator<Item = Duration> + Send> {
    let backoff = Backoff::default().first(Duration::from_millis(20)).most(Duration::from_secs(2));
    Box::new(backoff.without_limit().delays(System.random()))
}
