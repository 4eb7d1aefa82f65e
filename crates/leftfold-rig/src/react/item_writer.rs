//! Items: documents that the rig writes as any program could. They are created, changed, moved out
//! of the filter, deleted and created again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold_sim::dice::Dice;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::handlers::{HOLD, ITEM, LARGE, POISON};
use crate::failure::Failure;
use crate::store::{TestedStore, patiently};

const ITEMS: u64 = 12;
/// The longest pause between two writes.
const PAUSE: Duration = Duration::from_millis(60);

/// An item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// `true` if its reaction's filter matches.
    pub(crate) on: bool,
    /// The watched value. No number is ever used twice.
    pub(crate) tag: u64,
    /// A value that is not watched.
    pub(crate) note: u64,
    #[serde(default)]
    pub(crate) kind: ItemKind,
    /// The watched value of a large item.
    #[serde(default)]
    pub(crate) text: String,
}

/// The reaction that an item is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ItemKind {
    #[default]
    Plain,
    /// Kills the process that handles it.
    Deadly,
    /// Harmless, and handled by the same reaction.
    Neighbour,
    /// Never finishes its first run.
    Held,
    /// Has a large watched value.
    Large,
}

impl Item {
    /// Returns the text of a large item. In JSON it takes a third more bytes.
    pub(crate) fn large_text(tag: u64, bytes: usize) -> String {
        format!("{tag}{}", "xx\n".repeat(bytes / 3))
    }

    /// Returns the reaction that must handle the item, if there is one.
    pub(super) fn reaction(&self) -> Option<&'static str> {
        match self.kind {
            ItemKind::Plain => self.on.then_some(ITEM),
            ItemKind::Deadly => None,
            ItemKind::Neighbour => Some(POISON),
            ItemKind::Held => Some(HOLD),
            ItemKind::Large => Some(LARGE),
        }
    }
}

/// The items written by the rig, which is their only writer.
#[derive(Debug, Default)]
pub(crate) struct ItemWriter {
    ending: AtomicBool,
    numbers: AtomicU64,
    written: Mutex<Written>,
}

/// The current items, and their history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// The expected items.
    pub(crate) now: BTreeMap<String, Item>,
    /// The tags that each item had while a reaction's filter matched it.
    pub(crate) tags: BTreeMap<String, BTreeSet<u64>>,
    pub(crate) count: u64,
}

impl ItemWriter {
    /// Writes until [`end`](Self::end) is called.
    pub(crate) async fn write<S: TestedStore>(&self, store: S, dice: Dice) -> Result<(), Failure> {
        while !self.ending.load(Ordering::Relaxed) {
            sleep(dice.time(PAUSE)).await;
            // Some ids are new.
            let id = if dice.happens(80) {
                format!("n{}", self.number())
            } else {
                format!("i{}", dice.below(ITEMS))
            };
            let item = self.written().now.get(&id).cloned();
            let item = match (item, dice.below(10)) {
                (Some(item), 0..2) => Some(Item { note: self.number(), ..item }),
                (Some(item), 2..4) => Some(Item { on: false, ..item }),
                (Some(_), 4) => None,
                _ => Some(self.new_item()),
            };
            self.put(&store, &id, item).await?;
        }
        Ok(())
    }

    /// Stops the writes after the next one.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Returns an item with a new tag.
    pub(crate) fn new_item(&self) -> Item {
        Item { on: true, tag: self.number(), ..Item::default() }
    }

    /// Returns an item of this kind with a new tag.
    pub(crate) fn new_of(&self, kind: ItemKind) -> Item {
        Item { kind, tag: self.number(), ..Item::default() }
    }

    /// Returns an item with a watched value of about `bytes` bytes.
    pub(crate) fn new_large(&self, bytes: usize) -> Item {
        let item = self.new_of(ItemKind::Large);
        Item { text: Item::large_text(item.tag, bytes), ..item }
    }

    /// Writes or deletes an item, and records that.
    pub(crate) async fn put<S: TestedStore>(
        &self,
        store: &S,
        id: &str,
        item: Option<Item>,
    ) -> Result<(), Failure> {
        self.announce(id, item.as_ref());
        patiently::<S, _, _>(|| store.put_item(id, item.as_ref())).await?;
        let mut written = self.written();
        match item {
            Some(item) => drop(written.now.insert(id.to_owned(), item)),
            None => drop(written.now.remove(id)),
        }
        Ok(())
    }

    /// Inserts items in one write, and records them.
    pub(crate) async fn insert_all<S: TestedStore>(
        &self,
        store: &S,
        items: Vec<(String, Item)>,
    ) -> Result<(), Failure> {
        for (id, item) in &items {
            self.announce(id, Some(item));
        }
        patiently::<S, _, _>(|| store.insert_items(&items)).await?;
        self.written().now.extend(items);
        Ok(())
    }

    /// Records that an item is about to be written: a reactor may handle it before the writer
    /// continues.
    fn announce(&self, id: &str, item: Option<&Item>) {
        let mut written = self.written();
        written.count += 1;
        if let Some(item) = item.filter(|item| item.reaction().is_some()) {
            written.tags.entry(id.to_owned()).or_default().insert(item.tag);
        }
    }

    /// Returns everything written so far.
    pub(crate) fn all(&self) -> Written {
        self.written().clone()
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
