//! What a reaction is: which documents, what of them, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{Context, Inner};
use super::filter::Filter;
use super::retry::{Every, Retry};
use super::store::{Body, FoundDocument, On, Plain};
use super::task::{Evolution, MAX_HISTORY, Rules, Seen, kept};
use super::watch::Paths;
use crate::documents::Collection;
use crate::error::Invalid;
use crate::event::{Event, EventKind};
use crate::fold::Projection;
use crate::json::Json;

/// Why a handler failed. Any error becomes one with `?`.
pub struct HandlerError(Box<dyn StdError + Send + Sync>);

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl HandlerError {
    /// The error that it was made of.
    pub fn cause(&self) -> &(dyn StdError + 'static) {
        &*self.0
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

type Handled = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;
type Handler = Box<dyn Fn(Arc<Inner>) -> Handled + Send + Sync>;
/// What is seen in a document, and when that may be something else though it does not change.
type Look = Box<dyn Fn(&Body, Timestamp) -> (Seen, Option<Timestamp>) + Send + Sync>;

/// When the task of a document is forgotten. Give it more time than a process may stand still, or a write may be late: what was planned before a task was
/// forgotten, and is written afterwards, is taken for a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Never.
    Keep,
    /// So long after the document is gone.
    Gone(Duration),
    /// So long after the document is gone, or does not match any more.
    GoneOrOutside(Duration),
}

impl Default for Cleanup {
    /// A day after the document is gone.
    fn default() -> Self {
        Self::Gone(Duration::from_hours(24))
    }
}

/// A reaction: made by [`Reaction::on`], [`Reaction::on_plain`], [`Reaction::on_event`] or [`Reaction::every`], complete with [`Draft::run`] or
/// [`Draft::for_each`].
///
/// ```
/// # use leftfold::react::{Reaction, Retry};
/// # use serde::Deserialize;
/// # use std::time::Duration;
/// #[derive(Deserialize)]
/// struct Order { status: String, email: String, confirmed_at: Option<String> }
///
/// async fn send_mail(to: &str, once: &str) -> Result<(), std::io::Error> { Ok(()) }
///
/// let mail = Reaction::on_plain("orders", "confirmation-mail")
///     .when(|order: &Order| order.status == "confirmed")
///     .watch(|order| order.confirmed_at.clone())
///     .retry(Retry::exponential(Duration::from_secs(1), Duration::from_hours(1)).attempts(10))
///     .run(async |ctx| {
///         let order = ctx.document().await?;
///         send_mail(&order.email, &ctx.idempotency_key()).await?;
///         Ok(())
///     });
/// ```
#[derive(Clone)]
pub struct Reaction(pub(super) Result<Arc<Definition>, Invalid>);

/// Which events a reaction is about.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) kinds: Vec<EventKind>,
    /// Also what was in the log before.
    pub(super) from_start: bool,
}

/// All that there is to know of a reaction.
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) on: Option<On>,
    /// What tells whether its documents must be compared anew.
    pub(super) text: String,
    pub(super) rules: Rules,
    pub(super) evolution: Evolution,
    pub(super) cleanup: Cleanup,
    pub(super) concurrency: usize,
    /// The events it is about.
    pub(super) events: Option<Wanted>,
    look: Look,
    handler: Handler,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).field("on", &self.on).finish_non_exhaustive()
    }
}

impl Definition {
    /// What a document, or its absence, means to it.
    pub(super) fn look(&self, document: Option<&FoundDocument>, now: Timestamp) -> (Seen, Option<Timestamp>) {
        match document.map(|document| &document.body) {
            None => (Seen::Absent, None),
            Some(Err(why)) => (Seen::Unreadable(why.clone()), None),
            Some(Ok(body)) => match (self.look)(body, now) {
                (Seen::Inside(watched), check_at) => (Seen::Inside(kept(watched)), check_at),
                seen => seen,
            },
        }
    }

    pub(super) fn handle(&self, context: Arc<Inner>) -> Handled {
        (self.handler)(context)
    }
}

impl Reaction {
    #[expect(clippy::needless_pass_by_value, reason = "a unit struct reads better without an ampersand")]
    /// A reaction, of this name, to documents of a projection. The name is what its tasks are kept under: do not change it.
    pub fn on<P: Projection>(projection: P, name: &str) -> Draft<P::Document> {
        Draft::new(Collection::new(projection.name()).map(On::Projection).map(Some), name)
    }

    /// A reaction, of this name, to events of these types: each of them once, those of a stream in order. One that fails holds up its own
    /// stream. Folding again or rebuilding documents does not repeat it.
    ///
    /// ```
    /// # use leftfold::react::Reaction;
    /// let ship = Reaction::on_event(["order-paid"], "shipping").for_each(async |ctx| {
    ///     let event = ctx.event()?;
    ///     println!("ship {} because of {}", event.stream, event.id);
    ///     Ok(())
    /// });
    /// ```
    pub fn on_event(types: impl IntoIterator<Item = impl AsRef<str>>, name: &str) -> Draft<Event> {
        let kinds = types.into_iter().map(EventKind::new).collect::<Result<Vec<_>, _>>();
        let wanted = kinds.and_then(|kinds| {
            if kinds.is_empty() {
                Err(Invalid::new("event types", "", "at least one"))
            } else {
                Ok(Wanted { kinds, from_start: false })
            }
        });
        Draft { events: Some(wanted), ..Draft::new(Ok(None), name) }
    }

    /// Something that is done again and again, in one process of all that have it: a task like any other, with retries, history, and
    /// [`retry`](super::Reacting::retry) to do it now.
    ///
    /// ```
    /// # use leftfold::react::{Every, Reaction};
    /// let report = Reaction::every(Every::cron("0 6 * * 1 UTC")?, "weekly-report").run(async |ctx| {
    ///     println!("number {}", ctx.epoch());
    ///     Ok(())
    /// });
    /// # Ok::<(), leftfold::Invalid>(())
    /// ```
    pub fn every(every: Every, name: &str) -> Draft<()> {
        Draft::every(every, name)
    }

    /// Whether it can run as it was described, or what of it is wrong. A reaction that can't is refused where it is to be started.
    pub fn check(&self) -> Result<(), Invalid> {
        self.0.as_ref().map(drop).map_err(Clone::clone)
    }

    /// A reaction, of this name, to documents of a collection that any program writes to.
    pub fn on_plain<D: DeserializeOwned>(collection: &str, name: &str) -> Draft<D> {
        Draft::new(Plain::new(collection).map(On::Plain).map(Some), name)
    }
}

impl Draft<()> {
    /// Something that is done again and again, by one process at a time: the first time when it is first due.
    pub fn every(every: Every, name: &str) -> Self {
        let draft = Self::new(Ok(None), name);
        Self { rules: Rules { every: Some(every), ..draft.rules }, ..draft }
    }
}

impl Draft<Event> {
    /// Also for events that were in the log before the reaction was known; from then on if left out.
    pub fn from_start(mut self) -> Self {
        if let Some(Ok(wanted)) = &mut self.events {
            wanted.from_start = true;
        }
        self
    }

    /// What to do with each event. See [`Reaction::on_event`].
    pub fn for_each<F, R>(self, handler: F) -> Reaction
    where
        F: Fn(Context<Event>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let checked = self.check().and_then(|on| Ok((on, self.events.clone().transpose()?)));
        let (on, events) = match checked {
            Ok(checked) => checked,
            Err(invalid) => return Reaction(Err(invalid)),
        };
        let Self { name, rules, evolution, cleanup, concurrency, .. } = self;
        let kinds: Vec<_> = events.iter().flat_map(|wanted| &wanted.kinds).map(EventKind::as_str).collect();
        let text = serde_json::json!({ "events": kinds }).to_string();
        Reaction(Ok(Arc::new(Definition {
            name,
            on,
            text,
            rules,
            evolution,
            cleanup,
            concurrency,
            events,
            look: Box::new(|_, _| (Seen::Outside, None)),
            handler: Box::new(move |inner| Box::pin(handler(Context::new(inner)))),
        })))
    }
}

type When<D> = Box<dyn Fn(&D) -> bool + Send + Sync>;
type Watch<D> = Box<dyn Fn(&D) -> Result<Json, Invalid> + Send + Sync>;
type Again<D> = Box<dyn Fn(&D, Timestamp) -> Option<Timestamp> + Send + Sync>;

/// A reaction that does nothing yet. What is not said has a default.
#[must_use = "it is no reaction until it is told what to run"]
pub struct Draft<D> {
    name: String,
    on: Result<Option<On>, Invalid>,
    filter: Option<Filter>,
    when: Option<When<D>>,
    again: Option<Again<D>>,
    watch: Option<Watch<D>>,
    paths: Option<Paths>,
    trigger: u32,
    rules: Rules,
    evolution: Evolution,
    cleanup: Cleanup,
    concurrency: usize,
    events: Option<Result<Wanted, Invalid>>,
}

impl<D> Draft<D> {
    fn new(on: Result<Option<On>, Invalid>, name: &str) -> Self {
        let rules = Rules {
            debounce: Duration::ZERO,
            at_most: Duration::from_mins(1),
            retry: Retry::default(),
            history: 5,
            visibility: Duration::from_millis(4_500),
            version: 1,
            every: None,
        };
        Self {
            name: name.to_owned(),
            on,
            filter: None,
            when: None,
            again: None,
            watch: None,
            paths: None,
            trigger: 1,
            rules,
            evolution: Evolution::default(),
            cleanup: Cleanup::default(),
            concurrency: 64,
            events: None,
        }
    }

    /// Only documents of which this is true; of all if left out. Together with a [filter](Self::filter), both must say so.
    pub fn when(self, when: impl Fn(&D) -> bool + Send + Sync + 'static) -> Self {
        Self { when: Some(Box::new(when)), ..self }
    }

    /// When [`when`](Self::when) may say something else of a document that does not change: it is asked again then.
    pub fn again_at(
        self,
        again: impl Fn(&D, Timestamp) -> Option<Timestamp> + Send + Sync + 'static,
    ) -> Self {
        Self { again: Some(Box::new(again)), ..self }
    }

    /// Only documents that match this filter. What depends on the time (`$now`) is asked again when it must be.
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Runs again when this changes, while the document matches. If left out, when anything does.
    pub fn watch<W: Serialize>(self, watch: impl Fn(&D) -> W + Send + Sync + 'static) -> Self {
        Self { watch: Some(Box::new(move |document| Json::of(&watch(document)))), ..self }
    }

    /// Runs again when what is at these paths changes, while the document matches.
    pub fn watch_paths(self, paths: Paths) -> Self {
        Self { paths: Some(paths), ..self }
    }

    /// Raise this when the closures of [`when`](Self::when) or [`watch`](Self::watch) change: then all documents are compared anew, as they are by
    /// themselves when a filter or the paths change.
    pub fn trigger_version(self, version: u32) -> Self {
        Self { trigger: version, ..self }
    }

    /// Waits until a document has not changed for so long, but no longer than a [most](Self::at_most). At once if left out.
    pub fn debounce(self, quiet: Duration) -> Self {
        Self { rules: Rules { debounce: quiet, ..self.rules }, ..self }
    }

    /// The longest that a document which keeps changing is waited for: a minute if left out.
    pub fn at_most(self, wait: Duration) -> Self {
        Self { rules: Rules { at_most: wait, ..self.rules }, ..self }
    }

    /// What happens when the handler fails.
    pub fn retry(self, retry: Retry) -> Self {
        Self { rules: Rules { retry, ..self.rules }, ..self }
    }

    /// When tasks are forgotten.
    pub fn cleanup(self, cleanup: Cleanup) -> Self {
        Self { cleanup, ..self }
    }

    /// How many run at the same time in a process: 64 if left out.
    pub fn concurrency(self, most: usize) -> Self {
        Self { concurrency: most, ..self }
    }

    /// How many runs are remembered of each task: 5 if left out, 1000 at most. Those with long error texts are forgotten earlier.
    pub fn history(self, runs: usize) -> Self {
        Self { rules: Rules { history: runs, ..self.rules }, ..self }
    }

    /// The version of the handler, 1 if left out, and what a new one does with what the old one ended. Processes with older code run nothing
    /// that needs newer code.
    pub fn version(self, version: u32, evolution: Evolution) -> Self {
        Self { rules: Rules { version, ..self.rules }, evolution, ..self }
    }

    /// After how much silence a claim is taken over by others: 4.5 seconds if left out. It is renewed while the handler runs; a handler that
    /// blocks the runtime for longer loses it.
    pub fn visibility(self, silence: Duration) -> Self {
        Self { rules: Rules { visibility: silence, ..self.rules }, ..self }
    }

    fn check(&self) -> Result<Option<On>, Invalid> {
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if self.name.is_empty() || self.name.len() > 100 || !self.name.chars().all(fits) {
            return Err(Invalid::new(
                "name of a reaction",
                &self.name,
                "1 to 100 letters, digits, _, - and .",
            ));
        }
        let refuse = |what: &str, value: String, expected: &str| {
            Err(Invalid::new("reaction", &format!("{} ({what} {value})", self.name), expected))
        };
        let Rules { debounce, at_most, visibility, version, history, .. } = &self.rules;
        if at_most < debounce {
            return refuse("at most", format!("{at_most:?}"), "no less than the debounce");
        }
        if *visibility < Duration::from_millis(100) {
            return refuse("visibility", format!("{visibility:?}"), "at least 100 milliseconds");
        }
        if *version == 0 {
            return refuse("version", version.to_string(), "at least 1");
        }
        if *history > MAX_HISTORY {
            return refuse("history", history.to_string(), "at most 1000 runs");
        }
        if self.concurrency == 0 {
            return refuse("concurrency", "0".to_owned(), "at least 1");
        }
        self.rules.retry.check()?;
        self.on.clone()
    }
}

impl<D: DeserializeOwned + Send + 'static> Draft<D> {
    /// What to do. It is done at least once for the last state of each document that matches; not on a state that is no longer true, as far as
    /// [`Context::document`] can tell; and again after failures.
    pub fn run<F, R>(self, handler: F) -> Reaction
    where
        F: Fn(Context<D>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let on = match self.check() {
            Ok(on) => on,
            Err(invalid) => return Reaction(Err(invalid)),
        };
        let Self {
            name,
            filter,
            when,
            again,
            watch,
            paths,
            trigger,
            rules,
            evolution,
            cleanup,
            concurrency,
            ..
        } = self;
        let text = serde_json::json!({
            "every": rules.every.as_ref().map(Every::text), "filter": filter, "paths": paths, "when": when.is_some(), "watch": watch.is_some(), "trigger": trigger,
        });
        let text = text.to_string();
        let is_typed = when.is_some() || again.is_some() || watch.is_some();
        let look = move |body: &Body, now: Timestamp| {
            let document = body.json();
            let mut check_at = None;
            if let Some(filter) = &filter {
                let value = match body.value() {
                    Ok(value) => value,
                    Err(error) => return (Seen::Unreadable(error.to_string()), None),
                };
                check_at = filter.changes_at(&value, now);
                if !filter.matches(&value, now) {
                    return (Seen::Outside, check_at);
                }
            }
            // What is of another shape is told by its handler, where people look.
            let Ok(typed) = is_typed.then(|| document.to::<D>()).transpose() else {
                return (Seen::Inside(document.clone()), check_at);
            };
            if let Some(typed) = &typed {
                let again = again.as_ref().and_then(|again| again(typed, now));
                check_at = [check_at, again.filter(|again| *again > now)].into_iter().flatten().min();
                if when.as_ref().is_some_and(|when| !when(typed)) {
                    return (Seen::Outside, check_at);
                }
            }
            let watched = match (&watch, &typed, &paths) {
                (Some(watch), Some(typed), _) => watch(typed),
                (_, _, Some(paths)) => body.value().and_then(|value| Json::of(&paths.values(&value))),
                _ => Ok(document.clone()),
            };
            (Seen::Inside(watched.unwrap_or_else(|_| document.clone())), check_at)
        };
        Reaction(Ok(Arc::new(Definition {
            name,
            on,
            text,
            rules,
            evolution,
            cleanup,
            concurrency,
            events: None,
            look: Box::new(look),
            handler: Box::new(move |inner| Box::pin(handler(Context::new(inner)))),
        })))
    }
}
