//! The phases of a run: faults, then none, then the checks.

use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Query, Reactor, ReactorHandle, State};
use leftfold::{Error, Kind, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::actors::{append, operate, resume, write, write_on};
use super::nodes::Node;
use super::setup::Setup;
use super::things::{REACTIONS, Thing};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::faults::Faults;
use crate::store::{LATE, SimStore};

/// The duration of the faults.
pub(super) const FAULT_PHASE: Duration = Duration::from_secs(20);
/// The time limit for each step after the faults.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// A world of reactions.
pub(crate) struct World {
    pub(super) dice: Dice,
    pub(crate) store: SimStore,
    pub(super) setup: Arc<Setup>,
    /// The time at which newer code is deployed, if it is.
    pub(super) deployment: Option<Duration>,
    operator: SimStore,
}

impl World {
    pub(crate) fn drawn(seed: u64, trace: bool) -> Self {
        let dice = Dice::new(seed ^ 0x7ea5_e115);
        let faults = if dice.happens(50) { Faults::none() } else { Faults::drawn(&dice) };
        let setup = Setup::drawn(&dice, &faults);
        let store = SimStore::new(1, true, faults, trace);
        store.shared().ledger.set_up(setup.attempts, setup.visibility);
        store.shared().trace.note(|| format!("reactions: {setup:?}"));
        let deployment = dice.happens(500).then(|| dice.time(FAULT_PHASE));
        let operator = store.worker("operator");
        Self { dice, store, setup: Arc::new(setup), deployment, operator }
    }

    pub(crate) async fn run(&self) {
        if let Err(error) = Box::pin(self.run_phases()).await {
            self.store.violated(format!("I10: {error}"));
        }
    }

    async fn run_phases(&self) -> Result<()> {
        let (end_faults, faults_ended) = watch::channel(false);
        let mut writers = JoinSet::new();
        writers.spawn(write_on(self.store.clone(), self.dice.split(), faults_ended.clone()));
        let ending = async {
            sleep(FAULT_PHASE).await;
            self.store.shared().faults.end();
            self.store.shared().trace.note(|| "the faults end".to_owned());
            end_faults.send_replace(true);
        };
        let operating = async {
            let operator = self.operator().await?;
            operate(operator.clone(), self.operator.clone(), self.dice.split(), faults_ended.clone()).await;
            Ok::<_, Error>(operator)
        };
        let (nodes, operator, ()) = tokio::join!(self.run_nodes(faults_ended.clone()), operating, ending);
        while let Some(ended) = writers.join_next().await {
            ended.map_err(|_| failure("a writer panicked"))??;
        }
        // Wait for delayed writes.
        sleep(LATE).await;
        let (operator, nodes) = (operator?, nodes?);
        let recover = self.recover(&operator, &nodes);
        let Ok(right) = timeout(TIME_LIMIT, recover).await else {
            self.check().await?;
            return Err(failure("not everything was handled in time"));
        };
        right?;
        for node in &nodes {
            self.store.shared().ledger.node_ends(&node.store.name);
            let stopped = node.reacting.stop(Duration::from_secs(1));
            timeout(TIME_LIMIT, stopped).await.map_err(|_| failure("a node did not stop"))?;
        }
        operator.stop(Duration::ZERO).await;
        self.check().await
    }

    async fn operator(&self) -> Result<ReactorHandle<SimStore>> {
        loop {
            let clock = Clock::new(self.dice.split(), self.operator.clone());
            let reactor = Reactor::on(self.operator.clone()).env(clock).worker("operator").plans(false);
            match reactor.start().await {
                Ok(reacting) => return Ok(reacting),
                Err(error) if error.is_transient() => sleep(Duration::from_millis(100)).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that without faults everything is handled, and that later changes are handled at
    /// once.
    async fn recover(&self, operator: &ReactorHandle<SimStore>, nodes: &[Node]) -> Result<()> {
        let Some(last) = nodes.last() else { return Ok(()) };
        for reaction in REACTIONS {
            resume(operator, &self.store, reaction).await;
        }
        last.reacting.idle_within(Duration::from_secs(20)).await?;
        let failed = Query { states: vec![State::Failed], ..Query::default() };
        operator.retry(failed, None).await?;
        last.reacting.idle_within(Duration::from_secs(20)).await?;
        self.check().await?;
        // The document enters the filter, changes, leaves it, returns, is deleted and is created
        // again.
        let thing = |on, value| Some(Thing { on, value, noise: 9 });
        let ids = ["d0", "d1", "d2", "new"];
        let id = self.dice.pick(&ids).copied().unwrap_or("new");
        for (at, step) in
            [thing(true, 10), thing(true, 11), thing(false, 11), thing(true, 11), None, thing(true, 11)]
                .iter()
                .enumerate()
        {
            let before = self.store.shared().ledger.handled(id);
            write(&self.store, id, step.as_ref())?;
            append(&self.store, "s0", "sold", 1_000 + at as u64).await?;
            last.reacting.idle_within(Duration::from_secs(10)).await?;
            let after = self.store.shared().ledger.handled(id);
            let wanted = u64::from(step.as_ref().is_some_and(|step| step.on)) * 3;
            if after - before != wanted {
                let step = step.as_ref().map(|step| (step.on, step.value));
                let handled = after - before;
                self.store
                    .violated(format!("I10: after {id} became {step:?}, it was handled {handled} times"));
            }
        }
        self.check().await
    }
}

/// Returns the error of a step that failed or took too long.
pub(super) fn failure(message: &str) -> Error {
    Error::new(Kind::Store, message)
}
