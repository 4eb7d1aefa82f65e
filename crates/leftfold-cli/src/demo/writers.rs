//! Writers: they append the workload concurrently, and some of it twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use leftfold::{App, AppendError, Appended, Backoff, Expected, Store};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::random::mix;
use super::task::{Share, Task, Writing, Written};
use crate::exit::{Exit, Failure};

/// The number of appends of which one is sent twice at the same time, and one again later.
const TWICE: u64 = 50;

/// Appends everything. Returns the number of appends that were duplicates.
pub(super) async fn write<S: Store>(
    app: &App<S>,
    task: &Task,
    writing: &Arc<Writing>,
) -> Result<u64, Failure> {
    let mut writers = JoinSet::new();
    for number in 0..task.writers {
        let writer = Writer {
            app: app.clone(),
            seed: task.seed,
            open: task.open(),
            writing: Arc::clone(writing),
            share: task.share(number),
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
    writing: Arc<Writing>,
    share: Share,
    duplicates: u64,
}

/// One append.
#[derive(Clone, Debug)]
struct Call {
    written: Written,
    /// `true` if it was sent before, or is being sent at the same time.
    again: bool,
}

impl<S: Store> Writer<S> {
    /// Appends in waves: all appends of a wave run concurrently, with at most one event per cart.
    async fn run(mut self) -> Result<u64, Failure> {
        let mut later: Vec<Call> = Vec::new();
        let mut first_of_next = None;
        loop {
            self.writing.gate().await;
            let mut wave = std::mem::take(&mut later);
            let mut streams = HashSet::new();
            while streams.len() < self.open {
                let Some(written) = first_of_next.take().or_else(|| self.share.next()).transpose()? else {
                    break;
                };
                if !streams.insert(written.stream.clone()) {
                    first_of_next = Some(Ok(written));
                    break;
                }
                match self.luck(&written) {
                    0 => wave.push(Call { written: written.clone(), again: true }),
                    1 => later.push(Call { written: written.clone(), again: true }),
                    _ => {}
                }
                wave.push(Call { written, again: false });
            }
            if wave.is_empty() {
                return Ok(self.duplicates);
            }
            self.append_all(wave).await?;
        }
    }

    async fn append_all(&mut self, wave: Vec<Call>) -> Result<(), Failure> {
        let mut calls = JoinSet::new();
        for Call { written, again } in wave {
            let app = self.app.clone();
            calls.spawn(async move { (again, append(&app, written).await) });
        }
        while let Some(ended) = calls.join_next().await {
            let (again, answer) =
                ended.map_err(|error| Failure::new(Exit::Store, format!("appending: {error}")))?;
            if let Appended::Duplicate(_) = answer? {
                self.duplicates += 1;
            }
            self.writing.add(u64::from(!again));
        }
        Ok(())
    }

    fn luck(&self, written: &Written) -> u64 {
        written.id.as_str().bytes().fold(self.seed, |hash, byte| mix(hash ^ u64::from(byte))) % TWICE
    }
}

/// Appends an event. Retries if the store is busy or the outcome is unknown: the event ids make
/// that harmless.
async fn append<S: Store>(app: &App<S>, written: Written) -> Result<Appended, AppendError> {
    let mut delays = Backoff::default().first(Duration::from_millis(20)).limit(10).delays(1);
    loop {
        let events = vec![written.event.clone()];
        match app.append_events(written.stream.as_str(), Expected::Any, events).await {
            Err(AppendError::Store(error)) if error.is_transient() => match delays.next() {
                Some(delay) => sleep(delay).await,
                None => return Err(error.into()),
            },
            answer => return answer,
        }
    }
}
