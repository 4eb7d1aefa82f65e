//! Events that fail, and documents that can't be stored.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Happened, Notes, assert_right, caught_up, garbled, noted, stored, whole_log};
use crate::fixtures::{fill, quick};
use leftfold::fold::{FoldOptions, Mended};
use leftfold::{Backoff, Collection, Documents, Expected, Leftfold, Memory, NewEvent, ReadError, Unit};

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_event_stops_only_its_own_document_and_one_retry_resumes_it_in_order() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    fill(&app, 5, 3).await;
    app.append("s1", [Happened::Poison { to: vec![] }]).await.unwrap();
    app.append("s2", [Happened::Bomb { to: vec![] }]).await.unwrap();
    app.append_events("s3", Expected::Any, vec![garbled(&[])]).await.unwrap();
    fill(&app, 5, 20).await;
    caught_up(&app).await;

    let held = stored(app.store(), "by_stream").await;
    assert_eq!(held["s4"].len(), 23, "others go on");
    for stopped in ["s1", "s2", "s3"] {
        assert_eq!(held[stopped].len(), 3, "{stopped} is what it was before its bad event");
    }
    let parked = app.parked("by_stream", None, 10).await.unwrap();
    let said: Vec<_> = parked.iter().map(|(_, parked)| (parked.error.as_str(), parked.waiting)).collect();
    assert_eq!(said[0], ("poison", 21));
    assert_eq!(said[1], ("the fold panicked: bomb", 21));
    assert!(said[2].0.contains("can't decode noted: data: missing field `to`"), "{}", said[2].0);

    let mut outcomes = Vec::new();
    app.retry_all("by_stream", true, |_, mended| outcomes.push(mended.clone())).await.unwrap();
    assert!(
        matches!(outcomes[0], Mended::StillFailing(_)),
        "a dry run with the old code repairs nothing: {outcomes:?}"
    );
    let unit = Unit::Document(leftfold::DocumentId::new("s1").unwrap());
    assert_eq!(app.retry("by_stream", &unit, false).await.unwrap(), Mended::StillFailing("poison".into()));
    let again = &app.parked("by_stream", None, 1).await.unwrap()[0].1;
    assert_eq!((again.attempts, again.waiting), (parked[0].1.attempts + 1, 21), "it waits on, as before");
    assert_eq!(again.since, parked[0].1.since);

    notes.mended.now();
    outcomes.clear();
    app.retry_all("by_stream", true, |_, mended| outcomes.push(mended.clone())).await.unwrap();
    assert_eq!(outcomes, vec![Mended::Repaired; 3]);
    assert_eq!(app.parked("by_stream", None, 10).await.unwrap().len(), 3, "a dry run writes nothing");
    app.retry_all("by_stream", false, |_, _| ()).await.unwrap();
    assert!(app.parked("by_stream", None, 10).await.unwrap().is_empty());
    fill(&app, 5, 3).await;
    assert_right(&app, &notes, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cant_be_routed_stops_only_its_stream_and_is_repaired_by_refolding() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.append("bad", [noted(&["x"]), noted(&["y"])]).await.unwrap();
    let bookmark = app.append_events("bad", Expected::Any, vec![garbled(&["x", "z"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    let later = app.append("bad", [noted(&["y"]), noted(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    caught_up(&app).await;

    let held = stored(app.store(), "by_content").await;
    assert_eq!(held["x"], ["good@1", "bad@1", "good@2", "good@3"], "the other stream goes on");
    assert_eq!(held["y"], ["bad@2"]);
    for bookmark in [bookmark.into_bookmark(), later] {
        let error = app.get(notes.clone(), "x").at_least(bookmark).await.unwrap_err();
        assert!(matches!(error, ReadError::Parked { .. }), "{error}");
    }
    let parked = app.parked("by_content", None, 10).await.unwrap();
    assert_eq!(parked.len(), 1);
    let unit = Unit::Stream(leftfold::StreamId::new("bad").unwrap());
    assert_eq!((&parked[0].0, parked[0].1.waiting), (&unit, 3));
    assert!(matches!(app.retry("by_content", &unit, false).await.unwrap(), Mended::StillFailing(_)));

    // A restarted worker still leaves the stream alone.
    app.stop().await;
    let app =
        Leftfold::on(app.store().clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [noted(&["w"])]).await.unwrap();
    app.append("good", [noted(&["w"])]).await.unwrap();
    caught_up(&app).await;
    assert_eq!(stored(app.store(), "by_content").await["w"], ["good@4"]);
    assert_eq!(app.parked("by_content", None, 10).await.unwrap()[0].1.waiting, 4);

    notes.mended.now();
    assert_eq!(app.retry("by_content", &unit, true).await.unwrap(), Mended::Repaired);
    assert_eq!(app.retry("by_content", &unit, false).await.unwrap(), Mended::Repaired);
    app.append("bad", [noted(&["x", "y"])]).await.unwrap();
    assert_right(&app, &notes, "").await;
    assert_eq!(stored(app.store(), "by_content").await["x"].len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_at_first_is_tried_again_and_not_parked() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    fill(&app, 3, 3).await;
    for n in 0..30 {
        app.append("flaky", [Happened::Flaky { to: vec![format!("d{}", n % 4)] }]).await.unwrap();
    }
    fill(&app, 3, 3).await;
    assert_right(&app, &notes, "").await;
    let status = app.status().await.unwrap().remove(0);
    assert_eq!((status.parked_documents, status.tally.parked), (0, 0));
    // Each of the thirty fails twice.
    assert_eq!(status.tally.retried, 60);
    assert_eq!(status.tally.events, 48);
    let mut applications = 0;
    for event in whole_log(app.store()).await {
        let data: serde_json::Value = event.data.to().unwrap();
        let to: std::collections::BTreeSet<_> =
            data["to"].as_array().unwrap().iter().map(|to| to.as_str().unwrap().to_owned()).collect();
        applications += to.len() as u64;
    }
    assert_eq!(status.tally.applied, applications);
}

#[tokio::test(flavor = "multi_thread")]
async fn should_retry_has_the_last_word() {
    let notes = Notes::by_stream();
    let options = FoldOptions { should_retry: |_| false, ..quick() };
    let app =
        Leftfold::on(Memory::default()).options(options).projection(notes.clone()).start().await.unwrap();
    app.append("a", [Happened::Flaky { to: vec![] }]).await.unwrap();
    caught_up(&app).await;
    // It was tried once in the batch and once more from the stored document, and failed both times.
    assert_eq!(app.parked("by_stream", None, 10).await.unwrap().len(), 1);
    assert_eq!(app.status().await.unwrap()[0].tally.retried, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_that_keeps_failing_does_not_stop_the_others() {
    /// A projection that never folds anything, and is slow.
    struct Hopeless;
    impl leftfold::Projection for Hopeless {
        type Event = serde_json::Value;
        type Document = u64;
        fn name(&self) -> &'static str {
            "hopeless"
        }
        fn fold(
            &self,
            _: Option<u64>,
            _: &leftfold::Event<serde_json::Value>,
        ) -> Result<Option<u64>, leftfold::fold::Error> {
            Err(leftfold::fold::Error::transient("no hope"))
        }
    }
    let notes = Notes::by_stream();
    let options = FoldOptions {
        retry: Backoff::default().first(Duration::from_hours(1)).most(Duration::from_hours(1)),
        ..quick()
    };
    let app = Leftfold::on(Memory::default())
        .options(options)
        .projection(Hopeless)
        .projection(notes.clone())
        .start()
        .await
        .unwrap();
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    assert!(app.get(notes, "a").at_least(bookmark).await.unwrap().is_some());
    // It does not delay the stop either, although it would have waited for an hour.
    app.stop().await;
}

#[tokio::test]
async fn a_stored_document_of_another_shape_parks_and_a_refold_mends_it() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.append("b", [noted(&[])]).await.unwrap();
    caught_up(&app).await;
    app.stop().await;
    let collection = Collection::new("by_stream").unwrap();
    let id = leftfold::DocumentId::new("a").unwrap();
    let mut record = store.load(&collection, vec![id]).await.unwrap().remove(0);
    let expected = Some(record.header.clone());
    record.body = Some(leftfold::Json::parse(r#"{"other":"shape"}"#).unwrap());
    let changes = vec![leftfold::documents::CollectionWrites {
        collection,
        writes: vec![leftfold::documents::DocumentWrite { expected, record }],
    }];
    let commit = leftfold::documents::Commit { advance: None, changes };
    assert!(matches!(
        store.commit(commit.into()).await.unwrap(),
        leftfold::documents::CommitOutcome::Applied
    ));

    let app = Leftfold::on(store).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    let bookmark = app.append("b", [noted(&[])]).await.unwrap();
    assert_eq!(app.get(notes.clone(), "b").at_least(bookmark).await.unwrap().unwrap().events.len(), 2);
    let parked = app.parked("by_stream", None, 10).await.unwrap();
    assert!(parked[0].1.error.contains("is not of this projection's type"), "{}", parked[0].1.error);
    assert!(matches!(app.retry("by_stream", &parked[0].0, false).await.unwrap(), Mended::StillFailing(_)));
    assert_eq!(app.refold("by_stream", "a").await.unwrap(), Mended::Repaired);
    assert_right(&app, &notes, "").await;
}

#[tokio::test]
async fn a_document_that_cant_be_stored_parks_before_the_event_that_made_it_so() {
    /// A projection where seven creates a document that JSON can't represent.
    struct Lengths;
    impl leftfold::Projection for Lengths {
        type Event = u8;
        type Document = BTreeMap<Vec<u8>, u8>;
        fn name(&self) -> &'static str {
            "lengths"
        }
        fn fold(
            &self,
            _: Option<Self::Document>,
            event: &leftfold::Event<u8>,
        ) -> Result<Option<Self::Document>, leftfold::fold::Error> {
            Ok(Some(if event.data == 7 { BTreeMap::from([(vec![7], 7)]) } else { BTreeMap::new() }))
        }
    }
    let app = Leftfold::on(Memory::default()).options(quick()).projection(Lengths).start().await.unwrap();
    for (stream, number) in [("odd", 0), ("even", 0), ("odd", 7), ("even", 0), ("odd", 0)] {
        let event = NewEvent::new("number", leftfold::Json::of(&number).unwrap()).unwrap();
        app.append_events(stream, Expected::Any, vec![event]).await.unwrap();
        caught_up(&app).await;
    }
    let parked = app.parked("lengths", None, 10).await.unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].1.revision.0, parked[0].1.waiting), (2, 2));
    assert!(parked[0].1.error.contains("key must be a string"), "{}", parked[0].1.error);
}
