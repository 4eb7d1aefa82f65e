//! The invariants of a feed.

use leftfold::log::Limit;
use leftfold::sequence::{Held, WantedEvents};
use leftfold::{Delivery, Log as _, Result, Revision, Sequences as _, StreamId};

use super::messages::SimulatedFeed;
use crate::store::SimStore;

const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };

impl SimulatedFeed {
    /// Checks the result of a settlement.
    pub(crate) async fn check_settlement(&self, store: &SimStore) -> Result<()> {
        let (inner, checker) = (store.inner(), &store.shared().checker);
        let limits = self.limits();
        let (mut events, mut bytes) = (0, 0);
        for (stream, state) in inner.waiting(None, usize::MAX).await? {
            let page = inner.held(vec![stream.clone()], ALL).await?.remove(&stream).unwrap_or_default();
            let Some(waiting) = state.waiting else { continue };
            let first = page.held.first().map(|held| (held.revision, held.previous));
            if page.held.len() as u64 != waiting.events || first != Some((waiting.first, waiting.until)) {
                checker
                    .violated(format!("I7: {stream} holds {:?}, and its state says {waiting:?}", page.held));
            }
            if waiting.events > limits.stream_events {
                checker
                    .violated(format!("I7: {stream} holds {} events, more than its limit", waiting.events));
            }
            events += page.held.len() as u64;
            bytes += page.held.iter().map(Held::bytes).sum::<u64>();
        }
        let survey = inner.survey(Vec::new()).await?;
        let totals = survey.totals.values().fold((0, 0), |sum, one| (sum.0 + one.events, sum.1 + one.bytes));
        if totals != (events, bytes) {
            checker.violated(format!(
                "I7: {events} events with {bytes} bytes are held, and the totals say {totals:?}"
            ));
        }
        let most = limits.events.div_ceil(inner.partitions().into()) * u64::from(inner.partitions());
        if events > most {
            checker.violated(format!("I7: {events} events are held, more than the limit"));
        }
        for (stream, events) in self.published() {
            self.check_prefix(store, &stream, &events).await?;
        }
        Ok(())
    }

    /// Checks that the log of a stream is a prefix of the published events, except for twins that
    /// came first. Returns its length.
    async fn check_prefix(
        &self,
        store: &SimStore,
        stream: &StreamId,
        published: &[Delivery],
    ) -> Result<usize> {
        let logged = store.inner().read_stream(stream, Revision(0), ALL).await?;
        let expected: Vec<_> =
            published.iter().filter_map(|event| event.revision).take(logged.len()).collect();
        let actual: Vec<_> = logged.iter().map(|event| event.revision).collect();
        if expected != actual {
            store.shared().checker.violated(format!("I3: {stream} is {actual:?} and should be {expected:?}"));
        }
        for (event, published) in logged.iter().zip(published) {
            let is_twin = event.id.as_str().starts_with("twin");
            if event.data != published.entry.data && !is_twin {
                store
                    .shared()
                    .checker
                    .violated(format!("I3: {} has other content than the published event", event.bookmark()));
            }
        }
        Ok(logged.len())
    }

    /// Returns whether an acknowledged event is in the log, held, or stored as a conflict.
    pub(super) async fn is_kept(store: &SimStore, delivery: &Delivery) -> Result<bool> {
        let inner = store.inner();
        let Some(revision) = delivery.revision else { return Ok(true) };
        let places = vec![(delivery.stream.clone(), revision)];
        let found = inner.find(WantedEvents { places, ids: Vec::new() }).await?;
        let data = &delivery.entry.data;
        let conflicts = inner.conflicts(None, usize::MAX).await?;
        Ok(found.logged.iter().any(|event| event.data == *data)
            || found.held.iter().any(|held| held.entry.data == *data)
            || conflicts.iter().any(|conflict| {
                conflict.stream == delivery.stream
                    && conflict.revision == revision
                    && conflict.entry.data == *data
            }))
    }

    /// Checks that all events have arrived in the end.
    pub(crate) async fn check_end(&self, store: &SimStore) -> Result<()> {
        let checker = &store.shared().checker;
        for (stream, state) in store.inner().waiting(None, usize::MAX).await? {
            checker.violated(format!("I10: {stream} still waits for missing events: {state:?}"));
        }
        for (stream, events) in self.published() {
            let logged = self.check_prefix(store, &stream, &events).await?;
            let highest = self.highest_sent(&stream);
            let wanted = events.iter().filter(|event| event.revision <= Some(highest)).count();
            if logged < wanted {
                checker.violated(format!(
                    "I10: {logged} events of {stream} are in the log, and {wanted} should be"
                ));
            }
        }
        Ok(())
    }
}
