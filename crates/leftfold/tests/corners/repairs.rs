//! Retries, refolds and manual folds of parked documents.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Happened, Mended as Switch, Notes, assert_right, garbled, noted, stored};
use crate::fixtures::{Decoding, quick};
use crate::shaky::{Seeded, Shaky};
use leftfold::fold::{FoldOptions, Mended};
use leftfold::{DocumentId, Expected, Guarded, Lane, Leftfold, Memory, NewEvent, Rule, Unit};

/// Newer code folded an event that this code can't decode; a refold without it would silently drop
/// it.
#[tokio::test]
async fn a_refold_by_code_that_cant_decode_an_event_leaves_the_document_as_it_is() {
    for parked_before in [false, true] {
        let store = Memory::default();
        let newer = Notes::by_content();
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(newer.clone()).start().await.unwrap();
        if !parked_before {
            newer.mended.now();
        }
        app.append("a", [noted(&["x"])]).await.unwrap();
        app.append_events("a", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("a", [noted(&["x"])]).await.unwrap();
        app.append("b", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        newer.mended.now();
        app.retry_all("by_content", false, |_, _| ()).await.unwrap();
        let before = stored(&store, "by_content").await;
        assert_eq!(before["x"], ["a@1", "a@2", "a@3", "b@1"]);
        app.stop().await;

        let older = Leftfold::on(store.clone()).projection(Notes::by_content()).open().await.unwrap();
        let answer = older.refold("by_content", "x").await.unwrap();
        assert_eq!(stored(&store, "by_content").await, before, "nothing may be lost; it said {answer:?}");
        assert!(matches!(answer, Mended::StillFailing(_)), "{answer:?}");
    }
}

/// A stream whose events can be decoded again continues, although one of its documents can't fold
/// one of them. Only that document is parked, as it would have been without the detour.
#[tokio::test]
async fn a_stream_that_decodes_again_is_not_held_back_by_one_of_its_documents() {
    let (notes, mended) = (Notes::by_content(), Switch::default());
    let app = Leftfold::on(Memory::default())
        .options(quick())
        .projection(Decoding(notes.clone(), mended.clone()))
        .start()
        .await
        .unwrap();
    app.append("other", [noted(&["x"])]).await.unwrap();
    app.append_events("s", Expected::Any, vec![garbled(&["y"])]).await.unwrap();
    app.append("s", [Happened::Poison { to: vec!["x".into()] }, noted(&["y"])]).await.unwrap();
    app.append("other", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.append("s", [noted(&["y"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let held = stored(app.store(), "by_content").await;
    assert_eq!(held["y"], ["s@1", "s@3", "s@4"], "y has no bad event");
    let parked: Vec<_> =
        app.parked("by_content", None, 9).await.unwrap().into_iter().map(|(unit, _)| unit).collect();
    assert_eq!(parked, [Unit::Document(DocumentId::new("x").unwrap())]);

    notes.mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.append("s", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let held = stored(app.store(), "by_content").await;
    assert_eq!(held["x"], ["other@1", "s@2", "other@2", "s@5"]);
    assert_eq!(app.parked("by_content", None, 9).await.unwrap(), []);
    app.stop().await;
}

/// A manual fold into a parked document must not lose the events that wait for it.
#[tokio::test]
async fn folding_by_hand_does_not_unpark_a_document() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[]), Happened::Poison { to: vec![] }, noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let by_hand = Guarded::<crate::common::Seen, _>::new(store, "by_stream").await.unwrap();
    let _ = by_hand
        .fold("a", &Lane::named("hand"), 1, Rule::Growing, |seen| {
            let mut seen = seen.unwrap_or_default();
            seen.events.push("hand@1".into());
            Ok(Some(seen))
        })
        .await;
    notes.mended.now();
    app.retry_all("by_stream", false, |_, _| ()).await.unwrap();
    let mut seen = stored(app.store(), "by_stream").await.remove("a").unwrap();
    seen.retain(|event| !event.starts_with("hand"));
    assert_eq!(seen, ["a@1", "a@2", "a@3"], "what waited is lost");
    app.stop().await;
}

/// Decoding is fixed first and folding later, while two workers use a store that misbehaves.
#[tokio::test(start_paused = true)]
async fn documents_are_right_if_mended_in_two_steps_whatever_the_store_does() {
    for seed in 0..150 {
        let (notes, mended) = (Notes::by_content(), Switch::default());
        let store = Shaky::new(seed * 6_007 + 1, seed % 2 == 0);
        let options = FoldOptions { lease: Duration::ZERO, page_bytes: 200, batch_bytes: 1_500, ..quick() };
        let worker = |number: u64| {
            Leftfold::on(store.clone())
                .env(Seeded((seed * 2 + number).into()))
                .options(options.clone())
                .projection(Decoding(notes.clone(), mended.clone()))
                .start()
        };
        let (one, two) = (worker(0).await.unwrap(), worker(1).await.unwrap());
        for round in 0..60 {
            let (a, b) = (format!("d{}", round % 3), format!("d{}", round % 4));
            let to = vec![a.clone(), b.clone()];
            let event = match round % 20 {
                7 | 12 => NewEvent::encode(&Happened::Poison { to }).unwrap(),
                11 => NewEvent::encode(&Happened::Cleared { to }).unwrap(),
                5 => garbled(&[&a, &b]),
                _ => NewEvent::encode(&Happened::Noted { to }).unwrap(),
            };
            one.append_events(&format!("s{}", round % 5), Expected::Any, vec![event]).await.unwrap();
            if round % 6 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            match round {
                30 => mended.now(),
                50 => notes.mended.now(),
                _ => {}
            }
            if round % 10 == 0 {
                let _ = one.retry_all(notes.name, false, |_, _| ()).await;
            }
            if round % 15 == 0 {
                let _ = two.refold(notes.name, &a).await;
            }
        }
        store.calm.store(true, Ordering::SeqCst);
        one.caught_up().await.unwrap();
        // Delayed commits arrive at last.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for _ in 0..100 {
            one.retry_all(notes.name, false, |_, _| ()).await.unwrap();
        }
        assert_eq!(one.parked(notes.name, None, 9).await.unwrap(), [], "seed {seed}");
        assert_right(&one, &notes, &format!("seed {seed}")).await;
        one.stop().await;
        two.stop().await;
    }
}

/// A repair whose write has an unknown outcome counts as a repair.
#[tokio::test]
async fn a_retry_whose_write_came_through_unheard_says_that_it_is_repaired() {
    for notes in [Notes::by_stream(), Notes::by_content()] {
        let store = Shaky::new(1, true);
        store.calm.store(true, Ordering::SeqCst);
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
        app.append_events("a", Expected::Any, vec![garbled(&[])]).await.unwrap();
        app.caught_up().await.unwrap();
        app.stop().await;
        let (unit, _) = app.parked(notes.name, None, 1).await.unwrap().remove(0);
        notes.mended.now();
        store.deaf.store(true, Ordering::SeqCst);
        assert_eq!(app.retry(notes.name, &unit, false).await.unwrap(), Mended::Repaired, "{unit:?}");
        assert_eq!(app.parked(notes.name, None, 1).await.unwrap(), []);
    }
}

/// The error of a parked document is written again and again: it must not be as large as an event.
#[tokio::test]
async fn the_error_of_a_parked_document_is_of_bounded_size() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    let huge = leftfold::Json::of(&serde_json::json!({ "to": "ü".repeat(200_000) })).unwrap();
    app.append_events("a", Expected::Any, vec![NewEvent::new("noted", huge).unwrap()]).await.unwrap();
    app.caught_up().await.unwrap();
    let parked = app.parked("by_stream", None, 1).await.unwrap().remove(0).1;
    assert!(
        parked.error.starts_with("can't decode noted: data.to: invalid type: string"),
        "{}",
        parked.error
    );
    assert!(parked.error.len() < 10_000, "it has {} bytes", parked.error.len());
    let said = app.status().await.unwrap()[0].tally.last_error.clone().unwrap_or_default();
    assert!(said.len() < 10_000, "it has {} bytes", said.len());
    app.stop().await;
}
