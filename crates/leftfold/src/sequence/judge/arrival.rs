//! Deliveries of a feed without revisions: numbered in order of arrival.

use std::collections::HashMap;

use super::decide::Judgement;
use super::stream::{StreamJudge, is_same, same_content};
use crate::event::{EventId, Revision};
use crate::sequence::delivery::{Delivery, IngestAnswer};
use crate::sequence::store::ConflictReason;

impl StreamJudge<'_> {
    /// Assigns revisions in order of arrival.
    pub(super) fn arrive(&mut self, deliveries: Vec<(usize, Delivery)>) {
        let mut arrived: HashMap<EventId, (Revision, usize)> = HashMap::new();
        for (number, Delivery { entry, .. }) in deliveries {
            if let Some(event) = self.taken.get(&entry.id) {
                let is_duplicate = event.stream == *self.stream && is_same(&entry, event);
                if is_duplicate {
                    self.answer(number, IngestAnswer::Duplicate(event.bookmark()));
                } else {
                    let why =
                        ConflictReason::IdTaken { stream: event.stream.clone(), revision: event.revision };
                    self.dispute(number, Revision(self.after.0 + 1), entry, why);
                }
            } else if let Some((revision, at)) = arrived.get(&entry.id).copied() {
                if same_content(&entry, &self.append[at].1) {
                    self.judged.judgements.push((number, Judgement::Repeat(revision)));
                } else {
                    let why = ConflictReason::IdTaken { stream: self.stream.clone(), revision };
                    self.dispute(number, Revision(self.after.0 + 1), entry, why);
                }
            } else {
                self.after.0 += 1;
                arrived.insert(entry.id.clone(), (self.after, self.append.len()));
                self.judged.judgements.push((number, Judgement::Append(self.after)));
                self.append.push((self.after, entry));
            }
        }
    }
}
