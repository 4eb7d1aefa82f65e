//! A waiting read beside a repair: whatever happens between its steps, it never answers without the
//! event it waited for.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
#[path = "common/scripted.rs"]
mod scripted;

use common::{Notes, garbled, noted};
use leftfold::{Expected, Leftfold, ReadError};
use scripted::{Call, Scripted};

/// A stream is parked, and repaired just before one of the steps of the read: each in turn.
#[tokio::test]
async fn a_read_beside_a_mend_never_answers_without_the_event() {
    let steps = [(Call::Checkpoint, 0), (Call::Load, 0), (Call::Load, 1)];
    for (call, before) in steps {
        let notes = Notes::by_content();
        let store = Scripted::default();
        let worker = Leftfold::on(store.inner.clone()).projection(notes.clone()).start().await.unwrap();
        let bad = worker.append_events("bad", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        worker.append("good", [noted(&["x"])]).await.unwrap();
        worker.caught_up().await.unwrap();
        notes.mended.now();
        for _ in 0..before {
            store.before(call, async {});
        }
        let mender = worker.clone();
        store.before(call, async move {
            mender.retry_all("by_content", false, |_, _| ()).await.unwrap();
        });
        let reader = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
        match reader.get(notes, "x").at_least(bad.into_bookmark()).await {
            Ok(x) => assert_eq!(x.unwrap().events, ["bad@1", "good@1"], "{call:?} {before}"),
            Err(ReadError::Parked { .. }) => {}
            Err(error) => panic!("{call:?} {before}: {error}"),
        }
        assert_eq!(
            worker.parked("by_content", None, 1).await.unwrap(),
            [],
            "{call:?} {before}: it was mended"
        );
        worker.stop().await;
    }
}
