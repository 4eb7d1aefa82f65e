//! Deliveries with revisions: appended, held, or recognised as duplicates and conflicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decide::Judgement;
use super::stream::{StreamJudge, is_same, same_content};
use crate::error::Invalid;
use crate::event::Revision;
use crate::log::Entry;
use crate::mutant;
use crate::sequence::delivery::{Delivery, IngestAnswer, Policy, Refusal};
use crate::sequence::store::ConflictReason;

impl StreamJudge<'_> {
    /// Places deliveries by revision, and releases held events between them.
    pub(super) fn place_all(&mut self, deliveries: Vec<(usize, Delivery)>) {
        let mut incoming: BTreeMap<Revision, Vec<(usize, Revision, Arc<Entry>)>> = BTreeMap::new();
        for (number, delivery) in deliveries {
            match self.checked(&delivery) {
                Ok((revision, previous)) => {
                    incoming.entry(revision).or_default().push((number, previous, delivery.entry));
                }
                Err(invalid) => self.answer(number, IngestAnswer::Refused(Refusal::Invalid(invalid))),
            }
        }
        for (revision, twins) in incoming {
            self.release(Some(revision));
            for (number, previous, entry) in twins {
                self.place(number, revision, previous, entry);
            }
        }
        self.release(None);
    }

    /// Returns the revision and the previous one. Fails if they are invalid.
    fn checked(&self, delivery: &Delivery) -> Result<(Revision, Revision), Invalid> {
        let Some(revision) = delivery.revision else {
            let expected = "a revision for each event; for a feed without revisions, use the policy arrival";
            return Err(Invalid::new("revision", "", expected));
        };
        if revision.0 == 0 || i64::try_from(revision.0).is_err() {
            let expected = format!("a number from 1 to {}", i64::MAX);
            return Err(Invalid::new("revision", &revision.to_string(), expected));
        }
        match delivery.previous {
            Some(previous) if previous >= revision => {
                let expected = format!("a revision below {revision}, the revision of the event");
                Err(Invalid::new("previous revision", &previous.to_string(), expected))
            }
            Some(previous) if self.policy == Policy::Contiguous => Ok((revision, previous)),
            _ => Ok((revision, Revision(revision.0 - 1))),
        }
    }

    /// Decides about one delivery.
    fn place(&mut self, number: usize, revision: Revision, previous: Revision, entry: Arc<Entry>) {
        if let Some(event) = self.taken.get(&entry.id)
            && (event.stream != *self.stream || event.revision != revision)
        {
            let why = ConflictReason::IdTaken { stream: event.stream.clone(), revision: event.revision };
            return self.dispute(number, revision, entry, why);
        }
        // Compare with deliveries of the same batch.
        if let Some((_, other)) = self.append.last().filter(|(other, _)| *other == revision) {
            return if same_content(&entry, other) {
                self.judged.judgements.push((number, Judgement::Repeat(revision)));
            } else {
                self.dispute(number, revision, entry, ConflictReason::Logged);
            };
        }
        if let Some(other) = self.hold.last().filter(|other| other.revision == revision) {
            return if same_content(&entry, &other.entry) {
                self.answer(number, self.held_answer());
            } else {
                self.dispute(number, revision, entry, ConflictReason::Held);
            };
        }
        if revision <= self.after {
            return match self.logged.get(&revision) {
                Some(event) if is_same(&entry, event) => {
                    self.answer(number, IngestAnswer::Duplicate(event.bookmark()));
                }
                None if self.policy == Policy::Latest => {
                    self.answer(number, IngestAnswer::Stale { last: self.after });
                }
                found => {
                    let why = self.why_not(revision, found);
                    self.dispute(number, revision, entry, why);
                }
            };
        }
        // A held event came first.
        let is_next = self.page.front().is_some_and(|held| held.revision == revision);
        let held = if is_next { self.page.front() } else { self.held.get(&revision) };
        if let Some(held) = held {
            let is_same = same_content(&entry, &held.entry);
            if is_next && self.has_read(revision) && held.previous <= self.after {
                self.release(Some(Revision(revision.0 + 1)));
            }
            return if !is_same {
                self.dispute(number, revision, entry, ConflictReason::Held);
            } else if self.append.last().is_some_and(|(last, _)| *last == revision) {
                self.judged.judgements.push((number, Judgement::Repeat(revision)));
            } else {
                self.answer(number, self.held_answer());
            };
        }
        if self.follows(revision, previous) {
            if let Some(other) = self.ids.get(&entry.id).copied() {
                let why = ConflictReason::IdTaken { stream: self.stream.clone(), revision: other };
                return self.dispute(number, revision, entry, why);
            }
            self.append_next(revision, entry);
            self.judged.judgements.push((number, Judgement::Append(revision)));
        } else if previous < self.after {
            self.dispute(number, revision, entry, ConflictReason::Link);
        } else {
            self.hold_early(number, revision, previous, entry);
        }
    }

    /// Returns whether an event above the stream's last one can be appended next.
    fn follows(&self, revision: Revision, previous: Revision) -> bool {
        if self.policy == Policy::Latest {
            return true;
        }
        if !self.has_read(revision) {
            return false;
        }
        mutant!(LinkTooFar => return previous == self.after || previous.0 == self.after.0 + 1);
        previous == self.after
    }
}
