//! A temporary store.

use std::io::ErrorKind;
use std::time::Duration;

use leftfold_terminal::{Exit, Failure, SqliteFile};
use tempfile::TempDir;
use tokio::time::sleep;

/// A file in a temporary directory.
pub(crate) struct Scratch {
    pub(crate) file: SqliteFile,
    directory: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("leftfold-demo-").tempdir().map_err(|error| {
            let message = format!("creating a temporary directory: {error}; name a file with --store");
            Failure::new(Exit::Store, message)
        })?;
        Ok(Self { file: SqliteFile(directory.path().join("demo.db")), directory })
    }

    /// Deletes the directory, even while a killed worker is still ending.
    pub(crate) async fn clear(self) {
        let directory = self.directory.keep();
        for _ in 0..100 {
            match std::fs::remove_dir_all(&directory) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::NotFound => return,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
