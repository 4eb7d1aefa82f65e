use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::event::{Event, EventId, EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::log::{Entry, Limit};
use crate::sequence::store::{
    Conflict, ConflictReason, Held, HeldPage, StreamChange, StreamState, Totals, Waiting,
};
use crate::sequence::{Delivery, HoldingLimits, IngestAnswer, Policy, Refusal};

fn stream() -> StreamId {
    StreamId::new("s").unwrap()
}

fn entry(id: &str, text: &str) -> Arc<Entry> {
    Arc::new(Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("noted").unwrap(),
        time: Timestamp::UNIX_EPOCH,
        data: Json::of(&text).unwrap(),
        metadata: None,
    })
}

fn delivery(revision: u64, text: &str) -> Delivery {
    let entry = entry(&format!("{revision}-{text}"), text);
    Delivery { stream: stream(), revision: Some(Revision(revision)), previous: None, entry }
}

fn linked(revision: u64, previous: u64, text: &str) -> Delivery {
    Delivery { previous: Some(Revision(previous)), ..delivery(revision, text) }
}

/// A minimal store of one stream.
struct Model {
    policy: Policy,
    limits: HoldingLimits,
    log: Vec<Event>,
    held: BTreeMap<Revision, Held>,
    waiting: Option<Waiting>,
    conflicts: Vec<Conflict>,
    /// The page size for held events.
    page: usize,
    versions: u64,
}

impl Model {
    fn new(policy: Policy) -> Self {
        let (limits, log, held, conflicts) =
            (HoldingLimits::default(), Vec::new(), BTreeMap::new(), Vec::new());
        Self { policy, limits, log, held, waiting: None, conflicts, page: 100, versions: 0 }
    }

    fn known(&mut self, deliveries: &[Delivery]) -> Known {
        self.versions += 1;
        let last = self.log.last().map_or(Revision(0), |event| event.revision);
        let state = StreamState { last, waiting: self.waiting.clone() };
        let lowest = deliveries.iter().filter_map(|delivery| delivery.revision).min();
        let held =
            |waiting: &Waiting| waiting.events > 0 && lowest.is_none_or(|lowest| lowest <= waiting.first);
        let mut limit = Limit { events: self.page, bytes: usize::MAX };
        let page = state.waiting.as_ref().filter(|waiting| held(waiting));
        let page = page.map(|_| HeldPage::cut(self.held.values().cloned(), &mut limit));
        Known {
            state,
            logged: self.log.iter().map(|event| (event.revision, event.clone())).collect(),
            held: self.held.clone().into_iter().collect(),
            page,
            taken: self.log.iter().map(|event| (event.id.clone(), event.clone())).collect(),
            version: self.versions,
        }
    }

    fn take(&mut self, deliveries: Vec<Delivery>) -> Vec<Judgement> {
        let known = self.known(&deliveries);
        let count = deliveries.len();
        let kept = Totals {
            events: self.held.len() as u64,
            bytes: self.held.values().map(Held::bytes).sum(),
            conflicts: self.conflicts.len() as u64,
        };
        let mut capacity = Capacity::new(self.limits, 1, kept);
        let numbered = deliveries.into_iter().enumerate().collect();
        let judged = judge(&stream(), self.policy, known, numbered, &mut capacity, Timestamp::UNIX_EPOCH);
        if let Some(step) = judged.step {
            self.apply(step);
        }
        self.conflicts.extend(judged.conflicts);
        self.check();
        let mut judgements = judged.judgements;
        judgements.sort_by_key(|(number, _)| *number);
        assert_eq!(judgements.len(), count, "each is judged once");
        if judged.more {
            self.take(Vec::new());
        }
        judgements.into_iter().map(|(_, judgement)| judgement).collect()
    }

    fn apply(&mut self, step: StreamChange) {
        for revision in step.unhold {
            assert!(self.held.remove(&revision).is_some(), "{revision} was held");
        }
        for held in step.hold {
            assert!(self.held.insert(held.revision, held).is_none(), "what is held is not overwritten");
        }
        for (revision, entry) in step.append {
            let last = self.log.last().map_or(Revision(0), |event| event.revision);
            assert!(revision > last, "{revision} after {last}");
            let Entry { id, kind, time, data, metadata } = (*entry).clone();
            assert!(self.log.iter().all(|event| event.id != id), "an id is there once");
            let position = Position(self.log.len() as u64 + 1);
            let (partition, stream) = (Partition(0), stream());
            self.log.push(Event { id, stream, revision, kind, time, data, metadata, partition, position });
        }
        self.waiting = step.waiting;
    }

    /// Checks that the gap describes the held events.
    fn check(&self) {
        let events = self.waiting.as_ref().map_or(0, |waiting| waiting.events);
        assert_eq!(events, self.held.len() as u64);
        if let Some(waiting) = self.waiting.as_ref().filter(|waiting| waiting.events > 0) {
            let first = self.held.values().next().unwrap();
            assert_eq!((waiting.first, waiting.until), (first.revision, first.previous));
            assert_eq!(waiting.bytes, self.held.values().map(Held::bytes).sum::<u64>());
            assert!(waiting.highest >= *self.held.keys().last().unwrap());
        }
    }

    fn revisions(&self) -> Vec<u64> {
        self.log.iter().map(|event| event.revision.0).collect()
    }

    fn skip(&mut self, through: u64) {
        let waiting = self.waiting.as_mut().unwrap();
        waiting.skipped = Revision(through);
        self.take(Vec::new());
    }
}

fn held_for(waiting_for: u64) -> Judgement {
    Judgement::Answer(IngestAnswer::Held { waiting_for: Revision(waiting_for) })
}

fn conflict(why: ConflictReason) -> Judgement {
    Judgement::Answer(IngestAnswer::Conflict(why))
}

#[test]
fn what_comes_early_waits_and_is_released_in_order() {
    let mut model = Model::new(Policy::Contiguous);
    assert_eq!(model.take(vec![delivery(3, "c")]), [held_for(1)]);
    assert_eq!(model.take(vec![delivery(2, "b")]), [held_for(1)]);
    assert_eq!(model.take(vec![delivery(3, "c")]), [held_for(1)], "the same again is held already");
    assert_eq!(model.revisions(), [0; 0]);
    assert_eq!(model.take(vec![delivery(1, "a")]), [Judgement::Append(Revision(1))]);
    assert_eq!(model.revisions(), [1, 2, 3]);
    assert!(model.held.is_empty() && model.waiting.is_none());
    let again = model.take(vec![delivery(2, "b")]);
    assert_eq!(again, [Judgement::Answer(IngestAnswer::Duplicate(model.log[1].bookmark()))]);
}

#[test]
fn a_batch_is_put_in_order_before_anything_is_held() {
    let mut model = Model::new(Policy::Contiguous);
    let judged = model.take(vec![delivery(2, "b"), delivery(1, "a"), delivery(2, "b"), delivery(4, "d")]);
    let (append, repeat) = (|number| Judgement::Append(Revision(number)), Judgement::Repeat(Revision(2)));
    assert_eq!(judged, [append(2), append(1), repeat, held_for(3)]);
    assert_eq!(model.revisions(), [1, 2]);
}

#[test]
fn what_contradicts_is_kept_apart() {
    let mut model = Model::new(Policy::Contiguous);
    model.take(vec![delivery(1, "a"), delivery(3, "c")]);
    assert_eq!(model.take(vec![delivery(1, "x")]), [conflict(ConflictReason::Logged)]);
    assert_eq!(model.take(vec![delivery(3, "x")]), [conflict(ConflictReason::Held)]);
    let same_id = Delivery { entry: entry("1-a", "new"), ..delivery(2, "b") };
    let why = ConflictReason::IdTaken { stream: stream(), revision: Revision(1) };
    assert_eq!(model.take(vec![same_id]), [conflict(why)]);
    assert_eq!(model.conflicts.len(), 3);
    assert_eq!(
        model.take(vec![delivery(2, "b"), delivery(2, "x")]).pop(),
        Some(conflict(ConflictReason::Logged))
    );
    assert_eq!(model.revisions(), [1, 2, 3], "nothing of it has stopped the stream");
}

#[test]
fn links_leave_out_what_a_subscription_does_not_show() {
    let mut model = Model::new(Policy::Contiguous);
    assert_eq!(model.take(vec![linked(9, 5, "c")]), [held_for(1)]);
    assert_eq!(model.take(vec![linked(2, 0, "a")]), [Judgement::Append(Revision(2))]);
    assert_eq!(model.take(vec![linked(5, 2, "b")]), [Judgement::Append(Revision(5))]);
    assert_eq!(model.revisions(), [2, 5, 9]);
    assert_eq!(
        model.take(vec![linked(7, 6, "x")]),
        [conflict(ConflictReason::Link)],
        "there is nothing between 5 and 9"
    );
    assert_eq!(model.take(vec![linked(12, 5, "x")]), [conflict(ConflictReason::Link)], "it leaves out 9");
}

#[test]
fn of_the_latest_only_what_is_older_is_stale() {
    let mut model = Model::new(Policy::Latest);
    let judged = model.take(vec![delivery(500, "b"), delivery(100, "a")]);
    assert_eq!(judged, [Judgement::Append(Revision(500)), Judgement::Append(Revision(100))]);
    assert_eq!(
        model.take(vec![delivery(300, "x")]),
        [Judgement::Answer(IngestAnswer::Stale { last: Revision(500) })]
    );
    let again = model.take(vec![delivery(100, "a")]);
    assert_eq!(again, [Judgement::Answer(IngestAnswer::Duplicate(model.log[0].bookmark()))]);
    assert_eq!(model.take(vec![delivery(500, "x")]), [conflict(ConflictReason::Logged)]);
    assert_eq!(model.revisions(), [100, 500]);
}

#[test]
fn revisions_are_given_in_order_of_arrival() {
    let mut model = Model::new(Policy::Arrival);
    let arriving = |id: &str, text: &str| Delivery {
        stream: stream(),
        revision: None,
        previous: None,
        entry: entry(id, text),
    };
    let judged = model.take(vec![arriving("x", "a"), arriving("y", "b"), arriving("x", "a")]);
    let append = |number| Judgement::Append(Revision(number));
    assert_eq!(judged, [append(1), append(2), Judgement::Repeat(Revision(1))]);
    let again = model.take(vec![arriving("y", "b"), arriving("z", "c"), arriving("x", "other")]);
    let why = ConflictReason::IdTaken { stream: stream(), revision: Revision(1) };
    assert_eq!(
        again,
        [Judgement::Answer(IngestAnswer::Duplicate(model.log[1].bookmark())), append(3), conflict(why)]
    );
}

#[test]
fn what_was_skipped_is_not_waited_for_and_not_taken_later() {
    let mut model = Model::new(Policy::Contiguous);
    model.take(vec![delivery(1, "a"), delivery(4, "d"), delivery(7, "g")]);
    model.skip(3);
    assert_eq!(model.revisions(), [1, 4]);
    assert_eq!(
        model.take(vec![delivery(2, "b")]),
        [conflict(ConflictReason::Link)],
        "later revisions are there"
    );
    model.skip(5);
    assert_eq!(model.take(vec![delivery(5, "e")]), [conflict(ConflictReason::Skipped)]);
    model.take(vec![delivery(6, "f")]);
    assert_eq!(model.revisions(), [1, 4, 6, 7]);
}

#[test]
fn what_there_is_no_room_for_is_refused_and_taken_when_there_is() {
    let mut model = Model::new(Policy::Contiguous);
    model.limits.stream_events = 2;
    let judged = model.take(vec![delivery(5, "e"), delivery(3, "c"), delivery(4, "d")]);
    assert_eq!(judged[1..], [held_for(1), held_for(1)]);
    assert!(matches!(&judged[0], Judgement::Answer(answer) if !answer.is_final()), "{judged:?}");
    assert_eq!(model.take(vec![delivery(3, "c")]), [held_for(1)], "what is held already takes no more room");
    model.take(vec![delivery(1, "a"), delivery(2, "b")]);
    assert_eq!(model.revisions(), [1, 2, 3, 4]);
    model.limits.conflicts = 0;
    let judged = model.take(vec![delivery(1, "x")]);
    assert!(matches!(&judged[0], Judgement::Answer(answer) if !answer.is_final()), "{judged:?}");
}

#[test]
fn what_can_not_be_is_refused() {
    let mut model = Model::new(Policy::Contiguous);
    let none = Delivery { revision: None, ..delivery(1, "a") };
    for bad in [none, delivery(0, "a"), delivery(u64::MAX, "a"), linked(3, 3, "a"), linked(3, 9, "a")] {
        let judged = model.take(vec![bad.clone()]);
        let is_refused = |judgement: &Judgement| {
            matches!(judgement, Judgement::Answer(IngestAnswer::Refused(Refusal::Invalid(_))))
        };
        assert!(is_refused(&judged[0]), "{bad:?}: {judged:?}");
    }
}

/// The held events are in the log by now, because another writer appended them without the
/// sequencer.
#[test]
fn held_events_that_came_another_way_are_let_go() {
    let mut model = Model::new(Policy::Contiguous);
    model.take(vec![delivery(3, "c"), delivery(4, "d"), delivery(5, "e")]);
    let held = model.held.clone();
    for (revision, text) in [(1, "a"), (2, "b"), (3, "c"), (4, "x")] {
        let waiting = model.waiting.clone();
        model.apply(StreamChange {
            stream: stream(),
            seen: StreamState::default().seen(),
            append: vec![(Revision(revision), entry(&format!("other-{revision}"), text))],
            hold: Vec::new(),
            unhold: Vec::new(),
            waiting,
        });
    }
    assert_eq!(model.held, held);
    model.take(Vec::new());
    assert_eq!(model.revisions(), [1, 2, 3, 4, 5]);
    assert!(model.held.is_empty());
    assert_eq!(model.conflicts.iter().map(|conflict| conflict.revision.0).collect::<Vec<_>>(), [4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// The log ends up as if each event had arrived once, in order. That holds for any order,
    /// repetition and batches, and for any page size of held events.
    #[test]
    fn the_log_ends_up_as_if_all_had_come_once_and_in_order(
        steps in prop::collection::vec(1_u64..4, 1..40),
        links in any::<bool>(),
        order in Just((0..120).collect::<Vec<usize>>()).prop_shuffle(),
        again in prop::collection::vec(any::<Index>(), 0..60),
        cuts in prop::collection::vec(1_usize..9, 1..20),
        page in 1_usize..12,
        most in prop::option::of(2_u64..8),
    ) {
        let mut revisions = Vec::new();
        let mut last = 0;
        for step in steps {
            let next = last + if links { step } else { 1 };
            revisions.push((next, last));
            last = next;
        }
        let events: Vec<_> = revisions.iter().map(|(at, before)| linked(*at, *before, &at.to_string())).collect();
        let mut feed: Vec<_> = order.into_iter().filter_map(|at| events.get(at).cloned()).collect();
        for (at, index) in again.iter().enumerate() {
            let event = index.get(&events).clone();
            feed.insert((at * 7) % (feed.len() + 1), event);
        }
        let mut model = Model::new(Policy::Contiguous);
        model.page = page;
        if let Some(most) = most {
            model.limits.stream_events = most;
        }
        let mut released = 0;
        let mut cuts = cuts.into_iter().cycle();
        // Refused deliveries are delivered again, as brokers do.
        for round in 0.. {
            prop_assert!(round < 200, "it never ends");
            let mut refused = Vec::new();
            let mut rest = feed.into_iter().peekable();
            while rest.peek().is_some() {
                let batch: Vec<_> = rest.by_ref().take(cuts.next().unwrap()).collect();
                let judged = model.take(batch.clone());
                for (delivery, judgement) in batch.into_iter().zip(judged) {
                    match judgement {
                        Judgement::Answer(IngestAnswer::Refused(_)) => refused.push(delivery),
                        Judgement::Answer(IngestAnswer::Conflict(why)) => prop_assert!(false, "{why}"),
                        _ => {}
                    }
                }
                // Released events are never removed.
                prop_assert!(model.log.len() >= released);
                released = model.log.len();
                if let Some(most) = most {
                    prop_assert!(model.held.len() as u64 <= most);
                }
            }
            if refused.is_empty() {
                break;
            }
            feed = refused;
        }
        prop_assert_eq!(model.revisions(), revisions.iter().map(|(at, _)| *at).collect::<Vec<_>>());
        prop_assert!(model.held.is_empty() && model.waiting.is_none() && model.conflicts.is_empty());
    }
}
