//! The database: connecting to it, checking it and setting it up.
//!
//! Leftfold's collections have names that begin with `leftfold.`; only views use the names that
//! users gave to projections. Existing collections are checked before anything is written. Leftfold
//! never touches collections of others.

pub(crate) mod indexes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{Document, doc};
use leftfold::{Collection, Error, Invalid, Kind, Result};
use mongodb::error::ErrorKind;
use mongodb::options::{
    ClientOptions, DatabaseOptions, ReadConcern, ReadPreference, SelectionCriteria, ServerAddress, Tls,
};
use mongodb::{Client, Database};
use tokio::time::Instant;

use crate::connection::transaction::durable;
use crate::error::{Failure, is_duplicate};
use crate::log::no_transactions;
use crate::watch::Board;
use crate::{Base, Options, Way, patiently};

/// The storage format. It increases when older versions can't read the data of newer ones.
pub(crate) const FORMAT: i32 = 1;
/// The largest number of partitions of a log.
const MAX_PARTITIONS: u16 = 1_024;
/// The size limit of an event's data, and of its metadata: both must fit into a 16 MiB document.
const MAX_EVENT_BYTES: usize = 7 << 20;
/// The wire version of MongoDB 6.0.
const OLDEST_WIRE_VERSION: i32 = 17;

pub(crate) const EVENTS: &str = "leftfold.events";
pub(crate) const HEADS: &str = "leftfold.heads";
pub(crate) const CHECKPOINTS: &str = "leftfold.checkpoints";
pub(crate) const LEASES: &str = "leftfold.leases";
pub(crate) const GENERATIONS: &str = "leftfold.generations";
pub(crate) const META: &str = "leftfold.meta";
pub(crate) const HELD: &str = "leftfold.held";
pub(crate) const SEQUENCES: &str = "leftfold.sequences";
pub(crate) const CONFLICTS: &str = "leftfold.conflicts";
pub(crate) const SKIPPED: &str = "leftfold.skipped";
pub(crate) const REJECTED: &str = "leftfold.rejected";
pub(crate) const COUNTERS: &str = "leftfold.counters";
pub(crate) const TASKS: &str = "leftfold.tasks";
pub(crate) const REACTIONS: &str = "leftfold.reactions";
pub(crate) const FEEDS: &str = "leftfold.feeds";
/// The heartbeats of workers.
pub(crate) const WORKERS: &str = "leftfold.workers";
pub(crate) const STIRS: &str = "leftfold.stirs";

/// The document that every writer of rejected messages updates, so that they count them one after
/// the other.
pub(crate) const REJECTING: &str = "rejected";

/// The field that hides a record from a view.
const VISIBLE: &str = "_fold.gone";

/// Returns the collection that holds the records of a generation. The first generation uses the
/// name without a number.
pub(crate) fn records(generation: &Collection) -> String {
    let stored = generation.stored(0);
    match stored.belongs_to() {
        Some(visible) => format!("leftfold.streams.{visible}"),
        None => format!("leftfold.docs.{stored}"),
    }
}

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
    let way = Way {
        is_local: client_options.hosts.iter().all(is_local),
        is_encrypted: matches!(client_options.tls, Some(Tls::Enabled(_))),
    };
    let client = Client::with_options(client_options).map_err(|error| failed(error.into()))?;
    let transactions = check_server(&client, &place).await?;
    let db = client.database_with_options(&name, database_options(transactions));
    // The doctor also inspects servers that can't hold a log.
    if options.existing && (transactions || !options.untouched) {
        check_existing(&db, transactions, &place).await?;
    }
    let partitions = match transactions {
        true if options.untouched => Some(stored_partitions(&db, options.partitions, &place).await?),
        true => Some(make_log(&db, options.partitions, &place).await?),
        false => None,
    };
    if !options.untouched {
        if transactions {
            make_sequences(&db).await.map_err(failed)?;
        }
        for name in [CHECKPOINTS, LEASES, GENERATIONS] {
            create(&db, name).await.map_err(failed)?;
        }
    }
    let board = Arc::new(Board::new(partitions.unwrap_or(0)));
    let turns = (0..partitions.unwrap_or(0)).map(|_| tokio::sync::Mutex::default()).collect();
    Ok(Base {
        client,
        db,
        app,
        place,
        way,
        partitions,
        board,
        turns,
        caught_up: Mutex::default(),
        steady: Mutex::default(),
        time_kept: Mutex::default(),
        begun: Instant::now(),
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
            "could not understand the MongoDB URL: {report}; write it as mongodb://user:password@host:27017/database, \
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

/// Fails if there is no log yet.
async fn check_existing(db: &Database, transactions: bool, place: &str) -> Result<()> {
    if !transactions {
        return Err(no_transactions(place));
    }
    let failed = |error: mongodb::error::Error| Failure::from(error).to_error("look for a log in", place);
    let found = db.collection::<Document>(META).find_one(doc! { "_id": "log" }).await.map_err(failed)?;
    if found.is_some() {
        return Ok(());
    }
    let message = format!(
        "could not open the log in {place}: there is none yet; check the database's name in the URL, or begin with a \
         program that appends"
    );
    Err(Error::new(Kind::Store, message))
}

/// Returns the number of partitions of the existing log. Fails if it can't be read.
async fn stored_partitions(db: &Database, wanted: Option<u16>, place: &str) -> Result<u16> {
    let failed = |error: mongodb::error::Error| Failure::from(error).to_error("look for a log in", place);
    let meta = db.collection::<Document>(META).find_one(doc! { "_id": "log" }).await.map_err(failed)?;
    check_meta(&meta.unwrap_or_default(), wanted, place)
}

/// Creates the log, or checks the existing one. Returns its number of partitions.
async fn make_log(db: &Database, wanted: Option<u16>, place: &str) -> Result<u16> {
    let failed = |failure: Failure| failure.to_error("set up the log in", place);
    let metas = db.collection::<Document>(META);
    let mut made = false;
    loop {
        let meta = metas.find_one(doc! { "_id": "log" }).await.map_err(|error| failed(error.into()))?;
        if let Some(meta) = meta {
            let stored = check_meta(&meta, wanted, place)?;
            if !made {
                check_indexes(db, place).await?;
            }
            return Ok(stored);
        }
        make_tables(db, wanted.unwrap_or(1)).await.map_err(failed)?;
        made = true;
    }
}

/// Checks the format of a log and its number of partitions, and returns that number.
fn check_meta(meta: &Document, wanted: Option<u16>, place: &str) -> Result<u16> {
    let format = meta.get_i32("format").unwrap_or(0);
    if format != FORMAT {
        let message = format!(
            "could not open the log in {place}: it has format {format}, and this program reads format {FORMAT}; \
             use the version of Leftfold that made it, or a newer one"
        );
        return Err(Error::new(Kind::Format, message));
    }
    let stored = meta.get_i32("partitions").ok().and_then(|number| u16::try_from(number).ok());
    let Some(stored) = stored.filter(|number| (1..=MAX_PARTITIONS).contains(number)) else {
        let failure = Failure::damaged("its number of partitions can't be read");
        return Err(failure.to_error("open the log in", place));
    };
    match wanted {
        Some(wanted) if wanted != stored => {
            let message = format!(
                "the log in {place} has {stored} partitions, not {wanted}: their number is fixed when a log is made; \
                 connect with {stored} or without naming a number, or copy its events into another database"
            );
            Err(Error::new(Kind::Invalid, message))
        }
        _ => Ok(stored),
    }
}

/// Creates all collections and indexes of a log. The document that declares the log is written
/// last.
async fn make_tables(db: &Database, partitions: u16) -> Result<(), Failure> {
    for name in [EVENTS, HEADS, META] {
        create(db, name).await?;
    }
    db.collection::<Document>(EVENTS).create_indexes(indexes::of_the_log()).await?;
    let heads = db.collection::<Document>(HEADS);
    for partition in 0..partitions {
        let head = doc! { "$setOnInsert": { "position": 0_i64 } };
        heads.update_one(doc! { "_id": i32::from(partition) }, head).upsert(true).await?;
    }
    let rejecting = doc! { "$setOnInsert": { "changes": 0_i64 } };
    let metas = db.collection::<Document>(META);
    metas.update_one(doc! { "_id": REJECTING }, rejecting).upsert(true).await?;
    let meta = doc! { "_id": "log", "format": FORMAT, "partitions": i32::from(partitions) };
    match metas.insert_one(meta).await {
        Err(error) if !is_duplicate(&error) => Err(error.into()),
        // Another process may have been faster, with another number of partitions. The caller reads
        // the stored number next.
        _ => Ok(()),
    }
}

/// Creates the sequencer's collections and indexes if they are missing.
async fn make_sequences(db: &Database) -> Result<(), Failure> {
    for (collection, index) in indexes::of_sequences() {
        db.collection::<Document>(collection).create_index(index).await?;
    }
    for name in [SKIPPED, REJECTED] {
        create(db, name).await?;
    }
    Ok(())
}

/// Checks the unique indexes of the log. Without them it could hold an event twice.
async fn check_indexes(db: &Database, place: &str) -> Result<()> {
    let found = indexes::there(db, EVENTS).await;
    let found = found.map_err(|failure| failure.to_error("look at the indexes in", place))?;
    for index in indexes::of_the_log() {
        if !found.iter().any(|found| indexes::is_same(found, &index)) {
            let message = format!(
                "could not open the log in {place}: its unique index on {} is missing or differs, so that events could \
                 come twice; {}",
                index.keys,
                indexes::make_by_hand(EVENTS, &index)
            );
            return Err(Error::new(Kind::Format, message));
        }
    }
    Ok(())
}

/// Creates a collection if it does not exist.
pub(crate) async fn create(db: &Database, name: &str) -> Result<(), Failure> {
    const EXISTS: i32 = 48;
    match db.create_collection(name).await {
        Err(error) => match &*error.kind {
            ErrorKind::Command(command) if command.code == EXISTS => Ok(()),
            _ => Err(error.into()),
        },
        Ok(()) => Ok(()),
    }
}

/// Creates the records of a collection, their indexes, and the view with the collection's name.
pub(crate) async fn prepare(base: &Base, collection: &Collection) -> Result<()> {
    let failed =
        |failure: Failure| failure.to_error(&format!("make collection {collection} in"), &base.place);
    let generation = patiently(base.named(collection)).await.map_err(failed)?;
    for part in [generation.clone(), generation.streams()] {
        let name = records(&part);
        create(&base.db, &name).await.map_err(failed)?;
        let indexed = base.db.collection::<Document>(&name).create_indexes(indexes::of_records()).await;
        indexed.map_err(|error| failed(error.into()))?;
    }
    if collection.is_hidden() {
        return Ok(());
    }
    make_view(base, collection).await
}

/// Returns the pipeline of a view, which leaves out hidden records.
pub(crate) fn visible() -> Vec<Document> {
    vec![doc! { "$match": { VISIBLE: { "$exists": false } } }]
}

/// Creates the view of the live generation, or redirects a view of another generation. Fails if
/// something else has that name.
pub(crate) async fn make_view(base: &Base, collection: &Collection) -> Result<()> {
    let failed = |error: mongodb::error::Error| {
        Failure::from(error).to_error(&format!("make view {collection} in"), &base.place)
    };
    let doing = format!("make view {collection} in");
    let first = records(&collection.generation(0));
    let records = records(&base.run(&doing, base.named(collection)).await?);
    let pipeline = visible();
    let name = collection.as_str();
    let created = base.db.create_collection(name).view_on(records.clone()).pipeline(pipeline.clone()).await;
    let Err(error) = created else { return Ok(()) };
    let mut found = base.db.list_collections().filter(doc! { "name": name }).await.map_err(failed)?;
    if !found.advance().await.map_err(failed)? {
        return Err(failed(error));
    }
    let found = Document::try_from(found.current())
        .map_err(|error| Failure::from(error).to_error(&format!("make view {collection} in"), &base.place))?;
    let view_on = found.get_document("options").and_then(|options| options.get_str("viewOn"));
    if let Ok(on) = view_on {
        if on == records {
            return Ok(());
        }
        if on == first || on.strip_prefix(&first).is_some_and(|rest| rest.starts_with('~')) {
            return change_view(base, collection, &records).await;
        }
    }
    let message = format!(
        "could not make view {name} in {}: there is a {} of that name that Leftfold did not make; it is left as it \
         is: give the projection another name, or rename what is there",
        base.place,
        found.get_str("type").unwrap_or("collection"),
    );
    Err(Error::new(Kind::Conflict, message))
}

/// Checks that the user may change the view of the live generation, by setting it to its current
/// definition.
pub(crate) async fn may_change_view(base: &Base, collection: &Collection) -> Result<()> {
    let doing = format!("change view {collection} in");
    let records = records(&base.run(&doing, base.named(collection)).await?);
    change_view(base, collection, &records).await
}

async fn change_view(base: &Base, collection: &Collection, records: &str) -> Result<()> {
    let change = doc! { "collMod": collection.as_str(), "viewOn": records, "pipeline": visible() };
    let changed = base.db.run_command(change).await.map(drop);
    changed
        .map_err(|error| Failure::from(error).to_error(&format!("change view {collection} in"), &base.place))
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
