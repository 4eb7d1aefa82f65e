//! The settings of a reaction, before it has a handler.

use std::time::Duration;

use jiff::Timestamp;
use leftfold_filter::{Filter, Paths};
use serde::Serialize;

use super::cleanup::Cleanup;
use super::definition::Wanted;
use super::every::Every;
use super::retry::Retry;
use super::trigger::{Trigger, Watch};
use crate::error::Invalid;
use crate::json::Json;
use crate::react::store::DocumentSource;
use crate::react::task::{Evolution, MAX_HISTORY, Rules};

/// A reaction without a handler. Every setting has a default.
#[must_use = "a draft is no reaction until it has a handler"]
pub struct Draft<D> {
    pub(super) name: String,
    pub(super) on: Result<Option<DocumentSource>, Invalid>,
    pub(super) trigger: Trigger<D>,
    pub(super) rules: Rules,
    pub(super) evolution: Evolution,
    pub(super) cleanup: Cleanup,
    pub(super) concurrency: usize,
    pub(super) events: Option<Result<Wanted, Invalid>>,
}

impl<D> Draft<D> {
    pub(super) fn new(on: Result<Option<DocumentSource>, Invalid>, name: &str) -> Self {
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
            trigger: Trigger::default(),
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
        Self { trigger: Trigger { when: Some(Box::new(when)), ..self.trigger }, ..self }
    }

    /// Sets when [`when`](Self::when) may return a different result for an unchanged document. The
    /// planner evaluates the document again at that time.
    pub fn again_at(
        self,
        again: impl Fn(&D, Timestamp) -> Option<Timestamp> + Send + Sync + 'static,
    ) -> Self {
        Self { trigger: Trigger { again_at: Some(Box::new(again)), ..self.trigger }, ..self }
    }

    /// Selects only documents that match this filter. If it depends on the time (`$now`), the
    /// planner evaluates it again when its result may change.
    pub fn filter(self, filter: Filter) -> Self {
        Self { trigger: Trigger { filter: Some(filter), ..self.trigger }, ..self }
    }

    /// Runs the handler again when this value changes while the document matches. By default any
    /// change of the document counts.
    pub fn watch<W: Serialize>(self, watch: impl Fn(&D) -> W + Send + Sync + 'static) -> Self {
        let watch: Watch<D> = Box::new(move |document| Json::of(&watch(document)));
        Self { trigger: Trigger { watch: Some(watch), ..self.trigger }, ..self }
    }

    /// Runs the handler again when a value at these paths changes while the document matches.
    pub fn watch_paths(self, paths: Paths) -> Self {
        Self { trigger: Trigger { paths: Some(paths), ..self.trigger }, ..self }
    }

    /// Sets the version of the closures of [`when`](Self::when) and [`watch`](Self::watch). Raise
    /// it when they change: then all documents are compared again. A changed filter or changed
    /// paths do that automatically.
    pub fn trigger_version(self, version: u32) -> Self {
        Self { trigger: Trigger { version, ..self.trigger }, ..self }
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

    /// Sets the version of the handler, 1 by default, and the effect of a new version on tasks
    /// that an older one ended. Processes with older code never run tasks that need newer code.
    pub fn version(self, version: u32, evolution: Evolution) -> Self {
        Self { rules: Rules { version, ..self.rules }, evolution, ..self }
    }

    /// Sets how long a claim lasts without renewal before another worker may take it over; the
    /// default is 4.5 seconds. The runner renews it while the handler runs. A handler that blocks
    /// the runtime for longer loses its claim.
    pub fn visibility(self, silence: Duration) -> Self {
        Self { rules: Rules { visibility: silence, ..self.rules }, ..self }
    }

    /// Checks the settings. Returns where the documents are stored.
    pub(super) fn check(&self) -> Result<Option<DocumentSource>, Invalid> {
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if self.name.is_empty() || self.name.len() > 100 || !self.name.chars().all(fits) {
            return Err(Invalid::new(
                "name of a reaction",
                &self.name,
                "1 to 100 letters, digits, _, - and .",
            ));
        }
        let refuse = |setting: &str, value: String, expected: &str| {
            Err(Invalid::new("reaction", &format!("{} ({setting} {value})", self.name), expected))
        };
        let Rules { debounce, at_most, visibility, version, history, .. } = &self.rules;
        if at_most < debounce {
            return refuse("at_most", format!("{at_most:?}"), "at least the debounce");
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
        if let Some(Err(invalid)) = &self.events {
            return Err(invalid.clone());
        }
        self.on.clone()
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
