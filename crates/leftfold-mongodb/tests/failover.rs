//! A replica set whose primary dies or hangs while events are appended and folded. Acknowledged
//! events are stored once and in order, and the work goes on without help.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use leftfold::fold::FoldOptions;
use leftfold::log::{Entry, Limit, Log as _};
use leftfold::sequence::WantedEvents;
use leftfold::{
    App, AppendError, Appended, Delivery, Event, EventId, EventKind, Expected, IngestAnswer, Json, Leftfold,
    NewEvent, Policy, Projection, ReadError, Revision, Sequencer, Sequences as _, StreamId, fold,
};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Happened {
    Noted { number: u64 },
}

/// A document that lists the events it has folded.
struct Lists;

impl Projection for Lists {
    type Event = Happened;
    type Document = Vec<u64>;

    fn name(&self) -> &'static str {
        "lists"
    }

    fn fold(&self, list: Option<Vec<u64>>, event: &Event<Happened>) -> Result<Option<Vec<u64>>, fold::Error> {
        let Happened::Noted { number } = event.data;
        Ok(Some([list.unwrap_or_default(), vec![number]].concat()))
    }
}

/// Appends one event after the other until stopped, and repeats appends with an unknown outcome.
/// Returns the number of events.
async fn append(
    app: App<Mongo>,
    stream: &'static str,
    stop: watch::Receiver<bool>,
    done: watch::Sender<u64>,
) -> u64 {
    let mut number = 0;
    while !*stop.borrow() {
        let data = Json::of(&serde_json::json!({ "number": number })).unwrap();
        let event = NewEvent::new("noted", data).unwrap().with_id(format!("{stream}-{number}")).unwrap();
        loop {
            match app.append_events(stream, Expected::Revision(Revision(number)), vec![event.clone()]).await {
                Ok(_) => break,
                Err(AppendError::Store(error)) if error.is_transient() => {}
                Err(error) => panic!("{error}"),
            }
        }
        number += 1;
        done.send_replace(number);
    }
    number
}

fn delivery(stream: &str, revision: u64) -> Delivery {
    let entry = Entry {
        id: EventId::new(format!("{stream}-{revision}")).unwrap(),
        kind: EventKind::new("noted").unwrap(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
        data: Json::of(&serde_json::json!({ "number": revision - 1 })).unwrap(),
        metadata: None,
    };
    let stream = StreamId::new(stream).unwrap();
    Delivery { stream, revision: Some(Revision(revision)), previous: None, entry: Arc::new(entry) }
}

/// Delivers events of a stream until stopped, out of order and some of them twice. Returns the
/// number of events.
async fn feed(store: Mongo, stream: &'static str, stop: watch::Receiver<bool>) -> u64 {
    let sequencer = Sequencer::new(store);
    let mut number = 0;
    while !*stop.borrow() {
        for batch in [&[6, 4][..], &[5, 4, 2], &[1, 6], &[3]] {
            let fed: Vec<_> = batch.iter().map(|revision| delivery(stream, number + revision)).collect();
            let answers = loop {
                match sequencer.ingest(Policy::Contiguous, fed.clone()).await {
                    Ok(answers) => break answers,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            };
            let is_kept = |answer: &IngestAnswer| {
                matches!(
                    answer,
                    IngestAnswer::Appended(_) | IngestAnswer::Duplicate(_) | IngestAnswer::Held { .. }
                )
            };
            assert!(answers.iter().all(is_kept), "{answers:?}");
        }
        number += 6;
    }
    number
}

/// Waits for a few more appends, which show that the set works again.
async fn goes_on(done: &mut watch::Receiver<u64>) {
    let more = *done.borrow() + 5;
    let waiting = done.wait_for(|done| *done >= more);
    tokio::time::timeout(Duration::from_mins(2), waiting).await.expect("it should long go on").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_when_primaries_die_and_stand_still() {
    let server = Server::replica_set(3).await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    let options = FoldOptions { lease: Duration::from_secs(2), ..FoldOptions::default() };
    let app = Leftfold::on(store.clone()).options(options).projection(Lists).start().await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let (done, mut seen) = watch::channel(0);
    let appending: Vec<_> = ["a", "b"]
        .map(|stream| tokio::spawn(append(app.clone(), stream, stopped.clone(), done.clone())))
        .into_iter()
        .collect();
    let feeding = tokio::spawn(feed(store.clone(), "f", stopped));
    goes_on(&mut seen).await;
    let primary = server.primary().await.unwrap();
    server.kill(primary).await.unwrap();
    goes_on(&mut seen).await;
    server.start(primary).await.unwrap();
    goes_on(&mut seen).await;
    let primary = server.primary().await.unwrap();
    server.freeze(primary).await.unwrap();
    goes_on(&mut seen).await;
    server.thaw(primary).unwrap();
    goes_on(&mut seen).await;
    stop.send(true).unwrap();
    let mut appended = BTreeMap::new();
    for (stream, count) in ["a", "b"].into_iter().zip(appending) {
        appended.insert(stream, count.await.unwrap());
    }
    appended.insert("f", feeding.await.unwrap());
    tokio::time::timeout(Duration::from_mins(2), app.caught_up()).await.unwrap().unwrap();
    for (stream, count) in appended {
        let list = app.get(Lists, stream).await.unwrap().unwrap();
        assert_eq!(list, (0..count).collect::<Vec<_>>(), "{stream}");
    }
    assert_eq!(store.waiting(None, 9).await.unwrap(), []);
    assert!(store.survey(Vec::new()).await.unwrap().totals.is_empty(), "nothing is said to be held");
    app.stop().await;
}

/// A new primary learns only after a while which of its writes a majority has, and shows fewer
/// until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_is_not_believed_before_it_shows_all_that_was_acknowledged() {
    let server = Server::replica_set(3).await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    let app = Leftfold::on(store.clone()).projection(Lists).start().await.unwrap();
    app.append("a", [Happened::Noted { number: 0 }]).await.unwrap();
    app.caught_up().await.unwrap();
    let primary = server.primary().await.unwrap();
    let others: Vec<_> = (0..server.members()).filter(|member| *member != primary).collect();
    let (next, last) = (others[0], others[1]);
    server.command(last, doc! { "replSetFreeze": 600 }).await.unwrap();
    let showing = |mode: &'static str| {
        server.command(next, doc! { "configureFailPoint": "disableSnapshotting", "mode": mode })
    };
    showing("alwaysOn").await.unwrap();
    let event =
        NewEvent::new("noted", Json::parse(r#"{"number":1}"#).unwrap()).unwrap().with_id("b1").unwrap();
    let append = || app.append_events("b", Expected::Revision(Revision(0)), vec![event.clone()]);
    let Appended::New(bookmark) = append().await.unwrap() else { panic!("it is new") };
    assert_eq!(app.get(Lists, "b").at_least(bookmark.clone()).await.unwrap(), Some(vec![1]));
    let sequencer = Sequencer::new(store.clone());
    let fed = vec![delivery("c", 1), delivery("c", 3)];
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    app.stop().await;
    server.kill(primary).await.unwrap();
    while server.primary().await.ok() != Some(next) {}

    let stream = StreamId::new("b").unwrap();
    let held = StreamId::new("c").unwrap();
    let wanted = WantedEvents { places: vec![(held.clone(), Revision(3))], ids: Vec::new() };
    let (read, listed, appended, again, found, pages) = tokio::join!(
        app.get(Lists, "b").into_future(),
        store.read_stream(&stream, Revision(0), Limit::default()),
        append(),
        sequencer.ingest(Policy::Contiguous, vec![delivery("c", 1)]),
        store.find(wanted.clone()),
        store.held(vec![held], Limit::default()),
    );
    assert!(matches!(&read, Err(ReadError::Store(error)) if error.is_transient()), "{read:?}");
    assert!(matches!(&listed, Err(error) if error.is_transient()), "{listed:?}");
    assert!(matches!(&appended, Err(AppendError::Store(error)) if error.is_transient()), "{appended:?}");
    assert!(matches!(&again, Err(error) if error.is_transient()), "{again:?}");
    assert!(matches!(&found, Err(error) if error.is_transient()), "{found:?}");
    assert!(matches!(&pages, Err(error) if error.is_transient()), "{pages:?}");
    showing("off").await.unwrap();
    let again = sequencer.ingest(Policy::Contiguous, vec![delivery("c", 1), delivery("c", 2)]).await.unwrap();
    assert!(matches!(again[..], [IngestAnswer::Duplicate(_), IngestAnswer::Appended(_)]), "{again:?}");
    assert_eq!(sequencer.counts().released, 1);
    assert_eq!(store.find(wanted).await.unwrap().logged.len(), 1);
    assert_eq!(app.get(Lists, "b").await.unwrap(), Some(vec![1]));
    assert_eq!(store.read_stream(&stream, Revision(0), Limit::default()).await.unwrap().len(), 1);
    assert_eq!(append().await.unwrap(), Appended::Duplicate(bookmark));
}
