//! Connecting: the URL, and the check of the server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{Document, doc};
use leftfold::{Error, Invalid, Kind, Result};
use mongodb::Client;
use mongodb::error::ErrorKind;
use mongodb::options::{
    ClientOptions, DatabaseOptions, ReadConcern, ReadPreference, SelectionCriteria, ServerAddress, Tls,
};

use super::base::{Base, Network};
use super::transaction::durable;
use crate::Options;
use crate::clock::StoreClock;
use crate::error::Failure;
use crate::schema::{self, CHECKPOINTS, GENERATIONS, LEASES, MAX_PARTITIONS};
use crate::watch::Board;

/// The size limit of an event's data, and of its metadata: both must fit into a 16 MiB document.
const MAX_EVENT_BYTES: usize = 7 << 20;
/// The wire version of MongoDB 6.0.
const OLDEST_WIRE_VERSION: i32 = 17;

/// Connects, checks the server, and creates the log if there is none.
pub(crate) async fn connect(url: &str, options: &Options) -> Result<Base> {
    if let Some(wanted) = options.partitions
        && !(1..=MAX_PARTITIONS).contains(&wanted)
    {
        let expected = format!("1 to {MAX_PARTITIONS}");
        return Err(Invalid::new("number of partitions", &wanted.to_string(), expected).into());
    }
    if options.max_event_bytes > MAX_EVENT_BYTES {
        let expected = format!("at most {MAX_EVENT_BYTES}, as MongoDB's documents are limited to 16 MiB");
        return Err(Invalid::new("max_event_bytes", &options.max_event_bytes.to_string(), expected).into());
    }
    let client_options = understand(url).await?;
    let app = client_options.app_name.clone().unwrap_or_default();
    let name = client_options.default_database.clone().unwrap_or_else(|| "leftfold".to_owned());
    let hosts: Vec<_> = client_options.hosts.iter().map(ToString::to_string).collect();
    let place = format!("database {name} at {}", hosts.join(","));
    let failed = |failure: Failure| failure.to_error("connect to", &place);
    let network = Network {
        is_local: client_options.hosts.iter().all(is_local),
        is_encrypted: matches!(client_options.tls, Some(Tls::Enabled(_))),
    };
    let client = Client::with_options(client_options).map_err(|error| failed(error.into()))?;
    let transactions = check_server(&client, &place).await?;
    let db = client.database_with_options(&name, database_options(transactions));
    // The doctor also inspects servers that can't hold a log.
    if options.existing && (transactions || !options.untouched) {
        schema::check_existing(&db, transactions, &place).await?;
    }
    let partitions = match transactions {
        true if options.untouched => Some(schema::stored_partitions(&db, options.partitions, &place).await?),
        true => Some(schema::create_log(&db, options.partitions, &place).await?),
        false => None,
    };
    if !options.untouched {
        if transactions {
            schema::create_sequences(&db).await.map_err(failed)?;
        }
        for name in [CHECKPOINTS, LEASES, GENERATIONS] {
            schema::create(&db, name).await.map_err(failed)?;
        }
    }
    let board = Arc::new(Board::new(partitions.unwrap_or(0)));
    let turns = (0..partitions.unwrap_or(0)).map(|_| tokio::sync::Mutex::default()).collect();
    Ok(Base {
        client,
        db,
        app,
        place,
        network,
        partitions,
        board,
        turns,
        caught_up: Mutex::default(),
        clock: StoreClock::new(),
    })
}

/// Returns whether a server is on this machine, judging by its address.
fn is_local(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Tcp { host, .. } => {
            host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        // A Unix socket.
        _ => true,
    }
}

/// Parses the URL and fills in defaults. The URL may hold a password, so errors must not show it.
async fn understand(url: &str) -> Result<ClientOptions> {
    let mut options = ClientOptions::parse(url).await.map_err(|error| {
        if matches!(&*error.kind, ErrorKind::DnsResolve { .. }) {
            return Failure::from(error).to_error("find the servers of", "the MongoDB URL");
        }
        let secret = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(secret, _)| secret);
        let mut report = error.kind.to_string();
        for part in secret.into_iter().flat_map(|secret| secret.splitn(2, ':').chain([secret])) {
            if !part.is_empty() {
                report = report.replace(part, "…");
            }
        }
        let message = format!(
            "could not parse the MongoDB URL: {report}; write it as mongodb://user:password@host:27017/database, \
             with special characters in user and password percent-encoded"
        );
        Error::new(Kind::Invalid, message)
    })?;
    options.app_name.get_or_insert_with(|| "leftfold".to_owned());
    options.server_selection_timeout.get_or_insert(Duration::from_secs(10));
    options.connect_timeout.get_or_insert(Duration::from_secs(5));
    options.retry_reads = Some(true);
    options.retry_writes = Some(true);
    Ok(options)
}

/// Returns the read and write concerns of all operations, regardless of the URL. With weaker ones,
/// a failover loses acknowledged writes.
fn database_options(transactions: bool) -> DatabaseOptions {
    let mut options = DatabaseOptions::default();
    // A standalone server has no majority, and never rolls back a write.
    options.read_concern = Some(if transactions { ReadConcern::majority() } else { ReadConcern::local() });
    options.write_concern = Some(durable());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    options
}

/// Checks that the server is supported, and returns whether it has transactions.
async fn check_server(client: &Client, place: &str) -> Result<bool> {
    let failed = |error: mongodb::error::Error| Failure::from(error).to_error("connect to", place);
    let admin = client.database("admin");
    let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(failed)?;
    let info = admin.run_command(doc! { "buildInfo": 1 }).await.map_err(failed)?;
    judge_server(&hello, &info, place)
}

fn judge_server(hello: &Document, info: &Document, place: &str) -> Result<bool> {
    if hello.get_i32("maxWireVersion").unwrap_or(0) < OLDEST_WIRE_VERSION {
        let version = info.get_str("version").unwrap_or("of an unknown version");
        let message = format!("could not use {place}: it is MongoDB {version}; update it to 6.0 or later");
        return Err(Error::new(Kind::Store, message));
    }
    Ok(hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_refused() {
        let hello = |wire: i32| doc! { "maxWireVersion": wire, "setName": "rs0" };
        let info = doc! { "version": "5.0.14" };
        assert!(judge_server(&hello(17), &info, "db").unwrap());
        let error = judge_server(&hello(13), &info, "db").unwrap_err().to_string();
        assert_eq!(error, "could not use db: it is MongoDB 5.0.14; update it to 6.0 or later");
    }

    #[test]
    fn only_replica_sets_and_clusters_have_transactions() {
        for (hello, has) in [
            (doc! { "maxWireVersion": 17 }, false),
            (doc! { "maxWireVersion": 17, "setName": "rs0" }, true),
            (doc! { "maxWireVersion": 17, "msg": "isdbgrid" }, true),
        ] {
            assert_eq!(judge_server(&hello, &doc! {}, "db").unwrap(), has, "{hello}");
        }
    }
}
