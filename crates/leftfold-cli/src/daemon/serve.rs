//! `leftfold serve` and `leftfold check`.

use std::time::Duration;

use leftfold::{App, Leftfold, Sequencer};
use leftfold_server::{Backend, Limits, Listen, Service};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Config;
use super::config::Tls;
use crate::exit::{Exit, Failure};
use crate::output::{Out, count};
use crate::place::Place;

/// How long sources have to bring what they received to its end.
const GRACE: Duration = Duration::from_secs(10);

/// Compiles the scripts, looks over the reactions, and tries the certificate, the store and the sources.
pub(crate) async fn check<P: Place<Store: Backend>>(
    place: &P,
    config: &Config,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let scripts = config.scripts()?;
    let webhooks = config.webhooks(&scripts)?;
    let sources = config.sources()?;
    listen(config, false)?;
    let store = place.open().await?;
    leftfold::Log::heads(&store).await?;
    config.healer(Sequencer::new(store))?;
    for source in &sources {
        source.check::<P::Store>().await?;
    }
    out.value(&json!({
        "projections": scripts.len(), "reactions": webhooks.len(), "sources": sources.len(),
        "store": place.to_string(),
    }))?;
    let (projections, reactions) = (scripts.len() as u64, webhooks.len() as u64);
    out.line(format_args!(
        "{} and {} can run, and the store {place} answers",
        count(projections, "projection"),
        count(reactions, "reaction")
    ))?;
    if !sources.is_empty() {
        out.line(format_args!("{} can be read from", count(sources.len() as u64, "source")))?;
    }
    Ok(Exit::Done)
}

/// How connections are taken, if they may be: what goes to other machines is encrypted, and those have a token, unless somebody insists.
pub(super) fn listen(config: &Config, insecure: bool) -> Result<Listen, Failure> {
    let server = &config.server;
    let tls = match &server.tls {
        Some(Tls { certificate, key }) => {
            let read = leftfold_server::tls(&config.found(certificate), &config.found(key));
            Some(read.map_err(|error| Failure::new(Exit::Usage, format!("server.tls: {error}")))?)
        }
        None => None,
    };
    let (address, has_tokens) = (server.listen, !config.tokens.is_empty());
    let is_local = address.ip().is_loopback();
    let lacks = match (&tls, has_tokens) {
        _ if is_local || insecure => None,
        (None, _) => Some(
            "tokens and events would go there unencrypted; name a certificate in server.tls, or listen at 127.0.0.1, behind a proxy \
             that encrypts",
        ),
        (Some(_), false) => Some(
            "everybody there could do everything; make a token with `leftfold token new`, or listen at 127.0.0.1",
        ),
        (Some(_), true) => None,
    };
    if let Some(lacks) = lacks {
        let message = format!(
            "server.listen: {address} can be reached from other machines, and {lacks}, or say --insecure"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    // Pages in a browser on this machine reach it, too, and need no token: so they must not come under another name.
    let hosts = match &server.hosts {
        Some(hosts) => Some(hosts.clone()),
        None if is_local && !has_tokens => Some(Vec::new()),
        None => None,
    };
    let (connections, requests_per_second) = (server.connections, server.requests_per_second);
    Ok(Listen { connections, tls, hosts, requests_per_second, ..Listen::default() })
}

/// Runs all that the file names until it is told to stop.
pub(crate) async fn serve<P: Place<Store: Backend>>(
    place: &P,
    config: &Config,
    insecure: bool,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let listen = listen(config, insecure)?;
    let scripts = config.scripts()?;
    let webhooks = config.webhooks(&scripts)?;
    let sources = config.sources()?;
    let address = config.server.listen;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let message = format!("listening at {address}: {error}; name another address in server.listen");
        Failure::new(Exit::Usage, message)
    })?;
    let shown = listener.local_addr().unwrap_or(address);
    let store = place.open().await?;
    let sequencer = Sequencer::new(store.clone());
    let healer = config.healer(sequencer.clone())?;
    let mut app = Leftfold::on(store).rebuild_on_change(config.server.rebuild_on_change);
    if P::IS_LOCAL {
        // Nobody else on this machine listens there as long as this process lives: so the next one goes on at once.
        app = app.worker(format!("leftfold serve at {shown}"));
    }
    let app = scripts.into_iter().fold(app, Leftfold::projection);
    let app = webhooks.into_iter().fold(app, Leftfold::reaction).start().await?;
    let scheme = if listen.tls.is_some() { "https" } else { "http" };
    out.value(&json!({ "listening": shown, "scheme": scheme }))?;
    out.line(format_args!(
        "listening at {scheme}://{shown}, on {place}; see {scheme}://{shown}/openapi.json"
    ))?;
    out.flush()?;
    tracing::info!(address = %shown, %place, "listening");
    let (stop, stopped) = watch::channel(false);
    let mut feeds = JoinSet::new();
    for source in sources {
        feeds.spawn(source.run(sequencer.clone(), stopped.clone()));
    }
    if let Some(healer) = healer {
        feeds.spawn(healer.run(stopped));
    }
    let answered = answer(app.clone(), config, listen, listener).await;
    stop.send_replace(true);
    // What is not brought to its end comes again.
    let _ = timeout(GRACE, async { while feeds.join_next().await.is_some() {} }).await;
    feeds.shutdown().await;
    app.stop().await;
    answered?;
    tracing::info!(address = %shown, "stopped");
    out.line("stopped")?;
    Ok(Exit::Done)
}

async fn answer<S: Backend>(
    app: App<S>,
    config: &Config,
    listen: Listen,
    listener: TcpListener,
) -> Result<(), Failure> {
    let service = Service::new(app).await?.tokens(config.tokens.clone()).policy(config.server.policy.into());
    let (routes, stop) = service.limits(Limits { body: config.server.max_body_bytes }).router();
    let failed = |error| Failure::new(Exit::Store, format!("listening for signals: {error}"));
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut told = async move || {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let until = async move {
        told().await;
        // Who says it twice means it. Nothing is lost: what is not committed was not acknowledged.
        tokio::spawn(async move {
            told().await;
            std::process::exit(Exit::Interrupted as i32);
        });
    };
    listen.serve(listener, routes, stop, until).await;
    Ok(())
}
