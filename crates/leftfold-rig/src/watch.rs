//! Checks that hold at every instant, run while processes work and die.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::documents::{Advance, Checkpoint, CollectionWrites, Commit, DocumentWrite};
use leftfold::react::{Query, State};
use leftfold::{App, Collection, Mark, ReadError, Result, Store};
use leftfold_sim::checker::Checker;
use leftfold_sim::dice::Dice;
use leftfold_sim::notes::{BY_CONTENT, BY_STREAM, FoldedEvents};
use tokio::time::{Instant, sleep};

use crate::crew::pause;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::react::{may_fail, outline};
use crate::store::{Snapshot as _, TestedStore, patiently};

const SNAPSHOT_EVERY: Duration = Duration::from_millis(150);
const FAILURES_EVERY: Duration = Duration::from_millis(100);
/// The maximum number of failed tasks to check.
const MOST_FAILED: usize = 1_000;
const READ_EVERY: Duration = Duration::from_millis(200);

/// The watchers of a round and their results.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    pub(crate) checker: Checker,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) snapshots: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) longest_stall_millis: AtomicU64,
    ending: AtomicBool,
}

impl Watcher {
    /// Makes the watchers end after their next check.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Surveys the store, then takes snapshots of it and checks that each is consistent.
    pub(crate) async fn check_snapshots<S: TestedStore>(
        &self,
        store: S,
        directory: PathBuf,
    ) -> Result<(), Failure> {
        let mut seen = 0;
        while !self.ending.load(Ordering::Relaxed) {
            if S::READS_KEEP_UP {
                self.checker.check_all(&store).await?;
            }
            let snapshot = patiently::<S, _, _>(|| store.snapshot(&directory)).await?;
            if snapshot.instant() < seen {
                continue;
            }
            seen = snapshot.instant();
            let checked = self.check_instant(snapshot.store()).await;
            let violated = self.violation();
            snapshot.end(violated.is_err()).await?;
            checked?;
            violated?;
            self.snapshots.fetch_add(1, Ordering::Relaxed);
            sleep(SNAPSHOT_EVERY).await;
        }
        Ok(())
    }

    /// Checks a snapshot. The checker checks all writes of a commit, so this passes everything as
    /// one commit.
    async fn check_instant(&self, store: &impl Store) -> Result<()> {
        for name in [BY_STREAM, BY_CONTENT] {
            let collection = Collection::new(name)?;
            let mut records = store.scan(&collection, None, usize::MAX).await?;
            records.extend(store.parked(&collection, None, usize::MAX).await?);
            let writes = records.into_iter().map(|record| DocumentWrite { expected: None, record }).collect();
            let advance =
                Advance { projection: collection.clone(), from: Mark::default(), to: Checkpoint::default() };
            let commit =
                Commit { advance: Some(advance), changes: vec![CollectionWrites { collection, writes }] };
            self.checker.check_commit(store, &commit).await?;
        }
        Ok(())
    }

    /// Follows the checkpoints closely. A checkpoint that falls soon advances again, so rare checks
    /// would miss it.
    pub(crate) async fn follow_checkpoints<S: TestedStore>(&self, store: S) -> Result<(), Failure> {
        let projections = [Collection::new(BY_STREAM)?, Collection::new(BY_CONTENT)?];
        let mut last = [(Mark::default(), Instant::now()), (Mark::default(), Instant::now())];
        let mut seen = 0;
        while !self.ending.load(Ordering::Relaxed) {
            pause().await;
            let (instant, marks) = patiently::<S, _, _>(|| store.marks(&projections)).await?;
            if instant < seen {
                continue;
            }
            seen = instant;
            for ((name, now), (before, since)) in projections.iter().zip(marks).zip(&mut last) {
                if !now.covers(before) {
                    self.checker
                        .violated(format!("I2: the checkpoint of {name} fell from {before} to {now}"));
                }
                if now != *before {
                    self.stalled(since.elapsed());
                    (*before, *since) = (now, Instant::now());
                }
            }
            self.violation()?;
        }
        Ok(())
    }

    /// Looks for tasks that were given up wrongly. A later change of the document would hide this.
    pub(crate) async fn follow_failures<S: TestedStore>(&self, store: S) -> Result<(), Failure> {
        let query = Query { states: vec![State::Failed], ..Query::default() };
        while !self.ending.load(Ordering::Relaxed) {
            let failed = patiently::<S, _, _>(|| store.list_tasks(query.clone(), None, MOST_FAILED)).await?;
            let wrong: Vec<_> = failed.iter().filter(|task| !may_fail(task)).map(outline).collect();
            if !wrong.is_empty() {
                let wrong = wrong.into_iter().map(|task| format!("I8: a task was given up: {task}"));
                return Err(Failure::Violated(wrong.collect()));
            }
            sleep(FAILURES_EVERY).await;
        }
        Ok(())
    }

    /// Reads documents that must include an acknowledged write.
    pub(crate) async fn read<S: TestedStore>(&self, app: App<S>, dice: Dice) -> Result<(), Failure> {
        while !self.ending.load(Ordering::Relaxed) {
            sleep(dice.time(READ_EVERY)).await;
            let bookmark = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).bookmark(&dice);
            let Some(bookmark) = bookmark else { continue };
            let own = format!("{}@{}", bookmark.stream, bookmark.revision);
            match app
                .get_as::<FoldedEvents>(BY_STREAM, bookmark.stream.as_str())
                .at_least(bookmark.clone())
                .await
            {
                Ok(seen) => {
                    self.reads.fetch_add(1, Ordering::Relaxed);
                    let listed = seen.is_some_and(|seen| seen.events.contains(&own));
                    if !listed
                        && self
                            .checker
                            .must_list(app.store(), BY_STREAM, bookmark.stream.as_str(), &bookmark)
                            .await?
                    {
                        self.checker.violated(format!(
                            "I11: a read at least at {bookmark} does not contain its event"
                        ));
                    }
                }
                Err(ReadError::Unknown { .. }) => {
                    self.checker.violated(format!(
                        "I11: {bookmark} was acknowledged, and a read reports it as unknown"
                    ));
                }
                // The document is parked or lags, which is allowed for a while.
                Err(_) => {}
            }
            self.violation()?;
        }
        Ok(())
    }

    /// Records the time in which a projection made no progress.
    fn stalled(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.longest_stall_millis.fetch_max(millis, Ordering::Relaxed);
    }

    /// Fails if there are violations.
    pub(crate) fn violation(&self) -> Result<(), Failure> {
        let violations = self.checker.violations();
        if violations.is_empty() { Ok(()) } else { Err(Failure::Violated(violations)) }
    }
}
