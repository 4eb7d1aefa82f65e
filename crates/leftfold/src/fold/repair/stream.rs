//! Retries of parked streams.

use std::collections::BTreeSet;

use super::RepairOutcome;
use super::attempts::{Attempts, one};
use crate::documents::{CollectionWrites, DocumentWrite, Header, Parked, Record};
use crate::env::Env;
use crate::error::Result;
use crate::event::{DocumentId, Revision, StreamId};
use crate::fold::Folder;
use crate::fold::Projection;
use crate::fold::replay::Replay;
use crate::store::Store;

impl<P: Projection> Folder<P> {
    /// Unparks a stream once all its events can be decoded. It refolds the documents of the waiting
    /// events from their first event, because other streams have moved their marks on meanwhile.
    pub(crate) async fn retry_stream<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        stream: &StreamId,
        dry_run: bool,
    ) -> Result<RepairOutcome> {
        let (id, collection) = (DocumentId::from(stream), self.collection.streams());
        let mut attempts = Attempts::new(env);
        // The result of a write that may have succeeded without an answer.
        let mut before = RepairOutcome::NotParked;
        loop {
            let Some(record) = one(store, &collection, &id).await? else { return Ok(before) };
            let Some(parked) = record.header.parked.clone() else { return Ok(before) };
            let failure = match self.documents_waiting(store, &parked).await? {
                Ok(_) if dry_run => None,
                Ok(_) if !parked.anew => {
                    self.take_up(store, record, &mut attempts).await?;
                    continue;
                }
                Ok(documents) => self.refold_all(store, env, documents, &parked).await?,
                Err(error) => Some(error),
            };
            let outcome = failure.clone().map_or(RepairOutcome::Repaired, RepairOutcome::StillFailing);
            if dry_run {
                return Ok(outcome);
            }
            let mut header = record.header.clone();
            header.parked = failure
                .map(|error| Box::new(Parked { error, attempts: parked.attempts + 1, ..(*parked).clone() }));
            if header.parked.is_none() {
                header.mark.merge(&parked.through);
            }
            if self.wrote_stream(store, record, header, &mut attempts).await? {
                return Ok(outcome);
            }
            before = outcome;
        }
    }

    /// Marks a parked stream as being retried. From here on no worker refolds a document without
    /// it. Folded events therefore stay folded, and the stream can be unparked once the last
    /// document has its events.
    pub(super) async fn take_up<S: Store>(
        &self,
        store: &S,
        row: Record,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let mut header = row.header.clone();
        if let Some(parked) = &mut header.parked {
            parked.anew = true;
        }
        // If another writer was faster, the next read of the row shows it.
        self.wrote_stream(store, row, header, attempts).await.map(drop)
    }

    async fn wrote_stream<S: Store>(
        &self,
        store: &S,
        row: Record,
        header: Header,
        attempts: &mut Attempts,
    ) -> Result<bool> {
        let record = Record { id: row.id.clone(), header, body: None };
        let write = DocumentWrite { expected: Some(row.header), record };
        let changes = CollectionWrites { collection: self.collection.streams(), writes: vec![write] };
        Ok(attempts.committed(store, vec![changes], vec![row.id]).await?.is_empty())
    }

    /// Returns the documents that the events of a parked stream belong to, or the reason why one
    /// event still can't be routed.
    pub(super) async fn documents_waiting<S: Store>(
        &self,
        store: &S,
        parked: &Parked,
    ) -> Result<Result<BTreeSet<DocumentId>, String>> {
        let mut documents = BTreeSet::new();
        let after = Revision(parked.revision.0.saturating_sub(1));
        let through = parked.through.position(parked.partition);
        let mut replay = Replay::Stream { stream: parked.stream.clone(), after, through };
        while let Some((_, page)) = replay.next(store).await? {
            for event in page.events {
                match self.documents_of(event) {
                    Ok(ids) => documents.extend(ids.as_slice().iter().cloned()),
                    Err(error) => return Ok(Err(error.to_string())),
                }
            }
        }
        Ok(Ok(documents))
    }
}
