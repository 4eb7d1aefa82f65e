//! The events to append: their order, their distribution to writers, and the progress.

use std::sync::atomic::{AtomicU64, Ordering};

use leftfold::{EventId, NewEvent, Revision, StreamId};
use leftfold_terminal::Failure;
use shopping_cart::workload::{Appends, Order, Workload};
use tokio::sync::watch;

/// The maximum number of open carts per writer.
const MOST_OPEN: u64 = 128;
const EVENTS_PER_CART: u32 = 10;

/// The events of a run.
#[derive(Clone, Debug)]
pub(crate) struct EventPlan {
    pub(crate) events: u64,
    pub(crate) writers: u64,
    pub(crate) seed: u64,
    /// A prefix that distinguishes the carts of this run from earlier ones.
    pub(crate) prefix: String,
}

impl EventPlan {
    /// Returns the number of open carts per writer, and so its number of concurrent appends.
    pub(crate) fn open(&self) -> usize {
        usize::try_from((self.each() / 40).clamp(1, MOST_OPEN)).unwrap_or(1)
    }

    /// Returns the events of one writer, counted from 0.
    pub(crate) fn share(&self, number: u64) -> WriterEvents {
        let before = self.events.min(number * self.each());
        WriterEvents {
            left: self.each().min(self.events - before),
            appends: self.workload().share(number, self.writers).into_iter(),
            prefix: self.prefix.clone(),
        }
    }

    /// Returns all events of a cart, including those that no writer appends. Returns none if the
    /// cart does not exist.
    pub(crate) fn cart(&self, stream: &StreamId) -> Result<Vec<PlannedEvent>, Failure> {
        let number = stream.as_str().strip_prefix(&format!("{}cart-", self.prefix));
        let Some(number) = number.and_then(|number| number.parse().ok()) else { return Ok(Vec::new()) };
        let carts = self.carts();
        let appends = self.workload().share(number, carts).into_iter();
        WriterEvents { left: EVENTS_PER_CART.into(), appends, prefix: self.prefix.clone() }.collect()
    }

    fn each(&self) -> u64 {
        self.events.div_ceil(self.writers)
    }

    /// Returns more carts than needed, so that some are still open at the end.
    fn carts(&self) -> u64 {
        let each = self.each();
        self.writers * (each.div_ceil(EVENTS_PER_CART.into()) + each / 100 + 1)
    }

    fn workload(&self) -> Workload {
        let order = Order::Interleaved { open: self.open() };
        Workload::new(self.seed, self.carts(), EVENTS_PER_CART).order(order)
    }
}

/// An event of a cart.
#[derive(Clone, Debug)]
pub(crate) struct PlannedEvent {
    pub(crate) stream: StreamId,
    pub(crate) revision: Revision,
    pub(crate) id: EventId,
    pub(crate) event: NewEvent,
}

/// A writer's events, in order.
#[derive(Debug)]
pub(crate) struct WriterEvents {
    left: u64,
    appends: Appends,
    prefix: String,
}

impl WriterEvents {
    fn named(&self, stream: &StreamId, event: NewEvent) -> Result<PlannedEvent, Failure> {
        let prefix = &self.prefix;
        let id = event.id.as_ref().map_or("", EventId::as_str);
        // The id of a cart's event contains its number.
        let revision = id.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        let id = EventId::new(format!("{prefix}{id}"))?;
        Ok(PlannedEvent {
            stream: StreamId::new(format!("{prefix}{stream}"))?,
            revision: Revision(revision),
            event: NewEvent { id: Some(id.clone()), ..event },
            id,
        })
    }
}

impl Iterator for WriterEvents {
    type Item = Result<PlannedEvent, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Interleaved carts have their events appended one by one.
        let (stream, events) = self.appends.next()?;
        let event = events.into_iter().next()?;
        Some(self.named(&stream, event))
    }
}

/// The progress of the writers, and a gate in the middle.
#[derive(Debug)]
pub(crate) struct AppendProgress {
    half: u64,
    appended: AtomicU64,
    go_on: watch::Sender<bool>,
}

impl AppendProgress {
    pub(crate) fn of(plan: &EventPlan) -> Self {
        Self { half: plan.events / 2, appended: AtomicU64::new(0), go_on: watch::Sender::new(false) }
    }

    /// Returns the number of events in the log.
    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, events: u64) {
        self.appended.fetch_add(events, Ordering::Relaxed);
    }

    pub(crate) fn is_half_done(&self) -> bool {
        self.appended() >= self.half
    }

    /// Lets the second half begin.
    pub(crate) fn go_on(&self) {
        self.go_on.send_replace(true);
    }

    /// Waits in the middle until the gate opens: even a small demo should see a worker killed.
    pub(crate) async fn gate(&self) {
        if self.is_half_done() {
            // The sender lives as long as `self`.
            let _ = self.go_on.subscribe().wait_for(|go_on| *go_on).await;
        }
    }
}
