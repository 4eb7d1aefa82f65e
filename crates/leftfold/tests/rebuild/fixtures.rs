//! Values and checks that these tests share.

use std::time::Duration;

use crate::common::{Happened, Mended, Seen, noted};
use leftfold::documents::Generations;
use leftfold::fold::{DocumentIds, Error, FoldOptions};
use leftfold::{App, Collection, Documents as _, Event, Leftfold, Memory, Projection, Route};

/// Lists the events it has seen; code of another version lists them differently.
#[derive(Clone)]
pub(crate) struct Notes {
    pub(crate) version: u32,
    pub(crate) by_stream: bool,
    pub(crate) mended: Mended,
}

impl Notes {
    pub(crate) fn new(version: u32) -> Self {
        Self { version, by_stream: true, mended: Mended::default() }
    }
}

impl Projection for Notes {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &'static str {
        "notes"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn route(&self) -> Route<Happened> {
        if self.by_stream {
            return Route::Stream;
        }
        Route::by(|event: &Event<Happened>| match &event.data {
            Happened::Noted { to } | Happened::Poison { to } => DocumentIds::many(to),
            _ => Ok(DocumentIds::none()),
        })
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, Error> {
        if matches!(event.data, Happened::Poison { .. }) && !self.mended.is() {
            return Err("poison".into());
        }
        let mut seen = seen.unwrap_or_default();
        seen.events.push(format!("{}: {}@{}", self.version, event.stream, event.revision));
        Ok(Some(seen))
    }
}

pub(crate) fn notes() -> Collection {
    Collection::new("notes").unwrap()
}

pub(crate) fn options() -> FoldOptions {
    FoldOptions { lease: Duration::from_secs(2), page_bytes: 300, batch_bytes: 1, ..FoldOptions::default() }
}

pub(crate) async fn start(store: &Memory, code: Notes) -> App<Memory> {
    Leftfold::on(store.clone()).options(options()).projection(code).start().await.unwrap()
}

pub(crate) async fn open(store: &Memory, code: Notes) -> App<Memory> {
    Leftfold::on(store.clone()).options(options()).projection(code).open().await.unwrap()
}

pub(crate) async fn append(app: &App<Memory>, count: usize) {
    for number in 0..count {
        let (stream, other) = (format!("s{}", number % 7), format!("s{}", number % 5));
        app.append(&stream, [noted(&[&stream, &other])]).await.unwrap();
    }
}

/// Creates a store with this many events that code of version 1 has folded.
pub(crate) async fn folded(partitions: u16, count: usize) -> Memory {
    let store = Memory::new(partitions);
    let app = start(&store, Notes::new(1)).await;
    append(&app, count).await;
    app.caught_up().await.unwrap();
    app.stop().await;
    store
}

pub(crate) async fn known(store: &Memory) -> Generations {
    store.generations(&notes()).await.unwrap()
}

/// Asserts that code of this version has folded all documents.
pub(crate) async fn assert_all_by(app: &App<Memory>, version: &str) {
    app.caught_up().await.unwrap();
    let records = app.store().scan(&notes(), None, 100).await.unwrap();
    assert_eq!(records.len(), 7);
    for record in records {
        let seen: Seen = record.body.unwrap().to().unwrap();
        let own: Vec<_> =
            (1..=seen.events.len()).map(|at| format!("{version}: {}@{at}", record.id)).collect();
        assert_eq!(seen.events, own);
    }
}
