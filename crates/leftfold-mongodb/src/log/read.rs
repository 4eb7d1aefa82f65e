//! Pages of partitions and of streams, and events by id.

use std::sync::atomic::{AtomicUsize, Ordering};

use bson::{Document, RawDocumentBuf, doc};
use leftfold::Event;
use leftfold::log::Limit;

use super::record::event;
use crate::connection::{Base, MAX_IDS, batch};
use crate::error::Failure;
use crate::schema::EVENTS;

impl Base {
    /// Returns the events in the log with these ids.
    pub(crate) async fn events_with(&self, ids: Vec<&str>) -> Result<Vec<Event>, Failure> {
        let events = self.db.collection::<RawDocumentBuf>(EVENTS);
        let mut all = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            let mut found = events.find(doc! { "id": { "$in": ids } }).batch_size(batch(ids.len())).await?;
            while found.advance().await? {
                all.push(event(found.current())?);
            }
        }
        Ok(all)
    }

    /// Reads events up to the limit, and returns whether the limit ended the page. `next` gives the
    /// query for the events after an event.
    pub(super) async fn take(
        &self,
        limit: Limit,
        hint: &str,
        next: impl Fn(Option<&Event>) -> (Document, Document),
    ) -> Result<(Vec<Event>, bool), Failure> {
        /// The average size of recent events. It only determines how many are requested at once.
        static USUAL: AtomicUsize = AtomicUsize::new(100);
        let stored_events = self.db.collection::<RawDocumentBuf>(EVENTS);
        let wanted = limit.events.max(1).saturating_add(1);
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0_usize;
        loop {
            let (filter, sort) = next(events.last());
            let room = limit.bytes.saturating_sub(bytes) / USUAL.load(Ordering::Relaxed);
            // Request a few more than should fit: a second query costs more than a few unused
            // events.
            let count = (room + room / 8 + 2).min(wanted - events.len());
            let find = stored_events.find(filter).sort(sort);
            let find = find.limit(i64::try_from(count).unwrap_or(i64::MAX));
            let find = find.batch_size(batch(count));
            let find =
                if hint == "_id" { find } else { find.hint(mongodb::options::Hint::Name(hint.to_owned())) };
            let mut found = find.await?;
            let (mut got, before) = (0, bytes);
            while found.advance().await? {
                let event = event(found.current())?;
                got += 1;
                bytes +=
                    event.data.as_str().len() + event.metadata.as_ref().map_or(0, |json| json.as_str().len());
                USUAL.store(((bytes - before) / got).max(1), Ordering::Relaxed);
                if !events.is_empty() && (events.len() >= limit.events || bytes > limit.bytes) {
                    return Ok((events, true));
                }
                events.push(event);
            }
            if got < count {
                return Ok((events, false));
            }
        }
    }
}
