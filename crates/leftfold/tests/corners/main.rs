//! Corner cases in which the engine gave a wrong answer, stopped, or lost something.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/shaky.rs"]
mod shaky;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Happened, Mended as Switch, Notes, assert_right, garbled, noted, stored};
use leftfold::fold::{DocumentIds, Error, FoldOptions, Mended};
use leftfold::{
    Backoff, DocumentId, Event, Expected, Guarded, Lane, Leftfold, Memory, NewEvent, Partition, Projection,
    ReadError, Route, Rule, StreamId, Unit,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use shaky::{Seeded, Shaky};

fn quick() -> FoldOptions {
    FoldOptions {
        retry: Backoff::default().first(Duration::from_millis(1)).limit(1),
        ..FoldOptions::default()
    }
}

/// Waits with a timeout: a hang is a failure.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), future).await.expect("it hangs")
}

/// The place where a projection's code panics, until it is fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Upcast,
    Decode,
    Route,
    Write,
    Read,
}

#[derive(Clone)]
struct Panics {
    by_stream: bool,
    mended: Switch,
}

static DECODES: AtomicBool = AtomicBool::new(false);
static WRITES: AtomicBool = AtomicBool::new(false);
static READS: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Told {
    Fine {},
    BadUpcast {},
    BadDecode { text: Picky },
    BadRoute {},
    BadWrite {},
    BadRead {},
}

/// A type whose `Deserialize` panics.
#[derive(Debug, Serialize)]
struct Picky(String);

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        assert!(DECODES.load(Ordering::SeqCst), "can't decode");
        String::deserialize(deserializer).map(Self)
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Book {
    lines: Vec<Line>,
}

#[derive(Debug, PartialEq)]
struct Line(String);

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 != "unwritable" || WRITES.load(Ordering::SeqCst), "can't write");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = String::deserialize(deserializer)?;
        assert!(line != "unreadable" || READS.load(Ordering::SeqCst), "can't read");
        Ok(Self(line))
    }
}

impl Projection for Panics {
    type Event = Told;
    type Document = Book;

    fn name(&self) -> &'static str {
        "book"
    }

    fn route(&self) -> Route<Told> {
        if self.by_stream {
            return Route::Stream;
        }
        let mended = self.mended.clone();
        Route::by(move |event: &Event<Told>| {
            assert!(mended.is() || !matches!(event.data, Told::BadRoute {}), "can't route");
            DocumentIds::one(&event.stream)
        })
    }

    fn upcast(&self, event: Event) -> Event {
        assert!(self.mended.is() || event.kind.as_str() != "bad-upcast", "can't lift");
        event
    }

    fn fold(&self, book: Option<Book>, event: &Event<Told>) -> Result<Option<Book>, Error> {
        let mut book = book.unwrap_or_default();
        book.lines.push(Line(
            match event.data {
                Told::BadWrite {} => "unwritable",
                Told::BadRead {} => "unreadable",
                _ => "fine",
            }
            .to_owned(),
        ));
        Ok(Some(book))
    }
}

/// Any code of a projection panics for one event: other documents continue, and after the fix a
/// retry resumes this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_anywhere_in_a_projection_stops_only_its_own_document() {
    for (at, by_stream) in [
        (At::Upcast, true),
        (At::Upcast, false),
        (At::Decode, true),
        (At::Decode, false),
        (At::Route, false),
        (At::Write, true),
        (At::Write, false),
        (At::Read, true),
    ] {
        let case = format!("{at:?}, by stream: {by_stream}");
        for switch in [&DECODES, &WRITES, &READS] {
            switch.store(false, Ordering::SeqCst);
        }
        let mended = Switch::default();
        let panics = Panics { by_stream, mended: mended.clone() };
        // Without a cache, documents are read again.
        let options = FoldOptions { cache_bytes: 0, ..quick() };
        let app = Leftfold::on(Memory::default())
            .options(options)
            .projection(panics.clone())
            .start()
            .await
            .unwrap();
        app.append("bad", [Told::Fine {}]).await.unwrap();
        let bad = match at {
            At::Upcast => Told::BadUpcast {},
            At::Decode => Told::BadDecode { text: Picky("text".into()) },
            At::Route => Told::BadRoute {},
            At::Write => Told::BadWrite {},
            At::Read => Told::BadRead {},
        };
        app.append("bad", [bad]).await.unwrap();
        for _ in 0..5 {
            let bookmark = app.append("good", [Told::Fine {}]).await.unwrap();
            let read =
                app.get(panics.clone(), "good").at_least(bookmark).within(Duration::from_secs(2)).await;
            assert!(read.is_ok(), "{case}: others must go on: {}", read.unwrap_err());
        }
        app.append("bad", [Told::Fine {}]).await.unwrap();
        soon(app.caught_up()).await.unwrap();
        let parked = app.parked("book", None, 10).await.unwrap();
        assert_eq!(parked.len(), 1, "{case}");
        assert!(parked[0].1.error.contains("panicked: can't"), "{case}: {}", parked[0].1.error);
        let still = app.retry("book", &parked[0].0, false).await.unwrap();
        assert!(matches!(still, Mended::StillFailing(_)), "{case}: {still:?}");

        mended.now();
        for switch in [&DECODES, &WRITES, &READS] {
            switch.store(true, Ordering::SeqCst);
        }
        assert_eq!(app.retry("book", &parked[0].0, false).await.unwrap(), Mended::Repaired, "{case}");
        assert_eq!(app.get(panics, "bad").await.unwrap().unwrap().lines.len(), 3, "{case}");
        soon(app.stop()).await;
    }
}

/// A read waits for an event whose stream is parked. It must not answer that the document is parked
/// at a later event.
#[tokio::test]
async fn a_read_is_told_of_a_parked_stream_also_if_the_document_is_parked() {
    let notes = Notes::by_content();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("good", [noted(&["x"])]).await.unwrap();
    let lost = app.append_events("bad", Expected::Any, vec![garbled(&["x"])]).await.unwrap().into_bookmark();
    app.append("good", [noted(&["x"])]).await.unwrap();
    app.append("good", [Happened::Poison { to: vec!["x".into()] }]).await.unwrap();
    app.caught_up().await.unwrap();
    let read = app.get(notes, "x").at_least(lost).await;
    assert!(matches!(read, Err(ReadError::Parked { .. })), "bad@1 is not in what was read: {read:?}");
}

/// Returns a stream that lives in this partition, of two.
fn in_partition(partition: u16) -> String {
    let lives = |name: &String| Partition::of(&StreamId::new(name).unwrap(), 2) == Partition(partition);
    (0..99).map(|n| format!("s{n}")).find(lives).unwrap()
}

/// Positions of different partitions are unrelated.
#[tokio::test]
async fn a_read_of_a_parked_document_answers_for_what_came_before_in_each_partition() {
    let notes = Notes::by_content();
    let app = Leftfold::on(Memory::new(2)).options(quick()).projection(notes.clone()).start().await.unwrap();
    let (left, right) = (in_partition(0), in_partition(1));
    let mut before = Vec::new();
    for stream in [&left, &left, &left, &right] {
        before.push(app.append(stream, [noted(&["x"])]).await.unwrap());
    }
    app.caught_up().await.unwrap();
    app.append(&left, [Happened::Poison { to: vec!["x".into()] }]).await.unwrap();
    app.caught_up().await.unwrap();
    for bookmark in before {
        assert_eq!(app.get(notes.clone(), "x").at_least(bookmark).await.unwrap().unwrap().events.len(), 4);
    }
    // The document's state as of a later event is unknown, even for an event of another partition.
    for stream in [&left, &right] {
        let bookmark = app.append(stream, [noted(&["other"])]).await.unwrap();
        let read = app.get(notes.clone(), "x").at_least(bookmark).await;
        assert!(matches!(read, Err(ReadError::Parked { .. })), "{read:?}");
    }
}

/// Newer code folded an event that this code can't decode; a refold without it would silently drop
/// it.
#[tokio::test]
async fn a_refold_by_code_that_cant_decode_an_event_leaves_the_document_as_it_is() {
    for parked_before in [false, true] {
        let store = Memory::default();
        let newer = Notes::by_content();
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(newer.clone()).start().await.unwrap();
        if !parked_before {
            newer.mended.now();
        }
        app.append("a", [noted(&["x"])]).await.unwrap();
        app.append_events("a", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
        app.append("a", [noted(&["x"])]).await.unwrap();
        app.append("b", [noted(&["x"])]).await.unwrap();
        app.caught_up().await.unwrap();
        newer.mended.now();
        app.retry_all("by_content", false, |_, _| ()).await.unwrap();
        let before = stored(&store, "by_content").await;
        assert_eq!(before["x"], ["a@1", "a@2", "a@3", "b@1"]);
        app.stop().await;

        let older = Leftfold::on(store.clone()).projection(Notes::by_content()).open().await.unwrap();
        let answer = older.refold("by_content", "x").await.unwrap();
        assert_eq!(stored(&store, "by_content").await, before, "nothing may be lost; it said {answer:?}");
        assert!(matches!(answer, Mended::StillFailing(_)), "{answer:?}");
    }
}

/// Notes whose decoding is fixed separately.
#[derive(Clone)]
struct Decoding(Notes, Switch);
impl Projection for Decoding {
    type Event = Happened;
    type Document = common::Seen;
    fn name(&self) -> &str {
        self.0.name()
    }
    fn route(&self) -> Route<Happened> {
        self.0.route()
    }
    fn upcast(&self, event: Event) -> Event {
        let lifted = Notes { mended: self.1.clone(), ..self.0.clone() };
        lifted.upcast(event)
    }
    fn fold(
        &self,
        seen: Option<common::Seen>,
        event: &Event<Happened>,
    ) -> Result<Option<common::Seen>, Error> {
        self.0.fold(seen, event)
    }
}

/// A stream whose events can be decoded again continues, although one of its documents can't fold
/// one of them. Only that document is parked, as it would have been without the detour.
#[tokio::test]
async fn a_stream_that_decodes_again_is_not_held_back_by_one_of_its_documents() {
    let (notes, mended) = (Notes::by_content(), Switch::default());
    let app = Leftfold::on(Memory::default())
        .options(quick())
        .projection(Decoding(notes.clone(), mended.clone()))
        .start()
        .await
        .unwrap();
    app.append("other", [noted(&["x"])]).await.unwrap();
    app.append_events("s", Expected::Any, vec![garbled(&["y"])]).await.unwrap();
    app.append("s", [Happened::Poison { to: vec!["x".into()] }, noted(&["y"])]).await.unwrap();
    app.append("other", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.append("s", [noted(&["y"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let held = stored(app.store(), "by_content").await;
    assert_eq!(held["y"], ["s@1", "s@3", "s@4"], "y has no bad event");
    let parked: Vec<_> =
        app.parked("by_content", None, 9).await.unwrap().into_iter().map(|(unit, _)| unit).collect();
    assert_eq!(parked, [Unit::Document(DocumentId::new("x").unwrap())]);

    notes.mended.now();
    app.retry_all("by_content", false, |_, _| ()).await.unwrap();
    app.append("s", [noted(&["x"])]).await.unwrap();
    app.caught_up().await.unwrap();
    let held = stored(app.store(), "by_content").await;
    assert_eq!(held["x"], ["other@1", "s@2", "other@2", "s@5"]);
    assert_eq!(app.parked("by_content", None, 9).await.unwrap(), []);
    app.stop().await;
}

/// A manual fold into a parked document must not lose the events that wait for it.
#[tokio::test]
async fn folding_by_hand_does_not_unpark_a_document() {
    let notes = Notes::by_stream();
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[]), Happened::Poison { to: vec![] }, noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let by_hand = Guarded::<common::Seen, _>::new(store, "by_stream").await.unwrap();
    let _ = by_hand
        .fold("a", &Lane::named("hand"), 1, Rule::Growing, |seen| {
            let mut seen = seen.unwrap_or_default();
            seen.events.push("hand@1".into());
            Ok(Some(seen))
        })
        .await;
    notes.mended.now();
    app.retry_all("by_stream", false, |_, _| ()).await.unwrap();
    let mut seen = stored(app.store(), "by_stream").await.remove("a").unwrap();
    seen.retain(|event| !event.starts_with("hand"));
    assert_eq!(seen, ["a@1", "a@2", "a@3"], "what waited is lost");
    app.stop().await;
}

/// `stop` waits until the workers have ended, for every caller.
#[tokio::test]
async fn who_stops_second_waits_as_well_and_who_gives_up_waiting_aborts_nothing() {
    let notes = Notes::by_stream();
    let app = Leftfold::on(Memory::default()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    let stopped = |app: &leftfold::App<Memory>| {
        let app = app.clone();
        async move { app.status().await.unwrap()[0].activity }
    };
    let first = app.stop();
    tokio::pin!(first);
    // The first caller has begun to wait, and then is dropped.
    assert!(futures_now(first.as_mut()).await.is_none(), "this test needs a stop that takes a moment");
    let (one, two) = tokio::join!(first, async {
        app.stop().await;
        stopped(&app).await
    });
    let () = one;
    assert_eq!(two, leftfold::fold::Activity::Stopped, "the second caller was let go too early");

    let app = Leftfold::on(Memory::default()).projection(notes).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    {
        let gives_up = app.stop();
        tokio::pin!(gives_up);
        assert!(futures_now(gives_up.as_mut()).await.is_none());
    }
    app.stop().await;
    assert_eq!(stopped(&app).await, leftfold::fold::Activity::Stopped, "the worker was cut off");
}

/// Polls once.
async fn futures_now<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// A lease may also be endless.
#[tokio::test]
async fn a_lease_without_end_is_one() {
    let notes = Notes::by_stream();
    let options = FoldOptions { lease: Duration::MAX, ..quick() };
    let app =
        Leftfold::on(Memory::default()).options(options).projection(notes.clone()).start().await.unwrap();
    let bookmark = app.append("a", [noted(&[])]).await.unwrap();
    assert!(
        soon(app.get(notes, "a").at_least(bookmark).within(Duration::MAX).into_future())
            .await
            .unwrap()
            .is_some()
    );
    soon(app.stop()).await;
}

/// The smallest possible options: slow, but correct.
#[tokio::test]
async fn the_smallest_options_work() {
    for partitions in [1, 2] {
        let notes = Notes::by_content();
        let options = FoldOptions {
            cache_bytes: 0,
            batch_bytes: 0,
            batch_time: Duration::ZERO,
            page_bytes: 0,
            lease: Duration::ZERO,
            ..quick()
        };
        let app = Leftfold::on(Memory::new(partitions))
            .options(options)
            .projection(notes.clone())
            .start()
            .await
            .unwrap();
        for round in 0..30 {
            app.append(&format!("s{}", round % 3), [noted(&["x"])]).await.unwrap();
            if round == 10 {
                app.append_events("s1", Expected::Any, vec![garbled(&["x"])]).await.unwrap();
                app.append("s2", [Happened::Poison { to: vec!["y".into()] }]).await.unwrap();
            }
        }
        soon(app.caught_up()).await.unwrap();
        notes.mended.now();
        soon(app.retry_all("by_content", false, |_, _| ())).await.unwrap();
        let mut seen = stored(app.store(), "by_content").await.remove("x").unwrap();
        assert_eq!(seen.len(), 31);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 31);
        soon(app.stop()).await;
    }
}

/// Decoding is fixed first and folding later, while two workers use a store that misbehaves.
#[tokio::test(start_paused = true)]
async fn documents_are_right_if_mended_in_two_steps_whatever_the_store_does() {
    for seed in 0..150 {
        let (notes, mended) = (Notes::by_content(), Switch::default());
        let store = Shaky::new(seed * 6_007 + 1, seed % 2 == 0);
        let options = FoldOptions { lease: Duration::ZERO, page_bytes: 200, batch_bytes: 1_500, ..quick() };
        let worker = |number: u64| {
            Leftfold::on(store.clone())
                .env(Seeded((seed * 2 + number).into()))
                .options(options.clone())
                .projection(Decoding(notes.clone(), mended.clone()))
                .start()
        };
        let (one, two) = (worker(0).await.unwrap(), worker(1).await.unwrap());
        for round in 0..60 {
            let (a, b) = (format!("d{}", round % 3), format!("d{}", round % 4));
            let to = vec![a.clone(), b.clone()];
            let event = match round % 20 {
                7 | 12 => NewEvent::encode(&Happened::Poison { to }).unwrap(),
                11 => NewEvent::encode(&Happened::Cleared { to }).unwrap(),
                5 => garbled(&[&a, &b]),
                _ => NewEvent::encode(&Happened::Noted { to }).unwrap(),
            };
            one.append_events(&format!("s{}", round % 5), Expected::Any, vec![event]).await.unwrap();
            if round % 6 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            match round {
                30 => mended.now(),
                50 => notes.mended.now(),
                _ => {}
            }
            if round % 10 == 0 {
                let _ = one.retry_all(notes.name, false, |_, _| ()).await;
            }
            if round % 15 == 0 {
                let _ = two.refold(notes.name, &a).await;
            }
        }
        store.calm.store(true, Ordering::SeqCst);
        one.caught_up().await.unwrap();
        // Delayed commits arrive at last.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for _ in 0..100 {
            one.retry_all(notes.name, false, |_, _| ()).await.unwrap();
        }
        assert_eq!(one.parked(notes.name, None, 9).await.unwrap(), [], "seed {seed}");
        assert_right(&one, &notes, &format!("seed {seed}")).await;
        one.stop().await;
        two.stop().await;
    }
}

/// Folding takes longer than the lease: workers replace each other, but the batches they commit are
/// not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_slower_than_their_lease_get_on() {
    #[derive(Clone)]
    struct Slow;
    impl Projection for Slow {
        type Event = Happened;
        type Document = u64;
        fn name(&self) -> &'static str {
            "slow"
        }
        #[expect(clippy::disallowed_methods, reason = "a user's fold that takes long")]
        fn fold(&self, count: Option<u64>, _: &Event<Happened>) -> Result<Option<u64>, Error> {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Some(count.unwrap_or(0) + 1))
        }
    }
    let mut store = Shaky::new(1, true);
    store.slow = Duration::from_millis(150);
    store.calm.store(true, Ordering::SeqCst);
    let options = FoldOptions { lease: Duration::from_millis(160), ..quick() };
    let start = || Leftfold::on(store.clone()).options(options.clone()).projection(Slow).start();
    let writer = Leftfold::on(store.clone()).open().await.unwrap();
    writer.append("a", vec![noted(&[]); 10]).await.unwrap();
    let (one, two) = (start().await.unwrap(), start().await.unwrap());
    soon(one.caught_up()).await.unwrap();
    assert_eq!(one.get(Slow, "a").await.unwrap(), Some(10));
    one.stop().await;
    two.stop().await;
}

/// A repair whose write has an unknown outcome counts as a repair.
#[tokio::test]
async fn a_retry_whose_write_came_through_unheard_says_that_it_is_repaired() {
    for notes in [Notes::by_stream(), Notes::by_content()] {
        let store = Shaky::new(1, true);
        store.calm.store(true, Ordering::SeqCst);
        let app =
            Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
        app.append_events("a", Expected::Any, vec![garbled(&[])]).await.unwrap();
        app.caught_up().await.unwrap();
        app.stop().await;
        let (unit, _) = app.parked(notes.name, None, 1).await.unwrap().remove(0);
        notes.mended.now();
        store.deaf.store(true, Ordering::SeqCst);
        assert_eq!(app.retry(notes.name, &unit, false).await.unwrap(), Mended::Repaired, "{unit:?}");
        assert_eq!(app.parked(notes.name, None, 1).await.unwrap(), []);
    }
}

/// A stop finishes the current batch, even if another writer has just changed one of its documents.
#[tokio::test]
async fn stopping_finishes_a_batch_that_meets_a_conflict() {
    let notes = Notes::by_stream();
    let mut store = Shaky::new(1, true);
    store.calm.store(true, Ordering::SeqCst);
    store.slow = Duration::from_millis(200);
    let app = Leftfold::on(store.clone()).options(quick()).projection(notes.clone()).start().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    app.caught_up().await.unwrap();
    app.append("a", [noted(&[])]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let beside = Leftfold::on(store.inner.clone()).projection(notes.clone()).open().await.unwrap();
    beside.refold("by_stream", "a").await.unwrap();
    soon(app.stop()).await;
    assert_eq!(app.status().await.unwrap()[0].lag, 0, "the batch in hand was dropped");
    assert_eq!(stored(app.store(), "by_stream").await["a"], ["a@1", "a@2"]);
}

/// The error of a parked document is written again and again: it must not be as large as an event.
#[tokio::test]
async fn the_error_of_a_parked_document_is_of_bounded_size() {
    let notes = Notes::by_stream();
    let app =
        Leftfold::on(Memory::default()).options(quick()).projection(notes.clone()).start().await.unwrap();
    let huge = leftfold::Json::of(&serde_json::json!({ "to": "ü".repeat(200_000) })).unwrap();
    app.append_events("a", Expected::Any, vec![NewEvent::new("noted", huge).unwrap()]).await.unwrap();
    app.caught_up().await.unwrap();
    let parked = app.parked("by_stream", None, 1).await.unwrap().remove(0).1;
    assert!(
        parked.error.starts_with("can't decode noted: data.to: invalid type: string"),
        "{}",
        parked.error
    );
    assert!(parked.error.len() < 10_000, "it has {} bytes", parked.error.len());
    let said = app.status().await.unwrap()[0].tally.last_error.clone().unwrap_or_default();
    assert!(said.len() < 10_000, "it has {} bytes", said.len());
    app.stop().await;
}

/// `Documents::load` may be stale, and a waiting read accepts its answer once the checkpoint is far
/// enough. Not fixed: it needs a load that is as new as the checkpoint read before it, which the
/// store contract does not offer yet.
#[tokio::test(start_paused = true)]
async fn a_waiting_read_never_answers_with_a_stale_document() {
    let notes = Notes::by_stream();
    let app = Leftfold::on(Shaky::new(3, true)).projection(notes.clone()).start().await.unwrap();
    for appended in 1..=200 {
        let bookmark = app.append("a", [noted(&[])]).await.unwrap();
        if let Ok(seen) = app.get(notes.clone(), "a").at_least(bookmark).await {
            assert_eq!(seen.map_or(0, |seen| seen.events.len()), appended);
        }
    }
}
