//! Panics in the code of a projection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::Mended as Switch;
use crate::fixtures::{quick, soon};
use leftfold::fold::{DocumentIds, Error, FoldOptions, Mended};
use leftfold::{Event, Leftfold, Memory, Projection, Route};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
enum BookEvent {
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
    type Event = BookEvent;
    type Document = Book;

    fn name(&self) -> &'static str {
        "book"
    }

    fn route(&self) -> Route<BookEvent> {
        if self.by_stream {
            return Route::Stream;
        }
        let mended = self.mended.clone();
        Route::by(move |event: &Event<BookEvent>| {
            assert!(mended.is() || !matches!(event.data, BookEvent::BadRoute {}), "can't route");
            DocumentIds::one(&event.stream)
        })
    }

    fn upcast(&self, event: Event) -> Event {
        assert!(self.mended.is() || event.kind.as_str() != "bad-upcast", "can't lift");
        event
    }

    fn fold(&self, book: Option<Book>, event: &Event<BookEvent>) -> Result<Option<Book>, Error> {
        let mut book = book.unwrap_or_default();
        book.lines.push(Line(
            match event.data {
                BookEvent::BadWrite {} => "unwritable",
                BookEvent::BadRead {} => "unreadable",
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
        app.append("bad", [BookEvent::Fine {}]).await.unwrap();
        let bad = match at {
            At::Upcast => BookEvent::BadUpcast {},
            At::Decode => BookEvent::BadDecode { text: Picky("text".into()) },
            At::Route => BookEvent::BadRoute {},
            At::Write => BookEvent::BadWrite {},
            At::Read => BookEvent::BadRead {},
        };
        app.append("bad", [bad]).await.unwrap();
        for _ in 0..5 {
            let bookmark = app.append("good", [BookEvent::Fine {}]).await.unwrap();
            let read =
                app.get(panics.clone(), "good").at_least(bookmark).within(Duration::from_secs(2)).await;
            assert!(read.is_ok(), "{case}: others must go on: {}", read.unwrap_err());
        }
        app.append("bad", [BookEvent::Fine {}]).await.unwrap();
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
