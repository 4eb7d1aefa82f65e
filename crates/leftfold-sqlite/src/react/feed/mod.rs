//! A feed: reads the journal, and waits for commits on the board.

pub(crate) mod journal;
pub(super) mod place;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leftfold::Result;
use leftfold::react::{DocumentFeed, DocumentSource, FeedChanges, FeedItem};
use rusqlite::Connection;
use tokio::time::Instant;

use self::journal::Page;
use super::prepare::FollowWork;
use super::triggers;
use super::wake::is_over;
use crate::Sqlite;

/// Changes of documents in a SQLite file, made by any program: triggers record them.
///
/// One kind of change is missing: `INSERT OR REPLACE` may delete another row because of a unique
/// column other than the id. SQLite runs no trigger for that row, unless the program has set
/// `PRAGMA recursive_triggers`. A comparison of all documents finds the deleted row.
pub struct SqliteFeed {
    store: Sqlite,
    /// The followed documents, by their names in the journal.
    on: BTreeMap<String, DocumentSource>,
    /// The number of the last journal entry that was read.
    at: i64,
    /// SQLite's schema version at which all triggers existed.
    schema: Option<i64>,
}

/// The result of reading the journal.
enum Look {
    Page(Page, i64),
    /// Triggers are missing, so some changes are not recorded.
    NotFollowed,
}

impl SqliteFeed {
    pub(super) fn new(store: Sqlite, on: Vec<DocumentSource>, at: i64) -> Self {
        let on = on.into_iter().map(|on| (triggers::source(&on), on)).collect();
        Self { store, on, at, schema: None }
    }

    async fn look(&self, most: usize) -> Result<Look> {
        let (on, at, checked) = (self.on.clone(), self.at, self.schema);
        let read = move |file: &Connection| {
            let schema = journal::schema(file)?;
            if checked != Some(schema) {
                let all: Vec<_> = on.values().cloned().collect();
                if !triggers::are_followed(file, &all)? {
                    return Ok(Look::NotFollowed);
                }
            }
            Ok(Look::Page(journal::read(file, &on, at, most)?, schema))
        };
        self.store.inner.readers.read("follow documents in", read).await
    }
}

impl DocumentFeed for SqliteFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<FeedItem> {
        let end = Instant::now().checked_add(patience);
        let (_waiting, mut known) = self.store.inner.board.wait()?;
        loop {
            let seen = {
                let known = known.borrow_and_update();
                (known.journal, known.schema)
            };
            let (page, schema) = match self.look(most).await? {
                Look::Page(page, schema) => (page, schema),
                Look::NotFollowed => {
                    let all = self.on.values().cloned().collect();
                    self.store.inner.writer.run(FollowWork(all)).await?;
                    let why = "changes were not recorded for a while: triggers or tables were dropped";
                    return Ok(FeedItem::Lost(why.to_owned()));
                }
            };
            match page {
                Page::Lost(why) => return Ok(FeedItem::Lost(why)),
                Page::Changes { documents, through, more } => {
                    (self.at, self.schema) = (through, Some(schema));
                    if !documents.is_empty() {
                        point!("feed-read");
                        return Ok(FeedItem::Changes(FeedChanges {
                            documents,
                            through: through.to_string(),
                        }));
                    }
                    if more {
                        continue;
                    }
                }
            }
            // The wait can't fail: this handle keeps the board alive.
            let news = known.wait_for(|known| (known.journal, known.schema) != seen);
            if is_over(end, news).await {
                let through = self.at.to_string();
                return Ok(FeedItem::Changes(FeedChanges { documents: BTreeMap::new(), through }));
            }
        }
    }
}

impl fmt::Debug for SqliteFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, on, at, .. } = self;
        f.debug_struct("SqliteFeed")
            .field("store", store)
            .field("on", on)
            .field("at", at)
            .finish_non_exhaustive()
    }
}
