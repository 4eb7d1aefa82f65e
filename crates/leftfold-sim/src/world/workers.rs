//! The workers of a run.

use std::time::Duration;

use leftfold::App;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::phases::FAULT_PHASE;
use super::setup::World;
use crate::faults::Fault;
use crate::notes::Notes;
use crate::store::SimStore;

impl World {
    /// Starts, stops, pauses and replaces workers until the faults end. Each worker runs the code
    /// of its start: a deployment affects only workers that start later.
    pub(super) async fn run_workers(&self, faults_ended: watch::Receiver<bool>) -> Vec<App<SimStore>> {
        let deployment = self.dice.happens(800).then(|| Instant::now() + self.dice.time(FAULT_PHASE));
        let deployment = if self.is_crowded { Some(Instant::now()) } else { deployment };
        let mut codes = Vec::new();
        let (shared, count) = (self.store.shared(), 1 + self.dice.below(3));
        let mut alive: Vec<App<SimStore>> = Vec::new();
        loop {
            if deployment.is_some_and(|at| at <= Instant::now()) {
                self.fix_code();
            }
            alive.retain(|worker| !worker.store().fuse().is_blown());
            while (alive.len() as u64) < count {
                let name = format!("worker-{}", self.dice.below(count));
                let old = self.is_crowded && self.dice.happens(500);
                let code = if old { &self.old } else { &self.notes };
                let code = code.each_ref().map(Notes::as_it_is);
                let worker = self.app_with(code.clone(), &self.store.worker(&name), &name);
                if let Ok(worker) = worker.start().await {
                    alive.push(worker);
                    codes.extend(code);
                }
            }
            sleep(self.dice.time(Duration::from_secs(3))).await;
            if *faults_ended.borrow() {
                codes.iter().for_each(Notes::fix);
                for worker in &alive {
                    worker.store().gate().open();
                    worker.store().fuse().put_out();
                }
                alive.retain(|worker| !worker.store().fuse().is_blown());
                if !alive.is_empty() {
                    return alive;
                }
                continue;
            }
            let Some(worker) = self.dice.pick(&alive) else { continue };
            if shared.faults.strikes(Fault::Crash) {
                let polls = self.dice.below(40);
                shared.trace.note(|| format!("{} dies after {polls} steps", worker.store().name));
                worker.store().fuse().light(polls);
            } else if shared.faults.strikes(Fault::Pause) {
                shared.trace.note(|| format!("{} is paused", worker.store().name));
                worker.store().gate().close();
            } else {
                worker.store().gate().open();
            }
        }
    }
}
