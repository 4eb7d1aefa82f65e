//! Retries and refolds of parked documents and streams.

use crate::common::{Happened, Notes, assert_right, garbled, noted, stored};
use crate::fixtures::{put_checkpoint, quick};
use crate::scripted::{Call, Scripted};
use leftfold::fold::Mended;
use leftfold::{Collection, Documents, Leftfold, Memory, Partition, Unit};

#[tokio::test]
async fn a_dry_run_changes_no_document_of_a_stream() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    notes.mended.now();
    let (unit, before) = app.parked("by_content", None, 1).await.unwrap().remove(0);
    assert_eq!(app.retry("by_content", &unit, true).await.unwrap(), Mended::Repaired);
    assert_eq!(stored(app.store(), "by_content").await["x"], ["good@1"]);
    assert_eq!(app.parked("by_content", None, 10).await.unwrap(), [(unit, before)]);
    app.stop().await;
}

#[tokio::test]
async fn what_is_set_aside_while_its_stream_is_retried_is_not_lost() {
    let notes = Notes::by_content();
    let store = Scripted::default();
    let worker = Leftfold::on(store.inner.clone()).options(quick()).projection(notes.clone());
    let worker = worker.start().await.unwrap();
    worker.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    worker.caught_up().await.unwrap();
    let mender = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
    let (unit, _) = mender.parked("by_content", None, 1).await.unwrap().remove(0);
    notes.mended.now();
    let beside = worker.clone();
    store.before(Call::Commit, async move {
        beside.append("bad", [noted(&["x"])]).await.unwrap();
        beside.caught_up().await.unwrap();
    });
    assert_eq!(mender.retry("by_content", &unit, false).await.unwrap(), Mended::Repaired);
    worker.append("bad", [noted(&["x"])]).await.unwrap();
    assert_right(&worker, &notes, "").await;
    assert!(worker.parked("by_content", None, 1).await.unwrap().is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_stream_that_was_mended_is_not_set_aside_for_the_same_events_again() {
    let notes = Notes::by_content();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("bad", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    notes.mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.stop().await;
    // Everything is presented again, to a worker with the old code.
    put_checkpoint(&store, "by_content", 0).await;
    let old = Leftfold::on(store).options(quick()).projection(Notes::by_content()).start().await.unwrap();
    assert_right(&old, &notes, "").await;
    assert_eq!(old.parked("by_content", None, 1).await.unwrap(), []);
    old.stop().await;
}

/// A document that a repair finds deleted keeps its mark. Otherwise a worker that is behind would
/// see a document without any events.
#[tokio::test]
async fn a_mend_that_ends_in_a_deleted_document_leaves_its_mark() {
    let notes = Notes::by_content();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("bad", [noted(&["x"])]).await.unwrap();
    app.append("bad", [Happened::Cleared { to: vec!["x".into()] }]).await.unwrap();
    app.caught_up().await.unwrap();
    notes.mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.stop().await;
    let of_x = store
        .load(&Collection::new("by_content").unwrap(), vec![leftfold::DocumentId::new("x").unwrap()])
        .await
        .unwrap();
    assert_eq!(of_x.len(), 1);
    assert_eq!((&of_x[0].body, of_x[0].header.mark.position(Partition(0))), (&None, leftfold::Position(3)));
}

/// A store without transactions writes the checkpoint last: it may be behind the parked events.
#[tokio::test]
async fn mending_before_the_checkpoint_is_written_leaves_out_nothing_that_waits() {
    for by_stream in [true, false] {
        let store = Memory::default();
        let notes = if by_stream { Notes::by_stream() } else { Notes::by_content() };
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
        app.append("other", [noted(&["y"])]).await.unwrap();
        app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("bad", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        app.stop().await;
        let (unit, _) = app.parked(notes.name, None, 1).await.unwrap().remove(0);
        notes.mended.now();
        put_checkpoint(&store, notes.name, 2).await;
        let mended = match &unit {
            Unit::Stream(_) => app.retry(notes.name, &unit, false).await.unwrap(),
            Unit::Document(id) => app.refold(notes.name, id.as_str()).await.unwrap(),
        };
        assert_eq!(mended, Mended::Repaired);
        put_checkpoint(&store, notes.name, 3).await;
        let app = Leftfold::on(store).options(quick()).projection(notes.clone()).start().await.unwrap();
        assert_right(&app, &notes, notes.name).await;
        app.stop().await;
    }
}

#[tokio::test]
async fn a_refold_that_fails_says_so_and_leaves_the_document_as_it_was() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [noted(&[]), Happened::Poison { to: vec![] }, noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let before = app.parked("by_stream", None, 10).await.unwrap();
    let mended = app.refold("by_stream", "bad").await.unwrap();
    assert!(matches!(&mended, Mended::StillFailing(why) if why.contains("revision 2 of bad")), "{mended:?}");
    assert_eq!(app.parked("by_stream", None, 10).await.unwrap(), before);
    assert_eq!(stored(app.store(), "by_stream").await["bad"], ["bad@1"]);
    app.stop().await;
}
