//! The identity of the open file. SQLite keeps using a file that was deleted or replaced, and
//! everything that it writes there is lost. So the writer checks the identity before each commit,
//! and later connections must open the same file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use leftfold::Kind;

use crate::error::Failure;

/// The file that was opened, and the write-ahead log beside it.
#[derive(Debug)]
pub(crate) struct Identity {
    path: PathBuf,
    log: PathBuf,
    file_id: Option<Id>,
    /// The id of the log. SQLite creates the log on first use, and keeps it while any process has
    /// the file open.
    log_id: OnceLock<Id>,
}

/// The unique identity of a file: its device and its inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id(u64, u64);

impl Identity {
    /// Returns the identity of the current file.
    pub(crate) fn of(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self { path: path.to_owned(), log: log.into(), file_id: id(path), log_id: OnceLock::new() }
    }

    /// Fails if the file or its write-ahead log was replaced, moved or deleted.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Some(file) = self.file_id else { return Ok(()) };
        let found = id(&self.path);
        if found != Some(file) {
            let report = format!("the file {} since it was opened", fate(found));
            let advice = "put it back, or restart this process if the new file is the right one";
            return Err(Failure::new(Kind::Unavailable, advice, report));
        }
        let found = id(&self.log);
        match (self.log_id.get(), found) {
            (Some(log), found) if found != Some(*log) => {
                let report = format!("its write-ahead log {} {}", self.log.display(), fate(found));
                let advice = "stop this process gracefully, which saves its commits, and start it again";
                Err(Failure::new(Kind::Unavailable, advice, report))
            }
            (None, Some(found)) => {
                // If another check was faster, its id counts: the earliest one found is the right
                // one.
                let _ = self.log_id.set(found);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the write-ahead log was deleted or moved while the file is unchanged.
    ///
    /// Then a checkpoint is safe. A replaced file or log may have commits of another process that
    /// shares the log's index: a checkpoint would mix the two.
    pub(crate) fn has_lost_log(&self) -> bool {
        self.file_id.is_some()
            && id(&self.path) == self.file_id
            && self.log_id.get().is_some()
            && id(&self.log).is_none()
    }
}

fn fate(found: Option<Id>) -> &'static str {
    if found.is_some() { "was replaced" } else { "was deleted or moved" }
}

#[cfg(unix)]
fn id(path: &Path) -> Option<Id> {
    use std::os::unix::fs::MetadataExt as _;

    let found = path.metadata().ok()?;
    Some(Id(found.dev(), found.ino()))
}

/// Without inode numbers there is no identity, and no check.
#[cfg(not(unix))]
fn id(_: &Path) -> Option<Id> {
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_missing_or_replaced_file_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let [file, log, away] = ["store.db", "store.db-wal", "away"].map(|name| directory.path().join(name));
        fs::write(&file, "").unwrap();
        let identity = Identity::of(&file);
        identity.check().unwrap();
        fs::write(&log, "").unwrap();
        identity.check().unwrap();

        fs::rename(&file, &away).unwrap();
        assert_eq!(identity.check().unwrap_err().kind(), Kind::Unavailable);
        fs::write(&file, "").unwrap();
        assert!(format!("{:?}", identity.check().unwrap_err()).contains("replaced"));
        fs::rename(&away, &file).unwrap();
        identity.check().unwrap();

        assert!(!identity.has_lost_log());
        fs::rename(&log, &away).unwrap();
        assert!(identity.has_lost_log());
        assert!(format!("{:?}", identity.check().unwrap_err()).contains("store.db-wal was deleted"));
        fs::write(&log, "").unwrap();
        assert!(format!("{:?}", identity.check().unwrap_err()).contains("store.db-wal was replaced"));
        assert!(!identity.has_lost_log());
        fs::rename(&away, &log).unwrap();
        identity.check().unwrap();
    }
}
