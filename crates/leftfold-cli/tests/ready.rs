//! The daemon's readiness when a part below it is gone, full or stuck.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::fs;
use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::served::{Daemon, JSON, Logged, change, initialized, leftfold, said};

/// The timeout of steps that should take a second: test machines are busy.
const SOON: Duration = Duration::from_secs(10);

/// A daemon with a health listener.
struct Watched {
    daemon: Daemon,
    health: Daemon,
}

impl Watched {
    fn start(directory: &Path) -> Self {
        change(directory, "[server]", "[server]\nhealth = \"127.0.0.1:0\"");
        let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
        Self::run(command.current_dir(directory).arg("serve"))
    }

    fn run(command: &mut Command) -> Self {
        let (daemon, mut output) = Daemon::run(command, "http");
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.strip_prefix("health at http://").and_then(|rest| rest.split('/').next());
        let address: SocketAddr = address.unwrap_or_else(|| panic!("it said {line:?}")).parse().unwrap();
        let health = Daemon { process: Command::new("true").spawn().unwrap(), address };
        Self { daemon, health }
    }

    #[track_caller]
    fn append(&self) -> u16 {
        let event = json!({ "type": "cart-opened", "data": { "client": "ann" } }).to_string();
        self.daemon.send("POST", "/streams/cart-1", &[JSON], &event).unwrap().0
    }

    #[track_caller]
    fn is_ready(&self, status: u16) -> String {
        let begun = Instant::now();
        loop {
            let (told, body) = self.daemon.send("GET", "/readyz", &[], "").unwrap();
            let (health, _) = self.health.send("GET", "/readyz", &[], "").unwrap();
            if (told, health) == (status, status) {
                return body;
            }
            assert!(begun.elapsed() < SOON, "{told} and {health} instead of {status}: {body}");
        }
    }

    /// Asserts that requests which need no store succeed.
    #[track_caller]
    fn lives(&self) {
        for daemon in [&self.daemon, &self.health] {
            assert_eq!(daemon.send("GET", "/healthz", &[], "").unwrap(), (200, "alive\n".to_owned()));
        }
    }
}

type Fault = fn(&Path);

#[test]
fn a_daemon_whose_files_are_gone_is_not_ready_and_takes_nothing() {
    let faults: [(&str, Fault, &str); 4] = [
        ("deleted", |at| fs::remove_file(at.join("leftfold.db")).unwrap(), "deleted or moved"),
        ("moved", |at| fs::rename(at.join("leftfold.db"), at.join("away.db")).unwrap(), "deleted or moved"),
        (
            "replaced",
            |at| {
                fs::copy(at.join("leftfold.db"), at.join("other.db")).unwrap();
                fs::rename(at.join("other.db"), at.join("leftfold.db")).unwrap();
            },
            "replaced",
        ),
        ("log deleted", |at| fs::remove_file(at.join("leftfold.db-wal")).unwrap(), "write-ahead log"),
    ];
    for (name, fault, reason) in faults {
        let directory = initialized();
        let watched = Watched::start(directory.path());
        assert_eq!((watched.append(), watched.is_ready(200)), (201, "ready\n".to_owned()));
        fault(directory.path());
        let begun = Instant::now();
        let body = watched.is_ready(503);
        println!("{name}: not ready after {:?}", begun.elapsed());
        assert!(body.contains(reason) && body.contains("not-ready"), "{name}: {body}");
        assert_eq!(watched.append(), 503, "{name}");
        watched.lives();
        let (_, metrics) = watched.daemon.send("GET", "/metrics", &[], "").unwrap();
        assert!(metrics.contains("leftfold_ready 0"), "{name}: {metrics}");
        let findings = watched.daemon.get("/doctor");
        assert!(findings["worst"] == "wrong" && findings.to_string().contains(reason), "{name}: {findings}");
        if name == "moved" {
            fs::rename(directory.path().join("away.db"), directory.path().join("leftfold.db")).unwrap();
            watched.is_ready(200);
            assert_eq!(watched.append(), 201);
        }
    }
}

#[test]
fn the_reason_is_told_to_those_with_a_token() {
    let directory = initialized();
    let made = leftfold(directory.path(), &["--json", "token", "new", "shop", "--scope", "ingest"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{}", said(&made)));
    let hash = made["token"]["sha256"].as_str().unwrap();
    let token =
        format!("[[token]]\nname = \"shop\"\nsha256 = \"{hash}\"\nscopes = [\"ingest\"]\n\n[[projection]]");
    change(directory.path(), "[[projection]]", &token);
    let watched = Watched::start(directory.path());
    watched.is_ready(200);
    fs::remove_file(directory.path().join("leftfold.db")).unwrap();
    let body = watched.is_ready(503);
    assert!(!body.contains("leftfold.db") && body.contains("send a token"), "{body}");
    let secret = format!("Bearer {}", made["secret"].as_str().unwrap());
    let (status, body) = watched.daemon.send("GET", "/readyz", &[("authorization", &secret)], "").unwrap();
    assert!(status == 503 && body.contains("leftfold.db"), "{body}");
    let (status, body) = watched.daemon.send("GET", "/readyz", &[("authorization", "Bearer x")], "").unwrap();
    assert!(status == 503 && !body.contains("leftfold.db"), "{body}");
}

#[test]
fn one_bad_event_degrades_and_pulls_nobody_from_the_load_balancer() {
    let directory = initialized();
    let mut logged = Logged::start(directory.path());
    let bystander = json!({ "type": "cart-opened", "data": { "client": "ann" } });
    logged.append("cart-1", &bystander);
    // The cart was never opened, so nothing can be added to it.
    logged.append("cart-2", &json!({ "type": "item-added", "data": { "quantity": 1 } }));
    let begun = Instant::now();
    let body = loop {
        let (status, body) = logged.daemon.send("GET", "/readyz", &[], "").unwrap();
        assert_eq!(status, 200, "{body}");
        if body.starts_with("degraded\n") {
            break body;
        }
        assert!(begun.elapsed() < SOON, "{body}");
    };
    assert!(body.contains("carts: documents or streams are parked"), "{body}");
    for query in ["?strict", "?strict=true"] {
        let (status, body) = logged.daemon.send("GET", &format!("/readyz{query}"), &[], "").unwrap();
        assert!(status == 503 && body.contains("parked"), "{body}");
    }
    let (_, metrics) = logged.daemon.send("GET", "/metrics", &[], "").unwrap();
    for line in
        ["leftfold_ready 1", "leftfold_degraded 1", "leftfold_trouble{kind=\"parked\",name=\"carts\"} 1"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let token = logged.append("cart-3", &bystander);
    assert_eq!(logged.document("carts", "cart-3", &token)["client"], "ann");

    let script = directory.path().join("projections/carts.js");
    let mended = fs::read_to_string(&script).unwrap().replace("cart.items +", "(cart?.items ?? 0) +");
    fs::write(script, mended).unwrap();
    logged.reload(" reloaded");
    let (status, body) =
        logged.daemon.send("POST", "/collections/carts/parked/retry", &[JSON], "{}").unwrap();
    assert!(status == 200 && body.contains("repaired"), "{body}");
    while logged.daemon.send("GET", "/readyz?strict", &[], "").unwrap().0 != 200 {
        assert!(begun.elapsed() < 3 * SOON);
    }
}

#[cfg(feature = "redis")]
#[test]
fn a_dead_feed_degrades() {
    let directory = initialized();
    let source = "[[source]]\nname = \"orders\"\ntype = \"redis\"\nurl = \"redis://127.0.0.1:1\"\nstream = \"orders\"\n";
    change(directory.path(), "[[projection]]", &format!("{source}\n[[projection]]"));
    let logged = Logged::start(directory.path());
    let begun = Instant::now();
    while !logged.daemon.send("GET", "/readyz", &[], "").unwrap().1.contains("source orders: ") {
        assert!(begun.elapsed() < 3 * SOON);
    }
    assert_eq!(logged.daemon.send("GET", "/readyz?strict", &[], "").unwrap().0, 503);
    let (_, metrics) = logged.daemon.send("GET", "/metrics", &[], "").unwrap();
    assert!(metrics.contains("leftfold_trouble{kind=\"feed\",name=\"source orders\"} 1"), "{metrics}");
    let findings = logged.daemon.get("/doctor").to_string();
    assert!(findings.contains("source orders"), "{findings}");
    // The bystander: posted events are folded as usual.
    let token = logged.append("cart-1", &json!({ "type": "cart-opened", "data": { "client": "ann" } }));
    assert_eq!(logged.document("carts", "cart-1", &token)["client"], "ann");
}

/// Uses a small disk of its own, if the system permits one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_not_ready_until_there_is_room() {
    let directory = initialized();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = format!("mount -t tmpfs -o size=16m tmpfs {}", disk.display());
    let alone = |then: &str| {
        let mut command = Command::new("unshare");
        command.current_dir(directory.path()).args(["-rm", "sh", "-c", &format!("{mount} && {then}")]);
        command
    };
    if !alone("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: this system gives us no disk");
        return;
    }
    change(directory.path(), "sqlite:leftfold.db", "sqlite:disk/leftfold.db");
    change(directory.path(), "[server]", "[server]\nhealth = \"127.0.0.1:0\"");
    let watched = Watched::run(&mut alone(&format!("exec {} serve", env!("CARGO_BIN_EXE_leftfold"))));
    watched.is_ready(200);
    assert_eq!(watched.append(), 201);
    let inside = format!("/proc/{}/root{}", watched.daemon.process.id(), disk.join("filling").display());
    let mut filling = fs::File::create(&inside).unwrap();
    while std::io::Write::write_all(&mut filling, &[0; 4_096]).is_ok() {}
    drop(filling);
    let body = watched.is_ready(503);
    assert!(body.contains("full"), "{body}");
    watched.lives();
    fs::remove_file(&inside).unwrap();
    watched.is_ready(200);
    assert_eq!(watched.append(), 201);
}

#[cfg(feature = "servers")]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_told_at_once() {
    use leftfold_testbed::mongodb::Server;

    let server = Server::replica_set(1).await.unwrap();
    let directory = initialized();
    let url = server.url().replacen("/?", "/shop?", 1);
    change(directory.path(), "sqlite:leftfold.db", &url);
    let watched = Watched::start(directory.path());
    watched.is_ready(200);
    assert_eq!((watched.append(), watched.daemon.get("/status")["stale"].clone()), (201, Value::Null));
    server.freeze(0).await.unwrap();
    watched.is_ready(503);
    watched.lives();
    for path in ["/readyz", "/metrics", "/status"] {
        let begun = Instant::now();
        let (status, body) = watched.daemon.send("GET", path, &[], "").unwrap();
        println!("{path}: {status} after {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5), "{path} took {:?}", begun.elapsed());
        match path {
            "/readyz" => assert!(status == 503 && body.contains("did not answer within"), "{body}"),
            "/metrics" => assert!(status == 200 && body.contains("leftfold_ready 0"), "{body}"),
            _ => assert!(status == 200 && body.contains("\"stale\"") && body.contains("carts"), "{body}"),
        }
    }
    server.thaw(0).unwrap();
    watched.is_ready(200);
    assert_eq!(watched.append(), 201);
}
