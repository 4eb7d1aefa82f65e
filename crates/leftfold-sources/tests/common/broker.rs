//! A broker in memory: unacknowledged messages are redelivered to the next consumer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leftfold::{Error, Kind, Result};
use leftfold_sources::{Message, Source};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Clone, Default)]
pub(crate) struct Broker(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    pub queue: VecDeque<(usize, Message)>,
    pub unacknowledged: BTreeMap<usize, Message>,
    /// Messages to redeliver, by the earliest time.
    pub later: Vec<(Instant, usize)>,
    pub acknowledged: usize,
    /// The delay of each refusal.
    pub refused: Vec<Duration>,
    /// The errors of the next calls.
    pub receive_fails: VecDeque<Error>,
    pub acknowledge_fails: usize,
    published: usize,
}

impl Broker {
    pub(crate) fn publish(&self, messages: impl IntoIterator<Item = Message>) {
        let mut state = self.state();
        for message in messages {
            let number = state.published;
            state.published += 1;
            state.queue.push_back((number, message));
        }
        self.0.changed.notify_one();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.queue.is_empty() && state.unacknowledged.is_empty()
    }

    /// Returns a new consumer. It gets the unacknowledged messages of the last one again.
    pub(crate) fn consumer(&self) -> Consumer {
        let mut state = self.state();
        state.later.clear();
        let left = std::mem::take(&mut state.unacknowledged);
        state.queue.extend(left);
        drop(state);
        Consumer(self.clone())
    }
}

pub(crate) struct Consumer(Broker);

impl Source for Consumer {
    type Receipt = usize;

    fn name(&self) -> &'static str {
        "broker"
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, usize)>> {
        loop {
            let next = {
                let mut state = self.0.state();
                if let Some(error) = state.receive_fails.pop_front() {
                    return Err(error);
                }
                let now = Instant::now();
                let State { queue, unacknowledged, later, .. } = &mut *state;
                later.retain(|(due, number)| {
                    let is_later = *due > now;
                    if !is_later {
                        queue.push_back((*number, unacknowledged[number].clone()));
                    }
                    is_later
                });
                if !queue.is_empty() {
                    let most = most.min(queue.len());
                    let taken: Vec<_> = queue.drain(..most).collect();
                    unacknowledged.extend(taken.iter().cloned());
                    return Ok(taken.into_iter().map(|(number, message)| (message, number)).collect());
                }
                later.iter().map(|(due, _)| *due).min()
            };
            match next {
                Some(due) => sleep_until(due).await,
                None => self.0.0.changed.notified().await,
            }
        }
    }

    async fn acknowledge(&mut self, receipts: Vec<usize>) -> Result<()> {
        let mut state = self.0.state();
        if state.acknowledge_fails > 0 {
            state.acknowledge_fails -= 1;
            for receipt in receipts {
                state.later.push((Instant::now(), receipt));
            }
            return Err(Error::new(Kind::Unavailable, "acknowledging: the connection is lost"));
        }
        for receipt in receipts {
            assert!(state.unacknowledged.remove(&receipt).is_some(), "acknowledged twice");
            state.acknowledged += 1;
        }
        Ok(())
    }

    async fn refuse(&mut self, receipts: Vec<usize>, after: Duration) -> Result<()> {
        let mut state = self.0.state();
        for receipt in receipts {
            assert!(state.unacknowledged.contains_key(&receipt), "refused after it was acknowledged");
            state.refused.push(after);
            state.later.push((Instant::now() + after, receipt));
        }
        Ok(())
    }
}
