//! A workload of carts as messages, shuffled and repeated, and the checks of its outcome.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use leftfold::log::Limit;
use leftfold::{Documents, Event, Leftfold, Log, Projection, Revision, Sequences, StreamId, fold};
use leftfold_sources::Message;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Returns the events of each stream, as structured CloudEvents in order.
pub(crate) fn story(streams: u64, length: u64) -> Vec<Message> {
    let events = (1..=length).flat_map(|number| (1..=streams).map(move |stream| (stream, number)));
    events.map(|(stream, number)| event(stream, number)).collect()
}

pub(crate) fn event(stream: u64, number: u64) -> Message {
    let event = json!({
        "specversion": "1.0", "id": format!("e-{stream}-{number}"), "source": "/shop", "type": "added",
        "subject": format!("cart-{stream}"), "sequence": number, "data": { "number": number },
    });
    Message::new(event.to_string()).with("content-type", "application/cloudevents+json")
}

/// Returns a structured event with this text as its data.
pub(crate) fn event_with(stream: &str, number: u64, data: &str) -> Message {
    let event = format!(
        r#"{{"specversion":"1.0","id":"{stream}-{number}","source":"/shop","type":"added","subject":"{stream}","sequence":{number},"data":{data}}}"#
    );
    Message::new(event).with("content-type", "application/cloudevents+json")
}

/// Returns messages that are not events, each for another reason.
pub(crate) fn poison() -> Vec<Message> {
    let no_subject = r#"{"specversion":"1.0","id":"p","source":"/","type":"added","sequence":1}"#;
    let zero =
        r#"{"specversion":"1.0","id":"p","source":"/","type":"added","subject":"cart-1","sequence":0}"#;
    let contents: [&[u8]; 4] = [b"poison", b"\xff\xff", no_subject.as_bytes(), zero.as_bytes()];
    contents
        .into_iter()
        .map(|content| Message::new(content).with("content-type", "application/json"))
        .collect()
}

/// Pseudo-random numbers, the same for the same seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }
}

/// Repeats one message in four, and moves each within a window of its position.
pub(crate) fn shuffled(messages: Vec<Message>, window: usize, seed: u64) -> Vec<Message> {
    let mut chance = Chance::new(seed);
    let mut places = Vec::new();
    for (number, message) in messages.into_iter().enumerate() {
        if chance.below(4) == 0 {
            places.push((number + chance.below(window), message.clone()));
        }
        places.push((number + chance.below(window), message));
    }
    places.sort_by_key(|(place, _)| *place);
    places.into_iter().map(|(_, message)| message).collect()
}

/// The time after which a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Fails if the future takes far too long, so that a test does not hang.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: it should long have happened"))
}

/// Polls until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Waits until the log has this many events.
pub(crate) async fn logged<S: Log>(store: &S, events: u64) {
    soon(&format!("{events} events in the log"), async {
        loop {
            let heads = store.heads().await.unwrap();
            if count(store).await >= events {
                return;
            }
            store.grown(&heads).await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn count<S: Log>(store: &S) -> u64 {
    let heads = store.heads().await.unwrap();
    (0..store.partitions()).map(|partition| heads.get(&leftfold::Partition(partition).into())).sum()
}

/// The contents of the carts: the numbers of their events, in the order in which they were folded.
pub(crate) struct Carts;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Happened {
    Added { number: u64 },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cart {
    pub numbers: Vec<u64>,
}

impl Projection for Carts {
    type Event = Happened;
    type Document = Cart;

    fn name(&self) -> &'static str {
        "carts"
    }

    fn fold(&self, cart: Option<Cart>, event: &Event<Happened>) -> Result<Option<Cart>, fold::Error> {
        let Happened::Added { number } = event.data;
        let mut cart = cart.unwrap_or_default();
        cart.numbers.push(number);
        Ok(Some(cart))
    }
}

/// Asserts that the log has each event once and in order, nothing is held, and the documents are
/// the fold of the log.
pub(crate) async fn assert_right<S: Sequences + Documents + Clone>(store: &S, streams: u64, length: u64) {
    let all: Vec<u64> = (1..=length).collect();
    for stream in 1..=streams {
        let id = StreamId::new(format!("cart-{stream}")).unwrap();
        let events = store.read_stream(&id, Revision(0), Limit::default()).await.unwrap();
        let revisions: Vec<u64> = events.iter().map(|event| event.revision.0).collect();
        assert_eq!(revisions, all, "{id}");
    }
    assert!(store.waiting(None, 10).await.unwrap().is_empty(), "something is held");
    assert!(store.conflicts(None, 10).await.unwrap().is_empty(), "something is in conflict");
    let app = Leftfold::on(store.clone()).projection(Carts).start().await.unwrap();
    soon("folding", app.caught_up()).await.unwrap();
    for stream in 1..=streams {
        let cart = app.get(Carts, &format!("cart-{stream}")).await.unwrap();
        assert_eq!(cart.unwrap().numbers, all, "cart-{stream}");
    }
    app.stop().await;
}

/// Returns the source and the reason of each rejected message, by content.
pub(crate) async fn rejected<S: Sequences>(store: &S) -> BTreeMap<Vec<u8>, (String, String)> {
    let rejected = store.rejected(None, 100).await.unwrap();
    rejected.into_iter().map(|rejected| (rejected.content, (rejected.source, rejected.reason))).collect()
}
