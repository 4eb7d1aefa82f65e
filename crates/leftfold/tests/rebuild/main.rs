//! Rebuilds beside the live documents: with crashes, concurrent appends, and several processes.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Happened, Mended, Seen, noted};
use leftfold::documents::{
    CollectionWrites, Commit, CommitOutcome, DocumentWrite, Generations, Header, Record,
};
use leftfold::fold::{DocumentIds, Error, FoldOptions};
use leftfold::inspect::Sample;
use leftfold::{
    App, Collection, DocumentId, Documents as _, Event, Json, Lane, Leftfold, Memory, Projection, Route,
};

/// Lists the events it has seen; code of another version lists them differently.
#[derive(Clone)]
struct Notes {
    version: u32,
    by_stream: bool,
    mended: Mended,
}

impl Notes {
    fn new(version: u32) -> Self {
        Self { version, by_stream: true, mended: Mended::default() }
    }
}

impl Projection for Notes {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &'static str {
        "notes"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn route(&self) -> Route<Happened> {
        if self.by_stream {
            return Route::Stream;
        }
        Route::by(|event: &Event<Happened>| match &event.data {
            Happened::Noted { to } | Happened::Poison { to } => DocumentIds::many(to),
            _ => Ok(DocumentIds::none()),
        })
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, Error> {
        if matches!(event.data, Happened::Poison { .. }) && !self.mended.is() {
            return Err("poison".into());
        }
        let mut seen = seen.unwrap_or_default();
        seen.events.push(format!("{}: {}@{}", self.version, event.stream, event.revision));
        Ok(Some(seen))
    }
}

fn notes() -> Collection {
    Collection::new("notes").unwrap()
}

fn options() -> FoldOptions {
    FoldOptions { lease: Duration::from_secs(2), page_bytes: 300, batch_bytes: 1, ..FoldOptions::default() }
}

async fn start(store: &Memory, code: Notes) -> App<Memory> {
    Leftfold::on(store.clone()).options(options()).projection(code).start().await.unwrap()
}

async fn open(store: &Memory, code: Notes) -> App<Memory> {
    Leftfold::on(store.clone()).options(options()).projection(code).open().await.unwrap()
}

async fn append(app: &App<Memory>, count: usize) {
    for number in 0..count {
        let (stream, other) = (format!("s{}", number % 7), format!("s{}", number % 5));
        app.append(&stream, [noted(&[&stream, &other])]).await.unwrap();
    }
}

/// Creates a store with this many events that code of version 1 has folded.
async fn folded(partitions: u16, count: usize) -> Memory {
    let store = Memory::new(partitions);
    let app = start(&store, Notes::new(1)).await;
    append(&app, count).await;
    app.caught_up().await.unwrap();
    app.stop().await;
    store
}

async fn known(store: &Memory) -> Generations {
    store.generations(&notes()).await.unwrap()
}

/// Asserts that code of this version has folded all documents.
async fn assert_all_by(app: &App<Memory>, version: &str) {
    app.caught_up().await.unwrap();
    let records = app.store().scan(&notes(), None, 100).await.unwrap();
    assert_eq!(records.len(), 7);
    for record in records {
        let seen: Seen = record.body.unwrap().to().unwrap();
        let own: Vec<_> =
            (1..=seen.events.len()).map(|at| format!("{version}: {}@{at}", record.id)).collect();
        assert_eq!(seen.events, own);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_that_nobody_holds_any_more_is_taken_up_where_it_was() {
    for partitions in [1, 3] {
        let store = folded(partitions, 3_000).await;
        let app = open(&store, Notes::new(2)).await;
        let rebuild = app.rebuild("notes").await.unwrap();
        let building = notes().generation(rebuild.generation());
        // The process dies in the middle.
        let mut at = store.checkpoint(&building).await.unwrap().mark;
        while at.lanes().map(|(_, number)| number).sum::<u64>() < 50 {
            at = store.advanced(&building, &at).await.unwrap();
        }
        drop(rebuild);
        drop(app);
        let was = store.checkpoint(&building).await.unwrap();
        assert!(was.tally.events >= 50 && was.tally.events < 3_000, "{was:?}");
        let app = start(&store, Notes::new(2)).await;
        let rebuild = app.rebuild("notes").await.unwrap();
        assert_eq!(notes().generation(rebuild.generation()), building);
        rebuild.built().await.unwrap();
        let now = store.checkpoint(&building).await.unwrap();
        assert_eq!(now.tally.events, 3_000, "no event was read again");
        rebuild.switch().await.unwrap();
        assert_all_by(&app, "2").await;
        app.stop().await;
    }
}

/// The process that completes a switch may die after each step: workers of the projection complete
/// it.
#[tokio::test(start_paused = true)]
async fn a_switch_that_was_begun_is_completed_by_whoever_folds() {
    for is_frozen in [false, true] {
        begin_and_die(is_frozen).await;
    }
}

async fn begin_and_die(is_frozen: bool) {
    let store = folded(3, 60).await;
    let operator = open(&store, Notes::new(2)).await;
    let rebuild = operator.rebuild("notes").await.unwrap();
    let number = rebuild.generation();
    rebuild.built().await.unwrap();
    drop(rebuild);
    // The intent is written, and its process is dead.
    let before = known(&store).await;
    let next = before.switching_to(number).unwrap();
    let ticket = next.switching.clone().unwrap().ticket;
    assert!(store.put_generations(&notes(), before.revision, next).await.unwrap());
    // In one case the process dies before it freezes the checkpoint, in the other after.
    if !is_frozen {
        finish_what_was_begun(&store, &operator, number).await;
        return;
    }
    let live = store.checkpoint(&notes()).await.unwrap();
    let mut to = live.clone();
    to.mark.advance(&Lane::named("frozen"), ticket);
    let advance = leftfold::documents::Advance { projection: notes(), from: live.mark, to };
    let outcome =
        store.commit(Arc::new(Commit { advance: Some(advance), changes: Vec::new() })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied));
    finish_what_was_begun(&store, &operator, number).await;
}

async fn finish_what_was_begun(store: &Memory, operator: &App<Memory>, number: u32) {
    append(operator, 20).await;
    let worker = start(store, Notes::new(2)).await;
    while known(store).await.live.number != number {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_all_by(&worker, "2").await;
    assert_eq!(store.checkpoint(&notes()).await.unwrap().mark.get(&Lane::named("frozen")), 0);
    worker.stop().await;
}

/// No process with the code that began the switch is left, and no other code may fold its
/// generation.
#[tokio::test(start_paused = true)]
async fn a_switch_to_what_other_code_has_built_is_called_off_if_that_is_gone() {
    let store = folded(1, 60).await;
    let operator = open(&store, Notes::new(2)).await;
    let rebuild = operator.rebuild("notes").await.unwrap();
    let number = rebuild.generation();
    rebuild.built().await.unwrap();
    drop(rebuild);
    append(&operator, 20).await;
    let worker = start(&store, Notes::new(1)).await;
    worker.caught_up().await.unwrap();
    let before = known(&store).await;
    let next = before.switching_to(number).unwrap();
    assert!(store.put_generations(&notes(), before.revision, next).await.unwrap());
    while known(&store).await.switching.is_some() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    append(&operator, 20).await;
    assert_all_by(&worker, "1").await;
    worker.stop().await;
    let worker = start(&store, Notes::new(2)).await;
    let rebuild = worker.rebuild("notes").await.unwrap();
    assert_eq!(rebuild.generation(), number, "what was built is still there");
    rebuild.finish(0).await.unwrap();
    assert_all_by(&worker, "2").await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_frozen_for_nothing_thaws() {
    let store = folded(1, 20).await;
    let live = store.checkpoint(&notes()).await.unwrap();
    let mut to = live.clone();
    to.mark.advance(&Lane::named("frozen"), 77);
    let advance = leftfold::documents::Advance { projection: notes(), from: live.mark, to };
    let outcome =
        store.commit(Arc::new(Commit { advance: Some(advance), changes: Vec::new() })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied));
    let app = start(&store, Notes::new(1)).await;
    append(&app, 10).await;
    assert_all_by(&app, "1").await;
    app.stop().await;
}

/// Two processes fold, one of them switches, and events come in: the readers' state only grows.
#[tokio::test(start_paused = true)]
async fn what_readers_see_never_goes_back() {
    for by_stream in [true, false] {
        let code = |version| Notes { by_stream, ..Notes::new(version) };
        let store = Memory::new(2);
        let (one, two) = (start(&store, code(1)).await, start(&store, code(1)).await);
        let reader = {
            let store = store.clone();
            tokio::spawn(async move {
                let mut highest = std::collections::BTreeMap::new();
                loop {
                    for record in store.scan(&notes(), None, 100).await.unwrap() {
                        let lanes = record.header.mark.lanes().filter(|(lane, _)| lane.partition().is_some());
                        let mark: leftfold::Mark = lanes.map(|(lane, at)| (lane.clone(), at)).collect();
                        let before = highest.insert(record.id.clone(), mark.clone()).unwrap_or_default();
                        assert!(mark.covers(&before), "{} fell from {before} to {mark}", record.id);
                    }
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
            })
        };
        let writer = {
            let app = one.clone();
            tokio::spawn(async move {
                for _ in 0..200 {
                    append(&app, 1).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        };
        for round in 0..4 {
            let app = if round % 2 == 0 { &one } else { &two };
            let rebuild = app.rebuild("notes").await.unwrap();
            rebuild.built().await.unwrap();
            rebuild.switch().await.unwrap();
            if round % 2 == 1 {
                two.undo("notes").await.unwrap();
            }
        }
        writer.await.unwrap();
        one.caught_up().await.unwrap();
        reader.abort();
        assert!(reader.await.is_err_and(|ended| ended.is_cancelled()), "what was read fell");
        let mut all = Vec::new();
        let verified = one.verify("notes", Sample::All, |differing| all.push(differing)).await.unwrap();
        assert!(verified.differing == 0 && verified.checked >= 1, "{verified:?} {all:?}");
        one.stop().await;
        two.stop().await;
    }
}

/// A projection that folds like version 1, with its own fingerprint.
struct Fingerprinted(&'static str);

impl Projection for Fingerprinted {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &'static str {
        "notes"
    }

    fn fingerprint(&self) -> std::borrow::Cow<'_, str> {
        self.0.into()
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, Error> {
        Notes::new(1).fold(seen, event)
    }
}

#[tokio::test]
async fn code_is_told_apart_by_its_fingerprint() {
    let store = folded(1, 3).await;
    assert_eq!(known(&store).await.live.version.as_deref(), Some("1"), "by default it is the version");
    for (fingerprint, differs) in [("1", false), ("1-f00d", true)] {
        let app = Leftfold::on(store.clone()).projection(Arc::new(Fingerprinted(fingerprint)));
        let status = app.open().await.unwrap().status().await.unwrap().pop().unwrap();
        assert_eq!((status.version.as_str(), status.rebuild_needed), (fingerprint, differs));
    }
}

#[tokio::test(start_paused = true)]
async fn code_that_was_replaced_stands_by() {
    let store = folded(1, 30).await;
    let old = start(&store, Notes::new(1)).await;
    let new = start(&store, Notes::new(2)).await;
    new.rebuild("notes").await.unwrap().finish(0).await.unwrap();
    // The new code folds the next events, even if the old worker is faster.
    for _ in 0..20 {
        append(&new, 7).await;
        new.caught_up().await.unwrap();
    }
    assert_all_by(&new, "2").await;
    new.stop().await;
    append(&old, 1).await;
    while !old.status().await.unwrap()[0]
        .tally
        .last_error
        .as_ref()
        .is_some_and(|said| said.contains("stands by"))
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // An undo lets the old code continue.
    old.undo("notes").await.unwrap();
    assert_all_by(&old, "1").await;
    old.stop().await;
}

#[tokio::test(start_paused = true)]
async fn code_that_changed_is_rebuilt_if_that_is_wanted() {
    let store = folded(1, 30).await;
    let asked = start(&store, Notes::new(2)).await;
    assert!(asked.status().await.unwrap()[0].rebuild_needed);
    assert_eq!(known(&store).await.live.number, 0);
    asked.stop().await;
    for _ in 0..2 {
        let app = Leftfold::on(store.clone()).options(options()).rebuild_on_change(true);
        let app = app.projection(Notes::new(2)).start().await.unwrap();
        while known(&store).await.live.number == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_all_by(&app, "2").await;
        assert!(!app.status().await.unwrap()[0].rebuild_needed);
        app.stop().await;
    }
    assert_eq!(known(&store).await.made, 1, "once is enough");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_leaves_nothing() {
    let store = folded(1, 30).await;
    let app = start(&store, Notes::new(2)).await;
    let rebuild = app.rebuild("notes").await.unwrap();
    let building = notes().generation(rebuild.generation());
    rebuild.built().await.unwrap();
    rebuild.cancel().await.unwrap();
    assert!(store.scan(&building, None, 1).await.is_err(), "it should be gone");
    assert_all_by(&app, "1").await;
    // The holder of a rebuild learns that another process has cancelled it.
    let rebuild = app.rebuild("notes").await.unwrap();
    assert!(app.cancel_rebuild("notes").await.unwrap() && !app.cancel_rebuild("notes").await.unwrap());
    assert!(rebuild.switch().await.unwrap_err().is_conflict());
    assert_all_by(&app, "1").await;
    app.stop().await;
}

/// A document that is parked in one generation need not be parked in the other.
#[tokio::test(start_paused = true)]
async fn what_is_parked_is_parked_in_its_own_generation() {
    let store = Memory::new(1);
    let code = Notes::new(1);
    let app = start(&store, code.clone()).await;
    append(&app, 21).await;
    app.append("s0", [Happened::Poison { to: vec!["s0".into()] }]).await.unwrap();
    app.caught_up().await.unwrap();
    assert_eq!(app.parked("notes", None, 9).await.unwrap().len(), 1);
    code.mended.now();
    let rebuild = app.rebuild("notes").await.unwrap();
    rebuild.built().await.unwrap();
    let difference = rebuild.difference(9).await.unwrap();
    assert_eq!((difference.compared, difference.parked, difference.is_none()), (6, 1, true));
    rebuild.switch().await.unwrap();
    assert!(app.parked("notes", None, 9).await.unwrap().is_empty());
    assert_all_by(&app, "1").await;
    app.undo("notes").await.unwrap();
    assert_eq!(app.parked("notes", None, 9).await.unwrap().len(), 1, "as it was");
    app.retry_all("notes", false, |_, _| ()).await.unwrap();
    assert_all_by(&app, "1").await;
    app.stop().await;
}

#[tokio::test(start_paused = true)]
async fn verifying_finds_what_was_tampered_with_and_nothing_else_while_events_come_in() {
    for by_stream in [true, false] {
        // Partitions have no common order, so lists of events of several partitions would differ.
        let store = Memory::new(if by_stream { 3 } else { 1 });
        let app = start(&store, Notes { by_stream, ..Notes::new(1) }).await;
        append(&app, 140).await;
        app.caught_up().await.unwrap();
        let appending = {
            let app = app.clone();
            tokio::spawn(async move {
                loop {
                    append(&app, 3).await;
                    tokio::time::sleep(Duration::from_micros(700)).await;
                }
            })
        };
        for sample in [Sample::All, Sample::Some(4), Sample::Some(100)] {
            for _ in 0..10 {
                let verified = app.verify("notes", sample, |wrong| panic!("{wrong:?}")).await.unwrap();
                assert!(verified.differing == 0 && verified.checked > 0, "{verified:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        appending.abort();
        app.caught_up().await.unwrap();
        app.stop().await;
        // One document is changed, one is deleted, and one belongs to no event.
        let wrong = |id: &str, body: Option<&str>, expected: Option<Header>, mark| {
            let header = Header { mark, parked: None };
            let body = body.map(|body| Json::parse(body).unwrap());
            DocumentWrite { expected, record: Record { id: DocumentId::new(id).unwrap(), header, body } }
        };
        let ids = ["s1", "s2"].map(|id| DocumentId::new(id).unwrap()).to_vec();
        let stored = store.load(&notes(), ids).await.unwrap();
        let headers: Vec<_> = stored.into_iter().map(|record| record.header).collect();
        let writes = vec![
            wrong("s1", Some(r#"{"events":[]}"#), Some(headers[0].clone()), headers[0].mark.clone()),
            wrong("s2", None, Some(headers[1].clone()), headers[1].mark.clone()),
            wrong("stray", Some(r#"{"events":[]}"#), None, leftfold::Mark::default()),
        ];
        let commit =
            Commit { advance: None, changes: vec![CollectionWrites { collection: notes(), writes }] };
        assert!(matches!(store.commit(Arc::new(commit)).await.unwrap(), CommitOutcome::Applied));
        let mut found = Vec::new();
        let verified = app.verify("notes", Sample::All, |wrong| found.push(wrong)).await.unwrap();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        let seen: Vec<_> =
            found.iter().map(|wrong| (wrong.id.as_str(), wrong.stored, wrong.folded)).collect();
        assert_eq!(seen, [("s1", true, true), ("s2", false, true), ("stray", true, false)]);
        let changes = &found[0].changes;
        assert!(changes.iter().all(|change| change.path.starts_with("events[")), "{changes:?}");
        assert_eq!((verified.checked, verified.differing), (8, 3));
    }
}
