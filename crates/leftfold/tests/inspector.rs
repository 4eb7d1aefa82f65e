//! An inspector sees, without their code, the same as the application that folds the projections.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use leftfold::fold::DocumentIds;
use leftfold::inspect::doctor::{Area, Finding, Severity};
use leftfold::inspect::{Inspector, ProjectionStatus};
use leftfold::{
    Collection, Event, Expected, Json, Leftfold, Memory, NewEvent, Projection, ReadError, Route, Unit, fold,
};
use serde_json::Value;

/// Counts events by stream, or by their data. An event whose data is `"poison"` fails.
struct Counted {
    name: &'static str,
    by_data: bool,
}

impl Projection for Counted {
    type Event = Value;
    type Document = u64;

    fn name(&self) -> &str {
        self.name
    }

    fn route(&self) -> Route<Value> {
        if self.by_data {
            return Route::by(|event: &Event<Value>| {
                DocumentIds::one(event.data["id"].as_str().unwrap_or_default())
            });
        }
        Route::Stream
    }

    fn fold(&self, count: Option<u64>, event: &Event<Value>) -> Result<Option<u64>, fold::Error> {
        if event.data["id"] == "poison" {
            return Err("it is poison".into());
        }
        Ok(Some(count.unwrap_or(0) + 1))
    }
}

fn event(data: &str) -> Vec<NewEvent> {
    vec![NewEvent::new("happened", Json::parse(data).unwrap()).unwrap()]
}

#[tokio::test(start_paused = true)]
async fn every_collection_is_seen_without_its_code() {
    let store = Memory::default();
    let inspector = Inspector::on(store.clone());
    assert!(inspector.collections().await.unwrap().is_empty(), "nothing has run");
    let app = Leftfold::on(store)
        .projection(Counted { name: "by_stream", by_data: false })
        .projection(Counted { name: "by_data", by_data: true })
        .start()
        .await
        .unwrap();
    for (stream, data) in [("a", r#"{"id":"x"}"#), ("b", r#"{"id":"poison"}"#), ("c", "{}")] {
        app.append_events(stream, Expected::Any, event(data)).await.unwrap();
    }
    app.caught_up().await.unwrap();
    app.stop().await;

    let collections = inspector.collections().await.unwrap();
    let names: Vec<_> = collections.iter().map(Collection::as_str).collect();
    assert_eq!(names, ["by_data", "by_stream"]);
    let mut known = app.status().await.unwrap();
    known.sort_by(|one, other| one.projection.cmp(&other.projection));
    for (seen, known) in inspector.status().await.unwrap().into_iter().zip(known) {
        assert_eq!((seen.version.as_str(), known.version.as_str()), ("", "1"));
        // The rest that differs is the activity of this process.
        let ProjectionStatus { version, events_per_second, figures, .. } = known.clone();
        assert_eq!(ProjectionStatus { version, events_per_second, figures, ..seen }, known);
    }
    for name in &collections {
        for most in [1, 10] {
            let mut after = None;
            loop {
                let page = inspector.parked(name, after.as_ref(), most).await.unwrap();
                assert_eq!(page, app.parked(name.as_str(), after.as_ref(), most).await.unwrap());
                let Some((last, _)) = page.last() else { break };
                after = Some(last.clone());
            }
        }
    }
    let parked = inspector.parked(&collections[0], None, 10).await.unwrap();
    assert!(matches!(&parked[..], [(Unit::Stream(_), _), (Unit::Document(_), _)]), "{parked:?}");
    assert_eq!(inspector.get::<u64>("by_stream", "a").await.unwrap(), Some(1));
    let bookmark = app.append_events("b", Expected::Any, event("{}")).await.unwrap().into_bookmark();
    let waiting = inspector.get::<u64>("by_stream", "b").at_least(bookmark).await;
    assert!(matches!(waiting, Err(ReadError::Parked { .. })), "{waiting:?}");

    let findings = inspector.doctor().await.unwrap();
    let by_subject = |mut findings: Vec<Finding>| {
        findings.sort_by_key(|finding| finding.subject.clone());
        findings
    };
    assert_eq!(by_subject(findings.clone()), by_subject(app.doctor().await.unwrap()));
    let wrong = findings.iter().filter(|finding| finding.area == Area::Projections);
    assert!(wrong.clone().count() >= 2 && wrong.clone().all(|one| one.severity == Severity::Wrong));
}
