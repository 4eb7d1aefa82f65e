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

    pub(crate) async fn run(&self) {
        if let Err(error) = self.run_phases().await {
            self.store.violated(format!("I10: {error}"));
        }
    }

    async fn run_phases(&self) -> Result<()> {
        let (end_faults, faults_ended) = watch::channel(false);
        let mut writers = JoinSet::new();
        for _ in 0..2 + self.dice.below(3) {
            writers.spawn(self.writer().await?.write(faults_ended.clone()));
        }
        sleep(FAULT_PHASE).await;
        self.store.shared().faults.end();
        self.store.shared().trace.note(|| "the faults end".to_owned());
        end_faults.send_replace(true);
        let ended = async {
            while let Some(ended) = writers.join_next().await {
                ended.map_err(|_| failure("a writer panicked"))??;
            }
            Ok::<_, Error>(())
        };
        timeout(TIME_LIMIT, ended).await.map_err(|_| failure("a writer did not end"))??;
        // Wait for delayed writes.
        sleep(LATE).await;
        timeout(TIME_LIMIT, self.recover()).await.map_err(|_| failure("not all calls ended in time"))??;
        self.check().await
    }

    async fn writer(&self) -> Result<Writer> {
        Writer::new(&self.store, self.dice.split(), &self.common).await
    }

    /// Checks that without faults every outcome is known and every call succeeds.
    async fn recover(&self) -> Result<()> {
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
        for violation in self.store.shared().contents.check_end(&DocumentId::new(KEPT)?, &stored) {
            self.store.violated(violation);
        }
        Ok(())
    }
}

/// Returns the error of a step that failed or took too long.
fn failure(message: &str) -> Error {
    Error::new(Kind::Store, message)
}
