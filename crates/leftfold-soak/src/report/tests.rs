use std::time::Duration;

use serde_json::json;

use super::Report;
use super::checks::SOON;
use crate::arena::{Answers, Messages};
use crate::args::Store;
use crate::memory::Peaks;
use crate::windows::Window;
use crate::{bystander, operator};

fn report() -> Report {
    let mut bystander = bystander::Tally { requests: 1_234_567, compared: 7, ..Default::default() };
    bystander.calm.push(Duration::from_millis(10));
    bystander.hostile.push(Duration::from_millis(49));
    Report {
        store: Store::Mongodb,
        seed: u64::MAX,
        is_quick: false,
        seconds: 1_800.0,
        bystander,
        operator: operator::Tally { reloads: 12_345, clock_steps: 1_234, ..Default::default() },
        failures: Messages::default(),
        wrong: Messages::default(),
        put_off: Messages::default(),
        hostile: Answers { requests: 1_234_567, ..Default::default() },
        windows: Vec::new(),
        peaks: Peaks {
            daemon: 600 << 20,
            total: 672 << 20,
            workers: 99 << 20,
            thirds: (672 << 20, 672 << 20),
        },
        parked: 123_456,
        panics: Messages::default(),
    }
}

fn broken(report: &Report) -> Vec<&'static str> {
    let checks = report.checks().into_iter();
    checks.filter(|check| check.broken.is_some()).map(|check| check.title).collect()
}

#[test]
fn the_table_fits_eighty_columns() {
    let table = report().to_string();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("p99 49.0 ms") && !table.contains("BROKEN"), "{table}");
}

#[test]
fn each_check_can_break() {
    assert_eq!(broken(&report()), Vec::<&str>::new());
    let mut slow = report();
    slow.bystander.hostile.push(Duration::from_millis(51));
    assert_eq!(broken(&slow), ["the p99 is below 5 times the calm one"]);
    slow.is_quick = true;
    assert!(broken(&slow).is_empty());
    slow.bystander.hostile.push(Duration::from_secs(6));
    assert_eq!(broken(&slow), ["each request is served within 5 s"]);
    let mut large = report();
    large.peaks = Peaks { daemon: 673 << 20, total: 700 << 20, thirds: (10, 20), ..large.peaks };
    assert_eq!(broken(&large).len(), 3);
    let mut late = report();
    let window = Window { killed: std::time::Instant::now(), ready: Some(SOON * 2), folded: Some(SOON * 2) };
    late.windows.push(window);
    assert_eq!(broken(&late), ["restarts take at most 5 s"]);
    let mut ended = report();
    ended.operator.ends.push("it ended by itself".to_owned());
    ended.operator.misread.push("a name twice".to_owned());
    ended.wrong = Messages { count: 1, first: vec!["x".to_owned()] };
    ended.failures = ended.wrong.clone();
    ended.panics = ended.wrong.clone();
    (ended.parked, ended.bystander.compared) = (0, 0);
    assert_eq!(broken(&ended).len(), 7);
}

#[test]
fn the_report_is_json_too() {
    let json = report().json();
    assert_eq!((&json["store"], &json["hostile"]["p99_ms"]), (&json!("mongodb"), &json!(49.0)));
    assert!(json["checks"].as_array().unwrap().iter().all(|check| check["holds"] == true));
}
