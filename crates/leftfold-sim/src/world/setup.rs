//! The setup of a run, drawn with the dice.

use std::sync::Arc;
use std::time::Duration;

use leftfold::fold::FoldOptions;
use leftfold::{App, Backoff, Leftfold};
use tokio::time::sleep;

use super::responses::Responses;
use crate::clock::Clock;
use crate::dice::Dice;
use crate::faults::{Fault, Faults};
use crate::notes::{Mixture, Notes};
use crate::store::SimStore;

/// A store, the code that runs on it, and its configuration.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) store: SimStore,
    pub(crate) notes: [Notes; 2],
    /// The code before any fix.
    pub(super) old: [Notes; 2],
    pub(crate) options: FoldOptions,
    pub(super) mixture: Mixture,
    /// `true` if all workers run at once, with new and old code.
    pub(super) is_crowded: bool,
    pub(crate) responses: Arc<Responses>,
}

impl World {
    pub(super) fn drawn(seed: u64, trace: bool) -> Self {
        let dice = Dice::new(seed);
        let partitions = if dice.happens(700) { 1 } else { 3 };
        let (mut faults, mut mixture) = (Faults::drawn(&dice), Mixture::drawn(&dice));
        // Some worlds are is_crowded: no lease holds, no commit is atomic, and old code runs beside
        // new code.
        let is_crowded = dice.happens(200);
        if is_crowded {
            faults = faults.with(&[(Fault::Lease, 1_000), (Fault::Halfway, 50), (Fault::Meddling, 500)]);
            mixture = mixture.garbled();
        }
        let store = SimStore::new(partitions, !is_crowded && dice.happens(500), faults, trace);
        let bytes = |most| usize::try_from(dice.below(most)).unwrap_or(1).max(1);
        let options = FoldOptions {
            cache_bytes: bytes(20_000),
            batch_bytes: bytes(20_000),
            batch_time: dice.time(Duration::from_secs(2)),
            page_bytes: bytes(2_000),
            retry: Backoff::default().first(Duration::from_millis(10)).limit(bytes(5)),
            lease: Duration::from_millis(800) + dice.time(Duration::from_secs(7)),
            ..FoldOptions::default()
        };
        Self { mixture, is_crowded, ..Self::new(dice, store, options) }
    }

    pub(crate) fn new(dice: Dice, store: SimStore, options: FoldOptions) -> Self {
        let (notes, mixture) = ([Notes::new(true), Notes::new(false)], Mixture::default());
        let old = notes.each_ref().map(Notes::as_it_is);
        Self { dice, store, notes, old, options, mixture, is_crowded: false, responses: Arc::default() }
    }

    /// Returns an application of this world, for a store handle and a worker name.
    pub(crate) fn app(&self, store: &SimStore, name: &str) -> Leftfold<SimStore> {
        self.app_with(self.notes.clone(), store, name)
    }

    pub(super) fn app_with(&self, notes: [Notes; 2], store: &SimStore, name: &str) -> Leftfold<SimStore> {
        let [streams, contents] = notes;
        let app = Leftfold::on(store.clone()).env(Clock::new(self.dice.split(), store.clone()));
        app.options(self.options.clone()).worker(name).projection(streams).projection(contents)
    }

    /// Opens an application for reads and operations only, and retries until that works.
    pub(super) async fn open(&self, name: &str) -> App<SimStore> {
        loop {
            match self.app(&self.store, name).open().await {
                Ok(app) => return app,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Fixes the code: workers that start from now on can decode and fold everything.
    pub(crate) fn fix_code(&self) {
        self.notes.iter().for_each(Notes::fix);
    }
}
