//! One document in memory, and what an event does to it. Pure: no I/O, no clock.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::documents::{Header, MAX_BODY_BYTES, MAX_BODY_DEPTH, Parked, Record, Write};
use crate::event::{DocumentId, Event};
use crate::json::Json;
use crate::mark::{Lane, Mark, Verdict};
use crate::planted::{Bug, planted};

/// A document on its way from what is stored to what will be.
#[derive(Debug)]
pub(crate) struct Slot<D> {
    /// The header the next write must find.
    stored: Option<Header>,
    /// What `state` has folded.
    mark: Mark,
    state: State<D>,
    /// Whether there is something to write.
    dirty: bool,
    /// What was counted since the last write was taken.
    pub(crate) delta: Delta,
    /// About how much memory it takes.
    pub(crate) bytes: usize,
    /// The last batch that touched it.
    pub(crate) batch: u64,
}

#[derive(Debug)]
enum State<D> {
    /// Folded up to the mark.
    Whole(Option<D>),
    /// Set aside; the body stays as it is.
    Parked(Box<Parked>, Option<Json>),
    /// The stored body is not of the projection's type, as the error says; the next event will fail.
    Unreadable(Box<(Json, Error)>),
    /// An event could not be folded, or the slot is not to be trusted: fold it anew from what is stored.
    Lost(Box<Loss>),
}

/// Why a slot has to be folded anew.
#[derive(Debug)]
pub(crate) struct Loss {
    /// The event that failed, and what waits behind it; `None` if somebody else changed the document.
    pub(crate) failure: Option<Parked>,
    /// What the fold said.
    pub(crate) error: Option<Error>,
    /// The body before the failing event, where it is known.
    before: Option<Json>,
}

/// What was counted.
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

/// What became of one event and one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Applied,
    Skipped,
    SetAside,
    Failed,
}

/// Where in the log an event stands, and what was presented before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) lane: &'a Lane,
    pub(crate) number: u64,
    /// Up to where each lane was presented before this event.
    pub(crate) before: &'a Mark,
    pub(crate) now: Timestamp,
}

/// About how much memory a document takes, by the length of its JSON: maps, strings and vectors take more than their
/// text.
fn memory(json: usize) -> usize {
    300 + 3 * json
}

impl<D> Slot<D> {
    /// A document of which nothing is stored.
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

    /// What is stored, to be folded on.
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

    /// What is stored, with its parking forgotten, to try again what failed.
    pub(crate) fn released(mut record: Record) -> Self
    where
        D: DeserializeOwned,
    {
        let header = record.header.clone();
        record.header.parked = None;
        Self { stored: Some(header), dirty: true, ..Self::loaded(record) }
    }

    /// A document to be folded from its first event on, in place of what is stored.
    pub(crate) fn refolded(stored: Option<Header>) -> Self {
        Self { stored, ..Self::absent() }
    }

    /// What an event that can be decoded does.
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
        let was_nothing = document.is_none();
        let folded = fold(document.take()).and_then(|document| match &document {
            Some(some) if careful => body(some).map(|_| document),
            _ => Ok(document),
        });
        match folded {
            Ok(folded) => {
                let nothing = was_nothing && folded.is_none();
                *document = folded;
                // Also where nothing was and nothing is: that there was nothing may have been read from a store that
                // is behind, and only the guard of a write can tell.
                self.dirty |= !nothing || !planted(Bug::NothingUnwritten);
                self.mark.advance(place.lane, place.number);
                self.delta.applied += 1;
                Effect::Applied
            }
            Err(error) => self.lose(place, event, &error, before),
        }
    }

    /// The document, unless it is parked or has to be folded anew.
    pub(crate) fn document(&self) -> Option<&D> {
        match &self.state {
            State::Whole(document) => document.as_ref(),
            _ => None,
        }
    }

    /// Whether an event at this place would be folded into its [document](Self::document).
    pub(crate) fn would_fold(&self, lane: &Lane, number: u64) -> bool {
        matches!(self.state, State::Whole(_)) && self.mark.judge(lane, number) != Verdict::Skip
    }

    /// What an event that can't be decoded does.
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

    /// What becomes of an event without folding it; `None` if it is to be folded.
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

    /// An event for a document or stream that is set aside waits too.
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
        if planted(Bug::WaitingIsFolded) {
            self.mark.advance(place.lane, place.number);
        }
        self.delta.set_aside += 1;
        self.dirty = true;
        Effect::SetAside
    }

    /// Gives up on the failing event: the document waits until somebody retries it.
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

    /// Forgets the folded document: somebody else changed the stored one.
    pub(crate) fn distrust(&mut self) {
        if !matches!(self.state, State::Lost(_)) {
            self.state = State::Lost(Box::new(Loss { failure: None, error: None, before: None }));
        }
    }

    /// Why it has to be folded anew, if it has to.
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

    pub(crate) fn mark_mut(&mut self) -> &mut Mark {
        &mut self.mark
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(crate) fn set_dirty(&mut self) {
        self.dirty = true;
    }

    /// Takes what is to be written; from here on the slot stands for what that write will leave. `None` if
    /// the document can't be serialized, or is too large.
    pub(crate) fn write(&mut self, id: &DocumentId) -> Option<Write>
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
        Some(Write { expected, record: Record { id: id.clone(), header, body } })
    }

    /// Takes a write back that did not happen: it will be taken again.
    pub(crate) fn unwrite(&mut self, expected: Option<Header>, delta: Delta) {
        self.stored = expected;
        self.dirty = true;
        self.delta.add(delta);
    }
}

/// A document as JSON.
fn text(document: &impl Serialize) -> Result<Json, Error> {
    Error::catch("writing the document as JSON", || Ok(Json::of(document)?))
}

/// What is stored of a document.
pub(super) fn body(document: &impl Serialize) -> Result<Json, Error> {
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
