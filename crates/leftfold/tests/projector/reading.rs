//! Reads, explanations and measurements.

use crate::common::{Happened, Notes, caught_up, garbled, noted};
use crate::fixtures::quick;
use leftfold::{Expected, Leftfold, Memory, NewEvent, ReadError};

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
    let mut steps = Vec::new();
    assert!(app.explain("by_content", "x", |step| steps.push(step)).await.unwrap());
    let steps: Vec<_> = steps
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
        steps,
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
