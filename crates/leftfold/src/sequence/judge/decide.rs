//! The entry: from deliveries and a known state to decisions and a change.

use std::collections::HashMap;

use jiff::Timestamp;

use super::capacity::Capacity;
use super::stream::StreamJudge;
use crate::event::{Event, EventId, Revision, StreamId};
use crate::sequence::delivery::{Delivery, IngestAnswer, Policy};
use crate::sequence::store::{Conflict, Held, HeldPage, StreamChange, StreamState};

/// Decides about deliveries of one stream, each with a number of the caller's. Without deliveries
/// it releases the held events that no longer wait.
///
/// The log ends up the same for any order and any repetition of deliveries.
pub fn judge(
    stream: &StreamId,
    policy: Policy,
    known: Known,
    deliveries: Vec<(usize, Delivery)>,
    capacity: &mut Capacity,
    now: Timestamp,
) -> Judged {
    let Known { state, logged, held, page, taken, version } = known;
    let is_whole = page.as_ref().is_none_or(|page| !page.more);
    let has_page = page.is_some();
    let page = page.map_or_else(Vec::new, |page| page.held);
    let mut judge = StreamJudge {
        stream,
        policy,
        after: state.after(),
        // The last event of a cut page only tells where to continue, and stays held.
        end: if is_whole { None } else { page.last().map(|held| held.revision) },
        events: state.waiting.as_ref().map_or(0, |waiting| waiting.events),
        bytes: state.waiting.as_ref().map_or(0, |waiting| waiting.bytes),
        page: page.into(),
        state: &state,
        logged: &logged,
        held: &held,
        taken: &taken,
        capacity,
        now,
        append: Vec::new(),
        ids: HashMap::new(),
        hold: Vec::new(),
        unhold: Vec::new(),
        judged: Judged::default(),
    };
    match policy {
        Policy::Arrival => judge.arrive(deliveries),
        Policy::Contiguous | Policy::Latest => judge.place_all(deliveries),
    }
    judge.finish(has_page, version)
}

/// The known state of a stream.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The state of the stream.
    pub state: StreamState,
    /// The logged events at revisions that are delivered or held again.
    pub logged: HashMap<Revision, Event>,
    /// The held events at revisions that are delivered.
    pub held: HashMap<Revision, Held>,
    /// The lowest held events, if some of them might be released.
    pub page: Option<HeldPage>,
    /// The logged events, of any stream, whose ids are delivered or held.
    pub taken: HashMap<EventId, Event>,
    /// The version of the next change: a random number.
    pub version: u64,
}

/// The decision about a delivery, valid once the step is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Append it at this revision.
    Append(Revision),
    /// It duplicates an event that is appended or released with it, at this revision.
    Repeat(Revision),
    /// Answer it, without appending.
    Answer(IngestAnswer),
}

/// The decisions about the deliveries of a stream.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The decision about each delivery, by the number of the delivery.
    pub judgements: Vec<(usize, Judgement)>,
    /// The change of the stream, if there is one.
    pub step: Option<StreamChange>,
    /// The new conflicts.
    pub conflicts: Vec<Conflict>,
    /// The number of held events that were released.
    pub released: u64,
    /// `true` if more held events may be released once this is settled.
    pub more: bool,
}
