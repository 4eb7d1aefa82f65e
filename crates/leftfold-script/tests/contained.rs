//! Scripts in worker processes: each ends at its limits, and others continue.
//!
//! In an earlier version, one event whose fold never returned froze every projection and every
//! request of the daemon, again after each restart. Native loops of the engine never check for
//! interruption.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leftfold::budget::{Budget, Use};
use leftfold::fold::Upcoming;
use leftfold::testing::spec;
use leftfold::{
    DocumentId, Event, EventId, EventKind, Json, NewEvent, Partition, Position, Projection as _, Revision,
    StreamId,
};
use leftfold_script::{Script, ScriptLimits, Workers};
use serde_json::json;

const LIMITS: ScriptLimits = ScriptLimits { time: Duration::from_millis(400), memory: 32 << 20 };

/// The maximum time that a hanging worker may cost, on a busy machine.
const SOON: Duration = Duration::from_mins(1);

fn workers() -> Workers {
    Workers::new(env!("CARGO_BIN_EXE_leftfold-script-worker"), [], Budget::unlimited())
}

fn compile(workers: &Workers, source: &str) -> Script {
    Script::compile_in(workers, "docs", "docs.js", LIMITS, source).unwrap()
}

/// A script with harmless functions, and others that the engine can't interrupt.
const HOSTILE: &str = r#"
    const searching = (size) => ({ found: "a".repeat(size).includes("a".repeat(size / 2) + "b") });
    export default {
      counted: (doc = { n: 0 }) => ({ n: doc.n + 1 }),
      searches: () => searching(600_000),
      searches_for_ever: () => { for (;;) "a".repeat(600_000).includes("a".repeat(300_000) + "b"); },
      joins: () => ({ text: new Array(4294967295).join("") }),
      eats: () => { const all = []; for (;;) all.push(new Array(1000).fill("x")); },
      loops: () => { for (;;) {} },
      nests: () => { const f = () => f() + 1; return { n: f() }; },
      throws: () => { throw new Error("on purpose"); },
      cuts: () => ({ text: "😀".slice(0, 1) }),
      deletes: () => null,
    };
"#;

fn event(stream: &str, position: u64, kind: &str) -> Event {
    Event {
        id: EventId::new(format!("e{position}")).unwrap(),
        stream: StreamId::new(stream).unwrap(),
        revision: Revision(position),
        kind: EventKind::new(kind).unwrap(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
        data: Json::parse("{}").unwrap(),
        metadata: None,
        partition: Partition(0),
        position: Position(position),
    }
}

/// Folds all events in one call. Returns each result as text: the document, `-` for none, `?` for
/// not computed, or the error.
fn folded(script: &Script, events: &[Event]) -> Vec<String> {
    let ids: Vec<_> = events.iter().map(|event| DocumentId::from(&event.stream)).collect();
    let upcoming = events.iter().zip(&ids).map(|(event, id)| Upcoming { id, document: None, event });
    let upcoming: Vec<_> = upcoming.collect();
    let answers = script.bulk().unwrap().fold(&upcoming, events.len(), Duration::ZERO);
    assert_eq!(answers.len(), events.len());
    let shown = answers.into_iter().map(|answer| match answer {
        None => "?".to_owned(),
        Some(Ok(None)) => "-".to_owned(),
        Some(Ok(Some(document))) => document.as_str().to_owned(),
        Some(Err(error)) => format!("error: {error}"),
    });
    shown.collect()
}

#[test]
fn a_fold_that_never_comes_back_fails_alone() {
    let workers = workers();
    let script = compile(&workers, HOSTILE);
    for kind in ["searches", "joins"] {
        let kinds = ["counted", "counted", kind, "counted", "counted"];
        let streams = ["a", "b", "c", "a", "c"];
        let events: Vec<_> =
            kinds.iter().zip(streams).zip(1..).map(|((kind, stream), at)| event(stream, at, kind)).collect();
        let begun = Instant::now();
        let shown = folded(&script, &events);
        assert!(begun.elapsed() < SOON);
        assert_eq!(shown[..2], [r#"{"n":1}"#, r#"{"n":1}"#], "{kind}");
        let is_contained = ["error: the script exceeded ", "error: the worker "];
        let is_contained = is_contained.iter().any(|begin| shown[2].starts_with(begin));
        assert!(is_contained, "{kind}: {shown:?}");
        assert_eq!(shown[3], r#"{"n":2}"#, "{kind}");
        // Its document is at the event that failed.
        assert_eq!(shown[4], "?", "{kind}");
    }
}

#[test]
fn limits_hold_wherever_a_script_runs_into_them() {
    let workers = workers();
    for (kind, why) in [
        ("searches", "the script exceeded its time limit of 400ms"),
        ("loops", "the script exceeded its time limit of 400ms"),
        ("eats", "the script exceeded its memory limit of 32 MiB"),
        ("nests", "stack"),
        ("throws", "Error: on purpose"),
        ("cuts", "at `text`"),
    ] {
        spec(compile(&workers, HOSTILE))
            .given_events("a", [NewEvent::new(kind, Json::parse("{}").unwrap()).unwrap()])
            .then_fails(why)
            .given_events("b", [NewEvent::new("counted", Json::parse("{}").unwrap()).unwrap()])
            .then("b", json!({ "n": 1 }));
    }
}

#[test]
fn many_at_a_time_are_folded_as_one_by_one() {
    let (workers, kinds) = (workers(), ["counted", "throws", "deletes", "counted", "cuts", "counted"]);
    let (there, here) =
        (compile(&workers, HOSTILE), Script::compile("docs", "docs.js", LIMITS, HOSTILE).unwrap());
    let events: Vec<_> = (0..5_000_u64)
        .map(|at| {
            // A linear congruential generator: the mixture is arbitrary but reproducible.
            let drawn =
                at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33;
            event(
                &format!("s{}", drawn % 700),
                at + 1,
                kinds[usize::try_from(drawn / 700).unwrap() % kinds.len()],
            )
        })
        .collect();
    let mut documents = std::collections::HashMap::new();
    let expected = events.iter().map(|event| {
        let before = documents.get(event.stream.as_str()).cloned().unwrap_or(Some(None));
        let Some(before) = before else { return "?".to_owned() };
        let after = here.fold(before, event);
        let shown = match &after {
            Ok(None) => "-".to_owned(),
            Ok(Some(document)) => document.as_str().to_owned(),
            Err(error) => format!("error: {error}"),
        };
        documents.insert(event.stream.as_str().to_owned(), after.ok());
        shown
    });
    let expected: Vec<_> = expected.collect();
    for ((shown, expected), event) in folded(&there, &events).into_iter().zip(expected).zip(&events) {
        assert_eq!(shown, expected, "{event:?}");
    }
}

#[test]
fn routes_are_contained_too() {
    let source = r#"
        export const route = ({ stream, type }) => {
          if (type === "searches") return "a".repeat(600_000).includes("a".repeat(300_000) + "b") ? [] : "x";
          return [stream, "all"];
        };
        export default { counted: (doc = { n: 0 }) => ({ n: doc.n + 1 }), searches: () => null };
    "#;
    let workers = workers();
    let script = compile(&workers, source);
    let events = [event("a", 1, "counted"), event("b", 2, "searches"), event("c", 3, "counted")];
    let routed = script.bulk().unwrap().route(&events.iter().collect::<Vec<_>>());
    assert!(routed[0].is_ok() && routed[2].is_ok(), "{routed:?}");
    let error = routed[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("the script exceeded its time limit of 400ms"), "{error}");
}

#[test]
fn a_script_that_never_comes_to_an_end_is_not_compiled() {
    let source = "export default { a: () => null }; 'a'.repeat(600_000).includes('a'.repeat(300_000) + 'b');";
    let error = Script::compile_in(&workers(), "docs", "docs.js", LIMITS, source).unwrap_err();
    assert_eq!(error.to_string(), "the script exceeded its time limit of 400ms");
    let error = Script::compile_in(&workers(), "docs", "docs.js", LIMITS, "export default {").unwrap_err();
    assert!(error.to_string().contains("SyntaxError"), "{error}");
}

#[test]
fn many_scripts_share_few_processes_which_count_in_the_budget_and_end_with_it() {
    let budget = Budget::new(1 << 30);
    let marked = [MARK.to_owned()];
    let workers = Workers::new(env!("CARGO_BIN_EXE_leftfold-script-worker"), marked, budget.clone());
    let scripts: Vec<_> = (0..40)
        .map(|number| {
            let source = format!("export default {{ counted: () => ({{ script: {number} }}) }};");
            Script::compile_in(&workers, format!("s{number}"), "s.js", LIMITS, source).unwrap()
        })
        .collect();
    for _ in 0..2 {
        for (script, number) in scripts.iter().zip(0..) {
            assert_eq!(folded(script, &[event("a", 1, "counted")]), [format!(r#"{{"script":{number}}}"#)]);
        }
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    let running = processes();
    assert!((1..=cores.max(2)).contains(&running.len()), "{running:?}");
    assert!(budget.used_by(Use::Fold) > 1 << 20, "{budget:?}");
    drop((scripts, workers));
    assert_eq!(budget.used(), 0);
    assert_eq!(processes(), [0; 0]);
}

/// An argument that identifies the processes of one test.
const MARK: &str = "shared-by-many";

/// Returns the worker processes that have the mark.
fn processes() -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        line.split('\0').any(|argument| argument == MARK).then_some(id)
    });
    all.collect()
}

#[test]
fn scripts_that_hang_for_the_first_time_hold_up_nobody_else() {
    let workers = workers();
    // Far longer than this test may take.
    let limits = ScriptLimits { time: Duration::from_mins(30), ..LIMITS };
    let hanging: Vec<_> = (0..2 * std::thread::available_parallelism().unwrap().get() + 2)
        .map(|number| {
            let source = format!("// {number}\n{HOSTILE}");
            Script::compile_in(&workers, "hanging", "hanging.js", limits, source).unwrap()
        })
        .collect();
    let quick = compile(&workers, HOSTILE);
    for script in hanging {
        // They hang as long as the process of this test lives.
        std::thread::spawn(move || folded(&script, &[event("a", 1, "searches_for_ever")]));
    }
    for at in 1..50 {
        let begun = Instant::now();
        assert_eq!(folded(&quick, &[event("a", at, "counted")]), [r#"{"n":1}"#]);
        assert!(begun.elapsed() < SOON);
    }
}

#[test]
fn slow_scripts_leave_workers_to_others() {
    let workers = workers();
    let slow = "export default { counted: () => {
        for (let n = 0, sum = 0; n < 3e6; n++) sum += n;
        return { slow: true };
    } };";
    let limits = ScriptLimits { time: Duration::from_secs(20), ..LIMITS };
    let slow = Script::compile_in(&workers, "slow", "slow.js", limits, slow).unwrap();
    let quick = compile(&workers, HOSTILE);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More scripts than there are workers.
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() + 2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    assert_eq!(folded(&slow, &[event("a", 1, "counted")]), [r#"{"slow":true}"#]);
                }
            });
        }
        for at in 1..100 {
            let begun = Instant::now();
            assert_eq!(folded(&quick, &[event("a", at, "counted")]), [r#"{"n":1}"#]);
            assert!(begun.elapsed() < SOON);
        }
        is_done.store(true, Ordering::Relaxed);
    });
}
