//! Items: documents that the rig itself writes, as any program could: they come, change, go out of the filter, are deleted and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold_sim::dice::Dice;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::handlers::{HOLD, ITEM, LARGE, POISON};
use crate::failure::Failure;
use crate::store::{Rigged, patiently};

const ITEMS: u64 = 12;
/// The longest pause between two writes.
const PAUSE: Duration = Duration::from_millis(60);

/// An item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// Whether its reaction is about it.
    pub(crate) on: bool,
    /// What is watched: no number is ever there twice.
    pub(crate) tag: u64,
    /// What is not watched.
    pub(crate) note: u64,
    #[serde(default)]
    pub(crate) kind: ItemKind,
    /// The watched value of a large item.
    #[serde(default)]
    pub(crate) text: String,
}

/// The reaction that an item is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ItemKind {
    #[default]
    Plain,
    /// It kills the process that handles it.
    Deadly,
    /// It is handled by the same reaction, and harmless.
    Neighbour,
    /// Its first run never ends.
    Held,
    /// Its watched value is large.
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

/// What was written, by the only one who writes.
#[derive(Debug, Default)]
pub(crate) struct Garden {
    ending: AtomicBool,
    numbers: AtomicU64,
    written: Mutex<Written>,
}

/// The items, and all that they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// As they should be now.
    pub(crate) now: BTreeMap<String, Item>,
    /// The tags that each had while a reaction was about it.
    pub(crate) tags: BTreeMap<String, BTreeSet<u64>>,
    pub(crate) count: u64,
}

impl Garden {
    /// Writes until it is to end.
    pub(crate) async fn tend<S: Rigged>(&self, store: S, dice: Dice) -> Result<(), Failure> {
        while !self.ending.load(Ordering::Relaxed) {
            sleep(dice.time(PAUSE)).await;
            // Some are there for the first time.
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

    /// No more writes after the next.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// An item with a tag that none ever had.
    pub(crate) fn new_item(&self) -> Item {
        Item { on: true, tag: self.number(), ..Item::default() }
    }

    /// Returns an item of this kind, with a tag that no other has.
    pub(crate) fn new_of(&self, kind: ItemKind) -> Item {
        Item { kind, tag: self.number(), ..Item::default() }
    }

    /// Returns an item whose watched value takes about so many bytes.
    pub(crate) fn new_large(&self, bytes: usize) -> Item {
        let item = self.new_of(ItemKind::Large);
        Item { text: Item::large_text(item.tag, bytes), ..item }
    }

    /// Writes an item, or deletes it, and takes it down.
    pub(crate) async fn put<S: Rigged>(
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

    /// Inserts items in one go, and takes them down.
    pub(crate) async fn insert_all<S: Rigged>(
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

    /// Takes down that an item is about to be written: a reactor may handle it before the writer
    /// goes on.
    fn announce(&self, id: &str, item: Option<&Item>) {
        let mut written = self.written();
        written.count += 1;
        if let Some(item) = item.filter(|item| item.reaction().is_some()) {
            written.tags.entry(id.to_owned()).or_default().insert(item.tag);
        }
    }

    /// What was written so far.
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
