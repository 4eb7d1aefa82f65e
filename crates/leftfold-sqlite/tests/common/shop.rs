//! A store whose file another program uses, too, and helpers to read its feeds.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{DocumentFeed as _, DocumentSource, ExternalCollection, FeedItem, ReactionStore as _};
use leftfold_sqlite::{Sqlite, SqliteFeed};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

use super::cart;

/// The longest wait for something that must happen.
pub(crate) const A_WHILE: Duration = Duration::from_secs(30);

pub(crate) fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

pub(crate) fn orders() -> DocumentSource {
    DocumentSource::External(ExternalCollection::new("orders").unwrap())
}

pub(crate) fn carts() -> DocumentSource {
    DocumentSource::Projection(cart())
}

/// A store, its file, and another program that has created a table of orders in it.
pub(crate) struct Shop {
    pub(crate) store: Sqlite,
    pub(crate) path: PathBuf,
    pub(crate) other: Connection,
    pub(crate) _directory: TempDir,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let directory = tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = Sqlite::open(&path).await.unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT, seen INTEGER)").unwrap();
        Self { store, path, other, _directory: directory }
    }

    /// Opens a feed of the orders, from now on.
    pub(crate) async fn follow(&self) -> SqliteFeed {
        self.store.prepare_reactions(&[orders()]).await.unwrap();
        self.store.follow(vec![orders()], None).await.unwrap()
    }

    pub(crate) fn run(&self, sql: &str) {
        self.other.execute_batch(sql).expect(sql);
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.other.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn entries(&self) -> i64 {
        self.number("SELECT count(*) FROM leftfold_changes")
    }
}

/// Returns all pending changes of a feed, and its place after them.
pub(crate) async fn news(feed: &mut SqliteFeed) -> (BTreeSet<String>, String) {
    let mut names = BTreeSet::new();
    loop {
        match feed.next(100, Duration::ZERO).await.unwrap() {
            FeedItem::Changes(changes) if changes.documents.is_empty() => return (names, changes.through),
            FeedItem::Changes(changes) => {
                names.extend(changes.documents.into_values().flatten().map(|id| id.to_string()));
            }
            FeedItem::Lost(why) => panic!("{why}"),
        }
    }
}

pub(crate) async fn named(feed: &mut SqliteFeed) -> Vec<String> {
    news(feed).await.0.into_iter().collect()
}

/// Returns the reason why a feed is lost.
pub(crate) async fn lost(feed: &mut SqliteFeed) -> String {
    match feed.next(100, Duration::ZERO).await.unwrap() {
        FeedItem::Lost(why) => why,
        FeedItem::Changes(changes) => panic!("{changes:?}"),
    }
}
