//! Worker processes, which are killed at random moments and restarted at once.
//!
//! A worker ends after the current batch when its standard input closes. So the demo can stop it,
//! and it notices when its parent is gone.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use leftfold::fold::FoldOptions;
use leftfold::{Backoff, Leftfold};
use leftfold_terminal::{Exit, Failure, Location};
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::args::{STORE, WorkerArgs};
use crate::flaky::{Faults, Flaky};
use crate::random::Random;

/// The time that a worker has to finish the current batch.
const GRACE: Duration = Duration::from_secs(20);
/// The number of consecutive exits of a worker after which the demo gives up.
const MOST_ENDS: u32 = 5;

/// Runs a worker process.
pub(crate) async fn work(location: &impl Location, args: &WorkerArgs) -> Result<Exit, Failure> {
    let faults = Faults { seed: args.seed, share: args.failing };
    let options = FoldOptions {
        lease: Duration::from_secs(1),
        // A worker may not live for long, so it should take small batches.
        page_bytes: 128 << 10,
        batch_time: Duration::from_millis(250),
        retry: Backoff::default().first(Duration::from_millis(2)).most(Duration::from_millis(20)).limit(10),
        ..FoldOptions::default()
    };
    let app = Leftfold::on(location.open().await?)
        .worker(&args.name)
        .options(options)
        .projection(Flaky::new(CartDetails, faults))
        .projection(Flaky::new(ClientSummary, faults))
        .projection(Flaky::new(DailyTotals, faults))
        .projection(Flaky::new(OpenCarts, faults))
        .start()
        .await?;
    let end_of_input = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink()));
    let _ = end_of_input.await;
    match timeout(GRACE, app.stop()).await {
        Ok(()) => Ok(Exit::Done),
        Err(_) => Err(Failure::new(Exit::Store, format!("stopping {}: it did not end in time", args.name))),
    }
}

/// The options of the workers.
#[derive(Clone, Debug)]
pub(crate) struct CrewPlan {
    /// The argument that names the store to them.
    pub(crate) store: OsString,
    pub(crate) workers: u64,
    pub(crate) kill_every: Duration,
    pub(crate) failing: f64,
    pub(crate) seed: u64,
}

/// The running workers. Dropping the value kills them.
pub(crate) struct Crew {
    keepers: JoinSet<Result<(), Failure>>,
    stop: watch::Sender<bool>,
    kills: watch::Receiver<u64>,
}

impl Crew {
    pub(crate) fn start(plan: &CrewPlan) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(
                Exit::Store,
                format!("starting workers: the path of this program is unknown: {error}"),
            )
        })?;
        let (stop, stopped) = watch::channel(false);
        let (killed, kills) = watch::channel(0);
        let mut keepers = JoinSet::new();
        let mut orders = Vec::new();
        for number in 1..=plan.workers {
            let (order, orders_of_one) = mpsc::channel(1);
            orders.push(order);
            let keeper = Keeper {
                program: program.clone(),
                plan: plan.clone(),
                name: format!("demo-{}-worker-{number}", std::process::id()),
                killed: killed.clone(),
            };
            keepers.spawn(keeper.keep(orders_of_one, stopped.clone()));
        }
        if !plan.kill_every.is_zero() {
            keepers.spawn(kill(plan.kill_every, Random::new(plan.seed), orders, stopped));
        }
        Ok(Self { keepers, stop, kills })
    }

    /// Returns the number of workers that were killed.
    pub(crate) fn kills(&self) -> watch::Receiver<u64> {
        self.kills.clone()
    }

    /// Returns the reason if the workers can't be kept alive.
    pub(crate) async fn trouble(&mut self) -> Failure {
        loop {
            match self.keepers.join_next().await {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(failure))) => return failure,
                Some(Err(error)) => return Failure::new(Exit::Store, format!("keeping workers: {error}")),
                None => std::future::pending().await,
            }
        }
    }

    /// Stops all workers, and waits for their end.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        while let Some(ended) = self.keepers.join_next().await {
            ended.map_err(|error| Failure::new(Exit::Store, format!("stopping workers: {error}")))??;
        }
        Ok(())
    }
}

/// Keeps one worker alive.
struct Keeper {
    program: PathBuf,
    plan: CrewPlan,
    name: String,
    killed: watch::Sender<u64>,
}

impl Keeper {
    async fn keep(
        self,
        mut orders: mpsc::Receiver<()>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let mut ends = 0;
        loop {
            let mut child = self.spawn()?;
            // Waiting for a child closes its input, unless that was taken.
            let input = child.stdin.take();
            tokio::select! { biased;
                () = stopped(&mut stop) => return self.end(child, input).await,
                status = child.wait() => {
                    ends += 1;
                    if ends == MOST_ENDS {
                        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                        let message = format!("{} ended {ends} times by itself, the last time with {status}", self.name);
                        return Err(Failure::new(Exit::Store, message));
                    }
                    sleep(Duration::from_millis(100)).await;
                }
                Some(()) = orders.recv() => {
                    child.kill().await.map_err(|error| self.failed("killing", &error))?;
                    self.killed.send_modify(|kills| *kills += 1);
                    ends = 0;
                }
            }
        }
    }

    fn spawn(&self) -> Result<Child, Failure> {
        let CrewPlan { store, failing, seed, .. } = &self.plan;
        Command::new(&self.program)
            .args(["worker", "--name", &self.name])
            .args(["--failing", &failing.to_string(), "--seed", &seed.to_string()])
            .env(STORE, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.failed("starting", &error))
    }

    /// Closes the worker's input, and waits for its end.
    async fn end(&self, mut child: Child, input: Option<ChildStdin>) -> Result<(), Failure> {
        drop(input);
        match timeout(GRACE + Duration::from_secs(1), child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                Err(Failure::new(Exit::Store, format!("stopping {}: it ended with {status}", self.name)))
            }
            Ok(Err(error)) => Err(self.failed("stopping", &error)),
            Err(_) => {
                Err(Failure::new(Exit::Store, format!("stopping {}: it did not end in time", self.name)))
            }
        }
    }

    fn failed(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::new(Exit::Store, format!("{doing} {}: {error}", self.name))
    }
}

/// Orders one kill in every period, at a random moment of it.
async fn kill(
    every: Duration,
    mut random: Random,
    workers: Vec<mpsc::Sender<()>>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut period = Instant::now();
    loop {
        tokio::select! { biased;
            () = stopped(&mut stop) => return Ok(()),
            () = sleep_until(period + random.part_of(every)) => {}
        }
        // A worker that is just being restarted can't be killed twice.
        let _ = workers[random.below(workers.len())].try_send(());
        period += every;
        tokio::select! { biased;
            () = stopped(&mut stop) => return Ok(()),
            () = sleep_until(period) => {}
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, which also means stop.
    let _ = stop.wait_for(|stop| *stop).await;
}
