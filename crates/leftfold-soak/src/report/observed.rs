//! The report of a run: results, checks, a table.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use crate::arena::{Answers, Messages};
use crate::args::Store;
use crate::bystander;
use crate::memory::{BASE, BUDGET, Peaks};
use crate::operator;
use crate::windows::Window;

/// The limit for the bystander's p99, as a multiple of the calm phase's.
const RATIO: u32 = 5;
/// The limit from a kill until ready, and for a response in a quick run.
const SOON: Duration = Duration::from_secs(5);

/// All results of a run.
pub(crate) struct Report {
    pub(crate) store: Store,
    pub(crate) seed: u64,
    pub(crate) is_quick: bool,
    pub(crate) seconds: f64,
    pub(crate) bystander: bystander::Tally,
    pub(crate) operator: operator::Tally,
    pub(crate) failures: Messages,
    pub(crate) wrong: Messages,
    /// Requests of the bystander that the daemon asked to retry.
    pub(crate) put_off: Messages,
    pub(crate) hostile: Answers,
    pub(crate) windows: Vec<Window>,
    pub(crate) peaks: Peaks,
    pub(crate) parked: u64,
    /// Log lines that report a panic.
    pub(crate) panics: Messages,
}

/// A condition that must hold.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) title: &'static str,
    /// The reason it does not hold.
    pub(crate) broken: Option<String>,
}

fn check(title: &'static str, holds: bool, why: impl FnOnce() -> String) -> Check {
    Check { title, broken: (!holds).then(why) }
}

impl Report {
    pub(crate) fn checks(&self) -> Vec<Check> {
        let tally = &self.bystander;
        let mut checks = vec![
            check("the bystander's data is right", self.wrong.count == 0, || told(&self.wrong)),
            check("each of its requests is answered", self.failures.count == 0, || told(&self.failures)),
            check("it compared documents", tally.compared > 0, || "it compared none".to_owned()),
            check("the daemon ends only when told to", self.operator.ends.is_empty(), || {
                self.operator.ends.join("; ")
            }),
            check("nothing panics", self.panics.count == 0, || told(&self.panics)),
            check("valid files are taken up, broken ones not", self.operator.misread.is_empty(), || {
                self.operator.misread.join("; ")
            }),
            check("hostile scripts are parked", self.parked > 0, || "no document is parked".to_owned()),
            within("the daemon's memory is within the budget", self.peaks.daemon),
            within("so it is with its workers", self.peaks.total),
        ];
        if self.is_quick {
            let slowest = tally.hostile.max();
            checks.push(check("each is served within 5 s", slowest < SOON, || {
                format!("the slowest took {slowest:.1?}, repetitions included")
            }));
            return checks;
        }
        let (calm, hostile) = (tally.calm.percentile(99), tally.hostile.percentile(99));
        checks.push(check("its p99 is below 5 times the calm one", hostile < calm * RATIO, || {
            format!("it is {hostile:.1?}, and was {calm:.1?}")
        }));
        let (ready, folded) = self.slowest_restart();
        checks.push(check("restarts take at most 5 s", ready <= SOON && folded <= SOON, || {
            format!("the slowest took {ready:.1?} until ready, {folded:.1?} until it folded")
        }));
        let (second, last) = self.peaks.thirds;
        checks.push(check("memory stops growing", self.peaks.stop_growing(), || {
            format!("the peak was {} MiB in the second third, {} MiB in the last", mib(second), mib(last))
        }));
        checks
    }

    /// Returns the longest times from a kill until ready, and until an event was folded.
    fn slowest_restart(&self) -> (Duration, Duration) {
        let slowest = |of: fn(&Window) -> Option<Duration>| {
            self.windows.iter().filter_map(of).max().unwrap_or_default()
        };
        (slowest(|window| window.ready), slowest(|window| window.folded))
    }

    pub(crate) fn json(&self) -> Value {
        let (ready, folded) = self.slowest_restart();
        let tally = &self.bystander;
        let kinds: serde_json::Map<_, _> = tally
            .kinds
            .iter()
            .map(|(kind, latencies)| {
                let (p50, p99) = (latencies.percentile(50), latencies.percentile(99));
                let value = json!({
                    "requests": latencies.len(), "p50_ms": ms(p50), "p99_ms": ms(p99), "max_ms": ms(latencies.max()),
                });
                ((*kind).to_owned(), value)
            })
            .collect();
        let statuses: serde_json::Map<_, _> = self
            .hostile
            .statuses
            .iter()
            .map(|((kind, status), count)| (format!("{kind} {status}"), json!(count)))
            .collect();
        let checks: Vec<_> = self
            .checks()
            .into_iter()
            .map(|check| json!({ "check": check.title, "holds": check.broken.is_none(), "reason": check.broken }))
            .collect();
        json!({
            "store": self.store.name(),
            "seed": self.seed,
            "quick": self.is_quick,
            "seconds": self.seconds,
            "requests": tally.requests,
            "repeated": tally.repeated,
            "put_off": { "requests": self.put_off.count, "first": self.put_off.first },
            "compared": tally.compared,
            "calm": { "p50_ms": ms(tally.calm.percentile(50)), "p99_ms": ms(tally.calm.percentile(99)) },
            "hostile": {
                "p50_ms": ms(tally.hostile.percentile(50)),
                "p99_ms": ms(tally.hostile.percentile(99)),
                "max_ms": ms(tally.hostile.max()),
            },
            "kinds": kinds,
            "hostile_requests": self.hostile.requests,
            "hostile_answers": statuses,
            "answers_that_blame_the_daemon": self.hostile.blamed.first,
            "kills": self.windows.len(),
            "orphaned_workers": self.operator.orphans,
            "second_sigterms": self.operator.insisted,
            "slowest_restart_ms": { "ready": ms(ready), "folding": ms(folded) },
            "reloads": self.operator.reloads,
            "slowest_reload_ms": ms(self.operator.slowest_reload),
            "clock_steps": self.operator.clock_steps,
            "peak_mib": {
                "daemon": mib(self.peaks.daemon), "workers": mib(self.peaks.workers), "total": mib(self.peaks.total),
                "second_third": mib(self.peaks.thirds.0), "last_third": mib(self.peaks.thirds.1),
            },
            "parked": self.parked,
            "checks": checks,
        })
    }
}

/// Formats a table of at most 80 columns.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tally, operator) = (&self.bystander, &self.operator);
        let (ready, folded) = self.slowest_restart();
        let mut rows: Vec<(&str, String)> = vec![
            ("seed", format!("{}, {:.0} s on {}", self.seed, self.seconds, self.store.name())),
            (
                "bystander",
                format!(
                    "{} requests, {} repeated at kills, {} put off",
                    tally.requests, tally.repeated, self.put_off.count
                ),
            ),
        ];
        for (name, latencies) in [("calm", &tally.calm), ("hostile", &tally.hostile)] {
            let (p50, p99) = (ms(latencies.percentile(50)), ms(latencies.percentile(99)));
            let max = ms(latencies.max());
            rows.push((name, format!("p50 {p50:.1} ms, p99 {p99:.1} ms, slowest {max:.0} ms")));
        }
        let kills = self.windows.len();
        let restart = format!("slowest restart {:.0} ms to ready, {:.0} to folding", ms(ready), ms(folded));
        rows.push(("kills", format!("{kills}, {restart}")));
        let (orphans, insisted) = (operator.orphans, operator.insisted);
        rows.push(("", format!("{orphans} workers outlived the daemon, {insisted} second SIGTERMs")));
        let (reloads, reload) = (operator.reloads, ms(operator.slowest_reload));
        rows.push((
            "reloads",
            format!("{reloads}, slowest {reload:.0} ms; {} clock steps", operator.clock_steps),
        ));
        let blamed = self.hostile.blamed.count;
        rows.push(("hostile", format!("{} requests, {blamed} answered with 500", self.hostile.requests)));
        let Peaks { daemon, workers, total, thirds: (second, last) } = self.peaks;
        let peaks = [daemon, workers, total, second, last].map(mib);
        let [daemon, workers, total, second, last] = peaks;
        rows.push((
            "peak MiB",
            format!("daemon {daemon}, workers {workers}, together {total}; by thirds {second}, {last}"),
        ));
        rows.push((
            "documents",
            format!("{} parked, {} of the bystander compared", self.parked, tally.compared),
        ));
        let mut text = String::new();
        for (name, value) in rows {
            writeln!(text, "{name:<10} {value}")?;
        }
        for check in self.checks() {
            let (mark, title) = (if check.broken.is_none() { "ok" } else { "BROKEN" }, check.title);
            writeln!(text, "{mark:<10} {title}")?;
        }
        f.write_str(&text)
    }
}

fn within(title: &'static str, peak: u64) -> Check {
    check(title, peak <= BUDGET + BASE, || {
        format!(
            "the peak was {} MiB, allowed are {} and {} for the program",
            mib(peak),
            mib(BUDGET),
            mib(BASE)
        )
    })
}

fn told(messages: &Messages) -> String {
    format!("{} times, such as: {}", messages.count, messages.first.join("\n  "))
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(broken(&slow), ["its p99 is below 5 times the calm one"]);
        slow.is_quick = true;
        assert!(broken(&slow).is_empty());
        slow.bystander.hostile.push(Duration::from_secs(6));
        assert_eq!(broken(&slow), ["each is served within 5 s"]);
        let mut large = report();
        large.peaks = Peaks { daemon: 673 << 20, total: 700 << 20, thirds: (10, 20), ..large.peaks };
        assert_eq!(broken(&large).len(), 3);
        let mut late = report();
        let window =
            Window { killed: std::time::Instant::now(), ready: Some(SOON * 2), folded: Some(SOON * 2) };
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
}
