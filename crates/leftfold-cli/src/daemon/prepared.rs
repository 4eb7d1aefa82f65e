//! What the file says, made ready: what can be told to be wrong with it is told before anything is begun.

use leftfold::Sequencer;
use leftfold_script::Script;
use leftfold_server::{Backend, Listen};
use serde_json::json;

use super::Config;
use super::config::Tls;
use crate::exit::{Exit, Failure};
use crate::output::{Out, count};
use crate::place::Place;

/// A file whose scripts compile, and whose reactions, sources and certificate can be used.
pub(super) struct Prepared {
    pub(super) config: Config,
    pub(super) listen: Listen,
    pub(super) scripts: Vec<Script>,
}

impl Prepared {
    pub(super) fn new(config: Config, insecure: bool) -> Result<Self, Failure> {
        let listen = listen(&config, insecure)?;
        let scripts = config.scripts()?;
        config.webhooks(&scripts)?;
        config.sources()?;
        Ok(Self { config, listen, scripts })
    }
}

/// Compiles the scripts, looks over the reactions, and tries the certificate, the store and the sources.
pub(crate) async fn check<P: Place<Store: Backend>>(
    place: &P,
    config: Config,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let Prepared { config, scripts, .. } = Prepared::new(config, false)?;
    let sources = config.sources()?;
    let store = place.open().await?;
    leftfold::Log::heads(&store).await?;
    config.healer(Sequencer::new(store))?;
    for source in &sources {
        source.check::<P::Store>().await?;
    }
    let (projections, reactions, sources) = (scripts.len(), config.reactions.len(), sources.len());
    out.value(&json!({
        "projections": projections, "reactions": reactions, "sources": sources, "store": place.to_string(),
    }))?;
    out.line(format_args!(
        "{} and {} can run, and the store {place} answers",
        count(projections as u64, "projection"),
        count(reactions as u64, "reaction")
    ))?;
    if sources > 0 {
        out.line(format_args!("{} can be read from", count(sources as u64, "source")))?;
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
    let connections_per_address = server.connections_per_address.unwrap_or(connections.div_ceil(2));
    Ok(Listen { connections, connections_per_address, tls, hosts, requests_per_second, ..Listen::default() })
}
