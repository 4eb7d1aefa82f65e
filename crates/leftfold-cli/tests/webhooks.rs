//! Webhooks as receivers see them: a server that responds as the test says, and the built binary
//! that calls it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use leftfold_webhook::Signer;
use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized, leftfold, said};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PATIENCE: Duration = Duration::from_mins(1);
const OK: &str = "200 OK\r\n";

/// A received call.
#[derive(Clone, Debug)]
struct Call {
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Call {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        Some(Self { path, headers, body: String::from_utf8(body).ok()? })
    }

    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    fn data(&self) -> Value {
        serde_json::from_str::<Value>(&self.body).unwrap()["data"].clone()
    }

    /// Returns whether the signature is right and the timestamp is recent.
    fn is_signed(&self) -> bool {
        let sent: i64 = self.headers["webhook-timestamp"].parse().unwrap();
        let sent = jiff::Timestamp::from_second(sent).unwrap();
        let signature = Signer::new(SECRET).unwrap().sign(self.id(), sent, self.body.as_bytes());
        self.headers["webhook-signature"] == signature
    }
}

/// A receiver. It responds to the nth call as told: with a status and headers, or not at all.
struct Sink {
    address: SocketAddr,
    calls: Arc<(Mutex<Vec<Call>>, Condvar)>,
}

impl Sink {
    fn start(answer: impl Fn(usize) -> Option<&'static str> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sink = Self { address: listener.local_addr().unwrap(), calls: Arc::default() };
        let calls = Arc::clone(&sink.calls);
        std::thread::spawn(move || {
            // Calls without a response stay open.
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(call) = Call::read(&stream) else { continue };
                let count = {
                    let mut calls = calls.0.lock().unwrap();
                    calls.push(call);
                    calls.len()
                };
                match answer(count - 1) {
                    Some(head) => {
                        let rest = "connection: close\r\ncontent-length: 5\r\n\r\nheard";
                        let _ = stream.write_all(format!("HTTP/1.1 {head}{rest}").as_bytes());
                    }
                    None => open.push(stream),
                }
                calls.1.notify_all();
            }
        });
        sink
    }

    /// Waits until the calls are as expected.
    #[track_caller]
    fn until(&self, what: &str, are: impl Fn(&[Call]) -> bool) -> Vec<Call> {
        let calls = self.calls.0.lock().unwrap();
        let (calls, waited) = self.calls.1.wait_timeout_while(calls, PATIENCE, |calls| !are(calls)).unwrap();
        assert!(!waited.timed_out(), "{what}: {calls:#?}");
        calls.clone()
    }
}

/// Creates a directory whose file has a reaction with these lines.
fn reacting(url: &str, more: &str) -> tempfile::TempDir {
    let directory = initialized();
    let reaction = format!(
        "[[reaction]]\nname = \"cart-filled\"\non = \"carts\"\nurl = \"{url}\"\nsecret = \"{SECRET}\"\n{more}\n\n[[projection]]"
    );
    change(directory.path(), "[[projection]]", &reaction);
    directory
}

/// Creates such a directory, where the sink may be called.
fn calling(sink: &Sink, more: &str) -> tempfile::TempDir {
    reacting(&format!("http://{}/hooks", sink.address), &format!("allow = [\"127.0.0.0/8\"]\n{more}"))
}

#[track_caller]
fn append(daemon: &Daemon, stream: &str, events: &Value) {
    let (status, body) =
        daemon.send("POST", &format!("/streams/{stream}"), &[JSON], &events.to_string()).unwrap();
    assert_eq!(status, 201, "{body}");
}

fn opened() -> Value {
    json!({ "type": "cart-opened", "data": { "client": "ann" }, "time": "2026-01-01T10:00:00Z" })
}

fn added(quantity: u32) -> Value {
    json!({ "type": "item-added", "data": { "product": "shoes", "quantity": quantity } })
}

/// Waits until the task of a document is as expected.
#[track_caller]
fn task(daemon: &Daemon, document: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let tasks = daemon.get("/tasks");
        let found = tasks["tasks"].as_array().unwrap().iter().find(|task| task["document"] == document);
        if let Some(task) = found.filter(|task| is(task)) {
            return task.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {tasks:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_call_is_signed_and_made_again_under_its_id_until_it_is_heard() {
    let sink = Sink::start(|call| Some(if call == 0 { "500 Oh\r\n" } else { OK }));
    let directory = calling(
        &sink,
        "when = { items = { \"$gte\" = 2 } }\nwatch = [\"items\"]\nretry = { every = \"100ms\" }",
    );
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-0", &json!([opened(), added(1)]));
    append(&daemon, "cart-1", &json!([opened(), added(2)]));
    let calls = sink.until("it is called twice", |calls| calls.len() == 2);
    assert_eq!(calls[0].id(), calls[1].id(), "it is the same message");
    let message: Value = serde_json::from_str(&calls[1].body).unwrap();
    assert_eq!(message["type"], "cart-filled");
    assert!(message["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{message}");
    let document = json!({ "client": "ann", "items": 2, "opened": "2026-01-01T10:00:00Z" });
    let data = json!({ "collection": "carts", "id": "cart-1", "document": document });
    assert_eq!(message["data"], data);
    let task = task(&daemon, "cart-1", "it is done", |task| task["state"] == "done");
    assert!(task.to_string().contains("the response is 500: heard"), "{task}");
    // Another state of the document is another message. A document that does not match causes none.
    append(&daemon, "cart-1", &added(3));
    let calls = sink.until("it is called again", |calls| calls.len() == 3);
    assert_ne!(calls[2].id(), calls[1].id());
    assert_eq!(calls[2].data()["document"]["items"], 5);
    for call in &calls {
        assert!(call.is_signed() && call.path == "/hooks", "{call:#?}");
    }
}

#[test]
fn who_asks_to_come_back_later_is_called_later() {
    let sink = Sink::start(|call| Some(if call == 0 { "429 Later\r\nretry-after: 1\r\n" } else { OK }));
    // A failure would not be retried.
    let directory = calling(&sink, "retry = { attempts = 1 }");
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-1", &opened());
    let calls = sink.until("it is called again", |calls| calls.len() == 2);
    assert_eq!(calls[0].id(), calls[1].id());
    let task = task(&daemon, "cart-1", "it is done", |task| task["state"] == "done");
    assert_eq!(task["attempts"], 1, "the first one does not count: {task}");
    assert_eq!(task["history"][0]["outcome"], "deferred", "{task}");
    let reaction = &daemon.get("/reactions")["reactions"][0];
    assert!(reaction["throttled"].is_string(), "all the others had to wait, too: {reaction}");
}

#[test]
fn who_is_gone_is_not_called_until_somebody_resumes_it() {
    let sink = Sink::start(|call| Some(if call == 0 { "410 Gone\r\n" } else { OK }));
    let directory = calling(&sink, "");
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-1", &opened());
    task(&daemon, "cart-1", "it is put off", |task| task["history"][0]["outcome"] == "deferred");
    let reaction = daemon.get("/reactions")["reactions"][0].clone();
    assert_eq!(reaction["paused"], true, "{reaction}");
    let why = reaction["paused_because"].as_str().unwrap();
    assert!(
        why.contains("410") && why.contains(&sink.address.to_string()) && !why.contains("/hooks"),
        "{why}"
    );
    let counted = leftfold(directory.path(), &["tasks", "count", "--store", "leftfold.db"]);
    assert!(said(&counted).contains("paused: calling http"), "{}", said(&counted));
    append(&daemon, "cart-2", &opened());
    task(&daemon, "cart-2", "it waits", |task| task["state"] == "pending");
    // Also in another process.
    drop(daemon);
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-3", &opened());
    task(&daemon, "cart-3", "it waits", |task| task["state"] == "pending");
    assert_eq!(sink.until("nothing", |_| true).len(), 1, "nobody was called meanwhile");
    assert_eq!(daemon.send("POST", "/reactions/cart-filled/resume", &[], "").unwrap().0, 200);
    let calls = sink.until("all are called", |calls| calls.len() == 4);
    let ids: BTreeSet<_> = calls.iter().map(|call| call.data()["id"].to_string()).collect();
    assert_eq!(ids.len(), 3, "{calls:#?}");
    assert_eq!(calls.iter().filter(|call| call.id() == calls[0].id()).count(), 2, "{calls:#?}");
}

#[test]
fn redirects_are_not_followed() {
    let sink = Sink::start(|_| Some("307 There\r\nlocation: /there\r\n"));
    let directory = calling(&sink, "retry = { attempts = 1 }");
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-1", &opened());
    let task = task(&daemon, "cart-1", "it has failed", |task| task["state"] == "failed");
    assert!(task["error"].as_str().unwrap().contains("redirects are not followed"), "{task}");
    let calls = sink.until("nothing", |_| true);
    assert!(calls.len() == 1 && calls[0].path == "/hooks", "{calls:#?}");
}

#[test]
fn what_is_not_public_is_not_called_unless_it_is_allowed() {
    let sink = Sink::start(|_| Some(OK));
    let url = format!("http://localhost:{}/hooks", sink.address.port());
    let directory = reacting(&url, "retry = { attempts = 1 }");
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-1", &opened());
    let task = task(&daemon, "cart-1", "it has failed", |task| task["state"] == "failed");
    let error = task["error"].as_str().unwrap();
    assert!(error.contains("localhost is ") && error.contains("allow = ["), "{error}");
    assert!(sink.until("nothing", |_| true).is_empty());
}

#[test]
fn mistakes_are_named() {
    let url = "https://shop.example/hooks";
    for (from, to, expected) in [
        (url, "https://127.0.0.1/hidden", "reaction cart-filled: url: "),
        (url, "http://1.1.1.1/hidden", "must be called by https"),
        (url, "shop.example/hidden", "https://shop.example/hooks"),
        (SECRET, "whsec_hidden", "reaction cart-filled: secret: "),
        ("on = \"carts\"", "on = \"crats\"", "no projection is named \"crats\"; there are: carts"),
        ("name = \"cart-filled\"", "name = \"cart filled\"", "name of a reaction"),
        ("concurrency = 1", "concurrency = 0", "at least 1"),
        ("concurrency = 1", "when = { items = { \"$near\" = 1 } }", "$near"),
        ("concurrency = 1", "allow = [\"here\"]", "allowed network"),
    ] {
        let directory = reacting(url, "concurrency = 1");
        change(directory.path(), from, to);
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{to}: {said}");
            assert!(said.contains(expected) && !said.contains("hidden"), "{to}: {said}");
        }
    }
    let directory = reacting(url, "");
    let file = directory.path().join("leftfold.toml");
    let output = leftfold(directory.path(), &["check"]);
    assert!(said(&output).contains("1 projection and 1 reaction can run"), "{}", said(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    let twice = text.split("[[projection]]").next().unwrap().split("[[reaction]]").nth(1).unwrap().to_owned();
    std::fs::write(file, format!("{text}\n[[reaction]]{twice}")).unwrap();
    let output = leftfold(directory.path(), &["check"]);
    assert!(said(&output).contains("two reactions have this name"), "{}", said(&output));
}

#[test]
fn what_init_shows_can_be_said() {
    let directory = initialized();
    let file = directory.path().join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, shown) = text.split_once("# [[reaction]]\n").unwrap();
    let shown: Vec<_> = shown.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let text = format!("{before}[[reaction]]\n{}\n", shown.join("\n"));
    std::fs::write(file, text.replace("${HOOK_SECRET}", SECRET)).unwrap();
    let output = leftfold(directory.path(), &["check"]);
    assert!(said(&output).contains("1 projection and 1 reaction can run"), "{}", said(&output));
}

/// The daemon dies while it waits for a response that never arrives, with other calls pending.
#[test]
fn each_is_called_however_the_daemon_dies() {
    let sink = Sink::start(|call| (call > 0).then_some(OK));
    let directory = calling(&sink, "concurrency = 1");
    let carts: BTreeSet<_> = (0..5).map(|cart| format!("cart-{cart}")).collect();
    let first = {
        let daemon = Daemon::start(directory.path());
        for cart in &carts {
            append(&daemon, cart, &opened());
        }
        let first = sink.until("one is called", |calls| calls.len() == 1);
        daemon.signal("-KILL");
        first[0].clone()
    };
    let _daemon = Daemon::start(directory.path());
    let heard = |calls: &[Call]| -> BTreeSet<String> {
        calls[1..].iter().map(|call| call.data()["id"].as_str().unwrap().to_owned()).collect()
    };
    let calls = sink.until("all are heard", |calls| heard(calls) == carts);
    let again = calls[1..].iter().find(|call| call.data()["id"] == first.data()["id"]).unwrap();
    assert_eq!(again.id(), first.id(), "it is recognised");
}

/// After one signal, the daemon lets handlers finish. After a second one it does not, and their
/// tasks run again.
#[test]
fn a_second_signal_ends_it_at_once_and_loses_nothing() {
    let sink = Sink::start(|count| (count > 0).then_some(OK));
    let directory = calling(&sink, "");
    let mut daemon = Daemon::start(directory.path());
    append(&daemon, "cart-1", &json!([opened(), added(3)]));
    sink.until("a call that is not answered", |calls| calls.len() == 1);
    daemon.signal("-TERM");
    while TcpStream::connect(daemon.address).is_ok() {
        std::thread::yield_now();
    }
    assert!(daemon.process.try_wait().unwrap().is_none(), "it waits for its handler");
    daemon.signal("-INT");
    assert_eq!(daemon.process.wait().unwrap().code(), Some(130));
    let _daemon = Daemon::start(directory.path());
    let calls = sink.until("the same call again", |calls| calls.len() == 2);
    assert_eq!((calls[0].id(), calls[0].data()), (calls[1].id(), calls[1].data()));
}

#[test]
fn each_secret_of_a_file_signs() {
    let sink = Sink::start(|_| Some(OK));
    let directory = calling(&sink, "");
    let secrets = format!("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n{SECRET}\n");
    std::fs::write(directory.path().join("hook.secret"), secrets).unwrap();
    change(directory.path(), &format!("\"{SECRET}\""), "{ file = \"hook.secret\" }");
    let daemon = Daemon::start(directory.path());
    append(&daemon, "cart-1", &opened());
    let calls = sink.until("it is called", |calls| calls.len() == 1);
    let signatures: Vec<_> = calls[0].headers["webhook-signature"].split(' ').map(str::to_owned).collect();
    assert_eq!(signatures.len(), 2);
    let mut call = calls[0].clone();
    call.headers.insert("webhook-signature".to_owned(), signatures[1].clone());
    assert!(call.is_signed(), "{call:#?}");
}
