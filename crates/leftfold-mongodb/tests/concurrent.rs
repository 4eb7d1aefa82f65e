//! Many processes append while transactions are aborted or slow. Readers skip no event, and every
//! acknowledged event is stored once, in order.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use common::REPLICA_SET;
use leftfold::log::{Entry, Limit, Log as _};
use leftfold::sequence::{MAX_REJECTED, Rejected};
use leftfold::{
    Append as _, AppendError, Delivery, Event, EventId, EventKind, Expected, IngestAnswer, Json, Kind, Mark,
    Partition, Policy, Position, Revision, Sequencer, Sequences as _, StreamId,
};
use leftfold_mongodb::Mongo;
use mongodb::ClientSession;
use tokio::process::Command;

const WRITERS: usize = 4;
const APPENDS: usize = 60;
const PARTITIONS: u16 = 2;

fn entry(id: &str) -> Entry {
    Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("happened").unwrap(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
        data: Json::of(&id).unwrap(),
        metadata: None,
    }
}

/// Not a test of its own: the code of the other processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer() {
    let (Ok(url), Ok(name)) = (std::env::var("LEFTFOLD_WRITER_URL"), std::env::var("LEFTFOLD_WRITER")) else {
        return;
    };
    let store = Mongo::connect(url).await.unwrap();
    let appends = (0..APPENDS).map(|number| {
        let (store, name) = (store.clone(), name.clone());
        tokio::spawn(async move {
            let stream = StreamId::new(format!("s{}", number % 7)).unwrap();
            let entries = (0..=number % 3).map(|at| entry(&format!("{name}-{number}-{at}"))).collect();
            store.append(stream, Expected::Any, entries).await.unwrap().into_bookmark()
        })
    });
    for bookmark in futures_of(appends.collect()).await {
        println!(
            "bookmark {} {} {} {}",
            bookmark.stream, bookmark.revision, bookmark.partition, bookmark.position
        );
    }
}

async fn futures_of<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.unwrap());
    }
    done
}

/// Starts an append like the store's own, and leaves the end of the transaction to the caller.
async fn begin(store: &Mongo, session: &mut ClientSession, id: &str) -> mongodb::error::Result<()> {
    session.start_transaction().await?;
    let heads = store.database().collection::<Document>("leftfold.heads");
    let head = heads
        .find_one_and_update(doc! { "_id": 0 }, doc! { "$inc": { "position": 1_i64 } })
        .return_document(mongodb::options::ReturnDocument::After)
        .session(&mut *session)
        .await?;
    let position = head.unwrap().get_i64("position").unwrap();
    let event = doc! {
        "_id": position, "stream": id, "revision": 1_i64, "id": id, "type": "happened",
        "time": bson::DateTime::from_millis(0), "data": "0",
    };
    store.database().collection::<Document>("leftfold.events").insert_one(event).session(session).await?;
    Ok(())
}

/// Aborts half of its transactions, and delays the others so that more writers arrive.
async fn meddle(store: Mongo) -> usize {
    let mut committed = 0;
    let mut tries = 0;
    while committed < 4 {
        let mut session = store.database().client().start_session().await.unwrap();
        tries += 1;
        if begin(&store, &mut session, &format!("slow{tries}")).await.is_err() {
            continue;
        }
        if tries % 2 == 0 {
            session.abort_transaction().await.unwrap();
            continue;
        }
        // The delay itself is the point of this test.
        tokio::time::sleep(Duration::from_millis(150)).await;
        if session.commit_transaction().await.is_ok() {
            committed += 1;
        }
    }
    committed
}

/// Reads all partitions as they grow, up to the final mark.
async fn follow(store: &Mongo, mut done: tokio::sync::watch::Receiver<Option<Mark>>) -> Vec<Event> {
    let mut events = Vec::new();
    let mut at = Mark::default();
    loop {
        for partition in (0..PARTITIONS).map(Partition) {
            let after = at.position(partition);
            let page = store.read(partition, after, Limit { events: 7, bytes: 1 << 20 }).await.unwrap();
            for (event, position) in page.events.iter().zip(after.0 + 1..) {
                assert_eq!(
                    event.position,
                    Position(position),
                    "something was skipped in partition {partition}"
                );
            }
            at.advance(&partition.into(), page.through.0);
            events.extend(page.events);
        }
        let end = done.borrow_and_update().clone();
        match end {
            Some(end) if at.covers(&end) => return events,
            Some(_) => {}
            None => tokio::select! {
                grown = store.grown(&at) => grown.unwrap(),
                _ = done.changed() => {}
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_skip_nothing_whatever_happens_while_others_append() {
    let url = REPLICA_SET.url().await;
    let store = Mongo::options().partitions(PARTITIONS).connect(&url).await.unwrap();
    let (finish, done) = tokio::sync::watch::channel(None);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (url, done) = (url.clone(), done.clone());
            tokio::spawn(async move { follow(&Mongo::connect(url).await.unwrap(), done).await })
        })
        .collect();
    let meddling = tokio::spawn(meddle(store.clone()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let writer = Command::new(std::env::current_exe().unwrap())
                .args(["writer", "--exact", "--nocapture"])
                .env("LEFTFOLD_WRITER_URL", &url)
                .env("LEFTFOLD_WRITER", format!("w{number}"))
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn();
            tokio::spawn(writer.unwrap().wait_with_output())
        })
        .collect();
    let mut bookmarks = Vec::new();
    for output in futures_of(writers).await {
        let output = output.unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        bookmarks.extend(
            text.lines()
                .filter_map(|line| line.split_once("bookmark "))
                .map(|(_, bookmark)| bookmark.to_owned()),
        );
    }
    let slow = meddling.await.unwrap();
    finish.send(Some(store.heads().await.unwrap())).unwrap();
    assert_eq!(bookmarks.len(), WRITERS * APPENDS);
    for reader in readers {
        let events = reader.await.unwrap();
        let ids: BTreeSet<_> = events.iter().map(|event| event.id.as_str()).collect();
        assert_eq!(ids.len(), events.len(), "something came twice");
        assert_eq!(events.len(), WRITERS * APPENDS * 2 + slow);
        let mut revisions: BTreeMap<&str, Revision> = BTreeMap::new();
        for event in &events {
            let last = revisions.entry(event.stream.as_str()).or_default();
            assert_eq!(event.revision.0, last.0 + 1, "{}", event.stream);
            *last = event.revision;
        }
        let places: BTreeSet<_> = events
            .iter()
            .map(|event| {
                format!("{} {} {} {}", event.stream, event.revision, event.partition, event.position)
            })
            .collect();
        for bookmark in &bookmarks {
            assert!(places.contains(bookmark), "{bookmark} was acknowledged");
        }
    }
}

fn latest(stream: &str, revision: u64) -> Delivery {
    let entry = Arc::new(entry(&format!("{stream}-{revision}")));
    let stream = StreamId::new(stream).unwrap();
    Delivery { stream, revision: Some(Revision(revision)), previous: None, entry }
}

async fn append(store: &Mongo, stream: &str, id: &str) -> u64 {
    let stream = StreamId::new(stream).unwrap();
    store.append(stream, Expected::Any, vec![entry(id)]).await.unwrap().into_bookmark().revision.0
}

/// A process has a stream cached at 1 while another process wrote revision 500. It must not write
/// 2: that revision is free, and no index reports the error.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_behind_revisions_that_others_left_out() {
    let url = REPLICA_SET.url().await;
    let store = Mongo::connect(&url).await.unwrap();
    let others = Sequencer::new(Mongo::connect(&url).await.unwrap());
    assert_eq!(append(&store, "known", "a").await, 1);
    assert_eq!(append(&store, "expected", "b").await, 1);
    let fed = ["known", "expected", "new"].map(|stream| latest(stream, 500)).to_vec();
    let answers = others.ingest(Policy::Latest, fed).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, IngestAnswer::Appended(_))), "{answers:?}");

    assert_eq!(append(&store, "known", "c").await, 501);
    assert_eq!(append(&store, "new", "d").await, 501, "streams of late were all new, this one is not");
    let stream = StreamId::new("expected").unwrap();
    let at = Expected::Revision(Revision(1));
    let refused = store.append(stream.clone(), at, vec![entry("e")]).await.unwrap_err();
    assert!(matches!(refused, AppendError::WrongRevision { .. }), "{refused:?}");
    let events = store.read_stream(&stream, Revision(0), Limit::default()).await.unwrap();
    assert_eq!(events.iter().map(|event| event.revision.0).collect::<Vec<_>>(), [1, 500]);
}

/// The same with concurrent writers: in log order, revisions only grow.
#[tokio::test(flavor = "multi_thread")]
async fn revisions_only_grow_while_some_leave_some_out() {
    let url = REPLICA_SET.url().await;
    let store = Mongo::connect(&url).await.unwrap();
    let appending: Vec<_> = (0..2)
        .map(|number| {
            let url = url.clone();
            tokio::spawn(async move {
                let store = Mongo::connect(url).await.unwrap();
                for round in 0..40 {
                    append(&store, &format!("s{}", round % 3), &format!("a{number}-{round}")).await;
                }
            })
        })
        .collect();
    let feeding: Vec<_> = (0..2)
        .map(|number| {
            let url = url.clone();
            tokio::spawn(async move {
                let sequencer = Sequencer::new(Mongo::connect(url).await.unwrap());
                for round in 1..20 {
                    let fed = (0..3).map(|name| latest(&format!("s{name}"), round * 10 + number)).collect();
                    while let Err(error) = sequencer.ingest(Policy::Latest, Vec::clone(&fed)).await {
                        assert!(error.is_transient(), "{error}");
                    }
                }
            })
        })
        .collect();
    futures_of(appending).await;
    futures_of(feeding).await;
    let page = store.read(Partition(0), Position(0), Limit::default()).await.unwrap();
    let mut last: BTreeMap<&str, Revision> = BTreeMap::new();
    for event in &page.events {
        let before = last.insert(event.stream.as_str(), event.revision).unwrap_or_default();
        assert!(before < event.revision, "{before} of {} before {}", event.stream, event.revision);
    }
    let appended = page.events.iter().filter(|event| event.id.as_str().starts_with('a')).count();
    assert_eq!((appended, page.more), (80, false));
}

/// The bound holds for all processes together.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_messages_are_rejected_than_may_be_whoever_rejects_them() {
    let rejected = |number: u64| Rejected {
        source: "orders".to_owned(),
        reason: "it is no JSON".to_owned(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        attributes: BTreeMap::new(),
        content: number.to_le_bytes().to_vec(),
    };
    let url = REPLICA_SET.url().await;
    let store = Mongo::connect(&url).await.unwrap();
    store.reject((0..MAX_REJECTED - 3).map(rejected).collect()).await.unwrap();
    let rejecting = (0..8).map(|number| {
        let url = url.clone();
        tokio::spawn(async move {
            let store = Mongo::connect(url).await.unwrap();
            match store.reject(vec![rejected(MAX_REJECTED + number)]).await {
                Ok(()) => true,
                Err(error) if error.kind() == Kind::Full => false,
                Err(error) => panic!("{error}"),
            }
        })
    });
    let kept = futures_of(rejecting.collect()).await;
    assert_eq!(kept.into_iter().filter(|kept| *kept).count(), 3);
    let all = store.rejected(None, usize::MAX).await.unwrap();
    assert_eq!(all.len() as u64, MAX_REJECTED);
}
