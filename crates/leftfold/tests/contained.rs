//! A projection whose code is slow, or never returns, delays nothing else.
//!
//! Regression: folds ran on the runtime's own threads. With as many hanging folds as cores, the
//! whole process was stuck, and nothing was committed before a whole page of the log was folded.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use leftfold::fold::{Bulk, Folded, Upcoming};
use leftfold::{Documents as _, Event, Invalid, Leftfold, Memory, Projection, fold};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

/// Long enough for any machine.
const SOON: Duration = Duration::from_mins(1);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Tick {
    Ticked,
    Stuck,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Ticks {
    count: u64,
}

/// A gate that code can wait for until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

struct Counting {
    name: &'static str,
    gate: Option<Gate>,
    each: Duration,
}

impl Projection for Counting {
    type Event = Tick;
    type Document = Ticks;

    fn name(&self) -> &str {
        self.name
    }

    #[expect(clippy::disallowed_methods, reason = "code that blocks its thread is what this is about")]
    fn fold(&self, ticks: Option<Ticks>, event: &Event<Tick>) -> Result<Option<Ticks>, fold::Error> {
        thread::sleep(self.each);
        if let (Tick::Stuck, Some(gate)) = (&event.data, &self.gate) {
            gate.wait();
        }
        Ok(Some(Ticks { count: ticks.map_or(0, |ticks| ticks.count) + 1 }))
    }
}

fn counting(name: &'static str) -> Counting {
    Counting { name, gate: None, each: Duration::ZERO }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_fold_that_hangs_is_visible_and_delays_neither_others_nor_the_stop() {
    let gate = Gate::default();
    // More projections than there are threads.
    let stuck = |name| Counting { gate: Some(gate.clone()), ..counting(name) };
    let app = Leftfold::on(Memory::new(1))
        .projection(stuck("stuck"))
        .projection(stuck("stuck_too"))
        .projection(counting("bystander"))
        .start()
        .await
        .unwrap();
    app.append("cart-7", [Tick::Ticked, Tick::Stuck]).await.unwrap();
    let seen = timeout(SOON, async {
        loop {
            let status = app.status().await.unwrap();
            if let Some(folding) = &status[0].folding {
                return folding.to_string();
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let seen = seen.await.expect("a fold that hangs can be seen");
    assert!(seen.starts_with("folding cart-7 (revision 2, stuck) for "), "{seen}");
    for round in 1..=20 {
        let bookmark = app.append("other", [Tick::Ticked]).await.unwrap();
        let read = timeout(SOON, app.get(counting("bystander"), "other").at_least(bookmark)).await;
        assert_eq!(read.expect("the bystander is folded").unwrap(), Some(Ticks { count: round }));
    }
    timeout(SOON, app.stop()).await.expect("stopping does not wait for ever");
    gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_folds_are_committed_while_their_page_is_still_being_folded() {
    let (gate, store) = (Gate::default(), Memory::new(1));
    let app = Leftfold::on(store.clone()).open().await.unwrap();
    let ticks = (0..200).map(|_| Tick::Ticked).chain([Tick::Stuck, Tick::Ticked]);
    app.append("slow", ticks).await.unwrap();
    // The last but one waits until something is committed, and all of them are in one page of the
    // log.
    let slow = Counting { name: "slow", gate: Some(gate.clone()), each: Duration::from_millis(10) };
    let app = Leftfold::on(store.clone()).projection(slow).start().await.unwrap();
    let name = leftfold::Collection::new("slow").unwrap();
    let committed = timeout(SOON, async {
        while store.checkpoint(&name).await.unwrap().mark == leftfold::Mark::default() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    committed.await.expect("something is committed before the page is folded");
    gate.open();
    timeout(SOON, app.caught_up()).await.unwrap().unwrap();
    let read = app.get(counting("slow"), "slow").await.unwrap();
    assert_eq!(read, Some(Ticks { count: 202 }));
    app.stop().await;
}

/// A projection that folds in bulk, ten at a time, and uses all the time it is given.
struct InBulk {
    computed: AtomicU64,
}

impl Projection for InBulk {
    type Event = Tick;
    type Document = Ticks;

    fn name(&self) -> &'static str {
        "in_bulk"
    }

    fn fold(&self, _: Option<Ticks>, _: &Event<Tick>) -> Result<Option<Ticks>, fold::Error> {
        Err("it folds in bulk".into())
    }

    fn bulk(&self) -> Option<&dyn Bulk<Tick, Ticks>> {
        Some(self)
    }
}

impl Bulk<Tick, Ticks> for InBulk {
    fn route(&self, _: &[&Event<Tick>]) -> Vec<Result<fold::DocumentIds, Invalid>> {
        Vec::new()
    }

    #[expect(clippy::disallowed_methods, reason = "code that blocks its thread is what this is about")]
    fn fold(
        &self,
        folds: &[Upcoming<'_, Tick, Ticks>],
        least: usize,
        time: Duration,
    ) -> Vec<Option<Folded<Ticks>>> {
        thread::sleep(time);
        let folds = &folds[..folds.len().min(least.max(10))];
        self.computed.fetch_add(folds.len() as u64, Ordering::Relaxed);
        let before = folds.first().and_then(|first| first.document).map_or(0, |ticks| ticks.count);
        let counts = (before + 1..).take(folds.len());
        counts.map(|count| Some(Ok(Some(Ticks { count })))).collect()
    }
}

/// Regression: folds that were computed when the time of a slice was over were discarded, except
/// for the first, and computed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn folds_that_take_all_the_time_there_is_are_computed_once() {
    let store = Memory::new(1);
    let app = Leftfold::on(store.clone()).open().await.unwrap();
    app.append("slow", (0..100).map(|_| Tick::Ticked)).await.unwrap();
    let projection = Arc::new(InBulk { computed: AtomicU64::new(0) });
    let app = Leftfold::on(store).projection(Arc::clone(&projection)).start().await.unwrap();
    timeout(SOON, app.caught_up()).await.unwrap().unwrap();
    let read = app.get(Arc::clone(&projection), "slow").await.unwrap();
    assert_eq!(read, Some(Ticks { count: 100 }));
    assert_eq!(projection.computed.load(Ordering::Relaxed), 100);
    app.stop().await;
}

/// An application that replaces another keeps folding their shared projections, even while code of
/// the other one hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_shared_projection_is_folded_while_applications_replace_each_other() {
    let (gate, store) = (Gate::default(), Memory::new(1));
    let stuck = Counting { gate: Some(gate.clone()), ..counting("stuck") };
    let old = Leftfold::on(store.clone()).projection(counting("shared")).projection(stuck);
    let old = old.start().await.unwrap();
    old.append("cart-7", [Tick::Ticked, Tick::Stuck]).await.unwrap();
    let new = Leftfold::on(store).projection_of(&old, "shared").projection(counting("stuck"));
    let mut new = new.ready().await.unwrap();
    new.take_over(&old).await;
    timeout(SOON, old.stop()).await.expect("stopping does not wait for ever");
    let bookmark = old.append("other", [Tick::Ticked]).await.unwrap();
    let read = timeout(SOON, new.app().get(counting("shared"), "other").at_least(bookmark)).await;
    assert_eq!(read.expect("nobody has stopped it").unwrap(), Some(Ticks { count: 1 }));

    // A projection that is not shared resumes when the new application starts, with its code.
    let new = new.start().await;
    timeout(SOON, new.caught_up()).await.unwrap().unwrap();
    assert_eq!(new.get(counting("stuck"), "cart-7").await.unwrap(), Some(Ticks { count: 2 }));
    timeout(SOON, new.stop()).await.unwrap();
    let bookmark = new.append("other", [Tick::Ticked]).await.unwrap();
    let read = new.get(counting("shared"), "other").at_least(bookmark).within(Duration::ZERO).await;
    assert!(read.is_err(), "whoever has taken over stops it, too: {read:?}");
    gate.open();
}
