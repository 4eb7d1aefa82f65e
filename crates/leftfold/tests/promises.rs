//! The promises at the moments that decide them: each test puts other people's work, or an outcome that can't be
//! told, exactly where a likely mistake would show.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
#[path = "common/scripted.rs"]
mod scripted;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use common::{Happened, Notes, Seen, assert_right, garbled, noted, stored};
use leftfold::documents::Claim;
use leftfold::fold::{Activity, Mended, Options};
use leftfold::guarded::Answer;
use leftfold::{
    Backoff, Collection, Documents, Event, Guarded, Lane, Leftfold, Log, Memory, Partition, Projection,
    ReadError, Route, Rule, Unit, fold,
};
use scripted::{Call, Fault, Scripted};
use tokio::sync::{oneshot, watch};

fn quick() -> Options {
    Options { retry: Backoff::default().first(Duration::from_millis(1)).limit(3), ..Options::default() }
}

/// Fails if it takes far longer than it ever should, so that what never ends is seen to.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it should long have happened")
}

/// Notes that tell how many events they were given.
#[derive(Clone)]
struct Telling(Notes, Arc<watch::Sender<usize>>);

impl Telling {
    fn new(notes: Notes) -> Self {
        Self(notes, Arc::new(watch::Sender::new(0)))
    }

    async fn has_folded(&self, count: usize) {
        soon(self.1.subscribe().wait_for(|folded| *folded >= count)).await.unwrap();
    }
}

impl Projection for Telling {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn route(&self) -> Route<Happened> {
        self.0.route()
    }

    fn upcast(&self, event: Event) -> Event {
        self.0.upcast(event)
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, fold::Error> {
        let folded = self.0.fold(seen, event);
        self.1.send_modify(|folded| *folded += 1);
        folded
    }
}

fn by_stream() -> Collection {
    Collection::new("by_stream").unwrap()
}

/// Holds the next commit back until told.
fn hold_commit(store: &Scripted) -> oneshot::Sender<()> {
    let (release, held) = oneshot::channel();
    store.before(Call::Commit, async move { held.await.unwrap() });
    release
}

// What is folded by hand.

#[tokio::test]
async fn folding_by_hand_counts_what_another_wrote_in_between() {
    let store = Memory::default();
    let lists = Guarded::<Vec<u64>, _>::new(store.clone(), "lists").await.unwrap();
    let other = lists.clone();
    let push = |list: Option<Vec<u64>>, number| Ok(Some([list.unwrap_or_default(), vec![number]].concat()));
    let first = std::sync::atomic::AtomicBool::new(true);
    let lane = Lane::named("a");
    let answer = lists.fold("ann", &lane, 1, Rule::Contiguous, |list| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            // Between reading the document and writing it, somebody else writes it.
            let theirs = async {
                other.fold("ann", &Lane::named("b"), 1, Rule::Contiguous, |list| push(list, 20)).await.unwrap()
            };
            let run = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(theirs);
            let theirs = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(theirs, Answer::Applied(Some(vec![20])));
        }
        push(list, 10)
    });
    assert_eq!(answer.await.unwrap(), Answer::Applied(Some(vec![20, 10])));
    assert_eq!(lists.get("ann").await.unwrap(), Some(vec![20, 10]));
}

#[tokio::test(start_paused = true)]
async fn folding_by_hand_says_applied_once_it_is_and_not_before() {
    for fault in [Fault::LostBefore, Fault::LostAfter] {
        let store = Scripted::default();
        let totals = Guarded::<u64, _>::new(store.clone(), "totals").await.unwrap();
        store.fault([fault]);
        let add = |total: Option<u64>| Ok(Some(total.unwrap_or(0) + 20));
        let answer = totals.fold("ann", &Lane::named("a"), 1, Rule::Contiguous, add).await.unwrap();
        assert_eq!(answer, Answer::Applied(Some(20)), "{fault:?}");
        assert_eq!(totals.get("ann").await.unwrap(), Some(20), "{fault:?}");
    }
}

// Reads.

#[tokio::test]
async fn a_read_beside_a_parked_document_or_stream_answers_what_does_not_wait() {
    let (streams, contents) = (Notes::by_stream(), Notes::by_content());
    let app = Leftfold::on(Memory::default())
        .options(quick())
        .projection(streams.clone())
        .projection(contents.clone())
        .start()
        .await
        .unwrap();
    let early = app.append("bad", [noted(&["x"])]).await.unwrap();
    let parked = app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    let later = app.append("good", [noted(&["y"])]).await.unwrap();
    app.caught_up().await.unwrap();
    for (notes, id) in [(streams, "bad"), (contents, "x")] {
        let error = app.get(notes.clone(), id).at_least(parked.clone().into_token()).await.unwrap_err();
        assert!(matches!(error, ReadError::Parked { .. }), "{error}");
        // What came before the trouble, and what came after it and concerns others.
        for token in [&early, &later] {
            let seen = app.get(notes.clone(), id).at_least(token.clone()).await.unwrap();
            assert_eq!(seen.unwrap().events, ["bad@1"], "{} at {token}", notes.name);
        }
    }
    app.stop().await;
}

#[tokio::test]
async fn a_read_that_finds_the_checkpoint_moved_answers_with_the_document_it_was_moved_for() {
    let notes = Notes::by_stream();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
    let token = app.append("a", [noted(&[])]).await.unwrap();
    let worker = Leftfold::on(store.inner.clone()).projection(notes.clone());
    // All is folded just before the reader looks how far the projection is.
    store.before(Call::Checkpoint, async move {
        let worker = worker.start().await.unwrap();
        worker.caught_up().await.unwrap();
        worker.stop().await;
    });
    let seen = app.get(notes, "a").at_least(token).await.unwrap();
    assert_eq!(seen.unwrap().events, ["a@1"]);
}

// Commits whose outcome can't be told, and those that meet other people's work.

#[tokio::test]
async fn a_commit_that_may_have_come_through_counts_once() {
    for faults in [
        vec![Fault::LostAfter],
        vec![Fault::LostBefore, Fault::LostAfter],
        vec![Fault::LostAfter, Fault::Refused],
        vec![Fault::Refused],
    ] {
        let notes = Notes::by_content();
        let store = Scripted::default();
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
        app.append("a", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        store.fault(faults.clone());
        app.append("a", [noted(&["x", "y"])]).await.unwrap();
        soon(app.caught_up()).await.unwrap();
        app.append("a", [noted(&["x"])]).await.unwrap();
        soon(assert_right(&app, &notes, &format!("{faults:?}"))).await;
        assert_eq!(store.faults_left(), 0);
        let tally = app.status().await.unwrap().remove(0).tally;
        assert_eq!((tally.events, tally.applied), (3, 4), "{faults:?}: what was counted is exact as well");
        app.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_stays_in_doubt_is_never_taken_for_done() {
    let notes = Notes::by_stream();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    store.fault([Fault::LostBefore; 40]);
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    assert_right(&app, &notes, "").await;
    assert_eq!(store.faults_left(), 0);
    app.stop().await;
}

#[tokio::test]
async fn a_document_that_was_mended_meanwhile_is_folded_anew_and_all_is_counted_once() {
    let notes = Notes::by_stream();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.append("b", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let mender = Leftfold::on(store.inner.clone()).projection(notes.clone()).open().await.unwrap();
    store.before(Call::Commit, async move {
        assert_eq!(mender.refold("by_stream", "a").await.unwrap(), Mended::Repaired);
    });
    app.append("a", [noted(&[])]).await.unwrap();
    soon(app.caught_up()).await.unwrap();
    app.append("b", [noted(&[])]).await.unwrap();
    soon(assert_right(&app, &notes, "")).await;
    let tally = app.status().await.unwrap().remove(0).tally;
    assert_eq!((tally.events, tally.applied, tally.conflicts), (4, 4, 1), "{tally:?}");
    app.stop().await;
}

// The batch in hand while another is in flight.

#[tokio::test]
async fn stopping_stores_what_is_in_flight_and_what_is_in_hand() {
    let notes = Telling::new(Notes::by_stream());
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    let release = hold_commit(&store);
    app.append("a", [noted(&[])]).await.unwrap();
    notes.has_folded(1).await;
    app.append("b", [noted(&[])]).await.unwrap();
    notes.has_folded(2).await;
    soon(async { tokio::join!(app.stop(), async { release.send(()).unwrap() }) }).await;
    assert_eq!(store.checkpoint(&by_stream()).await.unwrap().mark, store.heads().await.unwrap());
    assert_eq!(stored(&store, "by_stream").await.len(), 2);
}

#[tokio::test]
async fn without_room_for_a_cache_the_batch_in_hand_still_is_kept() {
    let notes = Telling::new(Notes::by_stream());
    let store = Scripted::default();
    let options = Options { cache_bytes: 0, ..quick() };
    let app = Leftfold::on(store.clone()).options(options).projection(notes.clone()).start().await.unwrap();
    let mut folded = 0;
    for _ in 0..5 {
        let release = hold_commit(&store);
        for stream in ["a", "b"] {
            app.append(stream, [noted(&[])]).await.unwrap();
            folded += 1;
            notes.has_folded(folded).await;
        }
        release.send(()).unwrap();
        soon(assert_right(&app, &notes.0, "")).await;
    }
    let tally = app.status().await.unwrap().remove(0).tally;
    assert_eq!((tally.events, tally.applied, tally.conflicts), (10, 10, 0), "{tally:?}");
    app.stop().await;
}

#[tokio::test]
async fn without_room_for_a_cache_a_stream_that_is_set_aside_stays_so() {
    let notes = Notes::by_content();
    let options = Options { cache_bytes: 0, ..quick() };
    let app =
        Leftfold::on(Memory::default()).options(options).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    for round in 0..10 {
        app.append("good", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        if round % 4 == 3 {
            app.append("bad", [noted(&["x"])]).await.unwrap();
            app.caught_up().await.unwrap();
        }
    }
    let seen = stored(app.store(), "by_content").await.remove("x").unwrap();
    assert!(seen.iter().all(|event| event.starts_with("good@")), "{seen:?}");
    let parked = app.parked("by_content", None, 10).await.unwrap();
    assert_eq!(parked[0].1.waiting, 3);
    assert_eq!(parked[0].1.through.position(Partition(0)).0, 11);
    notes.mended.now();
    assert_eq!(app.retry("by_content", &parked[0].0, false).await.unwrap(), Mended::Repaired);
    assert_right(&app, &notes, "").await;
    assert!(matches!(parked[0].0, Unit::Stream(_)));
    app.stop().await;
}

// Leases.

#[tokio::test(start_paused = true)]
async fn a_worker_stands_by_while_another_has_the_lease_and_takes_over_when_it_ends() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let minute = Duration::from_mins(1);
    let patience = Duration::from_secs(30);
    assert_eq!(store.claim(&by_stream(), "other", minute).await.unwrap(), Claim::Ours);
    let app = Leftfold::on(store.clone())
        .options(quick())
        .worker("this")
        .projection(notes.clone())
        .start()
        .await
        .unwrap();
    let token = app.append("a", [noted(&[])]).await.unwrap();
    let error = app.get(notes.clone(), "a").at_least(token.clone()).within(patience).await.unwrap_err();
    assert!(matches!(error, ReadError::Lagging { .. }), "{error}");
    assert_eq!(app.status().await.unwrap()[0].activity, Activity::Standby);
    assert!(app.get(notes.clone(), "a").at_least(token).within(minute).await.unwrap().is_some());

    // One that lost its lease, however that came, notices when it would renew it.
    store.release(&by_stream(), "this").await.unwrap();
    assert_eq!(store.claim(&by_stream(), "other", minute).await.unwrap(), Claim::Ours);
    tokio::time::sleep(quick().lease).await;
    let token = app.append("a", [noted(&[])]).await.unwrap();
    let error = app.get(notes.clone(), "a").at_least(token.clone()).within(patience).await.unwrap_err();
    assert!(matches!(error, ReadError::Lagging { .. }), "{error}");
    assert!(app.get(notes, "a").at_least(token).within(minute).await.unwrap().is_some());
    app.stop().await;
}
