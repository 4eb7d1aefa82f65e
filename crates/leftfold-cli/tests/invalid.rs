//! Invalid files: `check` and `serve` reject each of them with the same message, and a daemon that
//! reloads one continues as before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::served::{Daemon, JSON, Logged, change, initialized, leftfold, said};

const BYSTANDER: &str = "[[projection]]\nname = \"clients\"\nscript = \"projections/clients.js\"\n";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An invalid file: the replacement that breaks it, and the names that the error must contain.
struct Case {
    from: &'static str,
    to: String,
    named: [&'static str; 2],
}

fn case(from: &'static str, to: impl Into<String>, named: [&'static str; 2]) -> Case {
    Case { from, to: to.into(), named }
}

fn cases() -> Vec<Case> {
    let name = "name = \"carts\"";
    let renamed = |to: &str| format!("name = {to:?}");
    let reaction = |more: &str| {
        format!(
            "[[reaction]]\nname = \"paid\"\non = \"carts\"\nurl = \"https://shop.example/\"\nsecret = \"{SECRET}\"\n{more}\n\
             [server]"
        )
    };
    let source =
        "[[source]]\nname = \"orders\"\ntype = \"redis\"\nurl = \"redis://localhost\"\nstream = \"orders\"\n";
    vec![
        case(name, renamed("clients"), ["clients", "name"]),
        case(name, renamed("Clients"), ["Clients", "case"]),
        case(name, renamed("my-carts"), ["my-carts", "name"]),
        case(name, renamed(""), ["\"\"", "name"]),
        case(name, renamed("1carts"), ["1carts", "name"]),
        case(name, renamed("carts~1"), ["carts~1", "name"]),
        case(name, renamed(&"c".repeat(64)), ["ccc", "name"]),
        case(name, renamed("leftfold_carts"), ["leftfold_carts", "name"]),
        case(name, renamed("sqlite_carts"), ["sqlite_carts", "name"]),
        case(name, renamed("CARTS"), ["CARTS", "name"]),
        case(name, "name=1", ["line ", "name"]),
        case(name, "  name = \"carts", ["line ", "name"]),
        case(name, format!("{name}\nmemory_limit_mib = 0"), ["memory_limit_mib", "1 to 4096"]),
        case(name, format!("{name}\nmemory_limit_mib = 4097"), ["memory_limit_mib", "1 to 4096"]),
        case(name, format!("{name}\nmemory_limit_mib = {}", 1_u64 << 44), ["memory_limit_mib", "1 to 4096"]),
        case(name, format!("{name}\nmemory_limit_mib = -1"), ["line ", "memory_limit_mib"]),
        case(name, format!("{name}\ntime_limit = \"0s\""), ["time_limit", "1h"]),
        case("policy", "policy = \"none\"\n# policy", ["line ", "policy"]),
        case("[server]", "[log]\nfilter = \"leftfold=loud\"\n[server]", ["log.filter", ""]),
        case("[server]", "[log]\nformat=\"xml\"\n[server]", ["line ", "log.format"]),
        case("[server]", "[resupply]\nurl = \"here\"\n[server]", ["resupply", "here"]),
        case(
            "[server]",
            "[[token]]\nname = \"a\"\nsha256=\"00\"\nscopes = []\n[server]",
            ["line ", "sha256"],
        ),
        case(
            "[server]",
            "[server]\ntls = { certificate = \"none.pem\", key = \"none.key\" }",
            ["server.tls", "none.pem"],
        ),
        case("[server]", "[server]\nrequests_per_second = 0", ["line ", "requests_per_second"]),
        case("projections/carts.js", "projections/none.js", ["carts", "projections/none.js"]),
        case("[server]", reaction("concurrency = 0"), ["paid", "concurrency"]),
        case("[server]", reaction("on_new_version = \"x\""), ["line ", "on_new_version"]),
        case("[server]", reaction("").replace("\"carts\"", "\"none\""), ["paid", "on"]),
        case(
            "[server]",
            format!("{}\n{}", reaction("").replace("[server]", ""), reaction("")),
            ["paid", "two"],
        ),
        case("[server]", format!("{source}{source}[server]"), ["orders", "two"]),
    ]
}

/// Creates a directory with a second projection, for the bystander.
fn with_bystander() -> tempfile::TempDir {
    let directory = initialized();
    std::fs::write(
        directory.path().join("projections/clients.js"),
        "export const route = (event) => event.data.client;\n\
         export default { \"client-seen\": (client) => ({ seen: (client?.seen ?? 0) + 1 }) };\n",
    )
    .unwrap();
    change(directory.path(), "[[projection]]", &format!("{BYSTANDER}\n[[projection]]"));
    directory
}

/// Returns the error of a command that must fail at once, with the exit status of wrong arguments.
#[track_caller]
fn refusal(directory: &Path, command: &str) -> String {
    let mut process = Command::new(env!("CARGO_BIN_EXE_leftfold"));
    let process = process.current_dir(directory).arg(command).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut process, begun) = (process.spawn().unwrap(), Instant::now());
    while process.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_mins(1) {
            process.kill().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{command}: {}", said(&output));
    String::from_utf8(output.stderr).unwrap()
}

/// Appends an event as the bystander, and reads the result.
#[track_caller]
fn bystander(daemon: &Daemon, number: u64) {
    let event = json!({ "type": "client-seen", "data": { "client": "ann" } }).to_string();
    let (status, body) = daemon.send("POST", "/streams/visits", &[JSON], &event).unwrap();
    assert_eq!(status, 201, "{body}");
    let appended: Value = serde_json::from_str(&body).unwrap();
    let path =
        format!("/collections/clients/documents/ann?at_least={}", appended["bookmark"].as_str().unwrap());
    let (status, body) = daemon.send("GET", &path, &[], "").unwrap();
    assert_eq!((status, body), (200, json!({ "seen": number }).to_string()));
}

#[test]
fn a_file_that_can_not_run_is_refused_alike_by_check_serve_and_reload() {
    let directory = with_bystander();
    let directory = directory.path();
    let mut logged = Logged::start(directory);
    let address = logged.daemon.address;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            let process = Command::new("true").spawn().unwrap();
            let daemon = Daemon { process, address };
            let mut number = 0;
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                number += 1;
                bystander(&daemon, number);
                assert!(begun.elapsed() < Duration::from_secs(5), "the bystander waited too long");
                std::thread::sleep(Duration::from_millis(20));
            }
            number
        });
        let file = directory.join("leftfold.toml");
        let whole = std::fs::read_to_string(&file).unwrap();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for Case { from, to, named } in cases() {
                change(directory, from, &to);
                let checked = refusal(directory, "check");
                let (_, wrong) = checked.trim_end().split_once("error: ").unwrap();
                for name in named {
                    assert!(wrong.contains(name), "{to}: no {name:?} in {wrong}");
                }
                let served = refusal(directory, "serve");
                assert!(served.contains(wrong), "{to}: {served} is not {wrong}");
                let line = logged.reload("not reloaded");
                assert!(line.contains(wrong), "{to}: {line} does not say {wrong}");
                assert_eq!(logged.daemon.send("GET", "/readyz", &[], "").unwrap().0, 200);
                std::fs::write(&file, &whole).unwrap();
            }
        }));
        ended.store(true, Ordering::Relaxed);
        let number = visitor.join().unwrap();
        if let Err(failed) = failed {
            std::panic::resume_unwind(failed);
        }
        // It continues, also through a reload of a valid file.
        bystander(&logged.daemon, number + 1);
        logged.reload(" reloaded");
        bystander(&logged.daemon, number + 2);
    });
    let checked = leftfold(directory, &["check"]);
    assert!(checked.status.success(), "{}", said(&checked));
}
