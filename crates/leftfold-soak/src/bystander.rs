//! A well-behaved client that appends to its own streams, reads its own writes and knows the
//! correct responses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::arena::{Arena, Phase};
use crate::dice::Dice;
use crate::http::{Answer, Client, JSON};
use crate::latency::Latencies;
use crate::model::Cart;

const CARTS: usize = 60;
/// The number of carts compared after a restart.
const COMPARED: usize = 5;
/// The address that bystanders connect from.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for retrying a request.
const PATIENCE: Duration = Duration::from_secs(90);

/// The measurements of a bystander.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// Requests that were retried because of a kill.
    pub(crate) repeated: u64,
    pub(crate) compared: u64,
    pub(crate) calm: Latencies,
    pub(crate) hostile: Latencies,
    /// The latencies of the hostile phase by kind of request.
    pub(crate) kinds: BTreeMap<&'static str, Latencies>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.repeated += other.repeated;
        self.compared += other.compared;
        self.calm.extend(&other.calm);
        self.hostile.extend(&other.hostile);
        for (kind, latencies) in &other.kinds {
            self.kinds.entry(kind).or_default().extend(latencies);
        }
    }
}

/// A bystander. Each bystander has its own carts.
pub(crate) struct Bystander<'a> {
    arena: &'a Arena,
    name: usize,
    dice: Dice,
    client: Client,
    carts: Vec<Cart>,
    appends: u64,
    restarts: usize,
    tally: Tally,
}

/// The error of a request that failed on every retry.
struct TimedOut;

impl<'a> Bystander<'a> {
    pub(crate) fn new(arena: &'a Arena, name: usize, dice: Dice) -> Self {
        let carts = (0..CARTS).map(|cart| Cart::new(format!("cart-{name}-{cart}"))).collect();
        let client = Client::new(arena.address, SOURCE, TIMEOUT);
        Self { arena, name, dice, client, carts, appends: 0, restarts: 0, tally: Tally::default() }
    }

    /// Runs until the end of the hostile phase, then compares all carts.
    pub(crate) fn run(mut self) -> Tally {
        // The arena's failures already contain the error.
        let _ = self.live().and_then(|()| self.compare_all());
        self.tally
    }

    fn live(&mut self) -> Result<(), TimedOut> {
        while self.arena.phase() != Phase::Over {
            let cart = self.dice.below(CARTS);
            self.append(cart)?;
            self.compare("read", cart, "&wait=3s")?;
            match self.dice.below(4) {
                0 => self.list()?,
                1 => drop(self.send("live", "GET", "/healthz", None, &[200])?),
                2 => drop(self.send("ready", "GET", "/readyz", None, &[200])?),
                _ => {}
            }
            self.check_after_restart()?;
            thread::sleep(self.dice.between(Duration::from_millis(5), Duration::from_millis(40)));
        }
        Ok(())
    }

    fn append(&mut self, number: usize) -> Result<(), TimedOut> {
        let mut cart = self.carts[number].clone();
        let acts: Vec<_> = (0..=self.dice.below(3)).map(|_| cart.act(&mut self.dice)).collect();
        let events: Vec<_> = acts.into_iter().map(|act| cart.event(act)).collect();
        self.appends += 1;
        let key = format!("{}-{}", self.name, self.appends);
        let path = format!("/streams/{}", cart.id);
        let answer =
            self.send("append", "POST", &path, Some((&key, &Value::from(events).to_string())), &[200, 201])?;
        cart.bookmark = answer.json()["bookmark"].as_str().map(str::to_owned);
        if cart.bookmark.is_none() {
            self.arena.fail(format!("{path}: the response has no bookmark: {}", answer.text()));
        }
        self.carts[number] = cart;
        Ok(())
    }

    /// Reads a cart with all its events and compares it.
    fn compare(&mut self, kind: &'static str, number: usize, more: &str) -> Result<(), TimedOut> {
        let cart = self.carts[number].clone();
        let Some(bookmark) = &cart.bookmark else { return Ok(()) };
        let path = format!("/collections/carts/documents/{}?at_least={bookmark}{more}", cart.id);
        let answer = self.send(kind, "GET", &path, None, &[200, 404])?;
        self.tally.compared += 1;
        let found = (answer.status == 200).then(|| answer.json());
        let expected = cart.document();
        if found != expected {
            self.arena.wrong(format!("{path}: it is {found:?} instead of {expected:?}"));
        }
        Ok(())
    }

    fn list(&mut self) -> Result<(), TimedOut> {
        let path = format!("/collections/carts/documents?limit=20&after=cart-{}", self.name);
        let answer = self.send("list", "GET", &path, None, &[200])?;
        let listed = answer.json()["documents"].as_array().map_or(0, Vec::len);
        if listed == 0 && self.carts.iter().filter(|cart| cart.document().is_some()).count() > 5 {
            self.arena.wrong(format!("{path}: it lists nothing: {}", answer.text()));
        }
        Ok(())
    }

    /// Compares some carts if the daemon has restarted since the last call.
    fn check_after_restart(&mut self) -> Result<(), TimedOut> {
        let windows = self.arena.windows.list();
        let closed = windows.iter().filter(|window| window.folded.is_some()).count();
        if closed > self.restarts {
            self.restarts = closed;
            for _ in 0..COMPARED {
                let cart = self.dice.below(CARTS);
                self.compare("read", cart, "&wait=3s")?;
            }
        }
        Ok(())
    }

    fn compare_all(&mut self) -> Result<(), TimedOut> {
        (0..CARTS).try_for_each(|cart| self.compare("last", cart, "&wait=30s"))
    }

    /// Retries a request until its response has one of the statuses. The latency is the time until
    /// then, unless the daemon was killed meanwhile. Failures without a kill are recorded.
    fn send(
        &mut self,
        kind: &'static str,
        method: &str,
        path: &str,
        write: Option<(&str, &str)>,
        statuses: &[u16],
    ) -> Result<Answer, TimedOut> {
        let (phase, begun) = (self.arena.phase(), Instant::now());
        loop {
            let sent = Instant::now();
            let answer = match write {
                Some((key, body)) => self.client.send(method, path, &[JSON, ("idempotency-key", key)], body),
                None => self.client.send(method, path, &[], ""),
            };
            self.tally.requests += 1;
            self.arena.requests.fetch_add(1, Ordering::Relaxed);
            let is_killed = self.arena.windows.overlap(sent, Instant::now());
            let why = match answer {
                Ok(answer) if statuses.contains(&answer.status) => {
                    if !self.arena.windows.overlap(begun, Instant::now()) {
                        self.note(kind, phase, begun.elapsed());
                    }
                    return Ok(answer);
                }
                Ok(answer) if answer.status == 503 && !is_killed => {
                    self.arena.put_off(format!("{method} {path}: {}", answer.text()));
                    None
                }
                Ok(answer) => Some(format!("{}: {}", answer.status, answer.text())),
                Err(error) => Some(error.to_string()),
            };
            match why {
                Some(_) if is_killed => self.tally.repeated += 1,
                Some(why) => {
                    let (at, took) = ((sent - self.arena.begun).as_secs_f64(), sent.elapsed());
                    self.arena.fail(format!("at {at:.1} s, after {took:.1?}: {method} {path}: {why}"));
                }
                None => {}
            }
            if begun.elapsed() > PATIENCE {
                self.arena.fail(format!("{method} {path}: not answered within {PATIENCE:?}"));
                return Err(TimedOut);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn note(&mut self, kind: &'static str, phase: Phase, took: Duration) {
        match phase {
            Phase::Calm => self.tally.calm.push(took),
            Phase::Hostile => {
                self.tally.hostile.push(took);
                self.tally.kinds.entry(kind).or_default().push(took);
            }
            Phase::Over => {}
        }
    }
}
