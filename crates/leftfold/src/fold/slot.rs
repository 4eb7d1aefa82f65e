//! One document in memory, and the effect of an event on it. Pure: no I/O, no clock.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::documents::{DocumentWrite, Header, MAX_BODY_BYTES, MAX_BODY_DEPTH, Parked, Record};
use crate::event::{DocumentId, Event};
use crate::json::Json;
use crate::mark::{Lane, Mark, Verdict};
use crate::mutant;

/// The lane of a document's mark that counts how often it was refolded from its first event. A
/// writer that computed from the earlier document therefore finds another mark.
const REFOLDED: &str = "refold";

/// A document between its stored state and the next write.
#[derive(Debug)]
pub(crate) struct DocumentSlot<D> {
    /// The header the next write must find.
    stored: Option<Header>,
    /// The events that `state` has folded.
    mark: Mark,
    state: State<D>,
    /// `true` if there is something to write.
    dirty: bool,
    /// The counters since the last write.
    pub(crate) delta: Delta,
    /// The approximate memory it uses.
    pub(crate) bytes: usize,
    /// The last batch that touched it.
    pub(crate) batch: u64,
}

#[derive(Debug)]
enum State<D> {
    /// Folded up to the mark.
    Whole(Option<D>),
    /// Parked; the body stays as it is.
    Parked(Box<Parked>, Option<Json>),
    /// The stored body does not deserialize to the projection's type, as the error says. The next
    /// event will fail.
    Unreadable(Box<(Json, Error)>),
    /// An event could not be folded, or the slot can't be trusted: fold it again from the stored
    /// state.
    Lost(Box<Loss>),
}

/// The reason why a slot must be folded again.
#[derive(Debug)]
pub(crate) struct Loss {
    /// The event that failed, and the events waiting behind it; `None` if another writer changed
    /// the document.
    pub(crate) failure: Option<Parked>,
    /// The error of the fold.
    pub(crate) error: Option<Error>,
    /// The body before the failing event, if known.
    before: Option<Json>,
}

/// Counters of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) applied: u64,
    pub(crate) set_aside: u64,
    pub(crate) parked: u64,
}

impl Delta {
    pub(crate) fn add(&mut self, other: Self) {
        self.applied += other.applied;
        self.set_aside += other.set_aside;
        self.parked += other.parked;
    }
}

/// The effect of one event on one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Applied,
    Skipped,
    SetAside,
    Failed,
}

/// The place of an event in the log, and the events that were presented before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) lane: &'a Lane,
    pub(crate) number: u64,
    /// The mark up to which each lane was presented before this event.
    pub(crate) before: &'a Mark,
    pub(crate) now: Timestamp,
}

/// Estimates the memory of a document from the length of its JSON: maps, strings and vectors take
/// more than their text.
fn memory(json: usize) -> usize {
    300 + 3 * json
}

impl<D> DocumentSlot<D> {
    /// Creates a slot for a document that is not stored.
    pub(crate) fn absent() -> Self {
        Self {
            stored: None,
            mark: Mark::default(),
            state: State::Whole(None),
            dirty: false,
            delta: Delta::default(),
            bytes: memory(0),
            batch: 0,
        }
    }

    /// Creates a slot from a stored record, to fold more events into.
    pub(crate) fn loaded(record: Record) -> Self
    where
        D: DeserializeOwned,
    {
        let Record { id, header, body } = record;
        let bytes = memory(body.as_ref().map_or(0, |body| body.as_str().len()));
        let state = match (&header.parked, body) {
            (Some(parked), body) => State::Parked(parked.clone(), body),
            (None, None) => State::Whole(None),
            (None, Some(body)) => match Error::catch("reading it", || Ok(body.to()?)) {
                Ok(document) => State::Whole(Some(document)),
                Err(error) => {
                    let error = format!(
                        "the stored document {id} is not of this projection's type: {error}; refold it"
                    );
                    State::Unreadable(Box::new((body, Error::new(error))))
                }
            },
        };
        Self { mark: header.mark.clone(), stored: Some(header), state, bytes, ..Self::absent() }
    }

    /// Creates a slot from a stored record as if it were not parked, to retry the failed event.
    pub(crate) fn released(mut record: Record) -> Self
    where
        D: DeserializeOwned,
    {
        let header = record.header.clone();
        record.header.parked = None;
        Self { stored: Some(header), dirty: true, ..Self::loaded(record) }
    }

    /// Creates a slot to fold from the first event on, which replaces the stored document.
    pub(crate) fn refolded(stored: Option<Header>) -> Self {
        Self { stored, ..Self::absent() }
    }

    /// Applies an event that can be decoded.
    pub(crate) fn fold<E>(
        &mut self,
        place: Place<'_>,
        event: &Event<E>,
        careful: bool,
        fold: impl FnOnce(Option<D>) -> Result<Option<D>, Error>,
    ) -> Effect
    where
        D: Serialize,
    {
        if let Some(effect) = self.decided(place, event) {
            return effect;
        }
        let State::Whole(document) = &mut self.state else { return Effect::Skipped };
        let before = if careful { document.as_ref().and_then(|document| text(document).ok()) } else { None };
        let folded = fold(document.take()).and_then(|document| match &document {
            Some(some) if careful => body(some).map(|_| document),
            _ => Ok(document),
        });
        match folded {
            Ok(folded) => {
                *document = folded;
                self.mark.advance(place.lane, place.number);
                self.delta.applied += 1;
                mutant!(NothingUnwritten => if self.stored.is_none() && self.document().is_none() {
                    return Effect::Applied;
                });
                // Write even if there was no document and still is none. The store may have been
                // stale when it returned no document, and only the guard of a write detects that.
                self.dirty = true;
                Effect::Applied
            }
            Err(error) => self.lose(place, event, &error, before),
        }
    }

    /// Returns the document, unless it is parked or must be folded again.
    pub(crate) fn document(&self) -> Option<&D> {
        match &self.state {
            State::Whole(document) => document.as_ref(),
            _ => None,
        }
    }

    /// Returns whether an event at this place would be folded into its [document](Self::document).
    pub(crate) fn would_fold(&self, lane: &Lane, number: u64) -> bool {
        matches!(self.state, State::Whole(_)) && self.mark.judge(lane, number) != Verdict::Skip
    }

    /// Applies an event that can't be decoded.
    pub(crate) fn fail<E>(&mut self, place: Place<'_>, event: &Event<E>, error: &Error) -> Effect
    where
        D: Serialize,
    {
        if let Some(effect) = self.decided(place, event) {
            return effect;
        }
        let State::Whole(document) = &self.state else { return Effect::Skipped };
        let before = document.as_ref().and_then(|document| text(document).ok());
        self.lose(place, event, error, before)
    }

    /// Decides about an event without folding it; `None` if it must be folded.
    fn decided<E>(&mut self, place: Place<'_>, event: &Event<E>) -> Option<Effect> {
        match &self.state {
            State::Parked(..) | State::Lost(_) => Some(self.set_aside(place)),
            _ if self.mark.judge(place.lane, place.number) == Verdict::Skip => Some(Effect::Skipped),
            State::Unreadable(unreadable) => {
                let (body, error) = (**unreadable).clone();
                Some(self.lose(place, event, &error, Some(body)))
            }
            State::Whole(_) => None,
        }
    }

    fn lose<E>(&mut self, place: Place<'_>, event: &Event<E>, error: &Error, before: Option<Json>) -> Effect {
        let mut from = place.before.clone();
        from.merge(&self.mark);
        let failure = Parked {
            stream: event.stream.clone(),
            revision: event.revision,
            kind: event.kind.clone(),
            partition: event.partition,
            position: event.position,
            error: error.to_string(),
            attempts: 1,
            since: place.now,
            from,
            through: Mark::from_iter([(place.lane.clone(), place.number)]),
            waiting: 1,
            anew: false,
        };
        let loss = Loss { failure: Some(failure), error: Some(error.clone()), before };
        self.state = State::Lost(Box::new(loss));
        Effect::Failed
    }

    /// Sets aside an event for a parked document or stream.
    pub(crate) fn set_aside(&mut self, place: Place<'_>) -> Effect {
        let parked = match &mut self.state {
            State::Parked(parked, _) => &mut **parked,
            State::Lost(loss) => match &mut loss.failure {
                Some(failure) => failure,
                None => return Effect::SetAside,
            },
            State::Whole(_) | State::Unreadable(_) => return Effect::Skipped,
        };
        let known = self.mark.judge(place.lane, place.number) == Verdict::Skip
            || parked.through.judge(place.lane, place.number) == Verdict::Skip;
        if known {
            return Effect::Skipped;
        }
        parked.through.advance(place.lane, place.number);
        parked.waiting += 1;
        mutant!(WaitingIsFolded => self.mark.advance(place.lane, place.number));
        self.delta.set_aside += 1;
        self.dirty = true;
        Effect::SetAside
    }

    /// Gives up on the failing event: the document waits until an operator retries it.
    pub(crate) fn park(&mut self, attempts: u32) {
        if let State::Lost(loss) = &mut self.state
            && let Some(mut failure) = loss.failure.take()
        {
            failure.attempts = attempts;
            self.delta.parked += 1;
            self.delta.set_aside += 1;
            self.state = State::Parked(Box::new(failure), loss.before.take());
            self.dirty = true;
        }
    }

    /// Discards the folded document, because another writer changed the stored one.
    pub(crate) fn distrust(&mut self) {
        if !matches!(self.state, State::Lost(_)) {
            self.state = State::Lost(Box::new(Loss { failure: None, error: None, before: None }));
        }
    }

    /// Returns the reason why it must be folded again, if it must.
    pub(crate) fn loss(&self) -> Option<&Loss> {
        match &self.state {
            State::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    pub(crate) fn parked(&self) -> Option<&Parked> {
        match &self.state {
            State::Parked(parked, _) => Some(parked),
            _ => None,
        }
    }

    pub(crate) fn parked_mut(&mut self) -> Option<&mut Parked> {
        match &mut self.state {
            State::Parked(parked, _) => Some(parked),
            _ => None,
        }
    }

    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Makes this refolded document replace a stored one with this mark.
    pub(crate) fn replace(&mut self, stored: &Mark) {
        let refolds = stored.get(&Lane::named(REFOLDED)) + 1;
        self.mark.merge(stored);
        mutant!(RefoldUnmarked => return);
        self.mark.advance(&Lane::named(REFOLDED), refolds);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(crate) fn set_dirty(&mut self) {
        self.dirty = true;
    }

    /// Takes the pending write. From here on the slot represents the state after that write. `None`
    /// if the document can't be serialized, or is too large.
    pub(crate) fn write(&mut self, id: &DocumentId) -> Option<DocumentWrite>
    where
        D: Serialize,
    {
        let (parked, body) = match &self.state {
            State::Whole(document) => (None, document.as_ref().map(body).transpose().ok()?),
            State::Parked(parked, body) => (Some(parked.clone()), body.clone()),
            State::Unreadable(unreadable) => (None, Some(unreadable.0.clone())),
            State::Lost(_) => return None,
        };
        self.bytes = memory(id.as_str().len() + body.as_ref().map_or(0, |body| body.as_str().len()));
        self.dirty = false;
        let header = Header { mark: self.mark.clone(), parked };
        let expected = self.stored.replace(header.clone());
        Some(DocumentWrite { expected, record: Record { id: id.clone(), header, body } })
    }

    /// Takes back a write that did not happen: it will be taken again.
    pub(crate) fn unwrite(&mut self, expected: Option<Header>, delta: Delta) {
        self.stored = expected;
        self.dirty = true;
        self.delta.add(delta);
    }
}

/// Serializes a document as JSON.
fn text(document: &impl Serialize) -> Result<Json, Error> {
    Error::catch("writing the document as JSON", || Ok(Json::of(document)?))
}

/// Serializes a document as its stored body, within the limits.
pub(crate) fn body(document: &impl Serialize) -> Result<Json, Error> {
    let body = text(document)?;
    if let Err(fault) = body.ensure_strict_within(MAX_BODY_DEPTH) {
        return Err(Error::new(format!("the document can't be stored: {fault}")));
    }
    match body.as_str().len() {
        0..=MAX_BODY_BYTES => Ok(body),
        bytes => Err(Error::new(format!(
            "the document would have {bytes} bytes, more than {MAX_BODY_BYTES}; split it"
        ))),
    }
}
