//! Events that are requested from an HTTP endpoint.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;
use leftfold::sequence::{FromLog, Healer, Healing, Missing, Resupply};
use leftfold::testing::bad_json;
use leftfold::{Delivery, IngestAnswer, Memory, Policy, Revision, Sequencer, Sequences, StreamId};
use leftfold_sources::http::HttpResupplier;
use leftfold_sources::{Mapping, Message};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{BATCH, batch, serve};
use crate::common::{self, assert_right, event, event_with, story};

type Asked = Arc<Mutex<Vec<String>>>;

/// Starts an endpoint that serves events from a log, as the contract says.
async fn origin(log: Memory) -> (String, Asked) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let answer = move |RawQuery(query): RawQuery| async move {
        let query = query.unwrap_or_default();
        noted.lock().unwrap().push(query.clone());
        let value = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        let stream = StreamId::new(value("stream=").replace("%2F", "/")).unwrap();
        let revision = |name: &str| Revision(value(name).parse().unwrap());
        let missing = Missing { stream, after: revision("after="), through: revision("through=") };
        let events = FromLog(log).resupply(missing).await.unwrap();
        let wire = |delivery: Delivery| {
            json!({
                "specversion": "1.0", "id": delivery.entry.id, "source": "/shop", "type": delivery.entry.kind,
                "subject": delivery.stream, "sequence": delivery.revision, "data": delivery.entry.data,
            })
        };
        let events: Vec<_> = events.into_iter().map(wire).collect();
        ([(CONTENT_TYPE, BATCH)], Value::from(events).to_string())
    };
    let address = serve(Router::new().route("/events", get(answer))).await;
    (format!("http://{address}/events"), asked)
}

async fn ingested(store: &Memory, messages: Vec<Message>) -> Vec<IngestAnswer> {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let deliveries = messages.iter().map(|message| Mapping::default().map(message, now).unwrap()).collect();
    Sequencer::new(store.clone()).ingest(Policy::Contiguous, deliveries).await.unwrap()
}

#[tokio::test]
async fn missing_events_are_requested_from_the_origin() {
    let (whole, holed) = (Memory::default(), Memory::default());
    ingested(&whole, story(3, 40)).await;
    let some = story(3, 40).into_iter().enumerate().filter(|(number, _)| number % 7 != 3 || *number > 110);
    ingested(&holed, some.map(|(_, message)| message).collect()).await;
    let (url, asked) = origin(whole).await;
    let resupplier = HttpResupplier::new(&format!("{url}?tenant=a#part")).unwrap();
    let healing =
        Healing { age: Duration::ZERO, again: (Duration::ZERO, Duration::ZERO), ..Healing::default() };
    let healer = Healer::new(Sequencer::new(holed.clone()), resupplier, healing);
    assert!(healer.heal().await.unwrap() > 0);
    assert_right(&holed, 3, 40).await;
    // The lost events arrive late, as duplicates.
    let late = ingested(&holed, story(3, 40)).await;
    assert!(late.iter().all(|answer| matches!(answer, IngestAnswer::Duplicate(_))), "{late:?}");
    let asked = asked.lock().unwrap();
    assert!(asked[0].starts_with("tenant=a&stream=cart-1&after="), "{asked:?}");
}

/// A resupplier can't bring JSON into the log that HTTP would refuse. The stream waits, and says
/// for what.
#[tokio::test]
async fn resupplied_json_that_breaks_a_rule_is_refused() {
    for bad in bad_json() {
        let store = Memory::default();
        ingested(&store, vec![event_with("gap", 2, "{}")]).await;
        let healing =
            Healing { age: Duration::ZERO, again: (Duration::ZERO, Duration::ZERO), ..Healing::default() };
        let origin = answering(200, BATCH, batch(&[event_with("gap", 1, &bad.text)])).await;
        let sequencer = Sequencer::new(store.clone());
        assert_eq!(Healer::new(sequencer.clone(), origin, healing).heal().await.unwrap(), 0, "{}", bad.name);
        let waiting = store.waiting(None, 10).await.unwrap();
        let trouble = waiting[0].1.waiting.as_ref().unwrap().trouble.clone().unwrap();
        assert!(bad.is_described_by(&trouble), "{}: {trouble}", bad.name);
        let mended = answering(200, BATCH, batch(&[event_with("gap", 1, "{}")])).await;
        assert_eq!(Healer::new(sequencer, mended, healing).heal().await.unwrap(), 1, "{}", bad.name);
        assert_eq!(common::count(&store).await, 2);
    }
}

async fn answering(status: u16, kind: &'static str, body: String) -> HttpResupplier {
    let answer = move || {
        let reply = (StatusCode::from_u16(status).unwrap(), [(CONTENT_TYPE, kind)], body.clone());
        async move { reply.into_response() }
    };
    let address = serve(Router::new().route("/", get(answer))).await;
    HttpResupplier::new(&format!("http://{address}")).unwrap()
}

fn some_missing() -> Missing {
    Missing { stream: StreamId::new("cart-1").unwrap(), after: Revision(1), through: Revision(3) }
}

#[tokio::test]
async fn bad_responses_of_an_origin_are_reported() {
    for status in [204, 404] {
        let nothing = answering(status, "text/plain", String::new()).await;
        assert!(nothing.resupply(some_missing()).await.unwrap().is_empty());
    }
    let why =
        async |resupplier: HttpResupplier| resupplier.resupply(some_missing()).await.unwrap_err().to_string();
    let failing = why(answering(500, BATCH, String::new()).await).await;
    assert!(failing.contains("requesting revisions 2 to 3 of cart-1 from http://"), "{failing}");
    assert!(failing.contains(": the response is 500"), "{failing}");
    assert!(
        why(answering(302, BATCH, String::new()).await).await.contains("302"),
        "redirects are not followed"
    );
    assert!(
        why(answering(200, "text/html", "<p>".into()).await)
            .await
            .contains("\"text/html\", not application/")
    );
    assert!(why(answering(200, BATCH, "{}".into()).await).await.contains("a JSON array"));
    assert!(why(answering(200, BATCH, "[1, {}]".into()).await).await.contains("2 of 2 events"));
    let large = answering(200, BATCH, batch(&story(1, 100))).await.max_bytes(1_000);
    assert!(why(large).await.contains("more than 1000 bytes"));
    let mixed = answering(200, BATCH, batch(&[Message::new("{}"), event(1, 2)])).await;
    assert_eq!(mixed.resupply(some_missing()).await.unwrap().len(), 1, "what is right is taken");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let patient = HttpResupplier::new(&url).unwrap().patience(Duration::from_millis(50));
    assert!(why(patient).await.contains("no response within 50ms"));
    drop(silent);
    let refused = HttpResupplier::new(&url).unwrap().resupply(some_missing()).await.unwrap_err();
    assert!(refused.is_transient() && refused.to_string().to_lowercase().contains("refused"), "{refused}");

    for bad in ["", "orders", "ftp://a/", "http://", "http://user:secret@host/", "http://a b/"] {
        let error = HttpResupplier::new(bad).unwrap_err().to_string();
        assert!(error.contains("URL of a resupplier") && !error.contains("secret"), "{bad}: {error}");
    }
    let with_token = HttpResupplier::new("http://host/?key=secret")
        .unwrap()
        .header("authorization", "Bearer secret")
        .unwrap();
    assert!(!format!("{with_token:?}").contains("secret"));
    assert!(HttpResupplier::new("http://host/").unwrap().header("a b", "x").is_err());
    assert!(HttpResupplier::new("http://host/").unwrap().header("a", "x\ny").is_err());
}
