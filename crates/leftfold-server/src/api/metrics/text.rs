//! Prometheus' text format.

use std::fmt::{Display, Write as _};

use leftfold::fold::Histogram;

/// Metrics in Prometheus' text format.
#[derive(Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    pub(super) fn histogram(&mut self, name: &str, label: (&str, &str), histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.buckets() {
            self.sample(&bucket, &[label, ("le", &bound.to_string())], count);
        }
        self.sample(&bucket, &[label, ("le", "+Inf")], histogram.count());
        self.sample(&format!("{name}_sum"), &[label], histogram.sum());
        self.sample(&format!("{name}_count"), &[label], histogram.count());
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
