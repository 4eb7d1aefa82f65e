//! The same events in every way a projection may receive them: split into batches, redelivered,
//! after restarts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::documents::Record;
use crate::event::{DocumentId, Event, Partition};
use crate::fold::{DocumentSlot, FoldState, Folder, Portion, Projection};
use crate::json::Json;
use crate::log::LogPage;
use crate::mark::Mark;

/// One way to present events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    batch: usize,
    restart: bool,
    again: Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Never,
    EachBatch,
    FromTheStart,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in batches of {}", self.batch)?;
        if self.restart {
            f.write_str(", restarted after each")?;
        }
        match self.again {
            Again::Never => Ok(()),
            Again::EachBatch => f.write_str(", each delivered twice"),
            Again::FromTheStart => f.write_str(", and after each everything again from the start"),
        }
    }
}

/// Returns every way to present this many events.
pub(super) fn ways(events: usize) -> impl Iterator<Item = Way> {
    let mut sizes: Vec<_> =
        [1, 2, 3, 5, 8, events].into_iter().filter(|size| (1..=events).contains(size)).collect();
    sizes.dedup();
    sizes.into_iter().flat_map(|batch| {
        [false, true].into_iter().flat_map(move |restart| {
            let ways = [Again::Never, Again::EachBatch, Again::FromTheStart];
            ways.into_iter().map(move |again| Way { batch, restart, again })
        })
    })
}

/// The documents stored in the end, and the parked documents and streams.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    documents: BTreeMap<DocumentId, Record>,
    streams: BTreeMap<DocumentId, Record>,
}

impl Shelf {
    pub(super) fn bodies(&self) -> BTreeMap<DocumentId, Json> {
        let body = |(id, record): (&DocumentId, &Record)| Some((id.clone(), record.body.clone()?));
        self.documents.iter().filter_map(body).collect()
    }

    /// Returns the ids of parked documents and streams.
    pub(super) fn parked(&self) -> [Vec<&str>; 2] {
        [&self.documents, &self.streams].map(|records| {
            let parked = records.values().filter(|record| record.header.parked.is_some());
            parked.map(|record| record.id.as_str()).collect()
        })
    }
}

/// Folds the events in this way, with the same code as in production.
pub(super) fn fold<P: Projection>(projection: &Arc<P>, events: &[Event], way: Way) -> crate::Result<Shelf> {
    let folder = Folder::new(Arc::clone(projection))?;
    let mut shelf = Shelf::default();
    let mut state = FoldState::careful(Mark::default());
    for (number, batch) in events.chunks(way.batch).enumerate() {
        let so_far = number * way.batch + batch.len();
        let presented = match way.again {
            Again::Never => vec![batch],
            Again::EachBatch => vec![batch, batch],
            Again::FromTheStart => vec![batch, &events[..so_far]],
        };
        for batch in presented {
            present(&folder, &mut state, &mut shelf, batch);
            if way.restart {
                state = FoldState::careful(Mark::default());
            }
        }
    }
    Ok(shelf)
}

fn present<P: Projection>(
    folder: &Folder<P>,
    state: &mut FoldState<P::Document>,
    shelf: &mut Shelf,
    batch: &[Event],
) {
    let through = batch.last().map(|event| event.position).unwrap_or_default();
    let mut page = folder.route(Partition(0), LogPage { events: batch.to_vec(), through, more: false });
    for id in folder.missing(state, &page) {
        let slot = shelf.documents.get(&id).cloned().map_or_else(DocumentSlot::absent, DocumentSlot::loaded);
        state.documents.insert(id, slot);
    }
    for id in folder.missing_streams(state, &page, true) {
        let slot = shelf.streams.get(&id).cloned().map_or_else(DocumentSlot::absent, DocumentSlot::loaded);
        state.streams.insert(id, slot);
    }
    folder.apply(state, &mut page, Portion::ALL, Timestamp::UNIX_EPOCH);
    for id in state.documents.lost() {
        if let Some(slot) = state.documents.touch(&id, 0) {
            slot.park(1);
        }
    }
    let documents = state.documents.cut().unwrap_or_default();
    let streams = state.streams.cut().unwrap_or_default();
    state.documents.settle(documents.batch);
    state.streams.settle(streams.batch);
    shelf.documents.extend(documents.writes.into_iter().map(|write| (write.record.id.clone(), write.record)));
    shelf.streams.extend(streams.writes.into_iter().map(|write| (write.record.id.clone(), write.record)));
}
