//! Unknown outcomes, abandoned transactions and server errors: the guarantees hold all the same.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
mod proxy;

use std::sync::Arc;

use bson::{Document, doc};
use common::{failing, heal, soon};
use leftfold::documents::{
    Advance, Checkpoint, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Record,
};
use leftfold::log::{Entry, Limit, Log as _};
use leftfold::sequence::{
    Held, HeldPage, Settled, Settlement, StreamChange, StreamVersion, Survey, Totals, Waiting,
};
use leftfold::{
    Append as _, Appended, Collection, Delivery, DocumentId, Documents as _, EventId, EventKind, Expected,
    IngestAnswer, Json, Lane, Mark, Partition, Policy, Revision, Sequencer, Sequences as _, StreamId,
};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use mongodb::Client;
use proxy::Proxy;

fn cart() -> Collection {
    Collection::new("cart").unwrap()
}

fn mark(number: u64) -> Mark {
    [(Lane::from(Partition(0)), number)].into_iter().filter(|(_, number)| *number > 0).collect()
}

fn entry(id: &str) -> Entry {
    Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("opened").unwrap(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
        data: Json::parse("{}").unwrap(),
        metadata: None,
    }
}

/// Builds a commit that moves the checkpoint and one document from a number to the next.
fn commit(from: u64) -> Arc<Commit> {
    let header = |number| Header { mark: mark(number), parked: None };
    let record = Record {
        id: DocumentId::new("a").unwrap(),
        header: header(from + 1),
        body: Some(Json::of(&(from + 1)).unwrap()),
    };
    let write = DocumentWrite { expected: (from > 0).then(|| header(from)), record };
    let to = Checkpoint { mark: mark(from + 1), ..Checkpoint::default() };
    Arc::new(Commit {
        advance: Some(Advance { projection: cart(), from: mark(from), to }),
        changes: vec![CollectionWrites { collection: cart(), writes: vec![write] }],
    })
}

async fn assert_at(store: &Mongo, number: u64) {
    let stored = store.load(&cart(), vec![DocumentId::new("a").unwrap()]).await.unwrap();
    let numbers: Vec<_> = stored.iter().map(|record| record.header.mark.position(Partition(0)).0).collect();
    let expected: &[u64] = if number == 0 { &[] } else { &[number] };
    assert_eq!(numbers, expected);
    assert_eq!(store.checkpoint(&cart()).await.unwrap().mark, mark(number));
}

/// Returns the event ids in the log, in order.
async fn logged(store: &Mongo) -> Vec<String> {
    let page = store.read(Partition(0), leftfold::Position(0), Limit::default()).await.unwrap();
    page.events.iter().map(|event| event.id.to_string()).collect()
}

/// Starts a server for one test, because its failpoints would disturb other tests, and opens a
/// store on it.
async fn fragile() -> (Server, Mongo) {
    let server = Server::replica_set(1).await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    (server, store)
}

#[tokio::test]
async fn what_the_server_says_to_repeat_is_repeated() {
    let (server, store) = fragile().await;
    let transient = |code: i32| doc! { "errorCode": code, "errorLabels": ["TransientTransactionError"] };
    let cases = [
        ("insert", transient(112)),
        ("update", transient(112)),
        ("commitTransaction", transient(251)),
        ("commitTransaction", doc! { "closeConnection": true }),
        ("commitTransaction", doc! { "writeConcernError": { "code": 64, "errmsg": "waiting timed out" } }),
        ("commitTransaction", doc! { "errorCode": 50, "errorLabels": ["UnknownTransactionCommitResult"] }),
        ("findAndModify", transient(112)),
    ];
    for (number, (command, data)) in (0..).zip(cases) {
        server.fail_point(failing(&[command], doc! { "times": 1 }, data.clone())).await.unwrap();
        let outcome = soon(store.commit(commit(number))).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Applied), "{command} {data}: {outcome:?}");
        assert_at(&store, number + 1).await;
        server.fail_point(failing(&[command], doc! { "times": 1 }, data.clone())).await.unwrap();
        let id = format!("e{number}");
        let appended = soon(store.append(StreamId::new("s").unwrap(), Expected::Any, vec![entry(&id)])).await;
        let Ok(Appended::New(bookmark)) = appended else { panic!("{command} {data}: {appended:?}") };
        assert_eq!(bookmark.revision.0, number + 1, "{command} {data}");
        heal(&server).await;
    }
    assert_eq!(logged(&store).await.len(), 7);
}

/// Builds a settlement that appends the event after `number`, releases the held event, and holds
/// the one after next.
fn settlement(number: u64) -> Arc<Settlement> {
    let stream = StreamId::new("s").unwrap();
    let revision = Revision(number + 3);
    // Each event is a little longer, so that the totals change.
    let data = Json::of(&"x".repeat(usize::try_from(number).unwrap())).unwrap();
    let entry = Arc::new(Entry { data, ..entry(&format!("h{number}")) });
    let since = "2026-01-01T00:00:00Z".parse().unwrap();
    let held = Held { stream: stream.clone(), revision, previous: Revision(number + 2), since, entry };
    let waiting = Waiting {
        version: number + 1,
        skipped: Revision(0),
        events: 1,
        bytes: held.bytes(),
        first: revision,
        until: held.previous,
        highest: revision,
        since,
        ask_at: since,
        asked: 0,
        trouble: None,
    };
    let step = StreamChange {
        stream,
        seen: StreamVersion { last: Revision(number), version: (number > 0).then_some(number) },
        append: vec![(Revision(number + 1), Arc::new(self::entry(&format!("e{number}"))))],
        hold: vec![held],
        unhold: (number > 0).then_some(Revision(number + 2)).into_iter().collect(),
        waiting: Some(waiting),
    };
    let bounds = Totals { events: 9, bytes: 9_999, conflicts: 9 };
    Arc::new(Settlement { steps: vec![step], bounds, ..Settlement::default() })
}

/// Checks that this many settlements were written, each once.
async fn assert_settled(store: &Mongo, number: u64) {
    let stream = StreamId::new("s").unwrap();
    let Survey { streams, totals, .. } = store.survey(vec![stream.clone()]).await.unwrap();
    assert_eq!(streams[&stream].seen(), StreamVersion { last: Revision(number), version: Some(number) });
    assert_eq!(totals[&Partition(0)].events, 1);
    let pages = store.held(vec![stream.clone()], Limit::default()).await.unwrap();
    let held: Vec<_> = pages[&stream].held.iter().map(|held| held.revision.0).collect();
    assert_eq!(held, [number + 2]);
    assert_eq!(logged(store).await, (0..number).map(|number| format!("e{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_settlement_that_the_server_says_to_repeat_is_repeated() {
    let (server, store) = fragile().await;
    let transient = |code: i32| doc! { "errorCode": code, "errorLabels": ["TransientTransactionError"] };
    let commands = ["findAndModify", "find", "aggregate", "insert", "delete", "update", "commitTransaction"];
    let cases = commands.map(|command| (command, transient(112))).into_iter().chain([
        ("commitTransaction", doc! { "closeConnection": true }),
        ("commitTransaction", doc! { "writeConcernError": { "code": 64, "errmsg": "waiting timed out" } }),
        ("insert", doc! { "closeConnection": true }),
    ]);
    let mut done = 0;
    for (command, data) in cases {
        server.fail_point(failing(&[command], doc! { "times": 1 }, data.clone())).await.unwrap();
        let settled = soon(store.settle(settlement(done))).await.unwrap();
        assert!(
            matches!(settled, Settled::Applied { before } if before.0 == done),
            "{command} {data}: {settled:?}"
        );
        heal(&server).await;
        done += 1;
        assert_settled(&store, done).await;
    }
    assert!(matches!(store.settle(settlement(done - 1)).await.unwrap(), Settled::Moved(_)));
    for command in commands {
        let refused = doc! { "errorCode": 2, "errorLabels": [] };
        server.fail_point(failing(&[command], doc! { "times": 1 }, refused)).await.unwrap();
        let settled = store.settle(settlement(done)).await;
        heal(&server).await;
        // A commit that fails with an error without labels may have happened, and is repeated.
        if command == "commitTransaction" {
            assert!(matches!(settled, Ok(Settled::Applied { .. } | Settled::Unknown(_))), "{settled:?}");
        } else {
            assert!(settled.is_err(), "{command}: {settled:?}");
            assert_settled(&store, done).await;
        }
    }
}

/// Returns the number of commands of these kinds that the server has run.
async fn commands(server: &Server) -> i64 {
    let status = server.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    let run = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    ["find", "aggregate", "getMore", "findAndModify", "insert", "update", "delete", "commitTransaction"]
        .iter()
        .map(|name| run.get_document(name).unwrap().get_i64("total").unwrap())
        .sum()
}

#[tokio::test]
async fn many_streams_are_settled_with_as_few_commands_as_one() {
    let (server, store) = fragile().await;
    let sequencer = Sequencer::new(store.clone());
    let mut counts = Vec::new();
    for (round, streams) in [1, 300].into_iter().enumerate() {
        let delivery = |stream: u64, revision: u64| Delivery {
            stream: StreamId::new(format!("r{round}-{stream}")).unwrap(),
            revision: Some(Revision(revision)),
            previous: None,
            entry: Arc::new(entry(&format!("{round}-{stream}-{revision}"))),
        };
        let batch = |revision| (0..streams).map(|stream| delivery(stream, revision)).collect::<Vec<_>>();
        for revision in [2, 1, 2] {
            let before = commands(&server).await;
            sequencer.ingest(Policy::Contiguous, batch(revision)).await.unwrap();
            counts.push(commands(&server).await - before);
        }
    }
    let (one, many) = counts.split_at(3);
    // The server itself runs a few commands now and then.
    assert!(one.iter().zip(many).all(|(one, many)| *many <= one + 3), "{one:?} {many:?}");
    assert!(one.iter().all(|count| *count <= 20), "{one:?}");
}

/// Streams that do not fit on a page show at least a few events.
#[tokio::test]
async fn pages_of_many_streams_show_something_of_each() {
    let (_server, store) = fragile().await;
    let sequencer = Sequencer::new(store.clone());
    let delivery = |stream: u64, revision: u64| Delivery {
        stream: StreamId::new(format!("s{stream:03}")).unwrap(),
        revision: Some(Revision(revision)),
        previous: None,
        entry: Arc::new(entry(&format!("{stream}-{revision}"))),
    };
    let fed = (0..450).flat_map(|stream| (0..=stream % 4).map(move |more| delivery(stream, 2 + more)));
    sequencer.ingest(Policy::Contiguous, fed.collect()).await.unwrap();
    let streams: Vec<_> = (0..450).map(|stream| delivery(stream, 1).stream).collect();
    for room in [0, 1, 5, 8, 9, 10, 11] {
        let limit = Limit { events: room, bytes: usize::MAX };
        let pages = store.held(streams.clone(), limit).await.unwrap();
        let mut room = limit;
        for (number, (stream, page)) in (0..).zip(&pages) {
            let all = (0..=number % 4).map(|more| delivery(number, 2 + more)).map(|delivery| Held {
                stream: delivery.stream,
                revision: delivery.revision.unwrap(),
                previous: Revision(delivery.revision.unwrap().0 - 1),
                since: page.held[0].since,
                entry: delivery.entry,
            });
            let expected = HeldPage::cut(all, &mut room);
            assert_eq!(*page, expected, "{stream} with room for {}", limit.events);
        }
        assert_eq!(pages.len(), 450);
    }
}

/// A settlement with an unknown outcome is computed again from the stored state, and is written
/// once.
#[tokio::test]
async fn a_settlement_that_can_not_be_told_is_unknown_and_harmless_to_repeat() {
    let (server, store) = fragile().await;
    let unheard = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    server
        .fail_point(failing(&["commitTransaction"], doc! { "times": 1_000 }, unheard.clone()))
        .await
        .unwrap();
    let settled = soon(store.settle(settlement(0))).await.unwrap();
    let Settled::Unknown(error) = settled else { panic!("{settled:?}") };
    assert!(error.is_unknown() && error.to_string().contains("the outcome is unknown"), "{error}");
    heal(&server).await;
    assert_settled(&store, 1).await;
    assert!(matches!(store.settle(settlement(0)).await.unwrap(), Settled::Moved(_)));

    server.fail_point(failing(&["commitTransaction"], doc! { "times": 40 }, unheard)).await.unwrap();
    let sequencer = Sequencer::new(store.clone());
    let delivery = |revision: u64| Delivery {
        stream: StreamId::new("t").unwrap(),
        revision: Some(Revision(revision)),
        previous: None,
        entry: Arc::new(entry(&format!("t{revision}"))),
    };
    let fed = vec![delivery(1), delivery(3)];
    let answers = soon(sequencer.ingest(Policy::Contiguous, fed)).await.unwrap();
    let is_there =
        |answer: &IngestAnswer| matches!(answer, IngestAnswer::Appended(_) | IngestAnswer::Duplicate(_));
    assert!(is_there(&answers[0]) && matches!(answers[1], IngestAnswer::Held { .. }), "{answers:?}");
    heal(&server).await;
    soon(sequencer.ingest(Policy::Contiguous, vec![delivery(2)])).await.unwrap();
    assert_eq!(logged(&store).await, ["e0", "t1", "t2", "t3"]);
}

/// While too few members answer, the server's write concern error has no label.
#[tokio::test]
async fn a_write_that_no_majority_acknowledges_is_unknown_and_never_taken_for_done() {
    let (server, store) = fragile().await;
    let unheard = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    server.fail_point(failing(&["commitTransaction"], doc! { "times": 1_000 }, unheard)).await.unwrap();
    let outcome = soon(store.commit(commit(0))).await.unwrap();
    let CommitOutcome::Unknown(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.is_unknown() && error.to_string().contains("the outcome is unknown"), "{error}");
    heal(&server).await;
    // It was written. The same commit again is a conflict, and harmless.
    assert_at(&store, 1).await;
    assert!(matches!(store.commit(commit(0)).await.unwrap(), CommitOutcome::Conflict(_)));
    assert_at(&store, 1).await;
}

#[tokio::test]
async fn what_is_refused_is_not_written() {
    let (server, store) = fragile().await;
    let refused = doc! { "errorCode": 2, "errorLabels": [] };
    server.fail_point(failing(&["update"], doc! { "times": 1 }, refused)).await.unwrap();
    assert!(store.commit(commit(0)).await.is_err());
    heal(&server).await;
    assert_at(&store, 0).await;
    assert!(matches!(store.commit(commit(0)).await.unwrap(), CommitOutcome::Applied));
}

/// The reply to a commit gets lost, once or until the caller gives up.
#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_neither_lost_nor_done_twice() {
    let (server, direct) = fragile().await;
    let proxy = Proxy::to(server.port(0).unwrap()).await;
    let store = Mongo::connect(proxy.url()).await.unwrap();
    proxy.lose_replies_to("commitTransaction", 1);
    assert!(matches!(soon(store.commit(commit(0))).await.unwrap(), CommitOutcome::Applied));
    assert_at(&direct, 1).await;

    proxy.lose_replies_to("commitTransaction", 1_000);
    let outcome = soon(store.commit(commit(1))).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    proxy.lose_replies_to("commitTransaction", 0);
    assert_at(&direct, 2).await;

    let stream = StreamId::new("s").unwrap();
    proxy.lose_replies_to("commitTransaction", 1);
    let appended = soon(store.append(stream.clone(), Expected::NONE, vec![entry("e1")])).await.unwrap();
    assert!(matches!(appended, Appended::New(_)), "{appended:?}");

    // So many replies get lost that the whole append is repeated: it finds its events in the log.
    proxy.lose_replies_to("commitTransaction", 40);
    let expected = Expected::Revision(Revision(1));
    let appended = soon(store.append(stream.clone(), expected, vec![entry("e2"), entry("e3")])).await;
    match appended {
        Ok(Appended::New(bookmark)) => assert_eq!(bookmark.revision, Revision(3)),
        Err(leftfold::AppendError::Store(error)) => assert!(error.is_unknown(), "{error}"),
        other => panic!("{other:?}"),
    }
    proxy.lose_replies_to("commitTransaction", 0);
    let again = soon(store.append(stream, expected, vec![entry("e2"), entry("e3")])).await.unwrap();
    assert!(matches!(again, Appended::Duplicate(_)), "{again:?}");
    assert_eq!(logged(&direct).await, ["e1", "e2", "e3"]);
}

/// A process that dies in a transaction leaves it open. The server would abort it after a minute,
/// which is longer than any wait here.
#[tokio::test]
async fn a_transaction_that_was_left_open_is_ended() {
    let (server, store) = fragile().await;
    assert!(matches!(store.commit(commit(0)).await.unwrap(), CommitOutcome::Applied));
    let mut options = mongodb::options::ClientOptions::parse(server.url()).await.unwrap();
    options.app_name = Some("leftfold".to_owned());
    let dead = Client::with_options(options).unwrap();
    let theirs = dead.database("leftfold");
    let mut session = dead.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let heads = theirs.collection::<Document>("leftfold.heads");
    let step = doc! { "$inc": { "position": 1_i64 } };
    heads.update_one(doc! { "_id": 0 }, step).session(&mut session).await.unwrap();
    let checkpoints = theirs.collection::<Document>("leftfold.checkpoints");
    let step = doc! { "$set": { "tally": "{}" } };
    checkpoints.update_one(doc! { "_id": "cart" }, step).session(&mut session).await.unwrap();

    let stream = StreamId::new("s").unwrap();
    let (appended, outcome) = tokio::join!(
        soon(store.append(stream, Expected::NONE, vec![entry("e1")])),
        soon(store.commit(commit(1)))
    );
    appended.unwrap();
    assert!(matches!(outcome.unwrap(), CommitOutcome::Applied));
    assert!(session.commit_transaction().await.is_err());
    assert_at(&store, 2).await;
    assert_eq!(logged(&store).await, ["e1"]);
}

/// If the change stream fails, polling still wakes the waiting tasks, slightly later.
#[tokio::test]
async fn without_a_change_stream_heads_and_checkpoints_are_looked_at() {
    let (server, store) = fragile().await;
    let waiter = Mongo::connect(format!("{}&appName=waiter", server.url())).await.unwrap();
    let broken = doc! { "errorCode": 286, "appName": "waiter" };
    let command = failing(&["aggregate", "getMore"], doc! { "times": 100_000 }, broken);
    server.fail_point(command).await.unwrap();
    for number in 0..3 {
        let (grown, moved) = (waiter.clone(), waiter.clone());
        let at = mark(number);
        let grown = tokio::spawn(async move { grown.grown(&at).await });
        let at = mark(number);
        let moved = tokio::spawn(async move { moved.advanced(&cart(), &at).await });
        let id = format!("e{number}");
        store.append(StreamId::new("s").unwrap(), Expected::Any, vec![entry(&id)]).await.unwrap();
        assert!(matches!(store.commit(commit(number)).await.unwrap(), CommitOutcome::Applied));
        soon(grown).await.unwrap().unwrap();
        soon(moved).await.unwrap().unwrap();
    }
}

/// A transaction sees every write; a read sees only majority-committed ones. The conflict is found
/// once both agree.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_names_its_document_even_if_reads_do_not_show_it_yet() {
    let (server, store) = fragile().await;
    let first = soon(store.commit(commit(0))).await.unwrap();
    assert!(matches!(first, CommitOutcome::Applied), "{first:?}");
    let showing = |mode: &'static str| {
        server.fail_point(doc! { "configureFailPoint": "disableSnapshotting", "mode": mode })
    };
    showing("alwaysOn").await.unwrap();
    let records = store.database().collection::<Document>("leftfold.docs.cart");
    let other = doc! { "$set": { "_fold.mark": mark(7).to_string() } };
    let hasty = mongodb::options::WriteConcern::nodes(1);
    records.update_one(doc! { "_id": "a" }, other).write_concern(hasty).await.unwrap();
    let committing = tokio::spawn({
        let store = store.clone();
        async move {
            loop {
                match store.commit(commit(1)).await {
                    Err(error) if error.is_transient() => {}
                    outcome => return outcome,
                }
            }
        }
    });
    soon(async { while called_off(&server).await < 2 {} }).await;
    showing("off").await.unwrap();
    let outcome = soon(committing).await.unwrap().unwrap();
    let CommitOutcome::Conflict(conflict) = outcome else { panic!("{outcome:?}") };
    assert_eq!(conflict.documents, [(cart(), DocumentId::new("a").unwrap())]);
}

/// Returns the number of aborted transactions.
async fn called_off(server: &Server) -> i64 {
    let status = server.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    status.get_document("transactions").unwrap().get_i64("totalAborted").unwrap()
}
