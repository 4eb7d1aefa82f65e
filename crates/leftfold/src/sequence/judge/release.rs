//! Held events that no longer wait: released into the log, or found to conflict with it.

use super::stream::{StreamJudge, is_same};
use crate::event::Revision;
use crate::sequence::store::{Conflict, ConflictReason, Held, held_bytes};

impl StreamJudge<'_> {
    /// Releases held events below a revision, or all that no longer wait. Also removes held events
    /// that are in the log by now, or conflict with it.
    pub(super) fn release(&mut self, below: Option<Revision>) {
        while let Some(held) = self.page.front() {
            let is_wanted = below.is_none_or(|below| held.revision < below) && self.has_read(held.revision);
            if !is_wanted || (held.previous > self.after && held.revision > self.after) {
                return;
            }
            let why = self.contradicts(held);
            if why.is_some() && self.capacity.dispute().is_err() {
                return;
            }
            let Some(Held { stream, revision, since, entry, .. }) = self.page.pop_front() else { return };
            let bytes = held_bytes(&entry);
            self.unhold.push(revision);
            self.capacity.unhold(bytes);
            self.events = self.events.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            if let Some(why) = why {
                self.judged.conflicts.push(Conflict { stream, revision, why, since, entry, decided: None });
            } else if revision > self.after {
                self.append_next(revision, entry);
                self.judged.released += 1;
            }
        }
    }

    /// Returns why a held event that no longer waits can't be appended. Returns `None` if it can,
    /// or is in the log already.
    fn contradicts(&self, held: &Held) -> Option<ConflictReason> {
        let Held { revision, previous, entry, .. } = held;
        if *revision <= self.after {
            return match self.logged.get(revision) {
                Some(event) if is_same(entry, event) => None,
                found => Some(self.why_not(*revision, found)),
            };
        }
        if let Some(event) = self.taken.get(&entry.id) {
            return Some(ConflictReason::IdTaken { stream: event.stream.clone(), revision: event.revision });
        }
        if let Some(revision) = self.ids.get(&entry.id) {
            return Some(ConflictReason::IdTaken { stream: self.stream.clone(), revision: *revision });
        }
        (*previous < self.after).then_some(ConflictReason::Link)
    }
}
