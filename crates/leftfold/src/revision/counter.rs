//! Revisions that are counted in a store.

use std::future::Future;
use std::ops::Range;

use tokio::sync::Mutex;

use crate::backoff::Backoff;
use crate::env::{Env, System, event_id};
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{MAX_NAME_BYTES, Revision, StreamId};

/// A request for numbers of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The counter.
    pub counter: String,
    /// The number of numbers to draw.
    pub count: u64,
    /// The name of the requesting client.
    pub client: String,
    /// The sequence number of this request at its client. A repeated request gets the same numbers.
    pub request: u64,
}

/// The number of clients per counter whose last request is remembered. The most recent clients
/// stay.
pub const REMEMBERED_CLIENTS: usize = 1_000;

/// A store with counters.
pub trait Counters: Send + Sync + 'static {
    /// Returns the first of `count` consecutive numbers, which no other client gets. A counter
    /// begins with 1.
    ///
    /// A request that is repeated because its outcome was unknown gets the same answer: no number
    /// is lost.
    fn draw(&self, draw: Draw) -> impl Future<Output = Result<u64>> + Send;
}

/// Revisions that are counted in a store, by name: 1, 2, 3 … for all clients of the store.
///
/// A [gapless](Self::gapless) counter draws each number separately. A counter [in
/// blocks](Self::in_blocks) draws many at once and returns them without asking the store again.
/// That is far faster, but several handles then don't count in the order of time. The rest of a
/// block is lost when its handle is dropped.
///
/// ```
/// use leftfold::{Memory, Revision};
/// use leftfold::revision::Counter;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
/// let prices = Counter::gapless(Memory::default(), "prices")?;
/// assert_eq!(prices.next().await?, Revision(1));
/// assert_eq!(prices.next().await?, Revision(2));
/// # Ok(()) }
/// ```
pub struct Counter<S> {
    store: S,
    name: String,
    client: String,
    size: u64,
    drawn: Mutex<Drawn>,
}

/// The numbers that a handle has drawn.
#[derive(Default)]
struct Drawn {
    /// The number of answered requests.
    requests: u64,
    /// The unused numbers of the last answer.
    left: Range<u64>,
}

impl<S: Counters> Counter<S> {
    /// Creates a counter that returns every number once.
    pub fn gapless(store: S, name: impl Into<String>) -> Result<Self, Invalid> {
        Self::in_blocks(store, name, 1)
    }

    /// Creates a counter that draws `size` numbers at once.
    pub fn in_blocks(store: S, name: impl Into<String>, size: u64) -> Result<Self, Invalid> {
        let name = name.into();
        // The name follows the rules for stream ids.
        StreamId::new(&name).map_err(|_| {
            Invalid::new(
                "counter",
                &name,
                format!("1 to {MAX_NAME_BYTES} bytes of text without control characters"),
            )
        })?;
        if !(1..=1_000_000).contains(&size) {
            return Err(Invalid::new("block size", &size.to_string(), "1 to 1000000"));
        }
        let client = event_id(&System).to_string();
        Ok(Self { store, name, client, size, drawn: Mutex::default() })
    }

    /// Returns the next number. If the call fails or is cancelled, no number is lost: the next call
    /// resumes.
    pub async fn next(&self) -> Result<Revision> {
        let mut drawn = self.drawn.lock().await;
        if drawn.left.is_empty() {
            let mut delays = Backoff::default().limit(8).delays(System.random());
            let request = drawn.requests + 1;
            let first = loop {
                let (counter, client, count) = (self.name.clone(), self.client.clone(), self.size);
                match self.store.draw(Draw { counter, count, client, request }).await {
                    Ok(first) => break first,
                    Err(error) if error.is_transient() => match delays.next() {
                        Some(delay) => tokio::time::sleep(delay).await,
                        None => return Err(error),
                    },
                    Err(error) => return Err(error),
                }
            };
            *drawn = Drawn { requests: request, left: first..first + self.size };
        }
        drawn.left.next().map(Revision).ok_or_else(|| {
            Error::new(Kind::Store, "drawing from a counter: the store returned no number; report this bug")
        })
    }
}
