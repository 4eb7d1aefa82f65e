//! Reactions: the documents they select, the values they watch, and their handlers.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leftfold_filter::{Filter, Paths};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::documents::Collection;
use crate::error::Invalid;
use crate::event::{Event, EventKind};
use crate::fold::Projection;
use crate::json::Json;
use crate::react::define::{Every, Retry};
use crate::react::handler::{Context, Inner};
use crate::react::store::{Body, DocumentSource, ExternalCollection, FoundDocument};
use crate::react::task::{Evolution, MAX_HISTORY, Observation, Rules, kept};

/// The error of a handler. `?` converts any error into one.
pub struct HandlerError(Box<dyn StdError + Send + Sync>);

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl HandlerError {
    /// Returns the underlying error.
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
/// Evaluates a document. Also returns the time at which the result may differ although the document
/// does not change.
type Look = Box<dyn Fn(&Body, Timestamp) -> (Observation, Option<Timestamp>) + Send + Sync>;

/// When the task of a document is deleted.
///
/// Choose a delay longer than any process may stall or any write may be late. A plan made before
/// the deletion but written after it counts as a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Never.
    Keep,
    /// This long after the document was deleted.
    Gone(Duration),
    /// This long after the document was deleted or stopped matching.
    GoneOrOutside(Duration),
}

impl Default for Cleanup {
    /// Deletes the task a day after the document was deleted.
    fn default() -> Self {
        Self::Gone(Duration::from_hours(24))
    }
}

/// A reaction. [`Reaction::on`], [`Reaction::on_plain`], [`Reaction::on_event`] and
/// [`Reaction::every`] begin one; [`Draft::run`] or [`Draft::for_each`] completes it.
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
pub struct Reaction(pub(crate) Result<Arc<Definition>, Invalid>);

/// The events that a reaction handles.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) kinds: Vec<EventKind>,
    /// `true` if the reaction also handles events that were in the log before it was registered.
    pub(crate) from_start: bool,
}

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
    look: Look,
    handler: Handler,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).field("on", &self.on).finish_non_exhaustive()
    }
}

impl Definition {
    /// Evaluates a document or its absence.
    pub(crate) fn look(
        &self,
        document: Option<&FoundDocument>,
        now: Timestamp,
    ) -> (Observation, Option<Timestamp>) {
        match document.map(|document| &document.body) {
            None => (Observation::Absent, None),
            Some(Err(why)) => (Observation::Unreadable(why.clone()), None),
            Some(Ok(body)) => match (self.look)(body, now) {
                (Observation::Inside(watched), check_at) => (Observation::Inside(kept(watched)), check_at),
                seen => seen,
            },
        }
    }

    pub(crate) fn handle(&self, context: Arc<Inner>) -> Handled {
        (self.handler)(context)
    }
}

impl Reaction {
    #[expect(clippy::needless_pass_by_value, reason = "a unit struct reads better without an ampersand")]
    /// Begins a reaction to documents of a projection. Tasks are stored under `name`: do not change
    /// it.
    pub fn on<P: Projection>(projection: P, name: &str) -> Draft<P::Document> {
        Draft::new(Collection::new(projection.name()).map(DocumentSource::Projection).map(Some), name)
    }

    /// Begins a reaction to events of these types. It handles each event once, and the events of a
    /// stream in order. A failing event blocks its own stream only. Folding again or rebuilding
    /// documents does not repeat it.
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

    /// Begins a recurring reaction. Of all processes that define it, one runs it at a time. It is a
    /// task like any other, with retries and history, and [`retry`](crate::react::ReactorHandle::retry)
    /// runs it now.
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

    /// Checks that the definition is valid. [`Reactor::register`](crate::react::Reactor::register) rejects
    /// an invalid reaction.
    pub fn check(&self) -> Result<(), Invalid> {
        self.0.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Begins a reaction to documents of a collection that any program writes to.
    pub fn on_plain<D: DeserializeOwned>(collection: &str, name: &str) -> Draft<D> {
        Draft::new(ExternalCollection::new(collection).map(DocumentSource::Plain).map(Some), name)
    }
}

impl Draft<()> {
    /// Begins a recurring reaction that one process at a time runs. It first runs at its first
    /// scheduled time.
    pub fn every(every: Every, name: &str) -> Self {
        let draft = Self::new(Ok(None), name);
        Self { rules: Rules { every: Some(every), ..draft.rules }, ..draft }
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
            look: Box::new(|_, _| (Observation::Outside, None)),
            handler: Box::new(move |inner| Box::pin(handler(Context::new(inner)))),
        })))
    }
}

type When<D> = Box<dyn Fn(&D) -> bool + Send + Sync>;
type Watch<D> = Box<dyn Fn(&D) -> Result<Json, Invalid> + Send + Sync>;
type Again<D> = Box<dyn Fn(&D, Timestamp) -> Option<Timestamp> + Send + Sync>;

/// A reaction without a handler. Every setting has a default.
#[must_use = "it is no reaction until it is told what to run"]
pub struct Draft<D> {
    name: String,
    on: Result<Option<DocumentSource>, Invalid>,
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
    fn new(on: Result<Option<DocumentSource>, Invalid>, name: &str) -> Self {
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

    /// Selects only documents for which `when` returns `true`; the default is all. If there is also
    /// a [filter](Self::filter), both must match.
    pub fn when(self, when: impl Fn(&D) -> bool + Send + Sync + 'static) -> Self {
        Self { when: Some(Box::new(when)), ..self }
    }

    /// Sets when [`when`](Self::when) may return a different result for an unchanged document. The
    /// planner evaluates the document again at that time.
    pub fn again_at(
        self,
        again: impl Fn(&D, Timestamp) -> Option<Timestamp> + Send + Sync + 'static,
    ) -> Self {
        Self { again: Some(Box::new(again)), ..self }
    }

    /// Selects only documents that match this filter. If it depends on the time (`$now`), the
    /// planner evaluates it again when its result may change.
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Runs the handler again when this value changes while the document matches. By default any
    /// change of the document counts.
    pub fn watch<W: Serialize>(self, watch: impl Fn(&D) -> W + Send + Sync + 'static) -> Self {
        Self { watch: Some(Box::new(move |document| Json::of(&watch(document)))), ..self }
    }

    /// Runs the handler again when a value at these paths changes while the document matches.
    pub fn watch_paths(self, paths: Paths) -> Self {
        Self { paths: Some(paths), ..self }
    }

    /// Sets the version of the closures of [`when`](Self::when) and [`watch`](Self::watch). Raise
    /// it when they change: then all documents are compared again. A changed filter or changed
    /// paths do that automatically.
    pub fn trigger_version(self, version: u32) -> Self {
        Self { trigger: version, ..self }
    }

    /// Waits until a document has not changed for this long, but no longer than
    /// [`at_most`](Self::at_most). The default is not to wait.
    pub fn debounce(self, quiet: Duration) -> Self {
        Self { rules: Rules { debounce: quiet, ..self.rules }, ..self }
    }

    /// Sets the longest wait for a document that keeps changing; the default is one minute.
    pub fn at_most(self, wait: Duration) -> Self {
        Self { rules: Rules { at_most: wait, ..self.rules }, ..self }
    }

    /// Sets the retry policy for handlers that fail.
    pub fn retry(self, retry: Retry) -> Self {
        Self { rules: Rules { retry, ..self.rules }, ..self }
    }

    /// Sets when tasks are deleted.
    pub fn cleanup(self, cleanup: Cleanup) -> Self {
        Self { cleanup, ..self }
    }

    /// Sets the maximum number of handlers of this reaction that run in a process at the same time.
    /// The default is 64.
    pub fn concurrency(self, most: usize) -> Self {
        Self { concurrency: most, ..self }
    }

    /// Sets how many runs each task's history keeps: 5 by default, at most 1000. Long error texts
    /// shorten the history.
    pub fn history(self, runs: usize) -> Self {
        Self { rules: Rules { history: runs, ..self.rules }, ..self }
    }

    /// Sets the version of the handler, 1 by default, and what a new version does with tasks that
    /// an older one ended. Processes with older code never run tasks that need newer code.
    pub fn version(self, version: u32, evolution: Evolution) -> Self {
        Self { rules: Rules { version, ..self.rules }, evolution, ..self }
    }

    /// Sets how long a claim lasts without renewal before others may take it over; the default is
    /// 4.5 seconds. The runner renews it while the handler runs. A handler that blocks the runtime
    /// for longer loses its claim.
    pub fn visibility(self, silence: Duration) -> Self {
        Self { rules: Rules { visibility: silence, ..self.rules }, ..self }
    }

    fn check(&self) -> Result<Option<DocumentSource>, Invalid> {
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
    /// Completes the reaction with a handler. It runs at least once for the last state of each
    /// matching document, and again after failures. It does not act on a state that is no longer
    /// true, as far as [`Context::document`] can tell.
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
                    Err(error) => return (Observation::Unreadable(error.to_string()), None),
                };
                check_at = filter.changes_at(&value, now);
                if !filter.matches(&value, now) {
                    return (Observation::Outside, check_at);
                }
            }
            // If the document has another type, let the handler run and fail: its error is where
            // people look.
            let Ok(typed) = is_typed.then(|| document.to::<D>()).transpose() else {
                return (Observation::Inside(document.clone()), check_at);
            };
            if let Some(typed) = &typed {
                let again = again.as_ref().and_then(|again| again(typed, now));
                check_at = [check_at, again.filter(|again| *again > now)].into_iter().flatten().min();
                if when.as_ref().is_some_and(|when| !when(typed)) {
                    return (Observation::Outside, check_at);
                }
            }
            let watched = match (&watch, &typed, &paths) {
                (Some(watch), Some(typed), _) => watch(typed),
                (_, _, Some(paths)) => body.value().and_then(|value| Json::of(&paths.values(&value))),
                _ => Ok(document.clone()),
            };
            (Observation::Inside(watched.unwrap_or_else(|_| document.clone())), check_at)
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
