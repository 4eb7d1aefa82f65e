//! Writers: they append the workload, several at the same time, and some of it twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leftfold::{App, AppendError, Appended, Backoff, EventId, Expected, NewEvent, Store, StreamId};
use shopping_cart::workload::{Appends, Order, Workload};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::random::mix;
use crate::exit::{Exit, Failure};

/// How many carts a writer has open at the most, and so how many appends it has under way.
const MOST_OPEN: u64 = 128;
const EVENTS_PER_CART: u32 = 10;
/// One append in so many is made twice at the same time, and one again later.
const TWICE: u64 = 50;

/// What is to be written.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) events: u64,
    pub(super) writers: u64,
    pub(super) seed: u64,
    /// What tells the carts of this run from those of earlier ones.
    pub(super) prefix: String,
}

/// How far the writers are.
#[derive(Debug, Default)]
pub(super) struct Written {
    appended: AtomicU64,
    /// Appends that were answered as already done.
    duplicates: AtomicU64,
}

impl Written {
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }
}

/// Appends everything. The second half begins when `go_on` says so: a small demo, too, should see a worker killed.
pub(super) async fn write<S: Store>(
    app: &App<S>,
    task: &Task,
    written: &Arc<Written>,
    go_on: &watch::Receiver<bool>,
) -> Result<(), Failure> {
    let each = task.events.div_ceil(task.writers);
    // More carts than are needed, so that some are still open at the end.
    let carts = task.writers * (each.div_ceil(EVENTS_PER_CART.into()) + each / 100 + 1);
    let open = usize::try_from((each / 40).clamp(1, MOST_OPEN)).unwrap_or(1);
    let order = Order::Interleaved { open };
    let workload = Workload::new(task.seed, carts, EVENTS_PER_CART).order(order);
    let mut left = task.events;
    let mut writers = JoinSet::new();
    for number in 0..task.writers {
        let events = each.min(left);
        left -= events;
        let writer = Writer {
            app: app.clone(),
            task: task.clone(),
            written: Arc::clone(written),
            go_on: go_on.clone(),
            left: events,
            open,
            appends: workload.clone().share(number, task.writers).into_iter(),
        };
        writers.spawn(writer.run());
    }
    while let Some(ended) = writers.join_next().await {
        ended.map_err(|error| Failure::new(Exit::Store, format!("appending: a writer ended: {error}")))??;
    }
    Ok(())
}

struct Writer<S> {
    app: App<S>,
    task: Task,
    written: Arc<Written>,
    go_on: watch::Receiver<bool>,
    /// How many events it has still to append.
    left: u64,
    open: usize,
    appends: Appends,
}

/// One append.
#[derive(Clone, Debug)]
struct Call {
    stream: StreamId,
    events: Vec<NewEvent>,
    /// It was made before, or is being made at the same time.
    again: bool,
}

impl<S: Store> Writer<S> {
    /// Appends in waves: all of a wave at once, and never two events of a cart in one.
    async fn run(mut self) -> Result<(), Failure> {
        let mut later: Vec<Call> = Vec::new();
        let mut first_of_next = None;
        loop {
            if self.written.appended() >= self.task.events / 2 {
                let _ = self.go_on.wait_for(|go| *go).await;
            }
            let mut wave = std::mem::take(&mut later);
            let mut streams = HashSet::new();
            while streams.len() < self.open {
                let Some(call) = first_of_next.take().or_else(|| self.next().transpose()).transpose()? else {
                    break;
                };
                if !streams.insert(call.stream.clone()) {
                    first_of_next = Some(Ok(call));
                    break;
                }
                match self.luck(&call) {
                    0 => wave.push(Call { again: true, ..call.clone() }),
                    1 => later.push(Call { again: true, ..call.clone() }),
                    _ => {}
                }
                wave.push(call);
            }
            if wave.is_empty() {
                return Ok(());
            }
            self.append_all(wave).await?;
        }
    }

    async fn append_all(&self, wave: Vec<Call>) -> Result<(), Failure> {
        let mut calls = JoinSet::new();
        for call in wave {
            let app = self.app.clone();
            calls.spawn(async move { (call.again, append(&app, call).await) });
        }
        while let Some(ended) = calls.join_next().await {
            let (again, answer) =
                ended.map_err(|error| Failure::new(Exit::Store, format!("appending: {error}")))?;
            if let Appended::Duplicate(_) = answer? {
                self.written.duplicates.fetch_add(1, Ordering::Relaxed);
            }
            self.written.appended.fetch_add(u64::from(!again), Ordering::Relaxed);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Call>, Failure> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let Some((stream, mut events)) = self.appends.next() else { return Ok(None) };
        self.left = left;
        let prefix = &self.task.prefix;
        for event in &mut events {
            if let Some(id) = &event.id {
                event.id = Some(EventId::new(format!("{prefix}{id}"))?);
            }
        }
        Ok(Some(Call { stream: StreamId::new(format!("{prefix}{stream}"))?, events, again: false }))
    }

    fn luck(&self, call: &Call) -> u64 {
        let id = call.events.first().and_then(|event| event.id.as_ref()).map_or("", EventId::as_str);
        id.bytes().fold(self.task.seed, |hash, byte| mix(hash ^ u64::from(byte))) % TWICE
    }
}

/// Appends; where the store is busy, or can't tell whether it did, again: the event ids make that harmless.
async fn append<S: Store>(app: &App<S>, call: Call) -> Result<Appended, AppendError> {
    let mut delays = Backoff::default().first(Duration::from_millis(20)).limit(10).delays(1);
    loop {
        let answer = app.append_events(call.stream.as_str(), Expected::Any, call.events.clone()).await;
        match answer {
            Err(AppendError::Store(error)) if error.is_transient() => match delays.next() {
                Some(delay) => sleep(delay).await,
                None => return Err(error.into()),
            },
            answer => return answer,
        }
    }
}
