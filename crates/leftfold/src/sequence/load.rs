//! Loading: the states of streams, their held events, and the stored events to compare with.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::delivery::{Delivery, Policy};
use super::ingest::ByStream;
use super::judge::Known;
use super::sequencer::Inner;
use super::store::{Found, HeldPage, Sequences, StreamState, Totals, WantedEvents};
use crate::error::Result;
use crate::event::{EventId, Partition, StreamId};
use crate::log::Limit;

/// The maximum size of one release.
const RELEASE: Limit = Limit { events: 2_000, bytes: 4 << 20 };

impl<S: Sequences + Clone> Inner<S> {
    /// Returns the states of streams, and the totals of their partition.
    pub(super) async fn states(
        &self,
        partition: Partition,
        streams: &ByStream,
    ) -> Result<(HashMap<StreamId, StreamState>, Totals)> {
        let mut states = HashMap::with_capacity(streams.len());
        let (unknown, kept) = {
            let cache = self.cache();
            for stream in streams.keys() {
                if let Some(state) = cache.state(stream) {
                    states.insert(stream.clone(), state.clone());
                }
            }
            let unknown = streams.keys().filter(|stream| !states.contains_key(*stream));
            (unknown.cloned().collect::<Vec<_>>(), cache.totals(partition))
        };
        if let (Some(kept), []) = (kept, &unknown[..]) {
            return Ok((states, kept));
        }
        let survey = self.store.survey(unknown).await?;
        self.cache().insert(partition, &survey);
        let kept = survey.totals.get(&partition).copied().unwrap_or_default();
        states.extend(survey.streams);
        Ok((states, kept))
    }

    /// Returns the held events of streams that might release some of them.
    pub(super) async fn pages(
        &self,
        streams: &ByStream,
        states: &HashMap<StreamId, StreamState>,
    ) -> Result<BTreeMap<StreamId, HeldPage>> {
        let may_release = |(stream, deliveries): &(&StreamId, &Vec<(usize, Delivery)>)| {
            let waiting = states.get(*stream).and_then(|state| state.waiting.as_ref());
            let Some(waiting) = waiting.filter(|waiting| waiting.events > 0) else { return false };
            let lowest = deliveries.iter().filter_map(|(_, delivery)| delivery.revision).min();
            lowest.is_none_or(|lowest| lowest <= waiting.first)
        };
        let waiting: Vec<_> = streams.iter().filter(may_release).map(|(stream, _)| stream.clone()).collect();
        if waiting.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.store.held(waiting, RELEASE).await
    }

    /// Finds stored events that match deliveries or held events.
    pub(super) async fn find(
        &self,
        policy: Policy,
        streams: &ByStream,
        states: &HashMap<StreamId, StreamState>,
        pages: &BTreeMap<StreamId, HeldPage>,
        taken: &BTreeSet<EventId>,
    ) -> Result<HashMap<StreamId, Known>> {
        let mut wanted = WantedEvents { places: Vec::new(), ids: taken.iter().cloned().collect() };
        for (stream, deliveries) in streams {
            let Some(state) = states.get(stream) else { continue };
            let is_waiting = state.waiting.as_ref().is_some_and(|waiting| waiting.events > 0);
            let coming = deliveries.iter().filter_map(|(_, delivery)| delivery.revision);
            let coming = coming.filter(|revision| is_waiting || *revision <= state.after());
            let held = pages.get(stream).into_iter().flat_map(|page| &page.held).map(|held| held.revision);
            let held = held.filter(|revision| *revision <= state.after());
            if policy != Policy::Arrival {
                wanted.places.extend(coming.chain(held).map(|revision| (stream.clone(), revision)));
            }
        }
        let mut known: HashMap<StreamId, Known> = HashMap::new();
        if wanted.is_empty() {
            return Ok(known);
        }
        let Found { logged, held } = self.store.find(wanted).await?;
        for event in logged.iter().filter(|event| taken.contains(&event.id)) {
            for (stream, deliveries) in streams {
                let held =
                    pages.get(stream).into_iter().flat_map(|page| &page.held).map(|held| &held.entry.id);
                if deliveries
                    .iter()
                    .map(|(_, delivery)| &delivery.entry.id)
                    .chain(held)
                    .any(|id| *id == event.id)
                {
                    known.entry(stream.clone()).or_default().taken.insert(event.id.clone(), event.clone());
                }
            }
        }
        for event in logged {
            known.entry(event.stream.clone()).or_default().logged.insert(event.revision, event);
        }
        for held in held {
            known.entry(held.stream.clone()).or_default().held.insert(held.revision, held);
        }
        Ok(known)
    }
}
