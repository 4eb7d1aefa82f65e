//! The faults that all operations share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leftfold::{Error, Kind, Result};
use tokio::time::sleep;

use super::handle::SimStore;
use crate::faults::Fault;

/// The longest delay of a write.
pub const LATE: Duration = Duration::from_secs(15);

impl SimStore {
    /// Wraps every operation: it takes time, and may fail before it does anything.
    pub(super) async fn answer<T, E: From<Error>>(
        &self,
        name: &str,
        operation: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let operation = async {
            self.gate.pass().await;
            self.enter(name).await?;
            let answer = operation.await;
            self.gate.pass().await;
            answer
        };
        self.fuse.run(operation).await
    }

    async fn enter(&self, name: &str) -> Result<()> {
        let faults = &self.shared.faults;
        self.takes(Duration::from_millis(2)).await;
        if self.strikes(Fault::Slow) {
            self.shared.ledger.gone(&self.name, LATE / 2);
            self.takes(LATE / 2).await;
        }
        if self.strikes(Fault::Down) {
            self.shared.is_down.store(true, Ordering::Relaxed);
            let (shared, outage) = (Arc::clone(&self.shared), faults.dice().time(LATE));
            tokio::spawn(async move {
                sleep(outage).await;
                shared.is_down.store(false, Ordering::Relaxed);
            });
        }
        if self.shared.is_down.load(Ordering::Relaxed) && !faults.is_calm() {
            self.shared.ledger.gone(&self.name, Duration::ZERO);
            return Err(Error::new(Kind::Unavailable, format!("{name}: the store is down")));
        }
        if self.strikes(Fault::Fails) {
            self.shared.ledger.trouble(&self.name);
            return Err(Error::new(Kind::Unavailable, format!("{name}: could not reach the store")));
        }
        Ok(())
    }

    /// Does a write of the reactions that may happen late or not at all, and whose outcome may be
    /// unknown.
    pub(super) async fn written<T: Send + 'static>(
        &self,
        name: &str,
        write: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let unknown = || {
            self.shared.ledger.trouble(&self.name);
            Err(Error::new(Kind::Unknown, format!("{name}: lost the connection")))
        };
        if self.strikes(Fault::LostUnknown) {
            return unknown();
        }
        if self.strikes(Fault::Delayed) {
            let (store, late) = (self.clone(), self.shared.faults.dice().time(LATE));
            tokio::spawn(async move {
                sleep(late).await;
                store.shared.trace.note(|| format!("{}: late", store.name));
                let _ = write.await;
                store.shared.ledger.gone(&store.name, Duration::ZERO);
            });
            return unknown();
        }
        let answer = write.await;
        self.takes(Duration::from_millis(1)).await;
        if self.strikes(Fault::AppliedUnknown) { unknown() } else { answer }
    }
}
