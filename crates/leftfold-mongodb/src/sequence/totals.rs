//! The totals of a partition: its held events and conflicts, and the sequencer's counts. They are
//! in the head of the partition.

use std::collections::BTreeMap;

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use leftfold::Partition;
use leftfold::sequence::{SequencerCounts, Totals};
use mongodb::ClientSession;

use crate::connection::{Base, batch};
use crate::error::Failure;
use crate::log;
use crate::schema::HEADS;

/// The field of a head that counts the operations done.
pub(super) const COUNTS: &str = "counts";

/// The change of a partition's totals.
#[derive(Default)]
pub(super) struct Change {
    pub(super) events: i64,
    pub(super) bytes: i64,
    pub(super) conflicts: i64,
}

impl Change {
    /// Applies the change to totals.
    pub(super) fn of(&self, before: &Totals) -> Totals {
        Totals {
            events: before.events.saturating_add_signed(self.events),
            bytes: before.bytes.saturating_add_signed(self.bytes),
            conflicts: before.conflicts.saturating_add_signed(self.conflicts),
        }
    }
}

impl Base {
    /// Returns the totals of each partition, and the counts of all partitions.
    pub(super) async fn totals(&self) -> Result<(BTreeMap<Partition, Totals>, SequencerCounts), Failure> {
        let heads = self.db.collection::<RawDocumentBuf>(HEADS);
        let mut heads = heads.find(doc! {}).batch_size(batch(usize::from(u16::MAX))).await?;
        let (mut all, mut counts) = (BTreeMap::new(), SequencerCounts::default());
        while heads.advance().await? {
            counts = counts.plus(self::counts(heads.current())?);
            let (partition, _) = log::head(heads.current())?;
            let totals = decode(heads.current())?;
            if totals != Totals::default() {
                all.insert(partition, totals);
            }
        }
        Ok((all, counts))
    }

    /// Updates a partition's totals.
    pub(super) async fn change_totals(
        &self,
        session: &mut ClientSession,
        partition: Partition,
        change: &Change,
    ) -> Result<(), Failure> {
        let Change { events, bytes, conflicts } = change;
        let counts = [("held", events), ("held_bytes", bytes), ("conflicts", conflicts)];
        let counts: Document = counts
            .into_iter()
            .filter(|(_, change)| **change != 0)
            .map(|(field, change)| (field.to_owned(), Bson::Int64(*change)))
            .collect();
        if !counts.is_empty() {
            let heads = self.db.collection::<Document>(HEADS);
            let head = doc! { "_id": i32::from(partition.0) };
            heads.update_one(head, doc! { "$inc": counts }).session(session).await?;
        }
        Ok(())
    }
}

/// Reads a partition's totals from its head. Missing fields count as 0.
pub(super) fn decode(head: &RawDocument) -> Result<Totals, Failure> {
    let total = |field: &str| -> Result<u64, Failure> {
        let total = head.get(field)?.and_then(RawBsonRef::as_i64).unwrap_or(0);
        Ok(u64::try_from(total).unwrap_or(0))
    };
    Ok(Totals { events: total("held")?, bytes: total("held_bytes")?, conflicts: total("conflicts")? })
}

/// Reads a partition's counts from its head.
fn counts(head: &RawDocument) -> Result<SequencerCounts, Failure> {
    let Some(counts) = head.get(COUNTS)?.and_then(RawBsonRef::as_document) else {
        return Ok(SequencerCounts::default());
    };
    let count = |name: &str| counts.get(name).ok().flatten().and_then(RawBsonRef::as_i64).unwrap_or(0);
    Ok(SequencerCounts::from_named(|name| count(name).unsigned_abs()))
}
