//! The end of a batch: the change of the stream, and the gap that it waits for afterwards.

use super::decide::{Judged, Judgement};
use super::stream::StreamJudge;
use crate::event::Revision;
use crate::sequence::delivery::IngestAnswer;
use crate::sequence::store::{Held, StreamChange, Waiting};

impl StreamJudge<'_> {
    /// Returns the decisions, with the change of the stream if there is one.
    pub(super) fn finish(mut self, has_page: bool, version: u64) -> Judged {
        // Every held delivery reports the revision that the stream waits for after the whole batch.
        let waiting_for = Revision(self.after.0 + 1);
        for (_, judgement) in &mut self.judged.judgements {
            if let Judgement::Answer(IngestAnswer::Held { waiting_for: wanted }) = judgement {
                *wanted = waiting_for;
            }
        }
        let waiting = self.gap(has_page, version);
        self.judged.more = waiting.as_ref().is_some_and(|waiting| {
            waiting.events > 0 && (waiting.until <= self.after || waiting.first <= self.after)
        });
        if !self.append.is_empty() || !self.hold.is_empty() || !self.unhold.is_empty() {
            self.judged.step = Some(StreamChange {
                stream: self.stream.clone(),
                seen: self.state.seen(),
                append: self.append,
                hold: self.hold,
                unhold: self.unhold,
                waiting,
            });
        }
        self.judged
    }

    /// Returns the gap after the batch, if events are held or skipped revisions must be remembered.
    fn gap(&self, has_page: bool, version: u64) -> Option<Waiting> {
        let before = self.state.waiting.as_ref();
        let last = self.append.last().map_or(self.state.last, |(last, _)| *last);
        let Some((first, until)) = self.first_held(has_page) else {
            let skips = before.filter(|before| before.skipped > last);
            return skips.map(|before| Waiting { version, events: 0, bytes: 0, ..before.clone() });
        };
        let skipped = before.map_or(Revision(0), |before| before.skipped);
        let highest = self.hold.last().map_or(first, |held| held.revision);
        // As long as the stream does not move, it waits for the same gap.
        let same = before.filter(|before| before.events > 0 && self.after == self.state.after());
        Some(Waiting {
            version,
            skipped: if skipped > last { skipped } else { Revision(0) },
            events: self.events,
            bytes: self.bytes,
            first,
            until,
            highest: highest.max(before.map_or(Revision(0), |before| before.highest)),
            since: same.map_or(self.now, |same| same.since),
            ask_at: same.map_or(self.now, |same| same.ask_at),
            asked: same.map_or(0, |same| same.asked),
            trouble: same.and_then(|same| same.trouble.clone()),
        })
    }

    /// Returns the revision of the first held event, and the one that it waits for.
    fn first_held(&self, has_page: bool) -> Option<(Revision, Revision)> {
        let place = |held: &Held| (held.revision, held.previous);
        let before = if has_page {
            self.page.front().map(place)
        } else {
            let before = self.state.waiting.as_ref().filter(|before| before.events > 0);
            before.map(|before| (before.first, before.until))
        };
        before.into_iter().chain(self.hold.first().map(place)).min()
    }
}
