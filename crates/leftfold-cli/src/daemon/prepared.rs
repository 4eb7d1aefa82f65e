//! The validated configuration. `check`, `serve` and a reload all use it, so that each accepts and
//! rejects the same files.

use leftfold::{Collection, Memory, Sequencer};
use leftfold_script::Script;
use leftfold_server::{Backend, Listen};
use leftfold_terminal::{Exit, Failure, Location, Out, count};
use serde_json::json;

use super::Config;
use super::config::TlsConfig;
use crate::log;

/// A configuration that passed all checks without a store: names, scripts, reactions, sources,
/// certificate, limits and log.
pub(super) struct Prepared {
    pub(super) config: Config,
    pub(super) listen: Listen,
    pub(super) scripts: Vec<Script>,
}

impl Prepared {
    /// Validates a configuration, and reuses unchanged scripts of `before`.
    pub(super) fn new(config: Config, insecure: bool, before: &[Script]) -> Result<Self, Failure> {
        log::filter(&config.log)?;
        config.collector()?;
        let listen = listen(&config, insecure)?;
        config.check_names()?;
        let scripts = config.scripts_after(before)?;
        config.webhooks(&scripts)?;
        config.sources()?;
        config.healer(Sequencer::new(Memory::default()))?;
        Ok(Self { config, listen, scripts })
    }

    /// Checks that the store responds and accepts the projections' collections, and creates missing
    /// ones.
    pub(super) async fn fit<S: Backend>(&self, store: &S) -> Result<(), Failure> {
        store.heads().await?;
        for projection in &self.config.projections {
            let name = Collection::new(&projection.name)?;
            let made = store.prepare(&name).await;
            made.map_err(|error| {
                let failure = Failure::from(error);
                Failure::new(failure.exit, format!("projection {name}: name: {failure}"))
            })?;
        }
        Ok(())
    }
}

impl Config {
    /// Checks the names of the projections. Stores name tables after them, and some are
    /// case-insensitive.
    fn check_names(&self) -> Result<(), Failure> {
        let names: Vec<_> = self.projections.iter().map(|projection| &projection.name).collect();
        for (at, name) in names.iter().enumerate() {
            let wrong =
                |fault: String| Failure::new(Exit::Usage, format!("projection {name:?}: name: {fault}"));
            Collection::new(name).map_err(|invalid| wrong(invalid.to_string()))?;
            if let Some(other) = names[..at].iter().find(|other| other.eq_ignore_ascii_case(name)) {
                let fault = if other == name {
                    "two projections have it; give each its own".to_owned()
                } else {
                    format!("it differs from {other:?} only in case; choose names that differ in more")
                };
                return Err(wrong(fault));
            }
        }
        Ok(())
    }
}

/// Runs all checks of `leftfold serve`, and checks that the sources can be read.
pub(crate) async fn check<L: Location>(location: &L, config: Config, out: &mut Out) -> Result<Exit, Failure> {
    let prepared = Prepared::new(config, false, &[])?;
    prepared.fit(&location.open().await?).await?;
    let Prepared { config, scripts, .. } = prepared;
    let sources = config.sources()?;
    for source in &sources {
        source.check::<L::Store>().await?;
    }
    let (projections, reactions, sources) = (scripts.len(), config.reactions.len(), sources.len());
    out.value(&json!({
        "projections": projections, "reactions": reactions, "sources": sources, "store": location.to_string(),
    }))?;
    out.line(format_args!(
        "{} and {} can run, and the store {location} responds",
        count(projections as u64, "projection"),
        count(reactions as u64, "reaction")
    ))?;
    if sources > 0 {
        out.line(format_args!("{} can be read", count(sources as u64, "source")))?;
    }
    Ok(Exit::Done)
}

/// Returns the options of the listener. Remote listeners need TLS and tokens, unless `insecure` is
/// set.
pub(super) fn listen(config: &Config, insecure: bool) -> Result<Listen, Failure> {
    let server = &config.server;
    let tls = match &server.tls {
        Some(TlsConfig { certificate, key }) => {
            let read = leftfold_server::tls(&config.resolve(certificate), &config.resolve(key));
            Some(read.map_err(|error| Failure::new(Exit::Usage, format!("server.tls: {error}")))?)
        }
        None => None,
    };
    let (address, has_tokens) = (server.listen, !config.tokens.is_empty());
    let is_local = address.ip().is_loopback();
    let danger = match (&tls, has_tokens) {
        _ if is_local || insecure => None,
        (None, _) => Some((
            "tokens and events would be sent unencrypted",
            "set a certificate in server.tls, listen at 127.0.0.1 behind a proxy with TLS",
        )),
        (Some(_), false) => Some((
            "every client could do everything",
            "create a token with `leftfold token new`, listen at 127.0.0.1",
        )),
        (Some(_), true) => None,
    };
    if let Some((danger, advice)) = danger {
        let message = format!(
            "server.listen: {address} can be reached from other machines, and {danger}; {advice}, or allow it with \
             --insecure"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if server.health == Some(address) && address.port() != 0 {
        let message = format!("server.health: {address} is also server.listen; set another address, or none");
        return Err(Failure::new(Exit::Usage, message));
    }
    // Web pages in a local browser can reach the server without a token, so refuse their host
    // names.
    let hosts = match &server.hosts {
        Some(hosts) => Some(hosts.clone()),
        None if is_local && !has_tokens => Some(Vec::new()),
        None => None,
    };
    let (connections, requests_per_second) = (server.connections, server.requests_per_second);
    let connections_per_address = server.connections_per_address.unwrap_or(connections.div_ceil(2));
    Ok(Listen { connections, connections_per_address, tls, hosts, requests_per_second, ..Listen::default() })
}
