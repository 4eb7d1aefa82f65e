//! The queues of appends, one per partition.

use std::sync::{Arc, Mutex, PoisonError};

use leftfold::log::Entry;
use leftfold::{AppendError, Appended, Error, Expected, Kind, Partition, StreamId};
use tokio::sync::{mpsc, oneshot};

use super::DOING;
use super::appender::Appender;
use crate::connection::Base;

/// The number of appends that may queue before callers have to wait.
const QUEUE: usize = 1_024;

/// The tasks that append, one per partition. Each starts on first use.
pub(crate) struct Appenders(Vec<Mutex<Option<mpsc::Sender<Request>>>>);

/// The append of one caller.
pub(super) struct Request {
    pub(super) stream: StreamId,
    pub(super) expected: Expected,
    pub(super) entries: Vec<Entry>,
    pub(super) answer: oneshot::Sender<Result<Appended, AppendError>>,
    /// `true` if a transaction with this request had an unknown outcome.
    pub(super) unsure: bool,
}

impl Appenders {
    pub(crate) fn new(partitions: u16) -> Self {
        Self((0..partitions).map(|_| Mutex::default()).collect())
    }

    pub(crate) async fn append(
        &self,
        base: &Arc<Base>,
        partition: Partition,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        let (answer, answered) = oneshot::channel();
        let request = Request { stream, expected, entries, answer, unsure: false };
        let stopped = || {
            let message = format!("could not {DOING} {}: the process is stopping", base.place);
            AppendError::from(Error::new(Kind::Stopped, message))
        };
        self.queue(base, partition).send(request).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    fn queue(&self, base: &Arc<Base>, partition: Partition) -> mpsc::Sender<Request> {
        let mut queue = self.0[usize::from(partition.0)].lock().unwrap_or_else(PoisonError::into_inner);
        match &*queue {
            Some(queue) if !queue.is_closed() => queue.clone(),
            _ => {
                let (sender, requests) = mpsc::channel(QUEUE);
                let appender = Appender::new(Arc::clone(base), partition);
                tokio::spawn(appender.run(requests));
                queue.insert(sender).clone()
            }
        }
    }
}

/// Returns the number of events and of bytes of an append.
pub(super) fn size(request: &Request) -> (usize, usize) {
    let bytes = |entry: &Entry| {
        entry.data.as_str().len()
            + entry.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len())
            + 256
    };
    (request.entries.len(), request.entries.iter().map(bytes).sum())
}
