//! Tasks: the cost of finding and saving them, unknown outcomes, users' transactions, and the
//! stored form.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::BTreeSet;
use std::error::Error as _;
use std::time::Duration;

use bson::{Bson, Document, doc};
use common::{REPLICA_SET, failing, heal, soon};
use jiff::{SignedDuration, Timestamp};
use leftfold::documents::Claim;
use leftfold::react::{
    DocumentSource, ExternalCollection, Query, ReactionStore as _, Registered, State, Suspicion, Task,
    TaskChange, TaskKey, WantedTasks,
};
use leftfold::{DocumentId, Documents as _, Json, Kind};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;

const LEASE: Duration = Duration::from_mins(1);

fn at(second: i64) -> Timestamp {
    Timestamp::from_microsecond(1_767_225_600_000_007 + second * 1_000_000).unwrap()
}

fn key(document: &str) -> TaskKey {
    TaskKey { reaction: "mail".to_owned(), document: DocumentId::new(document).unwrap() }
}

fn task(document: &str, version: u64) -> Task {
    Task {
        key: key(document),
        version,
        state: State::Pending,
        inside: true,
        epoch: 3,
        generation: 4,
        watched: Json::parse(r#"{"status":"confirmed"}"#).unwrap(),
        due: Some(at(0)),
        since: at(1),
        check_at: None,
        needs: 1,
        attempts: 0,
        first_failed: None,
        error: None,
        owner: None,
        claimed_at: None,
        done_at: None,
        changed_at: at(2),
        history: Vec::new(),
        cursor: None,
        suspicion: Suspicion::None,
        excused: 0,
    }
}

/// A server whose clock was set back by six hours: due times and leases date from before that.
#[tokio::test]
async fn a_clock_that_was_set_back_delays_nothing() {
    let url = REPLICA_SET.url().await;
    let store = Mongo::connect(&url).await.unwrap();
    store.prepare_reactions(&[]).await.unwrap();
    let (hours, minute) = (SignedDuration::from_hours(6), SignedDuration::from_mins(1));
    let now = store.time().await.unwrap();
    assert_eq!(store.take_lease("feed", "before", LEASE).await.unwrap(), Some(1));
    let collection = leftfold::Collection::new("notes").unwrap();
    store.prepare(&collection).await.unwrap();
    let claim = async |owner| store.claim(&collection, owner, LEASE).await.unwrap();
    assert_eq!(claim("before").await, Claim::Ours);
    assert!(matches!(claim("after").await, Claim::Theirs { .. }));
    // Set the stored times as if the clock had been six hours ahead.
    let later = |time: Timestamp| bson::DateTime::from_millis(time.as_millisecond());
    for (name, until) in [("leftfold.feeds", "feed"), ("leftfold.leases", "notes")] {
        let ahead = doc! { "until": later(now + hours + minute), "time": (now + hours).as_microsecond() };
        let all = store.database().collection::<Document>(name);
        let updated = all.update_one(doc! { "_id": until }, doc! { "$set": ahead }).await.unwrap();
        assert_eq!(updated.matched_count, 1, "{name}");
    }
    insert(&store, [Task { due: Some(now + hours), ..task("a", 1) }].into_iter()).await;
    assert_eq!(claim("after").await, Claim::Ours, "it does not wait for six hours");
    assert_eq!(store.take_lease("feed", "after", LEASE).await.unwrap(), Some(2));
    let wanted =
        WantedTasks { reaction: "mail".to_owned(), version: 1, most: 10, suspicion: Suspicion::None };
    assert_eq!(store.due_tasks(vec![wanted.clone()]).await.unwrap().tasks.len(), 1, "it is due");
    let restarted = Mongo::connect(&url).await.unwrap();
    assert!(restarted.time().await.unwrap() >= now + hours);
    assert_eq!(restarted.due_tasks(vec![wanted]).await.unwrap().tasks.len(), 1);
}

async fn prepared() -> Mongo {
    let store = REPLICA_SET.store(Mongo::options()).await;
    store.prepare_reactions(&[]).await.unwrap();
    store
}

async fn insert(store: &Mongo, tasks: impl Iterator<Item = Task>) {
    assert_eq!(store.save_tasks(tasks.map(TaskChange::Insert).collect()).await.unwrap(), []);
}

async fn versions(store: &Mongo) -> Vec<u64> {
    let all = store.list_tasks(Query::default(), None, 100).await.unwrap();
    all.iter().map(|task| task.version).collect()
}

/// Collects all values of a field at any depth.
fn values<'a>(document: &'a Document, field: &str, found: &mut Vec<&'a Bson>) {
    for (name, value) in document {
        if name == field {
            found.push(value);
        }
        match value {
            Bson::Document(inner) => values(inner, field, found),
            Bson::Array(list) => {
                list.iter().filter_map(Bson::as_document).for_each(|inner| values(inner, field, found));
            }
            _ => {}
        }
    }
}

/// The cost of a call as the server reports it, and the execution of its commands.
struct Cost {
    keys: i64,
    documents: i64,
    commands: usize,
    stages: BTreeSet<String>,
    indexes: BTreeSet<String>,
}

async fn cost<T>(store: &Mongo, collection: &str, call: impl Future<Output = T>) -> (T, Cost) {
    let db = store.database();
    db.run_command(doc! { "profile": 2 }).await.unwrap();
    let answer = call.await;
    db.run_command(doc! { "profile": 0 }).await.unwrap();
    let ns = format!("{}.{collection}", db.name());
    let profile = db.collection::<Document>("system.profile");
    let mut found = profile.find(doc! { "ns": ns, "op": { "$in": ["query", "command"] } }).await.unwrap();
    let mut cost =
        Cost { keys: 0, documents: 0, commands: 0, stages: BTreeSet::new(), indexes: BTreeSet::new() };
    while found.advance().await.unwrap() {
        let run = found.deserialize_current().unwrap();
        cost.commands += 1;
        let mut command = run.get_document("command").unwrap().clone();
        for name in
            ["$db", "lsid", "$clusterTime", "txnNumber", "$readPreference", "readConcern", "writeConcern"]
        {
            command.remove(name);
        }
        let explained = doc! { "explain": command, "verbosity": "executionStats" };
        let explained = db.run_command(explained).await.unwrap();
        let sum = |field: &str| -> i64 {
            let mut numbers = Vec::new();
            values(&explained, field, &mut numbers);
            let number = |value: &&Bson| value.as_i64().or(value.as_i32().map(i64::from));
            numbers.iter().filter_map(number).sum()
        };
        cost.keys += sum("totalKeysExamined");
        cost.documents += sum("totalDocsExamined");
        let mut names = Vec::new();
        values(&explained, "stage", &mut names);
        cost.stages.extend(names.iter().filter_map(|name| name.as_str()).map(str::to_owned));
        let mut names = Vec::new();
        values(&explained, "indexName", &mut names);
        cost.indexes.extend(names.iter().filter_map(|name| name.as_str()).map(str::to_owned));
    }
    db.collection::<Document>("system.profile").drop().await.unwrap();
    assert!(cost.commands > 0, "nothing was seen");
    (answer, cost)
}

async fn register(store: &Mongo, name: &str) {
    let registered = Registered {
        name: name.to_owned(),
        version: 1,
        on: None,
        definition: String::new(),
        code: 1,
        paused: false,
        paused_because: None,
        throttled: None,
        comparing: None,
    };
    assert!(store.register(None, registered).await.unwrap());
}

/// 9,000 tasks are done, 900 are due later, and 100 are due now.
#[tokio::test]
async fn due_tasks_are_found_without_a_look_at_others() {
    let store = prepared().await;
    let now = store.time().await.unwrap();
    let later = |seconds: i64| Some(now + SignedDuration::from_secs(seconds));
    let tasks = (0..10_000_u32).map(|number| {
        let seconds = i64::from(number);
        let task = task(&format!("d{number:05}"), u64::from(number) + 1);
        match number % 100 {
            0 => Task { due: later(-1 - seconds), check_at: later(-1 - seconds), ..task },
            1..10 => Task { due: later(1_000 + seconds), check_at: later(1_000 + seconds), ..task },
            _ => Task { due: None, state: State::Done, ..task },
        }
    });
    insert(&store, tasks).await;

    let wanted = |most| {
        let wanted = |reaction: &str| WantedTasks {
            reaction: reaction.to_owned(),
            version: 1,
            most,
            suspicion: Suspicion::None,
        };
        vec![wanted("mail"), wanted("other")]
    };
    let (due, cost_of_all) = cost(&store, "leftfold.tasks", store.due_tasks(wanted(500))).await;
    let due = due.unwrap().tasks;
    assert_eq!(due.len(), 100);
    assert!(due.is_sorted_by_key(|task| task.due));
    assert!(cost_of_all.keys < 150, "{} keys", cost_of_all.keys);
    assert!(cost_of_all.documents < 150, "{} documents", cost_of_all.documents);
    assert!(!cost_of_all.stages.contains("SORT") && !cost_of_all.stages.contains("COLLSCAN"));
    assert_eq!(cost_of_all.indexes, BTreeSet::from(["leftfold_due".to_owned()]));
    assert_eq!(cost_of_all.commands, 1);
    let (due, cost_of_few) = cost(&store, "leftfold.tasks", store.due_tasks(wanted(5))).await;
    assert_eq!(due.unwrap().tasks.len(), 5);
    assert!(cost_of_few.keys < 15, "{} keys", cost_of_few.keys);

    let reactions = || vec!["mail".to_owned(), "other".to_owned()];
    let (due, cost_of_checks) = cost(&store, "leftfold.tasks", store.tasks_to_check(reactions(), 500)).await;
    assert_eq!(due.unwrap().tasks.len(), 100);
    assert!(cost_of_checks.keys < 150, "{} keys", cost_of_checks.keys);
    assert!(!cost_of_checks.stages.contains("SORT"), "{:?}", cost_of_checks.stages);
    assert_eq!(cost_of_checks.indexes, BTreeSet::from(["leftfold_check".to_owned()]));

    // Counting tasks reads none of them.
    let (depths, cost_of_depths) = cost(&store, "leftfold.tasks", store.task_depths()).await;
    let depths = depths.unwrap();
    assert_eq!(depths["mail"].states, [(State::Pending, 1_000), (State::Done, 9_000)].into());
    assert_eq!(depths["mail"].oldest_due, later(-9_901));
    assert_eq!(cost_of_depths.documents, 0);

    // A page of ended tasks, or of one document's tasks, starts at its place in an index. A page of
    // open tasks scans the open ones.
    let query = Query { reaction: Some("mail".to_owned()), states: vec![State::Pending], ..Query::default() };
    let after = Some(key("d05000"));
    let list = store.list_tasks(query.clone(), after.clone(), 10);
    let (page, cost_of_page) = cost(&store, "leftfold.tasks", list).await;
    assert_eq!(page.unwrap()[0].key, key("d05001"));
    assert!(cost_of_page.keys < 1_100, "{} keys", cost_of_page.keys);
    let query = Query { states: vec![State::Failed, State::Done], ..query };
    let (page, cost_of_page) = cost(&store, "leftfold.tasks", store.list_tasks(query, after, 10)).await;
    assert_eq!(page.unwrap()[0].key, key("d05010"));
    assert!(cost_of_page.keys < 20 && !cost_of_page.stages.contains("SORT"), "{} keys", cost_of_page.keys);
    register(&store, "mail").await;
    let query = Query { document: Some(key("d00007").document), ..Query::default() };
    let (page, cost_of_page) = cost(&store, "leftfold.tasks", store.list_tasks(query, None, 10)).await;
    assert_eq!(page.unwrap().len(), 1);
    assert!(cost_of_page.keys < 5 && !cost_of_page.stages.contains("SORT"), "{} keys", cost_of_page.keys);
}

/// Pages of each kind of list continue after the last entry of the previous one.
#[tokio::test]
async fn every_list_is_paged_by_reaction_and_document() {
    let store = prepared().await;
    let names = ["a", "b", "c"];
    let tasks = names.iter().flat_map(|reaction| {
        (0..6_u64).map(move |number| {
            let mut task = task(&format!("d{number}"), number + 1);
            task.key.reaction = (*reaction).to_owned();
            task.state = if number % 2 == 0 { State::Failed } else { State::Done };
            task
        })
    });
    let tasks: Vec<_> = tasks.collect();
    insert(&store, tasks.iter().cloned()).await;
    for name in names {
        register(&store, name).await;
    }
    for reaction in [None, Some("b".to_owned())] {
        for document in [None, Some(key("d2").document)] {
            for states in [vec![], vec![State::Failed], vec![State::Failed, State::Done]] {
                let query = Query {
                    reaction: reaction.clone(),
                    document: document.clone(),
                    states,
                    ..Query::default()
                };
                let all: Vec<_> = tasks.iter().filter(|task| query.is(task)).cloned().collect();
                for after in tasks.iter().map(|task| task.key.clone()) {
                    let listed = store.list_tasks(query.clone(), Some(after.clone()), 2).await.unwrap();
                    let expected = all.iter().filter(|task| task.key > after).take(2).cloned();
                    assert_eq!(listed, expected.collect::<Vec<_>>(), "{query:?} {after:?}");
                }
            }
        }
    }
}

/// Starts a server for one test, because its failpoints would disturb other tests, and opens a
/// store on it.
async fn fragile() -> (Server, Mongo) {
    let server = Server::replica_set(1).await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    store.prepare_reactions(&[]).await.unwrap();
    (server, store)
}

/// Returns the number of commands of these kinds that the server has run.
async fn commands(server: &Server) -> i64 {
    let status = server.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    let run = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    let names = ["find", "aggregate", "getMore", "insert", "update", "delete"];
    names.iter().map(|name| run.get_document(name).unwrap().get_i64("total").unwrap()).sum()
}

#[tokio::test]
async fn many_changes_take_as_few_commands_as_one() {
    let (server, store) = fragile().await;
    insert(&store, (0..2_000).map(|number| task(&format!("d{number}"), number + 1))).await;
    let name = |number: u64| format!("d{number}");
    // Half of each kind is refused.
    let changes = (0..2_000).map(|number| match number % 4 {
        0 => TaskChange::Insert(task(
            &format!("{}{number}", if number % 8 == 0 { "d" } else { "new" }),
            9_000 + number,
        )),
        1 => TaskChange::Update(number + 1 + u64::from(number % 8 == 1), task(&name(number), 9_000 + number)),
        2 => TaskChange::Delete(number + 1 + u64::from(number % 8 == 2), key(&name(number))),
        _ => TaskChange::Update(number + 1, task(&name(number), 9_000 + number)),
    });
    let before = commands(&server).await;
    let refused = store.save_tasks(changes.collect()).await.unwrap();
    let run = commands(&server).await - before;
    let expected: BTreeSet<_> =
        (0..2_000_u64).filter(|n| matches!(n % 8, 0..3)).map(|n| key(&name(n))).collect();
    assert_eq!(refused.into_iter().collect::<BTreeSet<_>>(), expected);
    // The server itself runs a few commands now and then.
    assert!(run <= 4 + 3, "{run} commands");
}

/// A change without acknowledgement may have been written. Reading again shows it, and repeating it
/// is refused.
#[tokio::test]
async fn changes_whose_outcome_can_not_be_told_are_errors_and_harmless_to_repeat() {
    let (server, store) = fragile().await;
    let unheard = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    let cases = [
        ("insert", TaskChange::Insert(task("a", 1)), vec![1]),
        ("update", TaskChange::Update(1, task("a", 2)), vec![2]),
        ("delete", TaskChange::Delete(2, key("a")), vec![]),
    ];
    for (command, change, after) in cases {
        server.fail_point(failing(&[command], doc! { "times": 1_000 }, unheard.clone())).await.unwrap();
        let error = soon(store.save_tasks(vec![change.clone()])).await.unwrap_err();
        heal(&server).await;
        assert!(error.is_unknown(), "{command}: {error}");
        assert!(error.to_string().contains("could not save tasks in"), "{error}");
        soon(async { while versions(&store).await != after {} }).await;
        assert_eq!(store.save_tasks(vec![change]).await.unwrap(), [key("a")], "{command}");
        assert_eq!(versions(&store).await, after, "{command}");
    }
    // A server that did nothing looks the same as one that did.
    insert(&store, [task("b", 1)].into_iter()).await;
    let dead = doc! { "closeConnection": true };
    server.fail_point(failing(&["update"], doc! { "times": 1 }, dead)).await.unwrap();
    let error = soon(store.save_tasks(vec![TaskChange::Update(1, task("b", 2))])).await.unwrap_err();
    heal(&server).await;
    assert!(error.is_unknown(), "{error}");
    assert_eq!(versions(&store).await, [1]);
    assert_eq!(store.save_tasks(vec![TaskChange::Update(1, task("b", 2))]).await.unwrap(), []);
}

#[tokio::test]
async fn a_task_is_completed_in_a_transaction_of_the_user() {
    let store = prepared().await;
    let orders = store.database().collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 5, "n": 1 }).await.unwrap();
    insert(&store, [task("a", 1)].into_iter()).await;
    let on = DocumentSource::External(ExternalCollection::new("orders").unwrap());
    let five = DocumentId::new(r#"{"$numberInt":"5"}"#).unwrap();
    let mut session = store.database().client().start_session().await.unwrap();
    // First aborted, then committed.
    for is_kept in [false, true] {
        session.start_transaction().await.unwrap();
        let change = doc! { "$inc": { "n": 1 } };
        orders.update_one(doc! { "_id": 5 }, change).session(&mut session).await.unwrap();
        assert_eq!(store.task_in(&mut session, &key("a")).await.unwrap(), Some(task("a", 1)));
        assert_eq!(store.task_in(&mut session, &key("x")).await.unwrap(), None);
        let save = async |session: &mut _, change| store.save_task_in(session, change).await.unwrap();
        assert!(!save(&mut session, TaskChange::Update(9, task("a", 10))).await, "it has another version");
        assert!(!save(&mut session, TaskChange::Insert(task("a", 10))).await, "it is there");
        assert!(!save(&mut session, TaskChange::Delete(9, key("a"))).await);
        assert!(save(&mut session, TaskChange::Insert(task("b", 3))).await);
        assert!(save(&mut session, TaskChange::Insert(task("c", 4))).await);
        assert!(save(&mut session, TaskChange::Delete(4, key("c"))).await);
        assert!(save(&mut session, TaskChange::Update(1, task("a", 2))).await);
        assert_eq!(store.task_in(&mut session, &key("a")).await.unwrap(), Some(task("a", 2)));
        let found = store.document_in(&mut session, &on, &five).await.unwrap().unwrap();
        assert_eq!(found.body.unwrap().json().as_str(), r#"{"_id":5,"n":2}"#);
        let missing = DocumentId::new("missing").unwrap();
        assert_eq!(store.document_in(&mut session, &on, &missing).await.unwrap(), None);
        assert_eq!(versions(&store).await, [1], "nothing is true yet");
        if is_kept {
            session.commit_transaction().await.unwrap();
        } else {
            session.abort_transaction().await.unwrap();
            assert_eq!(versions(&store).await, [1]);
        }
    }
    let all = store.list_tasks(Query::default(), None, 9).await.unwrap();
    assert_eq!(all, [task("a", 2), task("b", 3)]);

    // Another writer is faster: the transaction must be run again, as the driver's labels say.
    session.start_transaction().await.unwrap();
    store.task_in(&mut session, &key("a")).await.unwrap();
    assert_eq!(store.save_tasks(vec![TaskChange::Update(2, task("a", 5))]).await.unwrap(), []);
    let error = store.save_task_in(&mut session, TaskChange::Update(2, task("a", 6))).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let source = error.source().unwrap().downcast_ref::<mongodb::error::Error>().unwrap();
    assert!(source.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR));
}

/// Later versions read the stored form: it must not change without a new format.
#[tokio::test]
async fn what_is_stored_stays_as_it_is() {
    let store = prepared().await;
    let claimed = Task {
        check_at: Some(at(3)),
        error: Some("no answer".to_owned()),
        first_failed: Some(at(4)),
        owner: Some("w1".to_owned()),
        claimed_at: Some(at(5)),
        ..task("a", 1)
    };
    insert(&store, [claimed].into_iter()).await;
    let stored = store.database().collection::<Document>("leftfold.tasks").find_one(doc! {}).await.unwrap();
    let rest = concat!(
        r#"{"inside":true,"epoch":3,"generation":4,"watched":{"status":"confirmed"},"due":"2026-01-01T00:00:00.000007Z","#,
        r#""since":"2026-01-01T00:00:01.000007Z","check_at":"2026-01-01T00:00:03.000007Z","attempts":0,"#,
        r#""first_failed":"2026-01-01T00:00:04.000007Z","owner":"w1","claimed_at":"2026-01-01T00:00:05.000007Z","#,
        r#""changed_at":"2026-01-01T00:00:02.000007Z"}"#
    );
    let expected = doc! {
        "_id": { "reaction": "mail", "document": "a" }, "version": 1_i64, "state": "pending", "needs": 1_i64,
        "open": true, "due": 1_767_225_600_000_007_i64, "check_at": 1_767_225_603_000_007_i64,
        "changed_at": 1_767_225_602_000_007_i64, "error": "no answer", "rest": rest,
    };
    assert_eq!(stored.unwrap(), expected);

    let metas = store.database().collection::<Document>("leftfold.meta");
    metas.update_one(doc! { "_id": "reactions" }, doc! { "$set": { "format": 2 } }).await.unwrap();
    let error = store.prepare_reactions(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Format);
    assert!(
        error.to_string().contains("have format 2, and this version of Leftfold reads format 1"),
        "{error}"
    );
}

#[tokio::test]
async fn indexes_are_made_anew_and_others_of_their_names_are_refused() {
    let store = prepared().await;
    let tasks = store.database().collection::<Document>("leftfold.tasks");
    let names = || async { tasks.list_index_names().await.unwrap().into_iter().collect::<BTreeSet<_>>() };
    let all = names().await;
    assert_eq!(all.len(), 5, "{all:?}");
    for name in all.iter().filter(|name| *name != "_id_") {
        tasks.drop_index(name).await.unwrap();
        store.prepare_reactions(&[]).await.unwrap();
        assert_eq!(names().await, all);
        tasks.drop_index(name).await.unwrap();
        let other =
            doc! { "createIndexes": "leftfold.tasks", "indexes": [{ "key": { "x": 1 }, "name": name }] };
        store.database().run_command(other).await.unwrap();
        let error = store.prepare_reactions(&[]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Format);
        assert!(error.to_string().contains("drop it, and Leftfold creates it again"), "{error}");
        tasks.drop_index(name).await.unwrap();
        store.prepare_reactions(&[]).await.unwrap();
    }
}
