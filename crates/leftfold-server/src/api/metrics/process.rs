//! Metrics of the process itself: its memory budget, its requests, and its resources.

use leftfold::budget::Use;

use super::text::MetricsText;
use crate::process::{Process, started};
use crate::{Backend, Shared};

/// Writes all metrics of the process.
pub(super) fn write<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) {
    memory(shared, text);
    requests(shared, text);
    process(text);
}

/// Writes whether requests can be served, and which parts do not work although they can.
pub(super) fn write_readiness<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) {
    let is_ready = !shared.is_stopping() && shared.readiness.refusal().is_none();
    text.family("leftfold_ready", "gauge", "1 if the server can serve requests, else 0.");
    text.sample("leftfold_ready", &[], u8::from(is_ready));
    let troubles = shared.readiness.troubles();
    text.family("leftfold_degraded", "gauge", "1 if a projection or a feed does not work, else 0.");
    text.sample("leftfold_degraded", &[], u8::from(!troubles.is_empty()));
    text.family("leftfold_trouble", "gauge", "Projections and feeds that do not work, by kind and name.");
    for trouble in troubles {
        let labels = [("kind", trouble.kind.name()), ("name", trouble.name.as_str())];
        text.sample("leftfold_trouble", &labels, 1);
    }
}

fn memory<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) {
    let budget = &shared.budget;
    let mut by_use = |name: &str, kind: &str, help: &str, value: &dyn Fn(Use) -> u64| {
        text.family(name, kind, help);
        for r#use in Use::ALL {
            text.sample(name, &[("use", r#use.name())], value(r#use));
        }
    };
    by_use("leftfold_memory_used_bytes", "gauge", "Bytes of the memory budget in use.", &|r#use| {
        budget.used_by(r#use) as u64
    });
    by_use(
        "leftfold_memory_refused_total",
        "counter",
        "Allocations that the memory budget refused.",
        &|r#use| budget.refused(r#use),
    );
    if budget.limit() < usize::MAX {
        text.family("leftfold_memory_limit_bytes", "gauge", "Limit of the memory budget.");
        text.sample("leftfold_memory_limit_bytes", &[], budget.limit());
    }
}

fn requests<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) {
    let meters = &shared.meters;
    text.family("leftfold_http_requests_total", "counter", "Answered requests.");
    for (counted, number) in meters.requests() {
        let status = counted.status.to_string();
        let labels = [("method", counted.method), ("route", &counted.route), ("status", &status)];
        text.sample("leftfold_http_requests_total", &labels, number);
    }
    let name = "leftfold_http_request_seconds";
    text.family(name, "histogram", "Time until the response to a request began.");
    for (route, seconds) in meters.seconds() {
        text.histogram(name, ("route", &route), &seconds);
    }
    text.family(
        "leftfold_authentications_refused_total",
        "counter",
        "Requests refused for lack of a valid token or scope.",
    );
    for (reason, number) in meters.refused() {
        text.sample("leftfold_authentications_refused_total", &[("reason", reason)], number);
    }
}

fn process(text: &mut MetricsText) {
    let Process { cpu_seconds, resident_bytes, open_files, threads } = Process::read();
    let mut one = |name: &str, kind: &str, help: &str, value: Option<String>| {
        if let Some(value) = value {
            text.family(name, kind, help);
            text.sample(name, &[], value);
        }
    };
    let text = |number: usize| number.to_string();
    let cpu = cpu_seconds.map(|seconds| seconds.to_string());
    one("process_cpu_seconds_total", "counter", "CPU time of the process.", cpu);
    one(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory of the process.",
        resident_bytes.map(text),
    );
    one("process_open_fds", "gauge", "Open file descriptors of the process.", open_files.map(text));
    one("process_threads", "gauge", "Threads of the process.", threads.map(|number| number.to_string()));
    let help = "Start time of the process, in seconds since 1970.";
    one("process_start_time_seconds", "gauge", help, Some(started().to_string()));
}
