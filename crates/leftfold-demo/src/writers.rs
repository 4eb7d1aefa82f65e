//! Writers: they append the events concurrently, and some of them twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use leftfold::{App, AppendError, Appended, Backoff, Expected, Store};
use leftfold_terminal::{Exit, Failure};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::event_plan::{AppendProgress, EventPlan, PlannedEvent, WriterEvents};
use crate::random::mix;

/// The number of appends of which one is sent twice at the same time, and one again later.
const TWICE: u64 = 50;

/// Appends everything. Returns the number of appends that were duplicates.
pub(crate) async fn append<S: Store>(
    app: &App<S>,
    plan: &EventPlan,
    appending: &Arc<AppendProgress>,
) -> Result<u64, Failure> {
    let mut writers = JoinSet::new();
    for number in 0..plan.writers {
        let writer = Writer {
            app: app.clone(),
            seed: plan.seed,
            open: plan.open(),
            appending: Arc::clone(appending),
            events: plan.share(number),
            duplicates: 0,
        };
        writers.spawn(writer.run());
    }
    let mut duplicates = 0;
    while let Some(ended) = writers.join_next().await {
        duplicates += ended
            .map_err(|error| Failure::new(Exit::Store, format!("appending: a writer ended: {error}")))??;
    }
    Ok(duplicates)
}

struct Writer<S> {
    app: App<S>,
    seed: u64,
    open: usize,
    appending: Arc<AppendProgress>,
    events: WriterEvents,
    duplicates: u64,
}

/// One append.
#[derive(Clone, Debug)]
struct Call {
    planned: PlannedEvent,
    /// `true` if it was sent before, or is being sent at the same time.
    again: bool,
}

impl<S: Store> Writer<S> {
    /// Appends in waves: all appends of a wave run concurrently, with at most one event per cart.
    async fn run(mut self) -> Result<u64, Failure> {
        let mut later: Vec<Call> = Vec::new();
        let mut first_of_next = None;
        loop {
            self.appending.gate().await;
            let mut wave = std::mem::take(&mut later);
            let mut streams = HashSet::new();
            while streams.len() < self.open {
                let Some(planned) = first_of_next.take().or_else(|| self.events.next()).transpose()? else {
                    break;
                };
                if !streams.insert(planned.stream.clone()) {
                    first_of_next = Some(Ok(planned));
                    break;
                }
                match self.luck(&planned) {
                    0 => wave.push(Call { planned: planned.clone(), again: true }),
                    1 => later.push(Call { planned: planned.clone(), again: true }),
                    _ => {}
                }
                wave.push(Call { planned, again: false });
            }
            if wave.is_empty() {
                return Ok(self.duplicates);
            }
            self.append_all(wave).await?;
        }
    }

    async fn append_all(&mut self, wave: Vec<Call>) -> Result<(), Failure> {
        let mut calls = JoinSet::new();
        for Call { planned, again } in wave {
            let app = self.app.clone();
            calls.spawn(async move { (again, append_one(&app, planned).await) });
        }
        while let Some(ended) = calls.join_next().await {
            let (again, answer) =
                ended.map_err(|error| Failure::new(Exit::Store, format!("appending: {error}")))?;
            if let Appended::Duplicate(_) = answer? {
                self.duplicates += 1;
            }
            self.appending.add(u64::from(!again));
        }
        Ok(())
    }

    fn luck(&self, planned: &PlannedEvent) -> u64 {
        planned.id.as_str().bytes().fold(self.seed, |hash, byte| mix(hash ^ u64::from(byte))) % TWICE
    }
}

/// Appends an event. Retries if the store is busy or the outcome is unknown: the event ids make
/// that harmless.
async fn append_one<S: Store>(app: &App<S>, planned: PlannedEvent) -> Result<Appended, AppendError> {
    let mut delays = Backoff::default().first(Duration::from_millis(20)).limit(10).delays(1);
    loop {
        let events = vec![planned.event.clone()];
        match app.append_events(planned.stream.as_str(), Expected::Any, events).await {
            Err(AppendError::Store(error)) if error.is_transient() => match delays.next() {
                Some(delay) => sleep(delay).await,
                None => return Err(error.into()),
            },
            answer => return answer,
        }
    }
}
