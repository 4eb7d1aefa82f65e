//! `[[source]]` and `[resupply]` in the file: brokers that feed the log, and the endpoint that
//! resupplies lost events.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::sequence::{Healer, Healing};
use leftfold::{Sequencer, Sequences};
use leftfold_server::Readiness;
use leftfold_sources::http::HttpResupplier;
use leftfold_sources::{Feed, Handle, Mapping, Source};
use leftfold_terminal::{Exit, Failure};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Config;
use super::broker::Kind;
use super::config::{OrderPolicy, Secret, Time};

/// The delay before a source that failed permanently is retried: an operator may have fixed it.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The configuration of a broker. Its kind determines the allowed keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceConfig {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    pub(super) url: Secret,
    #[serde(default)]
    mapping: Mapping,
    policy: Option<OrderPolicy>,
    batch: Option<usize>,
    pub(super) stream: Option<String>,
    pub(super) group: Option<String>,
    pub(super) consumer: Option<String>,
    pub(super) content: Option<String>,
    pub(super) from_now: Option<bool>,
    pub(super) take_over_after: Option<Time>,
    pub(super) durable: Option<String>,
    pub(super) filter: Option<String>,
    pub(super) ack_wait: Option<Time>,
    pub(super) window: Option<usize>,
    pub(super) queue: Option<String>,
    pub(super) prefetch: Option<u16>,
    pub(super) topics: Option<Vec<String>>,
    pub(super) options: Option<BTreeMap<String, Secret>>,
}

impl SourceConfig {
    /// Returns the values that may be secret.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.options.iter().flat_map(BTreeMap::values).chain([&self.url])
    }
}

/// A broker with a valid configuration.
#[derive(Clone)]
pub(crate) struct ConfiguredSource {
    pub(super) config: SourceConfig,
    #[cfg_attr(
        not(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis")),
        expect(dead_code, reason = "this build has no brokers")
    )]
    pub(super) url: String,
    #[cfg_attr(not(feature = "kafka"), expect(dead_code, reason = "Kafka alone has options"))]
    pub(super) options: Vec<(String, String)>,
}

type SourceFuture = Pin<Box<dyn Future<Output = leftfold::Result<()>> + Send>>;

/// A source of any kind.
pub(super) trait AnySource<T>: Send {
    fn check(self: Box<Self>) -> SourceFuture;
    fn feed(
        self: Box<Self>,
        sequencer: Sequencer<T>,
        config: &SourceConfig,
        state: &Arc<Mutex<FeedState>>,
        stop: watch::Receiver<bool>,
    ) -> SourceFuture;
}

/// The state of a feed.
#[derive(Default)]
pub(super) enum FeedState {
    #[default]
    New,
    Runs(Handle),
    /// It is retried after a while.
    Failed(String),
}

impl FeedState {
    fn trouble(&self) -> Option<String> {
        match self {
            Self::New => None,
            Self::Runs(handle) => handle.trouble(),
            Self::Failed(error) => Some(error.clone()),
        }
    }
}

impl<S: Source, T: Sequences + Clone> AnySource<T> for S {
    fn check(mut self: Box<Self>) -> SourceFuture {
        Box::pin(async move { Source::check(&mut *self).await })
    }

    fn feed(
        self: Box<Self>,
        sequencer: Sequencer<T>,
        config: &SourceConfig,
        state: &Arc<Mutex<FeedState>>,
        stop: watch::Receiver<bool>,
    ) -> SourceFuture {
        let policy = config.policy.unwrap_or(OrderPolicy::Contiguous);
        let mut feed = Feed::new(*self, sequencer, config.mapping.clone(), policy.into());
        if let Some(batch) = config.batch {
            feed = feed.batch(batch);
        }
        *state.lock().unwrap_or_else(PoisonError::into_inner) = FeedState::Runs(feed.handle());
        Box::pin(feed.run(stop))
    }
}

impl ConfiguredSource {
    /// Returns the name of the source.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Checks that the broker responds.
    pub(crate) async fn check<T: Sequences + Clone>(&self) -> Result<(), Failure> {
        let checked = match self.open::<T>() {
            Ok(opened) => opened.check().await,
            Err(error) => Err(error),
        };
        checked.map_err(|error| self.failed(error))
    }

    /// Ingests its messages until `stop` is `true` or its sender is dropped.
    pub(crate) async fn run<T: Sequences + Clone>(
        self,
        sequencer: Sequencer<T>,
        readiness: Readiness,
        mut stop: watch::Receiver<bool>,
    ) {
        let source = &self.config.name[..];
        let state = Arc::<Mutex<FeedState>>::default();
        let watched = Arc::clone(&state);
        let look = move || watched.lock().unwrap_or_else(PoisonError::into_inner).trouble();
        let _watched = readiness.watch_feed(format!("source {source}"), look);
        loop {
            let fed = match self.open::<T>() {
                Ok(opened) => opened.feed(sequencer.clone(), &self.config, &state, stop.clone()).await,
                Err(error) => Err(error),
            };
            match fed {
                // Brokers never end by themselves: the feed was stopped.
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(source, %error, "source failed, will retry in 30 seconds");
                    let failed = FeedState::Failed(error.to_string());
                    *state.lock().unwrap_or_else(PoisonError::into_inner) = failed;
                }
            }
            if timeout(RETRY_DELAY, stop.wait_for(|stop| *stop)).await.is_ok() {
                return;
            }
        }
    }

    fn failed(&self, error: leftfold::Error) -> Failure {
        let failure = Failure::from(error);
        Failure::new(failure.exit, format!("source {}: {failure}", self.config.name))
    }
}

/// The endpoint that resupplies lost events of all feeds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resupply {
    url: Secret,
    /// The value of the `Authorization` header.
    authorization: Option<Secret>,
    /// The minimum age of a gap.
    after: Option<Time>,
    #[serde(default)]
    mapping: Mapping,
}

impl Resupply {
    /// Returns the values that may be secret.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.authorization.iter().chain([&self.url])
    }
}

impl Config {
    /// Returns the configured brokers, without connecting to them.
    pub(crate) fn sources(&self) -> Result<Vec<ConfiguredSource>, Failure> {
        let names: Vec<_> = self.sources.iter().map(|config| &config.name).collect();
        if let Some(twice) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            let message = format!("source {}: two sources have this name; give each its own", names[twice]);
            return Err(Failure::new(Exit::Usage, message));
        }
        self.sources.iter().map(|config| self.source(config)).collect()
    }

    fn source(&self, config: &SourceConfig) -> Result<ConfiguredSource, Failure> {
        let name = &config.name;
        let wrong = |fault: String| Failure::new(Exit::Usage, format!("source {name}: {fault}"));
        config.check_keys().map_err(wrong)?;
        let url = self.reveal(&format!("the URL of the source {name}"), &config.url)?;
        let options = config.options.iter().flatten().map(|(option, value)| {
            Ok((option.clone(), self.reveal(&format!("{option} of the source {name}"), value)?))
        });
        let options = options.collect::<Result<_, Failure>>()?;
        let known = ConfiguredSource { config: config.clone(), url, options };
        // Report invalid names and addresses before anything starts.
        known.open::<leftfold::Memory>().map_err(|error| known.failed(error))?;
        Ok(known)
    }

    /// Returns the healer for old gaps, if a resupplier is configured.
    pub(crate) fn healer<T: Sequences + Clone>(
        &self,
        sequencer: Sequencer<T>,
    ) -> Result<Option<Healer<T, HttpResupplier>>, Failure> {
        let Some(resupply) = &self.resupply else { return Ok(None) };
        let wrong = |error: leftfold::Error| Failure::new(Exit::Usage, format!("resupply: {error}"));
        let url = self.reveal("the URL of the resupplier", &resupply.url)?;
        let mut resupplier = HttpResupplier::new(&url).map_err(wrong)?.mapping(resupply.mapping.clone());
        if let Some(authorization) = &resupply.authorization {
            let value = self.reveal("the authorization of the resupplier", authorization)?;
            resupplier = resupplier.header("authorization", &value).map_err(wrong)?;
        }
        let usual = Healing::default();
        let age = resupply.after.map_or(usual.age, |after| after.0);
        let every = usual.every.min(age.max(Duration::from_millis(100)));
        Ok(Some(Healer::new(sequencer, resupplier, Healing { age, every, ..usual })))
    }
}
