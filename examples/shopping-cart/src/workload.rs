//! Any number of carts: reproducible from a seed and valid by construction. Carts are generated on
//! demand, so ten million events need no memory.
//!
//! ```
//! use shopping_cart::workload::{Order, Workload};
//!
//! let workload = Workload::new(1, 1_000, 10).order(Order::Interleaved { open: 50 });
//! let events: usize = workload.into_iter().map(|(_stream, events)| events.len()).sum();
//! assert_eq!(events, 10_000);
//! ```

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use leftfold::{NewEvent, StreamId};

use crate::CartEvent;

/// Carts of many clients, over 90 days.
///
/// Most are confirmed in the end, and one in ten is canceled. One in twenty is canceled, opened
/// again and confirmed. Event ids are fixed, so appending a workload twice has no further effect.
#[derive(Clone, Debug)]
pub struct Workload {
    seed: u64,
    carts: u64,
    events_per_cart: u32,
    order: Order,
    first: u64,
    step: u64,
}

/// The order of the carts' events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All events of a cart together, one cart after the other.
    Grouped,
    /// One event at a time, in turns among the open carts.
    Interleaved {
        /// The number of carts open at a time.
        open: usize,
    },
}

impl Workload {
    /// Creates a workload of `carts` carts with exactly `events_per_cart` events each.
    ///
    /// A cart has at least two events: opened, and confirmed or canceled.
    pub fn new(seed: u64, carts: u64, events_per_cart: u32) -> Self {
        let events_per_cart = events_per_cart.max(2);
        Self { seed, carts, events_per_cart, order: Order::Grouped, first: 0, step: 1 }
    }

    /// Sets the order. The default is [`Order::Grouped`].
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Returns the share of one writer of several, counted from 0. Every cart belongs to exactly
    /// one writer.
    #[must_use]
    pub fn share(self, writer: u64, writers: u64) -> Self {
        Self { first: writer, step: writers.max(1), ..self }
    }

    /// Returns the number of events of all writers together.
    pub fn events(&self) -> u64 {
        self.carts * u64::from(self.events_per_cart)
    }
}

impl IntoIterator for Workload {
    type Item = (StreamId, Vec<NewEvent>);
    type IntoIter = Appends;

    fn into_iter(self) -> Appends {
        Appends { next: self.first, workload: self, open: VecDeque::new() }
    }
}

/// The appends of a workload, one call after the other.
#[derive(Debug)]
pub struct Appends {
    workload: Workload,
    next: u64,
    open: VecDeque<Course>,
}

impl Iterator for Appends {
    type Item = (StreamId, Vec<NewEvent>);

    fn next(&mut self) -> Option<Self::Item> {
        let (places, at_once) = match self.workload.order {
            Order::Grouped => (1, usize::MAX),
            Order::Interleaved { open } => (open.max(1), 1),
        };
        while self.open.len() < places && self.next < self.workload.carts {
            self.open.push_back(Course::new(&self.workload, self.next));
            self.next += self.workload.step;
        }
        let mut course = self.open.pop_front()?;
        let append = (course.stream.clone(), course.by_ref().take(at_once).collect());
        if course.done < course.events {
            self.open.push_back(course);
        }
        Some(append)
    }
}

/// The events of one cart, in progress.
#[derive(Debug)]
struct Course {
    random: Random,
    stream: StreamId,
    client_id: String,
    time: Timestamp,
    /// Quantities by product.
    cart: BTreeMap<u64, u32>,
    events: u32,
    done: u32,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Confirmed,
    Canceled,
    /// Canceled by the event with this number, opened again by the next, confirmed in the end.
    CanceledOnTheWay(u32),
}

const DAYS: i64 = 90;
const PRODUCTS: u64 = 1_000;
const CARTS_PER_CLIENT: u64 = 10;
const BEGIN: Timestamp = Timestamp::constant(1_767_225_600, 0); // 2026-01-01

impl Course {
    fn new(workload: &Workload, number: u64) -> Self {
        let mut random = Random::of(workload.seed, number);
        let clients = workload.carts.div_ceil(CARTS_PER_CLIENT);
        let ending = match random.below(20) {
            0 if workload.events_per_cart >= 6 => Ending::CanceledOnTheWay(workload.events_per_cart / 2),
            1 | 2 => Ending::Canceled,
            _ => Ending::Confirmed,
        };
        let seconds = i128::from(DAYS * 24 * 60 * 60) * i128::from(number) / i128::from(workload.carts);
        let seconds = i64::try_from(seconds).expect("a share of 90 days");
        Self {
            stream: StreamId::stored(&format!("cart-{number:07}")),
            client_id: format!("client-{:06}", random.below(clients)),
            time: BEGIN + SignedDuration::from_secs(seconds),
            cart: BTreeMap::new(),
            events: workload.events_per_cart,
            done: 0,
            ending,
            random,
        }
    }

    fn event(&mut self) -> CartEvent {
        let client_id = self.client_id.clone();
        let last = self.done == self.events;
        match self.ending {
            _ if self.done == 1 => CartEvent::ShoppingCartOpened { client_id },
            Ending::Canceled if last => CartEvent::ShoppingCartCanceled { client_id },
            _ if last => CartEvent::ShoppingCartConfirmed { client_id, total: self.total() },
            Ending::CanceledOnTheWay(at) if at == self.done => {
                self.cart.clear();
                CartEvent::ShoppingCartCanceled { client_id }
            }
            Ending::CanceledOnTheWay(at) if at + 1 == self.done => {
                CartEvent::ShoppingCartOpened { client_id }
            }
            _ if self.random.below(4) == 0 => self.remove().unwrap_or_else(|| self.add()),
            _ => self.add(),
        }
    }

    fn add(&mut self) -> CartEvent {
        let again = self.random.below(3) == 0;
        let product = match self.any_in_cart() {
            Some(product) if again => product,
            _ => self.random.below(PRODUCTS),
        };
        let quantity = self.random.up_to(3);
        *self.cart.entry(product).or_default() += quantity;
        CartEvent::ProductItemAdded {
            product_id: product_id(product),
            name: product_name(product),
            quantity,
            unit_price: unit_price(product),
        }
    }

    fn remove(&mut self) -> Option<CartEvent> {
        let product = self.any_in_cart()?;
        let there = self.cart.get_mut(&product)?;
        let quantity = self.random.up_to(*there);
        *there -= quantity;
        if *there == 0 {
            self.cart.remove(&product);
        }
        Some(CartEvent::ProductItemRemoved { product_id: product_id(product), quantity })
    }

    fn any_in_cart(&mut self) -> Option<u64> {
        let place = self.random.below((self.cart.len() as u64).max(1));
        self.cart.keys().zip(0..).find(|(_, at)| *at == place).map(|(product, _)| *product)
    }

    fn total(&self) -> u64 {
        let price =
            |(product, quantity): (&u64, &u32)| u64::from(*quantity) * u64::from(unit_price(*product));
        self.cart.iter().map(price).sum()
    }
}

impl Iterator for Course {
    type Item = NewEvent;

    fn next(&mut self) -> Option<NewEvent> {
        if self.done == self.events {
            return None;
        }
        self.done += 1;
        self.time += SignedDuration::from_secs(i64::from(self.random.up_to(60)));
        let event = NewEvent::encode(&self.event())
            .and_then(|event| event.with_id(format!("{}-{}", self.stream, self.done)))
            .expect("the events and ids made here are valid");
        Some(event.at(self.time))
    }
}

fn product_id(product: u64) -> String {
    format!("product-{product:04}")
}

fn product_name(product: u64) -> String {
    const WHAT: [&str; 4] = ["Running shoes", "Rain jacket", "Wool socks", "Trail backpack"];
    const HOW: [&str; 5] = [
        "with reflective laces for dark mornings",
        "for cold and windy days in the hills",
        "for children between six and twelve",
        "made to last and easy to repair",
        "from last year, reduced by a third",
    ];
    const COLOUR: [&str; 5] = ["midnight blue", "moss green", "sunflower yellow", "stone grey", "brick red"];
    let pick = |from: &[&'static str], at: u64| from[usize::try_from(at).unwrap_or(0) % from.len()];
    let (what, how, colour) = (pick(&WHAT, product), pick(&HOW, product / 4), pick(&COLOUR, product / 20));
    format!("{what} {how}, {colour}, size {}", 34 + product / 100)
}

fn unit_price(product: u64) -> u32 {
    u32::try_from(product * 7_919 % 20_000).unwrap_or(0) + 99
}

/// The splitmix64 generator: small, fast, and stable across platforms and versions.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn of(seed: u64, number: u64) -> Self {
        let mut of_seed = Self(seed);
        Self(of_seed.next() ^ Self(number).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `limit` - 1.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a number from 1 to `most`.
    fn up_to(&mut self, most: u32) -> u32 {
        u32::try_from(self.below(most.into())).unwrap_or(0) + 1
    }
}
