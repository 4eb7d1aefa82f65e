//! Planning reads a few documents at a time, so its memory use is bounded for large documents.
//!
//! An earlier version read 500 documents at once, whatever their size. This file has a single test,
//! because it measures the memory of its process.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use common::REPLICA_SET;
use leftfold::react::{Filter, Query, Reaction, Reactor, State};
use leftfold_mongodb::Mongo;
use serde::Deserialize;

const DOCUMENTS: usize = 20;
const BYTES: usize = 8_000_000;
/// The memory limit: a few documents in each form, which are BSON, JSON and values.
const MOST_MIB: u64 = 150;

#[derive(Deserialize)]
struct Picture {
    title: String,
}

/// Returns the peak memory of this process.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_documents_are_planned_some_at_a_time() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let pictures = store.database().collection::<Document>("pictures");
    for number in 0..DOCUMENTS {
        let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; BYTES] };
        let id = format!("{number:02}");
        pictures.insert_one(doc! { "_id": id, "title": "cat", "bytes": bytes }).await.unwrap();
    }
    let before = peak_mib();
    let filter: Filter = r#"{"title":"cat"}"#.parse().unwrap();
    let reaction = Reaction::on_plain::<Picture>("pictures", "archive").filter(filter).concurrency(2);
    let reaction = reaction.run(async |ctx| {
        assert_eq!(ctx.document().await?.title, "cat");
        Ok(())
    });
    let reacting = Reactor::on(store).worker("one").reaction(reaction).start().await.unwrap();
    tokio::time::timeout(Duration::from_mins(2), reacting.idle()).await.expect("it ends").unwrap();
    let query = Query { states: vec![State::Done], ..Query::default() };
    assert_eq!(reacting.tasks(query, None, 100).await.unwrap().len(), DOCUMENTS);
    let took = peak_mib() - before;
    eprintln!("planning and handling took {took} MiB");
    assert!(took < MOST_MIB, "it took {took} MiB");
    reacting.stop(Duration::from_secs(5)).await;
}
