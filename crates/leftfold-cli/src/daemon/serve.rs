//! `leftfold serve`: runs the configuration until a signal stops the process. SIGHUP replaces the
//! configuration.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use leftfold::budget::{Budget, Use};
use leftfold::sequence::Healer;
use leftfold::{App, Leftfold, Projection as _, Ready, Sequencer, fold};
use leftfold_script::Script;
use leftfold_server::{Backend, Health, Readiness, ServerLimits, Service, Serving, Stop};
use leftfold_sources::CloudEvents;
use leftfold_sources::http::HttpResupplier;
use leftfold_terminal::{Exit, Failure, Location, Out};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::Config;
use super::prepared::Prepared;
use super::source::ConfiguredSource;
use super::workers;

/// The time that sources have to finish received messages.
const GRACE: Duration = Duration::from_secs(10);

/// Runs everything that the file names until the process receives a signal to stop.
pub(crate) async fn serve<L: Location>(
    location: &L,
    config: Config,
    insecure: bool,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let (file, budget) = (config.path.clone(), Budget::new(config.server.memory.bytes()));
    workers::count_in(&budget);
    let prepared = Arc::new(Prepared::new(config, insecure, &[])?);
    if insecure {
        tracing::warn!(
            "--insecure: remote listeners may lack TLS or tokens, and then every client may do everything"
        );
    }
    let mut signals = Signals::new()?;
    let address = prepared.config.server.listen;
    let listener = leftfold_server::bind(address).map_err(|error| {
        let message = format!("listening at {address}: {error}; set another address in server.listen");
        Failure::new(Exit::Usage, message)
    })?;
    let shown = listener.local_addr().unwrap_or(address);
    // The budget covers the whole process: its code and libraries take a part before anything is
    // served.
    let _resident = budget.take(Use::Fold, leftfold_server::resident_bytes().unwrap_or_default());
    let readiness = Readiness::default();
    let health =
        prepared.config.server.health.map(|address| listen_for_health(address, &readiness)).transpose()?;
    let mut process =
        ProcessState { store: location.open().await?, worker: None, insecure, budget, readiness };
    if L::IS_LOCAL {
        // No other process on this machine can listen there while this one lives. So the next
        // process with this name can take over at once.
        process.worker = Some(format!("leftfold serve at {shown}"));
    }
    let (mut running, routes) = PreparedSnapshot::new(prepared, &process, None).await?.start().await;
    let listen = running.prepared.listen.clone();
    let scheme = if listen.tls.is_some() { "https" } else { "http" };
    let health_address = health.as_ref().map(Health::address);
    out.value(&json!({ "listening": shown, "scheme": scheme, "health": health_address }))?;
    out.line(format_args!(
        "listening at {scheme}://{shown}, on {location}; see {scheme}://{shown}/openapi.json"
    ))?;
    if let Some(health) = health_address {
        out.line(format_args!("health at http://{health}/healthz and /readyz"))?;
    }
    out.flush()?;
    tracing::info!(address = %shown, store = %location, "listening");
    let serving = Serving::new(listen, routes, running.stop.clone());
    let (stopping, mut is_stopping) = watch::channel(false);
    let stop = async {
        signals.stop.await;
        stopping.send_replace(true);
    };
    let mut served = std::pin::pin!(serving.run(listener, stop));
    let is_served = tokio::select! {
        () = &mut served => true,
        () = reload_on_signal(&mut signals.reload, &file, &process, &mut running, &serving) => false,
        _ = is_stopping.wait_for(|stopping| *stopping) => false,
    };
    // Concurrently: a client that reads slowly must not keep leases from other processes.
    let rest = async {
        if !is_served {
            served.await;
        }
    };
    tokio::join!(rest, running.end());
    drop(health);
    tracing::info!(address = %shown, "stopped");
    out.line("stopped")?;
    Ok(Exit::Done)
}

fn listen_for_health(address: SocketAddr, readiness: &Readiness) -> Result<Health, Failure> {
    Health::listen(address, readiness.clone()).map_err(|error| {
        let message = format!("listening at {address}: {error}; set another address in server.health");
        Failure::new(Exit::Usage, message)
    })
}

/// The signals of the operating system.
struct Signals<F> {
    /// Resolves when a signal stops the process. A second signal ends the process at once.
    stop: F,
    reload: Signal,
}

impl Signals<()> {
    fn new() -> Result<Signals<impl Future<Output = ()>>, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Store, format!("listening for signals: {error}")))
        };
        let (mut term, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let mut signaled = async move || {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let stop = async move {
            signaled().await;
            // Nothing is lost: uncommitted work was not acknowledged.
            tokio::spawn(async move {
                signaled().await;
                std::process::exit(Exit::Interrupted as i32);
            });
        };
        Ok(Signals { stop, reload: listen(SignalKind::hangup())? })
    }
}

/// The state that survives a reload.
struct ProcessState<S> {
    store: S,
    /// The name of this process, if it stays the same after a restart.
    worker: Option<String>,
    insecure: bool,
    budget: Budget,
    readiness: Readiness,
}

/// A running configuration snapshot.
struct RunningSnapshot<S> {
    prepared: Arc<Prepared>,
    app: App<S>,
    feeds: JoinSet<()>,
    feeding: watch::Sender<bool>,
    stop: Stop,
}

/// A configuration snapshot that is ready to start. Everything that can fail is done.
struct PreparedSnapshot<S: Backend> {
    prepared: Arc<Prepared>,
    ready: Ready<S>,
    service: Service<S>,
    sequencer: Sequencer<S>,
    sources: Vec<ConfiguredSource>,
    healer: Option<Healer<S, HttpResupplier>>,
    readiness: Readiness,
}

impl<S: Backend> PreparedSnapshot<S> {
    /// Prepares a snapshot, beside a running one if there is one.
    async fn new(
        prepared: Arc<Prepared>,
        process: &ProcessState<S>,
        before: Option<&RunningSnapshot<S>>,
    ) -> Result<Self, Failure> {
        prepared.fit(&process.store).await?;
        let Prepared { config, scripts, .. } = &*prepared;
        let (webhooks, sources) = (config.webhooks(scripts)?, config.sources()?);
        let sequencer = Sequencer::new(process.store.clone());
        let healer = config.healer(sequencer.clone())?;
        let server = &config.server;
        let options = fold::FoldOptions { budget: process.budget.clone(), ..fold::FoldOptions::default() };
        let mut app = Leftfold::on(process.store.clone()).options(options);
        app = app.rebuild_on_change(server.rebuild_on_change);
        if let Some(worker) = &process.worker {
            app = app.worker(worker);
        }
        let app = scripts.iter().fold(app, |app, script| match before {
            Some(before) if before.runs(script) => app.projection_of(&before.app, script.name()),
            _ => app.projection(script.clone()),
        });
        let ready = webhooks.into_iter().fold(app, Leftfold::reaction).ready().await?;
        let service = Service::new(ready.app().clone()).await?;
        let service = service.tokens(config.tokens.clone()).policy(server.policy.into());
        let service =
            service.limits(ServerLimits { body: server.max_body_bytes }).budget(process.budget.clone());
        let mapping = CloudEvents { source_in_id: server.source_in_id, ..CloudEvents::default() };
        let service = service.mapping(mapping).readiness(process.readiness.clone());
        let service = match &process.worker {
            Some(worker) => service.name(worker),
            None => service,
        };
        let service = match before {
            Some(before) => service.instead_of(&before.stop),
            None => service,
        };
        let readiness = process.readiness.clone();
        Ok(Self { prepared, ready, service, sequencer, sources, healer, readiness })
    }

    /// Starts the snapshot.
    async fn start(self) -> (RunningSnapshot<S>, Router) {
        let Self { prepared, ready, service, sequencer, sources, healer, readiness } = self;
        let app = ready.start().await;
        let (routes, stop) = service.router();
        let (feeding, is_fed) = watch::channel(false);
        let mut feeds = JoinSet::new();
        for source in sources {
            feeds.spawn(source.run(sequencer.clone(), readiness.clone(), is_fed.clone()));
        }
        if let Some(healer) = healer {
            feeds.spawn(healer.run(is_fed));
        }
        (RunningSnapshot { prepared, app, feeds, feeding, stop }, routes)
    }
}

impl<S: Backend> RunningSnapshot<S> {
    /// Returns whether it runs this script, unchanged.
    fn runs(&self, script: &Script) -> bool {
        self.prepared.scripts.iter().any(|one| one.is_same(script))
    }

    /// Ends all background work. Requests are served until another snapshot replaces this one.
    async fn end(&mut self) {
        self.feeding.send_replace(true);
        // Unfinished messages are delivered again.
        let feeds = async {
            let _ = timeout(GRACE, async { while self.feeds.join_next().await.is_some() {} }).await;
            self.feeds.shutdown().await;
        };
        tokio::join!(feeds, self.app.stop());
    }
}

/// Reloads the file on each SIGHUP. An invalid file changes nothing, because everything that can
/// fail is done before anything stops. Projections with unchanged scripts continue without a pause.
async fn reload_on_signal<S: Backend>(
    signal: &mut Signal,
    file: &Path,
    process: &ProcessState<S>,
    running: &mut RunningSnapshot<S>,
    serving: &Serving,
) {
    while signal.recv().await.is_some() {
        match read_again(file, process, running).await {
            Ok(mut next) => {
                next.ready.take_over(&running.app).await;
                // Other projections stop first, or two workers would fold the same documents.
                running.end().await;
                let (next, routes) = next.start().await;
                serving.replace(next.prepared.listen.clone(), routes, next.stop.clone());
                *running = next;
                let projections = running.prepared.scripts.len();
                tracing::info!(file = %file.display(), projections, "reloaded");
            }
            Err(error) => tracing::error!(%error, "not reloaded, the previous configuration stays"),
        }
    }
}

/// Reads the file, and prepares a snapshot that can replace the running one.
async fn read_again<S: Backend>(
    file: &Path,
    process: &ProcessState<S>,
    running: &RunningSnapshot<S>,
) -> Result<PreparedSnapshot<S>, Failure> {
    let (config, insecure, before) = (Config::read(file)?, process.insecure, Arc::clone(&running.prepared));
    // Compiling scripts blocks, and may take long.
    let prepared = spawn_blocking(move || Prepared::new(config, insecure, &before.scripts)).await;
    let prepared = prepared
        .map_err(|error| Failure::new(Exit::Store, format!("reading {}: {error}", file.display())))??;
    prepared.config.can_follow(&running.prepared.config)?;
    PreparedSnapshot::new(Arc::new(prepared), process, Some(running)).await
}
