//! Projections that fail on purpose, so that there is something to retry and to repair.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use leftfold::{Event, EventId, Projection, Route, fold};

use crate::random::mix;

/// The number of failing events of which one fails until the code is fixed.
const BROKEN_PART: f64 = 50.0;

/// The events that fail: the same in every process with the same seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) seed: u64,
    pub(crate) share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The event fails this many times in each process.
    AtFirst(u32),
    Always,
}

impl Faults {
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    fn of(self, projection: &str, event: &EventId) -> Option<Fault> {
        let bytes = projection.bytes().chain(event.as_str().bytes());
        let hash = bytes.fold(mix(self.seed), |hash, byte| mix(hash ^ u64::from(byte)));
        let place = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        let broken = self.share / BROKEN_PART;
        if place < broken {
            Some(Fault::Always)
        } else if place < self.share {
            Some(Fault::AtFirst(if hash & 1 == 0 { 1 } else { 2 }))
        } else {
            None
        }
    }
}

/// A projection with injected faults.
pub(crate) struct Flaky<P> {
    whole: P,
    faults: Faults,
    /// The number of failures of each event in this process.
    failed: Mutex<HashMap<EventId, u32>>,
}

impl<P> Flaky<P> {
    pub(crate) fn new(whole: P, faults: Faults) -> Self {
        Self { whole, faults, failed: Mutex::default() }
    }
}

impl<P: Projection> Projection for Flaky<P> {
    type Event = P::Event;
    type Document = P::Document;

    fn name(&self) -> &str {
        self.whole.name()
    }

    fn route(&self) -> Route<P::Event> {
        self.whole.route()
    }

    fn upcast(&self, event: Event) -> Event {
        self.whole.upcast(event)
    }

    fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, fold::Error> {
        match self.faults.of(self.name(), &event.id) {
            None => {}
            Some(Fault::Always) => return Err(format!("broken on purpose: {}", event.id).into()),
            Some(Fault::AtFirst(times)) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                let failed = failed.entry(event.id.clone()).or_default();
                if *failed < times {
                    *failed += 1;
                    return Err(fold::Error::transient(format!("failing at first on purpose: {}", event.id)));
                }
            }
        }
        self.whole.fold(document, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_at_their_share_and_stay_where_they_are() {
        let faults = Faults { seed: 7, share: 0.1 };
        let ids: Vec<_> = (0..50_000).map(|n| EventId::new(format!("cart-{n}-1")).unwrap()).collect();
        let found: Vec<_> = ids.iter().map(|id| faults.of("cart_details", id)).collect();
        let always = found.iter().filter(|fault| **fault == Some(Fault::Always)).count();
        let any = found.iter().flatten().count();
        assert!((80..=120).contains(&always), "{always} of 100");
        assert!((4_800..=5_200).contains(&any), "{any} of 5,000");
        assert!(ids.iter().zip(found).all(|(id, fault)| faults.of("cart_details", id) == fault));
        assert!(ids.iter().all(|id| Faults { share: 0.0, ..faults }.of("cart_details", id).is_none()));
    }
}
