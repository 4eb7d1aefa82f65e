//! The report as a table, for people.

use std::fmt::{self, Write as _};

use super::Report;
use super::results::{mib, ms};
use crate::memory::Peaks;

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
