//! The cases about generations: a collection that is rebuilt beside the live one, and replaces it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::documents::{
    Advance, Checkpoint, Collection, CollectionWrites, Commit, CommitOutcome, DocumentCounts, DocumentWrite,
    Generations, Header, Record, Tally,
};
use crate::event::{DocumentId, Event, Partition};
use crate::fold::{self, Projection};
use crate::inspect::Sample;
use crate::mark::{Lane, Mark};
use crate::react::{
    DocumentFeed as _, DocumentSource, FeedItem, FoundDocument, Reaction, ReactionStore, Reactor,
};
use crate::store::Store;
use crate::testing::conformance::{json, soon, waits};
use crate::{App, Leftfold};

fn carts() -> Collection {
    Collection::new("carts").unwrap()
}

fn id(text: &str) -> DocumentId {
    DocumentId::new(text).unwrap()
}

fn mark(number: u64) -> Mark {
    [(Lane::from(Partition(0)), number)].into_iter().collect()
}

fn record(name: &str, number: u64, body: &str) -> Record {
    Record { id: id(name), header: Header { mark: mark(number), parked: None }, body: Some(json(body)) }
}

/// Writes documents, and moves the checkpoint from the beginning.
async fn fill(store: &impl Store, collection: &Collection, number: u64, records: Vec<Record>) {
    let writes = records.into_iter().map(|record| DocumentWrite { expected: None, record }).collect();
    let to = Checkpoint { mark: mark(number), tally: Tally { events: number, ..Tally::default() } };
    let advance = Some(Advance { projection: collection.clone(), from: Mark::default(), to });
    let changes = vec![CollectionWrites { collection: collection.clone(), writes }];
    let outcome = store.commit(Arc::new(Commit { advance, changes })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
}

/// Returns the generations in each step of the first rebuild and switch.
fn rebuilt() -> [Generations; 3] {
    let building = Generations::default().building("2").unwrap();
    let switching = building.switching_to(1).unwrap();
    let switched = switching.switched().unwrap();
    [building, switching, switched]
}

/// Stores these generations one after the other.
async fn put(store: &impl Store, all: &[Generations]) {
    for next in all {
        assert!(store.put_generations(&carts(), next.revision - 1, next.clone()).await.unwrap());
    }
}

/// Generations change only if they are still as seen.
pub async fn generations_are_kept_under_guard(store: impl Store) {
    store.prepare(&carts()).await.unwrap();
    assert_eq!(store.generations(&carts()).await.unwrap(), Generations::default());
    let first = Generations::default().recorded("it's \"1\"").unwrap();
    assert!(!store.put_generations(&carts(), 7, first.clone()).await.unwrap());
    assert_eq!(store.generations(&carts()).await.unwrap(), Generations::default());
    put(&store, std::slice::from_ref(&first)).await;
    assert_eq!(store.generations(&carts()).await.unwrap(), first);
    let (one, other) = (first.building("a").unwrap(), first.building("b").unwrap());
    let carts = carts();
    let both = tokio::join!(
        store.put_generations(&carts, first.revision, one.clone()),
        store.put_generations(&carts, first.revision, other.clone())
    );
    let winner = match (both.0.unwrap(), both.1.unwrap()) {
        (true, false) => one,
        (false, true) => other,
        both => panic!("{both:?}"),
    };
    assert_eq!(store.generations(&carts).await.unwrap(), winner);
    let others = Collection::new("others").unwrap();
    store.prepare(&others).await.unwrap();
    assert_eq!(store.generations(&others).await.unwrap(), Generations::default(), "each has its own");
}

/// A collection's name alone means the live generation, for all reads and writes.
pub async fn a_name_alone_is_what_is_live(store: impl Store) {
    let (first, second) = (carts().generation(0), carts().generation(1));
    store.prepare(&carts()).await.unwrap();
    fill(&store, &carts(), 3, vec![record("a", 2, r#"{"n":1}"#), record("b", 3, r#"{"n":2}"#)]).await;
    let [building, switching, switched] = rebuilt();
    put(&store, &[building]).await;
    store.prepare(&second).await.unwrap();
    store.prepare(&second).await.unwrap();
    assert_eq!(store.checkpoint(&second).await.unwrap(), Checkpoint::default());
    fill(&store, &second, 5, vec![record("b", 4, r#"{"n":20}"#), record("c", 5, r#"{"n":30}"#)]).await;
    let seen = async |collection: &Collection| {
        let ids = ["a", "b", "c"].map(id).to_vec();
        let mut loaded = store.load(collection, ids.clone()).await.unwrap();
        loaded.sort_by(|one, other| one.id.cmp(&other.id));
        let mut current = store.load_current(collection, ids).await.unwrap();
        current.sort_by(|one, other| one.id.cmp(&other.id));
        let scanned = store.scan(collection, None, 9).await.unwrap();
        assert!(loaded == scanned && current == scanned, "{loaded:?} {scanned:?}");
        let counts = store.count(collection).await.unwrap();
        assert_eq!(counts, DocumentCounts { documents: scanned.len() as u64, ..DocumentCounts::default() });
        assert_eq!(store.count(&collection.streams()).await.unwrap(), DocumentCounts::default());
        let at = store.checkpoint(collection).await.unwrap();
        assert_eq!(at.tally.events, at.mark.get(&Lane::from(Partition(0))));
        let bodies = scanned.into_iter().map(|record| record.body.unwrap().as_str().to_owned());
        (at.tally.events, bodies.collect::<Vec<_>>())
    };
    let before = (3, [r#"{"n":1}"#, r#"{"n":2}"#].map(str::to_owned).to_vec());
    let after = (5, [r#"{"n":20}"#, r#"{"n":30}"#].map(str::to_owned).to_vec());
    for live in [&carts(), &first] {
        assert_eq!(seen(live).await, before, "what is built is not seen");
    }
    put(&store, &[switching, switched.clone()]).await;
    assert_eq!(seen(&carts()).await, after);
    assert_eq!((seen(&first).await, seen(&second).await), (before, after.clone()));
    // A write by the name alone goes to the live generation.
    let write =
        DocumentWrite { expected: Some(record("b", 4, "{}").header), record: record("b", 6, r#"{"n":21}"#) };
    let changes = vec![CollectionWrites { collection: carts(), writes: vec![write] }];
    let outcome = store.commit(Arc::new(Commit { advance: None, changes })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
    assert_eq!(seen(&second).await.1[0], r#"{"n":21}"#);
    assert_eq!(seen(&first).await.1[1], r#"{"n":2}"#);
    // Each generation has its own lease.
    let lease = Duration::from_mins(1);
    assert_eq!(store.claim(&second, "ann", lease).await.unwrap(), crate::documents::Claim::Ours);
    assert_eq!(store.claim(&first, "bob", lease).await.unwrap(), crate::documents::Claim::Ours);
    assert_ne!(store.claim(&carts(), "bob", lease).await.unwrap(), crate::documents::Claim::Ours);
    store.release(&carts(), "ann").await.unwrap();
    assert_eq!(store.claim(&second, "bob", lease).await.unwrap(), crate::documents::Claim::Ours);
    // A generation that is not live can be deleted, even twice.
    for _ in 0..2 {
        store.drop_generation(&first).await.unwrap();
        assert_eq!(store.checkpoint(&first).await.unwrap(), Checkpoint::default());
    }
    assert_eq!(seen(&carts()).await.0, 5);
    store.prepare(&carts()).await.unwrap();
    assert_eq!(seen(&carts()).await.1[1], r#"{"n":30}"#);
}

/// A wait for a collection's checkpoint ends with a switch to a generation that is further.
pub async fn waiting_for_a_checkpoint_ends_with_a_switch(store: impl Store) {
    store.prepare(&carts()).await.unwrap();
    fill(&store, &carts(), 3, Vec::new()).await;
    let [building, switching, switched] = rebuilt();
    put(&store, &[building]).await;
    store.prepare(&carts().generation(1)).await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.advanced(&carts(), &mark(3)).await })
    };
    fill(&store, &carts().generation(1), 5, Vec::new()).await;
    assert!(waits(store.advanced(&carts(), &mark(3))).await, "it is not live yet");
    put(&store, &[switching, switched]).await;
    assert_eq!(soon(waiting).await.unwrap().unwrap(), mark(5));
}

/// Followers of documents must compare them when another generation becomes live.
pub async fn a_switch_loses_changes(store: impl Store + ReactionStore) {
    let on = DocumentSource::Projection(carts());
    store.prepare(&carts()).await.unwrap();
    store.prepare_reactions(std::slice::from_ref(&on)).await.unwrap();
    let mut feed = store.follow(vec![on.clone()], None).await.unwrap();
    let place = match feed.next(10, Duration::ZERO).await.unwrap() {
        FeedItem::Changes(changes) => changes.through,
        // The loss may be reported before anything is followed.
        FeedItem::Lost(_) => {
            feed = store.follow(vec![on.clone()], None).await.unwrap();
            let FeedItem::Changes(changes) = feed.next(10, Duration::ZERO).await.unwrap() else {
                panic!("lost")
            };
            changes.through
        }
    };
    fill(&store, &carts(), 3, vec![record("a", 3, r#"{"n":1}"#)]).await;
    let FeedItem::Changes(changes) = soon(feed.next(10, Duration::from_secs(20))).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(changes.documents[&on].len(), 1);
    let [building, switching, switched] = rebuilt();
    put(&store, &[building]).await;
    store.prepare(&carts().generation(1)).await.unwrap();
    fill(&store, &carts().generation(1), 5, vec![record("b", 5, r#"{"n":2}"#)]).await;
    let quiet = feed.next(10, Duration::from_millis(50)).await.unwrap();
    assert!(
        matches!(&quiet, FeedItem::Changes(changes) if changes.documents.is_empty()),
        "what is built is nobody's concern: {quiet:?}"
    );
    put(&store, &[switching, switched]).await;
    let lost = soon(feed.next(10, Duration::from_secs(20))).await.unwrap();
    assert!(matches!(lost, FeedItem::Lost(_)), "{lost:?}");
    let mut late = store.follow(vec![on.clone()], Some(place.clone())).await.unwrap();
    let lost = loop {
        match soon(late.next(10, Duration::from_secs(20))).await.unwrap() {
            FeedItem::Changes(changes) if changes.documents.is_empty() => panic!("it should have been told"),
            FeedItem::Changes(_) => {}
            FeedItem::Lost(why) => break why,
        }
    };
    assert!(!lost.is_empty());
    assert!(store.has_changes(vec![on.clone()], place).await.unwrap());
    // From now on the feed follows and reads the other generation.
    let mut feed = store.follow(vec![on.clone()], None).await.unwrap();
    let FeedItem::Changes(_) = feed.next(10, Duration::ZERO).await.unwrap() else { panic!("lost again") };
    let found = store.current_documents(&on, vec![id("a"), id("b")], usize::MAX).await.unwrap();
    assert_eq!(found.documents, [FoundDocument::new(id("b"), json(r#"{"n":2}"#))]);
    assert_eq!(store.page_of_ids(&on, None, 9).await.unwrap(), [id("b")]);
    let write =
        DocumentWrite { expected: Some(record("b", 5, "{}").header), record: record("b", 6, r#"{"n":3}"#) };
    let changes = vec![CollectionWrites { collection: carts().generation(1), writes: vec![write] }];
    let outcome = store.commit(Arc::new(Commit { advance: None, changes })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
    let FeedItem::Changes(changes) = soon(feed.next(10, Duration::from_secs(20))).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(changes.documents[&on].iter().collect::<Vec<_>>(), [&id("b")]);
}

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
                    let total = app.get(Totals(2), &name).await.unwrap().expect("it is always there");
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
