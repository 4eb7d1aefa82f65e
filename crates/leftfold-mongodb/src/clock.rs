//! The store's time: [`Steady`], read from the server's clock and stored with the leases of feeds.
//!
//! Due times are compared with it. It never goes back, even if the server's clock is set back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::{Bson, RawBsonRef, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::store::clock::Steady;
use tokio::time::Instant;

use crate::connection::Base;
use crate::encoding::time;
use crate::error::Failure;
use crate::schema::FEEDS;

/// The store's time, as this process knows it.
pub(crate) struct StoreClock {
    steady: Mutex<Steady>,
    /// The latest time that other processes have reported, in microseconds.
    reported: Mutex<Option<i64>>,
    /// The origin of the elapsed time that `steady` measures.
    begun: Instant,
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self { steady: Mutex::default(), reported: Mutex::default(), begun: Instant::now() }
    }

    /// Returns the store's time of the last reading in this process, in microseconds.
    pub(crate) fn last(&self) -> Option<i64> {
        self.steady().last().map(|reading| reading.time)
    }

    /// Records a time that another process has reached: the store's time here is not earlier.
    pub(crate) fn keep(&self, time: Option<i64>) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        *reported = (*reported).max(time);
    }

    fn read(&self, server: Timestamp) -> Result<Timestamp, Failure> {
        let reported = *self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = self.steady().read(server.as_microsecond(), self.begun.elapsed(), reported);
        time(reading.time)
    }

    fn steady(&self) -> MutexGuard<'_, Steady> {
        self.steady.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Base {
    /// Converts the server's time to the store's time.
    pub(crate) async fn store_time(&self, server: Timestamp) -> Result<Timestamp, Failure> {
        if self.clock.last().is_none() {
            // The latest time that earlier processes have stored.
            let latest = doc! { "$group": { "_id": Bson::Null, "time": { "$max": "$time" } } };
            let mut found = self.db.collection::<RawDocumentBuf>(FEEDS).aggregate([latest]).await?;
            if found.advance().await? {
                self.clock.keep(found.current().get("time")?.and_then(RawBsonRef::as_i64));
            }
        }
        self.clock.read(server)
    }
}
