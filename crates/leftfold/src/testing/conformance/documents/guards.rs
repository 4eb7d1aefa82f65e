//! The cases about documents.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::documents::{
    Advance, Checkpoint, Claim, Collection, CollectionWrites, Commit, CommitConflict, CommitOutcome,
    DocumentCounts, DocumentWrite, Header, Parked, Record, Tally,
};
use crate::event::{DocumentId, EventKind, Partition, Position, Revision};
use crate::json::Json;
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::conformance::{Atomic, json, soon, stream, waits};

fn cart() -> Collection {
    Collection::new("cart").unwrap()
}

fn id(text: &str) -> DocumentId {
    DocumentId::new(text).unwrap()
}

fn mark(number: u64) -> Mark {
    [(Lane::from(Partition(0)), number)].into_iter().collect()
}

fn header(number: u64) -> Header {
    Header { mark: mark(number), parked: None }
}

fn parked(number: u64) -> Parked {
    Parked {
        stream: stream("s'1"),
        revision: Revision(number),
        kind: EventKind::new("failed").unwrap(),
        partition: Partition(0),
        position: Position(number),
        error: "it's \"bad\"\n\u{0}\u{1F980}".to_owned(),
        attempts: 3,
        since: Timestamp::from_microsecond(1_700_000_000_000_001).unwrap(),
        from: mark(number - 1),
        through: [(Lane::from(Partition(0)), number), (Lane::named("s \"x\""), u64::MAX)]
            .into_iter()
            .collect(),
        waiting: 2,
        anew: number > 3,
    }
}

/// Creates a document at a mark, without a body if `body` is empty.
fn record(name: &str, number: u64, body: &str) -> Record {
    let body = (!body.is_empty()).then(|| json(body));
    Record { id: id(name), header: header(number), body }
}

fn insert(record: Record) -> DocumentWrite {
    DocumentWrite { expected: None, record }
}

fn update(from: u64, record: Record) -> DocumentWrite {
    DocumentWrite { expected: Some(header(from)), record }
}

fn changes(writes: Vec<DocumentWrite>) -> Vec<CollectionWrites> {
    vec![CollectionWrites { collection: cart(), writes }]
}

fn step(from: u64, to: u64) -> Advance {
    let checkpoint = |number| if number == 0 { Mark::default() } else { mark(number) };
    let tally = Tally { events: to, ..Tally::default() };
    Advance { projection: cart(), from: checkpoint(from), to: Checkpoint { mark: checkpoint(to), tally } }
}

async fn commit(store: &impl Store, advance: Option<Advance>, writes: Vec<DocumentWrite>) -> CommitOutcome {
    store.commit(Arc::new(Commit { advance, changes: changes(writes) })).await.unwrap()
}

#[track_caller]
fn applied(outcome: &CommitOutcome) {
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?} should be applied");
}

#[track_caller]
fn conflict(outcome: CommitOutcome) -> CommitConflict {
    let CommitOutcome::Conflict(mut conflict) = outcome else { panic!("{outcome:?} should be a conflict") };
    conflict.documents.sort();
    conflict
}

/// Returns a conflict of these documents alone.
fn of(names: &[&str]) -> CommitConflict {
    CommitConflict { checkpoint: false, documents: names.iter().map(|name| (cart(), id(name))).collect() }
}

async fn load(store: &impl Store, names: &[&str]) -> Vec<Record> {
    let ids = names.iter().map(|name| id(name)).collect();
    let mut records = store.load(&cart(), ids).await.unwrap();
    records.sort_by(|a, b| a.id.cmp(&b.id));
    records
}

/// Loading returns the existing records once each, and nothing else.
pub async fn what_is_missing_is_left_out<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    assert_eq!(load(&store, &["a", "b"]).await, []);
    assert_eq!(load(&store, &[]).await, []);
    let (a, c) = (record("a", 1, "{}"), record("c", 2, "[1]"));
    applied(&commit(&store, None, vec![insert(a.clone()), insert(c.clone())]).await);
    assert_eq!(load(&store, &["c", "b", "a"]).await, [a, c]);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), Checkpoint::default());
    applied(&commit(&store, None, vec![]).await);
}

/// A write that expects no record succeeds only if there is none, not even one without a body.
pub async fn an_insert_is_guarded<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let (first, gone) = (record("a", 1, "1"), record("gone", 1, ""));
    applied(&commit(&store, None, vec![insert(first.clone()), insert(gone.clone())]).await);
    for name in ["a", "gone"] {
        let refused = commit(&store, None, vec![insert(record(name, 9, "2"))]).await;
        assert_eq!(conflict(refused), of(&[name]));
    }
    assert_eq!(load(&store, &["a", "gone"]).await, [first, gone]);
}

/// A write that expects a header succeeds only if that header is stored: same mark, same parked
/// state.
pub async fn an_update_is_guarded<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let refused = commit(&store, None, vec![update(1, record("a", 2, "2"))]).await;
    assert_eq!(conflict(refused), of(&["a"]), "there is nothing to update");
    applied(&commit(&store, None, vec![insert(record("a", 1, "1"))]).await);
    let refused = commit(&store, None, vec![update(2, record("a", 3, "3"))]).await;
    assert_eq!(conflict(refused), of(&["a"]), "another mark");

    let sick = Header { mark: mark(1), parked: Some(parked(5).into()) };
    let sicker = Header { mark: mark(1), parked: Some(Parked { attempts: 4, ..parked(5) }.into()) };
    let write = |expected: &Header, header: &Header| {
        let record = Record { id: id("a"), header: header.clone(), body: Some(json("1")) };
        vec![DocumentWrite { expected: Some(expected.clone()), record }]
    };
    assert_eq!(
        conflict(commit(&store, None, write(&sick, &header(2))).await),
        of(&["a"]),
        "it is not parked"
    );
    applied(&commit(&store, None, write(&header(1), &sick)).await);
    assert_eq!(
        conflict(commit(&store, None, write(&header(1), &header(2))).await),
        of(&["a"]),
        "it is parked"
    );
    assert_eq!(
        conflict(commit(&store, None, write(&sicker, &header(2))).await),
        of(&["a"]),
        "otherwise parked"
    );
    applied(&commit(&store, None, write(&sick, &sicker)).await);
    applied(&commit(&store, None, write(&sicker, &header(6))).await);
    assert_eq!(load(&store, &["a"]).await, [record("a", 6, "1")]);
}

/// Ids, bodies, marks and errors of any content come back unchanged.
pub async fn documents_come_back_exactly<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let long = "ü".repeat(127);
    let deep = format!("{}1{}", r#"{"a":["#.repeat(50), "]}".repeat(50));
    let big = format!("{:?}", "z".repeat(1_500_000));
    let spaced = r#"{ "b" : 1.50, "a" : 1e2, "b.c": {"$d": null} }"#;
    let names = ["ünï 🦀", "'; DROP TABLE cart; --", "\"q\"`b`[x]%_?", "$where", "a.b/c", " ", &long, "0"];
    let bodies =
        ["null", "\"\"", "-0.0", "12345678901234567890123", &deep, &big, spaced, r#""\u0000 \ud83e\udd80""#];
    let odd: Mark =
        [(Lane::named("it's \"odd\""), 7), (Lane::from(Partition(2)), u64::MAX)].into_iter().collect();
    let records: Vec<_> = names
        .iter()
        .zip(bodies)
        .zip(1..)
        .map(|((name, body), number)| Record {
            id: id(name),
            header: Header { mark: odd.clone(), parked: (number % 2 == 0).then(|| parked(number).into()) },
            body: Some(Json::stored(body)),
        })
        .collect();
    applied(&commit(&store, None, records.iter().cloned().map(insert).collect()).await);
    for record in &records {
        assert_eq!(load(&store, &[record.id.as_str()]).await, std::slice::from_ref(record));
        let same = DocumentWrite { expected: Some(record.header.clone()), record: record.clone() };
        applied(&commit(&store, None, vec![same]).await);
    }
    let mut sorted = records;
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(store.scan(&cart(), None, 100).await.unwrap(), sorted);
}

/// A delete leaves the record with its guard; readers see nothing.
pub async fn a_deleted_document_keeps_its_mark<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    applied(&commit(&store, None, vec![insert(record("a", 1, "1")), insert(record("b", 1, "1"))]).await);
    applied(&commit(&store, None, vec![update(1, record("a", 2, ""))]).await);
    assert_eq!(load(&store, &["a"]).await, [record("a", 2, "")]);
    assert_eq!(store.scan(&cart(), None, 9).await.unwrap(), [record("b", 1, "1")]);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 1, ..DocumentCounts::default() }
    );
    let stale = commit(&store, None, vec![update(1, record("a", 2, "1"))]).await;
    assert_eq!(conflict(stale), of(&["a"]), "a replay does not bring it back");
    applied(&commit(&store, None, vec![update(2, record("a", 3, "3"))]).await);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 2, ..DocumentCounts::default() }
    );
}

/// A commit with failing guards names exactly those documents. Without transactions it does not
/// continue with the next collection.
pub async fn a_conflict_names_the_documents_that_fail<S: Store>(store: S, atomic: Atomic) {
    let other = Collection::new("other").unwrap();
    store.prepare(&cart()).await.unwrap();
    store.prepare(&other).await.unwrap();
    applied(
        &commit(&store, Some(step(0, 1)), vec![insert(record("a", 1, "1")), insert(record("b", 1, "1"))])
            .await,
    );
    let writes = vec![
        update(1, record("a", 2, "2")),
        update(7, record("b", 2, "2")),
        insert(record("c", 2, "2")),
        update(1, record("d", 2, "2")),
    ];
    let mut all = changes(writes);
    all.push(CollectionWrites {
        collection: other.clone(),
        writes: vec![insert(record("b", 2, "2")), update(1, record("e", 2, "2"))],
    });
    let outcome = store.commit(Arc::new(Commit { advance: Some(step(1, 2)), changes: all })).await.unwrap();
    let mut expected = of(&["b", "d"]);
    if atomic == Atomic::Yes {
        expected.documents.push((other.clone(), id("e")));
    }
    assert_eq!(conflict(outcome), expected);
    assert_eq!(store.checkpoint(&cart()).await.unwrap().mark, mark(1), "the checkpoint stays");
    let now = load(&store, &["a", "b", "c", "d"]).await;
    let there = store.load(&other, vec![id("b"), id("e")]).await.unwrap();
    match atomic {
        Atomic::Yes => {
            assert_eq!(now, [record("a", 1, "1"), record("b", 1, "1")], "nothing is written");
            assert_eq!(there, [], "nothing is written");
        }
        Atomic::No => {
            assert_eq!(now, [record("a", 2, "2"), record("b", 1, "1"), record("c", 2, "2")]);
            assert_eq!(there, [], "documents don't come before the streams they were folded without");
        }
    }
}

/// A commit whose checkpoint is elsewhere does not move it, and an atomic commit writes nothing.
pub async fn a_checkpoint_moves_only_from_where_it_is<S: Store>(store: S, atomic: Atomic) {
    store.prepare(&cart()).await.unwrap();
    assert!(conflict(commit(&store, Some(step(1, 2)), vec![]).await).checkpoint, "it never ran");
    applied(&commit(&store, Some(step(0, 1)), vec![insert(record("a", 1, "1"))]).await);
    applied(&commit(&store, Some(step(1, 2)), vec![update(1, record("a", 2, "2"))]).await);
    for (from, to) in [(0, 3), (1, 3), (3, 4)] {
        let name = format!("new{from}");
        let outcome = commit(&store, Some(step(from, to)), vec![insert(record(&name, 3, "3"))]).await;
        assert!(conflict(outcome).checkpoint, "from {from}");
        assert_eq!(store.checkpoint(&cart()).await.unwrap(), step(1, 2).to);
        let written = load(&store, &[&name]).await;
        assert!(atomic == Atomic::No || written.is_empty(), "nothing is written: {written:?}");
    }
    assert_eq!(load(&store, &["a"]).await, [record("a", 2, "2")]);
    let elsewhere = Advance { projection: Collection::new("other").unwrap(), ..step(0, 9) };
    applied(&commit(&store, Some(elsewhere), vec![]).await);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), step(1, 2).to, "each projection has its own");
}

/// A commit that was applied, and is repeated because its answer was lost, changes nothing.
pub async fn a_repeated_commit_conflicts_and_changes_nothing<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let first = Arc::new(Commit {
        advance: Some(step(0, 1)),
        changes: changes(vec![insert(record("a", 1, "1")), insert(record("b", 1, ""))]),
    });
    applied(&store.commit(Arc::clone(&first)).await.unwrap());
    let again = conflict(store.commit(Arc::clone(&first)).await.unwrap());
    assert!(again.checkpoint || !again.documents.is_empty(), "{again:?}");
    applied(&commit(&store, Some(step(1, 2)), vec![update(1, record("a", 2, "2"))]).await);
    let late = conflict(store.commit(first).await.unwrap());
    assert!(late.checkpoint || !late.documents.is_empty(), "{late:?}");
    assert_eq!(load(&store, &["a", "b"]).await, [record("a", 2, "2"), record("b", 1, "")]);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), step(1, 2).to);
}

/// The same id in two collections is two documents, and the hidden collection is one more.
pub async fn collections_are_apart<S: Store>(store: S) {
    let (other, hidden) = (Collection::new("cart_1").unwrap(), cart().streams());
    store.prepare(&cart()).await.unwrap();
    store.prepare(&other).await.unwrap();
    let all = [(cart(), "1"), (other.clone(), "2"), (hidden.clone(), "3")].map(|(collection, body)| {
        CollectionWrites { collection, writes: vec![insert(record("a", 1, body))] }
    });
    applied(&store.commit(Arc::new(Commit { advance: None, changes: all.into() })).await.unwrap());
    for (collection, body) in [(cart(), "1"), (other, "2"), (hidden, "3")] {
        let expected = [record("a", 1, body)];
        assert_eq!(store.load(&collection, vec![id("a")]).await.unwrap(), expected, "{collection}");
        assert_eq!(store.scan(&collection, None, 9).await.unwrap(), expected, "{collection}");
        assert_eq!(
            store.count(&collection).await.unwrap(),
            DocumentCounts { documents: 1, ..DocumentCounts::default() }
        );
    }
}

/// A collection may be prepared any number of times, also concurrently.
pub async fn preparing_again_keeps_what_is_there<S: Store>(store: S) {
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let store = store.clone();
        tasks.spawn(async move { store.prepare(&cart()).await.unwrap() });
    }
    soon(tasks.join_all()).await;
    applied(&commit(&store, None, vec![insert(record("a", 1, "1"))]).await);
    store.prepare(&cart()).await.unwrap();
    assert_eq!(load(&store, &["a"]).await, [record("a", 1, "1")]);
}

/// A scan returns the documents that readers see, in the order of ids, page by page.
pub async fn documents_are_scanned_in_order<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    assert_eq!(store.scan(&cart(), None, 9).await.unwrap(), []);
    let names = ["b", "a", "B", "ä", "a b", "é", "10", "9", "zz", "🦀", "\u{ffff}"];
    let mut records: Vec<_> = names.iter().map(|name| record(name, 1, "1")).collect();
    let hidden = [record("aa", 1, ""), record("0", 1, ""), record("zzz", 1, "")];
    applied(&commit(&store, None, records.iter().chain(&hidden).cloned().map(insert).collect()).await);
    records.sort_by(|a, b| a.id.cmp(&b.id));
    for size in [1, 2, 3, 100] {
        let mut scanned: Vec<Record> = Vec::new();
        loop {
            let after = scanned.last().map(|record| record.id.clone());
            let page = store.scan(&cart(), after, size).await.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() == size || scanned.len() + page.len() == records.len());
            scanned.extend(page);
        }
        assert_eq!(scanned, records, "in pages of {size}");
    }
    for (limit, bytes, size) in [(100, usize::MAX, 11), (100, 0, 1), (3, usize::MAX, 3)] {
        let (mut scanned, mut more): (Vec<Record>, _) = (Vec::new(), true);
        while more {
            let after = scanned.last().map(|record| record.id.clone());
            let page;
            (page, more) = store.scan_page(&cart(), after, limit, bytes).await.unwrap();
            assert!(page.len() == size || !more || scanned.len() + page.len() == records.len());
            scanned.extend(page);
        }
        assert_eq!(scanned, records, "in pages of {limit} and {bytes} bytes");
    }
    assert_eq!(store.scan(&cart(), Some(id("a")), 1).await.unwrap(), [record("a b", 1, "1")]);
    assert_eq!(store.scan(&cart(), Some(id("aaa")), 1).await.unwrap(), [record("b", 1, "1")]);
}

/// Parked records are listed by id, with or without a body, until they are unparked.
pub async fn parked_documents_are_listed_and_counted<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let since = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
    let sick = |name: &str, body: &str, second| {
        let healthy = record(name, 1, body);
        let error = r#"it said {"since":"1970-01-01T00:00:00Z"}"#.to_owned();
        let parked = Parked { since: since(second), error, ..parked(2) };
        Record { header: Header { parked: Some(parked.into()), ..healthy.header }, ..healthy }
    };
    let listed = [sick("a", "1", 20), sick("b", "", 10), sick("d", "1", 30)];
    let others = [record("c", 1, "1"), record("e", 1, "")];
    applied(&commit(&store, None, listed.iter().chain(&others).cloned().map(insert).collect()).await);
    assert_eq!(store.parked(&cart(), None, 9).await.unwrap(), listed);
    assert_eq!(store.parked(&cart(), None, 2).await.unwrap(), listed[..2]);
    assert_eq!(store.parked(&cart(), Some(id("a")), 1).await.unwrap(), listed[1..2]);
    assert_eq!(store.parked(&cart(), Some(id("d")), 9).await.unwrap(), []);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 3, parked: 3, parked_since: Some(since(10)) }
    );
    assert_eq!(load(&store, &["b"]).await, listed[1..2], "a reason to be parked comes back exactly");
    let cured = listed[1..].iter().map(|sick| DocumentWrite {
        expected: Some(sick.header.clone()),
        record: record(sick.id.as_str(), 2, "2"),
    });
    applied(&commit(&store, None, cured.collect()).await);
    assert_eq!(store.parked(&cart(), None, 9).await.unwrap(), listed[..1]);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 4, parked: 1, parked_since: Some(since(20)) }
    );
}

/// Marks of many lanes and full tallies come back unchanged.
pub async fn checkpoints_come_back_exactly<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let lanes = (0..50).map(|number| (Lane::from(Partition(number)), u64::from(number) * 1_000));
    let last_error = Some("it's \"bad\"\n🦀".to_owned());
    let tally = Tally {
        events: u64::MAX,
        applied: 2,
        skipped: 3,
        ignored: 4,
        set_aside: 5,
        retried: 6,
        parked: 7,
        conflicts: 8,
        last_error,
    };
    let to = Checkpoint { mark: lanes.chain([(Lane::named("x\"y"), u64::MAX)]).collect(), tally };
    let advance = Advance { projection: cart(), from: Mark::default(), to: to.clone() };
    applied(&commit(&store, Some(advance), vec![]).await);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), to);
    let back = Advance { projection: cart(), from: to.mark, to: step(0, 3).to };
    applied(&commit(&store, Some(back.clone()), vec![]).await);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), back.to);
}

/// A wait ends when that projection's mark changes, and not before.
pub async fn waiting_for_a_checkpoint_ends_with_its_step<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    assert!(waits(store.advanced(&cart(), &Mark::default())).await, "it never ran");
    soon(store.advanced(&cart(), &mark(3))).await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.advanced(&cart(), &Mark::default()).await })
    };
    let elsewhere = Advance { projection: Collection::new("other").unwrap(), ..step(0, 9) };
    applied(&commit(&store, Some(elsewhere), vec![insert(record("a", 1, "1"))]).await);
    let _ = conflict(commit(&store, Some(step(3, 4)), vec![]).await);
    assert!(waits(store.advanced(&cart(), &Mark::default())).await, "only another projection has moved");
    assert!(!waiting.is_finished());
    applied(&commit(&store, Some(step(0, 1)), vec![]).await);
    soon(waiting).await.unwrap().unwrap();
    soon(store.advanced(&cart(), &Mark::default())).await.unwrap();
    assert!(waits(store.advanced(&cart(), &mark(1))).await);
}

/// A step at the moment when a wait starts is not missed, and neither is a step backwards.
pub async fn no_step_of_a_checkpoint_is_missed<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    for round in 0..120 {
        let (from, to) = if round % 2 == 0 { (0, 5) } else { (5, 0) };
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.advanced(&cart(), &step(from, to).from).await })
            })
            .collect();
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        applied(&commit(&store, Some(step(from, to)), vec![]).await);
        for waiter in waiting {
            soon(waiter).await.unwrap().unwrap();
        }
    }
}

/// One owner holds the lease until it ends or is released; the owner can always renew it.
pub async fn a_lease_is_claimed_renewed_released_and_ends<S: Store>(store: S) {
    let long = Duration::from_mins(10);
    let short = Duration::from_millis(40);
    store.prepare(&cart()).await.unwrap();
    let claim = async |owner: &str, lease| store.claim(&cart(), owner, lease).await.unwrap();
    assert_eq!(claim("ann", long).await, Claim::Ours);
    assert_eq!(claim("ann", long).await, Claim::Ours, "renewed");
    let Claim::Theirs { ends_in } = claim("bob", long).await else { panic!("ann has it") };
    assert!(ends_in > Duration::from_secs(500) && ends_in <= long, "{ends_in:?}");
    store.release(&cart(), "bob").await.unwrap();
    assert!(matches!(claim("bob", long).await, Claim::Theirs { .. }), "bob can't give back what ann has");
    let elsewhere = store.claim(&Collection::new("other").unwrap(), "bob", long).await.unwrap();
    assert_eq!(elsewhere, Claim::Ours, "each projection has its own");

    assert_eq!(claim("ann", short).await, Claim::Ours, "renewed for less");
    let taken = soon(async {
        loop {
            match claim("bob", long).await {
                Claim::Ours => break,
                Claim::Theirs { ends_in } => {
                    assert!(ends_in <= short && !ends_in.is_zero(), "{ends_in:?}");
                    tokio::time::sleep(ends_in).await;
                }
            }
        }
    });
    taken.await;
    assert!(matches!(claim("ann", long).await, Claim::Theirs { .. }), "it is bob's now");
    store.release(&cart(), "bob").await.unwrap();
    assert_eq!(claim("ann", long).await, Claim::Ours);

    applied(&commit(&store, Some(step(0, 1)), vec![]).await);
    assert!(matches!(claim("bob", long).await, Claim::Theirs { .. }), "a step leaves the lease as it is");
    store.release(&cart(), "ann").await.unwrap();
    assert_eq!(
        store.checkpoint(&cart()).await.unwrap(),
        step(0, 1).to,
        "a lease leaves the checkpoint as it is"
    );
}

/// Concurrent guarded increments of one document are all counted, as long as each writer retries on
/// conflict.
pub async fn concurrent_guarded_writes_lose_nothing<S: Store>(store: S) {
    const TASKS: u64 = 8;
    const EACH: u64 = 10;
    store.prepare(&cart()).await.unwrap();
    applied(&commit(&store, None, vec![insert(record("n", 0, "0"))]).await);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while done < EACH {
                let now = load(&store, &["n"]).await.remove(0);
                let count = now.body.unwrap().to::<u64>().unwrap() + 1;
                let write = DocumentWrite {
                    expected: Some(now.header),
                    record: record("n", count, &count.to_string()),
                };
                match commit(&store, None, vec![write]).await {
                    CommitOutcome::Applied => done += 1,
                    other => assert_eq!(conflict(other), of(&["n"])),
                }
            }
        });
    }
    soon(tasks.join_all()).await;
    assert_eq!(load(&store, &["n"]).await, [record("n", TASKS * EACH, "80")]);
}
