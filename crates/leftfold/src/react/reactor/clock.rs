//! The store's time, estimated between requests to the store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::shared::{Shared, lock};
use crate::error::{Error, Kind, Result};
use crate::mutant;
use crate::react::store::ReactionStore;
use crate::react::time::later;

/// The interval at which the store's clock is read.
const READ_EVERY: Duration = Duration::from_secs(30);

/// The store's time, and the local instant at which it was read.
pub(super) struct Clock(Mutex<(Timestamp, Instant)>);

impl Clock {
    /// Reads the store's time.
    pub(super) async fn read<S: ReactionStore>(store: &S) -> Result<Self> {
        Ok(Self(Mutex::new(read(store).await?)))
    }

    /// Returns the store's time, estimated without a request to the store.
    pub(super) fn now(&self) -> Timestamp {
        let (time, at) = *lock(&self.0);
        later(time, at.elapsed())
    }
}

/// Reads the store's time periodically.
pub(super) async fn keep_time<S: ReactionStore>(shared: Arc<Shared<S>>) {
    while !shared.is_stopping() {
        shared.wait(READ_EVERY).await;
        match read(&shared.store).await {
            Ok(read) => *lock(&shared.clock.0) = read,
            Err(error) => shared.failed(&error, "reading the store's time"),
        }
    }
}

/// Returns the store's time and the local instant at which it was read. A slow answer may be
/// outdated, so the request is repeated.
async fn read<S: ReactionStore>(store: &S) -> Result<(Timestamp, Instant)> {
    const SOON: Duration = Duration::from_millis(100);
    const TRIES: usize = 10;
    let mut best = None;
    for _ in 0..TRIES {
        let begin = Instant::now();
        let time = store.time().await?;
        let (now, took) = (Instant::now(), begin.elapsed());
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, (time, now)));
        }
        mutant!(LateTime => break);
        if took < SOON {
            break;
        }
    }
    let missing = || Error::new(Kind::Unavailable, "reading the store's time: no answer; try again");
    best.map(|(_, read)| read).ok_or_else(missing)
}
