//! Reads that wait for an event.

use crate::common::{Notes, garbled, noted};
use crate::fixtures::quick;
use crate::scripted::{Call, Scripted};
use leftfold::{Leftfold, Memory, ReadError};

#[tokio::test]
async fn a_read_beside_a_parked_document_or_stream_answers_what_can_be_told() {
    let (streams, contents) = (Notes::by_stream(), Notes::by_content());
    let app = Leftfold::on(Memory::default())
        .options(quick())
        .projection(streams.clone())
        .projection(contents.clone())
        .start()
        .await
        .unwrap();
    let early = app.append("bad", [noted(&["x"])]).await.unwrap();
    let parked = app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    let later = app.append("good", [noted(&["y"])]).await.unwrap();
    app.caught_up().await.unwrap();
    for (notes, id) in [(streams, "bad"), (contents, "x")] {
        let error = app.get(notes.clone(), id).at_least(parked.clone().into_bookmark()).await.unwrap_err();
        assert!(matches!(error, ReadError::Parked { .. }), "{error}");
        let seen = app.get(notes.clone(), id).at_least(early.clone()).await.unwrap();
        assert_eq!(seen.unwrap().events, ["bad@1"], "what came before the trouble is there: {}", notes.name);
        // For a later event, a parked document has no answer. A document that a parked stream may
        // concern has one.
        let seen = app.get(notes.clone(), id).at_least(later.clone()).await;
        if notes.by_stream {
            assert!(matches!(seen, Err(ReadError::Parked { .. })), "{seen:?}");
        } else {
            assert_eq!(seen.unwrap().unwrap().events, ["bad@1"]);
        }
    }
    app.stop().await;
}

#[tokio::test]
async fn a_read_that_finds_the_checkpoint_moved_answers_with_the_document_it_was_moved_for() {
    let notes = Notes::by_stream();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    let worker = Leftfold::on(store.inner.clone()).projection(notes.clone());
    // Everything is folded just before the reader loads the checkpoint.
    store.before(Call::Checkpoint, async move {
        let worker = worker.start().await.unwrap();
        worker.caught_up().await.unwrap();
        worker.stop().await;
    });
    let seen = app.get(notes, "a").at_least(bookmark).await.unwrap();
    assert_eq!(seen.unwrap().events, ["a@1"]);
}
