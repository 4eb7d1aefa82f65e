//! The simulated store's operations for the sequencer.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leftfold::log::Limit;
use leftfold::sequence::{
    Conflict, DueGaps, Found, HeldPage, Rejected, Resolution, Settled, Settlement, Skipped, StreamState,
    Survey, WantedEvents,
};
use leftfold::{Error, Kind, Result, Sequences, StreamId};
use tokio::time::sleep;

use super::calls::LATE;
use super::handle::SimStore;
use super::sabotage;
use crate::faults::Fault;

impl SimStore {
    /// Settles in the inner store and has the feed check the result.
    async fn settle_now(&self, settlement: &Arc<Settlement>) -> Result<Settled> {
        let sent = sabotage::settlement(self, settlement).await?;
        let settled = self.inner().settle(sent).await?;
        self.shared.trace.note(|| format!("{}: settles{}: {settled:?}", self.name, in_short(settlement)));
        self.shared.feed.check_settlement(self).await?;
        Ok(settled)
    }

    /// Returns the current or an earlier state of streams.
    async fn survey_past(&self, streams: Vec<StreamId>) -> Result<Survey> {
        let mut survey = self.inner().survey(streams).await?;
        for (stream, state) in &mut survey.streams {
            let before = {
                let mut past = self.shared.past_streams.lock().unwrap_or_else(PoisonError::into_inner);
                past.insert(stream.clone(), state.clone())
            };
            if let Some(before) = before
                && self.strikes(Fault::Stale)
            {
                *state = before;
            }
        }
        Ok(survey)
    }
}

impl Sequences for SimStore {
    fn max_event_bytes(&self) -> usize {
        self.inner().max_event_bytes()
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        self.answer("survey", self.survey_past(streams)).await
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        self.answer("find", self.inner().find(wanted)).await
    }

    async fn held(&self, streams: Vec<StreamId>, limit: Limit) -> Result<BTreeMap<StreamId, HeldPage>> {
        // Pages are small during faults, so that there are many.
        let most = if self.shared.faults.is_calm() { usize::MAX } else { 3 };
        let limit = Limit { events: limit.events.min(most), ..limit };
        self.answer("read held", self.inner().held(streams, limit)).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        self.answer("settle", async {
            if self.strikes(Fault::LostUnknown) {
                return Ok(sabotage::unknown_settlement());
            }
            if self.strikes(Fault::Storm) {
                return Ok(Settled::Moved(settlement.steps.iter().map(|step| step.stream.clone()).collect()));
            }
            if self.strikes(Fault::Delayed) {
                let (store, late) = (self.clone(), self.shared.faults.dice().time(LATE));
                tokio::spawn(async move {
                    sleep(late).await;
                    let _ = store.settle_now(&settlement).await;
                });
                return Ok(sabotage::unknown_settlement());
            }
            let settled = self.settle_now(&settlement).await?;
            self.takes(Duration::from_millis(1)).await;
            if self.strikes(Fault::AppliedUnknown) {
                return Ok(Settled::Unknown(Error::new(Kind::Unknown, "settle: lost the connection")));
            }
            Ok(settled)
        })
        .await
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        self.answer("list waiting", self.inner().waiting(after, limit)).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        self.answer("list overdue", self.inner().overdue(due, limit)).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        self.answer("list conflicts", self.inner().conflicts(after, limit)).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        self.answer("list skipped", self.inner().skipped(stream)).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        self.answer("reject", self.inner().reject(rejected)).await
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        self.answer("list rejected", self.inner().rejected(after, limit)).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        self.answer("count rejected", self.inner().count_rejected()).await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        self.answer("forget", self.inner().forget(rejected)).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        self.answer("resolve", self.inner().resolve(conflict, decided)).await
    }
}

/// Formats a settlement in one line.
fn in_short(settlement: &Settlement) -> String {
    let steps = settlement.steps.iter().map(|step| {
        let append: Vec<_> = step.append.iter().map(|(at, _)| at.0).collect();
        let hold: Vec<_> = step.hold.iter().map(|held| held.revision.0).collect();
        let unhold: Vec<_> = step.unhold.iter().map(|at| at.0).collect();
        format!(" {} after {}: +{append:?} held {hold:?} unheld {unhold:?}", step.stream, step.seen.last)
    });
    let conflicts = settlement.conflicts.iter();
    steps
        .chain(conflicts.map(|conflict| format!(" conflict {}@{}", conflict.stream, conflict.revision)))
        .collect()
}
