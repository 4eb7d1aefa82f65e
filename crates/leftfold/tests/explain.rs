//! Explanations and past states of documents with very many events: in small parts, and with each
//! event folded once.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Happened, Notes, caught_up, garbled, noted};
use leftfold::fold::{DocumentIds, FoldOptions};
use leftfold::inspect::{Effect, Explained, Explanation, ExplanationCursor};
use leftfold::log::Limit;
use leftfold::{App, Backoff, Event, Expected, Json, Leftfold, Memory, NewEvent, Projection, Route, fold};
use serde::{Deserialize, Serialize};

/// Sums numbers in a document that also has large other content. One number fails.
#[derive(Clone, Default)]
struct Sums(Arc<AtomicU64>);

#[derive(Serialize, Deserialize)]
struct Sum {
    total: u64,
    events: u64,
    ballast: String,
    parts: Vec<u64>,
}

impl Projection for Sums {
    type Event = u64;
    type Document = Sum;

    fn name(&self) -> &'static str {
        "sums"
    }

    fn fold(&self, sum: Option<Sum>, event: &Event<u64>) -> Result<Option<Sum>, fold::Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let mut sum =
            sum.unwrap_or_else(|| Sum { total: 0, events: 0, ballast: "x".repeat(300), parts: vec![0; 10] });
        if event.data == 1_000_000_007 {
            return Err("this number is not liked".into());
        }
        sum.total += event.data;
        sum.events += 1;
        let part = usize::try_from(event.data).unwrap() % sum.parts.len();
        sum.parts[part] += 1;
        Ok(Some(sum))
    }
}

async fn append(app: &App<Memory>, stream: &str, numbers: impl IntoIterator<Item = u64>) {
    let numbers: Vec<_> = numbers.into_iter().collect();
    for numbers in numbers.chunks(10_000) {
        let event = |number| NewEvent::new("number", Json::of(number).unwrap()).unwrap();
        app.append_events(stream, Expected::Any, numbers.iter().map(event).collect()).await.unwrap();
    }
}

fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).unwrap().len()
}

async fn part(app: &App<Memory>, id: &str, after: Option<&ExplanationCursor>, limit: Limit) -> Explanation {
    app.explain_part("sums", id, None, after, limit).await.unwrap().unwrap()
}

/// Regression: each step kept the whole document. With 100,000 events of this one, that was 100 MB.
#[tokio::test]
async fn an_explanation_of_many_events_comes_in_small_parts() {
    const EVENTS: u64 = 100_000;
    let app = Leftfold::on(Memory::default()).projection(Sums::default()).start().await.unwrap();
    append(&app, "many", 0..EVENTS).await;
    caught_up(&app).await;

    let (mut explained, mut largest, mut bytes) = (0, 0, 0);
    let tell = |step: Explained| {
        explained += 1;
        let size = size(&step);
        (largest, bytes) = (largest.max(size), bytes + size);
    };
    assert!(app.explain("sums", "many", tell).await.unwrap());
    assert_eq!(explained, EVENTS);
    assert!(largest < 8_000, "the step that creates the document: {largest} bytes");
    assert!(bytes < 60 << 20, "{bytes} bytes in all");

    let limit = Limit { events: 100_000, bytes: 1 << 20 };
    let first = part(&app, "many", None, limit).await;
    let second = part(&app, "many", first.next.as_ref(), limit).await;
    for part in [&first, &second] {
        assert!(part.next.is_some() && size(part) < (1 << 20) + largest, "{} bytes", size(part));
    }
    let revision = |step: &Explained| step.event.revision.0;
    assert_eq!(revision(first.events.last().unwrap()) + 1, revision(&second.events[0]));
    app.stop().await;
}

/// A document of a megabyte costs a megabyte for each event, so a part must also end by that
/// measure.
#[tokio::test]
async fn parts_of_large_documents_are_short() {
    #[derive(Clone)]
    struct Large;
    impl Projection for Large {
        type Event = u64;
        type Document = Vec<String>;
        fn name(&self) -> &'static str {
            "sums"
        }
        fn fold(
            &self,
            _: Option<Vec<String>>,
            event: &Event<u64>,
        ) -> Result<Option<Vec<String>>, fold::Error> {
            let lines = (0..1_000).map(|line| format!("{line} {} {}", event.data, "x".repeat(4_000)));
            Ok(Some(lines.collect()))
        }
    }
    let app = Leftfold::on(Memory::default()).projection(Large).start().await.unwrap();
    append(&app, "large", 0..40).await;
    caught_up(&app).await;
    let all = part(&app, "large", None, Limit::default()).await;
    assert!(all.events.len() < 20 && all.next.is_some(), "{} events", all.events.len());
    assert!(size(&all) < 1 << 20, "{} bytes", size(&all));
    assert!(all.events[1].left_out > 0, "of a thousand changes a hundred are shown");
}

/// Parts of any size add up to the whole: with failures, parked streams, and concurrent events.
#[tokio::test]
async fn parts_fit_together() {
    let options = FoldOptions { retry: Backoff::never(), ..FoldOptions::default() };
    let app =
        Leftfold::on(Memory::new(3)).options(options).projection(Notes::by_content()).start().await.unwrap();
    for round in 0..5 {
        for stream in ["a", "b", "c", "d", "e"] {
            app.append(stream, [noted(&["x"]), noted(&["y"]), noted(&["x", "y"])]).await.unwrap();
        }
        if round == 2 {
            app.append_events("b", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        }
        if round == 3 {
            app.append("e", [Happened::Poison { to: vec!["y".into()] }]).await.unwrap();
        }
    }
    caught_up(&app).await;
    for id in ["x", "y"] {
        let mut whole = Vec::new();
        assert!(app.explain("by_content", id, |step| whole.push(step)).await.unwrap());
        let has_failed = whole.iter().any(|step| matches!(step.effect, Effect::Failed(_)));
        assert!(whole.len() > 40 && whole.iter().any(|step| step.effect == Effect::Waiting));
        assert_eq!(has_failed, id == "y");
        for events in [1, 2, 7, 100] {
            let (mut parts, mut next) = (Vec::new(), None::<ExplanationCursor>);
            loop {
                let limit = Limit { events, bytes: usize::MAX };
                let part =
                    app.explain_part("by_content", id, None, next.as_ref(), limit).await.unwrap().unwrap();
                assert!(part.events.len() <= events);
                parts.extend(part.events);
                let Some(cursor) = part.next else { break };
                next = Some(cursor.to_string().parse().unwrap());
                if parts.len() == 2 {
                    // An explanation that begins now includes this event; one that has begun does
                    // not.
                    app.append("f", [noted(&["x", "y"])]).await.unwrap();
                    caught_up(&app).await;
                }
            }
            let same = parts.iter().zip(&whole).filter(|(part, whole)| part == whole).count();
            assert_eq!((same, parts.len()), (whole.len(), whole.len()), "{id} in parts of {events}");
            whole.clear();
            app.explain("by_content", id, |step| whole.push(step)).await.unwrap();
        }
    }
    // A cursor can't extend beyond the folded events.
    for odd in ["0:1~0:99999999,1:99999999,7:5", "2:99999999~0:1", "9:9!0:1,1:1"] {
        let cursor = odd.parse().unwrap();
        app.explain_part("by_content", "x", None, Some(&cursor), Limit::default()).await.unwrap();
    }
    assert!(app.explain_part("by_content", "nowhere", None, None, Limit::default()).await.unwrap().is_none());
}

/// Regression: it went through the explanation, which writes and compares the document after each
/// event.
#[tokio::test]
async fn a_document_as_it_was_costs_one_fold() {
    const EVENTS: u64 = 120_000;
    let sums = Sums::default();
    let app = Leftfold::on(Memory::default()).projection(sums.clone()).start().await.unwrap();
    append(&app, "many", 0..EVENTS).await;
    append(&app, "failing", [1, 2, 3, 1_000_000_007, 5]).await;
    caught_up(&app).await;
    let past = async |id: &str, moment: &str| {
        let before = sums.0.load(Ordering::Relaxed);
        let past = app.past("sums", id, &moment.parse().unwrap()).await.unwrap().unwrap();
        (past["events"].as_u64().unwrap(), sums.0.load(Ordering::Relaxed) - before)
    };
    assert_eq!(past("many", "110000").await, (110_000, 110_000));
    assert_eq!(past("many", &EVENTS.to_string()).await, (EVENTS, EVENTS));
    assert_eq!(past("failing", "2").await, (2, 2));
    assert_eq!(
        past("failing", "5").await,
        (3, 7),
        "as it was before the event that fails, which takes a second fold"
    );
    app.stop().await;
}

/// Regression: comparing each id with all others took minutes.
#[tokio::test]
async fn one_event_reaches_very_many_documents() {
    const DOCUMENTS: usize = 200_000;
    struct Broadcast;
    impl Projection for Broadcast {
        type Event = u64;
        type Document = u64;
        fn name(&self) -> &'static str {
            "broadcast"
        }
        fn route(&self) -> Route<u64> {
            // Each id comes twice.
            Route::by(|event| match event.data {
                0 => DocumentIds::many((0..2 * DOCUMENTS).map(|number| format!("d{}", number % DOCUMENTS))),
                _ => DocumentIds::one("bystander"),
            })
        }
        fn fold(&self, count: Option<u64>, _: &Event<u64>) -> Result<Option<u64>, fold::Error> {
            Ok(Some(count.unwrap_or_default() + 1))
        }
    }
    let app = Leftfold::on(Memory::default()).projection(Broadcast).start().await.unwrap();
    append(&app, "s", [1, 0, 1]).await;
    tokio::time::timeout(Duration::from_mins(1), app.caught_up()).await.expect("it is linear").unwrap();
    assert_eq!(app.get(Broadcast, "bystander").await.unwrap(), Some(2));
    for id in ["d0", "d199999"] {
        assert_eq!(app.get(Broadcast, id).await.unwrap(), Some(1), "{id}");
    }
    app.stop().await;
}
