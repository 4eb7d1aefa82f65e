//! Measures reactions to documents that any program writes. A handler reads each document once.

mod peer;
pub(crate) mod processes;
pub(crate) mod profile;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use leftfold::react::{Context, Reaction, ReactionStore, Reactor, ReactorHandle};
use mongodb::options::FullDocumentType;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::sleep;

use self::peer::Peer;
use crate::report::{Figure, Result, float, median, percentile};
use crate::subject::Subject;
use crate::subject::mongodb::Databases;
use crate::subject::sqlite::Files;
use crate::traffic;

const DOCUMENTS: u64 = 20_000;
/// The number of concurrent handlers that suits Leftfold best. The reference has its own best
/// setting.
const AT_ONCE: usize = 512;
const PER_SECOND: u64 = 100;
const LATENCIES: u64 = 1_000;
const IDLE: Duration = Duration::from_secs(20);
/// The commands per second that mongodash sends when idle. `MOST_PER_TASK` is the limit per task.
const ITS_IDLE: f64 = 1.3;
const MOST_PER_TASK: f64 = 0.2;
/// The goal for tasks per second on SQLite.
const SQLITE_GOAL: f64 = 20_000.0;

#[derive(Deserialize)]
struct Order {
    number: u64,
}

/// A store in which other programs write plain documents.
pub(crate) trait Plain: Subject<Store: ReactionStore> {
    /// Creates the collection or table for the documents.
    async fn make(&self, place: &str) -> Result<()>;

    /// Writes `count` documents, numbered from `from`.
    async fn write(&self, place: &str, from: u64, count: u64) -> Result<()>;
}

impl Plain for Files {
    async fn make(&self, place: &str) -> Result<()> {
        let file = rusqlite::Connection::open(self.argument(place))?;
        file.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT)")?;
        Ok(())
    }

    async fn write(&self, place: &str, from: u64, count: u64) -> Result<()> {
        let path = self.argument(place);
        tokio::task::spawn_blocking(move || {
            let mut file = rusqlite::Connection::open(path)?;
            file.busy_timeout(Duration::from_secs(10))?;
            let transaction = file.transaction()?;
            {
                let mut insert = transaction.prepare("INSERT INTO orders VALUES (?1, ?2)")?;
                for number in from..from + count {
                    insert.execute((format!("o{number:07}"), format!(r#"{{"number":{number}}}"#)))?;
                }
            }
            Ok(transaction.commit()?)
        })
        .await?
    }
}

impl Plain for Databases {
    async fn make(&self, place: &str) -> Result<()> {
        Ok(self.database(place).create_collection("orders").await?)
    }

    async fn write(&self, place: &str, from: u64, count: u64) -> Result<()> {
        let orders = self.database(place).collection::<Document>("orders");
        let numbers: Vec<_> = (from..from + count).collect();
        for numbers in numbers.chunks(1_000) {
            let order =
                |number: &u64| doc! { "_id": format!("o{number:07}"), "number": number.cast_signed() };
            orders.insert_many(numbers.iter().map(order)).await?;
        }
        Ok(())
    }
}

/// The times at which documents were handled.
#[derive(Clone, Default)]
struct Handled {
    count: Arc<AtomicU64>,
    times: Arc<Mutex<Vec<(u64, Instant)>>>,
    more: Arc<Notify>,
}

impl Handled {
    fn reaction(&self) -> Reaction {
        let handled = self.clone();
        Reaction::on_plain("orders", "bench").concurrency(AT_ONCE).run(move |ctx: Context<Order>| {
            let handled = handled.clone();
            async move {
                let order = ctx.document().await?;
                handled
                    .times
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((order.number, Instant::now()));
                handled.count.fetch_add(1, Ordering::Relaxed);
                handled.more.notify_one();
                Ok(())
            }
        })
    }

    async fn are(&self, count: u64) {
        while self.count.load(Ordering::Relaxed) < count {
            self.more.notified().await;
        }
    }
}

/// A reactor that handles documents.
struct Run<R> {
    reacting: ReactorHandle<R>,
    handled: Handled,
}

impl<R: ReactionStore> Run<R> {
    /// Starts a reactor on an empty store.
    async fn start(subject: &impl Plain, place: &str, store: R) -> Result<Self> {
        subject.make(place).await?;
        let handled = Handled::default();
        let reactor = Reactor::on(store).concurrency(AT_ONCE).reaction(handled.reaction());
        let reacting = reactor.start().await?;
        reacting.idle().await?;
        Ok(Self { reacting, handled })
    }

    /// Writes the documents. Returns the time until the last one is handled and its task is done.
    async fn handle_all(&self, subject: &impl Plain, place: &str) -> Result<Duration> {
        let begun = Instant::now();
        subject.write(place, 0, DOCUMENTS).await?;
        self.handled.are(DOCUMENTS).await;
        while self.reacting.counts().done < DOCUMENTS {
            sleep(Duration::from_millis(1)).await;
        }
        let took = begun.elapsed();
        if self.handled.count.load(Ordering::Relaxed) != DOCUMENTS {
            return Err("some documents were handled twice".into());
        }
        Ok(took)
    }

    async fn stop(self) {
        self.reacting.stop(Duration::from_secs(10)).await;
    }
}

async fn start<S: Plain>(subject: &S, place: &str) -> Result<Run<S::Store>> {
    subject.remove(place).await?;
    Run::start(subject, place, subject.open(place).await?).await
}

/// Returns the tasks per second, from the first write until the last task is done.
async fn throughput<S: Plain>(subject: &S, place: &str) -> Result<f64> {
    let run = start(subject, place).await?;
    let took = run.handle_all(subject, place).await?;
    run.stop().await;
    Ok(float(DOCUMENTS) / took.as_secs_f64())
}

/// Returns the times from a write to its handler, in seconds, sorted.
async fn latencies<S: Plain>(subject: &S, place: &str) -> Result<Vec<f64>> {
    let run = start(subject, place).await?;
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    let mut written = Vec::new();
    for number in 0..LATENCIES {
        tick.tick().await;
        written.push(Instant::now());
        subject.write(place, number, 1).await?;
    }
    run.handled.are(LATENCIES).await;
    let handled = run.handled.clone();
    run.stop().await;
    let times = handled.times.lock().unwrap_or_else(PoisonError::into_inner);
    let took = |(number, at): &(u64, Instant)| {
        let written = usize::try_from(*number).ok().and_then(|number| written.get(number));
        written.map(|written| at.duration_since(*written).as_secs_f64())
    };
    let mut took: Vec<_> = times.iter().filter_map(took).collect();
    took.sort_by(f64::total_cmp);
    Ok(took)
}

pub(crate) async fn on_sqlite(files: &Files, rounds: usize) -> Result<Vec<Figure>> {
    let place = "react";
    let mut ours = Vec::new();
    for round in 1..=rounds {
        eprintln!("reactions, {DOCUMENTS} documents, round {round} of {rounds} …");
        ours.push(throughput(files, place).await?);
    }
    eprintln!("reactions, {LATENCIES} documents at {PER_SECOND} a second …");
    let took = latencies(files, place).await?;
    let bare = {
        let begun = Instant::now();
        files.write(place, LATENCIES, 1).await?;
        begun.elapsed().as_secs_f64()
    };
    files.remove(place).await?;
    let name = format!("tasks per second ({SQLITE_GOAL})");
    let mut figures = vec![Figure::more(name, median(ours), SQLITE_GOAL, Some(1.0))];
    for percent in [50, 99] {
        let name = format!("write → handler, p{percent}, ms (a bare write)");
        figures.push(Figure::less(name, percentile(&took, percent) * 1e3, bare * 1e3, None));
    }
    figures.extend(processes::measure(files, rounds).await?);
    Ok(figures)
}

pub(crate) async fn on_mongodb(databases: &Databases, rounds: usize) -> Result<Vec<Figure>> {
    let place = "react";
    let installed = Peer::install().await?;
    let (mut ours, mut bare, mut sent, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("reactions, {DOCUMENTS} documents, round {round} of {rounds} …");
        bare.push(bare_throughput(databases, place).await?);
        theirs.push(Peer::measure(databases, installed.path()).await?);
        let before = traffic::commands(databases).await?;
        ours.push(throughput(databases, place).await?);
        let commands = traffic::sent_since(databases, &before, "reactions").await?;
        // The commands that write the documents do not count.
        sent.push(float(commands - DOCUMENTS.div_ceil(1_000)) / float(DOCUMENTS));
    }
    eprintln!("reactions, {LATENCIES} documents at {PER_SECOND} a second …");
    let reference = bare_latencies(databases, place).await?;
    let took = latencies(databases, place).await?;
    eprintln!("reactions, idle …");
    let run = start(databases, place).await?;
    sleep(Duration::from_secs(2)).await;
    let before = traffic::commands(databases).await?;
    sleep(IDLE).await;
    let idle = float(traffic::sent_since(databases, &before, "idle").await?) / IDLE.as_secs_f64();
    run.stop().await;
    databases.remove(place).await?;
    let ours = median(ours);
    let its = median(theirs.iter().map(|peer| peer.tasks_per_second).collect());
    let name = "tasks per second (a bare change stream with one read per document)";
    let mut figures = vec![
        Figure::more("tasks per second (mongodash)", ours, its, Some(10.0)),
        Figure::more(name, ours, median(bare), None),
        Figure::less("commands per task (0.2)", median(sent), MOST_PER_TASK, Some(1.0)),
    ];
    for percent in [50, 99] {
        let name = format!("write → handler, p{percent}, ms (a bare change stream)");
        let (ours, bare) = (percentile(&took, percent), percentile(&reference, percent));
        figures.push(Figure::less(name, ours * 1e3, bare * 1e3, None));
        let its = median(theirs.iter().map(|peer| percentile(&peer.latencies, percent)).collect());
        let name = format!("write → handler, p{percent}, ms (mongodash)");
        figures.push(Figure::less(name, ours * 1e3, its, Some(1.0)));
    }
    figures.push(Figure::less("commands per second, idle (1.3)", idle, ITS_IDLE, Some(1.0)));
    figures.extend(processes::measure(databases, rounds).await?);
    Ok(figures)
}

/// Returns the documents per second of a bare change stream with one read per document.
async fn bare_throughput(databases: &Databases, place: &str) -> Result<f64> {
    databases.remove(place).await?;
    databases.make(place).await?;
    let orders = databases.database(place).collection::<Document>("orders");
    let mut stream = orders.watch().await?;
    let begun = Instant::now();
    databases.write(place, 0, DOCUMENTS).await?;
    let mut heard = 0;
    while heard < DOCUMENTS {
        let Some(event) = stream.next_if_any().await? else { continue };
        let key = event.document_key.ok_or("a change without a document")?;
        orders.find_one(key).await?.ok_or("a document is gone")?;
        heard += 1;
    }
    Ok(float(DOCUMENTS) / begun.elapsed().as_secs_f64())
}

/// Returns the times from a write until a change stream returns the document, in seconds, sorted.
async fn bare_latencies(databases: &Databases, place: &str) -> Result<Vec<f64>> {
    databases.remove(place).await?;
    databases.make(place).await?;
    let orders = databases.database(place).collection::<Document>("orders");
    let mut stream = orders.watch().full_document(FullDocumentType::UpdateLookup).await?;
    let listening = tokio::spawn(async move {
        let mut heard = Vec::new();
        while (heard.len() as u64) < LATENCIES {
            if stream.next_if_any().await?.is_some() {
                heard.push(Instant::now());
            }
        }
        Ok::<_, mongodb::error::Error>(heard)
    });
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    let mut written = Vec::new();
    for number in 0..LATENCIES {
        tick.tick().await;
        written.push(Instant::now());
        databases.write(place, number, 1).await?;
    }
    let heard = listening.await??;
    let mut took: Vec<_> = written
        .iter()
        .zip(heard)
        .map(|(written, heard)| heard.duration_since(*written).as_secs_f64())
        .collect();
    took.sort_by(f64::total_cmp);
    Ok(took)
}
