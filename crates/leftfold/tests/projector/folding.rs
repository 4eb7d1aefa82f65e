//! From events to documents.

use std::time::Duration;

use crate::common::{Happened, Notes, assert_right, caught_up, expected, noted, stored};
use crate::fixtures::fill;
use leftfold::fold::Activity;
use leftfold::{Collection, Documents, Leftfold, Memory};

#[tokio::test(flavor = "multi_thread")]
async fn several_projections_fold_one_log() {
    for partitions in [1, 3] {
        let (streams, contents) = (Notes::by_stream(), Notes::by_content());
        let app = Leftfold::on(Memory::new(partitions))
            .projection(streams.clone())
            .projection(contents.clone())
            .start()
            .await
            .unwrap();
        fill(&app, 20, 50).await;
        caught_up(&app).await;
        assert_eq!(stored(app.store(), "by_stream").await, expected(app.store(), true).await);
        if partitions == 1 {
            assert_right(&app, &contents, "").await;
        } else {
            // Partitions have no common order; within each document every stream must still be in
            // order.
            for (id, seen) in stored(app.store(), "by_content").await {
                for stream in 0..20 {
                    let of = format!("s{stream}@");
                    let of: Vec<u64> =
                        seen.iter().filter_map(|e| e.strip_prefix(&of)?.parse().ok()).collect();
                    assert!(of.is_sorted_by(|a, b| a < b), "{id}: {of:?}");
                }
            }
        }
        for status in app.status().await.unwrap() {
            assert_eq!((status.lag, status.parked_documents, status.parked_streams), (0, 0, 0));
            assert_eq!(status.tally.events, 1_000);
        }
        // A worker updates its status a moment after the work.
        let live = async {
            while app.status().await.unwrap().iter().any(|status| status.activity != Activity::Live) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), live).await.expect("all are live");
        app.stop().await;
        assert_eq!(app.status().await.unwrap()[0].activity, Activity::Stopped);
    }
}

#[tokio::test]
async fn what_nobody_knows_is_passed_over_and_counted() {
    #[derive(serde::Serialize)]
    struct Unheard {}
    let notes = Notes::by_stream();
    let app = Leftfold::on(Memory::default()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    for _ in 0..10 {
        app.append("a", [Unheard {}]).await.unwrap();
    }
    caught_up(&app).await;
    let status = app.status().await.unwrap().remove(0);
    assert_eq!((status.lag, status.tally.ignored, status.tally.applied), (0, 10, 1));
}

#[tokio::test]
async fn a_deleted_document_is_gone_and_a_replay_does_not_bring_it_back() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[]), Happened::Cleared { to: vec![] }]).await.unwrap();
    app.append("b", [Happened::Cleared { to: vec![] }]).await.unwrap();
    caught_up(&app).await;
    app.stop().await;
    assert_eq!(app.get(notes.clone(), "a").await.unwrap(), None);

    let collection = Collection::new("by_stream").unwrap();
    let ids = ["a", "b"].map(|id| leftfold::DocumentId::new(id).unwrap()).to_vec();
    let records = store.load(&collection, ids).await.unwrap();
    let marks: Vec<_> = records.iter().map(|record| (record.header.mark.to_string(), &record.body)).collect();
    assert_eq!(marks, [(r#"{"0":2}"#.to_owned(), &None), (r#"{"0":3}"#.to_owned(), &None)]);

    // A store that lost the checkpoint, but not the documents, presents everything again.
    let from = store.checkpoint(&collection).await.unwrap();
    let advance = leftfold::documents::Advance {
        projection: collection.clone(),
        from: from.mark,
        to: leftfold::documents::Checkpoint::default(),
    };
    let commit = leftfold::documents::Commit { advance: Some(advance), changes: vec![] };
    assert!(matches!(
        store.commit(commit.into()).await.unwrap(),
        leftfold::documents::CommitOutcome::Applied
    ));
    let app = Leftfold::on(store).projection(notes.clone()).start().await.unwrap();
    caught_up(&app).await;
    let status = app.status().await.unwrap().remove(0);
    assert_eq!((status.tally.applied, status.tally.skipped), (0, 3), "{:?}", status.tally);
    assert_eq!(app.get(notes, "a").await.unwrap(), None);
}

#[tokio::test]
async fn a_name_can_be_used_once() {
    let app = Leftfold::on(Memory::default()).projection(Notes::by_stream()).projection(Notes::by_stream());
    let error = app.open().await.err().unwrap();
    assert!(error.to_string().contains("each name once"), "{error}");
}
