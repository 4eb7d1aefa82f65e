//! The actors besides the nodes: a writer and an operator.

use std::time::Duration;

use leftfold::log::Entry;
use leftfold::react::{Query, ReactorHandle, State};
use leftfold::{Append as _, DocumentId, EventId, EventKind, Expected, Json, Result, StreamId};
use tokio::sync::watch;
use tokio::time::sleep;

use super::things::{DEADLY, POISON, REACTIONS, TORN, Thing, things};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::SimStore;

/// Writes a document, or deletes it if `thing` is `None`.
pub(super) fn write(store: &SimStore, id: &str, thing: Option<&Thing>) -> Result<()> {
    let id = DocumentId::new(id)?;
    let body = thing.map(Json::of).transpose()?;
    store.shared().trace.note(|| match &body {
        Some(body) => format!("{id} is {}", body.as_str()),
        None => format!("{id} is deleted"),
    });
    let value = thing.and_then(|thing| serde_json::to_value(thing).ok());
    store.shared().ledger.wrote(&id, value);
    store.inner().write_plain(&things()?, id, body);
    Ok(())
}

/// Appends an event.
pub(super) async fn append(store: &SimStore, stream: &str, kind: &str, number: u64) -> Result<()> {
    let entry = Entry {
        id: EventId::new(format!("{stream}-{kind}-{number}"))?,
        kind: EventKind::new(kind)?,
        time: jiff::Timestamp::UNIX_EPOCH,
        data: Json::of(&number)?,
        metadata: None,
    };
    store.shared().trace.note(|| format!("{kind} in {stream}"));
    let appended = store.inner().append(StreamId::new(stream)?, Expected::Any, vec![entry]).await;
    appended.map(drop).map_err(|error| leftfold::Error::new(leftfold::Kind::Store, error.to_string()))
}

/// Writes documents and events until the faults end.
pub(super) async fn write_on(store: SimStore, dice: Dice, faults_ended: watch::Receiver<bool>) -> Result<()> {
    let number = 2 + dice.below(5);
    let mut ids: Vec<_> = (0..number).map(|number| format!("d{number}")).collect();
    if dice.happens(400) {
        ids.push(POISON.to_owned());
    }
    if dice.happens(300) {
        ids.push(DEADLY.to_owned());
    }
    let (pause, with_events) = (100 + dice.below(1_500), dice.happens(600));
    let torn = if dice.happens(300) { 50 } else { 0 };
    for number in 0..80 {
        sleep(dice.time(Duration::from_millis(pause))).await;
        if *faults_ended.borrow() {
            break;
        }
        let noise = || if dice.happens(torn) { TORN } else { dice.below(3) };
        let thing = || Thing { on: dice.happens(700), value: dice.below(5), noise: noise() };
        let Some(id) = dice.pick(&ids) else { continue };
        let (first, second) = (thing(), thing());
        write(&store, id, dice.happens(850).then_some(&first))?;
        // Some documents change and change back, at once or a moment later.
        if dice.happens(200) {
            if dice.happens(500) {
                sleep(dice.time(Duration::from_millis(100))).await;
            }
            write(&store, id, dice.happens(700).then_some(&second))?;
            if dice.happens(500) {
                sleep(dice.time(Duration::from_millis(100))).await;
            }
            write(&store, id, Some(&first))?;
        }
        if with_events && dice.happens(400) {
            let kind = if dice.happens(700) { "sold" } else { "seen" };
            append(&store, &format!("s{}", dice.below(3)), kind, number).await?;
        }
    }
    Ok(())
}

/// Pauses and resumes reactions, and retries tasks.
pub(super) async fn operate(
    reacting: ReactorHandle<SimStore>,
    store: SimStore,
    dice: Dice,
    faults_ended: watch::Receiver<bool>,
) {
    let careful = dice.happens(500);
    while !*faults_ended.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        let Some(reaction) = dice.pick(&REACTIONS) else { continue };
        if !store.strikes(Fault::Meddling) {
            continue;
        }
        let ledger = &store.shared().ledger;
        match dice.below(3) {
            0 => {
                if reacting.pause(reaction).await.is_ok() {
                    ledger.paused(reaction);
                }
            }
            1 => resume(&reacting, &store, reaction).await,
            _ => {
                let states = if careful { vec![State::Failed] } else { Vec::new() };
                let query = Query { reaction: Some((*reaction).to_owned()), states, ..Query::default() };
                let _ = reacting.retry(query, None).await;
            }
        }
    }
}

/// Resumes a reaction.
pub(super) async fn resume(reacting: &ReactorHandle<SimStore>, store: &SimStore, reaction: &str) {
    store.shared().ledger.resumes(reaction, true);
    if reacting.resume(reaction).await.is_ok() {
        store.shared().ledger.resumes(reaction, false);
    }
}
