//! The documents in memory: those of the current batch, and a bounded cache of earlier ones.

use std::collections::HashMap;
use std::mem;

use foldhash::fast::RandomState;
use serde::Serialize;

use super::slot::{Delta, DocumentSlot};
use crate::documents::{DocumentWrite, Header};
use crate::event::DocumentId;

type Slots<D> = HashMap<DocumentId, DocumentSlot<D>, RandomState>;

/// A set of slots. Slots of the current batch stay; the others stay while there is room.
#[derive(Debug)]
pub(crate) struct DocumentCache<D> {
    recent: Slots<D>,
    older: Slots<D>,
    /// The documents of the current batch, in the order of first touch.
    touched: Vec<DocumentId>,
    recent_bytes: usize,
    older_bytes: usize,
    touched_bytes: usize,
    budget: usize,
    batch: u64,
    /// The last stored batch. Slots of later batches can't be dropped, because their documents are
    /// not stored yet.
    settled: u64,
}

/// The writes of a batch, with the counters of each.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub(crate) writes: Vec<DocumentWrite>,
    pub(crate) deltas: Vec<Delta>,
    pub(crate) batch: u64,
}

impl Cut {
    pub(crate) fn total(&self) -> Delta {
        let mut total = Delta::default();
        self.deltas.iter().for_each(|delta| total.add(*delta));
        total
    }
}

impl<D> DocumentCache<D> {
    /// Creates a set that keeps about `budget` bytes beyond the current batch.
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            recent: Slots::default(),
            older: Slots::default(),
            touched: Vec::new(),
            recent_bytes: 0,
            older_bytes: 0,
            touched_bytes: 0,
            budget,
            batch: 1,
            settled: 0,
        }
    }

    /// Returns the approximate size of the current batch, in bytes.
    pub(crate) fn touched_bytes(&self) -> usize {
        self.touched_bytes
    }

    /// Returns the approximate size of the current batch and of earlier ones, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.recent_bytes + self.older_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.recent.is_empty() && self.older.is_empty()
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &DocumentSlot<D>> {
        self.recent.values().chain(self.older.values())
    }

    /// Drops the slots that can be loaded again. Changed documents that are not stored yet stay.
    pub(crate) fn forget(&mut self) {
        let settled = self.settled;
        self.recent.retain(|_, slot| slot.is_dirty() || slot.batch > settled);
        self.older.clear();
        self.older_bytes = 0;
        self.recent_bytes = self.recent.values().map(|slot| slot.bytes).sum();
    }

    pub(crate) fn contains(&self, id: &DocumentId) -> bool {
        self.recent.contains_key(id) || self.older.contains_key(id)
    }

    pub(crate) fn insert(&mut self, id: DocumentId, mut slot: DocumentSlot<D>) {
        slot.batch = self.settled;
        self.recent_bytes += slot.bytes;
        self.older.remove(&id);
        self.recent.insert(id, slot);
    }

    pub(crate) fn take(&mut self, id: &DocumentId) -> Option<DocumentSlot<D>> {
        self.recent.remove(id).or_else(|| self.older.remove(id))
    }

    /// Replaces a slot by a refolded one, as touched by the current batch.
    pub(crate) fn replace(&mut self, id: &DocumentId, slot: DocumentSlot<D>) {
        let touched = self.get(id).is_some_and(|old| old.batch == self.batch);
        self.insert(id.clone(), slot);
        match self.recent.get_mut(id) {
            Some(slot) if touched => slot.batch = self.batch,
            _ => drop(self.touch(id, 0)),
        }
    }

    pub(crate) fn get(&self, id: &DocumentId) -> Option<&DocumentSlot<D>> {
        self.recent.get(id).or_else(|| self.older.get(id))
    }

    /// Returns the slot, marked as touched by the current batch and grown by `bytes`.
    pub(crate) fn touch(&mut self, id: &DocumentId, bytes: usize) -> Option<&mut DocumentSlot<D>> {
        if !self.recent.contains_key(id) {
            let (id, slot) = self.older.remove_entry(id)?;
            self.recent_bytes += slot.bytes;
            self.recent.insert(id, slot);
        }
        let slot = self.recent.get_mut(id)?;
        if slot.batch != self.batch {
            slot.batch = self.batch;
            self.touched.push(id.clone());
            self.touched_bytes += slot.bytes;
        }
        slot.bytes += bytes;
        self.touched_bytes += bytes;
        self.recent_bytes += bytes;
        Some(slot)
    }

    /// Returns the touched documents that must be folded again.
    pub(crate) fn lost(&self) -> Vec<DocumentId> {
        let lost = |id: &&DocumentId| self.recent.get(*id).is_some_and(|slot| slot.loss().is_some());
        self.touched.iter().filter(lost).cloned().collect()
    }

    /// Ends the batch: takes the pending write of every touched document. `Err` names those that
    /// can't be serialized; they are marked as lost and the batch stays open.
    pub(crate) fn cut(&mut self) -> Result<Cut, Vec<DocumentId>>
    where
        D: Serialize,
    {
        let mut cut = Cut { batch: self.batch, ..Cut::default() };
        let mut failed = Vec::new();
        for id in &self.touched {
            let Some(slot) = self.recent.get_mut(id).filter(|slot| slot.is_dirty()) else { continue };
            let before = slot.bytes;
            if let Some(write) = slot.write(id) {
                cut.writes.push(write);
                cut.deltas.push(mem::take(&mut slot.delta));
            } else {
                slot.distrust();
                failed.push(id.clone());
            }
            self.recent_bytes = (self.recent_bytes + slot.bytes).saturating_sub(before);
        }
        if !failed.is_empty() {
            self.undo(cut.writes.into_iter().map(|write| (write.record.id, write.expected)).zip(cut.deltas));
            return Err(failed);
        }
        self.touched.clear();
        self.touched_bytes = 0;
        self.batch += 1;
        Ok(cut)
    }

    /// Takes back writes that did not happen: their documents belong to the current batch again.
    pub(crate) fn undo(&mut self, writes: impl IntoIterator<Item = ((DocumentId, Option<Header>), Delta)>) {
        for ((id, expected), delta) in writes {
            if let Some(slot) = self.touch(&id, 0) {
                slot.unwrite(expected, delta);
            }
        }
    }

    /// Records that a batch and all before it are stored. Their slots may be dropped to make room.
    pub(crate) fn settle(&mut self, batch: u64) {
        self.settled = batch;
        if self.recent_bytes > self.budget / 2 {
            let (recent, older): (Slots<D>, Slots<D>) =
                mem::take(&mut self.recent).into_iter().partition(|(_, slot)| slot.batch > batch);
            self.older_bytes = self.recent_bytes;
            self.recent_bytes = recent.values().map(|slot| slot.bytes).sum();
            self.older_bytes = self.older_bytes.saturating_sub(self.recent_bytes);
            self.recent = recent;
            self.older = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document with a pending write would be loaded in its old state.
    #[test]
    fn what_is_not_stored_yet_is_not_forgotten() {
        let mut working = DocumentCache::<()>::new(0);
        let id = DocumentId::new("s1").unwrap();
        working.insert(id.clone(), DocumentSlot::absent());
        working.touch(&id, 0).unwrap().set_dirty();
        working.forget();
        assert!(working.contains(&id), "it was changed");
        let cut = working.cut().unwrap();
        assert_eq!(cut.writes.len(), 1);
        working.forget();
        assert!(working.contains(&id), "its write may not have arrived");
        working.settle(cut.batch);
        working.forget();
        assert!(!working.contains(&id), "it can be loaded again");
    }
}
