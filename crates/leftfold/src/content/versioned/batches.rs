//! Batches of work, some of them in flight at the same time, in the caller's task.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Versioned;
use super::retry::doubted;
use crate::content::store::Contents;
use crate::error::Result;

/// The maximum number of documents of a large write that are in flight at the same time.
const AT_ONCE: usize = 1_000;

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// The maximum number of batches in flight at the same time.
    pub(super) const AT_ONCE: usize = AT_ONCE.div_ceil(S::PIECE);
}

pub(super) type Batch<T> = Pin<Box<dyn Future<Output = Result<Vec<T>>> + Send>>;

/// Batches of work, at most some of them in flight.
pub(super) struct Batches<T> {
    at_once: usize,
    waiting: VecDeque<(usize, Batch<T>)>,
    in_flight: Vec<(usize, Batch<T>)>,
    count: usize,
    begun: usize,
    answers: Result<BTreeMap<usize, Vec<T>>>,
}

impl<T> Batches<T> {
    pub(super) fn new(at_once: usize) -> Self {
        let answers = Ok(BTreeMap::new());
        Self { at_once, waiting: VecDeque::new(), in_flight: Vec::new(), count: 0, begun: 0, answers }
    }

    /// Adds a batch, and begins it unless too many are in flight.
    pub(super) fn begin(&mut self, batch: Batch<T>) {
        self.waiting.push_back((self.count, batch));
        self.count += 1;
        // Poll now, so that the store works while the next batch is prepared. `end` registers the
        // real waker.
        let _ = self.poll(&mut Context::from_waker(Waker::noop()));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            while self.answers.is_ok() && self.in_flight.len() < self.at_once {
                let Some(next) = self.waiting.pop_front() else { break };
                self.in_flight.push(next);
                self.begun += 1;
            }
            let before = self.in_flight.len();
            let (answers, is_alone) = (&mut self.answers, self.begun == 1);
            self.in_flight.retain_mut(|(at, batch)| {
                let Poll::Ready(done) = batch.as_mut().poll(context) else { return true };
                match (answers.as_mut(), done) {
                    (Ok(all), Ok(done)) => _ = all.insert(*at, done),
                    // Other batches may have been written.
                    (Ok(_), Err(error)) => *answers = Err(doubted(error, !is_alone)),
                    (Err(_), _) => {}
                }
                false
            });
            if self.in_flight.is_empty() && (self.waiting.is_empty() || self.answers.is_err()) {
                return Poll::Ready(());
            }
            if self.in_flight.len() == before {
                return Poll::Pending;
            }
        }
    }

    /// Waits for all batches. Returns the answers in order.
    pub(super) async fn end(mut self) -> Result<Vec<T>> {
        poll_fn(|context| self.poll(context)).await;
        Ok(self.answers?.into_values().flatten().collect())
    }
}
