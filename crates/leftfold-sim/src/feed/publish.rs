//! The origin of the events, and the faults on the way from it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::{Delivery, EventId, EventKind, Json, Result, Revision, StreamId};
use tokio::sync::watch;
use tokio::time::sleep;

use super::messages::SimulatedFeed;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::SimStore;

impl SimulatedFeed {
    /// Publishes events until the faults end, and applies the feed's faults to them.
    pub(crate) async fn publish(store: SimStore, dice: Dice, faults_ended: watch::Receiver<bool>) {
        let (shared, faults) = (store.shared(), &store.shared().faults);
        let linked = dice.happens(300);
        let streams = 1 + dice.below(3);
        for number in 0..40 {
            sleep(dice.time(Duration::from_secs(1))).await;
            if *faults_ended.borrow() {
                break;
            }
            let Ok(stream) = StreamId::new(format!("f{}", dice.below(streams))) else { continue };
            let last = shared.feed.last_published(&stream);
            let step = if linked { 1 + dice.below(3) } else { 1 };
            let Ok(event) = delivery(&stream, last.0 + step, last.0, &format!("f{number}"), &dice) else {
                continue;
            };
            shared.feed.publish_event(event.clone());
            if faults.strikes(Fault::Lost) {
                continue;
            }
            let late = |fault| {
                if faults.strikes(fault) { dice.time(Duration::from_secs(12)) } else { Duration::ZERO }
            };
            shared.feed.send(event.clone(), late(Fault::Reordered));
            if faults.strikes(Fault::Twice) {
                shared.feed.send(event, dice.time(Duration::from_secs(20)));
            }
            if faults.strikes(Fault::Twin) {
                let twin = delivery(&stream, last.0 + step, last.0, &format!("twin{number}"), &dice);
                if let Ok(twin) = twin {
                    shared.feed.send(twin, dice.time(Duration::from_secs(5)));
                }
            }
        }
    }
}

/// Returns an event of a feed with unique content.
fn delivery(stream: &StreamId, revision: u64, previous: u64, id: &str, dice: &Dice) -> Result<Delivery> {
    let to = [format!("d{}", dice.below(4))];
    let entry = Entry {
        id: EventId::new(id)?,
        kind: EventKind::new("noted")?,
        time: Timestamp::UNIX_EPOCH,
        data: Json::of(&serde_json::json!({ "to": to, "by": id }))?,
        metadata: None,
    };
    Ok(Delivery {
        stream: stream.clone(),
        revision: Some(Revision(revision)),
        previous: Some(Revision(previous)),
        entry: Arc::new(entry),
    })
}
