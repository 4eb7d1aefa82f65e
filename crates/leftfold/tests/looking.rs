//! Inspection of one document: its past states, and the reasons why it is missing.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::sync::Arc;

use common::{Happened, Notes, caught_up, garbled, noted};
use jiff::Timestamp;
use leftfold::fold::FoldOptions;
use leftfold::inspect::{Absence, AsOf};
use leftfold::log::Entry;
use leftfold::{
    App, Backoff, Delivery, EventId, Expected, IngestAnswer, Kind, Leftfold, Memory, NewEvent, Policy,
    Revision, Sequencer, StreamId,
};
use serde_json::{Value, json};

async fn notes() -> App<Memory> {
    let options = FoldOptions { retry: Backoff::never(), ..FoldOptions::default() };
    let app = Leftfold::on(Memory::default()).options(options);
    app.projection(Notes::by_stream()).projection(Notes::by_content()).start().await.unwrap()
}

fn at(time: &str, event: &Happened) -> NewEvent {
    NewEvent::encode(event).unwrap().at(time.parse().unwrap())
}

#[tokio::test]
async fn a_document_is_shown_as_it_was() {
    let app = notes().await;
    for (stream, time, to) in [
        ("s", "2026-01-01T10:00:00Z", "x"),
        ("t", "2026-01-01T11:00:00Z", "x"),
        ("t", "2026-01-01T12:00:00Z", "y"),
        ("s", "2026-01-01T13:00:00Z", "x"),
    ] {
        app.append_events(stream, Expected::Any, vec![at(time, &noted(&[to]))]).await.unwrap();
    }
    caught_up(&app).await;
    let past = async |collection: &str, id: &str, moment: &str| -> Value {
        app.past(collection, id, &moment.parse::<AsOf>().unwrap()).await.unwrap().unwrap_or_default()
    };
    assert_eq!(past("by_stream", "s", "1").await, json!({ "events": ["s@1"] }));
    assert_eq!(past("by_stream", "s", "0").await, Value::Null);
    assert_eq!(past("by_stream", "s", "99").await, json!({ "events": ["s@1", "s@2"] }));
    let both = json!({ "events": ["s@1", "t@1"] });
    // An event of another document is also a valid moment.
    for moment in ["t@1", "t@2", "2026-01-01T11:00:00Z", "2026-01-01T12:59:59Z"] {
        assert_eq!(past("by_content", "x", moment).await, both, "{moment}");
    }
    assert_eq!(past("by_content", "x", "2026-01-01T09:00:00Z").await, Value::Null);
    for wrong in ["1", "t@3", "u@1"] {
        let error = app.past("by_content", "x", &wrong.parse().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    let mut explained = 0;
    assert!(app.explain_until("by_content", "x", &"t@1".parse().unwrap(), |_| explained += 1).await.unwrap());
    assert_eq!(explained, 2);
}

/// Partitions have no common order: each is read up to the moment.
#[tokio::test]
async fn a_moment_is_found_in_every_partition() {
    let app = Leftfold::on(Memory::new(4)).projection(Notes::by_content()).start().await.unwrap();
    for time in ["2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z"] {
        for stream in 0..20 {
            let event = at(time, &noted(&["x"]));
            app.append_events(&format!("s{stream}"), Expected::Any, vec![event]).await.unwrap();
        }
    }
    caught_up(&app).await;
    let moment: AsOf = "2026-01-01T11:00:00Z".parse().unwrap();
    let past = app.past("by_content", "x", &moment).await.unwrap().unwrap();
    let mut seen: Vec<_> = past["events"].as_array().unwrap().iter().map(Value::to_string).collect();
    seen.sort();
    let mut expected: Vec<_> = (0..20).map(|stream| format!("\"s{stream}@1\"")).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn what_is_missing_has_a_reason() {
    #[derive(serde::Serialize)]
    struct Unheard {}
    let app = notes().await;
    app.append("there", [noted(&["x"])]).await.unwrap();
    app.append("deleted", [noted(&[]), Happened::Cleared { to: vec![] }, Happened::Cleared { to: vec![] }])
        .await
        .unwrap();
    app.append("nothing", [Happened::Cleared { to: vec![] }]).await.unwrap();
    app.append("parked", [Happened::Poison { to: vec![] }]).await.unwrap();
    app.append("unheard", [Unheard {}]).await.unwrap();
    app.append_events("garbled", Expected::Any, vec![garbled(&["z"])]).await.unwrap();
    caught_up(&app).await;

    let sequencer = Sequencer::new(app.store().clone());
    let delivery = |stream: &str, revision: u64, to: &str| {
        let NewEvent { kind, data, .. } = NewEvent::encode(&noted(&[to])).unwrap();
        let id = EventId::new(format!("{stream}-{revision}-{to}")).unwrap();
        let entry = Arc::new(Entry { id, kind, time: Timestamp::UNIX_EPOCH, data, metadata: None });
        Delivery {
            stream: StreamId::new(stream).unwrap(),
            revision: Some(Revision(revision)),
            previous: None,
            entry,
        }
    };
    let deliveries = vec![delivery("held", 3, "late"), delivery("there", 1, "contested")];
    let answers = sequencer.ingest(Policy::Contiguous, deliveries).await.unwrap();
    assert!(matches!(answers[..], [IngestAnswer::Held { .. }, IngestAnswer::Conflict(_)]), "{answers:?}");

    let why = async |collection: &str, id: &str| -> Vec<String> {
        let reasons = app.why_not(collection, id).await.unwrap();
        reasons
            .iter()
            .map(|reason| {
                let said = reason.to_string();
                assert!(!said.is_empty());
                format!("{}: {said}", json!(reason)["why"].as_str().unwrap())
            })
            .collect()
    };
    for (collection, id, expected) in [
        ("by_stream", "there", &["there: "][..]),
        ("by_stream", "deleted", &["deleted: deleted: by cleared (deleted@2)"]),
        ("by_stream", "nothing", &["nothing: filtered: 1 of its events"]),
        ("by_stream", "parked", &["parked: parked: its event poison (parked@1) could not be folded: poison"]),
        ("by_stream", "unheard", &["filtered: filtered: the stream with its name has 1 events"]),
        ("by_stream", "held", &["held: held: held@3 arrived before held@1"]),
        ("by_stream", "nobody", &["never-routed: "]),
        // The parked stream may belong to any document.
        (
            "by_content",
            "there",
            &[
                "elsewhere: never routed: the stream with its name has 1 events, which the projection routes to other documents: x",
                "set-aside: maybe parked: the stream garbled",
            ],
        ),
        ("by_content", "late", &["set-aside: ", "held: held: held@3"]),
        ("by_content", "contested", &["set-aside: ", "in-conflict: in conflict: there@1"]),
    ] {
        let found = why(collection, id).await;
        assert_eq!(found.len(), expected.len(), "{collection} {id}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{collection} {id}: {found}");
        }
    }

    app.stop().await;
    app.append("new", [Unheard {}]).await.unwrap();
    let bookmark = app.append("new", [noted(&["fresh"])]).await.unwrap();
    for (collection, id) in [("by_stream", "new"), ("by_content", "fresh")] {
        let reasons = app.why_not(collection, id).await.unwrap();
        let Some(Absence::Behind { event, lag }) = reasons.first() else { panic!("{reasons:?}") };
        assert_eq!((event.position, *lag), (bookmark.position, 2), "{collection}");
    }
    assert_eq!(app.why_not("nothing", "x").await.unwrap_err().kind(), Kind::Invalid);
}
