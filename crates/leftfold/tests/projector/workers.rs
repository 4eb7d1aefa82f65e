//! Workers that compete, die and stop.

use std::time::Duration;

use crate::common::{Happened, Notes, assert_right, caught_up, garbled};
use crate::fixtures::{fill, quick};
use leftfold::fold::FoldOptions;
use leftfold::{Collection, Documents, Expected, Leftfold, Memory, NewEvent};

/// Correctness never depends on the lease: here no worker respects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_do_the_same_work_at_the_same_time_do_it_once() {
    for notes in [Notes::by_stream(), Notes::by_content()] {
        let store = Memory::default();
        let options = FoldOptions { lease: Duration::ZERO, page_bytes: 512, batch_bytes: 4_096, ..quick() };
        let worker =
            || Leftfold::on(store.clone()).options(options.clone()).projection(notes.clone()).start();
        let (one, two, three) = (worker().await.unwrap(), worker().await.unwrap(), worker().await.unwrap());
        fill(&one, 30, 60).await;
        assert_right(&one, &notes, "").await;
        let status = one.status().await.unwrap().remove(0);
        assert_eq!(status.tally.events, 1_800, "what was counted is exact as well");
        for app in [one, two, three] {
            app.stop().await;
        }
    }
}

/// Workers are dropped at any point of their work, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_dies_anywhere_loses_and_doubles_nothing() {
    let notes = Notes::by_content();
    let store = Memory::default();
    let options = FoldOptions { lease: Duration::ZERO, page_bytes: 256, batch_bytes: 2_048, ..quick() };
    let writer = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
    let writing = tokio::spawn(async move {
        fill(&writer, 40, 60).await;
        writer
    });
    while !writing.is_finished() {
        let app = Leftfold::on(store.clone())
            .options(options.clone())
            .projection(notes.clone())
            .start()
            .await
            .unwrap();
        let collection = Collection::new("by_content").unwrap();
        let at = store.checkpoint(&collection).await.unwrap().mark;
        let _ = tokio::time::timeout(Duration::from_millis(20), store.advanced(&collection, &at)).await;
        drop(app);
    }
    let _writer = writing.await.unwrap();
    let app = Leftfold::on(store.clone()).options(options).projection(notes.clone()).start().await.unwrap();
    assert_right(&app, &notes, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mending_beside_a_running_projector_loses_and_doubles_nothing() {
    for notes in [Notes::by_stream(), Notes::by_content()] {
        let store = Memory::default();
        let options = FoldOptions { page_bytes: 256, batch_bytes: 1_024, ..quick() };
        let app =
            Leftfold::on(store.clone()).options(options).projection(notes.clone()).start().await.unwrap();
        let writer = app.clone();
        let writing = tokio::spawn(async move {
            for round in 0..300 {
                let (a, b) = (format!("d{}", round % 3), format!("d{}", round % 4));
                let to = vec![a.clone(), b.clone()];
                let bad = match round % 20 {
                    3 => NewEvent::encode(&Happened::Poison { to }).unwrap(),
                    13 => garbled(&[&a, &b]),
                    _ => NewEvent::encode(&Happened::Noted { to }).unwrap(),
                };
                writer.append_events(&format!("s{}", round % 5), Expected::Any, vec![bad]).await.unwrap();
                if round == 100 {
                    caught_up(&writer).await;
                }
            }
        });
        caught_up(&app).await;
        let mut rounds = 0;
        while !writing.is_finished() {
            app.retry_all(notes.name, false, |_, _| ()).await.unwrap();
            for id in 0..5 {
                let _ = app
                    .refold(notes.name, &format!("{}{id}", if notes.by_stream { "s" } else { "d" }))
                    .await
                    .unwrap();
            }
            rounds += 1;
            if rounds == 5 {
                notes.mended.now();
            }
        }
        writing.await.unwrap();
        notes.mended.now();
        caught_up(&app).await;
        while !app.parked(notes.name, None, 1).await.unwrap().is_empty() {
            app.retry_all(notes.name, false, |_, _| ()).await.unwrap();
        }
        assert_right(&app, &notes, "").await;
        app.stop().await;
    }
}

#[tokio::test]
async fn stopping_gives_the_lease_back() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let one = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    fill(&one, 5, 5).await;
    caught_up(&one).await;
    one.stop().await;
    // If the first still held the lease, the second would stand by for ten seconds.
    let collection = Collection::new("by_stream").unwrap();
    let claim = store.claim(&collection, "another", Duration::from_secs(1)).await.unwrap();
    assert_eq!(claim, leftfold::documents::Claim::Ours);
}
