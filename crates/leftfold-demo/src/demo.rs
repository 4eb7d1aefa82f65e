//! The run of the demo: it appends and folds events, repairs failures, and checks every document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leftfold::log::Limit;
use leftfold::{App, Env as _, Partition, Position, Sequences, Store, System};
use leftfold_terminal::{Exit, Failure, Location, count};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::args::DemoArgs;
use crate::event_plan::{AppendProgress, EventPlan};
use crate::feeds::{self, Chaos};
use crate::progress::Progress;
use crate::repairs::Repairs;
use crate::report::Report;
use crate::workers::{Crew, CrewPlan};
use crate::{shop, verify, writers};

/// The time without progress after which a projection is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Runs the demo on a store, until it ends or is interrupted.
pub(crate) async fn run(location: &impl Location, args: &DemoArgs) -> Result<Report, Failure> {
    tokio::select! { biased;
        () = interrupted() => {
            Err(Failure::new(Exit::Interrupted, "interrupted; the workers are stopped"))
        }
        report = play(location, args) => report,
    }
}

/// Runs the demo. Dropping the future ends the workers.
async fn play(location: &impl Location, args: &DemoArgs) -> Result<Report, Failure> {
    let store = location.open().await?;
    let begin = Begin::of(&store, location).await?;
    let app = shop::open(store).await?;
    let before = app.status().await?;
    let seed = args.seed.unwrap_or_else(|| System.random() & 0xffff_ffff);
    let events = EventPlan { events: args.events, writers: args.writers, seed, prefix: begin.prefix() };
    let crew = CrewPlan {
        store: location.argument(),
        workers: args.workers,
        kill_every: args.kill_every,
        failing: args.failing,
        seed,
    };
    let appending = Arc::new(AppendProgress::of(&events));
    let mut repairs = Repairs::default();
    let clock = Instant::now();
    let mut crew = Crew::start(&crew)?;
    let kills = crew.kills();
    let progress = Progress::new(args.events, begin.events);
    let feeding = tokio::select! { biased;
        failure = crew.trouble() => return Err(failure),
        failure = progress.follow(&app, &appending, &kills) => return Err(failure),
        done = fold_all(&app, args, &events, &appending, &kills, &progress, &mut repairs) => done?,
    };
    let took = clock.elapsed();
    crew.stop().await?;
    progress.say("checking every document");
    let verdict = verify::verify(app.store()).await?;
    progress.end();
    let mut report =
        Report::new(args, seed, took, (&before, &app.status().await?), &repairs, feeding, verdict);
    report.appended = appending.appended();
    report.kills = *kills.borrow();
    report.judge(begin.events);
    Ok(report)
}

/// The way in which the events reached the log.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Feeding {
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
    args: &DemoArgs,
    events: &EventPlan,
    appending: &Arc<AppendProgress>,
    kills: &watch::Receiver<u64>,
    progress: &Progress,
    repairs: &mut Repairs,
) -> Result<Feeding, Failure> {
    let how = if args.chaos { "delivering twice, out of order or not at all" } else { "appending" };
    progress.say(&format!(
        "{how}: {} while {} fold",
        count(args.events, "event"),
        count(args.workers, "worker")
    ));
    let half_time = async {
        let _ = kills.clone().wait_for(|kills| *kills > 0 || args.kill_every.is_zero()).await;
        appending.go_on();
        while !appending.is_half_done() {
            sleep(Duration::from_millis(10)).await;
        }
        repairs.retry_all(app).await
    };
    let feed = async {
        if args.chaos {
            feeds::deliver(app, events, appending).await.map(Feeding::Chaos)
        } else {
            let duplicates = writers::append(app, events, appending).await?;
            Ok(Feeding::Orderly { duplicates })
        }
    };
    let (feeding, ()) = tokio::try_join!(feed, half_time)?;
    caught_up(app).await?;
    repairs.count_parked(app).await?;
    progress.say(&repairs.describe());
    repairs.retry_until_none(app).await?;
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
            let message = format!("folding: no progress for {seconds} seconds: {}", lines.join(", "));
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
    async fn of(store: &impl Store, location: &impl Location) -> Result<Self, Failure> {
        let foreign = || {
            let message = format!(
                "running the demo on {location}: its log is not a demo's; name a new file or database"
            );
            Failure::new(Exit::Usage, message)
        };
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
