//! Measures a JavaScript projection in a worker process against the same one in Rust: folds of one
//! caller, and a catch-up.

use std::time::Instant;

use leftfold::budget::Budget;
use leftfold::fold::{Error, Upcoming};
use leftfold::{
    DocumentId, Event, EventId, Expected, Json, Leftfold, NewEvent, Partition, Position, Projection,
    Revision, StreamId,
};
use leftfold_script::{Script, ScriptLimits, Workers};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::report::{Measurement, Result, float, median};
use crate::subject::Subject;
use crate::subject::sqlite::Files;

/// The sample projection that `leftfold init` creates.
const SCRIPT: &str = include_str!("../../crates/leftfold-cli/src/daemon/sample/carts.js");
const CARTS: u64 = 20_000;
/// The number of events of a cart: it is opened, then items are added.
const EACH: u64 = 10;
const EVENTS: u64 = CARTS * EACH;
const TIME: &str = "2026-01-01T10:00:00Z";
/// The goal for folds per second on one core.
const GOAL: f64 = 100_000.0;

/// The argument that turns this program into a script worker.
pub(crate) const WORKER: &str = "--script-worker";

pub(crate) async fn measure(files: &Files, rounds: usize) -> Result<Vec<Measurement>> {
    let workers = Workers::new(std::env::current_exe()?, [WORKER.to_owned()], Budget::unlimited());
    let script = Script::compile_in(&workers, "carts", "carts.js", ScriptLimits::default(), SCRIPT)?;
    let here = Script::compile("carts", "carts.js", ScriptLimits::default(), SCRIPT)?;
    let events = (0..CARTS).flat_map(|cart| (1..=EACH).map(move |revision| event(cart, revision)));
    let events = events.collect::<Result<Vec<_>>>()?;
    let (mut ours, mut in_process, mut rust) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("scripts, folds, round {round} of {rounds} …");
        rust.push(fold(&events, in_rust)?);
        in_process.push(fold(&events, |cart, event| Ok(here.fold(cart, event)?))?);
        ours.push(fold_in_bulk(&events, &script)?);
    }
    let (ours, in_process, rust) = (median(ours), median(in_process), median(rust));
    let mut measurements = vec![
        Measurement::more("folds per second on one core (100000)", ours, GOAL, Some(1.0)),
        Measurement::more(
            "folds per second on one core (in this process, not contained)",
            ours,
            in_process,
            None,
        ),
        Measurement::more(
            "folds per second on one core (the same in Rust, from JSON to JSON)",
            ours,
            rust,
            None,
        ),
    ];
    fill(files).await?;
    let (mut ours, mut rust) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("scripts, catch-up, round {round} of {rounds} …");
        rust.push(catch_up(files, Carts).await?);
        ours.push(catch_up(files, script.clone()).await?);
    }
    let bench = "catch-up of a script on SQLite, events/s (the same in Rust)";
    measurements.push(Measurement::more(bench, median(ours), median(rust), None));
    Ok(measurements)
}

/// Folds all events in a worker, a page at a time as the engine does, and returns the events per
/// second. The caller and the worker take turns, so this is the speed of one core.
fn fold_in_bulk(events: &[Event], script: &Script) -> Result<f64> {
    const PAGE: usize = 2_000;
    let bulk = script.bulk().ok_or("the script does not run in a worker process")?;
    let mut items = 0;
    let begun = Instant::now();
    for page in events.chunks(PAGE) {
        let ids: Vec<_> = page.iter().map(|event| DocumentId::from(&event.stream)).collect();
        let upcoming = page.iter().zip(&ids).map(|(event, id)| Upcoming { id, document: None, event });
        let folded = bulk.fold(&upcoming.collect::<Vec<_>>(), page.len(), std::time::Duration::ZERO);
        for (event, folded) in page.iter().zip(folded) {
            let cart = folded.ok_or("the worker did not fold an event")??;
            if event.revision.0 == EACH {
                items += cart.as_ref().map(Json::to::<Cart>).transpose()?.map_or(0, |cart| cart.items);
            }
        }
    }
    let took = begun.elapsed();
    if items != CARTS * (EACH - 1) * 2 {
        return Err(format!("the carts have {items} items, which is wrong").into());
    }
    Ok(float(EVENTS) / took.as_secs_f64())
}

/// Folds all events, one cart after the other, and returns the events per second.
fn fold(events: &[Event], fold: impl Fn(Option<Json>, &Event) -> Result<Option<Json>>) -> Result<f64> {
    let (mut cart, mut items) = (None, 0);
    let begun = Instant::now();
    for event in events {
        cart = fold(cart.filter(|_| event.revision.0 > 1), event)?;
        if event.revision.0 == EACH {
            items += cart.as_ref().map(Json::to::<Cart>).transpose()?.map_or(0, |cart| cart.items);
        }
    }
    let took = begun.elapsed();
    if items != CARTS * (EACH - 1) * 2 {
        return Err(format!("the carts have {items} items, which is wrong").into());
    }
    Ok(float(EVENTS) / took.as_secs_f64())
}

fn new_event(revision: u64) -> Result<NewEvent> {
    let (kind, data) = match revision {
        1 => ("cart-opened", r#"{"client":"ann"}"#),
        _ => ("item-added", r#"{"product":"shoes","quantity":2}"#),
    };
    Ok(NewEvent::new(kind, Json::parse(data)?)?)
}

fn event(cart: u64, revision: u64) -> Result<Event> {
    let NewEvent { kind, data, .. } = new_event(revision)?;
    Ok(Event {
        id: EventId::new(format!("{cart}-{revision}"))?,
        stream: StreamId::new(format!("cart-{cart:07}"))?,
        revision: Revision(revision),
        kind,
        time: TIME.parse()?,
        data,
        metadata: None,
        partition: Partition(0),
        position: Position(cart * EACH + revision),
    })
}

/// A cart as the script folds it.
#[derive(Serialize, Deserialize)]
struct Cart {
    client: String,
    items: u64,
    opened: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CartEvent {
    CartOpened { client: String },
    ItemAdded { quantity: u64 },
    CartCanceled {},
}

/// The same projection in Rust.
struct Carts;

impl Projection for Carts {
    type Event = CartEvent;
    type Document = Cart;

    fn name(&self) -> &'static str {
        "carts_in_rust"
    }

    fn fold(&self, cart: Option<Cart>, event: &Event<CartEvent>) -> Result<Option<Cart>, Error> {
        next(cart, &event.data, || event.time.to_string())
    }
}

fn next(cart: Option<Cart>, event: &CartEvent, time: impl Fn() -> String) -> Result<Option<Cart>, Error> {
    match (cart, event) {
        (_, CartEvent::CartOpened { client }) => {
            Ok(Some(Cart { client: client.clone(), items: 0, opened: time() }))
        }
        (Some(cart), CartEvent::ItemAdded { quantity }) => {
            Ok(Some(Cart { items: cart.items + quantity, ..cart }))
        }
        (None, CartEvent::ItemAdded { .. }) => Err("the cart does not exist".into()),
        (_, CartEvent::CartCanceled {}) => Ok(None),
    }
}

/// Folds from text to text, as a script does.
fn in_rust(cart: Option<Json>, event: &Event) -> Result<Option<Json>> {
    #[derive(Deserialize)]
    struct Opened {
        client: String,
    }
    #[derive(Deserialize)]
    struct Added {
        quantity: u64,
    }
    let data = match event.kind.as_str() {
        "cart-opened" => CartEvent::CartOpened { client: event.data.to::<Opened>()?.client },
        "item-added" => CartEvent::ItemAdded { quantity: event.data.to::<Added>()?.quantity },
        _ => CartEvent::CartCanceled {},
    };
    let cart = cart.map(|cart| cart.to()).transpose()?;
    let cart = next(cart, &data, || event.time.to_string())?;
    Ok(cart.map(|cart| Json::of(&cart)).transpose()?)
}

const PLACE: &str = "scripts";

async fn fill(files: &Files) -> Result<()> {
    const AT_ONCE: u64 = 1_000;
    eprintln!("preparing {EVENTS} events …");
    let store = files.open(PLACE).await?;
    let app = Leftfold::on(store.clone()).open().await?;
    for first in (0..CARTS).step_by(usize::try_from(AT_ONCE)?) {
        let mut under_way = JoinSet::new();
        for cart in first..first + AT_ONCE {
            let events = (1..=EACH).map(new_event).collect::<Result<Vec<_>>>()?;
            let app = app.clone();
            under_way.spawn(async move {
                app.append_events(&format!("cart-{cart:07}"), Expected::Any, events).await
            });
        }
        while let Some(done) = under_way.join_next().await {
            done??;
        }
    }
    drop(app);
    files.close(store).await;
    Ok(())
}

/// Returns the events per second of a projection that folds a log from its beginning.
async fn catch_up(files: &Files, projection: impl Projection) -> Result<f64> {
    let store = files.open(&files.unfolded(PLACE).await?).await?;
    let begun = Instant::now();
    let app = Leftfold::on(store.clone()).projection(projection).start().await?;
    app.caught_up().await?;
    let took = begun.elapsed();
    app.stop().await;
    drop(app);
    files.close(store).await;
    Ok(float(EVENTS) / took.as_secs_f64())
}
