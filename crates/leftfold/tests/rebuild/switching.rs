//! Rebuilds and switches that are interrupted.

use std::sync::Arc;
use std::time::Duration;

use crate::fixtures::{Notes, append, assert_all_by, folded, known, notes, open, start};
use leftfold::documents::{Commit, CommitOutcome};
use leftfold::inspect::Sample;
use leftfold::{App, Documents as _, Lane, Memory};

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
