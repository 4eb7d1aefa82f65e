//! The pure core of the fold: from (documents, events) to (writes, failures, waiting events).

use std::collections::HashSet;
use std::time::Duration;

use foldhash::fast::RandomState;
use jiff::Timestamp;
use tokio::time::Instant;

use super::ahead::Ahead;
use super::cache::DocumentCache;
use super::folder::Folder;
use super::routed::{Routed, Step};
use super::slot::{DocumentSlot, Effect, Place};
use super::{DocumentIds, Error, Folded, Projection};
use crate::documents::{DocumentWrite, Tally};
use crate::event::{DocumentId, Event};
use crate::mark::{Lane, Mark};
use crate::mutant;

/// The portion of a page to fold in one call: at least one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    /// The maximum number of events.
    pub(crate) events: usize,
    /// The approximate maximum time.
    pub(crate) time: Duration,
}

#[cfg(feature = "testing")]
impl Portion {
    /// The whole page, however long it takes.
    pub(crate) const ALL: Self = Self { events: usize::MAX, time: Duration::MAX };
}

/// The state of a fold.
pub(crate) struct FoldState<D> {
    pub(crate) documents: DocumentCache<D>,
    /// Parked streams, if events are not routed by stream. A stream that is not here is not parked.
    pub(crate) streams: DocumentCache<()>,
    /// The mark up to which each lane was presented.
    pub(crate) progress: Mark,
    /// `true` to keep the state needed to park a document at once: for repairs, which are rare.
    pub(crate) careful: bool,
    /// `true` if some document must be folded again before the batch can end.
    pub(crate) suspect: bool,
    /// The counters that belong to no single document.
    pub(crate) tally: Tally,
    /// The error of the first event that could not be routed although its stream is not parked for
    /// it.
    pub(crate) stray: Option<String>,
    /// Set when documents are folded from their first event. Streams under retry then count as not
    /// parked, and this mark is the last of their waiting events.
    pub(crate) taken_up: Option<Mark>,
}

impl<D> FoldState<D> {
    pub(crate) fn new(progress: Mark, cache_bytes: usize) -> Self {
        Self {
            documents: DocumentCache::new(cache_bytes),
            streams: DocumentCache::new(cache_bytes / 8),
            progress,
            careful: false,
            suspect: false,
            tally: Tally::default(),
            stray: None,
            taken_up: None,
        }
    }

    /// Creates a state that works only on the documents put on it, and keeps the state needed to
    /// park.
    pub(crate) fn careful(progress: Mark) -> Self {
        Self { careful: true, ..Self::new(progress, usize::MAX) }
    }

    /// Returns the writes of the streams that events were set aside for.
    pub(crate) fn set_aside(&mut self) -> Vec<DocumentWrite> {
        self.streams.cut().unwrap_or_default().writes
    }
}

impl<P: Projection> Folder<P> {
    /// Returns the documents that the rest of a page needs and that are not in memory, in order of
    /// need.
    pub(crate) fn missing(&self, state: &FoldState<P::Document>, page: &Routed<P::Event>) -> Vec<DocumentId> {
        let mut seen = HashSet::with_hasher(RandomState::default());
        let mut missing = Vec::new();
        let mut need = |id: &DocumentId| {
            if !state.documents.contains(id) && seen.insert(id.clone()) {
                missing.push(id.clone());
            }
        };
        for step in &page.steps[page.taken..] {
            match step {
                Step::Fold(_, ids, _) => ids.as_slice().iter().for_each(&mut need),
                Step::Broken(event, _) if self.routes_by_stream() => need(&DocumentId::from(&event.stream)),
                Step::Broken(..) => {}
            }
        }
        missing
    }

    /// Returns the streams that the rest of a page needs and that are not in memory. If some
    /// streams are parked, that is every stream; else only those with an event that can't be
    /// decoded.
    pub(crate) fn missing_streams(
        &self,
        state: &FoldState<P::Document>,
        page: &Routed<P::Event>,
        some_parked: bool,
    ) -> Vec<DocumentId> {
        if self.routes_by_stream() {
            return Vec::new();
        }
        let mut seen = HashSet::with_hasher(RandomState::default());
        let streams = page.steps[page.taken..].iter().filter_map(|step| match step {
            Step::Fold(event, ..) if some_parked => Some(&event.stream),
            Step::Broken(event, _) => Some(&event.stream),
            Step::Fold(..) => None,
        });
        streams
            .map(DocumentId::from)
            .filter(|id| !state.streams.contains(id) && seen.insert(id.clone()))
            .collect()
    }

    /// Folds a portion of a page into the documents in memory, and returns whether the page is
    /// done. Documents that are not in memory are left alone.
    pub(crate) fn apply(
        &self,
        state: &mut FoldState<P::Document>,
        page: &mut Routed<P::Event>,
        portion: Portion,
        now: Timestamp,
    ) -> bool {
        let (lane, begun) = (Lane::from(page.partition), Instant::now());
        state.tally.events += std::mem::take(&mut page.events);
        state.tally.ignored += std::mem::take(&mut page.ignored);
        let first = page.taken;
        let until = first.saturating_add(portion.events).min(page.steps.len());
        let (mut ahead, mut is_computed) = (Ahead::none(), first);
        while page.taken < until {
            let (number, at) = (page.taken, Instant::now());
            let left = portion.time.saturating_sub(at - begun);
            // Use computed folds even when the time is over: otherwise they would be computed
            // again.
            if number > first && number >= is_computed && left.is_zero() {
                break;
            }
            let step = &page.steps[number];
            let position = step.position();
            self.folding.begin(page.partition, position, at);
            if number >= is_computed {
                (ahead, is_computed) = self.compute_ahead(state, &lane, &page.steps[..until], number, left);
            }
            match step {
                Step::Fold(event, ids, bytes) => {
                    let folded = |nth| ahead.take(&page.steps, number, nth);
                    self.fold_into(state, (&lane, position.0, now), event, (ids, *bytes), folded);
                }
                Step::Broken(event, error) => self.set_aside(state, (&lane, position.0, now), event, error),
            }
            state.progress.advance(&lane, position.0);
            page.taken += 1;
        }
        self.folding.end();
        let done = page.taken == page.steps.len();
        if done {
            state.progress.advance(&lane, page.through.0);
        }
        done
    }

    /// Folds an event into its documents. `computed` returns the results that were computed ahead.
    fn fold_into(
        &self,
        state: &mut FoldState<P::Document>,
        (lane, number, now): (&Lane, u64, Timestamp),
        event: &Event<P::Event>,
        (ids, bytes): (&DocumentIds, usize),
        mut computed: impl FnMut(usize) -> Option<Folded<P::Document>>,
    ) {
        let place = Place { lane, number, before: &state.progress, now };
        if !self.routes_by_stream() && waits(&mut state.streams, place, event) {
            return;
        }
        for (id, nth) in ids.as_slice().iter().zip(0..) {
            let Some(slot) = state.documents.touch(id, bytes) else { continue };
            let fold = |document| computed(nth).unwrap_or_else(|| self.fold(document, event));
            match slot.fold(place, event, state.careful, fold) {
                Effect::Skipped => state.tally.skipped += 1,
                Effect::Failed => state.suspect = true,
                Effect::Applied | Effect::SetAside => {}
            }
        }
    }

    /// Stops the document of an event that can't be decoded or routed. If the route is not the
    /// stream, it stops the stream.
    fn set_aside(
        &self,
        state: &mut FoldState<P::Document>,
        (lane, number, now): (&Lane, u64, Timestamp),
        event: &Event,
        error: &Error,
    ) {
        let place = Place { lane, number, before: &state.progress, now };
        let id = DocumentId::from(&event.stream);
        if self.routes_by_stream() {
            let failed = state.documents.touch(&id, 0).map(|slot| slot.fail(place, event, error));
            state.suspect |= failed == Some(Effect::Failed);
        } else if !waits(&mut state.streams, place, event) {
            if state.stray.is_none() {
                let said = format!("{error} (revision {} of {})", event.revision, event.stream);
                state.stray = Some(said);
            }
            if !state.streams.contains(&id) {
                state.streams.insert(id.clone(), DocumentSlot::absent());
            }
            if let Some(slot) = state.streams.touch(&id, 0) {
                slot.fail(place, event, error);
                slot.park(1);
            }
        }
    }
}

/// Returns whether the event's stream is parked at this place. If so, the event waits with it.
fn waits<E>(streams: &mut DocumentCache<()>, place: Place<'_>, event: &Event<E>) -> bool {
    if streams.is_empty() {
        return false;
    }
    mutant!(ParkAndGoOn => return false);
    let id = DocumentId::from(&event.stream);
    let parked = streams.get(&id).and_then(DocumentSlot::parked);
    if parked.is_none_or(|parked| event.position < parked.position) {
        return false;
    }
    if let Some(slot) = streams.touch(&id, 0) {
        slot.set_aside(place);
    }
    true
}
