//! Posted and resupplied events, over real connections.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/faulty.rs"]
mod faulty;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;
use common::{assert_right, event, event_with, poison, rejected, shuffled, soon, story};
use faulty::{Fault, Faulty};
use leftfold::sequence::{
    FromLog, Healer, Healing, HoldingLimits, MAX_REJECTED, Missing, Rejected, Resupply,
};
use leftfold::testing::bad_json;
use leftfold::{
    Delivery, IngestAnswer, Kind, Memory, Policy, Revision, Sequencer, Sequences, StreamId, System,
};
use leftfold_sources::http::{HttpResupplier, Ingest, router};
use leftfold_sources::{Mapping, Message, Place};
use leftfold_sqlite::Sqlite;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

struct Reply {
    status: u16,
    head: String,
    body: Value,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

async fn send(to: SocketAddr, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let headers =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    let exchanged = async {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(format!("{request}{headers}\r\n").as_bytes()).await.unwrap();
        // The server may respond early to a large body and close the connection.
        let _ = stream.write_all(body).await;
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        String::from_utf8(reply).unwrap()
    };
    let reply = soon("a reply", exchanged).await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a reply, not {reply:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() }
}

async fn post(to: SocketAddr, kind: &str, body: impl AsRef<[u8]>) -> Reply {
    send(to, "POST", &[("content-type", kind)], body.as_ref()).await
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.content).into_owned()
}

fn batch(messages: &[Message]) -> String {
    format!("[{}]", messages.iter().map(text).collect::<Vec<_>>().join(","))
}

async fn on_memory() -> (SocketAddr, Memory) {
    let store = Memory::default();
    let router = router(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous);
    (serve(router).await, store)
}

#[tokio::test]
async fn each_event_gets_its_answer() {
    let (address, store) = on_memory().await;
    let first = post(address, "application/cloudevents+json; charset=utf-8", text(&event(1, 1))).await;
    assert_eq!(
        (first.status, first.body),
        (200, json!({ "answer": "appended", "bookmark": "0:1:1:cart-1" }))
    );
    assert_eq!(first.head.to_lowercase().matches("content-type: application/json").count(), 1);
    let again = post(address, STRUCTURED, text(&event(1, 1))).await;
    assert_eq!(
        (again.status, again.body),
        (200, json!({ "answer": "duplicate", "bookmark": "0:1:1:cart-1" }))
    );
    let early = post(address, STRUCTURED, text(&event(1, 3))).await;
    assert_eq!((early.status, early.body), (200, json!({ "answer": "held", "waiting_for": 2 })));
    let other = text(&event(1, 1)).replace(r#""number":1"#, r#""number":99"#);
    let conflict = post(address, STRUCTURED, other).await;
    assert_eq!((conflict.status, &conflict.body["answer"]), (200, &json!("conflict")));
    assert!(conflict.body["why"].as_str().unwrap().contains("another event with this revision"));

    let binary = [
        ("Content-Type", "application/json"),
        ("ce-specversion", "1.0"),
        ("CE-ID", "e-1-2"),
        ("ce-source", "/shop"),
        ("ce-type", "added"),
        ("ce-subject", "cart%2D1"),
        ("ce-sequence", "2"),
    ];
    let closing = send(address, "POST", &binary, br#"{"number":2}"#).await;
    assert_eq!(
        (closing.status, closing.body),
        (200, json!({ "answer": "appended", "bookmark": "0:2:2:cart-1" }))
    );
    let same = post(address, STRUCTURED, text(&event(1, 2))).await;
    assert_eq!(same.body["answer"], "duplicate", "it is the same in structured mode");
    let conflicts = store.conflicts(None, 10).await.unwrap();
    store.resolve(&conflicts[0], None).await.unwrap();
    assert_right(&store, 1, 3).await;
}

#[tokio::test]
async fn many_are_answered_one_by_one_and_what_is_wrong_is_kept() {
    let (address, store) = on_memory().await;
    let mut messages = story(2, 3);
    messages.insert(2, Message::new(r#"{"specversion":"1.0","id":"x"}"#));
    let reply = post(address, BATCH, batch(&messages)).await;
    assert_eq!(reply.status, 200);
    let answers: Vec<_> =
        reply.body.as_array().unwrap().iter().map(|told| told["answer"].as_str().unwrap()).collect();
    assert_eq!(answers, ["appended", "appended", "rejected", "appended", "appended", "appended", "appended"]);
    let kept = store.rejected(None, 10).await.unwrap();
    assert_eq!(reply.body[2]["id"], kept[0].id());
    assert_eq!(reply.body[2]["why"], kept[0].reason);
    assert_eq!((&kept[0].source[..], &kept[0].content[..]), ("http", &messages[2].content[..]));

    let lines: Vec<_> =
        (4..=6).rev().flat_map(|number| [text(&event(1, number)), text(&event(2, number))]).collect();
    let lines = format!("{}\r\n\nnot json\n{{\"cut\":", lines.join("\n"));
    let reply = post(address, "application/x-ndjson", lines).await;
    let answers = reply.body.as_array().unwrap().iter().map(|told| told["answer"].as_str().unwrap());
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert_eq!(answers.filter(|answer| *answer == "rejected").count(), 2);
    assert_right(&store, 2, 6).await;
    assert_eq!(rejected(&store).await.len(), 3);
    assert_eq!(post(address, BATCH, "[]").await.body, json!([]));
}

fn assert_problem(reply: &Reply, status: u16, kind: &str, detail: &str) {
    let Reply { head, body, .. } = reply;
    assert_eq!(reply.status, status, "{head}\n{body}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{head}");
    assert_eq!(
        (&body["status"], &body["type"]),
        (&json!(status), &json!(format!("urn:leftfold:problem:{kind}")))
    );
    assert!(body["detail"].as_str().unwrap().contains(detail), "{body}");
    assert!(body["title"].is_string());
}

#[tokio::test]
async fn what_is_wrong_is_said_as_a_problem() {
    let store = Memory::default();
    let ingest = Ingest::new(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous);
    let address = serve(ingest.max_bytes(2_000).max_events(5).router("/")).await;
    for poison in poison() {
        let reply = post(address, STRUCTURED, &poison.content).await;
        assert_problem(&reply, 400, "invalid-event", ": expected ");
    }
    let no_subject = post(address, STRUCTURED, text(&event(1, 1)).replace("subject", "subjekt")).await;
    assert_problem(
        &no_subject,
        400,
        "invalid-event",
        "\"subject\": expected it to be there, as the name of the stream",
    );
    assert_problem(
        &post(address, BATCH, r#"{"a":1}"#).await,
        400,
        "unreadable-body",
        "a JSON array of events",
    );
    assert_problem(&post(address, BATCH, "[1,").await, 400, "unreadable-body", "EOF");
    assert_problem(
        &post(address, STRUCTURED, "x".repeat(2_001)).await,
        413,
        "too-large",
        "at most 2000 bytes",
    );
    assert_problem(&post(address, BATCH, "[1,1,1,1,1,1]").await, 413, "too-large", "6 events");
    let plain = post(address, "application/json", text(&event(1, 1))).await;
    assert_problem(&plain, 415, "unsupported-type", "application/json");
    assert!(plain.header("accept-post").unwrap().contains(BATCH));
    assert_problem(&send(address, "POST", &[], b"{}").await, 415, "unsupported-type", "");
    assert_problem(&send(address, "GET", &[], b"").await, 405, "method-not-allowed", "");
    assert_eq!(common::count(&store).await, 0);
    assert!(store.rejected(None, 10).await.unwrap().is_empty(), "who was told keeps it");
}

#[tokio::test]
async fn no_room_is_said_with_when_to_try_again() {
    let store = Memory::default();
    let limits = HoldingLimits { stream_events: 2, ..HoldingLimits::default() };
    let sequencer = Sequencer::with(store.clone(), limits, Arc::new(System));
    let address = serve(router(sequencer, Mapping::default(), Policy::Contiguous)).await;
    let messages: Vec<_> =
        (2..=4).map(|number| event(1, number)).chain(story(2, 1).into_iter().skip(1)).collect();
    let reply = post(address, BATCH, batch(&messages)).await;
    assert_problem(&reply, 429, "full", "1 of 4 events were refused; send them again in 5 seconds");
    assert_eq!(reply.header("retry-after"), Some("5"));
    let answers: Vec<_> = reply.body["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| told["answer"].as_str().unwrap())
        .collect();
    assert_eq!(answers, ["held", "held", "refused", "appended"]);
    let one = post(address, STRUCTURED, text(&event(1, 4))).await;
    assert_problem(&one, 429, "full", "1 of 1");
    assert_eq!(post(address, STRUCTURED, text(&event(1, 1))).await.status, 200);
    assert_eq!(post(address, STRUCTURED, text(&event(1, 4))).await.status, 200);

    let filler = |number: u64| Rejected {
        source: "elsewhere".into(),
        reason: "it fills the list".into(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        attributes: [].into(),
        content: number.to_le_bytes().into(),
    };
    store.reject((0..MAX_REJECTED).map(filler).collect()).await.unwrap();
    let reply = post(address, BATCH, batch(&[Message::new("{}"), event(2, 2)])).await;
    assert_problem(&reply, 429, "full", "1 of 2");
    assert_eq!(
        (&reply.body["answers"][0]["answer"], &reply.body["answers"][1]["answer"]),
        (&json!("refused"), &json!("appended"))
    );
}

#[tokio::test]
async fn a_store_that_is_away_is_no_fault_of_the_event() {
    let store = Faulty::default();
    let address = serve(router(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous)).await;
    store.settle.lock().unwrap().extend([Fault::Before(Kind::Unavailable), Fault::Before(Kind::Unavailable)]);
    let reply = post(address, STRUCTURED, text(&event(1, 1))).await;
    assert_problem(&reply, 503, "store-unavailable", "the store fails");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_problem(
        &post(address, BATCH, batch(&story(1, 2))).await,
        503,
        "store-unavailable",
        "the store fails",
    );
    store.settle.lock().unwrap().push_back(Fault::After);
    assert_eq!(post(address, BATCH, batch(&story(1, 2))).await.status, 503);
    store.reject.lock().unwrap().push_back(Fault::Before(Kind::Unavailable));
    assert_eq!(post(address, BATCH, batch(&[Message::new("{}")])).await.status, 503);
    let again = post(address, BATCH, batch(&story(1, 2))).await;
    assert_eq!((again.status, &again.body[0]["answer"]), (200, &json!("duplicate")));
    store.settle.lock().unwrap().push_back(Fault::Before(Kind::Format));
    assert_problem(
        &post(address, STRUCTURED, text(&event(1, 3))).await,
        500,
        "store-failed",
        "the store fails",
    );
}

#[tokio::test]
async fn messages_of_another_shape_are_posted_as_they_are() {
    let store = Memory::default();
    let mapping = Mapping::fields(Place::attribute("x-cart"))
        .revision(Place::field("/v").unwrap())
        .kind(Place::value("added"));
    let address = serve(router(Sequencer::new(store.clone()), mapping.into(), Policy::Contiguous)).await;
    let headers = [("content-type", "application/json"), ("X-Cart", "cart-1"), ("authorization", "secret")];
    let reply = send(address, "POST", &headers, br#"{"v":1,"number":1}"#).await;
    assert_eq!(reply.body, json!({ "answer": "appended", "bookmark": "0:1:1:cart-1" }));
    assert_right(&store, 1, 1).await;
}

/// The whole way on SQLite, with several concurrent senders that send everything twice and cut
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_posts_to_documents() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("shop.db")).await.unwrap();
    let address = serve(router(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous)).await;
    let mut senders = tokio::task::JoinSet::new();
    for seed in 0..4 {
        senders.spawn(async move {
            for part in shuffled(story(5, 50), 40, seed).chunks(25) {
                let body = batch(part);
                let head = format!(
                    "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: {BATCH}\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let mut broken = TcpStream::connect(address).await.unwrap();
                broken.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                drop(broken);
                assert_eq!(post(address, BATCH, body).await.status, 200);
            }
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent.unwrap();
    }
    assert_right(&store, 5, 50).await;
}

/// The route refuses the same JSON as the log does, in each mode, and accepts valid events beside
/// it.
#[tokio::test]
async fn posted_json_that_breaks_a_rule_is_refused() {
    let (address, store) = on_memory().await;
    for (bad, number) in bad_json().into_iter().zip(1..) {
        let structured = event_with("bad", 1, &bad.text);
        assert_problem(&post(address, STRUCTURED, text(&structured)).await, 400, "invalid-event", bad.reason);
        let binary = [
            ("ce-specversion", "1.0"),
            ("ce-id", "b"),
            ("ce-source", "/"),
            ("ce-type", "t"),
            ("ce-subject", "bad"),
            ("ce-sequence", "1"),
        ];
        let reply = send(address, "POST", &binary, bad.text.as_bytes()).await;
        assert_problem(&reply, 400, "invalid-event", bad.reason);
        let reply = post(address, BATCH, batch(&[structured, event(1, number)])).await;
        assert_eq!((reply.status, &reply.body[0]["answer"]), (200, &json!("rejected")), "{}", bad.name);
        assert!(bad.is_described_by(reply.body[0]["why"].as_str().unwrap()), "{}", reply.body);
        assert_eq!(reply.body[1]["answer"], "appended", "{}", bad.name);
    }
    assert_right(&store, 1, bad_json().len() as u64).await;
    assert_eq!(common::count(&store).await, bad_json().len() as u64, "nothing else is in the log");
}

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
async fn what_is_missing_is_asked_from_the_origin() {
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
async fn bad_answers_of_an_origin_are_told() {
    for status in [204, 404] {
        let nothing = answering(status, "text/plain", String::new()).await;
        assert!(nothing.resupply(some_missing()).await.unwrap().is_empty());
    }
    let why =
        async |resupplier: HttpResupplier| resupplier.resupply(some_missing()).await.unwrap_err().to_string();
    let failing = why(answering(500, BATCH, String::new()).await).await;
    assert!(failing.contains("for revisions 2 to 3 of cart-1: it answered 500"), "{failing}");
    assert!(
        why(answering(302, BATCH, String::new()).await).await.contains("302"),
        "redirects are not followed"
    );
    assert!(
        why(answering(200, "text/html", "<p>".into()).await)
            .await
            .contains("\"text/html\", and application/")
    );
    assert!(why(answering(200, BATCH, "{}".into()).await).await.contains("no JSON array"));
    assert!(why(answering(200, BATCH, "[1, {}]".into()).await).await.contains("2 of 2 events"));
    let large = answering(200, BATCH, batch(&story(1, 100))).await.max_bytes(1_000);
    assert!(why(large).await.contains("more than 1000 bytes"));
    let mixed = answering(200, BATCH, batch(&[Message::new("{}"), event(1, 2)])).await;
    assert_eq!(mixed.resupply(some_missing()).await.unwrap().len(), 1, "what is right is taken");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let patient = HttpResupplier::new(&url).unwrap().patience(Duration::from_millis(50));
    assert!(why(patient).await.contains("no answer for 50ms"));
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
