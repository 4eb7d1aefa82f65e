//! The phases of a run: faults, then none, then the checks.

use std::sync::Arc;
use std::time::Duration;

use leftfold::content::Contents as _;
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Error, Kind, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::sheet::{ALL, KEPT, SHEETS};
use super::writer::{Common, Writer};
use crate::dice::Dice;
use crate::faults::{Fault, Faults};
use crate::store::{LATE, SimStore};

/// The duration of the faults.
const FAULT_PHASE: Duration = Duration::from_secs(12);
/// The time limit for each step after the faults.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// A world of documents without events.
pub(crate) struct World {
    dice: Dice,
    pub(crate) store: SimStore,
    common: Arc<Common>,
}

impl World {
    pub(crate) fn drawn(seed: u64, trace: bool) -> Self {
        let dice = Dice::new(seed ^ 0xd0c5_0de5);
        let mut faults = if dice.happens(50) { Faults::none() } else { Faults::drawn(&dice) };
        // In some worlds most outcomes are unknown.
        if dice.happens(200) {
            faults = faults.with(&[(Fault::Fails, 300), (Fault::AppliedUnknown, 250)]);
        }
        let store = SimStore::new(1, true, faults, trace);
        Self { dice, store, common: Arc::default() }
    }

    pub(crate) async fn live(&self) {
        if let Err(error) = self.run_phases().await {
            self.store.violated(format!("I10: {error}"));
        }
    }

    async fn run_phases(&self) -> Result<()> {
        let (healthy, healed) = watch::channel(false);
        let mut writers = JoinSet::new();
        for _ in 0..2 + self.dice.below(3) {
            writers.spawn(self.writer().await?.write(healed.clone()));
        }
        sleep(FAULT_PHASE).await;
        self.store.shared().faults.heal();
        self.store.shared().trace.note(|| "the faults end".to_owned());
        healthy.send_replace(true);
        let ended = async {
            while let Some(ended) = writers.join_next().await {
                ended.map_err(|_| late("a writer panicked"))??;
            }
            Ok::<_, Error>(())
        };
        timeout(TIME_LIMIT, ended).await.map_err(|_| late("a writer did not end"))??;
        // Wait for delayed writes.
        sleep(LATE).await;
        timeout(TIME_LIMIT, self.come_right()).await.map_err(|_| late("not all calls ended in time"))??;
        self.check().await
    }

    async fn writer(&self) -> Result<Writer> {
        Writer::new(&self.store, self.dice.split(), &self.common).await
    }

    /// Checks that without faults every outcome is known and every call succeeds.
    async fn come_right(&self) -> Result<()> {
        let mut last = self.writer().await?;
        last.operate(self.common.operations()).await?;
        for id in ALL {
            last.change(id).await?;
            last.get(id).await?;
        }
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        let ids = ALL.into_iter().map(DocumentId::new).collect::<Result<_, _>>()?;
        let stored = self.store.inner().contents(&ExternalCollection::new(SHEETS)?, ids).await?;
        let stored: Vec<_> = stored.into_iter().map(|stored| (stored.id, stored.body)).collect();
        for violation in self.store.shared().contents.finally(&DocumentId::new(KEPT)?, &stored) {
            self.store.violated(violation);
        }
        Ok(())
    }
}

/// Returns the error of a step that is not done within its time limit.
fn late(what: &str) -> Error {
    Error::new(Kind::Store, what)
}
