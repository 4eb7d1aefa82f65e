//! Settling: appending, holding and releasing the events of streams, in one guarded transaction.
//!
//! A settlement first moves the head of its partition, as an append does. So it sees all earlier
//! writes of appends and settlements there. Its reads stay true until the transaction ends: the
//! revisions of streams, their waiting states, and the totals. The number of commands does not
//! depend on the number of streams.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bson::{Document, RawDocumentBuf, doc};
use leftfold::sequence::{Settled, Settlement, StreamChange, StreamVersion};
use leftfold::{Kind, Mark, Position, Result, Revision, StreamId};
use mongodb::ClientSession;
use mongodb::options::ReturnDocument;

use super::record::{encode_conflict, encode_held, encode_waiting, key, key_of_conflict};
use super::skipped;
use super::totals::{self, COUNTS, Change};
use crate::connection::{Base, Ended, MAX_IDS, Step, Work, batch, with_timeout};
use crate::encoding::signed;
use crate::error::Failure;
use crate::log::{encode, has_room, place_of};
use crate::schema::{CONFLICTS, EVENTS, HEADS, HELD, SEQUENCES, SKIPPED};

impl Base {
    /// Writes a settlement. `Err` means that nothing was written.
    pub(super) async fn settle(&self, settlement: &Settlement) -> Result<Settled, Failure> {
        point!("settle");
        let turn = self.turn(settlement.partition).await;
        let ended = self.transact(Settle { base: self, settlement }).await?;
        drop(turn);
        let verdict = match ended {
            Ended::Committed(verdict) | Ended::CalledOff(verdict) => verdict,
            Ended::Unknown(failure) => {
                return Ok(Settled::Unknown(failure.to_error("settle deliveries in", &self.place)));
            }
        };
        let (last, before) = match verdict {
            Verdict::Applied { last, before } => (last, before),
            Verdict::Full => return Ok(Settled::Full),
            Verdict::Moved(moved) => {
                // The caller reads again, and must see more than a newly elected primary shows.
                let _ = with_timeout(self.catch_up()).await;
                return Ok(Settled::Moved(moved));
            }
            Verdict::Taken => return self.taken(settlement).await,
        };
        if last > before {
            let head: Mark = [(settlement.partition.into(), last.unsigned_abs())].into_iter().collect();
            self.board.grew(&head);
        }
        Ok(Settled::Applied { before: Position(before.unsigned_abs()) })
    }

    /// Finds the events that are already taken, as far as reads show them.
    async fn taken(&self, settlement: &Settlement) -> Result<Settled, Failure> {
        let appended = settlement.steps.iter().flat_map(|step| &step.append);
        let ids: Vec<_> = appended.map(|(_, entry)| &entry.id).collect();
        with_timeout(self.catch_up()).await?;
        let found = with_timeout(self.events_with(ids.iter().map(|id| id.as_str()).collect())).await?;
        let found: BTreeSet<_> = found.into_iter().map(|event| event.id).collect();
        let mut seen = BTreeSet::new();
        // An event that occurs twice in the settlement itself is taken, too.
        let taken = ids.into_iter().filter(|id| !seen.insert(*id) || found.contains(*id));
        let taken: Vec<_> = taken.cloned().collect();
        if !taken.is_empty() {
            return Ok(Settled::Taken(taken));
        }
        // A transaction sees every write; a read sees only majority-committed ones. They agree
        // soon.
        let appending = settlement.steps.iter().filter(|step| !step.append.is_empty());
        Ok(Settled::Moved(appending.map(|step| step.stream.clone()).collect()))
    }
}

/// The result of a settlement.
enum Verdict {
    /// All is written: the position of the last event, and the position before the first.
    Applied { last: i64, before: i64 },
    /// These streams have changed since the caller read them.
    Moved(Vec<StreamId>),
    /// An event to be appended already exists.
    Taken,
    /// The settlement would exceed the bounds.
    Full,
}

struct Settle<'a> {
    base: &'a Base,
    settlement: &'a Settlement,
}

/// The stored waiting state of a stream, as far as settling needs it.
#[derive(Clone, Copy)]
struct Kept {
    version: u64,
    events: u64,
    bytes: u64,
}

impl Work for Settle<'_> {
    type Answer = Verdict;

    async fn run(&self, session: &mut ClientSession) -> Result<Step<Verdict>, Failure> {
        let Settlement { steps, bounds, .. } = self.settlement;
        let head = self.move_head(session).await?;
        point!("head-moved");
        let kept = self.kept(session).await?;
        let moved = self.moved(session, &kept).await?;
        if !moved.is_empty() {
            return Ok(Step::CallOff(Verdict::Moved(moved)));
        }
        let conflicts = self.new_conflicts(session).await?;
        let change = change(steps, &kept, conflicts.len());
        let before = totals::decode(&head)?;
        if !change.of(&before).is_within(bounds, &before) {
            return Ok(Step::CallOff(Verdict::Full));
        }
        let last = head.get_i64("position")?;
        let before = last - count(steps.iter().map(|step| step.append.len()).sum());
        if !self.append(session, before).await? {
            return Ok(Step::CallOff(Verdict::Taken));
        }
        point!("events-settled");
        let moved = self.hold(session).await?;
        if !moved.is_empty() {
            return Ok(Step::CallOff(Verdict::Moved(moved)));
        }
        self.wait(session).await?;
        self.keep(session, conflicts, &change).await?;
        point!("settled");
        Ok(Step::Keep(Verdict::Applied { last, before }))
    }
}

impl Settle<'_> {
    /// Reserves positions for the events. The update conflicts with all other writers of the
    /// partition.
    async fn move_head(&self, session: &mut ClientSession) -> Result<RawDocumentBuf, Failure> {
        let Settlement { partition, steps, counts, .. } = self.settlement;
        let events = count(steps.iter().map(|step| step.append.len()).sum());
        let mut grow = doc! { "position": events, "settled": 1_i64 };
        for (name, number) in counts.named().into_iter().filter(|(_, number)| *number > 0) {
            grow.insert(format!("{COUNTS}.{name}"), signed(number));
        }
        let mut step = doc! { "$inc": grow };
        if steps.iter().any(has_gaps) {
            step.insert("$set", doc! { "gaps": true });
        }
        let heads = self.base.db.collection::<RawDocumentBuf>(HEADS);
        let head = heads
            .find_one_and_update(doc! { "_id": i32::from(partition.0) }, step)
            .return_document(ReturnDocument::After)
            .session(session)
            .await?;
        let head = head.ok_or_else(|| Failure::damaged(format!("partition {partition} has no head")))?;
        if has_room(head.get_i64("position")?) {
            return Ok(head);
        }
        Err(Failure::new(Kind::Full, "append to another log", "the partition has no positions left"))
    }

    fn streams(&self) -> Vec<&str> {
        self.settlement.steps.iter().map(|step| step.stream.as_str()).collect()
    }

    /// Reads the waiting states of the streams.
    async fn kept(&self, session: &mut ClientSession) -> Result<HashMap<StreamId, Kept>, Failure> {
        let sequences = self.base.db.collection::<RawDocumentBuf>(SEQUENCES);
        let mut all = HashMap::new();
        for streams in self.streams().chunks(MAX_IDS) {
            let find = sequences.find(doc! { "_id": { "$in": streams } }).batch_size(batch(streams.len()));
            let find = find.projection(doc! { "version": 1, "events": 1, "bytes": 1 });
            let mut found = find.session(&mut *session).await?;
            while found.advance(session).await? {
                let stored = found.current();
                let number = |field: &str| stored.get_i64(field).map(i64::unsigned_abs);
                let kept =
                    Kept { version: number("version")?, events: number("events")?, bytes: number("bytes")? };
                all.insert(StreamId::stored(stored.get_str("_id")?), kept);
            }
        }
        Ok(all)
    }

    /// Returns the streams that have changed since the caller read them. This includes streams that
    /// would keep held events outside their waiting state: their step was computed from an
    /// incomplete page.
    async fn moved(
        &self,
        session: &mut ClientSession,
        kept: &HashMap<StreamId, Kept>,
    ) -> Result<Vec<StreamId>, Failure> {
        let last = self.base.last_revisions_in(session, &self.streams()).await?;
        let is_moved = |step: &&StreamChange| {
            let kept = kept.get(&step.stream);
            let seen = StreamVersion {
                last: Revision(last.get(&step.stream).copied().unwrap_or(0).unsigned_abs()),
                version: kept.map(|kept| kept.version),
            };
            let before = kept.map_or(0, |kept| kept.events) + step.hold.len() as u64;
            let after = step.waiting.as_ref().map_or(0, |waiting| waiting.events) + step.unhold.len() as u64;
            seen != step.seen || before != after
        };
        let moved = self.settlement.steps.iter().filter(is_moved);
        Ok(moved.map(|step| step.stream.clone()).collect())
    }

    /// Returns the conflicts that are not stored yet.
    async fn new_conflicts(&self, session: &mut ClientSession) -> Result<Vec<RawDocumentBuf>, Failure> {
        let conflicts = self.settlement.conflicts.iter();
        let mut new: BTreeMap<_, _> = conflicts.map(|conflict| (conflict.id(), conflict)).collect();
        let keys: Vec<_> = new.values().map(|conflict| key_of_conflict(conflict)).collect();
        for found in self.base.present(session, CONFLICTS, keys).await? {
            new.remove(found.get_document("_id")?.get_str("conflict")?);
        }
        new.into_values().map(encode_conflict).collect()
    }

    /// Inserts the events after the head. Returns `false` if one of them exists.
    async fn append(&self, session: &mut ClientSession, before: i64) -> Result<bool, Failure> {
        let Settlement { partition, steps, .. } = self.settlement;
        let mut place = place_of(*partition, before);
        let mut events = Vec::new();
        for step in steps {
            for (revision, entry) in &step.append {
                place += 1;
                events.push(encode(place, &step.stream, signed(revision.0), entry));
            }
        }
        self.base.insert(session, EVENTS, events).await
    }

    /// Deletes released events and inserts held ones. Returns the streams whose held events have
    /// changed since the caller read them.
    async fn hold(&self, session: &mut ClientSession) -> Result<Vec<StreamId>, Failure> {
        let steps = &self.settlement.steps;
        let unhold = |step: &StreamChange| -> Vec<_> {
            step.unhold.iter().map(|revision| key(&step.stream, *revision)).collect()
        };
        let keys: Vec<_> = steps.iter().flat_map(unhold).collect();
        let mut all = true;
        for keys in keys.chunks(MAX_IDS) {
            let held = self.base.db.collection::<Document>(HELD);
            let deleted = held.delete_many(doc! { "_id": { "$in": keys } }).session(&mut *session).await?;
            all &= deleted.deleted_count == keys.len() as u64;
        }
        let held = steps.iter().flat_map(|step| &step.hold).map(encode_held).collect();
        if all && self.base.insert(session, HELD, held).await? {
            return Ok(Vec::new());
        }
        let holding = steps.iter().filter(|step| !step.hold.is_empty() || !step.unhold.is_empty());
        Ok(holding.map(|step| step.stream.clone()).collect())
    }

    /// Writes the waiting states of the streams. Deleting and inserting all of them is far faster
    /// than updating each.
    async fn wait(&self, session: &mut ClientSession) -> Result<(), Failure> {
        let steps = &self.settlement.steps;
        let there = steps.iter().filter(|step| step.seen.version.is_some());
        let there: Vec<_> = there.map(|step| step.stream.as_str()).collect();
        for streams in there.chunks(MAX_IDS) {
            let sequences = self.base.db.collection::<Document>(SEQUENCES);
            sequences.delete_many(doc! { "_id": { "$in": streams } }).session(&mut *session).await?;
        }
        let waiting = steps.iter().filter_map(|step| Some((&step.stream, step.waiting.as_ref()?)));
        let waiting = waiting.map(|(stream, waiting)| encode_waiting(stream, waiting)).collect();
        self.base.insert_new(session, SEQUENCES, waiting).await
    }

    /// Stores conflicts and skipped revisions, and updates the totals.
    async fn keep(
        &self,
        session: &mut ClientSession,
        conflicts: Vec<RawDocumentBuf>,
        change: &Change,
    ) -> Result<(), Failure> {
        let Settlement { partition, skipped, .. } = self.settlement;
        let base = self.base;
        let skipped = skipped.iter().map(skipped::encode).collect();
        if !base.insert(session, CONFLICTS, conflicts).await?
            || !base.insert(session, SKIPPED, skipped).await?
        {
            return Err(Failure::damaged("a conflict or a skipped gap exists that a query did not find"));
        }
        base.change_totals(session, *partition, change).await
    }
}

/// Computes the change of the totals. Waiting states give the number of held events and bytes.
fn change(steps: &[StreamChange], kept: &HashMap<StreamId, Kept>, conflicts: usize) -> Change {
    let mut change = Change { conflicts: count(conflicts), ..Change::default() };
    for StreamChange { stream, waiting, .. } in steps {
        let before = kept.get(stream).map_or((0, 0), |kept| (kept.events, kept.bytes));
        let after = waiting.as_ref().map_or((0, 0), |waiting| (waiting.events, waiting.bytes));
        change.events += signed(after.0) - signed(before.0);
        change.bytes += signed(after.1) - signed(before.1);
    }
    change
}

/// Returns whether a step skips revisions before or between the appended events.
fn has_gaps(step: &StreamChange) -> bool {
    let before = [step.seen.last].into_iter().chain(step.append.iter().map(|(revision, _)| *revision));
    before.zip(&step.append).any(|(before, (revision, _))| before.0.checked_add(1) != Some(revision.0))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
