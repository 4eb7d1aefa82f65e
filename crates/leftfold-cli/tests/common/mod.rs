//! Runs the command as a user would.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
pub(crate) mod scenarios;
pub(crate) mod shop;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use leftfold_sqlite::Sqlite;
use serde_json::Value;
use tempfile::TempDir;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Returns standard output, which must be exactly one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, what: &str) -> Self {
        assert!(self.stdout.contains(what) || self.stderr.contains(what), "no {what:?} in {self:#?}");
        self
    }
}

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A place for a store that only one test uses.
pub(crate) trait Place {
    type Store: leftfold::Store + leftfold::Sequences + leftfold::react::ReactionStore;

    /// Returns its argument for `--store`.
    fn argument(&self) -> OsString;

    /// Opens the store, or creates it.
    async fn open(&self) -> Self::Store;

    /// Corrupts a document: sets a field to 7, past the engine.
    async fn spoil(&self, collection: &str, id: &str, field: &str);

    /// Runs a command on the store, without the code of its projections.
    fn run(&self, arguments: &[&str]) -> Answer {
        run(command().arg("--store").arg(self.argument()).args(arguments))
    }

    /// Runs a command on the store, with the code of the shop's projections.
    fn run_with_code(&self, arguments: &[&str]) -> Answer {
        let shop = shop::configured(self.argument().to_str().unwrap());
        run(command().arg("--config").arg(shop.path().join("leftfold.toml")).args(arguments))
    }
}

/// A directory with a file in it.
pub(crate) struct File {
    pub(crate) directory: TempDir,
    pub(crate) file: PathBuf,
}

impl File {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shop.db");
        Self { directory, file }
    }

    pub(crate) fn sql(&self, sql: &str) -> usize {
        rusqlite::Connection::open(&self.file).unwrap().execute(sql, []).unwrap()
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        rusqlite::Connection::open(&self.file).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

impl Place for File {
    type Store = Sqlite;

    fn argument(&self) -> OsString {
        self.file.clone().into()
    }

    async fn open(&self) -> Sqlite {
        Sqlite::open(&self.file).await.unwrap()
    }

    async fn spoil(&self, collection: &str, id: &str, field: &str) {
        let table = format!("leftfold_{collection}_1");
        let sql = format!("UPDATE {table} SET body = json_set(body, '$.{field}', 7) WHERE id = '{id}'");
        assert_eq!(self.sql(&sql), 1);
    }
}

pub(crate) fn run(command: &mut Command) -> Answer {
    let output = command.output().unwrap();
    Answer {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
