//! Parked documents and streams.

use crate::common::{Happened, Notes, assert_right, garbled, noted, stored};
use crate::fixtures::{put_checkpoint, quick, soon};
use leftfold::fold::{FoldOptions, Mended};
use leftfold::{Leftfold, Memory, Unit};

#[tokio::test]
async fn without_room_for_a_cache_a_stream_that_is_set_aside_stays_so() {
    let notes = Notes::by_content();
    let options = FoldOptions { cache_bytes: 0, ..quick() };
    let app =
        Leftfold::on(Memory::default()).options(options).projection(notes.clone()).start().await.unwrap();
    for stream in ["bad", "worse", "worst"] {
        app.append_events(stream, leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("good", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
    }
    for stream in ["bad", "good", "bad"] {
        app.append(stream, [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
    }
    let seen = stored(app.store(), "by_content").await.remove("x").unwrap();
    assert_eq!(seen, ["good@1", "good@2", "good@3", "good@4"]);
    let parked = app.parked("by_content", None, 10).await.unwrap();
    let waiting: Vec<_> = parked.iter().map(|(_, parked)| parked.waiting).collect();
    assert_eq!(waiting, [3, 1, 1]);
    notes.mended.now();
    app.retry_all("by_content", false, |_, mended| assert_eq!(*mended, Mended::Repaired)).await.unwrap();
    assert_right(&app, &notes, "").await;
    app.stop().await;
}

#[tokio::test]
async fn what_waits_is_not_counted_again_when_it_is_presented_again() {
    for notes in [Notes::by_stream(), Notes::by_content()] {
        let store = Memory::default();
        let start = || Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start();
        let app = start().await.unwrap();
        app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("bad", [noted(&["x"]), noted(&["x"])]).await.unwrap();
        app.append("good", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        app.stop().await;
        let before = app.parked(notes.name, None, 10).await.unwrap();
        assert_eq!((before.len(), before[0].1.waiting), (1, 3));

        // A store that wrote the documents and lost the checkpoint presents everything again.
        put_checkpoint(&store, notes.name, 0).await;
        let app = start().await.unwrap();
        app.caught_up().await.unwrap();
        assert_eq!(app.parked(notes.name, None, 10).await.unwrap(), before, "{}", notes.name);
        notes.mended.now();
        app.retry_all(notes.name, false, |_, _| ()).await.unwrap();
        assert_right(&app, &notes, notes.name).await;
        app.stop().await;
    }
}

#[tokio::test]
async fn a_retried_document_has_the_event_that_failed_and_nothing_of_a_stream_that_is_still_set_aside() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["y"])]).await.unwrap();
    app.append("good", [noted(&["x"]), Happened::Poison { to: vec!["x".into()] }]).await.unwrap();
    app.append("bad", [noted(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let parked = app.parked("by_content", None, 10).await.unwrap();
    let [(stream @ Unit::Stream(_), _), (document @ Unit::Document(_), waits)] = &parked[..] else {
        panic!("{parked:?}")
    };
    assert_eq!(waits.waiting, 2);
    notes.mended.now();
    assert_eq!(app.retry("by_content", document, false).await.unwrap(), Mended::Repaired);
    let seen = stored(app.store(), "by_content").await.remove("x").unwrap();
    assert_eq!(seen, ["good@1", "good@2", "good@3"], "the stream is not mended yet");
    assert_eq!(app.retry("by_content", stream, false).await.unwrap(), Mended::Repaired);
    assert_right(&app, &notes, "").await;
    app.stop().await;
}

#[tokio::test]
async fn an_event_whose_route_is_no_name_parks_its_stream() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [noted(&["x"]), noted(&[""]), noted(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    assert_eq!(stored(app.store(), "by_content").await["x"], ["bad@1", "good@1"]);
    let parked = app.parked("by_content", None, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].1.revision.0, parked[0].1.waiting), (1, 2, 2));
    assert!(parked[0].1.error.contains("can't route noted"), "{}", parked[0].1.error);
    app.stop().await;
}

#[tokio::test]
async fn a_fold_that_panics_does_not_end_the_worker() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [Happened::Bomb { to: vec![] }]).await.unwrap();
    app.append("good", [noted(&[])]).await.unwrap();
    soon(app.caught_up()).await.unwrap();
    assert_eq!(stored(app.store(), "by_stream").await["good"], ["good@1"]);
    assert_eq!(app.parked("by_stream", None, 10).await.unwrap()[0].1.error, "the fold panicked: bomb");
    app.stop().await;
}
