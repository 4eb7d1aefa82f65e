//! The guarantees at the critical moments: each test puts another writer's work, or an unknown
//! outcome, exactly where a likely mistake would show.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/scripted.rs"]
mod scripted;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use common::{Happened, Notes, Seen, assert_right, garbled, noted, stored};
use leftfold::documents::guarded::GuardedAnswer;
use leftfold::documents::{Advance, Checkpoint, Claim, Commit, CommitOutcome, MAX_BODY_BYTES};
use leftfold::fold::{Activity, FoldOptions, Mended};
use leftfold::{
    Backoff, Collection, Documents, Event, Guarded, Lane, Leftfold, Log, Mark, Memory, Partition, Projection,
    ReadError, Route, Rule, Unit, fold,
};
use scripted::{Call, Fault, Scripted};
use tokio::sync::{oneshot, watch};

fn quick() -> FoldOptions {
    FoldOptions {
        retry: Backoff::default().first(Duration::from_millis(1)).limit(3),
        ..FoldOptions::default()
    }
}

/// Fails if the future takes far longer than it ever should, so that a hang is noticed.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it should long have happened")
}

/// Notes that report the number of events they were given.
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

/// Holds the next commit until the returned sender is used.
fn hold_commit(store: &Scripted) -> oneshot::Sender<()> {
    let (release, held) = oneshot::channel();
    store.before(Call::Commit, async move { held.await.unwrap() });
    release
}

/// Sets a checkpoint, as in a store that writes it last and has not yet, or has lost it.
async fn put_checkpoint(store: &Memory, projection: &str, position: u64) {
    let projection = Collection::new(projection).unwrap();
    let from = store.checkpoint(&projection).await.unwrap().mark;
    let mark = [(Lane::from(Partition(0)), position)].into_iter().collect();
    let to = Checkpoint { mark, ..Checkpoint::default() };
    let commit = Commit { advance: Some(Advance { projection, from, to }), changes: vec![] };
    assert!(matches!(store.commit(commit.into()).await.unwrap(), CommitOutcome::Applied));
}

#[test]
fn a_mark_covers_another_only_if_none_of_its_lanes_is_behind() {
    let mark = |lanes: &[(u16, u64)]| -> Mark {
        lanes.iter().map(|(partition, number)| (Lane::from(Partition(*partition)), *number)).collect()
    };
    let head = mark(&[(0, 3), (1, 2)]);
    for behind in [&[][..], &[(0, 3)], &[(1, 9)], &[(0, 3), (1, 1)], &[(0, 2), (1, 2)]] {
        assert!(!mark(behind).covers(&head), "{behind:?}");
        assert!(head.covers(&Mark::default()) && mark(behind).covers(&mark(behind)));
    }
    assert!(mark(&[(0, 3), (1, 2), (2, 1)]).covers(&head));
}

// Manual folds.

/// A killed worker has not released its lease: another takes its place within five seconds.
#[tokio::test(start_paused = true)]
async fn a_killed_worker_is_replaced_soon() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Notes::by_stream()).open().await.unwrap();
    app.append("s", [noted(&[])]).await.unwrap();
    let collection = Collection::new("by_stream").unwrap();
    let lease = FoldOptions::default().lease;
    store.claim(&collection, "killed", lease).await.unwrap();
    let killed = tokio::time::Instant::now();
    let app = Leftfold::on(store).projection(Notes::by_stream()).start().await.unwrap();
    app.caught_up().await.unwrap();
    assert!(killed.elapsed() <= Duration::from_secs(5), "after {:?}", killed.elapsed());
    assert!(app.get(Notes::by_stream(), "s").await.unwrap().is_some());
    app.stop().await;
}

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
            // Between reading the document and writing it, another writer writes it.
            let theirs = async {
                other
                    .fold("ann", &Lane::named("b"), 1, Rule::Contiguous, |list| push(list, 20))
                    .await
                    .unwrap()
            };
            let run = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(theirs);
            let theirs = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(theirs, GuardedAnswer::Applied(Some(vec![20])));
        }
        push(list, 10)
    });
    assert_eq!(answer.await.unwrap(), GuardedAnswer::Applied(Some(vec![20, 10])));
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
        assert_eq!(answer, GuardedAnswer::Applied(Some(20)), "{fault:?}");
        assert_eq!(totals.get("ann").await.unwrap(), Some(20), "{fault:?}");
    }
}

// Reads.

#[tokio::test]
async fn a_read_beside_a_parked_document_or_stream_answers_what_can_be_told() {
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
        let error = app.get(notes.clone(), id).at_least(parked.clone().into_bookmark()).await.unwrap_err();
        assert!(matches!(error, ReadError::Parked { .. }), "{error}");
        let seen = app.get(notes.clone(), id).at_least(early.clone()).await.unwrap();
        assert_eq!(seen.unwrap().events, ["bad@1"], "what came before the trouble is there: {}", notes.name);
        // For a later event, a parked document has no answer. A document that a parked stream may
        // concern has one.
        let seen = app.get(notes.clone(), id).at_least(later.clone()).await;
        if notes.by_stream {
            assert!(matches!(seen, Err(ReadError::Parked { .. })), "{seen:?}");
        } else {
            assert_eq!(seen.unwrap().unwrap().events, ["bad@1"]);
        }
    }
    app.stop().await;
}

#[tokio::test]
async fn a_read_that_finds_the_checkpoint_moved_answers_with_the_document_it_was_moved_for() {
    let notes = Notes::by_stream();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    let worker = Leftfold::on(store.inner.clone()).projection(notes.clone());
    // Everything is folded just before the reader loads the checkpoint.
    store.before(Call::Checkpoint, async move {
        let worker = worker.start().await.unwrap();
        worker.caught_up().await.unwrap();
        worker.stop().await;
    });
    let seen = app.get(notes, "a").at_least(bookmark).await.unwrap();
    assert_eq!(seen.unwrap().events, ["a@1"]);
}

// Commits with unknown outcomes, and commits that meet other writers' work.

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
    // Time is paused: this takes no time, unless the worker has stopped.
    tokio::time::timeout(Duration::from_hours(24), app.caught_up())
        .await
        .expect("it goes on trying")
        .unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    assert_right(&app, &notes, "").await;
    assert_eq!(store.faults_left(), 0);
    app.stop().await;
}

#[tokio::test]
async fn a_document_that_was_mended_meanwhile_is_folded_anew_and_all_is_counted_once() {
    let notes = Notes::by_content();
    let store = Scripted::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&["w", "x", "y"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let mender = Leftfold::on(store.inner.clone()).projection(notes.clone()).open().await.unwrap();
    store.before(Call::Commit, async move {
        assert_eq!(mender.refold("by_content", "x").await.unwrap(), Mended::Repaired);
    });
    app.append("a", [noted(&["w", "x", "y", "z"])]).await.unwrap();
    soon(app.caught_up()).await.unwrap();
    app.append("a", [noted(&["w", "x"])]).await.unwrap();
    soon(assert_right(&app, &notes, "")).await;
    let tally = app.status().await.unwrap().remove(0).tally;
    assert_eq!((tally.events, tally.applied, tally.conflicts), (3, 9, 1), "{tally:?}");
    app.stop().await;
}

// The current batch while another is in flight.

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
    let options = FoldOptions { cache_bytes: 0, ..quick() };
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
    let options = FoldOptions { cache_bytes: 0, ..quick() };
    let app =
        Leftfold::on(Memory::default()).options(options).projection(notes.clone()).start().await.unwrap();
    for stream in ["bad", "worse", "worst"] {
        app.append_events(stream, leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("good", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
    }
    for stream in ["bad", "good", "bad"] {
        app.append(stream, [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
    }
    let seen = stored(app.store(), "by_content").await.remove("x").unwrap();
    assert_eq!(seen, ["good@1", "good@2", "good@3", "good@4"]);
    let parked = app.parked("by_content", None, 10).await.unwrap();
    let waiting: Vec<_> = parked.iter().map(|(_, parked)| parked.waiting).collect();
    assert_eq!(waiting, [3, 1, 1]);
    notes.mended.now();
    app.retry_all("by_content", false, |_, mended| assert_eq!(*mended, Mended::Repaired)).await.unwrap();
    assert_right(&app, &notes, "").await;
    app.stop().await;
}

// Parked documents and streams.

#[tokio::test]
async fn what_waits_is_not_counted_again_when_it_is_presented_again() {
    for notes in [Notes::by_stream(), Notes::by_content()] {
        let store = Memory::default();
        let start = || Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start();
        let app = start().await.unwrap();
        app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("bad", [noted(&["x"]), noted(&["x"])]).await.unwrap();
        app.append("good", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        app.stop().await;
        let before = app.parked(notes.name, None, 10).await.unwrap();
        assert_eq!((before.len(), before[0].1.waiting), (1, 3));

        // A store that wrote the documents and lost the checkpoint presents everything again.
        put_checkpoint(&store, notes.name, 0).await;
        let app = start().await.unwrap();
        app.caught_up().await.unwrap();
        assert_eq!(app.parked(notes.name, None, 10).await.unwrap(), before, "{}", notes.name);
        notes.mended.now();
        app.retry_all(notes.name, false, |_, _| ()).await.unwrap();
        assert_right(&app, &notes, notes.name).await;
        app.stop().await;
    }
}

#[tokio::test]
async fn a_retried_document_has_the_event_that_failed_and_nothing_of_a_stream_that_is_still_set_aside() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["y"])]).await.unwrap();
    app.append("good", [noted(&["x"]), Happened::Poison { to: vec!["x".into()] }]).await.unwrap();
    app.append("bad", [noted(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let parked = app.parked("by_content", None, 10).await.unwrap();
    let [(stream @ Unit::Stream(_), _), (document @ Unit::Document(_), waits)] = &parked[..] else {
        panic!("{parked:?}")
    };
    assert_eq!(waits.waiting, 2);
    notes.mended.now();
    assert_eq!(app.retry("by_content", document, false).await.unwrap(), Mended::Repaired);
    let seen = stored(app.store(), "by_content").await.remove("x").unwrap();
    assert_eq!(seen, ["good@1", "good@2", "good@3"], "the stream is not mended yet");
    assert_eq!(app.retry("by_content", stream, false).await.unwrap(), Mended::Repaired);
    assert_right(&app, &notes, "").await;
    app.stop().await;
}

#[tokio::test]
async fn an_event_whose_route_is_no_name_parks_its_stream() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [noted(&["x"]), noted(&[""]), noted(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    assert_eq!(stored(app.store(), "by_content").await["x"], ["bad@1", "good@1"]);
    let parked = app.parked("by_content", None, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].1.revision.0, parked[0].1.waiting), (1, 2, 2));
    assert!(parked[0].1.error.contains("can't route noted"), "{}", parked[0].1.error);
    app.stop().await;
}

#[tokio::test]
async fn a_fold_that_panics_does_not_end_the_worker() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [Happened::Bomb { to: vec![] }]).await.unwrap();
    app.append("good", [noted(&[])]).await.unwrap();
    soon(app.caught_up()).await.unwrap();
    assert_eq!(stored(app.store(), "by_stream").await["good"], ["good@1"]);
    assert_eq!(app.parked("by_stream", None, 10).await.unwrap()[0].1.error, "the fold panicked: bomb");
    app.stop().await;
}

#[tokio::test]
async fn a_dry_run_changes_no_document_of_a_stream() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    notes.mended.now();
    let (unit, before) = app.parked("by_content", None, 1).await.unwrap().remove(0);
    assert_eq!(app.retry("by_content", &unit, true).await.unwrap(), Mended::Repaired);
    assert_eq!(stored(app.store(), "by_content").await["x"], ["good@1"]);
    assert_eq!(app.parked("by_content", None, 10).await.unwrap(), [(unit, before)]);
    app.stop().await;
}

#[tokio::test]
async fn what_is_set_aside_while_its_stream_is_retried_is_not_lost() {
    let notes = Notes::by_content();
    let store = Scripted::default();
    let worker = Leftfold::on(store.inner.clone()).options(quick()).projection(notes.clone());
    let worker = worker.start().await.unwrap();
    worker.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    worker.caught_up().await.unwrap();
    let mender = Leftfold::on(store.clone()).projection(notes.clone()).open().await.unwrap();
    let (unit, _) = mender.parked("by_content", None, 1).await.unwrap().remove(0);
    notes.mended.now();
    let beside = worker.clone();
    store.before(Call::Commit, async move {
        beside.append("bad", [noted(&["x"])]).await.unwrap();
        beside.caught_up().await.unwrap();
    });
    assert_eq!(mender.retry("by_content", &unit, false).await.unwrap(), Mended::Repaired);
    worker.append("bad", [noted(&["x"])]).await.unwrap();
    assert_right(&worker, &notes, "").await;
    assert!(worker.parked("by_content", None, 1).await.unwrap().is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_stream_that_was_mended_is_not_set_aside_for_the_same_events_again() {
    let notes = Notes::by_content();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("bad", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    notes.mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.stop().await;
    // Everything is presented again, to a worker with the old code.
    put_checkpoint(&store, "by_content", 0).await;
    let old = Leftfold::on(store).options(quick()).projection(Notes::by_content()).start().await.unwrap();
    assert_right(&old, &notes, "").await;
    assert_eq!(old.parked("by_content", None, 1).await.unwrap(), []);
    old.stop().await;
}

/// A document that a repair finds deleted keeps its mark. Otherwise a worker that is behind would
/// see a document without any events.
#[tokio::test]
async fn a_mend_that_ends_in_a_deleted_document_leaves_its_mark() {
    let notes = Notes::by_content();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
    app.append("bad", [noted(&["x"])]).await.unwrap();
    app.append("bad", [Happened::Cleared { to: vec!["x".into()] }]).await.unwrap();
    app.caught_up().await.unwrap();
    notes.mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.stop().await;
    let of_x = store
        .load(&Collection::new("by_content").unwrap(), vec![leftfold::DocumentId::new("x").unwrap()])
        .await
        .unwrap();
    assert_eq!(of_x.len(), 1);
    assert_eq!((&of_x[0].body, of_x[0].header.mark.position(Partition(0))), (&None, leftfold::Position(3)));
}

/// A store without transactions writes the checkpoint last: it may be behind the parked events.
#[tokio::test]
async fn mending_before_the_checkpoint_is_written_leaves_out_nothing_that_waits() {
    for by_stream in [true, false] {
        let store = Memory::default();
        let notes = if by_stream { Notes::by_stream() } else { Notes::by_content() };
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
        app.append("other", [noted(&["y"])]).await.unwrap();
        app.append_events("bad", leftfold::Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("bad", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        app.stop().await;
        let (unit, _) = app.parked(notes.name, None, 1).await.unwrap().remove(0);
        notes.mended.now();
        put_checkpoint(&store, notes.name, 2).await;
        let mended = match &unit {
            Unit::Stream(_) => app.retry(notes.name, &unit, false).await.unwrap(),
            Unit::Document(id) => app.refold(notes.name, id.as_str()).await.unwrap(),
        };
        assert_eq!(mended, Mended::Repaired);
        put_checkpoint(&store, notes.name, 3).await;
        let app = Leftfold::on(store).options(quick()).projection(notes.clone()).start().await.unwrap();
        assert_right(&app, &notes, notes.name).await;
        app.stop().await;
    }
}

#[tokio::test]
async fn a_refold_that_fails_says_so_and_leaves_the_document_as_it_was() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("bad", [noted(&[]), Happened::Poison { to: vec![] }, noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let before = app.parked("by_stream", None, 10).await.unwrap();
    let mended = app.refold("by_stream", "bad").await.unwrap();
    assert!(matches!(&mended, Mended::StillFailing(why) if why.contains("revision 2 of bad")), "{mended:?}");
    assert_eq!(app.parked("by_stream", None, 10).await.unwrap(), before);
    assert_eq!(stored(app.store(), "by_stream").await["bad"], ["bad@1"]);
    app.stop().await;
}

/// A projection where seven creates a document that JSON can't represent.
struct Lengths;

impl Projection for Lengths {
    type Event = usize;
    type Document = BTreeMap<Vec<u8>, u8>;

    fn name(&self) -> &'static str {
        "lengths"
    }

    fn fold(
        &self,
        _: Option<Self::Document>,
        event: &Event<usize>,
    ) -> Result<Option<Self::Document>, fold::Error> {
        Ok(Some(if event.data == 7 { BTreeMap::from([(vec![7], 7)]) } else { BTreeMap::new() }))
    }
}

/// A projection that grows the document to as many bytes as the event says.
struct Grown;

impl Projection for Grown {
    type Event = usize;
    type Document = String;

    fn name(&self) -> &'static str {
        "grown"
    }

    fn fold(&self, _: Option<String>, event: &Event<usize>) -> Result<Option<String>, fold::Error> {
        Ok(Some("x".repeat(event.data)))
    }
}

async fn append_number<S: leftfold::Store>(app: &leftfold::App<S>, stream: &str, number: usize) {
    let event = leftfold::NewEvent::new("number", leftfold::Json::of(&number).unwrap()).unwrap();
    app.append_events(stream, leftfold::Expected::Any, vec![event]).await.unwrap();
}

#[tokio::test]
async fn a_document_that_cant_be_stored_takes_no_other_of_its_batch_along() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Lengths).open().await.unwrap();
    for (stream, number) in [("before", 0), ("bad", 0), ("bad", 7), ("after", 0)] {
        append_number(&app, stream, number).await;
    }
    // All of it is one batch.
    let app = Leftfold::on(store).options(quick()).projection(Lengths).start().await.unwrap();
    soon(app.caught_up()).await.unwrap();
    for id in ["before", "after", "bad"] {
        assert_eq!(app.get(Lengths, id).await.unwrap(), Some(BTreeMap::new()), "{id}");
    }
    let parked = app.parked("lengths", None, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].1.revision.0), (1, 2));
    assert_eq!(app.status().await.unwrap()[0].tally.applied, 3);
    app.stop().await;
}

#[tokio::test]
async fn a_document_that_grows_too_large_parks_and_others_go_on() {
    let app = Leftfold::on(Memory::default()).options(quick()).projection(Grown).start().await.unwrap();
    for (stream, number) in [("large", 1), ("large", MAX_BODY_BYTES), ("small", 2)] {
        append_number(&app, stream, number).await;
    }
    soon(app.caught_up()).await.unwrap();
    assert_eq!(app.get(Grown, "large").await.unwrap().unwrap(), "x", "as it was before");
    assert_eq!(app.get(Grown, "small").await.unwrap().unwrap(), "xx");
    let parked = app.parked("grown", None, 10).await.unwrap();
    assert!(parked[0].1.error.contains("split it"), "{}", parked[0].1.error);
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
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    let error = app.get(notes.clone(), "a").at_least(bookmark.clone()).within(patience).await.unwrap_err();
    assert!(matches!(error, ReadError::Lagging { .. }), "{error}");
    assert_eq!(app.status().await.unwrap()[0].activity, Activity::Standby);
    assert!(app.get(notes.clone(), "a").at_least(bookmark).within(minute).await.unwrap().is_some());

    // A worker that lost its lease for any reason notices at the next renewal.
    store.release(&by_stream(), "this").await.unwrap();
    assert_eq!(store.claim(&by_stream(), "other", minute).await.unwrap(), Claim::Ours);
    tokio::time::sleep(quick().lease).await;
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    let error = app.get(notes.clone(), "a").at_least(bookmark.clone()).within(patience).await.unwrap_err();
    assert!(matches!(error, ReadError::Lagging { .. }), "{error}");
    assert!(app.get(notes, "a").at_least(bookmark).within(minute).await.unwrap().is_some());
    app.stop().await;
}
