//! The completion of a draft with a handler.

use std::future::Future;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::definition::{Definition, Handler, Observe, Wanted};
use super::draft::Draft;
use super::reaction::Reaction;
use crate::event::{Event, EventKind};
use crate::react::handler::{Context, HandlerError};
use crate::react::task::Observation;

impl<D: DeserializeOwned + Send + 'static> Draft<D> {
    /// Completes the reaction with a handler. It runs at least once for the last state of each
    /// matching document, and again after failures. It does not act on a state that is no longer
    /// true, as far as [`Context::document`] can tell.
    pub fn run<F, R>(mut self, handler: F) -> Reaction
    where
        F: Fn(Context<D>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let trigger = std::mem::take(&mut self.trigger);
        let text = trigger.text(self.rules.every.as_ref());
        let observe: Observe = Box::new(move |body, now| trigger.observe(body, now));
        self.complete(text, None, observe, Box::new(move |attempt| Box::pin(handler(Context::new(attempt)))))
    }
}

impl Draft<Event> {
    /// Also handles events that were in the log before the reaction was registered. By default it
    /// handles only later events.
    pub fn from_start(mut self) -> Self {
        if let Some(Ok(wanted)) = &mut self.events {
            wanted.from_start = true;
        }
        self
    }

    /// Completes the reaction with a handler that runs for each event. See [`Reaction::on_event`].
    pub fn for_each<F, R>(self, handler: F) -> Reaction
    where
        F: Fn(Context<Event>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        // Invalid events are an error of the whole reaction.
        let events = self.events.clone().and_then(Result::ok);
        let kinds: Vec<_> = events.iter().flat_map(|wanted| &wanted.kinds).map(EventKind::as_str).collect();
        let text = serde_json::json!({ "events": kinds }).to_string();
        let observe: Observe = Box::new(|_, _| (Observation::Outside, None));
        self.complete(
            text,
            events,
            observe,
            Box::new(move |attempt| Box::pin(handler(Context::new(attempt)))),
        )
    }
}

impl<D> Draft<D> {
    fn complete(self, text: String, events: Option<Wanted>, observe: Observe, handler: Handler) -> Reaction {
        Reaction(self.check().map(|on| {
            let Self { name, rules, evolution, cleanup, concurrency, .. } = self;
            let definition = Definition {
                name,
                on,
                text,
                rules,
                evolution,
                cleanup,
                concurrency,
                events,
                observe,
                handler,
            };
            Arc::new(definition)
        }))
    }
}
