//! One run of a reactor, and its throughput and latencies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leftfold::react::{Context, Reaction, ReactionStore, Reactor, ReactorHandle};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::documents::{ExternalDocuments, Order};
use crate::report::{Result, float};

pub(super) const DOCUMENTS: u64 = 20_000;
/// The number of concurrent handlers that suits Leftfold best. The reference has its own best
/// setting.
const AT_ONCE: usize = 512;
pub(super) const PER_SECOND: u64 = 100;
pub(super) const LATENCIES: u64 = 1_000;

/// The times at which documents were handled.
#[derive(Clone, Default)]
pub(super) struct Handled {
    pub(super) count: Arc<AtomicU64>,
    pub(super) times: Arc<Mutex<Vec<(u64, Instant)>>>,
    pub(super) more: Arc<Notify>,
}

impl Handled {
    pub(super) fn reaction(&self) -> Reaction {
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

    pub(super) async fn are(&self, count: u64) {
        while self.count.load(Ordering::Relaxed) < count {
            self.more.notified().await;
        }
    }
}

/// A reactor that handles documents.
pub(super) struct Run<R> {
    pub(super) reacting: ReactorHandle<R>,
    pub(super) handled: Handled,
}

impl<R: ReactionStore> Run<R> {
    /// Starts a reactor on an empty store.
    pub(super) async fn start(subject: &impl ExternalDocuments, place: &str, store: R) -> Result<Self> {
        subject.make(place).await?;
        let handled = Handled::default();
        let reactor = Reactor::on(store).concurrency(AT_ONCE).reaction(handled.reaction());
        let reacting = reactor.start().await?;
        reacting.idle().await?;
        Ok(Self { reacting, handled })
    }

    /// Writes the documents. Returns the time until the last one is handled and its task is done.
    pub(super) async fn handle_all(&self, subject: &impl ExternalDocuments, place: &str) -> Result<Duration> {
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

    pub(super) async fn stop(self) {
        self.reacting.stop(Duration::from_secs(10)).await;
    }
}

pub(super) async fn start<S: ExternalDocuments>(subject: &S, place: &str) -> Result<Run<S::Store>> {
    subject.remove(place).await?;
    Run::start(subject, place, subject.open(place).await?).await
}

/// Returns the tasks per second, from the first write until the last task is done.
pub(super) async fn throughput<S: ExternalDocuments>(subject: &S, place: &str) -> Result<f64> {
    let run = start(subject, place).await?;
    let took = run.handle_all(subject, place).await?;
    run.stop().await;
    Ok(float(DOCUMENTS) / took.as_secs_f64())
}

/// Returns the times from a write to its handler, in seconds, sorted.
pub(super) async fn latencies<S: ExternalDocuments>(subject: &S, place: &str) -> Result<Vec<f64>> {
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
