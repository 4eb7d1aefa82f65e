//! Rebuilds in a file that several processes have open, as seen by plain SQL.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::path::Path;

use leftfold::fold::Error;
use leftfold::inspect::Sample;
use leftfold::{App, Event, Leftfold, Projection};
use leftfold_sqlite::Sqlite;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Happened {
    Added { by: u64 },
}

/// A projection of sums, multiplied by the version of its code.
struct Totals(u32);

impl Projection for Totals {
    type Event = Happened;
    type Document = u64;

    fn name(&self) -> &'static str {
        "totals"
    }

    fn version(&self) -> u32 {
        self.0
    }

    fn fold(&self, total: Option<u64>, event: &Event<Happened>) -> Result<Option<u64>, Error> {
        let Happened::Added { by } = event.data;
        Ok(Some(total.unwrap_or(0) + u64::from(self.0) * by))
    }
}

/// Starts an application like a separate process: it finds commits of others only through the file.
async fn start(path: &Path, version: u32) -> App<Sqlite> {
    let store = Sqlite::open(path).await.unwrap();
    Leftfold::on(store).projection(Totals(version)).start().await.unwrap()
}

/// Returns the sum of all totals, as any program reads it in one statement.
fn sum(file: &Connection) -> u64 {
    file.query_row("SELECT coalesce(sum(body), 0) FROM totals", [], |row| row.get::<_, i64>(0))
        .unwrap()
        .unsigned_abs()
}

fn tables(file: &Connection) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE name LIKE 'leftfold_totals%_1' AND type = 'table' ORDER BY name";
    let mut statement = file.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_rebuilds_what_others_fold_and_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let (one, other) = (start(&path, 1).await, start(&path, 1).await);
    for number in 0..200 {
        one.append(&format!("s{}", number % 10), [Happened::Added { by: 1 }]).await.unwrap();
    }
    one.caught_up().await.unwrap();
    let file = Connection::open(&path).unwrap();
    assert_eq!(sum(&file), 200);
    one.stop().await;
    let new = start(&path, 2).await;
    let rebuild = new.rebuild("totals").await.unwrap();
    rebuild.built().await.unwrap();
    assert_eq!(sum(&file), 200, "what is built is not seen");
    assert_eq!(tables(&file).len(), 4);
    let difference = rebuild.difference(1).await.unwrap();
    assert_eq!((difference.compared, difference.differing, difference.samples.len()), (10, 10, 1));
    rebuild.switch().await.unwrap();
    assert_eq!(sum(&file), 400, "plain SQL sees it at once");
    // The other process has old code: it stands by, reads the live generation, and may append.
    let bookmark = other.append("s0", [Happened::Added { by: 5 }]).await.unwrap();
    let total =
        other.get(Totals(1), "s0").at_least(bookmark.clone()).within(std::time::Duration::from_secs(20));
    assert_eq!(total.await.unwrap(), Some(50));
    other.stop().await;
    // The same holds after all processes have closed the file.
    new.stop().await;
    drop((one, other, new));
    let again = start(&path, 2).await;
    assert_eq!(again.get(Totals(2), "s0").at_least(bookmark).await.unwrap(), Some(50));
    let verified = again.verify("totals", Sample::All, |wrong| panic!("{wrong:?}")).await.unwrap();
    assert_eq!((verified.checked, verified.differing), (10, 0));
    assert_eq!(sum(&file), 410);
    again.undo("totals").await.unwrap();
    assert_eq!(sum(&file), 210, "with what has come since, folded by the code there is");
    again.forget_kept("totals").await.unwrap();
    assert_eq!(tables(&file), ["leftfold_totals_1", "leftfold_totals~streams_1"]);
    again.stop().await;
}
