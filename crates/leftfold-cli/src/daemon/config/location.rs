//! The locations that the file names: its store, and other files relative to its directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use leftfold_terminal::{AnyLocation, Failure, SqliteFile};

use super::Config;
use super::file::ProjectionConfig;

impl Config {
    /// Returns the store that the file names.
    pub(crate) fn location(&self) -> Result<AnyLocation, Failure> {
        let url = self.reveal("the store's URL", &self.store.url)?;
        Ok(match AnyLocation::from(OsString::from(url)) {
            AnyLocation::File(SqliteFile(path)) => AnyLocation::File(SqliteFile(self.resolve(&path))),
            other => other,
        })
    }

    /// Resolves a path relative to the configuration file.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Returns the path of a script.
    pub(crate) fn script_file(&self, projection: &ProjectionConfig) -> PathBuf {
        self.resolve(&projection.script)
    }
}
