//! `leftfold doctor`: its output for people and for machines, and its exit status.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod common;
mod served;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::scenarios::shop;
use common::{File, Place as _};
use leftfold_sqlite::Sqlite;
use serde_json::Value;
use served::{Daemon, JSON, change, initialized, leftfold, said};

/// Returns the finding about a subject.
#[track_caller]
fn of<'v>(answer: &'v Value, area: &str, subject: &str) -> &'v Value {
    let mut findings = answer["findings"].as_array().unwrap().iter();
    let found = findings.find(|one| one["area"] == area && one["subject"] == subject);
    found.unwrap_or_else(|| panic!("nothing is said of {subject}: {answer:#}"))
}

#[tokio::test]
async fn what_is_parked_is_wrong_until_it_is_mended() {
    let place = File::new();
    shop(&place).await;
    let said = place.run(&["doctor"]).exits(1);
    let said = said.says("wrong    projections  cart_details: 1 document is parked");
    let said = said.says("→ run `leftfold parked list cart_details` for the reasons").says("1 wrong, ");
    // The most severe finding comes first.
    assert!(said.stdout.starts_with("wrong "), "{said:?}");
    let answer = place.run(&["doctor", "--json"]).exits(1).json();
    assert_eq!(answer["worst"], "wrong");
    assert_eq!(of(&answer, "projections", "cart_details")["severity"], "wrong");
    assert_eq!(of(&answer, "projections", "open_carts")["advice"], Value::Null);

    place.run_with_code(&["parked", "retry", "--all"]).exits(0);
    let answer = place.run(&["doctor", "--json"]).exits(0).json();
    assert_eq!(of(&answer, "projections", "cart_details")["severity"], "fine");
}

#[tokio::test]
async fn warnings_alone_are_no_failure() {
    let place = File::new();
    shop(&place).await;
    place.run_with_code(&["parked", "retry", "--all"]).exits(0);
    place.sql("DROP INDEX leftfold_tasks_due");
    let said = place
        .run(&["doctor"])
        .exits(0)
        .says("warning  schema       leftfold_tasks_due: the index is missing");
    said.says("create it: CREATE INDEX leftfold_tasks_due").says("0 wrong, ");
}

#[tokio::test]
async fn nothing_is_made_where_nothing_is() {
    let place = File::new();
    let said = place.run(&["doctor"]).exits(3).says("there is no such file");
    said.says("→ name another with --store");
    assert!(!place.file.exists());
    let answer = place.run(&["doctor", "--json"]).exits(3).json();
    assert_eq!(of(&answer, "store", "access")["severity"], "wrong");
    std::fs::write(&place.file, "no database").unwrap();
    place.run(&["doctor"]).exits(3).says("it is not a SQLite database");

    // Neither are read models, in a store where none has run.
    let place = File::new();
    Sqlite::open(&place.file).await.unwrap().close().await;
    let said = place.run(&["doctor"]).exits(0);
    assert!(!said.stdout.contains("cart_details"), "{said:?}");
    assert_eq!(place.ask("SELECT CAST(count(*) AS TEXT) FROM sqlite_schema WHERE name LIKE '%cart%'"), "0");
}

/// Returns the output for machines.
fn answered(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

fn doctor(directory: &Path, status: i32) -> Value {
    let output = leftfold(directory, &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(status), "{}", said(&output));
    answered(&output)
}

#[test]
fn the_file_of_a_service_is_looked_over_beside_its_store() {
    let directory = initialized();
    let here = directory.path();
    let answer = doctor(here, 3);
    assert_eq!(of(&answer, "service", "scripts")["found"], "1 compiled");
    assert!(!here.join("leftfold.db").exists());

    let daemon = Daemon::start(here);
    let event = r#"{ "type": "cart-opened", "data": { "client": "ann" } }"#;
    let (status, body) = daemon.send("POST", "/streams/cart-1", &[JSON], event).unwrap();
    assert_eq!(status, 201, "{body}");
    let token: Value = serde_json::from_str(&body).unwrap();
    daemon.get(&format!(
        "/collections/carts/documents/cart-1?at_least={}",
        token["bookmark"].as_str().unwrap()
    ));
    let answer = doctor(here, 0);
    assert_eq!(of(&answer, "projections", "carts")["found"], "all events are folded, into 1 document");
    assert_eq!(of(&answer, "service", "server")["severity"], "notice", "without tokens");
    assert_eq!(of(&daemon.get("/doctor"), "projections", "carts")["severity"], "fine");

    std::fs::write(here.join("projections/carts.js"), "export default {").unwrap();
    let answer = doctor(here, 1);
    let script = of(&answer, "service", "script");
    assert!(script["found"].as_str().unwrap().contains("SyntaxError"), "{script}");
}

#[test]
fn certificates_addresses_brokers_and_secrets_are_looked_at() {
    let directory = initialized();
    let here = directory.path();
    drop(Daemon::start(here));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(here.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(here.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let allow =
        |mode| std::fs::set_permissions(here.join("key.pem"), PermissionsExt::from_mode(mode)).unwrap();
    allow(0o644);
    change(here, "[server]", "[server]\ntls = { certificate = \"cert.pem\", key = \"key.pem\" }");
    let answer = doctor(here, 0);
    let secrets = of(&answer, "service", "secrets");
    assert_eq!(secrets["severity"], "warning");
    assert!(secrets["advice"].as_str().unwrap().starts_with("chmod 600 "), "{secrets}");
    assert_eq!(of(&answer, "service", "certificate")["severity"], "fine");
    allow(0o600);
    let answer = doctor(here, 0);
    assert!(!answer.to_string().contains("\"secrets\""), "{answer:#}");

    let mut old = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    old.not_after = rcgen::date_time_ymd(2020, 1, 1);
    std::fs::write(here.join("cert.pem"), old.self_signed(&made.signing_key).unwrap().pem()).unwrap();
    let answer = doctor(here, 1);
    let expired = of(&answer, "service", "certificate");
    assert!(expired["found"].as_str().unwrap().contains("expired at 2020-01-01"), "{expired}");

    change(here, "127.0.0.1:0", "0.0.0.0:0");
    let answer = doctor(here, 1);
    let server = of(&answer, "service", "server");
    assert!(server["advice"].as_str().unwrap().contains("leftfold token new"), "{server}");

    if cfg!(feature = "redis") {
        // No server listens there.
        let source = "[[source]]\nname = \"orders\"\ntype = \"redis\"\nurl = \"redis://ann:hidden@127.0.0.1:1\"\nstream = \"orders\"\n\n[[projection]]";
        change(here, "[[projection]]", source);
        let answer = doctor(here, 1);
        assert_eq!(of(&answer, "service", "source orders")["severity"], "wrong");
        assert!(!answer.to_string().contains("hidden"), "{answer:#}");
    }
}
