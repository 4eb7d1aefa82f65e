//! A projection with the events it is given.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::event::{Event, EventId, NewEvent, Partition, Position, Revision, StreamId};
use crate::fold::Projection;

/// Begins the specification of a projection.
///
/// ```
/// # use leftfold::{Event, Projection, fold};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # enum Counted { Incremented { by: u64 }, Removed }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Total { sum: u64 }
/// # struct Totals;
/// # impl Projection for Totals {
/// #     type Event = Counted;
/// #     type Document = Total;
/// #     fn name(&self) -> &str { "totals" }
/// #     fn fold(&self, total: Option<Total>, event: &Event<Counted>) -> Result<Option<Total>, fold::Error> {
/// #         let sum = total.map_or(0, |total| total.sum);
/// #         match event.data {
/// #             Counted::Incremented { by: 0 } => Err("by nothing".into()),
/// #             Counted::Incremented { by } => Ok(Some(Total { sum: sum + by })),
/// #             Counted::Removed => Ok(None),
/// #         }
/// #     }
/// # }
/// use leftfold::testing::spec;
///
/// spec(Totals)
///     .given("a", [Counted::Incremented { by: 2 }, Counted::Incremented { by: 3 }])
///     .given("b", [Counted::Incremented { by: 1 }, Counted::Removed])
///     .then("a", Total { sum: 5 })
///     .then_nothing("b")
///     .holds_under_chaos()
///     .given("a", [Counted::Incremented { by: 0 }])
///     .then_fails("by nothing");
/// ```
pub fn spec<P: Projection>(projection: P) -> Spec<P> {
    Spec {
        projection: Arc::new(projection),
        events: Vec::new(),
        time: Timestamp::constant(1_767_225_600, 0), // 2026-01-01
        failures: BTreeSet::new(),
    }
}

/// A projection with the events it is given, in the order of the log.
///
/// Events are processed as in production: they are encoded, upcast and decoded, unknown types are
/// ignored, and documents are kept as JSON. An event that fails parks its document, or its stream
/// if it can't be routed. A parked document stays as it was, and later events do not change it.
///
/// Every check panics with the expectation, the actual result, and the events that led to it.
#[derive(Debug)]
pub struct Spec<P> {
    pub(super) projection: Arc<P>,
    pub(super) events: Vec<Event>,
    time: Timestamp,
    /// The events that are expected to fail.
    pub(super) failures: BTreeSet<Position>,
}

impl<P: Projection> Spec<P> {
    /// Sets the time of the events given from here on: a [`Timestamp`], or its text, such as
    /// `2026-03-01T09:30:00Z`. The default is the first moment of 2026.
    #[must_use]
    #[track_caller]
    pub fn at(mut self, time: impl Display) -> Self {
        self.time = match time.to_string().parse() {
            Ok(time) => time,
            Err(error) => panic!("{time} is no time such as 2026-03-01T09:30:00Z: {error}"),
        };
        self
    }

    /// Adds the next events of the log, all of one stream.
    #[must_use]
    #[track_caller]
    pub fn given<E: Serialize>(
        mut self,
        stream: impl AsRef<str>,
        events: impl IntoIterator<Item = E>,
    ) -> Self {
        for event in events {
            match NewEvent::encode(&event) {
                Ok(event) => self.append(stream.as_ref(), event),
                Err(invalid) => panic!("{invalid}"),
            }
        }
        self
    }

    /// Does the same as [`given`](Self::given), for events with their own id, time, metadata or raw
    /// data.
    #[must_use]
    #[track_caller]
    pub fn given_events(
        mut self,
        stream: impl AsRef<str>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Self {
        for event in events {
            self.append(stream.as_ref(), event);
        }
        self
    }

    #[track_caller]
    fn append(&mut self, stream: &str, event: NewEvent) {
        let stream = match StreamId::new(stream) {
            Ok(stream) => stream,
            Err(invalid) => panic!("{invalid}"),
        };
        let position = self.events.len() as u64 + 1;
        let earlier = self.events.iter().filter(|event| event.stream == stream).count() as u64;
        self.events.push(Event {
            id: event.id.unwrap_or_else(|| EventId::stored(&format!("event-{position}"))),
            stream,
            revision: Revision(earlier + 1),
            kind: event.kind,
            time: event.time.unwrap_or(self.time),
            data: event.data,
            metadata: event.metadata,
            partition: Partition(0),
            position: Position(position),
        });
    }
}
