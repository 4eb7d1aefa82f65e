//! The doctor's findings about an application, on a store in memory.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leftfold::documents::{Claim, Documents as _};
use leftfold::inspect::doctor::{Area, Finding, Severity};
use leftfold::log::Entry;
use leftfold::react::{Reaction, Reactor, Retry};
use leftfold::sequence::HoldingLimits;
use leftfold::{
    Collection, Delivery, Env, Event, EventId, EventKind, Expected, Json, Leftfold, Memory, NewEvent, Policy,
    Projection, Revision, Sequencer, SplitStore, StreamId, fold,
};

struct Counted;

impl Projection for Counted {
    type Event = serde_json::Value;
    type Document = u64;

    fn name(&self) -> &'static str {
        "counted"
    }

    fn fold(&self, count: Option<u64>, _: &Event<Self::Event>) -> Result<Option<u64>, fold::Error> {
        Ok(Some(count.unwrap_or(0) + 1))
    }
}

const NOW: i64 = 1_800_000_000;

/// A clock that stands still.
struct Clock(i64);

impl Env for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0).unwrap()
    }

    fn random(&self) -> u64 {
        4
    }
}

fn event() -> NewEvent {
    NewEvent::new("happened", Json::parse("1").unwrap()).unwrap()
}

#[track_caller]
fn of<'f>(findings: &'f [Finding], area: Area, subject: &str) -> &'f Finding {
    let found = findings.iter().find(|finding| finding.area == area && finding.subject == subject);
    found.unwrap_or_else(|| panic!("nothing is said of {subject}: {findings:#?}"))
}

#[tokio::test(start_paused = true)]
async fn a_projection_is_in_the_hands_of_whoever_has_its_lease() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Counted).open().await.unwrap();
    app.append_events("a", Expected::Any, vec![event()]).await.unwrap();
    let counted = async || of(&app.doctor().await.unwrap(), Area::Projections, "counted").clone();
    assert_eq!(counted().await.severity, Severity::Wrong);
    let name = Collection::new("counted").unwrap();
    let lease = Duration::from_hours(1);
    // The check does not keep workers from their lease.
    assert_eq!(store.claim(&name, "worker", lease).await.unwrap(), Claim::Ours);
    let stuck = counted().await;
    assert!(stuck.severity == Severity::Warning && stuck.found.contains("did not advance"), "{stuck}");
    assert_eq!(store.claim(&name, "worker", lease).await.unwrap(), Claim::Ours);
    store.release(&name, "worker").await.unwrap();
    assert_eq!(counted().await.severity, Severity::Wrong);
}

#[tokio::test]
async fn events_from_the_future_and_events_that_wait_are_told_by_this_machines_clock() {
    let store = Memory::default();
    let entry = Entry {
        id: EventId::new("e").unwrap(),
        kind: EventKind::new("happened").unwrap(),
        time: Timestamp::default(),
        data: Json::parse("1").unwrap(),
        metadata: None,
    };
    let stream = StreamId::new("b").unwrap();
    let early = Delivery { stream, revision: Some(Revision(2)), previous: None, entry: Arc::new(entry) };
    let sequencer = Sequencer::with(store.clone(), HoldingLimits::default(), Arc::new(Clock(NOW)));
    sequencer.ingest(Policy::Contiguous, vec![early]).await.unwrap();
    let past = Leftfold::on(store.clone()).env(Clock(NOW - 7_200)).open().await.unwrap();
    let future = Leftfold::on(store.clone()).env(Clock(NOW + 7_200)).open().await.unwrap();
    let at_now = NewEvent { time: Some(Clock(NOW).now()), ..event() };
    past.append_events("a", Expected::Any, vec![at_now]).await.unwrap();
    let (past, future) = (past.doctor().await.unwrap(), future.doctor().await.unwrap());
    let newest = of(&past, Area::Clock, "the newest event");
    assert!(newest.severity == Severity::Warning && newest.found.contains("in the future"), "{newest}");
    assert_eq!(of(&future, Area::Clock, "the newest event").severity, Severity::Fine);
    assert_eq!(of(&past, Area::Sequence, "held").severity, Severity::Fine);
    let held = of(&future, Area::Sequence, "held");
    assert_eq!(held.severity, Severity::Wrong);
    assert!(held.found.starts_with("1 event arrived early and are held, b for 2 hours"), "{held}");
}

#[tokio::test(start_paused = true)]
async fn a_reaction_that_failed_or_is_paused_is_told() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Counted).start().await.unwrap();
    let broken = Reaction::on(Counted, "mail")
        .retry(Retry::fixed(Duration::ZERO).attempts(1))
        .run(async |_| Err("no route".into()));
    let reacting = Reactor::on(store).reaction(broken).start().await.unwrap();
    app.append_events("a", Expected::Any, vec![event()]).await.unwrap();
    app.caught_up().await.unwrap();
    reacting.idle().await.unwrap();
    let mail = async || of(&app.doctor().await.unwrap(), Area::Reactions, "mail").clone();
    let failed = mail().await;
    assert_eq!(failed.severity, Severity::Wrong, "{failed}");
    assert!(failed.found.starts_with("1 task failed too often"), "{failed}");
    reacting.pause("mail").await.unwrap();
    assert_eq!(mail().await.found, "it is paused");
    app.stop().await;
}

/// Regression: a stopped collection went unnoticed, because without a plan no task can be late.
#[tokio::test(start_paused = true)]
async fn documents_that_change_without_a_plan_are_told() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Counted).start().await.unwrap();
    let mail = Reaction::on(Counted, "mail").run(async |_| Ok(()));
    let reacting = Reactor::on(store).reaction(mail).start().await.unwrap();
    reacting.idle().await.unwrap();
    let unplanned = async || {
        let findings = app.doctor().await.unwrap();
        findings.into_iter().find(|one| one.area == Area::Reactions && one.subject == "counted")
    };
    app.append_events("a", Expected::Any, vec![event()]).await.unwrap();
    app.caught_up().await.unwrap();
    reacting.idle().await.unwrap();
    assert_eq!(unplanned().await, None);
    reacting.stop(Duration::ZERO).await;
    app.append_events("a", Expected::Any, vec![event()]).await.unwrap();
    app.caught_up().await.unwrap();
    let finding = unplanned().await.expect("nobody plans");
    assert_eq!(finding.severity, Severity::Wrong, "{finding}");
    assert!(finding.found.starts_with("documents have changed"), "{finding}");
    app.stop().await;
}

#[tokio::test]
async fn both_stores_are_looked_over_where_they_are_apart() {
    let apart = SplitStore { log: Memory::default(), documents: Memory::default() };
    let findings = Leftfold::on(apart).projection(Counted).doctor().await.unwrap();
    assert_eq!(findings.iter().filter(|finding| finding.subject == "memory").count(), 2);
    assert_eq!(of(&findings, Area::Projections, "counted").severity, Severity::Notice);
}
