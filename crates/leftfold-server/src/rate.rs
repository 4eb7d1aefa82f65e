//! The rate limit of requests per address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of addresses with a bucket of their own. Further addresses share one.
const ADDRESSES: usize = 10_000;

/// A rate limiter per address. Unused allowance of one second is lost in the next.
pub(crate) struct Rate {
    per_second: f64,
    buckets: Mutex<Buckets>,
}

struct Buckets {
    by_address: HashMap<IpAddr, Bucket>,
    others: Bucket,
    cleared: Instant,
}

#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        let (per_second, at) = (f64::from(per_second.get()), Instant::now());
        let others = Bucket { left: per_second, at };
        let buckets = Buckets { by_address: HashMap::new(), others, cleared: at };
        Self { per_second, buckets: Mutex::new(buckets) }
    }

    /// Takes one request from the address' allowance. If none is left, returns the time until there
    /// is.
    pub(crate) fn take(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let address = client(address);
        // No operation under this lock can fail halfway.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Buckets { by_address, others, cleared } = &mut *buckets;
        let is_new = !by_address.contains_key(&address);
        if is_new && by_address.len() >= ADDRESSES && now.duration_since(*cleared) >= SECOND {
            // After a second without requests, an address has the whole allowance, like a new one.
            by_address.retain(|_, bucket| now.duration_since(bucket.at) < SECOND);
            *cleared = now;
        }
        let bucket = if is_new && by_address.len() >= ADDRESSES {
            others
        } else {
            by_address.entry(address).or_insert(Bucket { left: self.per_second, at: now })
        };
        bucket.take(self.per_second, now)
    }
}

const SECOND: Duration = Duration::from_secs(1);

impl Bucket {
    fn take(&mut self, per_second: f64, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        *self = Self { left: (self.left + passed * per_second).min(per_second), at: now };
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / per_second));
        }
        self.left -= 1.0;
        Ok(())
    }
}

/// Returns the address that stands for a client. For IPv6 that is the network, because each client
/// can use as many addresses of it as it likes.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32) -> Rate {
        Rate::new(NonZeroU32::new(per_second).unwrap())
    }

    fn allowed(rate: &Rate, address: &str, now: Instant) -> usize {
        (0..1_000).take_while(|_| rate.take(address.parse().unwrap(), now).is_ok()).count()
    }

    #[test]
    fn each_address_has_its_allowance() {
        let (rate, now) = (rate(4), Instant::now());
        assert_eq!(allowed(&rate, "10.0.0.1", now), 4);
        assert_eq!(rate.take("10.0.0.1".parse().unwrap(), now), Err(Duration::from_millis(250)));
        assert_eq!(allowed(&rate, "10.0.0.2", now), 4);
        assert_eq!(allowed(&rate, "::ffff:10.0.0.2", now), 0, "it is the same one");
        assert_eq!(allowed(&rate, "2001:db8::1", now), 4);
        assert_eq!(allowed(&rate, "2001:db8::2:1", now), 0, "it is in the same network");
        assert_eq!(allowed(&rate, "2001:db8:0:1::1", now), 4);
        assert_eq!(allowed(&rate, "10.0.0.1", now + Duration::from_millis(500)), 2);
        assert_eq!(allowed(&rate, "10.0.0.1", now + Duration::from_hours(1)), 4, "nothing is saved up");
    }

    #[test]
    fn many_addresses_take_no_more_room_than_some() {
        let (rate, now) = (rate(2), Instant::now());
        let many = u32::try_from(ADDRESSES).unwrap() + 2_000;
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        let taken = (0..many).filter(|number| rate.take(address(*number), now).is_ok()).count();
        assert_eq!(taken, ADDRESSES + 2, "those that find no room share one allowance");
        assert_eq!(rate.buckets.lock().unwrap().by_address.len(), ADDRESSES);
        let later = now + Duration::from_secs(2);
        assert_eq!(rate.take(address(many), later), Ok(()), "room is made of those that went away");
        assert_eq!(rate.buckets.lock().unwrap().by_address.len(), 1);
    }
}
