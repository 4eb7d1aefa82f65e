//! The demo, with real processes that are killed, and a proof that its check can fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    File, Place as _, a_demo_adds_to_an_earlier_one, command, run, the_log_of_another_application_is_refused,
};
use leftfold::fold::RepairOutcome;
use leftfold::{Leftfold, Sequencer, Sequences as _};
use serde_json::Value;
use shopping_cart::{CartDetails, DailyTotals};

fn sum(report: &Value, field: &str) -> u64 {
    report["projections"].as_array().unwrap().iter().map(|one| one[field].as_u64().unwrap()).sum()
}

#[test]
fn read_models_equal_their_fold_though_workers_are_killed_and_folds_fail() {
    let demo = ["--events", "4000", "--kill-every", "0.1", "--failing", "0.1", "--json"];
    let report = run(command().args(demo)).exits(0).json();
    assert_eq!(report["equal"], true, "{report:#}");
    assert!(report["kills"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(report["appended"], 4_000);
    let chaos = &report["feeding"]["chaos"];
    for fault in ["twice", "early", "lost"] {
        assert!(chaos[fault].as_u64().unwrap() > 0, "{fault}: {report:#}");
    }
    // Lost events can only have come from the origin.
    assert!(chaos["healed"].as_u64() >= chaos["lost"].as_u64(), "{report:#}");
    assert_eq!((&chaos["poison"], &chaos["rejected"]), (&2.into(), &2.into()));
    assert_eq!(report["projections"][0]["name"], "cart_details");
    assert!(sum(&report, "retried") > 0, "{report:#}");
    assert!(sum(&report, "parked") > 0, "{report:#}");
    assert!(sum(&report, "repaired") > 0, "{report:#}");
    assert_eq!(report["parked_at_the_end"], 0);
    assert_eq!(report["verdict"]["events"], 4_000);
}

#[test]
fn without_faults_nothing_is_retried_or_parked() {
    let demo = ["--events", "1005", "--kill-every", "0", "--failing", "0", "--seed", "3"];
    let answer = run(command().args(demo).args(["--writers", "1", "--chaos=false"])).exits(0);
    let lines: Vec<_> = answer.stdout.lines().collect();
    assert_eq!(lines.last(), Some(&"every read model equals its fold: yes"), "{answer:#?}");
    let answer = answer.says("1,005 events appended by 1 writer").says("killed 0 times");
    let row = answer.stdout.lines().find(|line| line.contains("cart_details")).unwrap();
    let cells: Vec<_> = row.split(['│', '┆']).map(str::trim).collect();
    assert_eq!(cells[3..8], ["1,005", "0", "0", "0", "0"], "{row}");
    assert!(
        answer.stdout.lines().filter(|line| line.contains('│')).all(|line| line.chars().count() <= 80),
        "{answer:#?}"
    );
    let quiet = run(command().args(demo).args(["--writers", "1", "--chaos=false", "--json"])).exits(0).json();
    assert_eq!(sum(&quiet, "conflicts"), 0, "{quiet:#}");
}

#[tokio::test]
async fn what_the_feeds_did_is_said_and_left_to_be_seen() {
    let place = File::new();
    for times in 1..=2 {
        let demo = ["--events", "700", "--kill-every", "0"];
        let answer =
            place.run(&demo).exits(0).says("messages delivered by 4 feeds").says("delivered early, and held");
        answer.says("never delivered; the origin resupplied").says("2 no events; 2 rejected");
        let store = place.open().await;
        let rejected = store.rejected(None, 100).await.unwrap();
        assert_eq!(rejected.len(), 2 * times, "{rejected:#?}");
        assert_eq!(Sequencer::new(store.clone()).status().await.unwrap().held, 0);
    }
    // Even the smallest demo.
    for events in ["1", "2", "3"] {
        let demo = ["--events", events, "--kill-every", "0", "--json"];
        assert_eq!(run(command().args(demo)).exits(0).json()["feeding"]["chaos"]["poison"], 2);
    }
}

#[test]
fn repeated_appends_are_recognized() {
    let demo = ["--events", "1000", "--kill-every", "0", "--chaos=false", "--json"];
    let report = run(command().args(demo)).exits(0).json();
    assert!(report["feeding"]["orderly"]["duplicates"].as_u64().unwrap() > 0, "{report:#}");
}

/// A check that can't fail proves nothing.
#[tokio::test]
async fn the_check_finds_what_is_wrong() {
    let place = File::new();
    let made = place.run(&["--events", "1000", "--kill-every", "0", "--json"]).exits(0).json();
    assert_eq!(made["store"].as_str(), place.file.to_str());
    place.run(&["verify"]).exits(0).says("every read model equals its fold: yes");

    let cart = place.ask("SELECT min(id) FROM cart_details");
    let sql =
        format!("UPDATE leftfold_cart_details_1 SET body = json_set(body, '$.total', 1) WHERE id = '{cart}'");
    assert_eq!(place.sql(&sql), 1);
    let answer = place.run(&["verify"]).exits(1).says("every read model equals its fold: no");
    answer.says(&format!("cart_details {cart} differs")).says("total is 1 instead of ");

    assert_eq!(place.sql("UPDATE leftfold_daily_totals_1 SET body = NULL WHERE id = 'all'"), 1);
    place.sql("INSERT INTO leftfold_client_summary_1 (id, body, mark) VALUES ('nobody', '{}', '{}')");
    let verdict = place.run(&["verify", "--json"]).exits(1).json();
    assert_eq!(verdict["equal"], false);
    assert_eq!(verdict["differing"], 3, "{verdict:#}");
    let differences = verdict["differences"].as_array().unwrap();
    let of = |id: &str| differences.iter().find(|one| one["id"] == id).unwrap();
    assert!(of("all")["stored"].is_null() && of("all")["expected"]["carts"].is_u64(), "{verdict:#}");
    assert!(of("nobody")["stored"].is_object() && of("nobody")["expected"].is_null(), "{verdict:#}");

    // The demo itself fails, too.
    let report = place.run(&["--events", "100", "--kill-every", "0", "--json"]).exits(1).json();
    assert_eq!(report["equal"], false, "{report:#}");

    // And refolding repairs documents that were changed from outside.
    let app = Leftfold::on(place.open().await).projection(CartDetails).projection(DailyTotals);
    let app = app.open().await.unwrap();
    for [collection, id] in [["cart_details", &cart], ["daily_totals", "all"]] {
        let before = app.get_as::<Value>(collection, id).await.unwrap();
        assert_eq!(app.refold(collection, id).await.unwrap(), RepairOutcome::Repaired);
        assert_ne!(app.get_as::<Value>(collection, id).await.unwrap(), before);
    }
    let verdict = place.run(&["verify", "--json"]).exits(1).json();
    assert_eq!(verdict["differing"], 1, "{verdict:#}");
    assert_eq!(verdict["differences"][0]["id"], "nobody");
}

#[test]
fn a_demo_on_a_file_adds_to_an_earlier_one() {
    a_demo_adds_to_an_earlier_one(&File::new());
}

#[tokio::test]
async fn the_file_of_another_application_is_refused() {
    the_log_of_another_application_is_refused(&File::new()).await;
}

#[test]
fn an_impossible_demo_is_refused() {
    run(command().args(["--failing", "2"])).exits(2).says("a share from 0 to 1");
    run(command().args(["--kill-every", "0.01"])).exits(2).says("at least 0.05 seconds");
    run(command().args(["--kill-every", "soon"])).exits(2).says("a number of seconds");
    run(command().args(["--events", "0"])).exits(2);
    run(command().args(["--store", "no/such/directory/file"])).exits(3).says("no/such/directory");
    let place = File::new();
    std::fs::write(&place.file, "my diary").unwrap();
    place.run(&[]).exits(3).says("not a SQLite database");
    assert_eq!(std::fs::read(&place.file).unwrap(), b"my diary");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::{Child, Command};

    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::common::{File, command};

    /// Polls until the condition holds, for half a minute.
    #[track_caller]
    fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "not in time: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the arguments of the processes whose environment names a store below this path.
    fn workers_below(path: &Path) -> Vec<String> {
        let wanted = format!("LEFTFOLD_STORE=sqlite:{}", path.to_str().unwrap());
        let of = |entry: std::io::Result<std::fs::DirEntry>| {
            let process = entry.ok()?.path();
            let read =
                |what| Some(String::from_utf8_lossy(&std::fs::read(process.join(what)).ok()?).into_owned());
            read("environ")?.contains(&wanted).then(|| read("cmdline"))?
        };
        std::fs::read_dir("/proc").unwrap().filter_map(of).collect()
    }

    fn endless(place: &File) -> Child {
        let demo = command()
            .args(["--events", "100000000", "--kill-every", "0.5"])
            .env("TMPDIR", place.directory.path())
            .spawn()
            .unwrap();
        eventually("workers run", || workers_below(place.directory.path()).len() == 2);
        demo
    }

    /// A URL may contain a password, and all users of a machine can see arguments.
    #[test]
    fn workers_are_not_told_of_the_store_in_their_arguments() {
        let place = File::new();
        let mut demo = endless(&place);
        let workers = workers_below(place.directory.path());
        demo.kill().unwrap();
        demo.wait().unwrap();
        let path = place.directory.path().to_str().unwrap();
        assert!(!workers.is_empty() && workers.iter().all(|worker| !worker.contains(path)), "{workers:?}");
    }

    #[test]
    fn workers_end_when_the_demo_is_killed() {
        let place = File::new();
        let mut demo = endless(&place);
        demo.kill().unwrap();
        demo.wait().unwrap();
        eventually("workers are gone", || workers_below(place.directory.path()).is_empty());
    }

    #[test]
    fn an_interrupted_demo_leaves_nothing_behind() {
        for signal in ["-INT", "-TERM"] {
            let place = File::new();
            let mut demo = endless(&place);
            let id = demo.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
            assert_eq!(demo.wait().unwrap().code(), Some(130));
            eventually("workers are gone", || workers_below(place.directory.path()).is_empty());
            assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 0);
        }
    }
}
