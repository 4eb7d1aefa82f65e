//! Reloads of the daemon's file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use self::served::{Daemon, JSON, Logged, change, initialized, leftfold, said};

fn opened() -> Value {
    json!({ "type": "cart-opened", "data": { "client": "ann" } })
}

fn added() -> Value {
    json!({ "type": "item-added", "data": { "product": "shoes", "quantity": 2 } })
}

fn script(directory: &Path, items: &str) {
    let script = format!(
        "export default {{\n  \"cart-opened\": (_, event) => ({{ client: event.data.client, items: 0 }}),\n  \
         \"item-added\": (cart, event) => ({{ ...cart, items: {items} }}),\n}};\n"
    );
    std::fs::write(directory.join("projections/carts.js"), script).unwrap();
}

#[test]
fn changed_scripts_are_taken_up() {
    let directory = initialized();
    let directory = directory.path();
    let mut logged = Logged::start(directory);
    logged.append("cart-1", &opened());
    let token = logged.append("cart-1", &added());
    assert_eq!(logged.document("carts", "cart-1", &token)["items"], 2);

    script(directory, "cart.items + 100");
    logged.reload(" reloaded");
    let token = logged.append("cart-1", &added());
    assert_eq!(logged.document("carts", "cart-1", &token)["items"], 102, "by the new script");
    let status = logged.daemon.get("/status");
    assert_eq!(status["projections"][0]["rebuild_needed"], true, "{status:#}");

    // The daemon rebuilds documents by itself, if so configured.
    change(directory, "[server]", "[server]\nrebuild_on_change = true");
    logged.reload(" reloaded");
    let rebuilt = || {
        let status = logged.daemon.get("/status");
        status["projections"][0]["rebuild_needed"] == false
    };
    while !rebuilt() {
        std::thread::yield_now();
    }
    assert_eq!(logged.document("carts", "cart-1", &token)["items"], 200);
}

#[test]
fn what_can_not_run_changes_nothing() {
    let directory = initialized();
    let directory = directory.path();
    let mut logged = Logged::start(directory);
    logged.append("cart-1", &opened());
    std::fs::write(directory.join("projections/carts.js"), "export default {\n  a: (\n").unwrap();
    let line = logged.reload("not reloaded");
    assert!(line.contains("carts.js") && line.contains("SyntaxError"), "{line}");
    for (from, to, expected) in [
        ("[server]", "[sever]", "sever"),
        ("sqlite:leftfold.db", "sqlite:other.db", "store.url"),
        ("127.0.0.1:0", "127.0.0.1:1", "server.listen"),
    ] {
        script(directory, "cart.items + 100");
        change(directory, from, to);
        let line = logged.reload("not reloaded");
        assert!(line.contains(expected), "{line}");
        change(directory, to, from);
    }
    let token = logged.append("cart-1", &added());
    assert_eq!(logged.document("carts", "cart-1", &token)["items"], 2, "by the script there was");
    logged.daemon.signal("-TERM");
    assert!(logged.daemon.process.wait().unwrap().success());
}

/// The same worker continues to fold a projection with an unchanged script; a changed script gets
/// another worker.
#[test]
fn a_projection_whose_script_is_the_same_goes_on() {
    let directory = initialized();
    let directory = directory.path();
    let more = "\n[[projection]]\nname = \"others\"\nscript = \"projections/others.js\"\n";
    let file = directory.join("leftfold.toml");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + more).unwrap();
    let others = |items: &str| {
        let script = format!("export default {{ \"cart-opened\": () => ({{ items: {items} }}) }};\n");
        std::fs::write(directory.join("projections/others.js"), script).unwrap();
    };
    others("1");
    let mut logged = Logged::start(directory);
    let commits = |logged: &Logged, name: &str| -> u64 {
        let begin = format!("leftfold_commit_seconds_count{{projection=\"{name}\"}} ");
        let (_, metrics) = logged.daemon.send("GET", "/metrics", &[], "").unwrap();
        metrics.lines().find_map(|line| line.strip_prefix(&begin)).expect(&metrics).parse().unwrap()
    };
    for cart in ["cart-1", "cart-2"] {
        let token = logged.append(cart, &opened());
        logged.document("carts", cart, &token);
        assert_eq!(logged.document("others", cart, &token)["items"], 1);
    }
    let before = commits(&logged, "carts");
    assert!(before >= 2 && commits(&logged, "others") >= 2);
    others("2");
    logged.reload(" reloaded");
    assert_eq!((commits(&logged, "carts"), commits(&logged, "others")), (before, 0));
    let token = logged.append("cart-3", &opened());
    logged.document("carts", "cart-3", &token);
    assert_eq!(logged.document("others", "cart-3", &token)["items"], 2);
    assert_eq!(commits(&logged, "carts"), before + 1);

    // A script with other limits counts as changed.
    change(
        directory,
        "script = \"projections/others.js\"",
        "script = \"projections/others.js\"\ntime_limit = \"3s\"",
    );
    logged.reload(" reloaded");
    assert_eq!((commits(&logged, "carts"), commits(&logged, "others")), (before + 1, 0));
}

/// Requests in progress are finished; open connections get the new configuration.
#[test]
fn connections_stay_and_meet_what_is_there() {
    let directory = initialized();
    let directory = directory.path();
    let mut logged = Logged::start(directory);
    let token = logged.append("cart-1", &opened());

    let mut kept = BufReader::new(TcpStream::connect(logged.daemon.address).unwrap());
    let mut ask = |path: &str| -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        kept.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            assert!(kept.read_line(&mut line).unwrap() > 0, "the connection was closed");
            let line = line.trim_end().to_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.split(' ').next().unwrap().parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        kept.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    };
    let clients = format!("/collections/clients/documents/ann?at_least={token}");
    assert_eq!(ask(&clients).0, 404);

    let mut followed = BufReader::new(TcpStream::connect(logged.daemon.address).unwrap());
    let request =
        "GET /log HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nconnection: close\r\n\r\n";
    followed.get_mut().write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    while !line.contains("cart-opened") {
        line.clear();
        assert!(followed.read_line(&mut line).unwrap() > 0);
    }

    std::fs::write(
        directory.join("projections/clients.js"),
        "export const route = (event) => event.data.client;\n\
         export default { \"cart-opened\": (client) => ({ carts: (client?.carts ?? 0) + 1 }) };\n",
    )
    .unwrap();
    let another = "[[projection]]\nname = \"clients\"\nscript = \"projections/clients.js\"\n\n[[projection]]";
    change(directory, "[[projection]]", another);
    logged.reload(" reloaded");
    assert_eq!(ask(&clients), (200, json!({ "carts": 1 }).to_string()));
    // An event stream ends, and its client resumes from its last place.
    let mut rest = String::new();
    followed.read_to_string(&mut rest).unwrap();

    let made = leftfold(directory, &["--json", "token", "new", "shop"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{}", said(&made)));
    let hash = made["token"]["sha256"].as_str().unwrap();
    let token =
        format!("[[token]]\nname = \"shop\"\nsha256 = \"{hash}\"\nscopes = [\"read\"]\n\n[[projection]]");
    change(directory, "[[projection]]", &token);
    logged.reload(" reloaded");
    assert_eq!(ask(&clients).0, 401);
}

/// A completed request is not processed again after its process was killed.
#[test]
fn a_key_is_remembered_by_who_was_killed() {
    let directory = initialized();
    let directory = directory.path();
    let live =
        |daemon: &Daemon| daemon.get("/status")["projections"][0]["generations"]["live"]["number"].clone();
    let daemon = Daemon::start(directory);
    assert_eq!(daemon.send("POST", "/collections/carts/rebuild", &[JSON], "{}").unwrap().0, 202);
    while live(&daemon) == 0 {
        std::thread::yield_now();
    }
    let key = ("idempotency-key", "undo-1");
    let first = daemon.send("POST", "/collections/carts/undo", &[JSON, key], "").unwrap();
    assert_eq!((first.0, live(&daemon)), (200, json!(0)), "{first:?}");
    drop(daemon);
    let daemon = Daemon::start(directory);
    assert_eq!(daemon.send("POST", "/collections/carts/undo", &[JSON, key], "").unwrap(), first);
    assert_eq!(live(&daemon), 0);
}
