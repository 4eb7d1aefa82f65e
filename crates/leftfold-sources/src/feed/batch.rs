//! A batch of messages, sorted by what the source must do with them.

use std::time::Duration;

use leftfold::sequence::Refusal;
use leftfold::{Error, IngestAnswer};

use crate::message::Message;

/// The outcomes of a batch of messages.
pub(super) struct Batch<R> {
    /// Messages that are not valid events, with the reason.
    pub(super) invalid: Vec<(String, Message, R)>,
    pub(super) safe: Vec<R>,
    /// Messages for which there is no room.
    pub(super) crowded: Vec<R>,
    /// The time after which there may be room.
    pub(super) wait: Option<Duration>,
    pub(super) failed: Vec<R>,
    pub(super) failure: Option<Error>,
}

impl<R> Default for Batch<R> {
    fn default() -> Self {
        let (invalid, safe, crowded, failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { invalid, safe, crowded, wait: None, failed, failure: None }
    }
}

impl<R> Batch<R> {
    /// Sorts a message by its answer.
    pub(super) fn answered(&mut self, answer: IngestAnswer, message: Message, receipt: R) {
        match answer {
            IngestAnswer::Refused(Refusal::Full { retry_after, .. }) => {
                self.crowded.push(receipt);
                self.wait = Some(self.wait.map_or(retry_after, |wait| wait.max(retry_after)));
            }
            IngestAnswer::Refused(Refusal::Invalid(reason)) => {
                self.invalid.push((reason.to_string(), message, receipt));
            }
            _ => self.safe.push(receipt),
        }
    }
}

/// The outcome of a batch.
pub(super) enum Outcome {
    Taken,
    /// There was no room for some messages; there may be some after this time.
    Crowded(Duration),
    Failed(Error),
}
