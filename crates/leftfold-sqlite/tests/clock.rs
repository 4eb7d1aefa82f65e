//! The machine's clock is set back, forward, and there and back: leases expire and tasks become due
//! at the right time.
//!
//! The bug this guards against: a clock set back by hours delayed every task and every takeover by
//! as much.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::{cart, closed};
use jiff::{SignedDuration, Timestamp};
use leftfold::documents::Claim;
use leftfold::inspect::doctor::{Examine as _, Severity};
use leftfold::react::{ReactionStore as _, State, Suspicion, Task, TaskChange, TaskKey, WantedTasks};
use leftfold::{DocumentId, Documents as _, Json};
use leftfold_sqlite::{MachineClock, Sqlite};
use tempfile::tempdir;

const MINUTE: i64 = 60_000_000;
const HOUR: i64 = 60 * MINUTE;
const LEASE: Duration = Duration::from_mins(1);

/// A clock that can be set, beside one that can't.
#[derive(Clone)]
struct Set(Arc<(AtomicI64, AtomicI64)>);

impl Set {
    fn new() -> Self {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        Self(Arc::new((AtomicI64::new(now.as_microsecond()), AtomicI64::new(0))))
    }

    fn step(&self, micros: i64) {
        self.0.0.fetch_add(micros, Ordering::Relaxed);
    }

    fn pass(&self, micros: i64) {
        self.step(micros);
        self.0.1.fetch_add(micros, Ordering::Relaxed);
    }

    async fn open(&self, path: &Path) -> Sqlite {
        Sqlite::options().clock(self.clone()).open(path).await.unwrap()
    }
}

impl MachineClock for Set {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.0.load(Ordering::Relaxed)).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.1.load(Ordering::Relaxed).unsigned_abs())
    }
}

/// Plans a task that is due after this many minutes.
async fn plan(store: &Sqlite, name: &str, minutes: i64) {
    let now = store.time().await.unwrap();
    let task = Task {
        key: TaskKey { reaction: "mail".to_owned(), document: DocumentId::new(name).unwrap() },
        version: 1,
        state: State::Pending,
        inside: true,
        epoch: 0,
        generation: 1,
        watched: Json::stored("null"),
        due: Some(now + SignedDuration::from_mins(minutes)),
        since: now,
        check_at: None,
        needs: 1,
        attempts: 0,
        first_failed: None,
        error: None,
        owner: None,
        claimed_at: None,
        done_at: None,
        changed_at: now,
        history: Vec::new(),
        cursor: None,
        suspicion: Suspicion::None,
        excused: 0,
    };
    assert_eq!(store.save_tasks(vec![TaskChange::Insert(task)]).await.unwrap(), []);
}

async fn due(store: &Sqlite) -> Vec<String> {
    let wanted =
        WantedTasks { reaction: "mail".to_owned(), version: 1, most: 10, suspicion: Suspicion::None };
    let due = store.due_tasks(vec![wanted]).await.unwrap();
    due.tasks.into_iter().map(|task| task.key.document.to_string()).collect()
}

async fn is_free(store: &Sqlite, owner: &str) -> bool {
    let claimed = store.claim(&cart(), owner, LEASE).await.unwrap();
    let taken = store.take_lease("planner", owner, LEASE).await.unwrap();
    assert_eq!(claimed == Claim::Ours, taken.is_some(), "both kinds of leases agree");
    taken.is_some()
}

#[tokio::test]
async fn a_clock_that_is_set_back_delays_nothing() {
    let directory = tempdir().unwrap();
    let (set, path) = (Set::new(), directory.path().join("store.db"));
    let (one, other) = (set.open(&path).await, set.open(&path).await);
    one.prepare(&cart()).await.unwrap();
    plan(&one, "soon", 10).await;
    assert!(is_free(&one, "one").await && !is_free(&other, "other").await);
    set.step(-6 * HOUR);
    assert!(!is_free(&other, "other").await, "its minute is not over");
    assert!(due(&one).await.is_empty());
    set.pass(MINUTE + MINUTE / 8);
    assert!(is_free(&other, "other").await, "a lease of a minute is over after little more than that");
    set.pass(10 * MINUTE);
    assert_eq!(due(&other).await, ["soon"]);

    // A process that starts later continues from there.
    plan(&one, "later", 60).await;
    assert!(is_free(&one, "one").await);
    closed(one).await;
    closed(other).await;
    set.step(-6 * HOUR);
    let restarted = set.open(&path).await;
    set.pass(HOUR + HOUR / 8);
    assert_eq!(due(&restarted).await, ["soon", "later"]);
    assert!(is_free(&restarted, "restarted").await);
}

#[tokio::test]
async fn a_clock_that_is_set_forward_and_back_leaves_nothing_in_the_future() {
    let directory = tempdir().unwrap();
    let (set, path) = (Set::new(), directory.path().join("store.db"));
    // The second store is idle while the clock is wrong.
    let (one, asleep) = (set.open(&path).await, set.open(&path).await);
    one.prepare(&cart()).await.unwrap();
    assert!(is_free(&asleep, "asleep").await);
    plan(&one, "before", 60).await;
    set.step(6 * HOUR);
    assert_eq!(due(&one).await, ["before"], "by all that can be told, six hours are over");
    plan(&one, "meanwhile", 10).await;
    assert!(is_free(&one, "one").await);
    set.step(-6 * HOUR);
    assert!(!is_free(&asleep, "asleep").await, "its minute is not over");
    set.pass(MINUTE + MINUTE / 8);
    assert!(is_free(&asleep, "asleep").await, "it does not wait for six hours");
    set.pass(10 * MINUTE);
    assert_eq!(due(&asleep).await, ["before", "meanwhile"]);
    assert_eq!(due(&one).await, ["before", "meanwhile"]);
}

#[tokio::test]
async fn the_doctor_tells_of_steps() {
    let directory = tempdir().unwrap();
    let (set, path) = (Set::new(), directory.path().join("store.db"));
    let store = set.open(&path).await;
    store.prepare(&cart()).await.unwrap();
    let said = async |store: &Sqlite| {
        let findings = store.examine().await.unwrap();
        findings.into_iter().find(|finding| finding.subject == "the store's time").unwrap()
    };
    assert_eq!(said(&store).await.severity, Severity::Fine);
    set.step(2 * HOUR);
    assert!(is_free(&store, "one").await);
    let forward = said(&store).await;
    assert!(forward.found.contains("set forward by 2 hours"), "{forward}");
    set.step(-6 * HOUR);
    assert!(is_free(&store, "one").await);
    let back = said(&store).await;
    assert_eq!(back.severity, Severity::Warning);
    assert!(back.found.contains("6 hours ahead"), "{back}");
    // Another process reports the same.
    let other = said(&set.open(&path).await).await;
    assert_eq!(other.found, back.found);
    set.pass(100 * HOUR);
    assert!(said(&store).await.found.contains("set back by 6 hours"));
    set.pass(200 * HOUR);
    assert_eq!(said(&store).await.severity, Severity::Fine);
}
