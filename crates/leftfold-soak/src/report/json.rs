//! The report as JSON, for programs.

use serde_json::{Value, json};

use super::Report;
use super::results::{mib, ms};

impl Report {
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
