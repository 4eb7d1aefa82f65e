//! `leftfold demo`: many events, workers that are killed repeatedly, and folds that fail. At the
//! end it checks every document against an independent fold of the log.

mod feeds;
mod flaky;
mod mending;
mod progress;
mod random;
mod report;
mod task;
mod verify;
mod workers;
mod writers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leftfold::log::Limit;
use leftfold::{App, Env as _, Partition, Position, Sequences, Store, System};
use serde::Serialize;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use self::feeds::Chaos;
use self::mending::Mending;
use self::progress::Progress;
use self::report::Report;
use self::task::{Task, Writing};
pub(crate) use self::workers::work;
use self::workers::{Crew, Plan};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::{Out, count};
use crate::place::{File, Place};

/// The time without progress after which a projection is stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs the demo on a permanent store.
pub(crate) async fn run<P: Place>(place: &P, args: &args::Demo, out: &mut Out) -> Result<Exit, Failure> {
    let mut report = play_until_interrupted(place, args).await?;
    report.store = Some(place.to_string());
    answer(&report, out)
}

/// Runs the demo on a temporary file.
pub(crate) async fn run_for_once(args: &args::Demo, out: &mut Out) -> Result<Exit, Failure> {
    let scratch = Scratch::new()?;
    let report = play_until_interrupted(&scratch.file, args).await;
    scratch.clear().await;
    answer(&report?, out)
}

async fn play_until_interrupted<P: Place>(place: &P, args: &args::Demo) -> Result<Report, Failure> {
    tokio::select! { biased;
        () = interrupted() => {
            Err(Failure::new(Exit::Interrupted, "interrupted; the workers are stopped"))
        }
        report = play(place, args) => report,
    }
}

fn answer(report: &Report, out: &mut Out) -> Result<Exit, Failure> {
    report.print(out)?;
    Ok(if report.equal { Exit::Done } else { Exit::No })
}

/// Compares every document of a store with an independent fold of its log.
pub(crate) async fn verify<P: Place>(place: &P, out: &mut Out) -> Result<Exit, Failure> {
    let app = Models::Shop.open_existing(place).await?;
    let verdict = verify::verify(app.store()).await?;
    out.value(&verdict)?;
    report::print_verdict(&verdict, out)?;
    Ok(if verdict.equal { Exit::Done } else { Exit::No })
}

/// Runs the demo. Dropping the future ends the workers.
async fn play<P: Place>(place: &P, args: &args::Demo) -> Result<Report, Failure> {
    let app = Models::Shop.open(place).await?;
    let begin = Begin::of(&app, place).await?;
    let before = app.status().await?;
    let seed = args.seed.unwrap_or_else(|| System.random() & 0xffff_ffff);
    let task = Task { events: args.events, writers: args.writers, seed, prefix: begin.prefix() };
    let plan = Plan {
        store: place.argument(),
        workers: args.workers,
        kill_every: args.kill_every,
        failing: args.failing,
        seed,
    };
    let writing = Arc::new(Writing::of(&task));
    let mut mending = Mending::default();
    let clock = Instant::now();
    let mut crew = Crew::start(&plan)?;
    let kills = crew.kills();
    let progress = Progress::new(args.events, begin.events);
    let feeding = tokio::select! { biased;
        failure = crew.trouble() => return Err(failure),
        failure = progress.follow(&app, &writing, &kills) => return Err(failure),
        done = fold_all(&app, args, &task, &writing, &kills, &progress, &mut mending) => done?,
    };
    let took = clock.elapsed();
    crew.stop().await?;
    progress.say("checking every document");
    let verdict = verify::verify(app.store()).await?;
    progress.end();
    let mut report =
        Report::new(args, seed, took, (&before, &app.status().await?), &mending, feeding, verdict);
    report.appended = writing.appended();
    report.kills = *kills.borrow();
    report.judge(begin.events);
    Ok(report)
}

/// The way in which the events reached the log.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Feeding {
    /// Through unreliable feeds.
    Chaos(Chaos),
    /// By appends, some of them twice.
    Orderly {
        /// Repeated appends with the same event ids that were recognized as duplicates.
        duplicates: u64,
    },
}

/// Appends and folds everything. Repairs failures twice: midway beside the workers, and at the end.
async fn fold_all<S: Store + Sequences>(
    app: &App<S>,
    args: &args::Demo,
    task: &Task,
    writing: &Arc<Writing>,
    kills: &watch::Receiver<u64>,
    progress: &Progress,
    mending: &mut Mending,
) -> Result<Feeding, Failure> {
    let how = if args.chaos { "delivering twice, out of order or not at all" } else { "appending" };
    progress.say(&format!(
        "{how}: {} while {} fold",
        count(args.events, "event"),
        count(args.workers, "worker")
    ));
    let half_time = async {
        let _ = kills.clone().wait_for(|kills| *kills > 0 || args.kill_every.is_zero()).await;
        writing.go_on();
        while !writing.is_half_done() {
            sleep(Duration::from_millis(10)).await;
        }
        mending.mend(app).await
    };
    let feed = async {
        if args.chaos {
            feeds::bring(app, task, writing).await.map(Feeding::Chaos)
        } else {
            let duplicates = writers::write(app, task, writing).await?;
            Ok(Feeding::Orderly { duplicates })
        }
    };
    let (feeding, half_time) = tokio::join!(feed, half_time);
    let (feeding, _) = (feeding?, half_time?);
    caught_up(app).await?;
    mending.look(app).await?;
    progress.say(&mending.found());
    mending.mend_all(app).await?;
    caught_up(app).await?;
    Ok(feeding)
}

/// Waits until everything is folded or parked. Fails without progress.
async fn caught_up<S: Store>(app: &App<S>) -> Result<(), Failure> {
    let mut before = Vec::new();
    loop {
        if let Ok(done) = timeout(PATIENCE, app.caught_up()).await {
            return Ok(done?);
        }
        let all = app.status().await?;
        let now: Vec<_> = all.iter().map(|status| status.position.clone()).collect();
        if now == before {
            let lines: Vec<_> =
                all.iter().map(|status| format!("{} is {} behind", status.projection, status.lag)).collect();
            let seconds = PATIENCE.as_secs();
            let message = format!("folding: nothing moved for {seconds} seconds: {}", lines.join(", "));
            return Err(Failure::new(Exit::Store, message));
        }
        before = now;
    }
}

/// The content of the store when the demo began.
struct Begin {
    events: u64,
    head: Position,
}

impl Begin {
    /// Reads the log, which must be empty or from a demo.
    async fn of<S: Store>(app: &App<S>, place: &impl Place) -> Result<Self, Failure> {
        let foreign = || {
            let message =
                format!("running the demo on {place}: its log is not a demo's; name a new file or database");
            Failure::new(Exit::Usage, message)
        };
        let store = app.store();
        if store.partitions() != 1 {
            return Err(foreign());
        }
        let first = store.read(Partition(0), Position(0), Limit { events: 1, bytes: 0 }).await?;
        let Some(first) = first.events.first() else { return Ok(Self { events: 0, head: Position(0) }) };
        let of_a_demo = first.stream.as_str().starts_with("cart-")
            && first.id.as_str() == format!("{}-1", first.stream)
            && first.kind.as_str() == "shopping-cart-opened";
        if !of_a_demo {
            return Err(foreign());
        }
        // The log has one partition without gaps, so the last position is the number of events.
        let head = store.heads().await?.position(Partition(0));
        Ok(Self { events: head.0, head })
    }

    /// Distinguishes the carts of this run from earlier ones: each run finds another end of the
    /// log.
    fn prefix(&self) -> String {
        if self.head == Position(0) { String::new() } else { format!("after-{}-", self.head) }
    }
}

/// A temporary file.
struct Scratch {
    file: File,
    directory: TempDir,
}

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("leftfold-demo-").tempdir().map_err(|error| {
            let message = format!("making a temporary directory: {error}; name a file with --store");
            Failure::new(Exit::Store, message)
        })?;
        Ok(Self { file: File(directory.path().join("demo.db")), directory })
    }

    /// Deletes the directory, even while a killed worker is still ending.
    async fn clear(self) {
        let directory = self.directory.keep();
        for _ in 0..100 {
            match std::fs::remove_dir_all(&directory) {
                Ok(()) => return,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Waits for a signal to end the demo.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
