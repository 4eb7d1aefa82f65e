//! Measurements that need several processes: takeover from a killed process, and memory while many
//! tasks are due.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use leftfold::react::{Context, Reaction, ReactionStore, Reactor, State};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{ExternalDocuments, Handled, Order};
use crate::catch_up::{Cost, peak_bytes};
use crate::report::{Measurement, Result, float};

/// The limit for replacing a killed process, in seconds.
const TAKEOVER: f64 = 5.0;
/// The numbers of due tasks for the memory measurement.
const DUE: [u64; 2] = [100_000, 1_000_000];
/// The number of due tasks to run.
const RUNS: u64 = 20_000;
/// The number of documents per write.
const PIECE: u64 = 10_000;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Plans and runs nothing.
    Plan,
    /// Runs tasks and never finishes them.
    Hang,
    /// Waits until `count` tasks are due, runs some of them and prints the cost.
    Due,
}

/// A process that reports when it is ready.
struct ReactorProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ReactorProcess {
    fn start(store: &str, role: Role, count: u64) -> Result<Self> {
        let role = role.to_possible_value().ok_or("the role has no command-line name")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["react-as", store, role.get_name(), &count.to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("the process has no standard output")?).lines();
        Ok(Self { child, lines })
    }

    async fn next_line(&mut self) -> Result<String> {
        Ok(self.lines.next_line().await?.ok_or("a process ended before it printed a line")?)
    }
}

pub(super) async fn measure<S: ExternalDocuments>(subject: &S, rounds: usize) -> Result<Vec<Measurement>> {
    let (mut planners, mut workers) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("reactions, processes that are killed, round {round} of {rounds} …");
        planners.push(from_planner(subject).await?);
        workers.push(from_worker(subject).await?);
    }
    let worst = |seconds: Vec<f64>| seconds.into_iter().fold(0.0, f64::max);
    let mut measurements = vec![
        Measurement::less(
            "takeover from a killed planner, worst, s (5)",
            worst(planners),
            TAKEOVER,
            Some(1.0),
        ),
        Measurement::less("takeover from a killed worker, worst, s (5)", worst(workers), TAKEOVER, Some(1.0)),
    ];
    let mut peaks = Vec::new();
    for count in DUE {
        eprintln!("reactions, {count} due tasks …");
        peaks.push(while_due(subject, count).await?.peak_bytes);
    }
    let name = format!("peak memory while {} tasks are due, MB ({} tasks)", DUE[1], DUE[0]);
    measurements.push(Measurement::less(name, float(peaks[1]) / 1e6, float(peaks[0]) / 1e6, Some(0.8)));
    Ok(measurements)
}

/// Returns the seconds from killing a planner until a document is handled.
async fn from_planner<S: ExternalDocuments>(subject: &S) -> Result<f64> {
    let place = "react-planner";
    subject.remove(place).await?;
    let store = subject.open(place).await?;
    subject.make(place).await?;
    let mut planner = ReactorProcess::start(&subject.argument(place), Role::Plan, 0)?;
    planner.next_line().await?;
    let handled = Handled::default();
    let reacting = Reactor::on(store).reaction(handled.reaction()).start().await?;
    subject.write(place, 0, 1).await?;
    handled.are(1).await;
    planner.child.kill().await?;
    let begun = Instant::now();
    subject.write(place, 1, 1).await?;
    handled.are(2).await;
    let took = begun.elapsed().as_secs_f64();
    reacting.stop(Duration::from_secs(5)).await;
    subject.remove(place).await?;
    Ok(took)
}

/// Returns the seconds from killing a worker with a running task until another worker runs it.
async fn from_worker<S: ExternalDocuments>(subject: &S) -> Result<f64> {
    let place = "react-worker";
    subject.remove(place).await?;
    let store = subject.open(place).await?;
    subject.make(place).await?;
    let handled = Handled::default();
    let nothing: [&str; 0] = [];
    let planner = Reactor::on(store.clone()).reaction(handled.reaction()).runs(nothing).start().await?;
    let mut worker = ReactorProcess::start(&subject.argument(place), Role::Hang, 0)?;
    worker.next_line().await?;
    subject.write(place, 0, 1).await?;
    worker.next_line().await?;
    let reacting = Reactor::on(store).reaction(handled.reaction()).start().await?;
    worker.child.kill().await?;
    let begun = Instant::now();
    handled.are(1).await;
    let took = begun.elapsed().as_secs_f64();
    for one in [planner, reacting] {
        one.stop(Duration::from_secs(5)).await;
    }
    subject.remove(place).await?;
    Ok(took)
}

/// Returns the cost of a process while `count` tasks are due.
async fn while_due<S: ExternalDocuments>(subject: &S, count: u64) -> Result<Cost> {
    let place = "react-due";
    subject.remove(place).await?;
    drop(subject.open(place).await?);
    subject.make(place).await?;
    let mut process = ReactorProcess::start(&subject.argument(place), Role::Due, count)?;
    process.next_line().await?;
    for from in (0..count).step_by(usize::try_from(PIECE)?) {
        subject.write(place, from, PIECE.min(count - from)).await?;
    }
    let cost = serde_json::from_str(&process.next_line().await?)?;
    subject.remove(place).await?;
    Ok(cost)
}

/// Runs a role in this process.
pub(crate) async fn run_role(store: &str, role: Role, count: u64) -> Result<()> {
    if store.starts_with("mongodb") {
        run_role_on(leftfold_mongodb::Mongo::connect(store).await?, role, count).await
    } else {
        run_role_on(leftfold_sqlite::Sqlite::open(store).await?, role, count).await
    }
}

async fn run_role_on<S: ReactionStore>(store: S, role: Role, count: u64) -> Result<()> {
    let handled = Handled::default();
    let reactor = Reactor::on(store);
    let begun = Arc::new(Notify::new());
    let nothing: [&str; 0] = [];
    let reacting = match role {
        Role::Plan => reactor.reaction(handled.reaction()).runs(nothing).start().await?,
        Role::Hang => reactor.reaction(hangs(&begun)).plans(false).start().await?,
        Role::Due => {
            let reacting = reactor.reaction(handled.reaction()).start().await?;
            reacting.pause("bench").await?;
            reacting
        }
    };
    print_line("ready")?;
    match role {
        Role::Plan => std::future::pending().await,
        Role::Hang => {
            begun.notified().await;
            print_line("running")?;
            std::future::pending().await
        }
        Role::Due => {
            let is_due = async || {
                let depths = reacting.depths().await?;
                let pending =
                    depths.get("bench").and_then(|depth| depth.states.get(&State::Pending).copied());
                Ok::<_, leftfold::Error>(pending == Some(count))
            };
            while !is_due().await? {
                sleep(Duration::from_secs(1)).await;
            }
            let resumed = Instant::now();
            reacting.resume("bench").await?;
            handled.are(RUNS.min(count)).await;
            let cost = Cost { seconds: resumed.elapsed().as_secs_f64(), peak_bytes: peak_bytes()? };
            print_line(&serde_json::to_string(&cost)?)
        }
    }
}

fn hangs(begun: &Arc<Notify>) -> Reaction {
    let begun = Arc::clone(begun);
    Reaction::on_plain("orders", "bench").run(move |_: Context<Order>| {
        begun.notify_one();
        std::future::pending()
    })
}

fn print_line(what: &str) -> Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}
