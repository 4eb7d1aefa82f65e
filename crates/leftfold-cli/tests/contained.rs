//! Scripts that hang or are slow: everything else continues.
//!
//! Each test has a bystander: a client of another stream and another projection, whose requests
//! must succeed as usual.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized};

/// The maximum time of a bystander's request, even on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// Adds a projection with one function, for events of the type `told`.
fn add(directory: &Path, name: &str, function: &str) {
    let script = format!("export default {{ told: {function} }};\n");
    std::fs::write(directory.join(format!("projections/{name}.js")), script).unwrap();
    let file = directory.join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let more = format!(
        "\n[[projection]]\nname = \"{name}\"\nscript = \"projections/{name}.js\"\ntime_limit = \"300ms\"\n"
    );
    std::fs::write(file, text + &more).unwrap();
}

/// Starts a daemon that restarts at the same address, so that it can resume its work without
/// waiting for a lease.
fn start(directory: &Path) -> Daemon {
    let daemon = Daemon::start(directory);
    change(directory, "127.0.0.1:0", &daemon.address.to_string());
    drop(daemon);
    Daemon::start(directory)
}

#[track_caller]
fn append(daemon: &Daemon, stream: &str, events: &Value) -> String {
    let (status, body) =
        daemon.send("POST", &format!("/streams/{stream}"), &[JSON], &events.to_string()).unwrap();
    assert_eq!(status, 201, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned()
}

/// Appends events as the bystander and reads the result in time, `times` times.
#[track_caller]
fn bystand(daemon: &Daemon, cart: &str, times: u64) {
    for _ in 0..times {
        let begun = Instant::now();
        let opened = json!([{ "type": "cart-opened", "data": { "client": "ann" } }]);
        let token = append(daemon, cart, &opened);
        let document = daemon.get(&format!("/collections/carts/documents/{cart}?at_least={token}"));
        assert_eq!(document["client"], "ann");
        for path in ["/healthz", "/readyz"] {
            let (status, body) = daemon.send("GET", path, &[], "").unwrap();
            assert_eq!(status, 200, "{path}: {body}");
        }
        let took = begun.elapsed();
        assert!(took < SOON, "the bystander waited for {took:?}");
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let of: u32 = stat[stat.rfind(')')? + 2..].split(' ').nth(1)?.parse().ok()?;
        (of == parent).then_some(id)
    });
    all.collect()
}

/// Returns whether a process runs. A zombie does not.
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rfind(')').is_some_and(|end| !stat[end + 2..].starts_with(['Z', 'X']))
}

fn parked(daemon: &Daemon, projection: &str) -> Vec<String> {
    let parked = daemon.get(&format!("/collections/{projection}/parked"));
    let parked = parked["parked"].as_array().unwrap().iter();
    parked.map(|one| one["parked"]["error"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_event_whose_fold_never_comes_back_is_parked_and_freezes_nobody() {
    let directory = initialized();
    let directory = directory.path();
    // At least as many as there are cores.
    let searching = ["searching", "searching_too", "searching_as_well"];
    for name in searching {
        add(directory, name, "(_, { data }) => ({ has: data.text.includes(data.q) })");
    }
    add(directory, "joining", "() => ({ text: new Array(4294967295).join('') })");
    let mut daemon = start(directory);
    bystand(&daemon, "cart-1", 3);
    let hostile = json!([
        { "type": "told", "data": { "text": "a", "q": "a" } },
        { "type": "told", "data": { "text": "a".repeat(600_000), "q": format!("{}b", "a".repeat(300_000)) } },
    ]);
    append(&daemon, "hostile", &hostile);
    let harmless =
        append(&daemon, "harmless", &json!([{ "type": "told", "data": { "text": "ab", "q": "b" } }]));
    // The same holds after each restart, even while the event is being folded.
    for _ in 0..3 {
        bystand(&daemon, "cart-1", 5);
        let workers = children(daemon.process.id());
        daemon.process.kill().unwrap();
        daemon.process.wait().unwrap();
        eventually("its workers are gone, too", || workers.iter().all(|worker| !is_alive(*worker)));
        daemon = Daemon::start(directory);
    }
    bystand(&daemon, "cart-1", 5);
    for name in searching {
        eventually("the document is parked", || parked(&daemon, name).len() == 1);
        let errors = parked(&daemon, name);
        assert!(errors[0].contains("the script exceeded its time limit of 300ms"), "{errors:?}");
        let document = daemon.get(&format!("/collections/{name}/documents/harmless?at_least={harmless}"));
        assert_eq!(document, json!({ "has": true }));
    }
    eventually("all are parked", || parked(&daemon, "joining").len() == 2);
    bystand(&daemon, "cart-1", 5);
    daemon.signal("-TERM");
    let begun = Instant::now();
    assert!(daemon.process.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(30), "it stops when it is told to");
}

#[test]
fn slow_folds_get_on_though_their_process_is_killed_again_and_again() {
    const EVENTS: usize = 400;
    let directory = initialized();
    let directory = directory.path();
    let slow = "(doc = { n: 0 }) => { for (let i = 0, x = 0; i < 4e5; i++) x += i; return { n: doc.n + 1 } }";
    add(directory, "slow", slow);
    let mut daemon = start(directory);
    let told: Vec<_> = (0..EVENTS).map(|_| json!({ "type": "told", "data": {} })).collect();
    let token = append(&daemon, "long", &json!(told));
    let position = |daemon: &Daemon| {
        let status = daemon.get("/status");
        let slow = status["projections"].as_array().unwrap().iter().find(|one| one["projection"] == "slow");
        slow.unwrap()["position"]["0"].as_u64().unwrap_or(0)
    };
    // Kill it each time as soon as it has made progress, before the whole page is folded. Folding
    // the page takes several seconds, and a batch ends after one.
    let (mut before, mut rounds) = (0, 0);
    while rounds < 4 && before < EVENTS as u64 {
        eventually("it gets on", || position(&daemon) > before);
        before = position(&daemon);
        if rounds == 0 {
            assert!(before < EVENTS as u64, "a part of the page is committed, not all of it: {before}");
        }
        bystand(&daemon, "cart-1", 1);
        daemon.process.kill().unwrap();
        daemon.process.wait().unwrap();
        daemon = Daemon::start(directory);
        rounds += 1;
    }
    let read = format!("/collections/slow/documents/long?at_least={token}&wait=10s");
    eventually("all of it is folded", || daemon.send("GET", &read, &[], "").unwrap().0 == 200);
    assert_eq!(daemon.get(&read), json!({ "n": EVENTS }));
}
