//! The complete definition of a reaction, as planners and runners use it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;

use super::cleanup::Cleanup;
use crate::event::EventKind;
use crate::react::handler::{Attempt, HandlerError};
use crate::react::store::{Body, DocumentSource, FoundDocument};
use crate::react::task::{Evolution, Observation, Rules, kept};

/// The complete definition of a reaction.
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) on: Option<DocumentSource>,
    /// The trigger as text: if it changes, all documents must be compared again.
    pub(crate) text: String,
    pub(crate) rules: Rules,
    pub(crate) evolution: Evolution,
    pub(crate) cleanup: Cleanup,
    pub(crate) concurrency: usize,
    /// The events that it handles, if it reacts to events.
    pub(crate) events: Option<Wanted>,
    pub(super) observe: Observe,
    pub(super) handler: Handler,
}

/// The events that a reaction handles.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) kinds: Vec<EventKind>,
    /// `true` if the reaction also handles events that were in the log before it was registered.
    pub(crate) from_start: bool,
}

type HandlerFuture = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

pub(super) type Handler = Box<dyn Fn(Arc<Attempt>) -> HandlerFuture + Send + Sync>;

/// Evaluates a document. Also returns the time at which the result may differ although the document
/// does not change.
pub(super) type Observe = Box<dyn Fn(&Body, Timestamp) -> (Observation, Option<Timestamp>) + Send + Sync>;

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).field("on", &self.on).finish_non_exhaustive()
    }
}

impl Definition {
    /// Evaluates a document or its absence.
    pub(crate) fn observe(
        &self,
        document: Option<&FoundDocument>,
        now: Timestamp,
    ) -> (Observation, Option<Timestamp>) {
        match document.map(|document| &document.body) {
            None => (Observation::Absent, None),
            Some(Err(reason)) => (Observation::Unreadable(reason.clone()), None),
            Some(Ok(body)) => match (self.observe)(body, now) {
                (Observation::Inside(watched), check_at) => (Observation::Inside(kept(watched)), check_at),
                seen => seen,
            },
        }
    }

    pub(crate) fn handle(&self, attempt: Arc<Attempt>) -> HandlerFuture {
        (self.handler)(attempt)
    }
}
