//! A real client of event streams, npm's `eventsource`, is cut off after every message. It resumes
//! by itself, and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use self::served::{Daemon, JSON, initialized};

const CLIENT: &str = include_str!("eventsource/client.mjs");
const PACKAGE: &str = "eventsource@4.1.1";

/// Returns the client's script, beside the package it needs.
fn client() -> PathBuf {
    let npm = leftfold_testbed::program("npm", "npm", "LEFTFOLD_NPM").unwrap();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("eventsource");
    std::fs::create_dir_all(&directory).unwrap();
    if !directory.join("node_modules/eventsource").exists() {
        let mut install = Command::new(npm);
        install.args(["install", "--no-audit", "--no-fund", PACKAGE, "--prefix"]).arg(&directory);
        let output = install.output().unwrap();
        assert!(output.status.success(), "npm install {PACKAGE}: {output:?}");
    }
    let script = directory.join("client.mjs");
    std::fs::write(&script, CLIENT).unwrap();
    script
}

fn follow(script: &Path, daemon: &Daemon, path: &str, count: usize) -> Child {
    let node = leftfold_testbed::program("node", "nodejs", "LEFTFOLD_NODE").unwrap();
    let mut command = Command::new(node);
    command.arg(script).args([&daemon.address.port().to_string(), path, &count.to_string()]);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_client_that_is_cut_off_after_every_message_loses_none() {
    let script = client();
    let directory = initialized();
    let daemon = Daemon::start(directory.path());
    let carts = ["cart-1", "cart-2", "cart-3", "cart-4"];
    let mut token = Value::Null;
    for cart in carts {
        let events = json!([
            { "type": "cart-opened", "data": { "client": "ann" }, "time": "2026-01-01T10:00:00Z" },
            { "type": "item-added", "data": { "product": "shoes", "quantity": 2 } },
        ]);
        let (status, body) =
            daemon.send("POST", &format!("/streams/{cart}"), &[JSON], &events.to_string()).unwrap();
        assert_eq!(status, 201, "{body}");
        token = serde_json::from_str::<Value>(&body).unwrap()["bookmark"].clone();
    }
    daemon.get(&format!("/collections/carts/documents/cart-4?at_least={}", token.as_str().unwrap()));
    let clients = [("/collections/carts/changes?after=0", 4), ("/log", 8), ("/streams/cart-1", 2)]
        .map(|(path, count)| follow(&script, &daemon, path, count));
    let [documents, log, stream] = clients.map(|client| {
        let output = client.wait_with_output().unwrap();
        let messages: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        messages
    });
    let of = |messages: &[Value], key: &str| -> Vec<String> {
        messages.iter().map(|message| message["data"][key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of(&documents, "id"), carts);
    assert!(documents.iter().all(|message| message["data"]["document"]["items"] == 2), "{documents:?}");
    assert_eq!(of(&log, "stream"), carts.map(|cart| [cart; 2]).concat());
    assert_eq!(of(&stream, "type"), ["cart-opened", "item-added"]);
    assert_eq!([&stream[0]["id"], &stream[1]["id"]], ["1", "2"]);
}
