//! Whole rebuilds, with projections and reactions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::fold::{self, Projection};
use crate::inspect::Sample;
use crate::mark::Lane;
use crate::react::{Reaction, ReactionStore, Reactor};
use crate::store::Store;
use crate::testing::conformance::soon;
use crate::{App, Leftfold};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Happened {
    Added { by: u64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Total {
    sum: u64,
}

/// Sums, where the second version counts events of streams with an even number twice.
#[derive(Clone)]
struct Totals(u32);

impl Projection for Totals {
    type Event = Happened;
    type Document = Total;

    fn name(&self) -> &'static str {
        "totals"
    }

    fn version(&self) -> u32 {
        self.0
    }

    fn fold(&self, total: Option<Total>, event: &Event<Happened>) -> Result<Option<Total>, fold::Error> {
        let Happened::Added { by } = event.data;
        let is_even = event.stream.as_str().ends_with(['0', '2', '4', '6', '8']);
        let by = if self.0 == 2 && is_even { 2 * by } else { by };
        Ok(Some(Total { sum: total.map_or(0, |total| total.sum) + by }))
    }
}

async fn add(app: &App<impl Store>, stream: u64, by: u64) -> crate::Bookmark {
    app.append(&format!("s{stream}"), [Happened::Added { by }]).await.unwrap()
}

/// A read model is rebuilt while events come in, compared, switched to and back. Readers never see
/// a half-built one.
pub async fn a_read_model_is_rebuilt_beside_the_live_one(store: impl Store) {
    let old = Leftfold::on(store.clone()).projection(Totals(1)).start().await.unwrap();
    for number in 0..60 {
        add(&old, number % 6, 1).await;
    }
    old.caught_up().await.unwrap();
    old.stop().await;
    let app = Leftfold::on(store.clone()).projection(Totals(2)).start().await.unwrap();
    let status = app.status().await.unwrap().pop().unwrap();
    assert!(status.rebuild_needed && status.generations.live.version.as_deref() == Some("1"), "{status:?}");
    // A concurrent reader checks that sums never shrink.
    let done = Arc::new(AtomicBool::new(false));
    let reading = {
        let (app, done) = (app.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let mut highest = BTreeMap::new();
            while !done.load(Ordering::SeqCst) {
                for number in 0..6 {
                    let name = format!("s{number}");
                    let total = app.get(Totals(2), &name).await.unwrap().expect("the document always exists");
                    let before = highest.insert(name, total.sum).unwrap_or(0);
                    assert!(total.sum >= before, "{number}: {} after {before}", total.sum);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    let rebuild = soon(app.rebuild("totals")).await.unwrap();
    assert_eq!(rebuild.generation(), 1);
    for number in 0..30 {
        add(&app, number % 6, 1).await;
    }
    soon(rebuild.built()).await.unwrap();
    app.caught_up().await.unwrap();
    let progress = rebuild.progress().await.unwrap();
    assert_eq!((progress.total, progress.generation), (90, 1));
    assert!(progress.done <= 90);
    let difference = soon(async {
        loop {
            let difference = rebuild.difference(2).await.unwrap();
            if difference.moving == 0 && rebuild.progress().await.unwrap().done == 90 {
                break difference;
            }
        }
    })
    .await;
    // The old code has counted all events once; the new code counts the later ones twice.
    assert_eq!((difference.compared, difference.differing, difference.samples.len()), (6, 3, 2));
    assert!(!difference.is_none() && difference.only_live + difference.only_rebuilt + difference.parked == 0);
    let sum = async |app: &App<_>, name: &str| app.get(Totals(2), name).await.unwrap().unwrap().sum;
    assert_eq!((sum(&app, "s0").await, sum(&app, "s1").await), (20, 15));
    soon(rebuild.switch()).await.unwrap();
    assert_eq!((sum(&app, "s0").await, sum(&app, "s1").await), (30, 15));
    let status = app.status().await.unwrap().pop().unwrap();
    assert!(!status.rebuild_needed, "{status:?}");
    assert_eq!((status.documents, status.position.get(&Lane::named("frozen"))), (6, 0));
    // Folding continues with the live generation.
    let bookmark = add(&app, 0, 100).await;
    let total = app.get(Totals(2), "s0").at_least(bookmark).within(Duration::from_secs(20)).await.unwrap();
    assert_eq!(total.unwrap().sum, 230);
    let verified = app.verify("totals", Sample::All, |differing| panic!("{differing:?}")).await.unwrap();
    assert_eq!((verified.checked, verified.differing), (6, 0));
    done.store(true, Ordering::SeqCst);
    reading.await.unwrap();
    // Undo: the kept generation catches up first.
    soon(app.undo("totals")).await.unwrap();
    assert_eq!((sum(&app, "s0").await, sum(&app, "s1").await), (220, 15));
    let bookmark = add(&app, 1, 1).await;
    let total = app.get(Totals(2), "s1").at_least(bookmark).within(Duration::from_secs(20)).await.unwrap();
    assert_eq!(total.unwrap().sum, 16);
    let mut wrong = Vec::new();
    let verified = app.verify("totals", Sample::Some(100), |differing| wrong.push(differing)).await.unwrap();
    assert_eq!((verified.checked, verified.differing, wrong.len()), (6, 3, 3), "the old ones are wrong");
    assert!(app.forget_kept("totals").await.unwrap() && !app.forget_kept("totals").await.unwrap());
    assert!(app.undo("totals").await.is_err());
    app.stop().await;
}

/// After a switch, reactions run for documents that differ in the fields they watch, and for no
/// others.
pub async fn what_a_rebuild_did_not_change_is_not_reacted_to(store: impl Store + ReactionStore) {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let reaction = || {
        let handled = Arc::clone(&handled);
        Reaction::on(Totals(2), "mail").when(|_: &Total| true).watch(|total| total.sum).run(move |ctx| {
            let handled = Arc::clone(&handled);
            async move {
                let total = ctx.document().await?;
                handled.lock().unwrap().push((ctx.id().to_string(), total.sum));
                Ok(())
            }
        })
    };
    let old = Leftfold::on(store.clone()).projection(Totals(1)).start().await.unwrap();
    for number in 0..6 {
        add(&old, number, 1).await;
    }
    old.caught_up().await.unwrap();
    old.stop().await;
    let app = Leftfold::on(store.clone()).projection(Totals(2)).start().await.unwrap();
    let reacting = Reactor::on(store).reaction(reaction()).start().await.unwrap();
    soon(reacting.idle_within(Duration::from_secs(20))).await.unwrap();
    assert_eq!(handled.lock().unwrap().len(), 6);
    soon(app.rebuild("totals").await.unwrap().finish(0)).await.unwrap();
    soon(async {
        while handled.lock().unwrap().len() < 9 {
            reacting.idle_within(Duration::from_secs(20)).await.unwrap();
        }
    })
    .await;
    let mut later = handled.lock().unwrap().split_off(6);
    later.sort();
    let expected = [("s0", 2), ("s2", 2), ("s4", 2)].map(|(id, sum)| (id.to_owned(), sum));
    assert_eq!(later, expected);
    // Later writes are followed.
    add(&app, 1, 5).await;
    app.caught_up().await.unwrap();
    soon(async {
        while handled.lock().unwrap().len() < 7 {
            reacting.idle_within(Duration::from_secs(20)).await.unwrap();
        }
    })
    .await;
    assert_eq!(handled.lock().unwrap()[6..], [("s1".to_owned(), 6)]);
    reacting.stop(Duration::from_secs(5)).await;
    app.stop().await;
}
