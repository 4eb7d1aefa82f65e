//! Stops, leases and extreme options.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Happened, Notes, garbled, noted, stored};
use crate::fixtures::{quick, soon};
use crate::shaky::Shaky;
use leftfold::fold::{Error, FoldOptions};
use leftfold::{Event, Expected, Leftfold, Memory, Projection};

/// `stop` waits until the workers have ended, for every caller.
#[tokio::test]
async fn who_stops_second_waits_as_well_and_who_gives_up_waiting_aborts_nothing() {
    let notes = Notes::by_stream();
    let app = Leftfold::on(Memory::default()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let stopped = |app: &leftfold::App<Memory>| {
        let app = app.clone();
        async move { app.status().await.unwrap()[0].activity }
    };
    let first = app.stop();
    tokio::pin!(first);
    // The first caller has begun to wait, and then is dropped.
    assert!(futures_now(first.as_mut()).await.is_none(), "this test needs a stop that takes a moment");
    let (one, two) = tokio::join!(first, async {
        app.stop().await;
        stopped(&app).await
    });
    let () = one;
    assert_eq!(two, leftfold::fold::Activity::Stopped, "the second caller was let go too early");

    let app = Leftfold::on(Memory::default()).projection(notes).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    {
        let gives_up = app.stop();
        tokio::pin!(gives_up);
        assert!(futures_now(gives_up.as_mut()).await.is_none());
    }
    app.stop().await;
    assert_eq!(stopped(&app).await, leftfold::fold::Activity::Stopped, "the worker was cut off");
}

/// Polls once.
async fn futures_now<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// A lease may also be endless.
#[tokio::test]
async fn a_lease_without_end_is_one() {
    let notes = Notes::by_stream();
    let options = FoldOptions { lease: Duration::MAX, ..quick() };
    let app =
        Leftfold::on(Memory::default()).options(options).projection(notes.clone()).start().await.unwrap();
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    assert!(
        soon(app.get(notes, "a").at_least(bookmark).within(Duration::MAX).into_future())
            .await
            .unwrap()
            .is_some()
    );
    soon(app.stop()).await;
}

/// The smallest possible options: slow, but correct.
#[tokio::test]
async fn the_smallest_options_work() {
    for partitions in [1, 2] {
        let notes = Notes::by_content();
        let options = FoldOptions {
            cache_bytes: 0,
            batch_bytes: 0,
            batch_time: Duration::ZERO,
            page_bytes: 0,
            lease: Duration::ZERO,
            ..quick()
        };
        let app = Leftfold::on(Memory::new(partitions))
            .options(options)
            .projection(notes.clone())
            .start()
            .await
            .unwrap();
        for round in 0..30 {
            app.append(&format!("s{}", round % 3), [noted(&["x"])]).await.unwrap();
            if round == 10 {
                app.append_events("s1", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
                app.append("s2", [Happened::Poison { to: vec!["y".into()] }]).await.unwrap();
            }
        }
        soon(app.caught_up()).await.unwrap();
        notes.mended.now();
        soon(app.retry_all("by_content", false, |_, _| ())).await.unwrap();
        let mut seen = stored(app.store(), "by_content").await.remove("x").unwrap();
        assert_eq!(seen.len(), 31);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 31);
        soon(app.stop()).await;
    }
}

/// Folding takes longer than the lease: workers replace each other, but the batches they commit are
/// not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_slower_than_their_lease_get_on() {
    #[derive(Clone)]
    struct Slow;
    impl Projection for Slow {
        type Event = Happened;
        type Document = u64;
        fn name(&self) -> &'static str {
            "slow"
        }
        #[expect(clippy::disallowed_methods, reason = "a user's fold that takes long")]
        fn fold(&self, count: Option<u64>, _: &Event<Happened>) -> Result<Option<u64>, Error> {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Some(count.unwrap_or(0) + 1))
        }
    }
    let mut store = Shaky::new(1, true);
    store.slow = Duration::from_millis(150);
    store.calm.store(true, Ordering::SeqCst);
    let options = FoldOptions { lease: Duration::from_millis(160), ..quick() };
    let start = || Leftfold::on(store.clone()).options(options.clone()).projection(Slow).start();
    let writer = Leftfold::on(store.clone()).open().await.unwrap();
    writer.append("a", vec![noted(&[]); 10]).await.unwrap();
    let (one, two) = (start().await.unwrap(), start().await.unwrap());
    soon(one.caught_up()).await.unwrap();
    assert_eq!(one.get(Slow, "a").await.unwrap(), Some(10));
    one.stop().await;
    two.stop().await;
}

/// A stop finishes the current batch, even if another writer has just changed one of its documents.
#[tokio::test]
async fn stopping_finishes_a_batch_that_meets_a_conflict() {
    let notes = Notes::by_stream();
    let mut store = Shaky::new(1, true);
    store.calm.store(true, Ordering::SeqCst);
    store.slow = Duration::from_millis(200);
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let beside = Leftfold::on(store.inner.clone()).projection(notes.clone()).open().await.unwrap();
    beside.refold("by_stream", "a").await.unwrap();
    soon(app.stop()).await;
    assert_eq!(app.status().await.unwrap()[0].lag, 0, "the batch in hand was dropped");
    assert_eq!(stored(app.store(), "by_stream").await["a"], ["a@1", "a@2"]);
}
