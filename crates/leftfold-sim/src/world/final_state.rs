//! The end of a run, and its result.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leftfold::{Collection, Documents as _, Error, Expected, Kind, Log as _, NewEvent, Result};
use tokio::time::{sleep, timeout};

use super::clients::read_own;
use super::phases::TIME_LIMIT;
use super::run::WorldRun;
use super::setup::World;
use super::sometimes::{OF_EVENTS, SOMETIMES};
use crate::notes::{BY_CONTENT, BY_STREAM, Happened};

impl World {
    /// Checks that without faults everything is folded and repaired within a time limit, and works.
    pub(crate) async fn recover(&self) -> Result<()> {
        let operator = self.open("healer").await;
        let recover = async {
            // The workers complete a switch that has begun.
            for name in [BY_STREAM, BY_CONTENT] {
                let collection = Collection::new(name)?;
                while operator.store().generations(&collection).await?.switching.is_some() {
                    sleep(Duration::from_millis(50)).await;
                }
            }
            operator.caught_up().await?;
            for name in [BY_STREAM, BY_CONTENT] {
                for _ in 0..50 {
                    if operator.parked(name, None, 1).await?.is_empty() {
                        break;
                    }
                    operator.retry_all(name, false, |_, _| ()).await?;
                }
            }
            let last = NewEvent::encode(&Happened::Noted { to: vec!["d0".into()] })?.with_id("last")?;
            let bookmark = operator
                .append_events("s0", Expected::Any, vec![last])
                .await
                .map_err(|error| Error::new(Kind::Store, format!("the last append: {error}")))?
                .into_bookmark();
            for document in ["s0", "d0"] {
                read_own(&operator, document, bookmark.clone(), &self.responses).await;
            }
            self.responses.acknowledged().push(bookmark);
            operator.caught_up().await
        };
        timeout(TIME_LIMIT, recover)
            .await
            .unwrap_or_else(|_| Err(failure("not everything was folded in time")))
    }

    /// Checks the final state.
    pub(crate) async fn check(&self) -> Result<()> {
        let acknowledged = self.responses.acknowledged().clone();
        self.store.shared().feed.check_end(&self.store).await?;
        self.store.shared().checker.check_end(self.store.inner(), &acknowledged).await
    }

    /// Returns the result of the run.
    pub(crate) async fn end(&self) -> WorldRun {
        let shared = self.store.shared();
        let (mut conflicts, mut parked, mut set_aside, mut skipped, mut retried) = (0, 0, 0, 0, 0);
        if let Ok(app) = self.app(&self.store, "counting").open().await {
            for status in app.status().await.unwrap_or_default() {
                conflicts += status.tally.conflicts;
                parked += status.tally.parked;
                set_aside += status.tally.set_aside;
                skipped += status.tally.skipped;
                retried += status.tally.retried;
            }
        }
        let responses = &self.responses;
        let [refused, waited, met_parked, switched, undone] = [
            &responses.refused,
            &responses.waited_reads,
            &responses.parked_reads,
            &responses.switched,
            &responses.undone,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let tally = &shared.feed.tally;
        let [held, released, healed, duplicates, disputed, full] = [
            &tally.held,
            &tally.released,
            &tally.healed,
            &tally.duplicates,
            &tally.conflicts,
            &tally.refused,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let mut sometimes = [0; SOMETIMES.len()];
        sometimes[..OF_EVENTS.len()].copy_from_slice(&[
            conflicts, parked, set_aside, skipped, retried, refused, waited, met_parked, held, released,
            healed, duplicates, disputed, full, switched, undone,
        ]);
        WorldRun {
            violations: shared.checker.violations(),
            trace: shared.trace.take(),
            met: shared.faults.met(),
            events: self.store.inner().heads().await.unwrap_or_default().lanes().map(|(_, head)| head).sum(),
            sometimes,
        }
    }
}

/// Returns the error of a step that failed or took too long.
pub(super) fn failure(message: &str) -> Error {
    Error::new(Kind::Store, message)
}
