//! Room for connections, in total and per address. If there is none, the connection that has been
//! idle longest is closed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::rate::client;

/// The time that a connection has to send its first or next request before it must make room for
/// other addresses.
const GRACE: Duration = Duration::from_secs(1);

/// The admission control for connections.
pub(crate) struct Room {
    total: usize,
    per_address: usize,
    state: Mutex<State>,
    /// Notified when a connection ends or becomes idle.
    changed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    open: HashMap<u64, Open>,
    /// The number of connections of each address, without those that are being closed.
    by_address: HashMap<IpAddr, usize>,
    /// The sum of `by_address`.
    counted: usize,
}

struct Open {
    address: IpAddr,
    /// The number of requests in progress.
    requests: usize,
    idle_since: Instant,
    is_closing: bool,
    close: Arc<Notify>,
}

impl Room {
    pub(crate) fn new(total: usize, per_address: usize) -> Arc<Self> {
        let (total, per_address) = (total.max(1), per_address.max(1));
        Arc::new(Self { total, per_address, state: Mutex::default(), changed: Notify::new() })
    }

    /// Waits for room for a connection. Refuses it if its address has its maximum and no idle
    /// connection.
    pub(crate) async fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let address = client(address);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let admitted = self.state().admit(address, self.total, self.per_address);
            match admitted {
                Admitted::Now(id, close) => return Some(Seat { room: Arc::clone(self), id, close }),
                Admitted::Refused => return None,
                // By then a connection that is too young now may have been idle for long enough.
                Admitted::Later => drop(timeout(GRACE, changed).await),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No operation under this lock can fail halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Admitted {
    Now(u64, Arc<Notify>),
    /// All connections are busy.
    Later,
    Refused,
}

impl State {
    fn admit(&mut self, address: IpAddr, total: usize, per_address: usize) -> Admitted {
        if self.by_address.get(&address).is_some_and(|count| *count >= per_address)
            && !self.close_oldest(Duration::ZERO, |open| open.address == address)
        {
            return Admitted::Refused;
        }
        if self.counted >= total {
            // The address with the most connections gives one up first: at once, if it has a large
            // part of all.
            let most = self.by_address.iter().max_by_key(|(_, count)| **count);
            let (hog, count) = most.map_or((address, 0), |(address, count)| (*address, *count));
            let grace = if count > (total / 4).max(1) { Duration::ZERO } else { GRACE };
            let is_made =
                self.close_oldest(grace, |open| open.address == hog) || self.close_oldest(GRACE, |_| true);
            if !is_made {
                return Admitted::Later;
            }
        }
        let (id, close) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        let (idle_since, close_it) = (Instant::now(), Arc::clone(&close));
        let open = Open { address, requests: 0, idle_since, is_closing: false, close: close_it };
        self.open.insert(id, open);
        *self.by_address.entry(address).or_default() += 1;
        self.counted += 1;
        Admitted::Now(id, close)
    }

    /// Closes the eligible connection that has been idle longest, and at least for `least`. Returns
    /// whether there was one.
    fn close_oldest(&mut self, least: Duration, is_eligible: impl Fn(&Open) -> bool) -> bool {
        let now = Instant::now();
        let idle = self.open.iter().filter(|(_, open)| {
            open.requests == 0
                && !open.is_closing
                && now.duration_since(open.idle_since) >= least
                && is_eligible(open)
        });
        let Some(id) = idle.min_by_key(|(id, open)| (open.idle_since, **id)).map(|(id, _)| *id) else {
            return false;
        };
        if let Some(open) = self.open.get_mut(&id) {
            open.is_closing = true;
            open.close.notify_one();
            let address = open.address;
            self.discount(address);
        }
        true
    }

    fn discount(&mut self, address: IpAddr) {
        self.counted -= 1;
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

/// The slot of one connection, until it is dropped.
pub(crate) struct Seat {
    room: Arc<Room>,
    id: u64,
    close: Arc<Notify>,
}

impl Seat {
    /// Waits until the connection must make room for another one.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.room.state().open.get(&self.id).is_none_or(|open| open.requests == 0)
    }

    /// Marks a request as in progress until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        if let Some(open) = self.room.state().open.get_mut(&self.id) {
            open.requests += 1;
        }
        Busy(Arc::clone(self))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.room.state();
        if let Some(open) = state.open.remove(&self.id)
            && !open.is_closing
        {
            state.discount(open.address);
        }
        drop(state);
        self.room.changed.notify_waiters();
    }
}

/// A request in progress.
pub(crate) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(open) = self.0.room.state().open.get_mut(&self.0.id) {
            open.requests -= 1;
            open.idle_since = Instant::now();
        }
        self.0.room.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    async fn seat(room: &Arc<Room>, address: [u8; 4]) -> Option<Arc<Seat>> {
        tokio::time::advance(Duration::from_millis(1)).await;
        room.admit(address.into()).await.map(Arc::new)
    }

    fn is_told_to_close(seat: &Seat) -> bool {
        seat.closed().now_or_never().is_some()
    }

    const ANN: [u8; 4] = [10, 0, 0, 1];
    const BOB: [u8; 4] = [10, 0, 0, 2];

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_share_and_its_oldest_idle_connection_makes_room() {
        let room = Room::new(10, 3);
        let first = seat(&room, ANN).await.unwrap();
        let second = seat(&room, ANN).await.unwrap();
        let third = seat(&room, ANN).await.unwrap();
        // The first connection was used after the second.
        drop(first.busy());
        let fourth = seat(&room, ANN).await.unwrap();
        assert_eq!([&first, &second, &third].map(|one| is_told_to_close(one)), [false, true, false]);
        let _busy = [first.busy(), third.busy(), fourth.busy()];
        assert!(seat(&room, ANN).await.is_none(), "none of them is idle");
        assert!(seat(&room, BOB).await.is_some(), "others are not concerned");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_the_most_connections_makes_room_first() {
        let room = Room::new(4, 10);
        let bob = seat(&room, BOB).await.unwrap();
        let mut ann = Vec::new();
        for _ in 0..3 {
            ann.push(seat(&room, ANN).await.unwrap());
        }
        let next = seat(&room, [10, 0, 0, 3]).await.unwrap();
        assert!(!is_told_to_close(&bob) && is_told_to_close(&ann[0]));
        // If all connections are busy, the next one waits.
        let busy: Vec<_> = ann.iter().chain([&bob, &next]).map(Seat::busy).collect();
        let mut waiting = std::pin::pin!(room.admit(BOB.into()));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop((ann, busy));
        assert!(waiting.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_may_send_its_request_before_it_makes_room() {
        let room = Room::new(1, 1);
        let ann = seat(&room, ANN).await.unwrap();
        let mut waiting = std::pin::pin!(room.admit(BOB.into()));
        assert!(waiting.as_mut().now_or_never().is_none() && !is_told_to_close(&ann));
        assert!(waiting.await.is_some(), "time passes");
        assert!(is_told_to_close(&ann));
    }
}
