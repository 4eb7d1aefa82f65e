//! Explanation of a document: every event that made it, and the changes of each.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::as_of::Until;
use super::changes::{Changes, FieldChange};
use super::retell::{Outcome, Retelling};
use crate::error::{Invalid, Result};
use crate::event::{DocumentId, Partition, Position};
use crate::fold::{Error, Folder, Occurrence, Projection};
use crate::mark::Mark;
use crate::store::Store;

/// The effect of one event on a document. Its size is bounded, however large the document is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The event.
    #[serde(flatten)]
    pub event: Occurrence,
    /// The effect of the event.
    pub effect: Effect,
    /// The number of further changed fields that are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The size of the document after the event, in bytes of JSON, if it was folded and there is a
    /// document.
    pub size: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The effect of an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It changed these fields; none if the document stayed the same.
    Changed(Vec<FieldChange>),
    /// It could not be folded.
    Failed(String),
    /// It waits behind an event that could not be folded, or has not been reached yet.
    Waiting,
}

/// A part of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The events, in order.
    pub events: Vec<Explained>,
    /// The place where the next part begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<ExplanationCursor>,
}

/// A place in an explanation, to continue from.
///
/// An explanation ends at the end of the log when it began, so that its parts fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationCursor {
    /// The last event that was shown.
    last: (Partition, Position),
    /// The end of the explanation.
    through: Mark,
    /// `true` if an event failed, so that all later ones wait.
    has_failed: bool,
}

impl fmt::Display for ExplanationCursor {
    /// Formats it as `partition:position~partition:position,…`: the last event, and the end in each
    /// partition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (partition, position) = self.last;
        write!(f, "{partition}:{position}{}", if self.has_failed { '!' } else { '~' })?;
        for (number, (lane, at)) in
            self.through.lanes().filter(|(lane, _)| lane.partition().is_some()).enumerate()
        {
            write!(f, "{}{lane}:{at}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for ExplanationCursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let place = |text: &str| -> Option<(Partition, Position)> {
            let (partition, position) = text.split_once(':')?;
            Some((Partition(partition.parse().ok()?), Position(position.parse().ok()?)))
        };
        let cursor = || {
            let (last, through) = text.split_once(['~', '!'])?;
            let through =
                through.split(',').map(|lane| place(lane).map(|(partition, at)| (partition.into(), at.0)));
            Some(Self {
                last: place(last)?,
                through: through.collect::<Option<Mark>>()?,
                has_failed: text.contains('!'),
            })
        };
        cursor().ok_or_else(|| Invalid::new("place in an explanation", text, "one that an explanation named"))
    }
}

impl Serialize for ExplanationCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The progress of an explanation.
pub(crate) enum Explaining {
    /// Nothing was folded into such a document yet.
    NotThere,
    /// All events were shown.
    Ended,
    /// There may be more.
    Stopped(ExplanationCursor),
}

impl<P: Projection> Folder<P> {
    /// Passes the events of a document to `tell`, in order, up to a moment or until `tell` stops
    /// it. Events up to `after` are folded but not passed on.
    pub(crate) async fn explain<S: Store>(
        &self,
        store: &S,
        id: &DocumentId,
        until: Until,
        after: Option<&ExplanationCursor>,
        tell: &mut (dyn FnMut(Explained) -> ControlFlow<()> + Send),
    ) -> Result<Explaining> {
        let Some(mut through) = self.told_through(store, id).await? else { return Ok(Explaining::NotThere) };
        if let Some(cursor) = after {
            // A cursor can't extend beyond the folded events.
            through =
                through.lanes().map(|(lane, at)| (lane.clone(), at.min(cursor.through.get(lane)))).collect();
        }
        let mut retelling = Retelling::new(self, store, id, until, through.clone()).await?;
        let mut before = None;
        if let Some(cursor) = after {
            retelling.has_failed = cursor.has_failed;
            loop {
                let Some((event, _)) = retelling.next(store).await? else { return Ok(Explaining::Ended) };
                if (event.partition, event.position) == cursor.last {
                    break;
                }
            }
            match value(&retelling) {
                Ok(now) => before = now,
                Err(_) => retelling.has_failed = true,
            }
        }
        while let Some((event, told)) = retelling.next(store).await? {
            let last = (event.partition, event.position);
            let mut explained = Explained { event, effect: Effect::Waiting, left_out: 0, size: None };
            match told {
                Outcome::Waiting => {}
                Outcome::Failed(error) => explained.effect = Effect::Failed(error.to_string()),
                Outcome::Folded => match value(&retelling) {
                    Ok(now) => {
                        let changes = changes(before.as_ref(), now.as_ref());
                        explained.effect = Effect::Changed(changes.shown);
                        explained.left_out = changes.left_out;
                        explained.size = now.as_ref().map(|(text, _)| text.len() as u64);
                        before = now;
                    }
                    Err(error) => {
                        retelling.has_failed = true;
                        explained.effect = Effect::Failed(error.to_string());
                    }
                },
            }
            if tell(explained).is_break() {
                let has_failed = retelling.has_failed;
                return Ok(Explaining::Stopped(ExplanationCursor { last, through, has_failed }));
            }
        }
        Ok(Explaining::Ended)
    }
}

/// A document as text and as a value.
type Shown = (String, Value);

/// Returns the current document of a retelling.
fn value<P: Projection>(retelling: &Retelling<'_, P>) -> Result<Option<Shown>, Error> {
    let Some(json) = retelling.body()? else { return Ok(None) };
    let value = json.to()?;
    Ok(Some((json.into_string(), value)))
}

fn changes(before: Option<&Shown>, after: Option<&Shown>) -> Changes {
    if before.map(|(text, _)| text) == after.map(|(text, _)| text) {
        return Changes::default();
    }
    Changes::between(before.map(|(_, value)| value), after.map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        let through = Mark::from_iter([(Partition(0).into(), 9), (Partition(12).into(), 700)]);
        for has_failed in [false, true] {
            let cursor = ExplanationCursor {
                last: (Partition(12), Position(7)),
                through: through.clone(),
                has_failed,
            };
            assert_eq!(cursor.to_string().parse::<ExplanationCursor>().unwrap(), cursor);
        }
        for bad in ["", "1", "0:1", "0:1~", "~0:1", "0:x~0:1", "0:1~0:1,", "70000:1~0:1", "0:1~a:1"] {
            assert!(bad.parse::<ExplanationCursor>().is_err(), "{bad:?}");
        }
    }
}
