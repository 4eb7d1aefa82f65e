//! A store that fails on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use leftfold::sequence::{Rejected, Settled, Settlement};
use leftfold::{Append, Error, Kind, Log, Memory, Result, Sequences, StreamId, delegate};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Nothing is written.
    Before(Kind),
    /// The write succeeds, and the caller gets an error.
    After,
}

#[derive(Clone, Default)]
pub(crate) struct Faulty {
    pub store: Memory,
    pub settle: Arc<Mutex<VecDeque<Fault>>>,
    pub reject: Arc<Mutex<VecDeque<Fault>>>,
    /// A stream that the store never accepts.
    pub unacceptable: Arc<Mutex<Option<StreamId>>>,
}

fn failure(kind: Kind) -> Error {
    Error::new(kind, "the store fails as it was told to")
}

impl Log for Faulty {
    delegate!(store: Log);
}

impl Append for Faulty {
    delegate!(store: Append);
}

impl Sequences for Faulty {
    delegate!(
        store: survey, max_event_bytes, find, held, waiting, overdue, conflicts, skipped,
        rejected, count_rejected, forget, resolve
    );

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        let unacceptable = self.unacceptable.lock().unwrap().clone();
        if settlement.steps.iter().any(|step| Some(&step.stream) == unacceptable.as_ref()) {
            return Err(failure(Kind::Invalid));
        }
        let fault = self.settle.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Before(kind)) => Err(failure(kind)),
            Some(Fault::After) => {
                self.store.settle(settlement).await?;
                Err(failure(Kind::Unknown))
            }
            None => self.store.settle(settlement).await,
        }
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        let fault = self.reject.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Before(kind)) => Err(failure(kind)),
            Some(Fault::After) => {
                self.store.reject(rejected).await?;
                Err(failure(Kind::Unknown))
            }
            None => self.store.reject(rejected).await,
        }
    }
}
