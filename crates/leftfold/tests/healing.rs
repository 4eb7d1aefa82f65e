//! Gaps that a feed leaves are healed by a resupplier that still has the missing events, with few
//! and patient requests.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::log::{Entry, Limit};
use leftfold::sequence::{FromLog, Healer, Healing, HoldingLimits, Missing, Resupply, Waiting, resupply};
use leftfold::{
    Append, Delivery, Env, Error, EventId, EventKind, Expected, Json, Kind, Log, Memory, Policy, Result,
    Revision, Sequencer, Sequences, StreamId,
};

/// A clock set by the test, in seconds.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Env for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }

    fn random(&self) -> u64 {
        leftfold::System.random()
    }
}

fn stream() -> StreamId {
    StreamId::new("s").unwrap()
}

fn entry(revision: u64) -> Entry {
    Entry {
        id: EventId::new(format!("s-{revision}")).unwrap(),
        kind: EventKind::new("noted").unwrap(),
        time: Timestamp::UNIX_EPOCH,
        data: Json::of(&revision).unwrap(),
        metadata: None,
    }
}

fn delivery(revision: u64) -> Delivery {
    let entry = Arc::new(entry(revision));
    Delivery { stream: stream(), revision: Some(Revision(revision)), previous: None, entry }
}

/// A store with a sequencer whose clock the test sets.
struct Scene {
    store: Memory,
    hands: Hands,
    sequencer: Sequencer<Memory>,
}

impl Scene {
    /// Creates a scene in which these revisions have arrived.
    async fn with(revisions: impl IntoIterator<Item = u64>) -> Self {
        let (store, hands) = (Memory::default(), Hands::default());
        let sequencer = Sequencer::with(store.clone(), HoldingLimits::default(), Arc::new(hands.clone()));
        let fed = revisions.into_iter().map(delivery).collect();
        sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
        Self { store, hands, sequencer }
    }

    fn healer<R: Resupply>(&self, resupplier: R) -> Healer<Memory, R> {
        Healer::new(self.sequencer.clone(), resupplier, Healing::default())
    }

    fn pass(&self, seconds: i64) {
        self.hands.0.fetch_add(seconds, Ordering::Relaxed);
    }

    async fn count(&self) -> usize {
        let limit = Limit { events: usize::MAX, bytes: usize::MAX };
        let events = self.store.read_stream(&stream(), Revision(0), limit).await.unwrap();
        let revisions: Vec<_> = events.iter().map(|event| event.revision.0).collect();
        assert_eq!(revisions, (1..=events.len() as u64).collect::<Vec<_>>());
        events.len()
    }

    async fn waiting(&self) -> Option<Waiting> {
        self.store.survey(vec![stream()]).await.unwrap().streams.remove(&stream()).unwrap().waiting
    }
}

/// A resupplier that has all events, records its requests, and can fail.
#[derive(Clone, Default)]
struct Origin {
    asked: Arc<Mutex<Vec<(u64, u64)>>>,
    trouble: Arc<Mutex<Option<&'static str>>>,
}

impl Resupply for Origin {
    async fn resupply(&self, missing: Missing) -> Result<Vec<Delivery>> {
        self.asked.lock().unwrap().push((missing.after.0, missing.through.0));
        if let Some(trouble) = *self.trouble.lock().unwrap() {
            return Err(Error::new(Kind::Unavailable, trouble));
        }
        Ok((missing.after.0 + 1..=missing.through.0).rev().map(delivery).collect())
    }
}

#[tokio::test]
async fn only_a_gap_that_has_become_old_is_healed() {
    let scene = Scene::with([1, 4, 5]).await;
    let origin = Origin::default();
    let healer = scene.healer(origin.clone());
    scene.pass(9);
    assert_eq!(healer.heal().await.unwrap(), 0);
    assert!(origin.asked.lock().unwrap().is_empty());
    scene.pass(1);
    assert_eq!(healer.heal().await.unwrap(), 2);
    assert_eq!(*origin.asked.lock().unwrap(), [(1, 3)]);
    assert_eq!(scene.count().await, 5);
    assert_eq!(scene.waiting().await, None);
    let counts = scene.sequencer.counts();
    assert_eq!((counts.healed, counts.released), (2, 2));
}

#[tokio::test]
async fn a_long_gap_is_asked_for_in_pieces() {
    let scene = Scene::with([2_502]).await;
    scene.pass(60);
    let origin = Origin::default();
    assert_eq!(scene.healer(origin.clone()).heal().await.unwrap(), 2_501);
    assert_eq!(*origin.asked.lock().unwrap(), [(0, 1_000), (1_000, 2_000), (2_000, 2_501)]);
    assert_eq!(scene.count().await, 2_502);
}

#[tokio::test]
async fn one_who_can_not_help_is_asked_again_ever_more_seldom_and_the_gap_says_why() {
    let scene = Scene::with([2]).await;
    let origin = Origin::default();
    *origin.trouble.lock().unwrap() = Some("the origin sleeps");
    let healer = scene.healer(origin.clone());
    scene.pass(10);
    for _ in 0..3 {
        healer.heal().await.unwrap();
    }
    assert_eq!(origin.asked.lock().unwrap().len(), 1, "it is not asked again at once");
    let waiting = scene.waiting().await.unwrap();
    assert_eq!((waiting.asked, waiting.trouble.as_deref()), (1, Some("the origin sleeps")));
    let mut waits = Vec::new();
    for _ in 0..6 {
        let before = scene.hands.now();
        let asked = origin.asked.lock().unwrap().len();
        while origin.asked.lock().unwrap().len() == asked {
            scene.pass(1);
            healer.heal().await.unwrap();
        }
        waits.push(scene.hands.now().duration_since(before).as_secs());
    }
    assert!(waits[5] > 8 * waits[0], "{waits:?}");
    *origin.trouble.lock().unwrap() = None;
    scene.pass(3_600);
    assert_eq!(healer.heal().await.unwrap(), 1);
    assert_eq!((scene.count().await, scene.waiting().await), (2, None));
}

#[tokio::test]
async fn what_nobody_has_stays_visible() {
    let scene = Scene::with([3]).await;
    scene.pass(10);
    let healer = scene.healer(resupply(async |missing: Missing| {
        Ok(if missing.after.0 == 0 { vec![delivery(1)] } else { Vec::new() })
    }));
    assert_eq!(healer.heal().await.unwrap(), 1);
    let waiting = scene.waiting().await.unwrap();
    assert_eq!((waiting.first, waiting.until, waiting.events), (Revision(3), Revision(2), 1));
    assert!(
        waiting.trouble.as_deref().unwrap().contains("the resupplier has no revisions 2 to 2"),
        "{waiting:?}"
    );
}

/// Each healer moves the time of the next request before it asks.
#[tokio::test]
async fn of_several_healers_one_asks() {
    let scene = Scene::with([2]).await;
    scene.pass(10);
    let origin = Origin::default();
    *origin.trouble.lock().unwrap() = Some("no answer");
    let healers: Vec<_> = (0..4).map(|_| scene.healer(origin.clone())).collect();
    let (a, b, c, d) =
        tokio::join!(healers[0].heal(), healers[1].heal(), healers[2].heal(), healers[3].heal());
    for healed in [a, b, c, d] {
        assert_eq!(healed.unwrap(), 0);
    }
    assert_eq!(origin.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn another_log_can_help_also_with_links() {
    let origin = Memory::default();
    let entries = (1..=5).map(entry).collect();
    origin.append(stream(), Expected::NONE, entries).await.unwrap();
    let scene = Scene::with([5]).await;
    scene.pass(10);
    assert_eq!(scene.healer(FromLog(origin)).heal().await.unwrap(), 4);
    assert_eq!(scene.count().await, 5);

    // An origin that only has every tenth revision.
    let origin = Memory::default();
    let linked = |revision: u64| Delivery { previous: Some(Revision(revision - 10)), ..delivery(revision) };
    let all = (1..=4).map(|tenth| linked(tenth * 10)).collect();
    Sequencer::new(origin.clone()).ingest(Policy::Contiguous, all).await.unwrap();
    let scene = Scene::with([]).await;
    scene.sequencer.ingest(Policy::Contiguous, vec![linked(40)]).await.unwrap();
    scene.pass(10);
    assert_eq!(scene.healer(FromLog(origin)).heal().await.unwrap(), 3);
    assert_eq!(scene.waiting().await, None);
}

/// Held events remain when a process dies between two pages, or when other writers append the
/// missing events.
#[tokio::test]
async fn what_waits_for_nothing_any_more_is_released() {
    let scene = Scene::with([2, 3]).await;
    scene.store.append(stream(), Expected::NONE, vec![entry(1)]).await.unwrap();
    scene.pass(10);
    let origin = Origin::default();
    scene.healer(origin.clone()).heal().await.unwrap();
    assert_eq!((scene.count().await, scene.waiting().await), (3, None));
    assert!(origin.asked.lock().unwrap().is_empty(), "nothing was missing");
}

/// Deliveries of other streams were not requested, and are ignored.
#[tokio::test]
async fn what_was_not_asked_for_is_not_taken() {
    let scene = Scene::with([2]).await;
    scene.pass(10);
    let healer = scene.healer(resupply(async |_| {
        Ok(vec![Delivery { stream: StreamId::new("other").unwrap(), ..delivery(1) }])
    }));
    assert_eq!(healer.heal().await.unwrap(), 0);
    let other = StreamId::new("other").unwrap();
    assert!(scene.store.read_stream(&other, Revision(0), Limit::default()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_healer_goes_on_until_it_is_told_to_stop() {
    let scene = Scene::with([2]).await;
    let origin = Origin::default();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let running = tokio::spawn(scene.healer(origin.clone()).run(stopped));
    scene.pass(10);
    scene.store.grown(&scene.store.heads().await.unwrap()).await.unwrap();
    assert_eq!(scene.count().await, 2);
    stop.send(true).unwrap();
    tokio::time::timeout(Duration::from_mins(1), running).await.unwrap().unwrap();
}
