//! A feed: reads the journal, and waits for more as all who wait for commits do.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leftfold::Result;
use leftfold::react::{Changes, Feed, On, Told};
use rusqlite::Connection;
use tokio::time::Instant;

use super::followed::{self, FollowWork};
use super::is_over;
use super::journal::{self, Page};
use crate::Sqlite;

/// Changes of documents in a SQLite file, by whatever program: triggers note them.
///
/// A row that `INSERT OR REPLACE` removes because of another unique column than its id is not among them, unless the program that does it has
/// set `PRAGMA recursive_triggers`: SQLite runs no trigger for it. It is found when all documents are compared.
pub struct SqliteFeed {
    store: Sqlite,
    /// By what the journal calls them.
    on: BTreeMap<String, On>,
    /// The entry of the journal after which it goes on.
    at: i64,
    /// SQLite's number of the schema in which all triggers were there.
    schema: Option<i64>,
}

/// What a look at the journal found.
enum Look {
    Page(Page, i64),
    /// Some changes are not noted at all.
    NotFollowed,
}

impl SqliteFeed {
    pub(super) fn new(store: Sqlite, on: Vec<On>, at: i64) -> Self {
        let on = on.into_iter().map(|on| (followed::source(&on), on)).collect();
        Self { store, on, at, schema: None }
    }

    async fn look(&self, most: usize) -> Result<Look> {
        let (on, at, checked) = (self.on.clone(), self.at, self.schema);
        let read = move |file: &Connection| {
            let schema = journal::schema(file)?;
            if checked != Some(schema) {
                let all: Vec<_> = on.values().cloned().collect();
                if !followed::are_followed(file, &all)? {
                    return Ok(Look::NotFollowed);
                }
            }
            Ok(Look::Page(journal::read(file, &on, at, most)?, schema))
        };
        self.store.inner.readers.read("follow documents in", read).await
    }
}

impl Feed for SqliteFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<Told> {
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
                    let why = "changes were not noted for a while: triggers or tables were dropped";
                    return Ok(Told::Lost(why.to_owned()));
                }
            };
            match page {
                Page::Lost(why) => return Ok(Told::Lost(why)),
                Page::Changes { documents, through, more } => {
                    (self.at, self.schema) = (through, Some(schema));
                    if !documents.is_empty() {
                        point!("feed-read");
                        return Ok(Told::Changes(Changes { documents, through: through.to_string() }));
                    }
                    if more {
                        continue;
                    }
                }
            }
            // The board outlives the wait, as this handle does.
            let news = known.wait_for(|known| (known.journal, known.schema) != seen);
            if is_over(end, news).await {
                let through = self.at.to_string();
                return Ok(Told::Changes(Changes { documents: BTreeMap::new(), through }));
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
