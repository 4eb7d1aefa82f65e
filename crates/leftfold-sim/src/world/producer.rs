//! A client that appends events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leftfold::{App, AppendError, Expected, Invalid, Json, NewEvent, Revision};
use tokio::sync::watch;
use tokio::time::sleep;

use super::responses::Responses;
use crate::dice::Dice;
use crate::notes::{Happened, Mixture};
use crate::store::SimStore;

/// A client that appends events.
pub(crate) struct Producer {
    pub(crate) app: App<SimStore>,
    pub(crate) dice: Dice,
    pub(crate) number: u64,
    pub(crate) mixture: Mixture,
    /// `true` if documents can be cleared. This needs a single partition, which gives all events an
    /// order.
    pub(crate) clears: bool,
    pub(crate) responses: Arc<Responses>,
}

impl Producer {
    /// Appends events until the faults end.
    pub(crate) async fn produce(self, faults_ended: watch::Receiver<bool>) {
        for number in 0..40 {
            sleep(self.dice.time(Duration::from_millis(1_300))).await;
            if *faults_ended.borrow() {
                break;
            }
            let stream = format!("s{}", self.dice.below(5));
            let Ok(events) = self.events(number) else { continue };
            let revision = self.dice.happens(200).then(|| Revision(self.dice.below(20)));
            let expected = revision.map_or(Expected::Any, Expected::Revision);
            self.append(&stream, expected, events).await;
        }
    }

    fn events(&self, number: u64) -> Result<Vec<NewEvent>, Invalid> {
        let count = 1 + self.dice.below(3);
        let events = (0..count).map(|at| {
            let producer = self.number;
            let id = format!("p{producer}-{number}-{at}");
            let event = self.mixture.event(&self.dice, &id)?;
            if event.kind.as_str() == "cleared" && !self.clears {
                return NewEvent::encode(&Happened::Noted { to: vec!["d0".into()] })?.with_id(&id);
            }
            Ok(event)
        });
        let mut events: Vec<_> = events.collect::<Result<_, _>>()?;
        if self.dice.happens(1) {
            let vast = Json::of(&serde_json::json!({ "to": ["d0"], "vast": "x".repeat(1 << 20) }))?;
            events.push(NewEvent::new("noted", vast)?.with_id(format!("p{}-{number}-vast", self.number))?);
        }
        if self.dice.happens(20) {
            // Reuse the id of another event with a content that no other producer writes.
            let taken = format!("p{}-{}-0", self.dice.below(3), self.dice.below(number + 1));
            let to = vec![format!("taken{}", self.number)];
            events = vec![NewEvent::encode(&Happened::Noted { to })?.with_id(&taken)?];
        }
        Ok(events)
    }

    /// Appends, retries unknown outcomes, and checks that the response is true.
    async fn append(&self, stream: &str, expected: Expected, events: Vec<NewEvent>) {
        let (store, mut doubt) = (self.app.store(), false);
        let checker = &store.shared().checker;
        for _ in 0..200 {
            let calm = store.shared().faults.is_calm();
            let answer = self.app.append_events(stream, expected, events.clone()).await;
            let mut logged = Vec::new();
            for event in &events {
                let Some(id) = &event.id else { continue };
                logged.push(checker.is_logged(store.inner(), id, &event.data).await.unwrap_or(false));
            }
            match answer {
                Ok(appended) => {
                    self.responses.acknowledged().push(appended.into_bookmark());
                    if logged.contains(&false) {
                        checker.violated(format!(
                            "I11: an append to {stream} was acknowledged, and is not in the log"
                        ));
                    }
                    return;
                }
                Err(AppendError::Store(error)) if error.is_transient() => {
                    if calm {
                        checker.violated(format!("I11: an append failed without faults: {error}"));
                    }
                    doubt = true;
                    sleep(self.dice.time(Duration::from_secs(1))).await;
                }
                Err(AppendError::IdTaken { .. } | AppendError::PartlyThere { .. }) => return,
                Err(_) => {
                    self.responses.refused.fetch_add(1, Ordering::Relaxed);
                    if !doubt && logged.contains(&true) {
                        checker
                            .violated(format!("I11: an append to {stream} was rejected, and is in the log"));
                    }
                    return;
                }
            }
        }
    }
}
