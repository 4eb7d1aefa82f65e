//! The commands for operators, on a file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod common;
mod served;

use common::scenarios::shop;
use common::{Answer, File, Place as _, command, run};
use serde_json::json;
use served::{Daemon, JSON, initialized};

scenarios!(File::new());

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let place = File::new();
    let id = ["cart_details", "cart-1"];
    let missing = |answer: Answer| {
        let answer = answer.exits(3).says("there is no such file; name another with --store");
        assert!(!place.file.exists(), "{answer:?}");
    };
    for command in [["status"].as_slice(), &["get", id[0], id[1]], &["parked", "list"]] {
        missing(place.run(command));
        missing(place.run_with_code(command));
    }
    for command in [["parked", "retry", "--all"], ["explain", id[0], id[1]], ["refold", id[0], id[1]]] {
        missing(place.run_with_code(&command));
    }
    std::fs::write(&place.file, "").unwrap();
    place.run(&["status"]).exits(3).says("the file is empty");
    assert_eq!(std::fs::read(&place.file).unwrap(), b"");
    // Without --store it is a file in the current directory.
    let here = run(command().arg("status").current_dir(place.directory.path())).exits(3);
    here.says("opening leftfold.db: there is no such file");
}

#[tokio::test]
async fn a_command_that_can_not_be_understood_says_so() {
    let place = File::new();
    shop(&place).await;
    let known = "cart_details, client_summary, daily_totals, open_carts";
    for command in [["get", "carts", "1"], ["explain", "carts", "1"], ["refold", "carts", "1"]] {
        place.run_with_code(&command).exits(2).says("no read model is named \"carts\"").says(known);
    }
    for command in [["get", "carts", "1"].as_slice(), &["parked", "list", "carts"]] {
        place.run(command).exits(2).says("no read model is named \"carts\"").says(known);
    }
    place.run_with_code(&["parked", "retry"]).exits(2).says("--all");
    place.run(&["get", "cart_details", ""]).exits(2).says("document id");
    place.run(&["sing"]).exits(2);
    run(command().arg("--help")).exits(0).says("Exit status:");
}

/// The store may be of any application, also one that this program knows nothing of.
#[test]
fn every_collection_is_found_without_the_file_of_its_daemon() {
    let directory = initialized();
    let daemon = Daemon::start(directory.path());
    let events = json!([
        { "type": "cart-opened", "data": { "client": "ann" } },
        { "type": "item-added", "data": { "quantity": 2 } },
    ]);
    let (status, body) = daemon.send("POST", "/streams/cart-1", &[JSON], &events.to_string()).unwrap();
    assert_eq!(status, 201, "{body}");
    daemon.send("POST", "/streams/cart-2", &[JSON], &events[1].to_string()).unwrap();
    daemon.get("/collections/carts/documents/cart-1?at_least=0:2:2:cart-1");

    let file = directory.path().join("leftfold.db");
    let elsewhere = tempfile::tempdir().unwrap();
    let on =
        |arguments: &[&str]| run(command().current_dir(&elsewhere).arg("--store").arg(&file).args(arguments));
    let carts = on(&["get", "carts", "cart-1", "--at-least", "cart-2@1", "--json"]).exits(0).json();
    assert_eq!((&carts["client"], &carts["items"]), (&json!("ann"), &json!(2)));
    on(&["status", "--check"]).exits(1).says("carts");
    on(&["parked", "list", "carts"]).exits(0).says("cart-2@1");
    on(&["doctor"]).exits(1).says("carts: 1 document is parked");
    on(&["held", "list"]).exits(0).says("nothing is held");
    on(&["tasks", "count"]).exits(0).says("no reactions");
    on(&["audit"]).exits(0).says("no operator has acted yet");
    on(&["explain", "carts", "cart-2"]).exits(2).says("needs the projections' code");

    // The store may also be named after the command, by its environment, or by the file.
    let named =
        |command: &mut std::process::Command| run(command.current_dir(&elsewhere)).exits(0).says("carts");
    named(command().arg("status").arg("--store").arg(&file));
    named(command().arg("status").env("LEFTFOLD_STORE", &file));
    let config = directory.path().join("leftfold.toml");
    named(command().arg("status").arg("--config").arg(&config).env("LEFTFOLD_STORE", "no/such/file"));
    // The code of the file, on another store: a copy, say.
    let parked = || run(command().current_dir(&directory).args(["parked", "list", "--json"])).exits(0).json();
    let before = parked();
    let copy = elsewhere.path().join("copy.db");
    drop(daemon);
    let whole = rusqlite::Connection::open(&file).unwrap();
    whole.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let code = |arguments: &[&str]| {
        run(command().args(arguments).arg("--config").arg(&config).arg("--store").arg(&copy))
    };
    code(&["explain", "carts", "cart-2", "--why-not"]).exits(0).says("parked");
    code(&["parked", "retry", "carts"]).exits(1);
    assert_eq!(parked(), before, "the daemon's own store is untouched");
}

#[test]
fn a_store_where_nothing_ever_ran_has_no_collections() {
    let place = File::new();
    tokio::runtime::Runtime::new().unwrap().block_on(async { drop(place.open().await) });
    place.run(&["status"]).exits(0).says("no projection has run on this store");
    assert_eq!(place.run(&["status", "--json"]).exits(0).json()["projections"], json!([]));
    place.run(&["parked", "list"]).exits(0).says("nothing is parked");
    place.run(&["get", "carts", "cart-1"]).exits(2).says("there are: none");
    assert_eq!(place.ask("SELECT CAST(count(*) AS TEXT) FROM sqlite_schema WHERE name LIKE '%cart%'"), "0");
}

/// Commands that use the store of a file, or none, refuse another one.
#[test]
fn an_argument_without_a_use_is_refused() {
    let directory = initialized();
    for command in ["serve", "check", "test", "init"] {
        let answer = run(common::command().current_dir(&directory).args([command, "--store", "shop.db"]));
        answer.exits(2).says(&format!("`leftfold {command}` has no use for --store"));
    }
    let token = ["token", "new", "shop", "--config", "leftfold.toml"];
    run(command().current_dir(&directory).args(token)).exits(2).says("has no use for --config");
    assert!(!directory.path().join("shop.db").exists());
}
