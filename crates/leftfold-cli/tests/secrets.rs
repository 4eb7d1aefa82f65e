//! No secret is revealed: not in the logs at any level, on standard output, or in responses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use self::served::{Daemon, JSON, change, initialized, leftfold, said};

/// A part of all passwords and keys, which stays recognizable if a part is cut off.
const HIDDEN: &str = "hidden";
const HOOK: &str = "whsec_aGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVu";
/// `hidden` four times, in Base64.
const HOOK_PART: &str = "aGlkZGVuaGlkZGVu";

fn tells_nothing(said: &str, token: &str) {
    for secret in [HIDDEN, HOOK_PART, token, &token[..20]] {
        let found = said.lines().find(|line| line.contains(secret));
        assert!(found.is_none(), "{secret} is told: {}", found.unwrap_or_default());
    }
}

#[test]
fn no_secret_is_logged() {
    let directory = initialized();
    let made = leftfold(directory.path(), &["--json", "token", "new", "shop"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let (token, hash) = (made["secret"].as_str().unwrap(), made["token"]["sha256"].as_str().unwrap());
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let resupplier = TcpListener::bind("127.0.0.1:0").unwrap();
    let [port, asked_at] = [&hook, &resupplier].map(|listener| listener.local_addr().unwrap().port());
    let mut config =
        format!("[[token]]\nname = \"shop\"\nsha256 = \"{hash}\"\nscopes = [\"ingest\", \"read\"]\n\n");
    let _ = write!(
        config,
        "[[reaction]]\nname = \"told\"\non = \"carts\"\nurl = \"http://127.0.0.1:{port}/hidden?key=hidden\"\nsecret = \"{HOOK}\"\n\
         allow = [\"127.0.0.0/8\"]\n\n\
         [resupply]\nurl = \"http://127.0.0.1:{asked_at}/events\"\nauthorization = \"Bearer hidden\"\nafter = \"1ms\"\n\n[[projection]]"
    );
    change(directory.path(), "[[projection]]", &config);
    if cfg!(feature = "redis") {
        // No server listens there.
        let source = "[[source]]\nname = \"orders\"\ntype = \"redis\"\nurl = \"redis://ann:hidden@127.0.0.1:1\"\nstream = \"orders\"\n\n[[projection]]";
        change(directory.path(), "[[projection]]", source);
    }

    let log = directory.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
    command
        .current_dir(directory.path())
        .arg("serve")
        .env("RUST_LOG", "trace")
        .env("NO_COLOR", "1")
        .stderr(File::create(&log).unwrap());
    let (mut daemon, mut output) = Daemon::run(&mut command, "http");
    let bearer = format!("Bearer {token}");
    let authorized = ("authorization", bearer.as_str());
    let event = json!({ "type": "cart-opened", "data": { "client": "ann" } }).to_string();
    let gap = json!({
        "specversion": "1.0", "id": "a", "source": "s", "subject": "late", "sequence": "2", "type": "cart-opened", "data": {},
    });
    let other = format!("Bearer {token}0");
    let mut answers = String::new();
    for (method, path, headers, body, expected) in [
        ("POST", "/streams/cart-1", vec![JSON, authorized], event.as_str(), 201),
        (
            "POST",
            "/events",
            vec![("content-type", "application/cloudevents+json"), authorized],
            &gap.to_string(),
            200,
        ),
        ("POST", "/streams/cart-1", vec![JSON, ("authorization", &other)], &event, 401),
        ("POST", "/streams/cart-1", vec![JSON], &event, 401),
        ("POST", "/streams/cart-1", vec![JSON, authorized], "{", 400),
        ("POST", "/streams/cart-1", vec![("content-type", "text/plain"), authorized], &event, 415),
        ("POST", "/events", vec![JSON, authorized], &event, 415),
        ("GET", "/nothing", vec![authorized], "", 404),
        ("GET", "/log?limit=0", vec![authorized], "", 400),
        ("GET", "/reactions", vec![authorized], "", 403),
    ] {
        let (status, answer) = daemon.send(method, path, &headers, body).unwrap();
        assert_eq!(status, expected, "{method} {path}: {answer}");
        answers.push_str(&answer);
    }
    // They are called and do not respond: the failure is logged.
    drop(hook.accept().unwrap());
    drop(resupplier.accept().unwrap());
    daemon.signal("-TERM");
    assert!(daemon.process.wait().unwrap().success());
    output.read_to_string(&mut answers).unwrap();
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.contains("TRACE") && logged.contains("reaction=\"told\""), "little was logged: {logged}");
    tells_nothing(&logged, token);
    tells_nothing(&answers, token);
}

#[test]
fn no_secret_is_in_what_is_said_of_the_file() {
    let hook = |url: &str, secret: &str| {
        format!(
            "[[reaction]]\nname = \"told\"\non = \"carts\"\nurl = \"{url}\"\nsecret = \"{secret}\"\n\n[[projection]]"
        )
    };
    let database = "mongodb://ann:hidden@127.0.0.1:1/shop?serverSelectionTimeoutMS=100&connectTimeoutMS=100";
    let cases = [
        ("sqlite:leftfold.db", database.to_owned()),
        ("sqlite:leftfold.db", "mongodb://ann:hidden@127.0.0.1:a/shop".to_owned()),
        ("sqlite:leftfold.db", "postgres://ann:hidden@127.0.0.1/shop".to_owned()),
        ("\"sqlite:leftfold.db\"", "mongodb://ann:hidden@127.0.0.1/shop".to_owned()),
        ("\"sqlite:leftfold.db\"", "\"mongodb://ann:hidden@127.0.0.1/shop".to_owned()),
        ("[[projection]]", hook("https://ann:hidden@shop.example/", HOOK)),
        ("[[projection]]", hook("ftp://shop.example/hidden", HOOK)),
        ("[[projection]]", hook("https://[shop.example/hidden", HOOK)),
        ("[[projection]]", hook("https://shop.example", "whsec_hidden!")),
        ("[[projection]]", hook("https://shop.example", "hidden")),
        ("[[projection]]", "[resupply]\nurl = \"ftp://ann:hidden@a/\"\n\n[[projection]]".to_owned()),
        (
            "[[projection]]",
            "[resupply]\nurl = \"http://a/\"\nauthorization = \"Bearer hidden\\u0007\"\n\n[[projection]]"
                .to_owned(),
        ),
        (
            "[[projection]]",
            "[[token]]\nname = \"a\"\nsha256 = \"lf_hidden\"\nscopes = [\"read\"]\n\n[[projection]]"
                .to_owned(),
        ),
    ];
    for (from, to) in cases {
        let directory = initialized();
        change(directory.path(), from, &to);
        for command in ["check", "serve"] {
            let output = leftfold(directory.path(), &[command]);
            assert!(!output.status.success(), "{to}: {}", said(&output));
            tells_nothing(&said(&output), "lf_no_such_token_at_all");
        }
    }
}
