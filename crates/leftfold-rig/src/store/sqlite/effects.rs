//! Items and effects as tables.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use leftfold::react::{Context, HandlerError, ReactionStore as _};
use leftfold::{Error, Event, Kind, Result};
use leftfold_sim::notes::FoldedEvents;
use leftfold_sqlite::{InTransaction, Sqlite};
use rusqlite::{Connection, TransactionBehavior};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FOLLOWED, read};
use crate::points;
use crate::react::{Effect, ITEMS, Item, summary};
use crate::store::Place;
use crate::store::effects::{EFFECTS, Effects};

impl Effects for Sqlite {
    const LARGE_BYTES: usize = 2_000_000;

    async fn create_tables(&self) -> Result<()> {
        let tables = format!(
            "CREATE TABLE {ITEMS} (id TEXT PRIMARY KEY, body TEXT);
             CREATE TABLE {EFFECTS} (reaction TEXT, document TEXT, effect TEXT);
             CREATE INDEX {EFFECTS}_of ON {EFFECTS} (reaction, document);"
        );
        write(self.path(), move |file| file.execute_batch(&tables)).await
    }

    async fn put_item(&self, id: &str, item: Option<&Item>) -> Result<()> {
        let (id, body) = (id.to_owned(), item.map(serde_json::to_string).transpose());
        let body = body.map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
        let put = format!(
            "INSERT INTO {ITEMS} VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
        );
        write(self.path(), move |file| match body {
            Some(body) => file.execute(&put, [id, body]).map(drop),
            None => file.execute(&format!("DELETE FROM {ITEMS} WHERE id = ?1"), [id]).map(drop),
        })
        .await
    }

    async fn insert_items(&self, items: &[(String, Item)]) -> Result<()> {
        let mut rows = Vec::new();
        for (id, item) in items {
            let body =
                serde_json::to_string(item).map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
            rows.push([id.clone(), body]);
        }
        write(self.path(), move |file| {
            let transaction = file.unchecked_transaction()?;
            for row in rows {
                transaction.execute(&format!("INSERT OR REPLACE INTO {ITEMS} VALUES (?1, ?2)"), row)?;
            }
            transaction.commit()
        })
        .await
    }

    async fn put_unreadable(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn items(&self) -> Result<BTreeMap<String, Item>> {
        let all = |file: &Connection| {
            let mut statement = file.prepare(&format!("SELECT id, body FROM {ITEMS}"))?;
            let rows =
                statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let found = read(self.path(), all).await?;
        found.into_iter().map(|(id, body)| Ok((id, parse(&body)?))).collect()
    }

    async fn effects(&self) -> Result<Vec<Effect>> {
        let all = |file: &Connection| {
            let mut statement = file.prepare(&format!("SELECT effect FROM {EFFECTS}"))?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read(self.path(), all).await?.iter().map(|effect| parse(effect)).collect()
    }

    async fn record(ctx: Context<FoldedEvents>) -> Result<(), HandlerError> {
        complete(ctx, |ctx, transaction| Ok(summary(&ctx.document_in(transaction)?))).await
    }

    async fn pass(ctx: Context<Event>) -> Result<(), HandlerError> {
        complete(ctx, |ctx, _| Ok(ctx.event()?.revision.0)).await
    }

    async fn leaders(&self) -> Result<Vec<(String, String)>> {
        let now = self.time().await?.as_microsecond();
        read(self.path(), move |file| {
            let sql = "SELECT name, owner FROM leftfold_leases WHERE owner IS NOT NULL AND until > ?1";
            let mut statement = file.prepare(sql)?;
            let rows = statement.query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .await
    }

    /// Drops triggers, as a user might by mistake.
    async fn provoke(&self, place: &Place) -> Result<()> {
        if !place.passes.contains(&FOLLOWED) {
            return Ok(());
        }
        write(self.path(), |file| {
            let sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'leftfold_changes_update %'";
            let names: rusqlite::Result<Vec<String>> =
                file.prepare(sql)?.query_map([], |row| row.get(0))?.collect();
            names?.iter().try_for_each(|name| file.execute_batch(&format!("DROP TRIGGER \"{name}\"")))
        })
        .await
    }
}

/// Records an effect with the result of `look` and completes the task in the same transaction.
async fn complete<D, T>(
    ctx: Context<D>,
    look: fn(&Context<D>, &Connection) -> Result<T, HandlerError>,
) -> Result<(), HandlerError>
where
    D: 'static,
    T: Serialize + 'static,
{
    let path = ctx.store::<Sqlite>().ok_or("the run has another store")?.path().to_owned();
    let done = tokio::task::spawn_blocking(move || -> Result<(), HandlerError> {
        points::reached(points::BEGIN);
        let mut file = Connection::open(path)?;
        file.busy_timeout(Duration::from_secs(10))?;
        file.pragma_update(None, "synchronous", "FULL")?;
        let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut effect = Effect::of(&ctx, &look(&ctx, &transaction)?)?;
        let count = format!("SELECT count(*) FROM {EFFECTS} WHERE reaction = ?1 AND document = ?2");
        let before: i64 =
            transaction.query_row(&count, [&effect.reaction, &effect.document], |row| row.get(0))?;
        effect.before = Some(before.unsigned_abs());
        let text = serde_json::to_string(&effect)?;
        let insert = format!("INSERT INTO {EFFECTS} VALUES (?1, ?2, ?3)");
        transaction.execute(&insert, [&effect.reaction, &effect.document, &text])?;
        ctx.complete_in(&transaction)?;
        points::reached(points::COMPLETED);
        transaction.commit()?;
        points::reached(points::COMMITTED);
        Ok(())
    });
    done.await?
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::new(Kind::Format, format!("{text}: {error}")))
}

/// Writes with a separate connection, as any program could.
async fn write(
    path: &Path,
    write: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
) -> Result<()> {
    let path = path.to_owned();
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(Kind::Store, format!("writing to the store with a separate connection: {error}"))
    };
    let done = tokio::task::spawn_blocking(move || {
        let file = Connection::open(&path)?;
        file.busy_timeout(Duration::from_secs(20))?;
        write(&file)
    });
    done.await.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
}
