//! Tests of the state machine of a task.

mod claims;
mod observations;
mod repetitions;
mod runs;
mod suspects;
mod worlds;

use std::time::Duration;

use jiff::Timestamp;

use super::{Observation, Rules, Task, TaskKey, TaskMoment};
use crate::event::DocumentId;
use crate::json::Json;
use crate::react::define::Retry;
use crate::react::time::later;

// The numbers of a task start at its time, so they are small here.
const BEGIN: Timestamp = Timestamp::UNIX_EPOCH;

fn rules() -> Rules {
    Rules {
        debounce: Duration::ZERO,
        at_most: Duration::from_hours(1),
        retry: Retry::fixed(Duration::from_secs(5)).jitter(0.0).attempts(3),
        history: 3,
        visibility: Duration::from_mins(1),
        version: 1,
        every: None,
    }
}

fn key() -> TaskKey {
    TaskKey { reaction: "mail".to_owned(), document: DocumentId::new("cart-1").unwrap() }
}

fn at(second: i64) -> TaskMoment {
    let now = later(BEGIN, Duration::from_secs(second.unsigned_abs()));
    TaskMoment { now, version: 1_000 + second.unsigned_abs(), random: 0.5 }
}

fn inside(value: u32) -> Observation {
    Observation::Inside(Json::of(&value).unwrap())
}

fn observe(task: Option<Task>, seen: Observation, rules: &Rules, second: i64) -> Option<Task> {
    Task::observe(task, &key(), seen, None, rules, at(second))
}

fn pending() -> Task {
    observe(None, inside(1), &rules(), 0).unwrap()
}

fn running() -> Task {
    pending().claim("w", &rules(), at(1)).unwrap()
}
