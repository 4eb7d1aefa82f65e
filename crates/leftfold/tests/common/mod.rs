//! Projections and stores that the engine's tests share.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "part of tests, each of which uses its own"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leftfold::fold::{DocumentIds, Error};
use leftfold::log::Limit;
use leftfold::{App, Event, NewEvent, Position, Projection, Route, Store};
use serde::{Deserialize, Serialize};

/// All events of these tests. `to` names the documents, for projections that route by it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happened {
    Noted {
        to: Vec<String>,
    },
    Cleared {
        to: Vec<String>,
    },
    /// Can't be folded until the code is fixed.
    Poison {
        to: Vec<String>,
    },
    /// Panics until the code is fixed.
    Bomb {
        to: Vec<String>,
    },
    /// Fails the first two times.
    Flaky {
        to: Vec<String>,
    },
}

impl Happened {
    fn to(&self) -> &[String] {
        match self {
            Self::Noted { to }
            | Self::Cleared { to }
            | Self::Poison { to }
            | Self::Bomb { to }
            | Self::Flaky { to } => to,
        }
    }
}

pub fn noted(to: &[&str]) -> Happened {
    Happened::Noted { to: to.iter().map(ToString::to_string).collect() }
}

/// A document that remembers every event it has seen, in order: lost, duplicate or swapped events
/// show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub events: Vec<String>,
}

/// A switch between the broken and the fixed code.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    pub fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn is(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Debug)]
pub struct Notes {
    pub name: &'static str,
    pub by_stream: bool,
    pub mended: Switch,
    pub tries: Arc<std::sync::Mutex<BTreeMap<String, u32>>>,
}

impl Notes {
    pub fn by_stream() -> Self {
        Self { name: "by_stream", by_stream: true, mended: Switch::default(), tries: Arc::default() }
    }

    pub fn by_content() -> Self {
        Self { name: "by_content", by_stream: false, ..Self::by_stream() }
    }
}

impl Projection for Notes {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &str {
        self.name
    }

    fn route(&self) -> Route<Happened> {
        if self.by_stream {
            return Route::Stream;
        }
        Route::by(|event: &Event<Happened>| DocumentIds::many(event.data.to()))
    }

    /// The fixed code also understands events that were garbled.
    fn upcast(&self, mut event: Event) -> Event {
        if self.mended.is() && event.data.as_str().contains("garbled") {
            event.data = leftfold::Json::parse(&event.data.as_str().replace("garbled", "to")).unwrap();
        }
        event
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, Error> {
        let mended = self.mended.is();
        match &event.data {
            Happened::Cleared { .. } => return Ok(None),
            Happened::Poison { .. } if !mended => return Err("poison".into()),
            Happened::Bomb { .. } if !mended => panic!("bomb"),
            Happened::Flaky { .. } => {
                let mut tries = self.tries.lock().unwrap();
                let tries = tries.entry(event.id.to_string()).or_default();
                *tries += 1;
                if *tries <= 2 {
                    return Err(Error::transient("not yet"));
                }
            }
            _ => {}
        }
        let mut seen = seen.unwrap_or_default();
        seen.events.push(format!("{}@{}", event.stream, event.revision));
        Ok(Some(seen))
    }
}

/// Creates an event whose data no code understands until it is fixed.
pub fn garbled(to: &[&str]) -> NewEvent {
    let data = leftfold::Json::of(&serde_json::json!({ "garbled": to })).unwrap();
    NewEvent::new("noted", data).unwrap()
}

pub async fn whole_log<S: Store>(store: &S) -> Vec<Event> {
    let mut events = Vec::new();
    for partition in (0..store.partitions()).map(leftfold::Partition) {
        let mut at = Position(0);
        loop {
            let page = store.read(partition, at, Limit::default()).await.unwrap();
            at = page.through;
            events.extend(page.events);
            if !page.more {
                break;
            }
        }
    }
    events
}

/// Returns the documents as they must be once everything is fixed, computed by the simplest
/// possible code.
pub async fn expected<S: Store>(store: &S, by_stream: bool) -> BTreeMap<String, Vec<String>> {
    let mut documents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in whole_log(store).await {
        let data: serde_json::Value = event.data.to().unwrap();
        let to = data.get("to").or(data.get("garbled")).and_then(|to| to.as_array()).cloned();
        let Some(to) = to else { continue };
        let to: BTreeSet<_> = to.iter().map(|to| to.as_str().unwrap().to_owned()).collect();
        for id in if by_stream { BTreeSet::from([event.stream.to_string()]) } else { to } {
            if event.kind.as_str() == "cleared" {
                documents.remove(&id);
            } else {
                documents.entry(id).or_default().push(format!("{}@{}", event.stream, event.revision));
            }
        }
    }
    documents
}

/// Returns the stored documents.
pub async fn stored<S: Store>(store: &S, collection: &str) -> BTreeMap<String, Vec<String>> {
    let collection = leftfold::Collection::new(collection).unwrap();
    let records = store.scan(&collection, None, usize::MAX >> 1).await.unwrap();
    let seen =
        |record: &leftfold::documents::Record| record.body.as_ref().unwrap().to::<Seen>().unwrap().events;
    records.iter().map(|record| (record.id.to_string(), seen(record))).collect()
}

/// Waits until everything in the log is folded. Fails if that takes far longer than it ever should,
/// which reveals a worker that ended or loops.
pub async fn caught_up<S: Store>(app: &App<S>) {
    let bound = std::time::Duration::from_mins(1);
    tokio::time::timeout(bound, app.caught_up()).await.expect("it should long have caught up").unwrap();
}

/// Waits until everything in the log is folded, then compares.
pub async fn assert_right<S: Store>(app: &App<S>, notes: &Notes, run: &str) {
    caught_up(app).await;
    let (stored, expected) =
        (stored(app.store(), notes.name).await, expected(app.store(), notes.by_stream).await);
    for id in stored.keys().chain(expected.keys()) {
        let (is, should) =
            (stored.get(id).cloned().unwrap_or_default(), expected.get(id).cloned().unwrap_or_default());
        let same = is.iter().zip(&should).take_while(|(a, b)| a == b).count();
        assert!(
            is == should,
            "{run}: {id} after {same} events: {:?}… instead of {:?}…",
            is.get(same),
            should.get(same)
        );
    }
}
