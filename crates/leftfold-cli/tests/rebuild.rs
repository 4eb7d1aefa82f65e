//! A changed script: a command rebuilds its documents, beside a daemon that serves them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::path::Path;

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized, leftfold, said};

/// Returns the output of a command for machines.
#[track_caller]
fn answer(directory: &Path, args: &[&str]) -> Value {
    let output = leftfold(directory, args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn append(daemon: &Daemon, stream: &str, quantity: u32) -> String {
    let events = json!([
        { "type": "cart-opened", "data": { "client": "ann" }, "time": "2026-01-01T10:00:00Z" },
        { "type": "item-added", "data": { "product": "shoes", "quantity": quantity } },
    ]);
    let path = format!("/streams/{stream}");
    let (status, body) = daemon.send("POST", &path, &[JSON], &events.to_string()).unwrap();
    assert_eq!(status, 201, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned()
}

/// Changes the script so that it counts everything ten times.
fn change_script(directory: &Path) {
    let file = directory.join("projections/carts.js");
    let script = std::fs::read_to_string(&file).unwrap();
    assert!(script.contains("cart.items + data.quantity"), "{script}");
    std::fs::write(file, script.replace("cart.items + data.quantity", "cart.items + 10 * data.quantity"))
        .unwrap();
}

fn items(directory: &Path, id: &str) -> Value {
    answer(directory, &["--json", "get", "carts", id])["items"].clone()
}

#[test]
fn documents_are_made_anew_when_their_script_has_changed() {
    let directory = initialized();
    let directory = directory.path();
    let daemon = Daemon::start(directory);
    for (stream, quantity) in [("cart-1", 2), ("cart-2", 3)] {
        let token = append(&daemon, stream, quantity);
        daemon.get(&format!("/collections/carts/documents/{stream}?at_least={token}"));
    }
    assert_eq!(answer(directory, &["--json", "verify"])[0]["verified"]["checked"], 2);
    assert_eq!(answer(directory, &["--json", "status"])["projections"][0]["rebuild_needed"], false);
    drop(daemon);

    change_script(directory);
    assert_eq!(answer(directory, &["--json", "status"])["projections"][0]["rebuild_needed"], true);
    let differs = leftfold(directory, &["verify", "carts"]);
    assert_eq!(differs.status.code(), Some(1), "{}", said(&differs));
    assert!(said(&differs).contains("cart-1") && said(&differs).contains("2 differ"), "{}", said(&differs));
    assert!(said(&differs).contains("items: stored 2, folded 20"), "{}", said(&differs));

    let tried = answer(directory, &["--json", "rebuild", "carts", "--dry-run", "--samples", "1"]);
    assert_eq!(tried["switched"], false);
    assert_eq!((&tried["difference"]["compared"], &tried["difference"]["differing"]), (&json!(2), &json!(2)));
    assert_eq!(tried["difference"]["samples"].as_array().unwrap().len(), 1);
    assert_eq!(items(directory, "cart-1"), 2, "it is not switched");
    let switched = answer(directory, &["--json", "rebuild", "carts"]);
    assert_eq!((&switched["switched"], &switched["generation"]), (&json!(true), &tried["generation"]));
    assert_eq!((items(directory, "cart-1"), items(directory, "cart-2")), (json!(20), json!(30)));
    assert_eq!(answer(directory, &["--json", "status"])["projections"][0]["rebuild_needed"], false);
    assert_eq!(answer(directory, &["--json", "verify", "--sample", "1"])[0]["verified"]["differing"], 0);

    let daemon = Daemon::start(directory);
    let token = append(&daemon, "cart-3", 1);
    let cart = daemon.get(&format!("/collections/carts/documents/cart-3?at_least={token}"));
    assert_eq!(cart["items"], 10, "what is live is folded on");
    drop(daemon);
    answer(directory, &["--json", "undo", "carts"]);
    assert_eq!((items(directory, "cart-1"), items(directory, "cart-3")), (json!(2), json!(10)));
    let none = answer(directory, &["--json", "rebuild", "carts", "--cancel"]);
    assert_eq!(none["cancelled"], false);
    let unknown = leftfold(directory, &["rebuild", "orders"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("there are: carts"), "{}", said(&unknown));
}

#[test]
fn a_daemon_that_is_told_to_rebuilds_by_itself() {
    let directory = initialized();
    let directory = directory.path();
    let daemon = Daemon::start(directory);
    let token = append(&daemon, "cart-1", 2);
    daemon.get(&format!("/collections/carts/documents/cart-1?at_least={token}"));
    drop(daemon);
    change_script(directory);
    change(directory, "[server]", "[server]\nrebuild_on_change = true");
    let daemon = Daemon::start(directory);
    loop {
        let cart = daemon.get("/collections/carts/documents/cart-1");
        if cart["items"] == 20 {
            break;
        }
        assert_eq!(cart["items"], 2, "readers see the old one or the new one");
    }
}
