//! Metrics of the process itself: its memory budget, its requests, and its resources.

use leftfold::budget::Use;

use super::health::Figures;
use crate::process::{Process, started};
use crate::{Backend, Shared};

pub(super) fn show<S: Backend>(shared: &Shared<S>, figures: &mut Figures) {
    memory(shared, figures);
    requests(shared, figures);
    process(figures);
}

fn memory<S: Backend>(shared: &Shared<S>, figures: &mut Figures) {
    let budget = &shared.budget;
    let mut by_use = |name: &str, kind: &str, help: &str, value: &dyn Fn(Use) -> u64| {
        figures.family(name, kind, help);
        for r#use in Use::ALL {
            figures.figure(name, &[("use", r#use.name())], value(r#use));
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
        figures.family("leftfold_memory_limit_bytes", "gauge", "Limit of the memory budget.");
        figures.figure("leftfold_memory_limit_bytes", &[], budget.limit());
    }
}

fn requests<S: Backend>(shared: &Shared<S>, figures: &mut Figures) {
    let meters = &shared.meters;
    figures.family("leftfold_http_requests_total", "counter", "Answered requests.");
    for (counted, number) in meters.requests() {
        let status = counted.status.to_string();
        let labels = [("method", counted.method), ("route", &counted.route), ("status", &status)];
        figures.figure("leftfold_http_requests_total", &labels, number);
    }
    let name = "leftfold_http_request_seconds";
    figures.family(name, "histogram", "Time until the response to a request began.");
    for (route, seconds) in meters.seconds() {
        figures.histogram(name, ("route", &route), &seconds);
    }
    figures.family(
        "leftfold_authentications_refused_total",
        "counter",
        "Requests refused for lack of a valid token or scope.",
    );
    for (reason, number) in meters.refused() {
        figures.figure("leftfold_authentications_refused_total", &[("reason", reason)], number);
    }
}

fn process(figures: &mut Figures) {
    let Process { cpu_seconds, resident_bytes, open_files, threads } = Process::read();
    let mut one = |name: &str, kind: &str, help: &str, value: Option<String>| {
        if let Some(value) = value {
            figures.family(name, kind, help);
            figures.figure(name, &[], value);
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
