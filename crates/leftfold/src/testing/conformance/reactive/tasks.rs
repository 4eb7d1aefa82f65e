//! Tasks: saved under guard, found, listed and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::fixtures::{at, id, insert, key, prepared, registered, task};
use crate::react::{Query, ReactionStore, Registered, State, Suspicion, Task, TaskChange, WantedTasks};
use crate::store::Store;

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
    assert_eq!((names, next), (vec!["x".to_owned()], Some(until)), "only this reaction is throttled");
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
