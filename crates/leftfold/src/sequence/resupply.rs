//! Resuppliers: sources that still have the events that a feed has lost.

use std::future::Future;
use std::sync::Arc;

use super::delivery::Delivery;
use crate::error::Result;
use crate::event::{Event, Revision, StreamId};
use crate::log::{Entry, Limit, Log};

/// A source of events that a feed has lost: another log, an endpoint, or a closure.
///
/// ```
/// use leftfold::sequence::{Missing, Resupply, resupply};
/// use leftfold::Delivery;
///
/// let from_the_origin = resupply(async |missing: Missing| -> leftfold::Result<Vec<Delivery>> {
///     println!("revisions {} to {} of {}", missing.after.0 + 1, missing.through, missing.stream);
///     Ok(Vec::new())
/// });
/// # fn check(_: impl Resupply) {}
/// # check(from_the_origin);
/// ```
pub trait Resupply: Send + Sync + 'static {
    /// Returns the missing events that it has, in any order; none if it has none. Additional events
    /// do no harm.
    fn resupply(&self, missing: Missing) -> impl Future<Output = Result<Vec<Delivery>>> + Send;
}

/// Creates a resupplier from a function.
pub fn resupply<F, A>(request: F) -> impl Resupply
where
    F: Fn(Missing) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Vec<Delivery>>> + Send,
{
    struct FromFunction<F>(F);
    impl<F, A> Resupply for FromFunction<F>
    where
        F: Fn(Missing) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Vec<Delivery>>> + Send,
    {
        fn resupply(&self, missing: Missing) -> impl Future<Output = Result<Vec<Delivery>>> + Send {
            (self.0)(missing)
        }
    }
    FromFunction(request)
}

/// A resupplier that reads another log.
#[derive(Clone, Debug)]
pub struct FromLog<L>(pub L);

impl<L: Log> Resupply for FromLog<L> {
    async fn resupply(&self, missing: Missing) -> Result<Vec<Delivery>> {
        let Missing { stream, after, through } = missing;
        let events =
            self.0.read_stream(&stream, after, Limit { events: MAX_REVISIONS, ..Limit::default() }).await?;
        let delivery = |(event, previous): (Event, Revision)| {
            let Event { id, stream, revision, kind, time, data, metadata, .. } = event;
            let entry = Arc::new(Entry { id, kind, time, data, metadata });
            Delivery { stream, revision: Some(revision), previous: Some(previous), entry }
        };
        let before: Vec<_> = [after].into_iter().chain(events.iter().map(|event| event.revision)).collect();
        let wanted = events.into_iter().zip(before).take_while(|(event, _)| event.revision <= through);
        Ok(wanted.map(delivery).collect())
    }
}

/// Missing revisions of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The stream.
    pub stream: StreamId,
    /// The revision before the first requested one.
    pub after: Revision,
    /// The last requested revision.
    pub through: Revision,
}

/// The maximum number of revisions per request.
pub(super) const MAX_REVISIONS: usize = 1_000;
