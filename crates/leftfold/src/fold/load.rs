//! Loading stored documents and parked streams, for the core to fold events into.

use serde::de::DeserializeOwned;

use super::Projection;
use super::batch::FoldState;
use super::folder::Folder;
use super::slot::DocumentSlot;
use crate::documents::Record;
use crate::error::Result;
use crate::event::DocumentId;
use crate::mark::Mark;
use crate::store::Store;

impl<P: Projection> Folder<P> {
    /// Loads the stored documents onto the state. Returns whether some have folded events that were
    /// not presented yet: then another worker is, or was, ahead.
    pub(crate) async fn load_documents<S: Store>(
        &self,
        store: &S,
        state: &mut FoldState<P::Document>,
        ids: Vec<DocumentId>,
    ) -> Result<bool> {
        let records = store.load(&self.collection, ids.clone()).await?;
        let ahead = is_ahead(&records, &state.progress);
        state.place(ids, records);
        Ok(ahead)
    }

    /// Loads the state of these streams onto the state.
    pub(crate) async fn load_streams<S: Store>(
        &self,
        store: &S,
        state: &mut FoldState<P::Document>,
        ids: Vec<DocumentId>,
    ) -> Result<()> {
        let records = store.load_current(&self.collection.streams(), ids.clone()).await?;
        for id in ids {
            state.streams.insert(id, DocumentSlot::absent());
        }
        for record in records {
            match (&mut state.taken_up, &record.header.parked) {
                (Some(through), Some(parked)) if parked.anew => through.merge(&parked.through),
                _ => state.streams.insert(record.id.clone(), DocumentSlot::loaded(record)),
            }
        }
        Ok(())
    }
}

/// Returns whether some of these have folded events that were not presented yet.
pub(crate) fn is_ahead(records: &[Record], progress: &Mark) -> bool {
    let lanes = records.iter().flat_map(|record| record.header.mark.lanes());
    lanes.into_iter().any(|(lane, at)| lane.partition().is_some() && at > progress.get(lane))
}

impl<D: DeserializeOwned> FoldState<D> {
    /// Puts stored documents on the state; documents without a record are absent.
    pub(crate) fn place(&mut self, ids: Vec<DocumentId>, records: Vec<Record>) {
        for id in ids {
            self.documents.insert(id, DocumentSlot::absent());
        }
        for record in records {
            self.documents.insert(record.id.clone(), DocumentSlot::loaded(record));
        }
    }
}
