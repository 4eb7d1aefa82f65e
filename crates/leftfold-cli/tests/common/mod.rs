//! Runs the command as a user would.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Standard output, which must be exactly one JSON value.
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

/// A directory with a file in it.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) file: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shop.db");
        Self { directory, file }
    }

    /// Runs a command on the file.
    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        run(command().args(arguments).arg("--store").arg(&self.file))
    }

    pub(crate) fn sql(&self, sql: &str) -> usize {
        rusqlite::Connection::open(&self.file).unwrap().execute(sql, []).unwrap()
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        rusqlite::Connection::open(&self.file).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
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

/// Looks until it is so, for half a minute.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The processes that have this path among their arguments.
#[cfg(target_os = "linux")]
pub(crate) fn processes_with(path: &Path) -> Vec<String> {
    let wanted = path.to_str().unwrap();
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let command = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(wanted).then_some(command)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(of).collect()
}
