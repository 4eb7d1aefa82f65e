//! The phases of a run: faults, then none, then the checks.

use std::sync::Arc;
use std::time::Duration;

use leftfold::sequence::HoldingLimits;
use leftfold::{Error, Log as _, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{operate, read, rebuild};
use super::final_state::failure;
use super::producer::Producer;
use super::run::WorldRun;
use super::setup::World;
use crate::feed::{Ingester, SimulatedFeed};
use crate::store::LATE;

/// The duration of the faults.
pub(super) const FAULT_PHASE: Duration = Duration::from_secs(25);
/// The time limit for each step after the faults.
pub(super) const TIME_LIMIT: Duration = Duration::from_mins(5);

impl World {
    pub(super) async fn run(self) -> WorldRun {
        if let Err(error) = self.run_phases().await {
            self.store.shared().checker.violated(format!("I10: {error}"));
        }
        self.end().await
    }

    async fn run_phases(&self) -> Result<()> {
        let (end_faults, faults_ended) = watch::channel(false);
        let clears = self.store.partitions() == 1;
        let mut clients = JoinSet::new();
        for number in 0..=self.dice.below(3) {
            let (app, dice) = (self.open("producer").await, self.dice.split());
            let mixture = self.mixture;
            let producer =
                Producer { app, dice, number, mixture, clears, responses: Arc::clone(&self.responses) };
            clients.spawn(producer.produce(faults_ended.clone()));
        }
        let reader = self.open("reader").await;
        clients.spawn(read(reader, self.dice.split(), Arc::clone(&self.responses), faults_ended.clone()));
        let operator = self.open("operator").await;
        clients.spawn(operate(operator, self.dice.split(), faults_ended.clone()));
        let rebuilder = self.open("rebuilder").await;
        clients.spawn(rebuild(
            rebuilder,
            self.dice.split(),
            Arc::clone(&self.responses),
            faults_ended.clone(),
        ));

        let mut ingesters = JoinSet::new();
        if self.dice.happens(500) {
            self.feed(&faults_ended, &mut clients, &mut ingesters);
        }
        let ending = async {
            sleep(FAULT_PHASE).await;
            self.store.shared().faults.end();
            self.fix_code();
            self.store.shared().trace.note(|| "the faults end".to_owned());
            end_faults.send_replace(true);
        };
        let (workers, ()) = tokio::join!(self.run_workers(faults_ended.clone()), ending);
        while clients.join_next().await.is_some() {}
        // Wait for delayed writes.
        sleep(LATE).await;
        let ingested = async {
            while let Some(ended) = ingesters.join_next().await {
                ended.map_err(|_| failure("an ingester panicked"))??;
            }
            Ok::<_, Error>(())
        };
        timeout(TIME_LIMIT, ingested)
            .await
            .map_err(|_| failure("not all deliveries were in the log in time"))??;
        self.recover().await?;
        for worker in workers {
            timeout(TIME_LIMIT, worker.stop()).await.map_err(|_| failure("a worker did not stop"))?;
        }
        self.check().await
    }

    /// Starts a feed and some ingesters.
    fn feed(
        &self,
        faults_ended: &watch::Receiver<bool>,
        clients: &mut JoinSet<()>,
        ingesters: &mut JoinSet<Result<()>>,
    ) {
        let (dice, store) = (&self.dice, &self.store);
        let limits = HoldingLimits {
            stream_events: 2 + dice.below(6),
            events: (2 + dice.below(10)) * u64::from(store.partitions()),
            ..HoldingLimits::default()
        };
        store.shared().feed.set_limits(limits);
        clients.spawn(SimulatedFeed::publish(store.clone(), dice.split(), faults_ended.clone()));
        for number in 0..=dice.below(3) {
            let ingester =
                Ingester { store: store.clone(), name: format!("ingester-{number}"), dice: dice.split() };
            ingesters.spawn(ingester.run(faults_ended.clone()));
        }
    }
}
