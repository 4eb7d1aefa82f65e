//! Runs the demo as a user would.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use leftfold::{Leftfold, Log as _};
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
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text) || self.stderr.contains(text), "no {text:?} in {self:#?}");
        self
    }
}

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold-demo"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(command: &mut Command) -> Answer {
    let output = command.output().unwrap();
    Answer {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A place for a store that only one test uses.
pub(crate) trait Place {
    type Store: leftfold::Store;

    /// Returns its argument for `--store`.
    fn argument(&self) -> OsString;

    /// Opens the store, or creates it.
    async fn open(&self) -> Self::Store;

    /// Runs a command on the store.
    fn run(&self, arguments: &[&str]) -> Answer {
        run(command().args(arguments).arg("--store").arg(self.argument()))
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
}

impl File {
    pub(crate) fn sql(&self, sql: &str) -> usize {
        rusqlite::Connection::open(&self.file).unwrap().execute(sql, []).unwrap()
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        rusqlite::Connection::open(&self.file).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

impl Place for File {
    type Store = leftfold_sqlite::Sqlite;

    fn argument(&self) -> OsString {
        self.file.clone().into()
    }

    async fn open(&self) -> Self::Store {
        leftfold_sqlite::Sqlite::open(&self.file).await.unwrap()
    }
}

/// Also if workers are killed.
pub(crate) fn a_demo_adds_to_an_earlier_one(place: &impl Place) {
    let demo = ["--events", "500", "--kill-every", "1", "--seed", "1", "--json"];
    let first = place.run(&demo).exits(0).json();
    assert!(first["kills"].as_u64().unwrap() > 0, "{first:#}");
    let second = place.run(&demo).exits(0).json();
    assert_eq!((&second["equal"], &second["verdict"]["events"]), (&true.into(), &1_000.into()), "{second:#}");
    place.run(&["verify"]).exits(0).says("1,000 events");
}

/// The demo does not touch a log that it did not create.
pub(crate) async fn the_log_of_another_application_is_refused(place: &impl Place) {
    let app = Leftfold::on(place.open().await).open().await.unwrap();
    let opened = shopping_cart::CartEvent::ShoppingCartOpened { client_id: "ann".into() };
    app.append("cart-1", [opened]).await.unwrap();
    let before = app.store().heads().await.unwrap();
    place.run(&["--events", "10"]).exits(2).says("its log is not a demo's");
    assert_eq!(app.store().heads().await.unwrap(), before);
    place.run(&["verify"]).exits(1).says("cart_details cart-1 is missing");
}
