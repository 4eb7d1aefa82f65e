//! Work that shares a transaction is isolated: each of these fails in its own way, among others
//! that succeed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self as std_mpsc, Receiver};
use std::sync::{Arc, Mutex};

use leftfold::{Error, Result};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::writer::QUEUE;
use super::{Ran, Tx, Work, Writer, open};
use crate::Sqlite;
use crate::error::Failure;
use crate::watch::Board;

type Answer = Result<&'static str>;

/// The behaviour of test work after it has written its row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// Succeeds.
    Keep,
    /// Undoes its row.
    Undo,
    /// Fails.
    Fail,
    /// Breaks the whole transaction, as SQLite does by itself on a full disk.
    Break,
    /// Makes the commit fail.
    Spoil,
}

struct Put(&'static str, Then);

impl Work for Put {
    type Answer = Answer;

    const DOING: &'static str = "test";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Answer>, Failure> {
        let Self(name, then) = self;
        tx.connection.execute("INSERT INTO put VALUES (?1)", [name])?;
        match then {
            Then::Keep => return Ok(Ran::Keep(Ok(name))),
            Then::Undo => return Ok(Ran::Undo(Ok(name))),
            Then::Break => tx.connection.execute_batch("ROLLBACK")?,
            Then::Fail => {}
            Then::Spoil => {
                // SQLite checks this at the commit.
                tx.connection.execute_batch("INSERT INTO child VALUES (7)")?;
                return Ok(Ran::Keep(Ok(name)));
            }
        }
        Err(Failure::damaged("as it should"))
    }

    fn failed(error: Error) -> Answer {
        Err(error)
    }
}

/// Keeps the writer busy until released, so that the next jobs share its group.
struct Block {
    running: Arc<AtomicBool>,
    end: Mutex<Receiver<()>>,
}

impl Work for Block {
    type Answer = Result<()>;

    const DOING: &'static str = "test";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, _: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        self.running.store(true, Ordering::SeqCst);
        let _ = self.end.lock().unwrap().recv();
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

struct Rig {
    writer: Arc<Writer>,
    reader: Connection,
    _directory: TempDir,
}

fn rig() -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let (connection, partitions, identity) = open(&path, &Sqlite::options()).unwrap();
    let identity = Arc::new(identity);
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON; CREATE TABLE put (name); CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (parent REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    let (stay_open, others) = std_mpsc::channel();
    let board = Board::new(&path, &identity, partitions, stay_open);
    let writer = Arc::new(Writer::start(connection, &path, &identity, board, others).unwrap());
    let reader = Connection::open(&path).unwrap();
    Rig { writer, reader, _directory: directory }
}

impl Rig {
    /// Keeps the writer busy until the sender is used or dropped.
    async fn block(&self) -> (std_mpsc::Sender<()>, JoinHandle<Result<()>>) {
        let (release, end) = std_mpsc::channel();
        let running = Arc::new(AtomicBool::new(false));
        let block = Block { running: Arc::clone(&running), end: end.into() };
        let writer = Arc::clone(&self.writer);
        let block = tokio::spawn(async move { writer.run(block).await });
        while !running.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        (release, block)
    }

    /// Runs all work in one group, and returns the answers.
    async fn group(&self, works: &[(&'static str, Then)]) -> Vec<Answer> {
        let (release, block) = self.block().await;
        let mut answers = Vec::new();
        for (at, (name, then)) in works.iter().enumerate() {
            let (writer, work) = (Arc::clone(&self.writer), Put(name, *then));
            answers.push(tokio::spawn(async move { writer.run(work).await }));
            while self.writer.jobs.capacity() + at >= QUEUE {
                tokio::task::yield_now().await;
            }
        }
        // The block is the first job of the group: when it runs again with the others, it does not
        // block.
        drop(release);
        let _ = block.await.unwrap();
        let mut all = Vec::new();
        for answer in answers {
            all.push(answer.await.unwrap());
        }
        all
    }

    fn there(&self) -> Vec<String> {
        let mut statement = self.reader.prepare("SELECT name FROM put ORDER BY rowid").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn each_in_a_group_is_on_its_own() {
    use Then::{Break, Fail, Keep, Undo};
    for odd in [Undo, Fail, Break] {
        for at in 0..4 {
            let rig = rig();
            let names = ["a", "b", "c", "d"];
            let mut works = names.map(|name| (name, Keep));
            works[at].1 = odd;
            let answers = rig.group(&works).await;
            for (number, answer) in answers.iter().enumerate() {
                let fails = number == at && odd != Undo;
                assert_eq!(answer.is_err(), fails, "{odd:?} at {at}: {number} {answer:?}");
                if let Err(error) = answer {
                    assert!(!error.is_unknown(), "nothing of it is written, for sure: {error}");
                }
            }
            let expected: Vec<_> =
                names.iter().enumerate().filter(|(number, _)| *number != at).map(|(_, name)| *name).collect();
            assert_eq!(rig.there(), expected, "{odd:?} at {at}");
        }
    }
}

#[tokio::test]
async fn work_that_breaks_the_transaction_does_not_affect_other_work() {
    use Then::{Break, Fail, Keep, Undo};
    let rig = rig();
    let works = [
        ("a", Break),
        ("b", Keep),
        ("c", Break),
        ("d", Undo),
        ("e", Keep),
        ("f", Fail),
        ("g", Break),
        ("h", Break),
        ("i", Keep),
        ("j", Break),
    ];
    let answers = rig.group(&works).await;
    for ((name, then), answer) in works.iter().zip(&answers) {
        assert_eq!(answer.is_ok(), matches!(then, Keep | Undo), "{name}: {answer:?}");
    }
    assert_eq!(rig.there(), ["b", "e", "i"]);
}

#[tokio::test]
async fn a_failed_commit_has_an_unknown_outcome_and_work_goes_on() {
    use Then::{Keep, Spoil, Undo};
    let rig = rig();
    let answers = rig.group(&[("a", Keep), ("b", Spoil), ("c", Undo)]).await;
    for answer in answers {
        let error = answer.unwrap_err();
        assert!(error.is_unknown(), "{error}");
        assert!(error.to_string().contains("repeat the same call"), "{error}");
    }
    assert_eq!(rig.there(), [""; 0]);
    assert!(rig.group(&[("a", Keep)]).await[0].is_ok());
    assert_eq!(rig.there(), ["a"]);
}

#[tokio::test]
async fn queued_work_is_done_even_if_its_caller_is_gone() {
    let rig = rig();
    let (release, block) = rig.block().await;
    let writer = Arc::clone(&rig.writer);
    let dropped = tokio::spawn(async move { writer.run(Put("a", Then::Keep)).await });
    while rig.writer.jobs.capacity() == QUEUE {
        tokio::task::yield_now().await;
    }
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    block.abort();
    let Rig { writer, reader, _directory } = rig;
    let _ = block.await;
    drop(writer);
    release.send(()).unwrap();
    let count = || reader.query_row("SELECT count(*) FROM put", [], |row| row.get::<_, i64>(0)).unwrap();
    while count() == 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn failures_tell_what_to_do() {
    use leftfold::Kind;
    let of = |code| Failure::from(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None));
    for (code, kind) in [
        (rusqlite::ffi::SQLITE_FULL, Kind::Full),
        (rusqlite::ffi::SQLITE_BUSY, Kind::Unavailable),
        (rusqlite::ffi::SQLITE_CORRUPT, Kind::Format),
        (rusqlite::ffi::SQLITE_IOERR, Kind::Store),
    ] {
        assert_eq!(of(code).kind(), kind);
        assert_eq!(of(code).unknown().kind(), Kind::Unknown);
    }
}
