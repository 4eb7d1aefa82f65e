//! Leases of workers.

use std::time::Duration;

use crate::common::{Notes, noted};
use crate::fixtures::{by_stream, quick};
use leftfold::documents::Claim;
use leftfold::fold::{Activity, FoldOptions};
use leftfold::{Collection, Documents, Leftfold, Memory, ReadError};

/// A killed worker has not released its lease: another takes its place within five seconds.
#[tokio::test(start_paused = true)]
async fn a_killed_worker_is_replaced_soon() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Notes::by_stream()).open().await.unwrap();
    app.append("s", [noted(&[])]).await.unwrap();
    let collection = Collection::new("by_stream").unwrap();
    let lease = FoldOptions::default().lease;
    store.claim(&collection, "killed", lease).await.unwrap();
    let killed = tokio::time::Instant::now();
    let app = Leftfold::on(store).projection(Notes::by_stream()).start().await.unwrap();
    app.caught_up().await.unwrap();
    assert!(killed.elapsed() <= Duration::from_secs(5), "after {:?}", killed.elapsed());
    assert!(app.get(Notes::by_stream(), "s").await.unwrap().is_some());
    app.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_stands_by_while_another_has_the_lease_and_takes_over_when_it_ends() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let minute = Duration::from_mins(1);
    let patience = Duration::from_secs(30);
    assert_eq!(store.claim(&by_stream(), "other", minute).await.unwrap(), Claim::Ours);
    let app = Leftfold::on(store.clone())
        .options(quick())
        .worker("this")
        .projection(notes.clone())
        .start()
        .await
        .unwrap();
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    let error = app.get(notes.clone(), "a").at_least(bookmark.clone()).within(patience).await.unwrap_err();
    assert!(matches!(error, ReadError::Lagging { .. }), "{error}");
    assert_eq!(app.status().await.unwrap()[0].activity, Activity::Standby);
    assert!(app.get(notes.clone(), "a").at_least(bookmark).within(minute).await.unwrap().is_some());

    // A worker that lost its lease for any reason notices at the next renewal.
    store.release(&by_stream(), "this").await.unwrap();
    assert_eq!(store.claim(&by_stream(), "other", minute).await.unwrap(), Claim::Ours);
    tokio::time::sleep(quick().lease).await;
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    let error = app.get(notes.clone(), "a").at_least(bookmark.clone()).within(patience).await.unwrap_err();
    assert!(matches!(error, ReadError::Lagging { .. }), "{error}");
    assert!(app.get(notes, "a").at_least(bookmark).within(minute).await.unwrap().is_some());
    app.stop().await;
}
