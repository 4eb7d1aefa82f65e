//! Commits with unknown outcomes, and commits that meet other writers' work.

use std::time::Duration;

use crate::common::{Notes, assert_right, noted, stored};
use crate::fixtures::{Telling, by_stream, hold_commit, quick, soon};
use crate::scripted::{Call, Fault, Scripted};
use leftfold::fold::{FoldOptions, Mended};
use leftfold::{Documents, Leftfold, Log};

#[tokio::test]
async fn a_commit_that_may_have_come_through_counts_once() {
    for faults in [
        vec![Fault::LostAfter],
        vec![Fault::LostBefore, Fault::LostAfter],
        vec![Fault::LostAfter, Fault::Refused],
        vec![Fault::Refused],
    ] {
        let notes = Notes::by_content();
        let store = Scripted::default();
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
        app.append("a", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        store.fault(faults.clone());
        app.append("a", [noted(&["x", "y"])]).await.unwrap();
        soon(app.caught_up()).await.unwrap();
        app.append("a", [noted(&["x"])]).await.unwrap();
        soon(assert_right(&app, &notes, &format!("{faults:?}"))).await;
        assert_eq!(store.faults_left(), 0);
        let tally = app.status().await.unwrap().remove(0).tally;
        assert_eq!((tally.events, tally.applied), (3, 4), "{faults:?}: what was counted is exact as well");
        app.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_stays_in_doubt_is_never_taken_for_done() {
    let notes = Notes::by_stream();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    store.fault([Fault::LostBefore; 40]);
    app.append("a", [noted(&[])]).await.unwrap();
    // Time is paused: this takes no time, unless the worker has stopped.
    tokio::time::timeout(Duration::from_hours(24), app.caught_up())
        .await
        .expect("it goes on trying")
        .unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    assert_right(&app, &notes, "").await;
    assert_eq!(store.faults_left(), 0);
    app.stop().await;
}

#[tokio::test]
async fn a_document_that_was_mended_meanwhile_is_folded_anew_and_all_is_counted_once() {
    let notes = Notes::by_content();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&["w", "x", "y"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let mender = Leftfold::on(store.inner.clone()).projection(notes.clone()).open().await.unwrap();
    store.before(Call::Commit, async move {
        assert_eq!(mender.refold("by_content", "x").await.unwrap(), Mended::Repaired);
    });
    app.append("a", [noted(&["w", "x", "y", "z"])]).await.unwrap();
    soon(app.caught_up()).await.unwrap();
    app.append("a", [noted(&["w", "x"])]).await.unwrap();
    soon(assert_right(&app, &notes, "")).await;
    let tally = app.status().await.unwrap().remove(0).tally;
    assert_eq!((tally.events, tally.applied, tally.conflicts), (3, 9, 1), "{tally:?}");
    app.stop().await;
}

#[tokio::test]
async fn stopping_stores_what_is_in_flight_and_what_is_in_hand() {
    let notes = Telling::new(Notes::by_stream());
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    let release = hold_commit(&store);
    app.append("a", [noted(&[])]).await.unwrap();
    notes.has_folded(1).await;
    app.append("b", [noted(&[])]).await.unwrap();
    notes.has_folded(2).await;
    soon(async { tokio::join!(app.stop(), async { release.send(()).unwrap() }) }).await;
    assert_eq!(store.checkpoint(&by_stream()).await.unwrap().mark, store.heads().await.unwrap());
    assert_eq!(stored(&store, "by_stream").await.len(), 2);
}

#[tokio::test]
async fn without_room_for_a_cache_the_batch_in_hand_still_is_kept() {
    let notes = Telling::new(Notes::by_stream());
    let store = Scripted::default();
    let options = FoldOptions { cache_bytes: 0, ..quick() };
    let app = Leftfold::on(store.clone()).options(options).projection(notes.clone()).start().await.unwrap();
    let mut folded = 0;
    for _ in 0..5 {
        let release = hold_commit(&store);
        for stream in ["a", "b"] {
            app.append(stream, [noted(&[])]).await.unwrap();
            folded += 1;
            notes.has_folded(folded).await;
        }
        release.send(()).unwrap();
        soon(assert_right(&app, &notes.0, "")).await;
    }
    let tally = app.status().await.unwrap().remove(0).tally;
    assert_eq!((tally.events, tally.applied, tally.conflicts), (10, 10, 0), "{tally:?}");
    app.stop().await;
}
