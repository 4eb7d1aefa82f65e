//! The cases about changes of documents, tasks, leases and wake-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

use crate::documents::{
    Collection, CollectionWrites as Written, Commit, CommitOutcome, DocumentWrite, Header, Record,
};
use crate::event::DocumentId;
use crate::fold::Projection;
use crate::json::Json;
use crate::mark::Mark;
use crate::react::{
    Comparing, DocumentFeed as _, DocumentSource, Ended, FeedItem, Query, Reaction, ReactionStore, Reactor,
    Registered, Retry, Run, State, Suspicion, Task, TaskChange, TaskKey, WantedTasks,
};
use crate::store::Store;
use crate::testing::conformance::{json, soon};

const A_WHILE: Duration = Duration::from_secs(20);

fn carts() -> Collection {
    Collection::new("carts").unwrap()
}

fn on() -> DocumentSource {
    DocumentSource::Projection(carts())
}

fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

/// Writes documents of a projection, one commit each; no body means a delete.
async fn write<S: Store>(store: &S, documents: &[(&str, Option<&str>)]) {
    write_to(store, &carts(), documents).await;
}

async fn write_to<S: Store>(store: &S, collection: &Collection, documents: &[(&str, Option<&str>)]) {
    for (name, body) in documents {
        let before = store.load_current(collection, vec![id(name)]).await.unwrap().pop();
        let at =
            before.as_ref().map_or(0, |record| record.header.mark.lanes().map(|(_, number)| number).sum());
        let mark: Mark = [(crate::event::Partition(0).into(), at + 1)].into_iter().collect();
        let record = Record { id: id(name), header: Header { mark, parked: None }, body: body.map(json) };
        let write = DocumentWrite { expected: before.map(|record| record.header), record };
        let changes = vec![Written { collection: collection.clone(), writes: vec![write] }];
        let outcome = store.commit(Arc::new(Commit { advance: None, changes })).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
    }
}

async fn prepared<S: Store + ReactionStore>(store: &S) {
    store.prepare(&carts()).await.unwrap();
    store.prepare_reactions(&[on()]).await.unwrap();
    store.prepare_reactions(&[on()]).await.unwrap();
}

/// Reads a feed until all of these documents were named, and returns its position then.
async fn told<S: ReactionStore>(feed: &mut S::Feed, wanted: &[&str]) -> String {
    let wanted: BTreeSet<_> = wanted.iter().map(|name| id(name)).collect();
    let mut named = BTreeSet::new();
    soon(async {
        loop {
            match feed.next(100, A_WHILE).await.unwrap() {
                FeedItem::Changes(changes) => {
                    named.extend(changes.documents.into_values().flatten());
                    if named.is_superset(&wanted) {
                        assert_eq!(named, wanted, "nothing else has changed");
                        return changes.through;
                    }
                }
                FeedItem::Lost(why) => panic!("{why}"),
            }
        }
    })
    .await
}

/// A feed names each document that is written or deleted, and can resume from any position.
pub async fn changes_are_told<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    write(&store, &[("before", Some("1"))]).await;
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    // The feed starts here; its position is known even before the first change.
    let begin = match feed.next(100, Duration::ZERO).await.unwrap() {
        FeedItem::Changes(changes) => {
            assert!(changes.documents.is_empty(), "{changes:?}");
            changes.through
        }
        FeedItem::Lost(why) => panic!("{why}"),
    };
    assert!(!store.has_changes(vec![on()], begin.clone()).await.unwrap());
    write(&store, &[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]).await;
    assert!(store.has_changes(vec![on()], begin.clone()).await.unwrap(), "at once");
    let middle = told::<S>(&mut feed, &["a", "b"]).await;
    write(&store, &[("b", None), ("c", Some("1"))]).await;
    told::<S>(&mut feed, &["b", "c"]).await;
    let mut again = store.follow(vec![on()], Some(begin)).await.unwrap();
    told::<S>(&mut again, &["a", "b", "c"]).await;
    let mut later = store.follow(vec![on()], Some(middle)).await.unwrap();
    told::<S>(&mut later, &["b", "c"]).await;
}

/// Changes of other documents do not hide a later change.
pub async fn changes_behind_those_of_others_are_seen<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let others = Collection::new("others").unwrap();
    store.prepare(&others).await.unwrap();
    store.prepare_reactions(&[DocumentSource::Projection(others.clone())]).await.unwrap();
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    let FeedItem::Changes(begin) = feed.next(100, Duration::ZERO).await.unwrap() else { panic!("lost") };
    for number in 0..150 {
        write_to(&store, &others, &[(&format!("o{number}"), Some("1"))]).await;
    }
    assert!(!store.has_changes(vec![on()], begin.through.clone()).await.unwrap());
    write(&store, &[("a", Some("1"))]).await;
    assert!(store.has_changes(vec![on()], begin.through).await.unwrap());
}

/// A wait ends with a change, even one before the wait; a cancelled wait loses nothing.
pub async fn a_waiting_feed_wakes_up<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), feed.next(100, A_WHILE)).await.is_err());
    let (_, ()) = tokio::join!(told::<S>(&mut feed, &["a"]), async {
        write(&store, &[("a", Some("1"))]).await;
    });
}

/// Many changes come in bounded pieces, and none is left out.
pub async fn many_changes_come_in_pieces<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    let documents: Vec<_> = (0..40).map(|number| format!("d{number:02}")).collect();
    for name in &documents {
        write(&store, &[(name, Some("1"))]).await;
    }
    let mut named = BTreeSet::new();
    soon(async {
        while named.len() < documents.len() {
            let FeedItem::Changes(changes) = feed.next(7, A_WHILE).await.unwrap() else { panic!("lost") };
            let ids: Vec<_> = changes.documents.into_values().flatten().collect();
            assert!(ids.len() <= 7, "{ids:?}");
            named.extend(ids);
        }
    })
    .await;
}

/// Documents are read in their current state, and paged through by id.
pub async fn documents_are_read_and_paged<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    write(
        &store,
        &[
            ("b", Some(r#"{"n":2}"#)),
            ("a", Some(r#"{"n":1}"#)),
            ("c", Some("{}")),
            ("d", Some("{}")),
            ("c", None),
        ],
    )
    .await;
    let ids = || ["a", "c", "b", "x"].map(id).to_vec();
    let found = store.current_documents(&on(), ids(), usize::MAX).await.unwrap();
    assert!(found.left.is_empty(), "{found:?}");
    let mut found = found.documents;
    found.sort_by(|one, other| one.id.cmp(&other.id));
    let names: Vec<_> = found.iter().map(|document| document.id.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let body = found[1].body.as_ref().unwrap();
    assert!(body.json().same_as(&json(r#"{"n":2}"#)), "{body:?}");
    let mut after = None;
    let mut pages = Vec::new();
    loop {
        let page = store.page_of_ids(&on(), after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        pages.push(page.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["a".to_owned(), "b".to_owned()], vec!["d".to_owned()]]);

    // With little room, all of them come one by one.
    let (mut left, mut one_by_one) = (ids(), Vec::new());
    while !left.is_empty() {
        let found = store.current_documents(&on(), left, 1).await.unwrap();
        assert!(found.documents.len() <= 1, "{found:?}");
        assert!(!found.documents.is_empty() || found.left.is_empty(), "it gets on: {found:?}");
        one_by_one.extend(found.documents.into_iter().map(|document| document.id.to_string()));
        left = found.left;
    }
    one_by_one.sort();
    assert_eq!(one_by_one, ["a", "b"]);
}

fn key(reaction: &str, document: &str) -> TaskKey {
    TaskKey { reaction: reaction.to_owned(), document: id(document) }
}

/// Returns a time to the microsecond, this many seconds after a fixed day.
fn at(second: i64) -> Timestamp {
    Timestamp::from_microsecond(1_800_000_000_000_000 + second * 1_000_000 + 7).unwrap()
}

fn task(reaction: &str, document: &str, version: u64) -> Task {
    Task {
        key: key(reaction, document),
        version,
        state: State::Pending,
        inside: true,
        epoch: 3,
        generation: 4,
        watched: Json::parse(r#"{"status":"confirmed","list":[1,null,"ä"]}"#).unwrap(),
        due: Some(Timestamp::from_microsecond(1_000_000).unwrap()),
        since: at(1),
        check_at: None,
        needs: 1,
        attempts: 2,
        first_failed: Some(at(2)),
        error: Some("The Server said \"no\"".to_owned()),
        owner: Some("worker-1".to_owned()),
        claimed_at: Some(at(3)),
        done_at: None,
        changed_at: at(4),
        history: vec![Run { at: at(5), millis: 17, outcome: Ended::Failed, error: Some("no".to_owned()) }],
        cursor: Some(crate::react::StreamProgress { handled: 6, last: 1 << 50 }),
        suspicion: Suspicion::None,
        excused: 0,
    }
}

async fn insert<S: ReactionStore>(store: &S, tasks: Vec<Task>) {
    let refused = store.save_tasks(tasks.into_iter().map(TaskChange::Insert).collect()).await.unwrap();
    assert_eq!(refused, []);
}

/// A task is saved if it is still the one the change was computed from. The other tasks of the same
/// call are saved anyway.
pub async fn tasks_are_guarded<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let first = task("mail", "a", 11);
    insert(&store, vec![first.clone(), task("mail", "b", 12), task("sync", "a", 13)]).await;
    assert_eq!(store.load_tasks(vec![key("mail", "a"), key("mail", "x")]).await.unwrap(), [first]);
    let plain = Task {
        due: None,
        first_failed: None,
        error: None,
        owner: None,
        claimed_at: None,
        check_at: Some(at(9)),
        done_at: Some(at(8)),
        history: Vec::new(),
        state: State::Done,
        ..task("mail", "a", 21)
    };
    let changes = vec![
        TaskChange::Update(11, plain.clone()),
        TaskChange::Update(99, task("mail", "b", 22)),
        TaskChange::Insert(task("sync", "a", 23)),
        TaskChange::Insert(task("sync", "c", 24)),
        TaskChange::Update(1, task("sync", "missing", 25)),
        TaskChange::Delete(99, key("mail", "b")),
    ];
    let refused: BTreeSet<_> = store.save_tasks(changes).await.unwrap().into_iter().collect();
    assert_eq!(refused, [key("mail", "b"), key("sync", "a"), key("sync", "missing")].into());
    let all = store.list_tasks(Query::default(), None, 10).await.unwrap();
    let versions: Vec<_> = all.iter().map(|task| task.version).collect();
    assert_eq!(versions, [21, 12, 13, 24]);
    assert_eq!(all[0], plain, "as it was");
    assert_eq!(store.save_tasks(vec![TaskChange::Delete(21, key("mail", "a"))]).await.unwrap(), []);
    assert_eq!(store.load_tasks(vec![key("mail", "a")]).await.unwrap(), []);
    assert_eq!(store.save_tasks(Vec::new()).await.unwrap(), []);
}

/// A save of as many tasks as a large batch has.
pub async fn many_tasks_are_saved_at_once<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let many = || (0..3_000).map(|number| task("mail", &format!("d{number:04}"), number + 1));
    insert(&store, many().collect()).await;
    let update = |before: Task| {
        TaskChange::Update(before.version, Task { version: before.version + 10_000, ..before })
    };
    assert_eq!(store.save_tasks(many().map(update).collect()).await.unwrap(), []);
    let refused = store.save_tasks(many().map(update).collect()).await.unwrap();
    assert_eq!(refused.len(), 3_000);
    let loaded = store.load_tasks(many().map(|task| task.key).collect()).await.unwrap();
    assert!(loaded.len() == 3_000 && loaded.iter().all(|task| task.version > 10_000));
}

fn registered(name: &str, version: u64) -> Registered {
    Registered {
        name: name.to_owned(),
        version,
        on: Some(on()),
        definition: r#"{"status":"confirmed"}"#.to_owned(),
        code: 3,
        paused: false,
        paused_because: None,
        throttled: None,
        comparing: Some(Comparing::Documents(id("m"))),
    }
}

/// A task can be claimed if it is due, open, not too new, and of a running reaction.
pub async fn due_tasks_are_found<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let now = store.time().await.unwrap();
    let before = |seconds: i64| Some(now - jiff::SignedDuration::from_secs(seconds));
    let far = crate::react::later(now, Duration::from_hours(1));
    let tasks = vec![
        Task { due: before(10), ..task("mail", "later", 1) },
        Task { due: before(20), ..task("mail", "first", 2) },
        Task { due: before(15), state: State::Running, ..task("mail", "lost", 3) },
        Task { due: before(14), state: State::Changed, ..task("mail", "lost too", 4) },
        Task { due: before(30), needs: 9, ..task("mail", "new", 5) },
        Task { due: Some(far), ..task("mail", "not yet", 6) },
        Task { due: None, state: State::Done, ..task("mail", "done", 7) },
        Task { due: None, state: State::Failed, ..task("mail", "failed", 8) },
        Task { due: Some(far), state: State::Running, ..task("sync", "running", 9) },
        Task { due: before(5), ..task("other", "x", 10) },
    ];
    insert(&store, tasks).await;
    let ask = async |wanted: &[(&str, usize)]| {
        let wanted = wanted.iter().map(|(reaction, most)| WantedTasks {
            reaction: (*reaction).to_owned(),
            version: 3,
            most: *most,
            suspicion: Suspicion::None,
        });
        let due = store.due_tasks(wanted.collect()).await.unwrap();
        let names: Vec<_> = due.tasks.iter().map(|task| task.key.document.to_string()).collect();
        assert!(due.now >= now);
        (names, due.next, due.codes)
    };
    let (names, next, codes) = ask(&[("mail", 10), ("sync", 10)]).await;
    assert_eq!(names, ["first", "lost", "lost too", "later"]);
    assert_eq!(next, Some(far), "of those that have none now");
    assert!(codes.is_empty(), "nothing is registered: {codes:?}");
    let (names, next, _) = ask(&[("mail", 2), ("other", 2)]).await;
    assert_eq!((names, next), (["first", "lost", "x"].map(str::to_owned).to_vec(), None));
    assert_eq!(ask(&[("nothing", 5)]).await.1, None);

    assert!(store.register(None, Registered { paused: true, ..registered("mail", 1) }).await.unwrap());
    assert_eq!(ask(&[("mail", 5)]).await.0, [""; 0], "it is paused");
    let until = crate::react::later(now, Duration::from_secs(100));
    let throttled = Registered { throttled: Some(until), ..registered("mail", 2) };
    assert!(store.register(Some(1), throttled).await.unwrap());
    let (names, next, _) = ask(&[("mail", 5), ("other", 5)]).await;
    assert_eq!((names, next), (vec!["x".to_owned()], Some(until)), "it is throttled, others are not");
    let over = Registered { throttled: before(1), ..registered("mail", 3) };
    assert!(store.register(Some(2), over).await.unwrap());
    let (names, _, codes) = ask(&[("mail", 1), ("sync", 1)]).await;
    assert_eq!(names, ["first"]);
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [("mail".to_owned(), 3)]);
}

/// Tasks are found for another check when its time has come.
pub async fn tasks_to_check_are_found<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let now = store.time().await.unwrap();
    let before = |seconds: i64| Some(now - jiff::SignedDuration::from_secs(seconds));
    let far = crate::react::later(now, Duration::from_hours(1));
    let tasks = vec![
        Task { check_at: before(1), ..task("mail", "b", 1) },
        Task { check_at: before(2), state: State::Stale, due: None, ..task("mail", "a", 2) },
        Task { check_at: Some(far), ..task("mail", "c", 3) },
        Task { check_at: Some(far), ..task("sync", "c", 4) },
        Task { check_at: before(3), ..task("other", "x", 5) },
        task("mail", "d", 6),
    ];
    insert(&store, tasks).await;
    let ask = async |reactions: &[&str], most| {
        let due =
            store.tasks_to_check(reactions.iter().map(ToString::to_string).collect(), most).await.unwrap();
        (due.tasks.iter().map(|task| task.key.document.to_string()).collect::<Vec<_>>(), due.next)
    };
    assert_eq!(ask(&["mail", "sync"], 10).await.0, ["a", "b"]);
    assert_eq!(ask(&["mail"], 1).await.0, ["a"]);
    assert_eq!(ask(&["sync"], 10).await, (Vec::new(), Some(far)));
    assert_eq!(ask(&["nothing"], 10).await, (Vec::new(), None));
}

/// Tasks are listed by reaction, document, state and error, page by page, and counted.
pub async fn tasks_are_listed_and_counted<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let now = store.time().await.unwrap();
    let due = Some(now - jiff::SignedDuration::from_secs(60));
    let tasks = vec![
        Task { due, ..task("mail", "a", 1) },
        Task { state: State::Failed, due: None, ..task("mail", "b", 2) },
        Task {
            state: State::Failed,
            due: None,
            error: Some("100% (.*) wrong".to_owned()),
            ..task("mail", "c", 3)
        },
        Task { state: State::Done, due: None, error: None, changed_at: at(100), ..task("mail", "d", 4) },
        Task { due: None, state: State::Stale, ..task("sync", "a", 5) },
    ];
    insert(&store, tasks).await;
    for name in ["mail", "sync"] {
        assert!(store.register(None, registered(name, 1)).await.unwrap());
    }
    let list = async |query: Query| {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = store.list_tasks(query.clone(), after, 2).await.unwrap();
            let Some(last) = page.last() else { return all };
            after = Some(last.key.clone());
            all.extend(page.iter().map(|task| format!("{} {}", task.key.reaction, task.key.document)));
        }
    };
    assert_eq!(list(Query::default()).await, ["mail a", "mail b", "mail c", "mail d", "sync a"]);
    let mail = || Query { reaction: Some("mail".to_owned()), ..Query::default() };
    let failed = Query { states: vec![State::Failed, State::Done], ..mail() };
    assert_eq!(list(failed).await, ["mail b", "mail c", "mail d"]);
    let states = |states: &[State]| Query { states: states.to_vec(), ..Query::default() };
    assert_eq!(list(states(&[State::Pending, State::Changed])).await, ["mail a"]);
    assert_eq!(list(states(&[State::Pending, State::Stale])).await, ["mail a", "sync a"]);
    assert_eq!(list(states(&[State::Stale, State::Done])).await, ["mail d", "sync a"]);
    assert_eq!(list(Query { document: Some(id("a")), ..Query::default() }).await, ["mail a", "sync a"]);
    assert_eq!(list(Query { document: Some(id("a")), ..mail() }).await, ["mail a"]);
    assert_eq!(list(Query { document: Some(id("a")), ..states(&[State::Stale]) }).await, ["sync a"]);
    let error = |text: &str| Query { error: Some(text.to_owned()), ..mail() };
    assert_eq!(list(error("server SAID")).await, ["mail a", "mail b"]);
    assert_eq!(list(error("(.*)")).await, ["mail c"], "it is text, no pattern");
    assert_eq!(list(Query { changed_before: Some(at(100)), ..mail() }).await, ["mail a", "mail b", "mail c"]);
    let depths = store.task_depths().await.unwrap();
    assert_eq!(depths["mail"].states, [(State::Pending, 1), (State::Failed, 2), (State::Done, 1)].into());
    assert_eq!((depths["mail"].oldest_due, depths["sync"].oldest_due), (due, None));
    assert_eq!(depths.len(), 2);
}

/// Registrations of reactions are written under guard.
pub async fn reactions_are_registered_under_guard<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    assert_eq!(store.registered().await.unwrap(), []);
    assert!(!store.register(Some(1), registered("mail", 2)).await.unwrap(), "it is not there");
    assert!(store.register(None, registered("mail", 1)).await.unwrap());
    assert!(!store.register(None, registered("mail", 2)).await.unwrap(), "it is there");
    let because = Some("nobody is there".to_owned());
    let changed = Registered {
        paused: true,
        paused_because: because,
        throttled: Some(at(5)),
        comparing: None,
        ..registered("mail", 2)
    };
    assert!(store.register(Some(1), changed.clone()).await.unwrap());
    assert!(!store.register(Some(1), registered("mail", 3)).await.unwrap(), "it has changed");
    assert!(store.register(None, registered("audit", 1)).await.unwrap());
    assert_eq!(store.registered().await.unwrap(), [registered("audit", 1), changed]);
}

/// Suspects are found only by their level. A lost claim is found at any level.
pub async fn suspects_are_found_apart<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let now = store.time().await.unwrap();
    let before = |seconds: i64| Some(now - jiff::SignedDuration::from_secs(seconds));
    let at = |seconds| Timestamp::from_microsecond(before(seconds).unwrap().as_microsecond()).unwrap();
    let suspect = |name: &str, suspicion, seconds, version| Task {
        due: Some(at(seconds)),
        suspicion,
        excused: 2,
        ..task("mail", name, version)
    };
    let lost = Task { state: State::Running, ..suspect("lost", Suspicion::Alone, 5, 6) };
    let tasks = vec![
        suspect("healthy", Suspicion::None, 10, 1),
        suspect("many-2", Suspicion::Many, 20, 2),
        suspect("many-1", Suspicion::Many, 30, 3),
        suspect("few", Suspicion::Few, 40, 4),
        suspect("alone", Suspicion::Alone, 50, 5),
        lost.clone(),
    ];
    insert(&store, tasks).await;
    assert_eq!(store.load_tasks(vec![key("mail", "lost")]).await.unwrap(), [lost], "as it was");
    let ask = async |suspicion, most| {
        let wanted = WantedTasks { reaction: "mail".to_owned(), version: 3, most, suspicion };
        let due = store.due_tasks(vec![wanted]).await.unwrap();
        let names: Vec<_> = due.tasks.iter().map(|task| task.key.document.to_string()).collect();
        (names, due.suspects)
    };
    let (names, suspects) = ask(Suspicion::None, 10).await;
    assert_eq!(names, ["healthy", "lost"]);
    let first = [(Suspicion::Many, at(30)), (Suspicion::Few, at(40)), (Suspicion::Alone, at(50))];
    assert_eq!(suspects, first.into());
    assert_eq!(ask(Suspicion::Many, 10).await.0, ["many-1", "many-2"]);
    assert_eq!(ask(Suspicion::Many, 1).await.0, ["many-1"]);
    assert_eq!(ask(Suspicion::Few, 10).await.0, ["few"]);
    assert_eq!(ask(Suspicion::Alone, 10).await.0, ["alone"]);

    let freed = suspect("few", Suspicion::None, 40, 14);
    assert_eq!(store.save_tasks(vec![TaskChange::Update(4, freed)]).await.unwrap(), []);
    let (names, suspects) = ask(Suspicion::None, 10).await;
    assert_eq!(names, ["few", "healthy", "lost"]);
    assert_eq!(suspects, [first[0], first[2]].into());

    assert!(store.register(None, Registered { paused: true, ..registered("mail", 1) }).await.unwrap());
    assert_eq!(ask(Suspicion::None, 10).await, (Vec::new(), BTreeMap::new()), "it is paused");
    let until = crate::react::later(now, Duration::from_secs(100));
    let throttled = Registered { throttled: Some(until), ..registered("mail", 2) };
    assert!(store.register(Some(1), throttled).await.unwrap());
    let (names, suspects) = ask(Suspicion::None, 10).await;
    assert_eq!(names, [""; 0], "it is throttled");
    assert!(suspects.values().all(|at| *at >= until), "{suspects:?}");
}

/// A worker counts as alive for as long as its heartbeat says.
pub async fn workers_say_that_they_are_alive<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let living = async || store.living().await.unwrap();
    assert_eq!(living().await, BTreeSet::new());
    store.beat("one", Duration::from_hours(1)).await.unwrap();
    store.beat("two", Duration::from_hours(1)).await.unwrap();
    assert_eq!(living().await, ["one", "two"].map(str::to_owned).into());
    store.beat("one", Duration::ZERO).await.unwrap();
    assert_eq!(living().await, ["two".to_owned()].into());
    store.beat("one", Duration::from_hours(1)).await.unwrap();
    store.beat("two", Duration::from_millis(50)).await.unwrap();
    while living().await.contains("two") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(living().await, ["one".to_owned()].into());
}

/// A lease has one owner. Its number identifies the owner, and guards the position of a feed.
pub async fn leases_are_numbered_and_guard_places<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let hour = Duration::from_hours(1);
    let take = async |name: &str, owner: &str, length| store.take_lease(name, owner, length).await.unwrap();
    let first = take("carts", "a", hour).await.unwrap();
    assert_eq!(take("carts", "b", hour).await, None);
    assert_eq!(take("carts", "a", hour).await, Some(first), "kept");
    assert!(take("other", "b", hour).await.is_some());
    assert_eq!(store.feed_place("carts").await.unwrap(), None);
    assert!(store.put_feed_place("carts", first, Some("here".to_owned())).await.unwrap());
    store.give_lease("carts", "b").await.unwrap();
    assert_eq!(take("carts", "b", hour).await, None, "nobody gives away what is another's");
    store.give_lease("carts", "a").await.unwrap();
    let second = take("carts", "b", Duration::from_millis(1)).await.unwrap();
    assert!(second > first);
    assert!(
        !store.put_feed_place("carts", first, Some("there".to_owned())).await.unwrap(),
        "it is another's"
    );
    assert_eq!(store.feed_place("carts").await.unwrap().as_deref(), Some("here"));
    let third = soon(async {
        loop {
            if let Some(number) = take("carts", "a", hour).await {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(third > second, "it had ended");
    assert!(store.put_feed_place("carts", third, None).await.unwrap());
    assert_eq!(store.feed_place("carts").await.unwrap(), None);
    // Only one of many gets it.
    let all = (0..8).map(|owner| {
        let store = store.clone();
        async move { store.take_lease("new", &format!("o{owner}"), hour).await.unwrap() }
    });
    let mut taken = 0;
    let mut tasks: tokio::task::JoinSet<_> = all.collect();
    while let Some(one) = tasks.join_next().await {
        taken += usize::from(one.unwrap().is_some());
    }
    assert_eq!(taken, 1);
}

/// A worker that waits for tasks is woken by any process, even if the wake-up came before the wait.
pub async fn who_waits_is_stirred<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let begin = store.woken(u64::MAX, Duration::ZERO).await.unwrap();
    assert_eq!(store.woken(begin, Duration::from_millis(20)).await.unwrap(), begin, "nothing happened");
    let other = store.clone();
    let (heard, ()) = tokio::join!(soon(store.woken(begin, A_WHILE)), async {
        other.wake().await.unwrap();
    });
    let heard = heard.unwrap();
    assert_ne!(heard, begin);
    other.wake().await.unwrap();
    assert_ne!(soon(store.woken(heard, A_WHILE)).await.unwrap(), heard);
}

/// From documents to handlers, with a reactor: matching documents are handled, and handled again
/// when they change. Two processes share the work, and changes without a running process are
/// handled later.
pub async fn documents_are_reacted_to<S: Store + ReactionStore>(store: S) {
    let handled: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let reaction = || {
        let handled = Arc::clone(&handled);
        let filter = r#"{"n":{"$gt":0}}"#.parse().unwrap();
        let draft =
            Reaction::on(Numbers, "count").filter(filter).retry(Retry::fixed(Duration::from_millis(10)));
        draft.run(move |ctx| {
            let handled = Arc::clone(&handled);
            async move {
                let document: BTreeMap<String, u64> = ctx.document().await?;
                if ctx.attempt() == 1 && document["n"] % 7 == 3 {
                    return Err("not at the first attempt".into());
                }
                handled.lock().unwrap().push((ctx.id().to_string(), document["n"]));
                Ok(())
            }
        })
    };
    store.prepare(&carts()).await.unwrap();
    let body = |number: u64| format!(r#"{{"n":{number}}}"#);
    for number in 0..20 {
        write(&store, &[(&format!("d{number:02}"), Some(&body(number)))]).await;
    }
    let start = async || Reactor::on(store.clone()).reaction(reaction()).start().await.unwrap();
    let (first, second) = (start().await, start().await);
    soon(first.idle_within(Duration::from_secs(5))).await.unwrap();
    let sorted = || {
        let mut all = handled.lock().unwrap().clone();
        all.sort();
        all
    };
    let expected: Vec<_> = (1..20).map(|number| (format!("d{number:02}"), number)).collect();
    assert_eq!(sorted(), expected, "each once, those that were there before");
    write(
        &store,
        &[("d05", Some(&body(100))), ("d06", None), ("d00", Some(&body(1))), ("d07", Some(&body(0)))],
    )
    .await;
    soon(second.idle_within(Duration::from_secs(5))).await.unwrap();
    assert_eq!(sorted().len(), 21);
    assert!(sorted().contains(&("d05".to_owned(), 100)) && sorted().contains(&("d00".to_owned(), 1)));
    first.stop(Duration::from_secs(5)).await;
    second.stop(Duration::from_secs(5)).await;
    write(&store, &[("d99", Some(&body(99)))]).await;
    let third = start().await;
    soon(third.idle_within(Duration::from_secs(5))).await.unwrap();
    assert!(sorted().len() == 22 && sorted().contains(&("d99".to_owned(), 99)));
    third.assert_no_failures().await.unwrap();
    let depths = third.depths().await.unwrap();
    let done = depths["count"].states.get(&State::Done).copied();
    assert_eq!(done, Some(21), "{depths:?}");
    third.stop(Duration::from_secs(5)).await;
}

struct Numbers;

impl Projection for Numbers {
    type Event = ();
    type Document = BTreeMap<String, u64>;

    fn name(&self) -> &'static str {
        "carts"
    }

    fn fold(
        &self,
        document: Option<Self::Document>,
        _: &crate::event::Event<()>,
    ) -> Result<Option<Self::Document>, crate::fold::Error> {
        Ok(document)
    }
}
