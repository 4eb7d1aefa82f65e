//! The projections under test and their events. A document lists every event it has folded, in
//! order, so a lost, duplicated or swapped event shows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leftfold::fold::{DocumentIds, Error};
use leftfold::{Event, Invalid, Json, NewEvent, Projection, Route};
use serde::{Deserialize, Serialize};

use crate::dice::Dice;

/// The projection that routes by stream.
pub const BY_STREAM: &str = "by_stream";
/// The projection that routes by content.
pub const BY_CONTENT: &str = "by_content";

/// An event. `to` names the documents, for the projection that routes by content.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happened {
    /// An event that documents list.
    Noted {
        /// The documents.
        to: Vec<String>,
    },
    /// An event that empties the documents.
    Cleared {
        /// The documents.
        to: Vec<String>,
    },
    /// An event that can't be folded before the code is fixed.
    Poison {
        /// The documents.
        to: Vec<String>,
    },
    /// An event that can't be folded at first.
    Flaky {
        /// The documents.
        to: Vec<String>,
    },
}

impl Happened {
    fn to(&self) -> &[String] {
        match self {
            Self::Noted { to } | Self::Cleared { to } | Self::Poison { to } | Self::Flaky { to } => to,
        }
    }

    /// Returns a random event in the default mixture.
    pub fn any(dice: &Dice, id: &str) -> Result<NewEvent, Invalid> {
        Mixture::default().event(dice, id)
    }
}

/// The number of events of each kind per thousand. All others are noted.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    cleared: u64,
    poison: u64,
    flaky: u64,
    garbled: u64,
    unheard_of: u64,
}

impl Default for Mixture {
    fn default() -> Self {
        Self { cleared: 50, poison: 40, flaky: 40, garbled: 30, unheard_of: 30 }
    }
}

impl Mixture {
    /// Draws a mixture with the dice.
    pub fn drawn(dice: &Dice) -> Self {
        let rate = |most| if dice.happens(700) { dice.below(most) } else { 0 };
        Self {
            cleared: rate(100),
            poison: rate(100),
            flaky: rate(100),
            garbled: rate(150),
            unheard_of: rate(60),
        }
    }

    /// Returns the mixture with many events that can't be decoded before the code is fixed.
    #[must_use]
    pub fn garbled(self) -> Self {
        Self { garbled: 120, ..self }
    }

    /// Returns a random event. Some can't be folded or decoded before the code is fixed.
    pub fn event(&self, dice: &Dice, id: &str) -> Result<NewEvent, Invalid> {
        let to: Vec<String> = (0..dice.below(3)).map(|_| format!("d{}", dice.below(4))).collect();
        let rates = [self.cleared, self.poison, self.flaky, self.garbled, self.unheard_of];
        let mut drawn = dice.below(1_000);
        let kind = rates.iter().position(|rate| match drawn.checked_sub(*rate) {
            Some(left) => {
                drawn = left;
                false
            }
            None => true,
        });
        let event = match kind {
            Some(0) => NewEvent::encode(&Happened::Cleared { to }),
            Some(1) => NewEvent::encode(&Happened::Poison { to }),
            Some(2) => NewEvent::encode(&Happened::Flaky { to }),
            Some(3) => NewEvent::new("noted", Json::of(&serde_json::json!({ "garbled": to }))?),
            Some(_) => NewEvent::new("unheard-of", Json::stored("{}")),
            None => NewEvent::encode(&Happened::Noted { to }),
        };
        event?.with_id(id)
    }
}

/// The events that a document has folded since it was last cleared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoldedEvents {
    /// The events as `stream@revision`, in order.
    pub events: Vec<String>,
}

/// The projection, by stream or by content.
#[derive(Clone, Debug)]
pub struct Notes {
    by_stream: bool,
    /// `true` once the code is fixed. All users of the same code share this.
    fixed: Arc<AtomicBool>,
    tries: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Notes {
    /// Creates the projection by stream, or by content, with code that is not fixed yet.
    pub fn new(by_stream: bool) -> Self {
        Self { by_stream, fixed: Arc::default(), tries: Arc::default() }
    }

    /// Returns a copy of the code in its current version. Later fixes do not affect the copy.
    #[must_use]
    pub fn as_it_is(&self) -> Self {
        let fixed = Arc::new(AtomicBool::new(self.fixed.load(Ordering::Relaxed)));
        Self { fixed, ..self.clone() }
    }

    /// Fixes the code for all that share it.
    pub fn fix(&self) {
        self.fixed.store(true, Ordering::Relaxed);
    }
}

impl Projection for Notes {
    type Event = Happened;
    type Document = FoldedEvents;

    fn name(&self) -> &'static str {
        if self.by_stream { BY_STREAM } else { BY_CONTENT }
    }

    fn route(&self) -> Route<Happened> {
        if self.by_stream {
            return Route::Stream;
        }
        Route::by(|event: &Event<Happened>| DocumentIds::many(event.data.to()))
    }

    fn upcast(&self, mut event: Event) -> Event {
        if self.fixed.load(Ordering::Relaxed) && event.data.as_str().contains("garbled") {
            event.data = Json::stored(event.data.as_str().replace("garbled", "to"));
        }
        event
    }

    fn fold(
        &self,
        seen: Option<FoldedEvents>,
        event: &Event<Happened>,
    ) -> Result<Option<FoldedEvents>, Error> {
        match &event.data {
            Happened::Cleared { .. } => return Ok(None),
            Happened::Poison { .. } if !self.fixed.load(Ordering::Relaxed) => return Err("poison".into()),
            Happened::Flaky { .. } => {
                let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
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
