//! The projector on the store in memory: each event once and in order, whatever stops, fails or
//! competes.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Happened, Notes, assert_right, caught_up, expected, garbled, noted, stored, whole_log};
use leftfold::fold::{Activity, FoldOptions, Mended};
use leftfold::{Backoff, Collection, Documents, Expected, Leftfold, Memory, NewEvent, ReadError, Unit};

fn quick() -> FoldOptions {
    FoldOptions {
        retry: Backoff::default().first(Duration::from_millis(1)).limit(3),
        ..FoldOptions::default()
    }
}

/// Appends many events for a few documents, with deletes in between.
async fn fill<S: leftfold::Store>(app: &leftfold::App<S>, streams: usize, rounds: usize) {
    for round in 0..rounds {
        for stream in 0..streams {
            let (a, b) = (format!("d{}", stream % 5), format!("d{}", (stream + round) % 7));
            let to = vec![a, b];
            let event = match round % 9 {
                8 if stream == 0 => Happened::Cleared { to },
                _ => Happened::Noted { to },
            };
            app.append(&format!("s{stream}"), [event]).await.unwrap();
        }
    }
}

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

    let mut told = Vec::new();
    app.retry_all("by_stream", true, |_, mended| told.push(mended.clone())).await.unwrap();
    assert!(
        matches!(told[0], Mended::StillFailing(_)),
        "a dry run with the old code repairs nothing: {told:?}"
    );
    let unit = Unit::Document(leftfold::DocumentId::new("s1").unwrap());
    assert_eq!(app.retry("by_stream", &unit, false).await.unwrap(), Mended::StillFailing("poison".into()));
    let again = &app.parked("by_stream", None, 1).await.unwrap()[0].1;
    assert_eq!((again.attempts, again.waiting), (parked[0].1.attempts + 1, 21), "it waits on, as before");
    assert_eq!(again.since, parked[0].1.since);

    notes.mended.now();
    told.clear();
    app.retry_all("by_stream", true, |_, mended| told.push(mended.clone())).await.unwrap();
    assert_eq!(told, vec![Mended::Repaired; 3]);
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

#[tokio::test(start_paused = true)]
async fn reads_wait_for_their_token_or_say_why_not() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).open().await.unwrap();
    let bookmark = app.append("a", [noted(&[]), noted(&[])]).await.unwrap();

    let error = app.get(notes.clone(), "a").at_least(bookmark.clone()).await.unwrap_err();
    let ReadError::Lagging { behind: 2, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("has not folded position 2"), "{error}");

    for odd in ["0:3:3:a", "0:2:2:b", "0:1:2:a", "1:2:2:a", "0:2:0:a", "0:9:9:a"] {
        let error = app.get(notes.clone(), "a").at_least(odd.parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, ReadError::Unknown { .. }), "{odd}: {error}");
    }

    let waiting = tokio::spawn(app.get(notes.clone(), "a").at_least(bookmark.clone()).into_future());
    let worker =
        Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().events, ["a@1", "a@2"]);

    // A document that does not exist, with the bookmark of another document's event.
    assert_eq!(app.get(notes.clone(), "b").at_least(bookmark.clone()).await.unwrap(), None);

    // A failure of one document does not affect another.
    let bad = app.append("bad", [Happened::Poison { to: vec![] }]).await.unwrap();
    let after = app.append("bad", [noted(&[])]).await.unwrap();
    let good = app.append("a", [noted(&[])]).await.unwrap();
    for bookmark in [bad, after] {
        let error = app.get(notes.clone(), "bad").at_least(bookmark).await.unwrap_err();
        assert!(matches!(&error, ReadError::Parked { parked, .. } if parked.error == "poison"), "{error}");
    }
    assert!(app.get(notes.clone(), "a").at_least(good.clone()).await.unwrap().is_some());
    // The parked document also fails for a later event, even one of another document.
    let error = app.get(notes.clone(), "bad").at_least(good).await.unwrap_err();
    assert!(matches!(&error, ReadError::Parked { .. }), "{error}");
    // The state before the failure can still be read.
    assert_eq!(app.get(notes.clone(), "bad").at_least(bookmark).await.unwrap(), None);
    worker.stop().await;
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

#[tokio::test]
async fn explain_tells_every_event_and_what_it_changed() {
    use leftfold::inspect::Effect;
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("s", [noted(&["x"]), noted(&["y"])]).await.unwrap();
    app.append("t", [noted(&["x"]), Happened::Cleared { to: vec!["x".into()] }]).await.unwrap();
    app.append_events("t", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("t", [noted(&["x"])]).await.unwrap();
    app.append("s", [noted(&["x"]), Happened::Poison { to: vec!["x".into()] }, noted(&["x"])]).await.unwrap();
    caught_up(&app).await;
    let mut told = Vec::new();
    assert!(app.explain("by_content", "x", |step| told.push(step)).await.unwrap());
    let told: Vec<_> = told
        .iter()
        .map(|step| {
            let what = match &step.effect {
                Effect::Changed(changes) => {
                    changes.iter().map(|c| c.path.clone()).collect::<Vec<_>>().join(",")
                }
                Effect::Failed(error) => format!("failed: {error}"),
                Effect::Waiting => "waiting".into(),
            };
            format!("{}@{} {} {what}", step.event.stream, step.event.revision, step.event.kind)
        })
        .collect();
    assert_eq!(
        told,
        [
            "s@1 noted ",
            "t@1 noted events[1]",
            "t@2 cleared ",
            "t@4 noted waiting",
            "s@3 noted ",
            "s@4 poison failed: poison",
            "s@5 noted waiting",
        ]
    );
    assert!(!app.explain("by_content", "nowhere", |_| ()).await.unwrap());
    let error = app.explain("nothing", "x", |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("there are: by_content"), "{error}");
}

#[tokio::test]
async fn what_is_measured_is_what_was_done() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Notes::by_stream()).open().await.unwrap();
    let first = NewEvent::encode(&noted(&[])).unwrap().at("2026-01-01T10:00:00Z".parse().unwrap());
    app.append_events("a", Expected::Any, vec![first]).await.unwrap();
    for _ in 0..3 {
        app.append("a", [noted(&[])]).await.unwrap();
        app.append("b", [noted(&[])]).await.unwrap();
    }
    app.append("c", [Happened::Poison { to: vec![] }]).await.unwrap();
    let status = app.status().await.unwrap().remove(0);
    let since = status.behind_since.map(|since| since.to_string());
    assert_eq!((status.lag, since.as_deref()), (8, Some("2026-01-01T10:00:00Z")));
    assert_eq!((status.figures.commit_seconds.count(), status.parked_since), (0, None));

    let app = Leftfold::on(store).projection(Notes::by_stream()).start().await.unwrap();
    caught_up(&app).await;
    app.append("a", [noted(&[])]).await.unwrap();
    caught_up(&app).await;
    app.stop().await;
    let status = app.status().await.unwrap().remove(0);
    let figures = &status.figures;
    assert_eq!((status.behind_since, status.parked_since.is_some()), (None, true));
    assert_eq!((figures.cache_misses, figures.cache_hits), (3, 6), "each document is loaded once");
    let batches = figures.commit_seconds.count();
    assert!(batches >= 2 && figures.batch_events.count() == batches, "{figures:?}");
    assert_eq!((figures.batch_events.sum(), figures.batch_documents.sum()), (9.0, 4.0), "{figures:?}");
}

#[tokio::test]
async fn a_name_can_be_used_once() {
    let app = Leftfold::on(Memory::default()).projection(Notes::by_stream()).projection(Notes::by_stream());
    let error = app.open().await.err().unwrap();
    assert!(error.to_string().contains("each name once"), "{error}");
}
