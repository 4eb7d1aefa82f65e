//! An ingester of the feed, which dies and restarts.

use std::sync::Arc;
use std::time::Duration;

use leftfold::sequence::{Healer, Healing, Missing, resupply};
use leftfold::{Error, Kind, Policy, Result, Revision, Sequencer, Sequences as _, mutant};
use tokio::sync::watch;
use tokio::time::sleep;

use super::messages::SimulatedFeed;
use crate::clock::Clock;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::SimStore;

/// An ingester of the feed, which dies and restarts.
pub(crate) struct Ingester {
    pub(crate) store: SimStore,
    pub(crate) name: String,
    pub(crate) dice: Dice,
}

impl Ingester {
    /// Ingests until the faults have ended and everything has arrived.
    pub(crate) async fn run(self, faults_ended: watch::Receiver<bool>) -> Result<()> {
        loop {
            let store = self.store.worker(&self.name);
            let clock = Arc::new(Clock::new(self.dice.split(), store.clone()));
            let sequencer = Sequencer::with(store.clone(), store.shared().feed.limits(), clock);
            let ended = tokio::select! {
                biased;
                () = store.fuse().blown() => false,
                () = self.heal(&sequencer) => false,
                ended = self.ingest(&store, &sequencer, &faults_ended) => ended?,
            };
            store.shared().feed.tally.add(sequencer.counts());
            if ended {
                return Ok(());
            }
            store.shared().trace.note(|| format!("{} restarts", self.name));
            sleep(self.dice.time(Duration::from_secs(1))).await;
        }
    }

    async fn ingest(
        &self,
        store: &SimStore,
        sequencer: &Sequencer<SimStore>,
        faults_ended: &watch::Receiver<bool>,
    ) -> Result<bool> {
        let Self { dice, .. } = self;
        let feed = &store.shared().feed;
        loop {
            self.trouble(store);
            let most = usize::try_from(1 + dice.below(6)).unwrap_or(1);
            let batch = feed.receive(most);
            if batch.is_empty() {
                let is_done = *faults_ended.borrow() && feed.is_empty();
                if is_done && store.inner().waiting(None, 1).await?.is_empty() {
                    return Ok(true);
                }
                sleep(dice.time(Duration::from_millis(700))).await;
                continue;
            }
            mutant!(IngestLater => for (number, _) in &batch { feed.acknowledge(*number) });
            let deliveries: Vec<_> = batch.iter().map(|(_, delivery)| delivery.clone()).collect();
            match sequencer.ingest(Policy::Contiguous, deliveries).await {
                Ok(answers) => {
                    for ((number, delivery), answer) in batch.into_iter().zip(answers) {
                        let name = format!("{}@{:?}", delivery.stream, delivery.revision.unwrap_or_default());
                        store.shared().trace.note(|| format!("{}: {name}: {answer:?}", self.name));
                        if !answer.is_final() {
                            continue;
                        }
                        feed.acknowledge(number);
                        if !SimulatedFeed::is_kept(store, &delivery).await? {
                            store.shared().checker.violated(format!(
                                "I6: the response to {name} was {answer:?}, and the event is lost"
                            ));
                        }
                    }
                }
                Err(error) if error.is_transient() => sleep(dice.time(Duration::from_secs(1))).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the ingester die soon, or pauses it.
    fn trouble(&self, store: &SimStore) {
        let Self { dice, name, .. } = self;
        let faults = &store.shared().faults;
        if faults.strikes(Fault::Crash) {
            store.shared().trace.note(|| format!("{name} dies soon"));
            store.fuse().light(dice.below(25));
        } else if faults.strikes(Fault::Pause) {
            store.shared().trace.note(|| format!("{name} is paused"));
            store.gate().close();
            let (store, time) = (store.clone(), dice.time(Duration::from_secs(8)));
            tokio::spawn(async move {
                sleep(time).await;
                store.gate().open();
            });
        }
    }

    /// Fetches missing events from the origin, for ever.
    async fn heal(&self, sequencer: &Sequencer<SimStore>) {
        let store = self.store.clone();
        let origin = resupply(move |missing: Missing| {
            let store = store.clone();
            async move {
                if store.shared().faults.strikes(Fault::Fails) {
                    return Err(Error::new(Kind::Unavailable, "the origin does not respond"));
                }
                let events = store.shared().feed.published_in(&missing.stream);
                let wanted = Some(Revision(missing.after.0 + 1))..=Some(missing.through);
                let found: Vec<_> =
                    events.into_iter().filter(|event| wanted.contains(&event.revision)).collect();
                store.shared().trace.note(|| format!("the origin has {} of {missing:?}", found.len()));
                Ok(found)
            }
        });
        let healing = Healing {
            age: Duration::from_secs(2),
            again: (Duration::from_secs(1), Duration::from_secs(8)),
            ..Healing::default()
        };
        let healer = Healer::new(sequencer.clone(), origin, healing);
        loop {
            sleep(self.dice.time(Duration::from_secs(3))).await;
            // The log shows the result.
            let _ = healer.heal().await;
        }
    }
}
